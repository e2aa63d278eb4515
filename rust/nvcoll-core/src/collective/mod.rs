//! The contracts: the promises of each collective, independent of algorithms. **A collective is one row of the table below.**
//!
//! A contract divides the data into parts. It lists the parts that the input and the output of each rank hold, in memory order.
//! It defines the value of every part of every output: a reduction of the contributions of some ranks, each once, or a copy of
//! one rank's part.
//!
//! ```text
//! parts of n ranks   input of rank r             output of rank r                      root
//! all_reduce      1  all                         all
//! reduce_scatter  n  all                         r
//! all_gather      n  r                           all
//! broadcast       1  all on the root             all                                   yes
//! reduce          1  all                         all on the root                       yes
//! gather          n  r                           all on the root                       yes
//! scatter         n  all on the root             r                                     yes
//! all_to_all    n n  r n, r n + 1, …             r, n + r, 2 n + r, …
//! scan, exscan    1  all                         all (exscan: not on rank 0)
//! barrier         0
//! ```
//!
//! In place, a part that both buffers of a rank hold is the same memory. all_to_all is never in place, because its two buffers
//! hold different parts. In an all_to_all, rank r sends part r n + q to rank q. barrier has no data: its schedule has waits but no
//! steps.
//!
//! Callers match on [`CollectiveKind`], [`Division`] or [`Holding`], and never compare names.
//!
//! A send and its receive are no collective and have no row, because only two ranks take part. An enum of all calls has them
//! beside the [`CollectiveKind`]s, as predictions do with `SendRecv`.

mod aliasing;
mod parts;

pub use aliasing::Aliasing;
pub use parts::Parts;

use std::ops::Range;

use crate::op::Op;

macro_rules! collectives {
    ($($kind:ident, $contract:ident = $name:literal, $summary:literal;
       folds $folds:ident, divided $division:ident, input $input:ident, output $output:ident, root $root:literal,
       in_place $in_place:literal, synchronises $synchronises:literal, bus_factor $bus_factor:expr;)*) => {
        /// The kind of a collective.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum CollectiveKind { $(#[doc = concat!("`", $name, "`: ", $summary, ".")] $kind,)* }

        impl CollectiveKind {
            /// Every kind, in table order.
            pub const ALL: &'static [CollectiveKind] = &[$(CollectiveKind::$kind,)*];

            /// Returns the contract of this kind.
            pub const fn contract(self) -> &'static Collective {
                match self { $(CollectiveKind::$kind => &$contract,)* }
            }
        }

        $(
            #[doc = concat!("The contract of ", $name, ": ", $summary, ".")]
            pub static $contract: Collective = Collective {
                kind: CollectiveKind::$kind,
                name: $name,
                summary: $summary,
                has_root: $root,
                folds: Folds::$folds,
                can_be_in_place: $in_place,
                division: Division::$division,
                input: Holding::$input,
                output: Holding::$output,
                synchronises: $synchronises,
                bus_factor: $bus_factor,
            };
        )*

        /// Every collective, in table order.
        pub static COLLECTIVES: &[&Collective] = &[$(&$contract,)*];
    };
}

// `bus_factor` is busbw / algbw of n ranks (nccl-tests, doc/PERFORMANCE.md).
collectives! {
    AllReduce, ALL_REDUCE = "all_reduce", "every rank receives the reduction of all inputs";
        folds Everyone, divided Whole, input All, output All,
        root false, in_place true, synchronises true, bus_factor |n| 2.0 * others(n);
    ReduceScatter, REDUCE_SCATTER = "reduce_scatter", "rank r receives part r of the reduction of all inputs";
        folds Everyone, divided ByRank, input All, output Own,
        root false, in_place true, synchronises true, bus_factor others;
    AllGather, ALL_GATHER = "all_gather", "every rank receives the input of rank r as part r";
        folds Nothing, divided ByRank, input Own, output All,
        root false, in_place true, synchronises true, bus_factor others;
    Broadcast, BROADCAST = "broadcast", "every rank receives the input of the root";
        folds Nothing, divided Whole, input AllOnRoot, output All,
        root true, in_place true, synchronises false, bus_factor |_| 1.0;
    Reduce, REDUCE = "reduce", "the root receives the reduction of all inputs";
        folds Everyone, divided Whole, input All, output AllOnRoot,
        root true, in_place true, synchronises false, bus_factor |_| 1.0;
    Gather, GATHER = "gather", "the root receives the input of rank r as part r";
        folds Nothing, divided ByRank, input Own, output AllOnRoot,
        root true, in_place true, synchronises false, bus_factor others;
    Scatter, SCATTER = "scatter", "rank r receives part r of the input of the root";
        folds Nothing, divided ByRank, input AllOnRoot, output Own,
        root true, in_place true, synchronises false, bus_factor others;
    AllToAll, ALL_TO_ALL = "all_to_all", "rank r receives part r of the input of rank q as part q";
        folds Nothing, divided ByPair, input Row, output Column,
        root false, in_place false, synchronises true, bus_factor others;
    Scan, SCAN = "scan", "rank r receives the reduction of the inputs of ranks 0 to r";
        folds Predecessors, divided Whole, input All, output All,
        root false, in_place true, synchronises false, bus_factor |_| 1.0;
    Exscan, EXSCAN = "exscan", "rank r receives the reduction of the inputs of ranks 0 to r - 1, rank 0 nothing";
        folds Predecessors, divided Whole, input All, output AllButOnFirst,
        root false, in_place true, synchronises false, bus_factor |_| 1.0;
    Barrier, BARRIER = "barrier", "no rank leaves before every rank has entered";
        folds Nothing, divided WithoutData, input Nothing, output Nothing,
        root false, in_place true, synchronises true, bus_factor |_| 0.0;
}

/// Returns the share of the data that belongs to the other ranks, for one of n ranks.
fn others(n: u32) -> f64 {
    f64::from(n - 1) / f64::from(n)
}

/// The world size and the root of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Roles {
    /// The number of ranks.
    pub world_size: u32,
    /// The rank that holds or receives all data; 0 if the collective has no root.
    pub root: u32,
}

impl Roles {
    /// Returns the roles in a world of this size with rank 0 as the root, if there is a root.
    pub fn of(world_size: u32) -> Self {
        Self { world_size, root: 0 }
    }

    /// Says whether `rank` is the root.
    pub fn is_root(self, rank: u32) -> bool {
        rank == self.root
    }
}

/// The contributions that a collective reduces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Folds {
    /// None: the collective copies only.
    Nothing,
    /// The contributions of all ranks; one step completes the reduction.
    Everyone,
    /// For each rank, the contributions of the ranks before it; the complete result of one rank is a partial result of the next.
    Predecessors,
}

/// The division of the data of a contract into parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Division {
    /// There is no data and no part.
    WithoutData,
    /// All data is one part: every array of a call has the same length.
    Whole,
    /// There is one part for each rank.
    ByRank,
    /// There is one part for each pair of sender and receiver.
    ByPair,
}

impl Division {
    /// Returns the number of parts in a world of this size.
    pub const fn parts(self, world_size: u32) -> u32 {
        match self {
            Division::WithoutData => 0,
            Division::Whole => 1,
            Division::ByRank => world_size,
            Division::ByPair => world_size * world_size,
        }
    }
}

/// The parts that a buffer of each rank holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Holding {
    /// The buffer holds no part.
    Nothing,
    /// The buffer holds every part.
    All,
    /// The buffer holds every part on the root, and nothing on other ranks.
    AllOnRoot,
    /// The buffer holds every part, except that it holds nothing on rank 0.
    AllButOnFirst,
    /// The buffer of rank r holds part r.
    Own,
    /// The buffer of rank r holds the parts that r sends: r n to r n + n - 1.
    Row,
    /// The buffer of rank r holds the parts that r receives: r, n + r, 2 n + r, and so on.
    Column,
}

impl Holding {
    /// Returns the parts that the buffer of a rank holds, if the contract has `all` parts.
    pub const fn parts(self, roles: Roles, rank: u32, all: u32) -> Parts {
        let n = roles.world_size;
        match self {
            Holding::All => Parts::first(all),
            Holding::AllOnRoot if rank == roles.root => Parts::first(all),
            Holding::AllButOnFirst if rank > 0 => Parts::first(all),
            Holding::Nothing | Holding::AllOnRoot | Holding::AllButOnFirst => Parts::NONE,
            Holding::Own => Parts::one(rank),
            Holding::Row => Parts::spaced(rank * n, 1, n),
            Holding::Column => Parts::spaced(rank, n, n),
        }
    }
}

/// The value that a part of an output must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Promise {
    /// The reduction of this part of the inputs of these ranks, each once.
    FoldOf(Range<u32>),
    /// This part of the input of `from`.
    CopyOf {
        /// The rank whose input is copied.
        from: u32,
    },
}

/// The contract of a collective.
pub struct Collective {
    /// The kind, on which callers match.
    pub kind: CollectiveKind,
    /// The name, the same in Rust, Python and the CLI.
    pub name: &'static str,
    /// The effect of the collective in one sentence.
    pub summary: &'static str,
    /// Whether the collective has a root.
    pub has_root: bool,
    /// The contributions that the collective reduces.
    pub folds: Folds,
    /// Whether input and output can be the same memory.
    pub can_be_in_place: bool,
    /// The division of the data into parts.
    pub division: Division,
    /// The parts that the input of a rank holds.
    pub input: Holding,
    /// The parts that the output of a rank holds.
    pub output: Holding,
    /// Whether no rank may leave before every rank has entered.
    pub synchronises: bool,
    /// The ratio busbw / algbw for a world size (nccl-tests doc/PERFORMANCE.md).
    pub bus_factor: fn(u32) -> f64,
}

impl Collective {
    /// Finds a contract by name, in the spelling of any tool: see [`spelled`].
    pub fn named(name: &str) -> Option<&'static Collective> {
        spelled(name, COLLECTIVES.iter().copied(), |contract| contract.name)
    }

    /// Says whether the collective moves no data. Such a collective has neither parts nor arrays.
    pub fn is_without_data(&self) -> bool {
        self.division == Division::WithoutData
    }

    /// Says whether the data has a part for each rank or pair. The arrays of one call can then differ in length.
    pub fn has_parts(&self) -> bool {
        matches!(self.division, Division::ByRank | Division::ByPair)
    }

    /// Returns the number of parts.
    pub fn parts(&self, roles: Roles) -> u32 {
        self.division.parts(roles.world_size)
    }

    /// Returns the parts that the input of `rank` holds, in memory order.
    pub fn input(&self, roles: Roles, rank: u32) -> Parts {
        self.input.parts(roles, rank, self.parts(roles))
    }

    /// Returns the parts that the output of `rank` holds, in memory order.
    pub fn output(&self, roles: Roles, rank: u32) -> Parts {
        self.output.parts(roles, rank, self.parts(roles))
    }

    /// Returns the value that the output of `rank` must have in `part`.
    pub fn promise(&self, roles: Roles, rank: u32, part: u32) -> Promise {
        match (self.folds, self.input) {
            (Folds::Everyone, _) => Promise::FoldOf(0..roles.world_size),
            (Folds::Predecessors, _) if self.kind == CollectiveKind::Exscan => Promise::FoldOf(0..rank),
            (Folds::Predecessors, _) => Promise::FoldOf(0..rank + 1),
            (Folds::Nothing, Holding::AllOnRoot) => Promise::CopyOf { from: roles.root },
            (Folds::Nothing, Holding::Row) => Promise::CopyOf { from: part / roles.world_size },
            (Folds::Nothing, _) => Promise::CopyOf { from: part },
        }
    }

    /// Says whether the collective reduces.
    pub fn folds(&self) -> bool {
        self.folds != Folds::Nothing
    }

    /// Says whether `op` is defined for the collective. Averages and scaled sums need a complete reduction.
    pub fn is_defined_with(&self, op: Op) -> bool {
        self.folds != Folds::Predecessors || !matches!(op, Op::Avg | Op::PremulSum)
    }

    /// Returns the possible roots: every rank, or only 0 if the collective has no root.
    pub fn roots(&self, world_size: u32) -> Range<u32> {
        0..if self.has_root { world_size } else { 1 }
    }

    /// Yields every form of a call in a world of this size: each root with each aliasing.
    pub fn forms(&self, world_size: u32) -> impl Iterator<Item = (Roles, Aliasing)> + use<> {
        let aliasings = self.aliasings();
        let roles = self.roots(world_size).map(move |root| Roles { world_size, root });
        roles.flat_map(move |roles| aliasings.iter().map(move |&aliasing| (roles, aliasing)))
    }

    /// Returns the possible aliasings.
    pub fn aliasings(&self) -> &'static [Aliasing] {
        if self.can_be_in_place {
            &Aliasing::ALL
        } else {
            &[Aliasing::Disjoint]
        }
    }
}

/// Finds the one that is called `name`, or that another tool calls so: `AllReduce`, `alltoall`, `all_reduce_perf`, `ncclAllGather` or
/// `MPI_Alltoall`. Case, `_` and `-` do not count.
pub fn spelled<T: Copy>(
    name: &str,
    all: impl IntoIterator<Item = T> + Clone,
    name_of: impl Fn(T) -> &'static str,
) -> Option<T> {
    let exact = all.clone().into_iter().find(|&one| name_of(one) == name);
    exact.or_else(|| all.into_iter().find(|&one| is_spelling_of(name, name_of(one))))
}

fn is_spelling_of(name: &str, known: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let stem = lower.strip_suffix("_perf").unwrap_or(&lower);
    let stem = stem.strip_prefix("nccl").or_else(|| stem.strip_prefix("mpi_")).unwrap_or(stem);
    let letters = |text: &str| text.chars().filter(|&c| c != '_' && c != '-').collect::<String>();
    letters(stem) == letters(known)
}

impl PartialEq for Collective {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl std::hash::Hash for Collective {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl std::fmt::Debug for Collective {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_the_contract_of_its_row() {
        assert_eq!(CollectiveKind::ALL.len(), COLLECTIVES.len());
        for (kind, contract) in CollectiveKind::ALL.iter().zip(COLLECTIVES) {
            assert_eq!((kind.contract(), contract.kind), (*contract, *kind));
            assert_eq!(Collective::named(contract.name), Some(*contract));
        }
    }

    #[test]
    fn a_collective_is_found_in_the_spelling_of_other_tools() {
        for (spelled, name) in [
            ("alltoall", "all_to_all"),
            ("AllReduce", "all_reduce"),
            ("reduce-scatter", "reduce_scatter"),
            ("all_gather_perf", "all_gather"),
            ("ncclBroadcast", "broadcast"),
            ("MPI_Allreduce", "all_reduce"),
        ] {
            assert_eq!(Collective::named(spelled).map(|found| found.name), Some(name), "{spelled}");
        }
        for stranger in ["", "_perf", "nccl", "all reduce", "allreduce2", "all_reduc"] {
            assert_eq!(Collective::named(stranger), None, "{stranger}");
        }
    }

    /// For each collective of four ranks with root 2: the number of parts, and the parts of the input and output of ranks 0 and 2.
    #[test]
    fn the_parts_are_those_of_the_table_in_the_essay() {
        let roles = Roles { world_size: 4, root: 2 };
        let row = |collective: &Collective| {
            let held = |parts: Parts| parts.iter().collect::<Vec<_>>();
            let [first, third] =
                [0, 2].map(|rank| (held(collective.input(roles, rank)), held(collective.output(roles, rank))));
            (collective.parts(roles), first, third)
        };
        let all = || (0..4).collect::<Vec<u32>>();
        for (collective, expected) in [
            (&ALL_REDUCE, (1, (vec![0], vec![0]), (vec![0], vec![0]))),
            (&REDUCE_SCATTER, (4, (all(), vec![0]), (all(), vec![2]))),
            (&ALL_GATHER, (4, (vec![0], all()), (vec![2], all()))),
            (&BROADCAST, (1, (vec![], vec![0]), (vec![0], vec![0]))),
            (&REDUCE, (1, (vec![0], vec![]), (vec![0], vec![0]))),
            (&GATHER, (4, (vec![0], vec![]), (vec![2], all()))),
            (&SCATTER, (4, (vec![], vec![0]), (all(), vec![2]))),
            (&ALL_TO_ALL, (16, (all(), vec![0, 4, 8, 12]), (vec![8, 9, 10, 11], vec![2, 6, 10, 14]))),
            (&SCAN, (1, (vec![0], vec![0]), (vec![0], vec![0]))),
            (&EXSCAN, (1, (vec![0], vec![]), (vec![0], vec![0]))),
            (&BARRIER, (0, (vec![], vec![]), (vec![], vec![]))),
        ] {
            assert_eq!(row(collective), expected, "{collective:?}");
        }
    }

    #[test]
    fn what_is_promised_is_a_copy_of_whoever_has_the_part_or_a_reduction() {
        let roles = Roles { world_size: 4, root: 2 };
        let of = |collective: &Collective, part| collective.promise(roles, 1, part);
        for (collective, part, from) in
            [(&ALL_GATHER, 3, 3), (&BROADCAST, 0, 2), (&SCATTER, 1, 2), (&ALL_TO_ALL, 13, 3)]
        {
            assert_eq!(of(collective, part), Promise::CopyOf { from }, "{collective:?}");
        }
        for (collective, ranks) in [(&REDUCE_SCATTER, 0..4), (&SCAN, 0..2), (&EXSCAN, 0..1)] {
            assert_eq!(of(collective, 0), Promise::FoldOf(ranks), "{collective:?}");
        }
    }
}

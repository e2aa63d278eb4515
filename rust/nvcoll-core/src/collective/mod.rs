//! The contracts: what each collective promises, independent of how. **A collective is one file and one registry line.**
//!
//! A contract names the parts of the data, which parts each rank's input and output hold (in memory order), and for every
//! part of every output the value it must have: a fold of one contribution each of some ranks, or a copy of one rank's part.
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
//! ```

mod aliasing;
mod all_gather;
mod all_reduce;
mod all_to_all;
mod barrier;
mod broadcast;
mod exscan;
mod gather;
mod parts;
mod reduce;
mod reduce_scatter;
mod scan;
mod scatter;
mod split;

pub use aliasing::Aliasing;
pub use all_gather::ALL_GATHER;
pub use all_reduce::ALL_REDUCE;
pub use all_to_all::ALL_TO_ALL;
pub use barrier::BARRIER;
pub use broadcast::BROADCAST;
pub use exscan::EXSCAN;
pub use gather::GATHER;
pub use parts::Parts;
pub use reduce::REDUCE;
pub use reduce_scatter::REDUCE_SCATTER;
pub use scan::SCAN;
pub use scatter::SCATTER;
pub use split::SPLIT;

use std::ops::Range;

use crate::op::Op;

/// Every collective.
pub static COLLECTIVES: &[&Collective] = &[
    &ALL_REDUCE,
    &REDUCE_SCATTER,
    &ALL_GATHER,
    &BROADCAST,
    &REDUCE,
    &GATHER,
    &SCATTER,
    &ALL_TO_ALL,
    &SCAN,
    &EXSCAN,
    &BARRIER,
    &SPLIT,
];

/// Who takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Roles {
    /// The number of ranks.
    pub world_size: u32,
    /// The rank that has or receives everything; 0 where no rank is special.
    pub root: u32,
}

impl Roles {
    /// Ranks of which rank 0 is the root, or none.
    pub fn of(world_size: u32) -> Self {
        Self { world_size, root: 0 }
    }

    /// Says whether `rank` is the root.
    pub fn is_root(self, rank: u32) -> bool {
        rank == self.root
    }
}

/// What a collective folds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Folds {
    /// It copies only.
    Nothing,
    /// The contributions of all ranks: one step completes the fold.
    Everyone,
    /// For each rank, the contributions of the ranks before it: what is complete for one is partial for the next.
    Predecessors,
}

/// The value that a part of an output must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Promise {
    /// The fold of that part of the inputs of these ranks, each once.
    FoldOf(Range<u32>),
    /// That part of the input of `from`.
    CopyOf {
        /// The rank whose input is copied.
        from: u32,
    },
}

/// A contract.
pub struct Collective {
    /// The one spelling of its name.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// Whether one rank is the root.
    pub has_root: bool,
    /// What it folds.
    pub folds: Folds,
    /// Whether input and output can be the same memory.
    pub can_be_in_place: bool,
    /// The number of parts.
    pub(crate) parts: fn(Roles) -> u32,
    /// The parts that a rank's input holds, in memory order.
    pub(crate) input: fn(Roles, u32) -> Parts,
    /// The parts that a rank's output holds, in memory order.
    pub(crate) output: fn(Roles, u32) -> Parts,
    /// What the output of a rank must hold in a part, given (roles, rank, part).
    pub(crate) promise: fn(Roles, u32, u32) -> Promise,
    /// Whether no rank may leave before every rank has entered.
    pub synchronises: bool,
    /// busbw / algbw, given the world size (nccl-tests doc/PERFORMANCE.md).
    pub bus_factor: fn(u32) -> f64,
}

impl Collective {
    /// Finds a contract by name.
    pub fn named(name: &str) -> Option<&'static Collective> {
        COLLECTIVES.iter().copied().find(|c| c.name == name)
    }

    /// Returns the number of parts.
    pub fn parts(&self, roles: Roles) -> u32 {
        (self.parts)(roles)
    }

    /// Returns the parts that the input of `rank` holds, in memory order.
    pub fn input(&self, roles: Roles, rank: u32) -> Parts {
        (self.input)(roles, rank)
    }

    /// Returns the parts that the output of `rank` holds, in memory order.
    pub fn output(&self, roles: Roles, rank: u32) -> Parts {
        (self.output)(roles, rank)
    }

    /// Returns what the output of `rank` must hold in `part`.
    pub fn promise(&self, roles: Roles, rank: u32, part: u32) -> Promise {
        (self.promise)(roles, rank, part)
    }

    /// Says whether the collective reduces.
    pub fn folds(&self) -> bool {
        self.folds != Folds::Nothing
    }

    /// Says whether `op` has a meaning here: averages and scaled sums are of complete folds only.
    pub fn is_defined_with(&self, op: Op) -> bool {
        self.folds != Folds::Predecessors || !matches!(op, Op::Avg | Op::PremulSum)
    }

    /// Returns the roots there can be: every rank, or only 0 where no rank is special.
    pub fn roots(&self, world_size: u32) -> Range<u32> {
        0..if self.has_root { world_size } else { 1 }
    }

    /// Returns every way in which a call of so many ranks can be made: each root with each aliasing.
    pub fn forms(&self, world_size: u32) -> impl Iterator<Item = (Roles, Aliasing)> + use<> {
        let aliasings = self.aliasings();
        let roles = self.roots(world_size).map(move |root| Roles { world_size, root });
        roles.flat_map(move |roles| aliasings.iter().map(move |&aliasing| (roles, aliasing)))
    }

    /// Returns the aliasings there can be.
    pub fn aliasings(&self) -> &'static [Aliasing] {
        if self.can_be_in_place {
            Aliasing::ALL
        } else {
            &[Aliasing::Disjoint]
        }
    }
}

impl PartialEq for Collective {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl std::fmt::Debug for Collective {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

fn every_part(roles: Roles, _rank: u32) -> Parts {
    Parts::first(roles.world_size)
}

fn own_part(_roles: Roles, rank: u32) -> Parts {
    Parts::one(rank)
}

fn the_part(_roles: Roles, _rank: u32) -> Parts {
    Parts::one(0)
}

fn the_part_on_root(roles: Roles, rank: u32) -> Parts {
    if roles.is_root(rank) {
        Parts::one(0)
    } else {
        Parts::NONE
    }
}

fn every_part_on_root(roles: Roles, rank: u32) -> Parts {
    if roles.is_root(rank) {
        Parts::first(roles.world_size)
    } else {
        Parts::NONE
    }
}

fn fold_of_all(roles: Roles, _rank: u32, _part: u32) -> Promise {
    Promise::FoldOf(0..roles.world_size)
}

fn part_of_its_rank(_roles: Roles, _rank: u32, part: u32) -> Promise {
    Promise::CopyOf { from: part }
}

fn part_of_root(roles: Roles, _rank: u32, _part: u32) -> Promise {
    Promise::CopyOf { from: roles.root }
}

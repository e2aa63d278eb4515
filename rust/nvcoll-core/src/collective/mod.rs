//! The contracts: what each collective promises, independent of how. **A collective is one file and one registry line.**
//!
//! A contract names the parts of the data, which parts each rank's input and output hold (in memory order), and for every
//! part of every output the value it must have: a fold of one contribution per rank, or a copy of one rank's part.

mod all_gather;
mod all_reduce;
mod barrier;
mod reduce_scatter;

pub use all_gather::ALL_GATHER;
pub use all_reduce::ALL_REDUCE;
pub use barrier::BARRIER;
pub use reduce_scatter::REDUCE_SCATTER;

/// Every collective.
pub static COLLECTIVES: &[&Collective] = &[&ALL_REDUCE, &REDUCE_SCATTER, &ALL_GATHER, &BARRIER];

/// The value that a part of an output must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// The fold of that part of every rank's input, each once.
    FoldOfAll,
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
    /// The number of parts, given the world size.
    pub(crate) parts: fn(u32) -> u32,
    /// The parts that a rank's input holds, in memory order, given (world size, rank).
    pub(crate) input: fn(u32, u32) -> Vec<u32>,
    /// The parts that a rank's output holds, in memory order, given (world size, rank).
    pub(crate) output: fn(u32, u32) -> Vec<u32>,
    /// What an output part must hold.
    pub(crate) promise: fn(u32) -> Promise,
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
    pub fn parts(&self, world_size: u32) -> u32 {
        (self.parts)(world_size)
    }

    /// Returns the parts that the input of `rank` holds, in memory order.
    pub fn input(&self, world_size: u32, rank: u32) -> Vec<u32> {
        (self.input)(world_size, rank)
    }

    /// Returns the parts that the output of `rank` holds, in memory order.
    pub fn output(&self, world_size: u32, rank: u32) -> Vec<u32> {
        (self.output)(world_size, rank)
    }

    /// Returns what an output must hold in `part`.
    pub fn promise(&self, part: u32) -> Promise {
        (self.promise)(part)
    }

    /// Says whether the collective reduces.
    pub fn folds(&self) -> bool {
        self.promise(0) == Promise::FoldOfAll
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

fn every_part(world_size: u32, _rank: u32) -> Vec<u32> {
    (0..world_size).collect()
}

fn own_part(_world_size: u32, rank: u32) -> Vec<u32> {
    vec![rank]
}

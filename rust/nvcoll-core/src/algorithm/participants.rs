//! Participants: a power of two of single ranks and pairs of ranks, for recursive algorithms on any number of ranks.
//!
//! ```text
//! n = p + e, p a power of two         rank         0 1 | 2 3 | 4 | 5     n = 6, p = 4, e = 2
//! the first 2e ranks are e pairs      participant   0  |  1  | 2 | 3     the upper rank of a pair acts for both
//! ```
//!
//! Participants are numbered 0..p. Neighbouring participants stand for neighbouring ranks, so a block of participants is a
//! range of ranks. The algorithm defines the exchange inside a pair, before and after. Source: Thakur, Rabenseifner and Gropp, "Optimization of
//! collective communication operations in MPICH", 2005.

use std::ops::Range;

/// The participants of a world; together they stand for all ranks.
pub(super) struct Participants {
    world_size: u32,
    count: u32,
}

impl Participants {
    pub(super) fn of(world_size: u32) -> Self {
        Self { world_size, count: 1 << world_size.ilog2() }
    }

    /// Returns the number of participants, p.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Returns the rank that acts for a participant.
    pub(super) fn rank(&self, participant: u32) -> u32 {
        self.ranks(participant..participant + 1).end - 1
    }

    /// Returns the ranks for which a block of participants stands.
    pub(super) fn ranks(&self, block: Range<u32>) -> Range<u32> {
        let pairs = self.world_size - self.count;
        let first = |participant: u32| participant + participant.min(pairs);
        first(block.start)..first(block.end)
    }

    /// Says whether a participant is a pair of ranks.
    pub(super) fn is_pair(&self, participant: u32) -> bool {
        participant < self.world_size - self.count
    }

    /// Yields the pairs: the passive rank and the rank that acts for it.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (u32, u32)> {
        (0..self.world_size - self.count).map(|pair| (2 * pair, 2 * pair + 1))
    }

    /// Yields the distances 1, 2, 4, and so on, of participants that exchange.
    pub(super) fn distances(&self) -> impl DoubleEndedIterator<Item = u32> {
        (0..self.count.ilog2()).map(|round| 1 << round)
    }
}

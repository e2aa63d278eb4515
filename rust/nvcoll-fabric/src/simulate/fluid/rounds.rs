//! What the links of an island have in the rounds of a filling.
//!
//! ```text
//! row     the links before a round, by place, in blocks:  left · waiting · taken by the round · offered
//! round   next row = left - level x taken,  waiting - taken,  nothing taken,  left / waiting
//! ```
//!
//! The next row is worked out for all links, whether the round took from them or not: that asks nothing, and several
//! links are divided at a time. So a filling is done again from any of its rounds: that round's row is there.

use super::Level;

/// How many links are counted together. Chosen: two registers of the oldest x86-64.
const BLOCK: usize = 4;

/// Some links before a round. Weights are whole numbers.
#[derive(Clone, Copy, Default)]
struct Block {
    left: [f64; BLOCK],
    /// The weights of those without rate.
    waiting: [f64; BLOCK],
    /// The weights of those who get theirs in this round.
    taken: [f64; BLOCK],
    /// What each offers to those without rate: infinite or not a number where nobody waits.
    offered: [f64; BLOCK],
}

/// A round of a filling.
struct Round {
    level: f64,
    /// Rounds are numbered on, over all islands.
    serial: u64,
}

/// The rounds of the last filling of an island.
#[derive(Default)]
pub(super) struct Rounds {
    rounds: Vec<Round>,
    /// One before each round that is kept, and one after the last.
    rows: Vec<Block>,
    /// Blocks per row.
    blocks: usize,
}

/// The lesser of two numbers; the second if one is none.
#[inline]
fn lesser(a: f64, b: f64) -> f64 {
    if a < b {
        a
    } else {
        b
    }
}

/// What is left when some who waited have got a rate.
#[inline]
fn after(left: f64, rate: f64, weight: f64) -> f64 {
    let left = left - rate * weight;
    if left > 0.0 {
        left
    } else {
        0.0
    }
}

impl Block {
    #[inline]
    fn after(&self, rate: f64) -> Self {
        let mut next = Self::default();
        for at in 0..BLOCK {
            next.left[at] = after(self.left[at], rate, self.taken[at]);
            next.waiting[at] = self.waiting[at] - self.taken[at];
        }
        next.offer();
        next
    }

    #[inline]
    fn offer(&mut self) {
        for at in 0..BLOCK {
            self.offered[at] = self.left[at] / self.waiting[at];
        }
    }
}

/// The least that some links offer; infinite if nobody waits.
fn least(row: &[Block]) -> f64 {
    let mut least = [f64::INFINITY; BLOCK];
    for block in row {
        for at in 0..BLOCK {
            least[at] = lesser(block.offered[at], least[at]);
        }
    }
    lesser(lesser(least[0], least[1]), lesser(least[2], least[3]))
}

impl Rounds {
    /// Starts with links of which nothing is taken: the capacity of each and the weights of all who wait.
    pub(super) fn start(&mut self, links: impl ExactSizeIterator<Item = (f64, f64)>) {
        self.rounds.clear();
        self.rows.clear();
        self.blocks = links.len().div_ceil(BLOCK);
        self.rows.resize(self.blocks, Block::default());
        for (place, (capacity, weight)) in links.enumerate() {
            let block = &mut self.rows[place / BLOCK];
            (block.left[place % BLOCK], block.waiting[place % BLOCK]) = (capacity, weight);
        }
        self.rows.iter_mut().for_each(Block::offer);
    }

    pub(super) fn len(&self) -> usize {
        self.rounds.len()
    }

    /// Goes back to where `kept` rounds are over; returns the number of the last of them.
    pub(super) fn undo(&mut self, kept: usize) -> u64 {
        self.rows.truncate((kept + 1) * self.blocks);
        self.rounds.truncate(kept);
        for block in &mut self.rows[kept * self.blocks..] {
            block.taken = [0.0; BLOCK];
        }
        self.rounds.last().map_or(0, |last| last.serial)
    }

    /// The links as they are now.
    #[inline]
    fn row(&self) -> &[Block] {
        &self.rows[self.rows.len() - self.blocks..]
    }

    /// Returns the least that a link offers; infinite if nobody waits.
    #[inline]
    pub(super) fn least(&self) -> f64 {
        least(self.row())
    }

    /// Finds the links that offer so much, into `places`, in order; returns how many. No branch depends on which.
    #[inline]
    pub(super) fn find(&self, level: f64, places: &mut Vec<u32>) -> usize {
        let row = self.row();
        if places.len() <= row.len() * BLOCK {
            places.resize(row.len() * BLOCK + 1, 0);
        }
        let mut found = 0;
        for (nth, block) in row.iter().enumerate() {
            for at in 0..BLOCK {
                places[found] = (nth * BLOCK + at) as u32;
                found += usize::from(block.offered[at] == level);
            }
        }
        found
    }

    /// Counts what a path that gets a rate takes from a link.
    #[inline]
    pub(super) fn count(&mut self, place: u32, weight: f64) {
        let first = self.rows.len() - self.blocks;
        self.rows[first + place as usize / BLOCK].taken[place as usize % BLOCK] += weight;
    }

    /// Ends a round: takes what was counted.
    #[inline]
    pub(super) fn end(&mut self, level: f64, serial: u64, keeps: bool) {
        let first = self.rows.len() - self.blocks;
        if keeps {
            self.rounds.push(Round { level, serial });
            self.rows.extend_from_within(first..);
            let (before, next) = self.rows[first..].split_at_mut(self.blocks);
            for (next, before) in next.iter_mut().zip(before) {
                *next = before.after(level);
            }
        } else {
            for block in self.rows.iter_mut().filter(|block| block.taken != [0.0; BLOCK]) {
                *block = block.after(level);
            }
        }
    }

    /// Returns up to which of the first `most` rounds a link that changed offers more than their level, and did before,
    /// as the last round that served it says. Up to there it has what it has now.
    pub(super) fn not_reached(&mut self, level: &Level, weight: f64, most: usize) -> usize {
        let (block, at) = (level.place as usize / BLOCK, level.place as usize % BLOCK);
        let (mut left, mut waiting) = (level.capacity, weight);
        let mut nth = 0;
        loop {
            let block = &mut self.rows[nth * self.blocks + block];
            let offered = left / waiting;
            (block.left[at], block.waiting[at], block.offered[at]) = (left, waiting, offered);
            match self.rounds.get(nth) {
                Some(round) if nth < most && !(offered <= round.level) && level.served != round.serial => {
                    left = after(left, round.level, block.taken[at]);
                    waiting -= block.taken[at];
                    nth += 1;
                }
                _ => return nth,
            }
        }
    }
}

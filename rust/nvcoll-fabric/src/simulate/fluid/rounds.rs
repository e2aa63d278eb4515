//! What the links of an island have in the rounds of a filling.
//!
//! ```text
//! row     the links before a round, by place, in blocks:  left · waiting · taken by the round · offered
//! round   next row = left - level x taken,  waiting - taken,  nothing taken,  left / waiting
//! ```
//!
//! The next row is worked out for all links, whether the round took from them or not: that asks nothing, and several
//! links are divided at a time. So a filling is done again from any of its rounds: that round's row is there. Ours; it
//! beats a list of what each round took, undone link by link, by a fifth to a quarter (measured as in `fill.rs`).

use super::FillLevel;

/// How many links are counted together. Chosen: two registers of the oldest x86-64.
const BLOCK: usize = 4;

/// Blocks whose links have a bit each in a word.
const PER_WORD: usize = u64::BITS as usize / BLOCK;

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
    /// One before each round that is kept, and one after the last; then rows of no meaning.
    rows: Vec<Block>,
    /// Blocks per row.
    blocks: usize,
    /// Where the row of now begins, and the least that a link offers in it; infinite if nobody waits.
    now: usize,
    least: f64,
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
#[derive(Clone, Copy)]
struct Least([f64; BLOCK]);

impl Least {
    const NONE: Self = Self([f64::INFINITY; BLOCK]);

    #[inline]
    fn among(&mut self, block: &Block) {
        for at in 0..BLOCK {
            self.0[at] = lesser(block.offered[at], self.0[at]);
        }
    }

    #[inline]
    fn of_all(self) -> f64 {
        let [a, b, c, d] = self.0;
        lesser(lesser(a, b), lesser(c, d))
    }
}

impl Rounds {
    /// Starts with links of which nothing is taken: the capacity of each and the weights of all who wait.
    pub(super) fn start(&mut self, links: impl ExactSizeIterator<Item = (f64, f64)>) {
        self.rounds.clear();
        (self.blocks, self.now) = (links.len().div_ceil(BLOCK), 0);
        self.rows.clear();
        self.rows.resize(self.blocks, Block::default());
        for (place, (capacity, weight)) in links.enumerate() {
            let block = &mut self.rows[place / BLOCK];
            (block.left[place % BLOCK], block.waiting[place % BLOCK]) = (capacity, weight);
        }
        self.rows.iter_mut().for_each(Block::offer);
        self.look();
    }

    /// Starts a round: nothing is taken yet.
    fn look(&mut self) {
        let mut least = Least::NONE;
        for block in &mut self.rows[self.now..self.now + self.blocks] {
            block.taken = [0.0; BLOCK];
            least.among(block);
        }
        self.least = least.of_all();
    }

    pub(super) fn len(&self) -> usize {
        self.rounds.len()
    }

    /// Goes back to where `kept` rounds are over; returns the number of the last of them.
    pub(super) fn undo(&mut self, kept: usize) -> u64 {
        self.rounds.truncate(kept);
        self.now = kept * self.blocks;
        self.look();
        self.rounds.last().map_or(0, |last| last.serial)
    }

    /// The links as they are now.
    #[inline]
    fn row(&self) -> &[Block] {
        &self.rows[self.now..self.now + self.blocks]
    }

    /// Returns the least that a link offers; infinite if nobody waits.
    #[inline]
    pub(super) fn least(&self) -> f64 {
        self.least
    }

    /// Into how many words `find` divides the links.
    pub(super) fn words(&self) -> usize {
        self.blocks.div_ceil(PER_WORD)
    }

    /// Finds which of the links of a word offer so much: a bit for each.
    #[inline]
    pub(super) fn find(&self, level: f64, word: usize) -> u64 {
        let first = word * PER_WORD;
        let row = &self.row()[first..self.blocks.min(first + PER_WORD)];
        let mut found = 0;
        for (nth, block) in row.iter().enumerate() {
            let is = block.offered.map(|offered| u64::from(offered == level));
            found |= (is[0] | is[1] << 1 | is[2] << 2 | is[3] << 3) << (nth * BLOCK);
        }
        found
    }

    /// Counts what a path that gets a rate takes from a link.
    #[inline]
    pub(super) fn count(&mut self, place: u32, weight: f64) {
        self.rows[self.now + place as usize / BLOCK].taken[place as usize % BLOCK] += weight;
    }

    /// Ends a round: takes what was counted.
    #[inline]
    pub(super) fn end(&mut self, level: f64, serial: u64, keeps: bool) {
        if !keeps {
            for block in self.rows[..self.blocks].iter_mut().filter(|block| block.taken != [0.0; BLOCK]) {
                *block = block.after(level);
            }
            return self.look();
        }
        self.rounds.push(Round { level, serial });
        let next = self.now + self.blocks;
        if self.rows.len() < next + self.blocks {
            self.rows.resize(next + self.blocks, Block::default());
        }
        let (before, after) = self.rows.split_at_mut(next);
        let mut least = Least::NONE;
        for (before, after) in before[self.now..].iter().zip(&mut after[..self.blocks]) {
            *after = before.after(level);
            least.among(after);
        }
        (self.now, self.least) = (next, least.of_all());
    }

    /// Returns up to which of the first `most` rounds a link that changed offers more than their level, and did before,
    /// as the last round that served it says. Up to there it has what it has now.
    pub(super) fn not_reached(&mut self, level: &FillLevel, weight: f64, most: usize) -> usize {
        let (block, at) = (level.place as usize / BLOCK, level.place as usize % BLOCK);
        let (mut left, mut waiting) = (level.capacity, weight);
        let mut nth = 0;
        loop {
            let block = &mut self.rows[nth * self.blocks + block];
            let offered = left / waiting;
            (block.left[at], block.waiting[at], block.offered[at]) = (left, waiting, offered);
            // Where nothing waits it offers no number, which is below no level.
            let reaches = |level: f64| offered <= level;
            match self.rounds.get(nth) {
                Some(round) if nth < most && !reaches(round.level) && level.served != round.serial => {
                    left = after(left, round.level, block.taken[at]);
                    waiting -= block.taken[at];
                    nth += 1;
                }
                _ => return nth,
            }
        }
    }
}

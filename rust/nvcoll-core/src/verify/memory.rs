//! Memory as numbered cells: one cell is one chunk of one buffer of one rank.
//!
//! ```text
//! cell = ((rank x columns) + column) x chunks + chunk       columns: input, output, the scratch layers, the staging layers
//! ```
//!
//! In place, a chunk that both the input and the output of a rank hold is one cell, the input's. Which chunks a user buffer
//! holds is the contract's to say. Scratch and staging hold every chunk. Only the layers that occur get a column, so a
//! schedule that uses layer 60,000 alone costs no more than one that uses layer 0.

use std::collections::BTreeMap;

use super::report::Violation;
use crate::schedule::{Aliasing, Buffer, Schedule, Step, View};

/// The largest number of cells. Chosen: 16 bytes each make 4 GiB; a ring of 1024 ranks has 2^21.
const MOST_CELLS: u128 = 1 << 28;

const INPUT: usize = 0;
const OUTPUT: usize = 1;

/// What the cells of a schedule are.
pub(super) struct Memory {
    world_size: usize,
    chunks: usize,
    parts: usize,
    chunks_per_part: usize,
    is_in_place: bool,
    /// The column of each buffer that occurs.
    columns: BTreeMap<Buffer, usize>,
    /// Whether the input (`[0]`) and the output (`[1]`) of a rank hold a part, indexed by (rank, part).
    holds: [Vec<bool>; 2],
}

impl Memory {
    pub(super) fn of(schedule: &Schedule) -> Result<Self, Violation> {
        let parts = schedule.collective.parts(schedule.world_size) as u128;
        let chunks = parts * schedule.chunks_per_part as u128;
        let mut columns: BTreeMap<Buffer, usize> = [(Buffer::Input, INPUT), (Buffer::Output, OUTPUT)].into();
        for view in schedule.steps.iter().flat_map(Step::views) {
            let next = columns.len();
            columns.entry(view.buffer).or_insert(next);
        }
        let cells = chunks * columns.len() as u128 * schedule.world_size as u128;
        if cells > MOST_CELLS {
            return Err(Violation::TooLarge { cells });
        }
        let (world_size, parts) = (schedule.world_size as usize, parts as usize);
        let holdings = |held: fn(&Schedule, u32) -> Vec<u32>| {
            let mut holds = vec![false; world_size * parts];
            for rank in 0..schedule.world_size {
                held(schedule, rank).into_iter().for_each(|part| holds[rank as usize * parts + part as usize] = true);
            }
            holds
        };
        Ok(Self {
            world_size,
            chunks: chunks as usize,
            parts,
            chunks_per_part: schedule.chunks_per_part as usize,
            is_in_place: schedule.aliasing == Aliasing::InPlace,
            columns,
            holds: [
                holdings(|schedule, rank| schedule.collective.input(schedule.world_size, rank)),
                holdings(|schedule, rank| schedule.collective.output(schedule.world_size, rank)),
            ],
        })
    }

    /// Returns how many cells there are.
    pub(super) fn len(&self) -> usize {
        self.world_size * self.columns.len() * self.chunks
    }

    pub(super) fn chunks(&self) -> u32 {
        self.chunks as u32
    }

    /// Returns the cell of a chunk of a view.
    pub(super) fn cell(&self, view: &View, chunk: u32) -> usize {
        let column = match view.buffer {
            Buffer::Input => INPUT,
            Buffer::Output if self.is_aliased(view.rank, chunk) => INPUT,
            Buffer::Output => OUTPUT,
            layer => self.columns[&layer],
        };
        self.number(view.rank, column, chunk)
    }

    /// Says whether every chunk of a view is in its buffer.
    pub(super) fn holds(&self, view: &View) -> bool {
        let per_part = self.chunks_per_part as u32;
        let parts = || (view.chunks.start / per_part) as usize..view.chunks.end.div_ceil(per_part) as usize;
        let held_by = |side: usize| parts().all(|part| self.holds[side][view.rank as usize * self.parts + part]);
        match view.buffer {
            Buffer::Input => held_by(INPUT),
            Buffer::Output => held_by(OUTPUT),
            Buffer::Scratch(_) | Buffer::Staging(_) => true,
        }
    }

    /// Says whether a chunk of a rank's input is its output as well.
    pub(super) fn is_aliased(&self, rank: u32, chunk: u32) -> bool {
        self.is_in_place && self.holds_chunk(INPUT, rank, chunk) && self.holds_chunk(OUTPUT, rank, chunk)
    }

    /// Returns the cells that hold a contribution before anything runs, each with its rank.
    pub(super) fn contributions(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.held(INPUT).map(|(rank, chunk)| (self.number(rank, INPUT, chunk), rank))
    }

    /// Returns the cells of all outputs, each with its rank and chunk.
    pub(super) fn outputs(&self) -> impl Iterator<Item = (usize, u32, u32)> + '_ {
        self.held(OUTPUT).map(|(rank, chunk)| {
            let column = if self.is_aliased(rank, chunk) { INPUT } else { OUTPUT };
            (self.number(rank, column, chunk), rank, chunk)
        })
    }

    /// Returns the part to which a chunk belongs.
    pub(super) fn part_of(&self, chunk: u32) -> u32 {
        chunk / self.chunks_per_part as u32
    }

    fn number(&self, rank: u32, column: usize, chunk: u32) -> usize {
        (rank as usize * self.columns.len() + column) * self.chunks + chunk as usize
    }

    fn holds_chunk(&self, side: usize, rank: u32, chunk: u32) -> bool {
        self.holds[side][rank as usize * self.parts + chunk as usize / self.chunks_per_part]
    }

    fn held(&self, side: usize) -> impl Iterator<Item = (u32, u32)> + '_ {
        let pairs =
            (0..self.world_size as u32).flat_map(|rank| (0..self.chunks as u32).map(move |chunk| (rank, chunk)));
        pairs.filter(move |&(rank, chunk)| self.holds_chunk(side, rank, chunk))
    }
}

//! Memory as numbered cells: one cell is one chunk of one buffer of one rank.
//!
//! ```text
//! input and output of rank 0, of rank 1, …     every chunk that the contract says they hold, in memory order
//! scratch and staging                          every chunk that a step touches, as it is met
//! ```
//!
//! In place, a chunk that both the input and the output of a rank hold is one cell, the input's. What a buffer does not hold
//! and no step touches has no cell: in an all_to_all of n ranks a buffer holds n of n^2 chunks.

use std::collections::HashMap;

use super::report::Violation;
use crate::collective::Parts;
use crate::schedule::{Aliasing, Buffer, Schedule, Step, View};

/// The largest number of cells. Chosen: 16 bytes each make 4 GiB; a ring of 1024 ranks has 2^21.
const MOST_CELLS: u128 = 1 << 28;

/// A user buffer: the parts that it holds, and its first cell.
struct Held {
    parts: Parts,
    first: usize,
}

/// What the cells of a schedule are.
pub(super) struct Memory {
    chunks: u32,
    chunks_per_part: u32,
    is_in_place: bool,
    /// For each rank, its input and its output.
    users: Vec<[Held; 2]>,
    /// The cells of scratch and staging, by rank, buffer and chunk.
    layers: HashMap<(u32, Buffer, u32), usize>,
    len: usize,
}

impl Memory {
    pub(super) fn of(schedule: &Schedule) -> Result<Self, Violation> {
        let (collective, roles) = (schedule.collective, schedule.roles());
        let chunks = u128::from(collective.parts(roles)) * u128::from(schedule.chunks_per_part);
        let held = |rank| [collective.input(roles, rank), collective.output(roles, rank)];
        let parts: u128 = (0..roles.world_size).flat_map(held).map(|parts| u128::from(parts.len())).sum();
        let users = parts * u128::from(schedule.chunks_per_part);
        let layered = schedule
            .steps
            .iter()
            .flat_map(Step::views)
            .filter(|view| !view.buffer.is_user() && u128::from(view.chunks.end) <= chunks);
        let cells = users + layered.map(|view| view.chunks.len() as u128).sum::<u128>();
        if chunks.max(cells) > MOST_CELLS {
            return Err(Violation::TooLarge { cells: chunks.max(cells) });
        }
        let mut memory = Self {
            chunks: chunks as u32,
            chunks_per_part: schedule.chunks_per_part,
            is_in_place: schedule.aliasing == Aliasing::InPlace,
            users: Vec::new(),
            layers: HashMap::new(),
            len: 0,
        };
        for rank in 0..roles.world_size {
            let buffers = held(rank).map(|parts| {
                let first = memory.len;
                memory.len += parts.len() as usize * schedule.chunks_per_part as usize;
                Held { parts, first }
            });
            memory.users.push(buffers);
        }
        for view in schedule.steps.iter().flat_map(Step::views) {
            memory.add_layer(view);
        }
        Ok(memory)
    }

    /// Gives the chunks of a view of scratch or staging their cells, as far as they exist.
    fn add_layer(&mut self, view: &View) {
        if view.buffer.is_user() || view.chunks.end > self.chunks {
            return;
        }
        for chunk in view.chunks.clone() {
            let next = self.len;
            let cell = *self.layers.entry((view.rank, view.buffer, chunk)).or_insert(next);
            self.len += usize::from(cell == next);
        }
    }

    /// Returns how many cells there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Returns the cell of a chunk of a view that is held.
    pub(super) fn cell(&self, view: &View, chunk: u32) -> usize {
        match view.buffer {
            Buffer::Input => self.cell_of_user(view.rank, 0, chunk),
            Buffer::Output => self.cell_of_output(view.rank, chunk),
            layer => self.layers[&(view.rank, layer, chunk)],
        }
    }

    /// Says whether every chunk of a view is in its buffer.
    pub(super) fn holds(&self, view: &View) -> bool {
        let side = match view.buffer {
            Buffer::Input => 0,
            Buffer::Output => 1,
            Buffer::Scratch(_) | Buffer::Staging(_) => return true,
        };
        let parts = self.users[view.rank as usize][side].parts;
        let mut named = view.chunks.start / self.chunks_per_part..view.chunks.end.div_ceil(self.chunks_per_part);
        named.all(|part| parts.contains(part))
    }

    /// Says whether a chunk of a rank's input is its output as well.
    pub(super) fn is_aliased(&self, rank: u32, chunk: u32) -> bool {
        let part = self.part_of(chunk);
        self.is_in_place && self.users[rank as usize].iter().all(|held| held.parts.contains(part))
    }

    /// Returns the cells that hold a contribution before anything runs, each with its rank.
    pub(super) fn contributions(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.held(0).map(|(rank, chunk)| (self.cell_of_user(rank, 0, chunk), rank))
    }

    /// Returns the cells of all outputs, each with its rank and chunk.
    pub(super) fn outputs(&self) -> impl Iterator<Item = (usize, u32, u32)> + '_ {
        self.held(1).map(|(rank, chunk)| (self.cell_of_output(rank, chunk), rank, chunk))
    }

    /// Returns the part to which a chunk belongs.
    pub(super) fn part_of(&self, chunk: u32) -> u32 {
        chunk / self.chunks_per_part
    }

    fn cell_of_output(&self, rank: u32, chunk: u32) -> usize {
        self.cell_of_user(rank, usize::from(!self.is_aliased(rank, chunk)), chunk)
    }

    fn cell_of_user(&self, rank: u32, side: usize, chunk: u32) -> usize {
        let Held { parts, first } = &self.users[rank as usize][side];
        let place = parts.place_of(self.part_of(chunk)).expect("what is not held was refused");
        first + place as usize * self.chunks_per_part as usize + (chunk % self.chunks_per_part) as usize
    }

    fn held(&self, side: usize) -> impl Iterator<Item = (u32, u32)> + '_ {
        let per_part = self.chunks_per_part;
        self.users.iter().zip(0..).flat_map(move |(user, rank)| {
            let parts = user[side].parts.iter();
            parts.flat_map(move |part| (part * per_part..(part + 1) * per_part).map(move |chunk| (rank, chunk)))
        })
    }
}

//! Which steps must wait for which, because they touch the same memory; and what kind of value they move.

use super::{Draft, Frame};
use crate::schedule::{Aliasing, Buffer, View};

const NOBODY: u32 = u32::MAX;

/// What a step moves: for each source the rank whose untouched contribution it is, and what the result amounts to.
pub(super) struct Value {
    pub(super) raw: Vec<Option<u32>>,
    pub(super) is_final: bool,
    contributions: u32,
    is_complete: bool,
}

#[derive(Clone)]
struct Cell {
    writer: u32,
    readers: Vec<u32>,
    first_writer: u32,
    raw: u32,
    contributions: u32,
    is_complete: bool,
}

const EMPTY: Cell = Cell {
    writer: NOBODY,
    readers: Vec::new(),
    first_writer: NOBODY,
    raw: NOBODY,
    contributions: 0,
    is_complete: false,
};

/// The last accesses of every cell while the program is read once, in order.
pub(super) struct Hazards {
    world_size: u32,
    chunks: u32,
    is_in_place: bool,
    folds: bool,
    /// The buffers that occur, sorted; in place, the output is the input.
    spaces: Vec<Buffer>,
    /// Indexed by (space, rank, chunk).
    cells: Vec<Cell>,
    /// For each rank, the steps of others that touch its buffers or scratch.
    visitors: Vec<Vec<u32>>,
}

impl Hazards {
    pub(super) fn new(frame: &Frame, drafts: &[Draft]) -> Self {
        let parts = frame.collective.parts(frame.world_size);
        let mut spaces = vec![Buffer::Input, Buffer::Output];
        for view in drafts.iter().flat_map(|draft| draft.src.iter().chain(&draft.dst)) {
            if let Err(at) = spaces.binary_search(&view.buffer) {
                spaces.insert(at, view.buffer);
            }
        }
        let cells = vec![EMPTY; spaces.len() * frame.world_size as usize * (parts * frame.chunks_per_part) as usize];
        let mut hazards = Self {
            world_size: frame.world_size,
            chunks: parts * frame.chunks_per_part,
            is_in_place: frame.aliasing == Aliasing::InPlace,
            folds: frame.collective.folds(),
            spaces,
            cells,
            visitors: vec![Vec::new(); frame.world_size as usize],
        };
        for rank in 0..frame.world_size {
            for part in frame.collective.input(frame.world_size, rank) {
                for chunk in part * frame.chunks_per_part..(part + 1) * frame.chunks_per_part {
                    let at = hazards.index(rank, Buffer::Input, chunk);
                    hazards.cells[at] = Cell { raw: rank, contributions: 1, ..EMPTY };
                }
            }
        }
        hazards
    }

    fn index(&self, rank: u32, buffer: Buffer, chunk: u32) -> usize {
        let buffer = if buffer == Buffer::Output && self.is_in_place { Buffer::Input } else { buffer };
        let space = self.spaces.binary_search(&buffer).expect("every buffer that occurs has a space");
        (space * self.world_size as usize + rank as usize) * self.chunks as usize + chunk as usize
    }

    fn cells_of(&self, view: &View) -> std::ops::Range<usize> {
        let first = self.index(view.rank, view.buffer, view.chunks.start);
        first..first + view.chunks.len()
    }

    /// Says what a step moves, before it is recorded.
    pub(super) fn value_of(&self, draft: &Draft) -> Result<Value, String> {
        let mut value = Value { raw: Vec::new(), is_final: false, contributions: 0, is_complete: false };
        for view in &draft.src {
            let cells = &self.cells[self.cells_of(view)];
            let first = &cells[0];
            if cells.iter().any(|c| c.contributions == 0) {
                return Err(format!("reads {view}, which nothing has written before: write it first"));
            }
            let alike = |c: &Cell| {
                (c.raw, c.contributions, c.is_complete) == (first.raw, first.contributions, first.is_complete)
            };
            if !cells.iter().all(alike) {
                return Err(format!("the chunks of {view} hold values of different kinds: use a step for each"));
            }
            value.raw.push((first.raw != NOBODY).then_some(first.raw));
            value.contributions += first.contributions;
            value.is_complete |= first.is_complete;
        }
        value.is_final = self.folds && value.contributions == self.world_size && !value.is_complete;
        value.is_complete |= value.is_final;
        Ok(value)
    }

    /// Records a step's accesses and returns the earlier steps it must wait for, sorted.
    pub(super) fn record(&mut self, position: u32, draft: &Draft, value: &Value) -> Vec<u32> {
        let mut needs = Vec::new();
        for view in &draft.src {
            for at in self.cells_of(view) {
                let cell = &mut self.cells[at];
                needs.push(cell.writer);
                cell.readers.push(position);
            }
        }
        let raw = match value.raw[..] {
            [Some(rank)] if !value.is_final => rank,
            _ => NOBODY,
        };
        for view in &draft.dst {
            for at in self.cells_of(view) {
                let cell = &mut self.cells[at];
                needs.append(&mut cell.readers);
                needs.push(cell.writer);
                if cell.first_writer == NOBODY {
                    cell.first_writer = position;
                }
                cell.writer = position;
                (cell.raw, cell.contributions, cell.is_complete) = (raw, value.contributions, value.is_complete);
            }
        }
        for view in draft.src.iter().chain(&draft.dst) {
            if view.rank != draft.rank && !view.buffer.is_staging() {
                self.visitors[view.rank as usize].push(position);
            }
        }
        needs.retain(|&p| p != NOBODY && p != position);
        needs.sort_unstable();
        needs.dedup();
        needs
    }

    /// Returns, for the first writer of every staging cell, who touches the cell last: (first writer, last).
    pub(super) fn slot_reuse(&self) -> Vec<(u32, u32)> {
        let per_space = self.world_size as usize * self.chunks as usize;
        let spaces = self.spaces.iter().zip(self.cells.chunks(per_space.max(1)));
        let mut pairs = Vec::new();
        for cell in
            spaces.filter(|(buffer, _)| buffer.is_staging()).flat_map(|(_, cells)| cells).filter(|c| c.writer != NOBODY)
        {
            let last = if cell.readers.is_empty() { std::slice::from_ref(&cell.writer) } else { &cell.readers };
            pairs.extend(last.iter().map(|&position| (cell.first_writer, position)));
        }
        pairs.sort_unstable();
        pairs.dedup();
        pairs
    }

    /// Returns the steps of others that touch the buffers or scratch of `rank`.
    pub(super) fn visitors(&self, rank: u32) -> &[u32] {
        &self.visitors[rank as usize]
    }
}

//! Which steps must wait for which, because they touch the same memory; and what kind of value they move.

use super::numbers::Numbers;
use super::{Draft, Frame};
use crate::collective::Folds;
use crate::schedule::{Buffer, View};

const NOBODY: u32 = u32::MAX;

/// What a step moves: for each source the rank whose untouched contribution it is, and what the result amounts to.
/// That is of the first chunk, and of all others too unless it is a copy, which carries whatever each chunk holds.
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
    /// Whether one step completes the fold.
    completes: bool,
    numbers: Numbers,
    cells: Vec<Cell>,
    /// For each rank, the steps of others that touch its buffers or scratch.
    visitors: Vec<Vec<u32>>,
}

impl Hazards {
    pub(super) fn new(frame: &Frame, drafts: &[Draft]) -> Self {
        let numbers = Numbers::of(frame, drafts);
        let mut cells = vec![EMPTY; numbers.len()];
        let world_size = frame.roles.world_size;
        for rank in 0..world_size {
            for part in frame.collective.input(frame.roles, rank).iter() {
                let chunks = part * frame.chunks_per_part..(part + 1) * frame.chunks_per_part;
                cells[numbers.range(rank, Buffer::Input, &chunks)].fill(Cell { raw: rank, contributions: 1, ..EMPTY });
            }
        }
        let completes = frame.collective.folds == Folds::Everyone;
        Self { world_size, completes, numbers, cells, visitors: vec![Vec::new(); world_size as usize] }
    }

    fn cells_of(&self, view: &View) -> std::ops::Range<usize> {
        self.numbers.range(view.rank, view.buffer, &view.chunks)
    }

    /// Says what a step moves, before it is recorded.
    pub(super) fn value_of(&self, draft: &Draft) -> Result<Value, String> {
        let mut value = Value { raw: Vec::new(), is_final: false, contributions: 0, is_complete: false };
        let is_copy = draft.src.len() == 1 && self.world_size > 1;
        for view in &draft.src {
            let cells = &self.cells[self.cells_of(view)];
            let first = &cells[0];
            if cells.iter().any(|c| c.contributions == 0) {
                return Err(format!("reads {view}, which nothing has written before: write it first"));
            }
            let alike = |c: &Cell| {
                (c.raw, c.contributions, c.is_complete) == (first.raw, first.contributions, first.is_complete)
            };
            if !is_copy && !cells.iter().all(alike) {
                return Err(format!("the chunks of {view} hold values of different kinds: use a step for each"));
            }
            value.raw.push((first.raw != NOBODY).then_some(first.raw));
            value.contributions += first.contributions;
            value.is_complete |= first.is_complete;
        }
        value.is_final = self.completes && value.contributions == self.world_size && !value.is_complete;
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
        let from = (draft.src.len() == 1 && !value.is_final).then(|| self.cells_of(&draft.src[0]).start);
        for view in &draft.dst {
            for (nth, at) in self.cells_of(view).enumerate() {
                let kind = match from.map(|from| &self.cells[from + nth]) {
                    Some(carried) => (carried.raw, carried.contributions, carried.is_complete),
                    None => (NOBODY, value.contributions, value.is_complete),
                };
                let cell = &mut self.cells[at];
                needs.append(&mut cell.readers);
                needs.push(cell.writer);
                if cell.first_writer == NOBODY {
                    cell.first_writer = position;
                }
                cell.writer = position;
                (cell.raw, cell.contributions, cell.is_complete) = kind;
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
        let mut pairs = Vec::new();
        let staged = self.numbers.staging().flat_map(|range| &self.cells[range]);
        for cell in staged.filter(|cell| cell.writer != NOBODY) {
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

//! Hazards: the earlier steps for which each step must wait, because they access the same memory; and the values that steps move.

use std::ops::Range;

use super::draft::Draft;
use crate::cells::{Cells, ChunkRange};
use crate::collective::{Folds, Parts};
use crate::schedule::{Buffer, Schedule, View};

const NOBODY: u32 = u32::MAX;

/// The value that a step moves: for each source, the rank whose unfolded contribution it is; and properties of the result. They
/// describe the first chunk. They hold for all chunks of a fold; a copy carries the value of each chunk.
pub(super) struct StepValue {
    pub(super) raw: Vec<Option<u32>>,
    pub(super) is_final: bool,
    contributions: u32,
    is_complete: bool,
}

/// The value of a chunk: the rank whose unfolded contribution it is, or nobody; the number of contributions; whether these are all.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ChunkValue {
    raw: u32,
    contributions: u32,
    is_complete: bool,
}

const NOTHING: ChunkValue = ChunkValue { raw: NOBODY, contributions: 0, is_complete: false };

/// The values of the chunks of a cell.
#[derive(Clone)]
enum CellValues {
    /// All chunks have the same value.
    Alike(ChunkValue),
    /// Runs of equal values, each with its first chunk; a copy of several cells makes them.
    Runs(Box<[(u32, ChunkValue)]>),
}

#[derive(Clone)]
struct CellAccesses {
    writer: u32,
    first_writer: u32,
    readers: Vec<u32>,
    contents: CellValues,
}

const EMPTY: CellAccesses =
    CellAccesses { writer: NOBODY, first_writer: NOBODY, readers: Vec::new(), contents: CellValues::Alike(NOTHING) };

/// The last accesses of every cell while the program is read once, in order.
pub(super) struct Hazards {
    world_size: u32,
    /// Whether one step completes the reduction.
    completes: bool,
    numbers: Cells,
    cells: Vec<CellAccesses>,
    /// For each rank, the steps of other ranks that access its buffers or scratch.
    visitors: Vec<Vec<u32>>,
}

impl Hazards {
    pub(super) fn new(schedule: &Schedule, drafts: &[Draft<View>]) -> Self {
        let world_size = schedule.world_size;
        let views = drafts.iter().flat_map(|draft| draft.src.iter().chain(&draft.dst));
        let views = views.map(|view| (view.rank, view.buffer, view.chunks.clone()));
        let named = views.chain((0..world_size).flat_map(|rank| inputs(schedule, rank)));
        let numbers = Cells::of(world_size, schedule.aliasing, named);
        let mut cells = vec![EMPTY; numbers.len()];
        for (rank, buffer, chunks) in (0..world_size).flat_map(|rank| inputs(schedule, rank)) {
            // A collective that folds nothing needs no owner of a contribution.
            let raw = if schedule.collective.folds() { rank } else { NOBODY };
            let content = ChunkValue { raw, contributions: 1, ..NOTHING };
            cells[numbers.range(rank, buffer, &chunks)]
                .fill(CellAccesses { contents: CellValues::Alike(content), ..EMPTY });
        }
        let completes = schedule.collective.folds == Folds::Everyone;
        Self { world_size, completes, numbers, cells, visitors: vec![Vec::new(); world_size as usize] }
    }

    fn cells_of(&self, view: &View) -> Range<usize> {
        self.numbers.range(view.rank, view.buffer, &view.chunks)
    }

    /// Returns the value that a step moves, before the step is recorded.
    pub(super) fn value_of(&self, draft: &Draft<View>) -> Result<StepValue, String> {
        let mut value = StepValue { raw: Vec::new(), is_final: false, contributions: 0, is_complete: false };
        let is_copy = draft.src.len() == 1 && self.world_size > 1;
        for view in &draft.src {
            let cells = &self.cells[self.cells_of(view)];
            let first = cells[0].contents.first();
            if cells.iter().any(|cell| cell.contents.any(|content| content.contributions == 0)) {
                return Err(format!("reads {view}, which nothing has written before: write it first"));
            }
            if !is_copy && cells.iter().any(|cell| cell.contents.any(|content| content != first)) {
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

    /// Records the accesses of a step, and returns the earlier steps for which it must wait, sorted.
    pub(super) fn record(&mut self, position: u32, draft: &Draft<View>, value: &StepValue) -> Vec<u32> {
        let mut needs = Vec::new();
        for view in &draft.src {
            for at in self.cells_of(view) {
                let cell = &mut self.cells[at];
                needs.push(cell.writer);
                cell.readers.push(position);
            }
        }
        let carries = draft.src.len() == 1 && !value.is_final;
        let contents = match carries {
            true => self.contents_of(&draft.src[0]),
            false => {
                let StepValue { contributions, is_complete, .. } = *value;
                CellValues::Alike(ChunkValue { raw: NOBODY, contributions, is_complete })
            }
        };
        for view in &draft.dst {
            for (at, chunks) in self.numbers.of_range(view.rank, view.buffer, &view.chunks) {
                let cell = &mut self.cells[at];
                needs.append(&mut cell.readers);
                needs.push(cell.writer);
                if cell.first_writer == NOBODY {
                    cell.first_writer = position;
                }
                cell.writer = position;
                cell.contents = contents.within(&chunks);
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

    /// Returns the values of the chunks of a view.
    fn contents_of(&self, view: &View) -> CellValues {
        let mut runs: Vec<(u32, ChunkValue)> = Vec::new();
        for (at, chunks) in self.numbers.of_range(view.rank, view.buffer, &view.chunks) {
            self.cells[at].contents.each(chunks.start, |start, content| {
                if runs.last().is_none_or(|&(_, last)| last != content) {
                    runs.push((start, content));
                }
            });
        }
        CellValues::of(runs)
    }

    /// Returns, for every staging cell, its first writer paired with each of its last accesses.
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

    /// Returns the steps of other ranks that access the buffers or scratch of `rank`.
    pub(super) fn visitors(&self, rank: u32) -> &[u32] {
        &self.visitors[rank as usize]
    }
}

impl CellValues {
    fn of(runs: Vec<(u32, ChunkValue)>) -> Self {
        match runs[..] {
            [(_, content)] => Self::Alike(content),
            _ => Self::Runs(runs.into()),
        }
    }

    fn first(&self) -> ChunkValue {
        match self {
            Self::Alike(content) => *content,
            Self::Runs(runs) => runs[0].1,
        }
    }

    fn any(&self, is_it: impl Fn(ChunkValue) -> bool) -> bool {
        match self {
            Self::Alike(content) => is_it(*content),
            Self::Runs(runs) => runs.iter().any(|&(_, content)| is_it(content)),
        }
    }

    /// Visits the runs, each with its first chunk; a single value begins at `start`.
    fn each(&self, start: u32, mut visit: impl FnMut(u32, ChunkValue)) {
        match self {
            Self::Alike(content) => visit(start, *content),
            Self::Runs(runs) => runs.iter().for_each(|&(start, content)| visit(start, content)),
        }
    }

    /// Returns the values of a range of chunks.
    fn within(&self, chunks: &Range<u32>) -> Self {
        let Self::Runs(runs) = self else { return self.clone() };
        let first = runs.partition_point(|run| run.0 <= chunks.start) - 1;
        let inside = runs[first..].iter().take_while(|run| run.0 < chunks.end);
        Self::of(inside.map(|&(start, content)| (start.max(chunks.start), content)).collect())
    }
}

/// Yields the chunks that the input of a rank holds, in ranges as long as possible.
fn inputs(schedule: &Schedule, rank: u32) -> impl Iterator<Item = ChunkRange> + Clone + use<> {
    let (parts, per_part) = (schedule.collective.input(schedule.roles(), rank), schedule.chunks_per_part);
    let together = parts.range().filter(|held| !held.is_empty());
    let apart = if together.is_some() { Parts::NONE } else { parts };
    let ranges = together.into_iter().chain(apart.iter().map(|part| part..part + 1));
    ranges.map(move |parts| (rank, Buffer::Input, parts.start * per_part..parts.end * per_part))
}

//! Cells as numbers: the chunks that steps touch, each once, so that a buffer of which little is used costs little.
//!
//! ```text
//! rank 0, input     chunks 0..4            numbers 0..4
//! rank 0, scratch0  chunks 1..2, 6..9      numbers 4..5, 5..8       a run of chunks that occur is a run of numbers
//! ```
//!
//! In place, the output is the input. Inputs are numbered whole: they hold contributions, read or not.

use std::ops::Range;

use super::{Draft, Frame};
use crate::schedule::{Aliasing, Buffer, View};

/// A run of chunks, and the number of the first.
struct Run {
    chunks: Range<u32>,
    first: usize,
}

/// The numbers of all cells of a program.
pub(super) struct Numbers {
    is_in_place: bool,
    /// The buffers that occur, sorted.
    buffers: Vec<Buffer>,
    /// For each rank and buffer, its runs in order.
    runs: Vec<Vec<Run>>,
    len: usize,
}

impl Numbers {
    pub(super) fn of(frame: &Frame, drafts: &[Draft]) -> Self {
        let mut buffers = vec![Buffer::Input, Buffer::Output];
        let views = || drafts.iter().flat_map(|draft| draft.src.iter().chain(&draft.dst));
        for view in views() {
            if let Err(at) = buffers.binary_search(&view.buffer) {
                buffers.insert(at, view.buffer);
            }
        }
        let is_in_place = frame.aliasing == Aliasing::InPlace;
        let mut numbers = Self { is_in_place, buffers, runs: Vec::new(), len: 0 };
        let mut touched = vec![Vec::new(); frame.roles.world_size as usize * numbers.buffers.len()];
        for rank in 0..frame.roles.world_size {
            let whole = |part| part * frame.chunks_per_part..(part + 1) * frame.chunks_per_part;
            touched[numbers.row(rank, Buffer::Input)]
                .extend(frame.collective.input(frame.roles, rank).iter().map(whole));
        }
        for View { rank, buffer, chunks } in views() {
            touch(&mut touched[numbers.row(*rank, *buffer)], chunks);
        }
        for ranges in touched {
            let runs = numbers.number(ranges);
            numbers.runs.push(runs);
        }
        numbers
    }

    /// Returns how many cells there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the numbers of chunks that a step touches together, or an input holds.
    pub(super) fn range(&self, rank: u32, buffer: Buffer, chunks: &Range<u32>) -> Range<usize> {
        let runs = &self.runs[self.row(rank, buffer)];
        let run = &runs[runs.partition_point(|run| run.chunks.end <= chunks.start)];
        let first = run.first + (chunks.start - run.chunks.start) as usize;
        first..first + chunks.len()
    }

    /// Returns the numbers of everything that lies in staging.
    pub(super) fn staging(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let rows = self.runs.iter().zip(self.buffers.iter().cycle());
        let staged = rows.filter(|(_, buffer)| buffer.is_staging()).flat_map(|(runs, _)| runs);
        staged.map(|run| run.first..run.first + run.chunks.len())
    }

    fn row(&self, rank: u32, buffer: Buffer) -> usize {
        let buffer = if buffer == Buffer::Output && self.is_in_place { Buffer::Input } else { buffer };
        let at = self.buffers.binary_search(&buffer).expect("every buffer that occurs has a row");
        rank as usize * self.buffers.len() + at
    }

    /// Numbers what was touched, neighbours and overlapping ranges as one run.
    fn number(&mut self, mut ranges: Vec<Range<u32>>) -> Vec<Run> {
        ranges.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u32>> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        let mut number = |chunks: Range<u32>| {
            let first = self.len;
            self.len += chunks.len();
            Run { chunks, first }
        };
        merged.into_iter().map(&mut number).collect()
    }
}

/// Adds a range, if the last one does not have it: most programs touch a chunk several times in a row.
fn touch(ranges: &mut Vec<Range<u32>>, chunks: &Range<u32>) {
    let has = |last: &Range<u32>| last.start <= chunks.start && chunks.end <= last.end;
    if !ranges.last().is_some_and(has) {
        ranges.push(chunks.clone());
    }
}

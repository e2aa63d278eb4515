//! Numbered cells of memory: one cell is one chunk of one buffer of one rank.
//!
//! ```text
//! input and output of rank 0, of rank 1, …     every chunk that the contract says they hold, in memory order
//! scratch and staging of rank 0, of rank 1, …  every chunk that a step touches, neighbours as one run
//! ```
//!
//! In place, a chunk that both the input and the output of a rank hold is one cell, in the input. Chunks that a buffer does not hold
//! have no cell: in an all_to_all of n ranks, a buffer holds n of n^2 chunks.

use std::ops::Range;

use super::report::Violation;
use crate::collective::Parts;
use crate::schedule::{Aliasing, Buffer, Schedule, Step, View};

/// The largest memory of a proof for the values and accesses of its cells, and again for its clocks. Chosen: a machine in use can
/// spare this.
pub(super) const MOST_BYTES: u128 = 2 << 30;

/// The memory of a cell: its value, its last writer and its last reader.
const CELL_BYTES: u128 = 12;

/// The memory of a recorded read: an entry of 8 bytes, in a list that doubles and moves when it grows.
const READ_BYTES: u128 = 24;

/// The memory of a chunk: the value of its output, and the cell in which it was found first.
const CHUNK_BYTES: u128 = 24;

/// The parts that a user buffer holds, and its first cell.
struct Held {
    parts: Parts,
    first: usize,
}

/// A contiguous range of chunks of scratch or staging that steps access, and its first cell.
struct Run {
    buffer: Buffer,
    chunks: Range<u32>,
    first: usize,
}

/// The numbering of the cells of a schedule.
pub(super) struct Memory {
    chunks: u32,
    chunks_per_part: u32,
    is_in_place: bool,
    /// For each rank, its input and its output.
    users: Vec<[Held; 2]>,
    /// For each rank, its scratch and staging in order.
    layers: Vec<Vec<Run>>,
    len: usize,
}

impl Memory {
    pub(super) fn of(schedule: &Schedule) -> Result<Self, Violation> {
        let (collective, roles) = (schedule.collective, schedule.roles());
        let chunks = u128::from(collective.parts(roles)) * u128::from(schedule.chunks_per_part);
        let held = |rank| [collective.input(roles, rank), collective.output(roles, rank)];
        let parts: u128 = (0..roles.world_size).flat_map(held).map(|parts| u128::from(parts.len())).sum();
        let touched = touched_layers(schedule, chunks);
        let layered = touched.iter().flatten().map(|(_, chunks)| chunks.len() as u128).sum::<u128>();
        let cells = parts * u128::from(schedule.chunks_per_part) + layered;
        let bytes = cells * CELL_BYTES + reads(schedule, chunks) * READ_BYTES + chunks * CHUNK_BYTES;
        if bytes > MOST_BYTES {
            return Err(Violation::TooLarge { what: "bytes of memory", found: bytes, most: MOST_BYTES });
        }
        let mut memory = Self {
            chunks: chunks as u32,
            chunks_per_part: schedule.chunks_per_part,
            is_in_place: schedule.aliasing == Aliasing::InPlace,
            users: Vec::new(),
            layers: Vec::new(),
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
        for touched in touched {
            let runs = touched.into_iter().map(|(buffer, chunks)| {
                let first = memory.len;
                memory.len += chunks.len();
                Run { buffer, chunks, first }
            });
            let runs = runs.collect();
            memory.layers.push(runs);
        }
        Ok(memory)
    }

    /// Returns the number of cells.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Returns the cell of a chunk of a view; the buffer must hold the chunk.
    pub(super) fn cell(&self, view: &View, chunk: u32) -> usize {
        match view.buffer {
            Buffer::Input => self.cell_of_user(view.rank, 0, chunk),
            Buffer::Output => self.cell_of_output(view.rank, chunk),
            layer => {
                let runs = &self.layers[view.rank as usize];
                let run = &runs[runs.partition_point(|run| (run.buffer, run.chunks.end) <= (layer, chunk))];
                run.first + (chunk - run.chunks.start) as usize
            }
        }
    }

    /// Says whether a buffer holds every chunk of a view.
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

    /// Says whether a chunk of a rank's input is the same memory as in its output.
    pub(super) fn is_aliased(&self, rank: u32, chunk: u32) -> bool {
        let part = self.part_of(chunk);
        self.is_in_place && self.users[rank as usize].iter().all(|held| held.parts.contains(part))
    }

    /// Yields the cells that hold a contribution at the start, each with its rank.
    pub(super) fn contributions(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.held(0).map(|(rank, chunk)| (self.cell_of_user(rank, 0, chunk), rank))
    }

    /// Yields the cells of all outputs, each with its rank and chunk.
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

/// Returns, for each rank, the existing chunks of scratch and staging that steps access, as sorted ranges.
fn touched_layers(schedule: &Schedule, chunks: u128) -> Vec<Vec<(Buffer, Range<u32>)>> {
    let mut touched: Vec<Vec<(Buffer, Range<u32>)>> = vec![Vec::new(); schedule.world_size as usize];
    let layers = schedule.steps.iter().flat_map(Step::views).filter(|view| !view.buffer.is_user());
    for view in layers.filter(|view| !view.chunks.is_empty() && u128::from(view.chunks.end) <= chunks) {
        if let Some(of_rank) = touched.get_mut(view.rank as usize) {
            of_rank.push((view.buffer, view.chunks.clone()));
        }
    }
    for of_rank in &mut touched {
        of_rank.sort_unstable_by_key(|(buffer, chunks)| (*buffer, chunks.start));
        of_rank.dedup_by(|(buffer, next), (before, run)| {
            let continues = buffer == before && next.start <= run.end;
            run.end = if continues { run.end.max(next.end) } else { run.end };
            continues
        });
    }
    touched
}

/// Returns the number of recorded reads of single chunks. Reads of staging count twice: in the first tile and in the tile that reuses
/// the slot.
fn reads(schedule: &Schedule, chunks: u128) -> u128 {
    let views = schedule.steps.iter().flat_map(|step| &step.src).map(|source| &source.view);
    let exist = views.filter(|view| u128::from(view.chunks.end) <= chunks);
    exist.map(|view| view.chunks.len() as u128 * if view.buffer.is_staging() { 2 } else { 1 }).sum()
}

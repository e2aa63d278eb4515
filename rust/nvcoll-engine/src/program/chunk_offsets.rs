//! Offsets of chunks in scratch and staging. Every chunk that a step puts there has a range of its own.
//!
//! ```text
//! scratch   | layer 0: chunk 1 | chunk 4 | layer 1: chunk 1 |            packed, as long as the chunks are
//! staging   | chunk 0          | chunk 1          | chunk 2  …  |         in every slot of every bank, as long as the slot allows
//! ```
//!
//! Offsets in staging depend on the schedule alone, and not on counts, dtype or tile. So all calls of a pass use the same ranges, and
//! the proof says when a range is free. The distance between ranges is an odd number of cache lines, which spreads them over the sets
//! of a cache.

use std::collections::{BTreeSet, HashMap};

use nvcoll_core::limits::staged_chunk_bytes;
use nvcoll_core::partition::Partition;
use nvcoll_core::schedule::{Buffer, Schedule, Step};

/// Alignment of the layers of scratch, in bytes. Chosen: a cache line.
const LINE_BYTES: usize = 64;

/// The offsets of all chunks of all ranks, in bytes.
#[derive(Debug, Default)]
pub(super) struct ChunkOffsets {
    scratch: HashMap<(u32, Buffer, u32), usize>,
    staging: HashMap<(u32, Buffer, u32), usize>,
    /// Bytes of scratch of the rank that needs the most.
    pub(super) scratch_bytes: usize,
    /// The distance between two chunks in staging, in bytes; `None` if nothing is staged.
    pub(super) spacing_bytes: Option<usize>,
}

impl ChunkOffsets {
    /// Assigns offsets to all chunks of a schedule, in slots of `slot_bytes`.
    pub(super) fn of(schedule: &Schedule, partition: &Partition, element: usize, slot_bytes: usize) -> Self {
        let mut occupied: Vec<BTreeSet<(Buffer, u32)>> = vec![BTreeSet::new(); schedule.world_size as usize];
        for view in schedule.steps.iter().flat_map(Step::views).filter(|view| !view.buffer.is_user()) {
            occupied[view.rank as usize].extend(view.chunks.clone().map(|chunk| (view.buffer, chunk)));
        }
        let mut offsets = Self { spacing_bytes: spacing_bytes(&occupied, slot_bytes), ..Self::default() };
        for (rank, occupied) in (0..).zip(occupied) {
            offsets.assign(rank, &occupied, partition, element);
        }
        offsets
    }

    /// Assigns offsets to the chunks of one rank, ordered by buffer and chunk.
    fn assign(&mut self, rank: u32, occupied: &BTreeSet<(Buffer, u32)>, partition: &Partition, element: usize) {
        let (mut packed, mut staged, mut before) = (0usize, 0, None);
        for &(buffer, chunk) in occupied {
            if buffer.is_staging() {
                self.staging.insert((rank, buffer, chunk), staged);
                staged += self.spacing_bytes.unwrap_or(0);
                continue;
            }
            if before.replace(buffer) != Some(buffer) {
                packed = packed.next_multiple_of(LINE_BYTES);
            }
            self.scratch.insert((rank, buffer, chunk), packed);
            packed += partition.chunk_count(chunk) * element;
        }
        self.scratch_bytes = self.scratch_bytes.max(packed);
    }

    /// Returns the offset of a chunk in its rank's scratch or in a slot of its staging.
    pub(super) fn offset(&self, rank: u32, buffer: Buffer, chunk: u32) -> usize {
        let offsets = if buffer.is_staging() { &self.staging } else { &self.scratch };
        offsets[&(rank, buffer, chunk)]
    }
}

/// Returns the distance between two chunks in staging, in bytes.
fn spacing_bytes(occupied: &[BTreeSet<(Buffer, u32)>], slot_bytes: usize) -> Option<usize> {
    let staged = |of_rank: &BTreeSet<(Buffer, u32)>| of_rank.iter().filter(|(buffer, _)| buffer.is_staging()).count();
    let most = occupied.iter().map(staged).max().filter(|&most| most > 0)?;
    Some(staged_chunk_bytes(slot_bytes, most))
}

/// The elements of one call in one chunk and tile, where several calls are coalesced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The index of the call in its pass.
    pub(crate) call: u32,
    /// The index of the first element in the call, and the number of elements.
    pub(crate) start: usize,
    pub(crate) count: usize,
    /// The offset of the piece within its chunk in staging.
    pub(crate) offset_bytes: usize,
}

//! Offsets of chunks in scratch and staging. Every chunk that a step puts there has a range of its own.
//!
//! ```text
//! scratch   | layer 0: chunk 1 | chunk 4 | layer 1: chunk 1 |            packed, as long as the chunks are
//! staging   | chunk 0 | chunk 1 | chunk 2  …  |                            in every place of a ring (`staging_ring.rs`)
//! ```
//!
//! In staging a chunk has a number; the distance between two is one for all calls of a pass (`staging_ring.rs`). So all of them use the
//! same ranges, and the proof says when a range is free.

use std::collections::{BTreeSet, HashMap};

use nvcoll_core::partition::Partition;
use nvcoll_core::schedule::{Buffer, Schedule, Step};

/// Alignment of the layers of scratch, in bytes. Chosen: a cache line.
const LINE_BYTES: usize = 64;

/// The offsets of all chunks of all ranks, in bytes of scratch or chunks of staging.
#[derive(Debug, Default)]
pub(super) struct ChunkOffsets {
    scratch: HashMap<(u32, Buffer, u32), usize>,
    /// The number of each chunk among those that its rank stages.
    staging: HashMap<(u32, Buffer, u32), usize>,
    /// Bytes of scratch of the rank that needs the most.
    pub(super) scratch_bytes: usize,
    /// Chunks of the rank that stages the most.
    pub(super) staged_chunks: usize,
}

impl ChunkOffsets {
    /// Assigns offsets to all chunks of a schedule.
    pub(super) fn of(schedule: &Schedule, partition: &Partition, element: usize) -> Self {
        let mut occupied: Vec<BTreeSet<(Buffer, u32)>> = vec![BTreeSet::new(); schedule.world_size as usize];
        for view in schedule.steps.iter().flat_map(Step::views).filter(|view| !view.buffer.is_user()) {
            occupied[view.rank as usize].extend(view.chunks.clone().map(|chunk| (view.buffer, chunk)));
        }
        let mut offsets = Self::default();
        for (rank, occupied) in (0..).zip(occupied) {
            offsets.assign(rank, &occupied, partition, element);
        }
        offsets
    }

    /// Assigns offsets to the chunks of one rank, ordered by buffer and chunk.
    fn assign(&mut self, rank: u32, occupied: &BTreeSet<(Buffer, u32)>, partition: &Partition, element: usize) {
        let (mut packed, mut staged, mut before) = (0usize, 0usize, None);
        for &(buffer, chunk) in occupied {
            if buffer.is_staging() {
                self.staging.insert((rank, buffer, chunk), staged);
                staged += 1;
                continue;
            }
            if before.replace(buffer) != Some(buffer) {
                packed = packed.next_multiple_of(LINE_BYTES);
            }
            self.scratch.insert((rank, buffer, chunk), packed);
            packed += partition.chunk_count(chunk) * element;
        }
        self.scratch_bytes = self.scratch_bytes.max(packed);
        self.staged_chunks = self.staged_chunks.max(staged);
    }

    /// Returns the offset of a chunk in its rank's scratch, or its number in its rank's staging.
    pub(super) fn offset(&self, rank: u32, buffer: Buffer, chunk: u32) -> usize {
        let offsets = if buffer.is_staging() { &self.staging } else { &self.scratch };
        offsets[&(rank, buffer, chunk)]
    }
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

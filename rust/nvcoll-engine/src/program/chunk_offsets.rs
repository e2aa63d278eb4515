//! Where scratch and staging hold what: every chunk that a step puts there has a home of its own, and nothing else has.
//!
//! ```text
//! scratch   | layer 0: chunk 1 | chunk 4 | layer 1: chunk 1 |            packed: as long as the chunks are
//! staging   | home 0           | home 1           | home 2  …  |         in every slot of every bank; as long as a slot has room
//! ```
//!
//! The offsets of staging depend on the schedule alone, and not on counts, dtype or tile: whatever calls one pass of the
//! schedule works off, one after the other, a chunk finds its home where the proof says that it is free. Their distance is
//! an odd number of cache lines, so that not all offsets meet in the same sets of a cache.

use std::collections::{BTreeSet, HashMap};

use nvcoll_core::partition::Partition;
use nvcoll_core::schedule::{Buffer, Schedule, Step};

/// Layers of scratch begin at multiples of this many bytes. Chosen: a cache line.
const LINE_BYTES: usize = 64;

/// The offsets of all ranks: offsets in bytes.
#[derive(Debug, Default)]
pub(super) struct ChunkOffsets {
    scratch: HashMap<(u32, Buffer, u32), usize>,
    staging: HashMap<(u32, Buffer, u32), usize>,
    /// Bytes of scratch that the rank with the most needs.
    pub(super) scratch_bytes: usize,
    /// From one home in staging to the next; none if nothing is staged.
    pub(super) home_bytes: Option<usize>,
}

impl ChunkOffsets {
    /// Finds offsets for the chunks of a schedule in slots of `slot_bytes`.
    pub(super) fn of(schedule: &Schedule, partition: &Partition, element: usize, slot_bytes: usize) -> Self {
        let mut occupied: Vec<BTreeSet<(Buffer, u32)>> = vec![BTreeSet::new(); schedule.world_size as usize];
        for view in schedule.steps.iter().flat_map(Step::views).filter(|view| !view.buffer.is_user()) {
            occupied[view.rank as usize].extend(view.chunks.clone().map(|chunk| (view.buffer, chunk)));
        }
        let mut offsets = Self { home_bytes: home_bytes(&occupied, slot_bytes), ..Self::default() };
        for (rank, occupied) in (0..).zip(occupied) {
            offsets.assign(rank, &occupied, partition, element);
        }
        offsets
    }

    /// Gives each chunk of one rank, by buffer and then in order, its home.
    fn assign(&mut self, rank: u32, occupied: &BTreeSet<(Buffer, u32)>, partition: &Partition, element: usize) {
        let (mut packed, mut staged, mut before) = (0usize, 0, None);
        for &(buffer, chunk) in occupied {
            if buffer.is_staging() {
                self.staging.insert((rank, buffer, chunk), staged);
                staged += self.home_bytes.unwrap_or(0);
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

    /// Returns where a chunk lies in its rank's scratch or in a slot of its staging.
    pub(super) fn offset(&self, rank: u32, buffer: Buffer, chunk: u32) -> usize {
        let offsets = if buffer.is_staging() { &self.staging } else { &self.scratch };
        offsets[&(rank, buffer, chunk)]
    }
}

/// Returns the bytes of a home in staging.
fn home_bytes(occupied: &[BTreeSet<(Buffer, u32)>], slot_bytes: usize) -> Option<usize> {
    let staged = |of_rank: &BTreeSet<(Buffer, u32)>| of_rank.iter().filter(|(buffer, _)| buffer.is_staging()).count();
    let most = occupied.iter().map(staged).max().filter(|&most| most > 0)?;
    let lines = slot_bytes / LINE_BYTES / most;
    Some(LINE_BYTES * if lines.is_multiple_of(2) { lines.saturating_sub(1) } else { lines })
}

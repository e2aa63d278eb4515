//! The limits of worlds and schedules.
//!
//! | limit | applies to | checked by |
//! |---|---|---|
//! | [`MAX_WORLD_SIZE`] | schedules that are **described**: built, lowered, proved, costed, simulated | builder, text, verifier |
//! | [`MAX_RUNNING_RANKS`] | schedules that **run**: the ranks of one machine | engine, tuning tables |
//! | [`MAX_RUNNING_QUEUES`], [`most_staged_chunks`] | one rank of a schedule that **runs** | engine; `nvcoll verify` reports it |
//! | [`MAX_STEPS`], [`MAX_VIEWS`] | one schedule of either | builder, lowering |
//! | [`MAX_CHUNKS_PER_PART`], [`MAX_CHUNKS`] | chunks of one schedule | builder, text, lowering |
//!
//! A ring of 1,024 ranks has two million steps; a ring of 16,384 ranks has more than five hundred million. Therefore the builder
//! counts the size of a program while an algorithm writes it. Beyond a limit it counts on without keeping the steps. The error
//! tells the size of the whole program, and no memory of that size is allocated.

use crate::partition::GRAIN;

/// The largest world size of a schedule. Chosen: 2,048 nodes of 8 GPUs.
pub const MAX_WORLD_SIZE: u32 = 1 << 14;

/// The largest number of ranks that run together on one machine. Chosen: some hundred per processor; the engine lays out words
/// and flags for this number.
pub const MAX_RUNNING_RANKS: u32 = 1 << 10;

/// The largest number of steps of a schedule. Chosen: twice the steps of a ring of 1,024 ranks, which takes 1.5 GB to build.
pub const MAX_STEPS: u64 = 1 << 22;

/// The largest number of sources and destinations of all steps. Chosen: four for each step; they take as much memory as the steps.
pub const MAX_VIEWS: u64 = 1 << 24;

/// The largest number of chunks per part. Chosen: four times the largest world size.
pub const MAX_CHUNKS_PER_PART: u64 = 1 << 16;

/// The largest number of chunks of all parts together. Chosen: one for each pair of ranks of the largest world.
pub const MAX_CHUNKS: u64 = 1 << 28;

/// The largest number of queues of a rank that runs. Chosen: three phases of a two-level tree need no more.
pub const MAX_RUNNING_QUEUES: u32 = 16;

/// The size of a cache line. Slots of staging, and chunks in slots, begin at multiples of it.
const LINE_BYTES: usize = 64;

/// The staging of a rank that a call can fill, at least. Chosen: four slots fit a second-level cache together.
const STAGING_BYTES: usize = 1 << 20;

/// The staging of a rank per rank of a large world. Chosen: four slots of three layers of the shortest float64 tiles.
const STAGING_BYTES_PER_RANK: usize = 4096;

/// Returns the largest number of chunks of a collective with this number of parts.
pub fn most_chunks(parts: u32) -> u64 {
    (MAX_CHUNKS_PER_PART * u64::from(parts.max(1))).min(MAX_CHUNKS)
}

/// Returns the bytes of staging of one rank that a call can fill. The engine may make more, and use it in turn.
pub fn staging_bytes(world_size: u32) -> usize {
    STAGING_BYTES.max(STAGING_BYTES_PER_RANK * world_size as usize)
}

/// Returns the bytes of one slot. Staging has two banks, which calls use in turn; a bank has `slots` slots, which tiles use in turn.
pub fn slot_bytes(world_size: u32, slots: u32) -> usize {
    staging_bytes(world_size) / (2 * slots.max(1) as usize) / LINE_BYTES * LINE_BYTES
}

/// Returns the bytes of each chunk in a slot of staging, if a rank stages `chunks` chunks. The number of cache lines is odd, so
/// that chunks spread over the sets of a cache.
pub fn staged_chunk_bytes(slot_bytes: usize, chunks: usize) -> usize {
    let lines = slot_bytes / LINE_BYTES / chunks;
    LINE_BYTES * if lines.is_multiple_of(2) { lines.saturating_sub(1) } else { lines }
}

/// Returns the bytes from one chunk to the next where chunks of `bytes` bytes lie packed: an odd number of cache lines.
pub fn packed_chunk_bytes(bytes: usize) -> usize {
    LINE_BYTES * (bytes.div_ceil(LINE_BYTES) | 1)
}

/// Returns the largest number of chunks that a rank can stage, by the size of an element: each chunk needs room for its shortest
/// tile.
pub fn most_staged_chunks(world_size: u32, slots: u32, element_bytes: usize) -> usize {
    let lines = (GRAIN * element_bytes).div_ceil(LINE_BYTES);
    slot_bytes(world_size, slots) / LINE_BYTES / if lines.is_multiple_of(2) { lines + 1 } else { lines }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_chunks_are_staged_as_have_room_for_a_tile() {
        for element in [1, 2, 4, 8, 16] {
            for (world_size, slots) in [(2, 2), (8, 8), (1000, 3)] {
                let (slot, most) = (slot_bytes(world_size, slots), most_staged_chunks(world_size, slots, element));
                let has_room = |chunks| staged_chunk_bytes(slot, chunks) / element >= GRAIN;
                assert!(has_room(most) && !has_room(most + 1), "{most} chunks of {element} bytes in {slot}");
            }
        }
    }
}

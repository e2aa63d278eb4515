//! How much staging a rank has, and how it is cut into slots: programs place chunks by it before there is a world.

/// Slots begin at multiples of this many bytes. Chosen: a cache line.
const LINE_BYTES: usize = 64;

/// Staging of a rank in a small world. Chosen: four slots that fit a second-level cache together.
const STAGING_BYTES: usize = 1 << 20;

/// Staging per rank of the world, where that is more. Chosen: four slots of three layers of the shortest float64 tiles.
const STAGING_BYTES_PER_RANK: usize = 4096;

/// Returns the bytes of staging of one rank.
pub(crate) fn staging_bytes(world_size: u32) -> usize {
    STAGING_BYTES.max(STAGING_BYTES_PER_RANK * world_size as usize)
}

/// Returns the bytes of one slot: there are two banks, for calls by turns, of so many slots, for tiles by turns.
pub(crate) fn slot_bytes(world_size: u32, slots: u32) -> usize {
    staging_bytes(world_size) / (2 * slots.max(1) as usize) / LINE_BYTES * LINE_BYTES
}

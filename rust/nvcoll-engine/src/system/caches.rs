//! How much staging suits the caches of this machine: see `program/staging_ring.rs`.

use nvcoll_core::limits::staging_bytes as most_filled;

use super::cpus::{cache_bytes, online, sharing};

/// The most staging of a rank. Chosen.
const MOST_BYTES: usize = 4 << 20;

/// Staging is a multiple of this many bytes: two banks of whole pages.
const UNIT: usize = 8 << 10;

/// How many second-level caches the staging of a rank is. Measured: of 1, 2, 4, 8 and 16 MiB, 4 are fastest with caches of 1 MiB.
const SECOND_LEVEL_CACHES: usize = 4;

/// Returns how much staging of each rank goes through its peers' second-level caches, if so many ranks share this machine; 0 if they are
/// more than its CPUs, which evict each other's lines anyway, or the system does not tell.
pub fn ring_bytes(ranks: u32) -> usize {
    let of_ranks = || {
        let (second, cpus, ranks) = (cache_bytes(2)?, online()?, ranks as usize);
        let third = cache_bytes(3)? * cpus.div_ceil(sharing(3)?.max(1));
        (ranks <= cpus).then(|| (SECOND_LEVEL_CACHES * second).min(third / ranks).min(MOST_BYTES) / UNIT * UNIT)
    };
    of_ranks().unwrap_or(0)
}

/// Returns the bytes of staging of a rank in a world of so many ranks, given that of [`ring_bytes`].
pub fn staging_bytes(world_size: u32, ring: usize) -> usize {
    most_filled(world_size).max(ring)
}

//! How much staging suits the caches of this machine: see `program/staging_ring.rs`.

use std::sync::OnceLock;

use nvcoll_core::limits::staging_bytes as most_filled;

use super::cpus::{cache_bytes, online, sharing};

/// The most staging of a rank. Chosen.
const MOST_BYTES: usize = 4 << 20;

/// Staging is a multiple of this many bytes: two banks of whole pages.
const UNIT: usize = 8 << 10;

/// How many second-level caches the staging of a rank is. Measured, with caches of 1 MiB: back to back, 3 are as fast as 4, and 1, 2, 8 and
/// 16 are slower; between calls of other libraries 2 and 3 are as fast, and 4 take up to 1.2 times as long.
const SECOND_LEVEL_CACHES: usize = 3;

/// Returns how much staging of each rank goes through its peers' second-level caches, if so many ranks share this machine; 0 if they are
/// more than its CPUs, which evict each other's lines anyway, or the system does not tell.
pub fn ring_bytes(ranks: u32) -> usize {
    // Read once: every world asks, also those that never stage.
    static SIZES: OnceLock<Option<CacheSizes>> = OnceLock::new();
    let (Some(CacheSizes { second, third, cpus }), ranks) = (SIZES.get_or_init(CacheSizes::read), ranks as usize)
    else {
        return 0;
    };
    match ranks <= *cpus {
        true => (SECOND_LEVEL_CACHES * second).min(third / ranks).min(MOST_BYTES) / UNIT * UNIT,
        false => 0,
    }
}

/// The bytes of a second-level cache and of all third-level ones, and the number of CPUs.
struct CacheSizes {
    second: usize,
    third: usize,
    cpus: usize,
}

impl CacheSizes {
    fn read() -> Option<Self> {
        let cpus = online()?;
        Some(Self { second: cache_bytes(2)?, third: cache_bytes(3)? * cpus.div_ceil(sharing(3)?.max(1)), cpus })
    }
}

/// Returns the bytes of staging of a rank in a world of so many ranks, given that of [`ring_bytes`].
pub fn staging_bytes(world_size: u32, ring: usize) -> usize {
    most_filled(world_size).max(ring)
}

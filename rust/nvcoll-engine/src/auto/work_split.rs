//! The work split of a call, and the length of its tiles. Both change time, never bits.

use nvcoll_core::counts::held_count;
use nvcoll_core::schedule::{Path, Schedule};

use crate::auto::components::connected_components;
use crate::call::Call;

/// The division of a call's work among workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkSplit {
    /// A worker runs whole tiles of all ranks, for a caller that drives all ranks.
    ByTile,
    /// A worker runs all queues of its ranks.
    ByRank,
}

/// The least size of all buffers for which helpers pay, in bytes. A smaller call stays on the calling thread, whose
/// cache often holds the data. Measured: two threads win from about 2 MiB, half of the two second-level caches there.
const ALONE_BYTES: usize = 1 << 20;

/// The least size of all buffers for which streaming stores are tried, in bytes. The caller of a smaller call may
/// soon look for results in the caches. Chosen: more than the share of one or two cores in most last-level caches.
const STREAMED_BYTES: usize = 32 << 20;

/// The least size of all buffers for which streaming stores to staging are tried, in bytes. Measured: below, the fence behind the
/// stores takes longer than the lines, even between processors that share no cache.
const STREAMED_STAGING_BYTES: usize = 32 << 10;

/// The bytes of tiles that overlap the stores of a rank with the loads of its peers. Measured, near, 2 ranks, against tiles as long as
/// there is room: a broadcast takes half the time at 256 KiB and 0.93 at 1 MiB; an all_reduce 0.85 at 256 KiB, 0.93 at 512 KiB, and
/// then as long; an all_gather takes 1.2 times as long from 1 MiB on. With 16 KiB every call takes 1.3 to 2 times as long.
const OVERLAPPED_BYTES: usize = 64 << 10;

/// The longest slice of a chunk, in bytes. An abort is acknowledged between slices. Chosen.
const LONGEST_SLICE_BYTES: usize = 256 << 10;

/// The shortest slice that is worth a claim, in bytes. Chosen.
const SHORTEST_SLICE_BYTES: usize = 4 << 10;

/// The number of pieces per worker, which balances uneven starts. Chosen.
const PIECES_PER_WORKER: usize = 16;

/// The bytes of all slices of a component, where a step reads the result of an earlier one. Chosen: half of a
/// second-level cache of 1 MiB, since the other half streams.
const RESIDENT_BYTES: usize = 512 << 10;

/// Returns the sum over all ranks of the longer buffer, in bytes.
fn buffer_bytes(schedule: &Schedule, counts: &[usize], element: usize) -> usize {
    let (collective, roles) = (schedule.collective, schedule.roles());
    let held = |rank| [collective.input(roles, rank), collective.output(roles, rank)];
    let longer = |rank| held(rank).map(|parts| held_count(counts, parts)).into_iter().max().unwrap_or(0);
    (0..schedule.world_size).map(longer).sum::<usize>() * element
}

/// Says whether helpers make a call of `buffer_bytes` faster.
#[inline]
pub(crate) fn wants_help(buffer_bytes: usize) -> bool {
    buffer_bytes >= ALONE_BYTES
}

/// Says whether streaming stores may pay in a call of `buffer_bytes`.
pub(crate) fn may_stream(buffer_bytes: usize) -> bool {
    buffer_bytes >= STREAMED_BYTES
}

/// Says whether streaming stores to staging may pay in a call of `buffer_bytes`.
pub(crate) fn may_stream_staging(buffer_bytes: usize) -> bool {
    buffer_bytes >= STREAMED_STAGING_BYTES
}

/// Returns the bytes of a chunk in a staged tile, if there is room: see [`OVERLAPPED_BYTES`]. Where every rank stores and loads, and the
/// tiles are many, none waits for long. More than two ranks keep long tiles: with two processors, all that could be measured, four ranks
/// take up to twice the time with short ones.
pub(crate) fn staged_tile_bytes(has_root: bool, world_size: u32, chunk_bytes: usize) -> usize {
    match world_size == 2 && (has_root || chunk_bytes <= 4 * OVERLAPPED_BYTES) {
        true => OVERLAPPED_BYTES,
        false => usize::MAX,
    }
}

impl WorkSplit {
    /// Returns the work split for a caller that drives all ranks.
    pub fn of(path: Path) -> Self {
        match path {
            Path::Mapped => WorkSplit::ByTile,
            Path::Staged | Path::Pushed => WorkSplit::ByRank,
        }
    }

    /// Returns the elements of a chunk in one tile; where tiles are staged there may be room for fewer.
    pub(crate) fn tile_count(self, schedule: &Schedule, call: &Call, workers: usize) -> usize {
        let element = call.dtype.bytes();
        let counts = call.counts.of_parts(call.collective, schedule.roles());
        let longest = counts.iter().max().copied().unwrap_or(0);
        let chunk_bytes = longest * element / schedule.chunks_per_part.max(1) as usize;
        if schedule.path != Path::Mapped {
            return staged_tile_bytes(call.collective.has_root, schedule.world_size, chunk_bytes) / element;
        }
        let (components, bytes) = (connected_components(schedule).len(), buffer_bytes(schedule, &counts, element));
        let has_one_step_each = components == schedule.steps.len();
        self.slice_bytes(chunk_bytes, bytes, components, has_one_step_each, schedule.world_size, workers) / element
    }

    /// Returns the bytes of a chunk in one tile of a mapped schedule, given the bytes of its longest chunk and of all buffers.
    pub(crate) fn slice_bytes(
        self,
        chunk_bytes: usize,
        buffer_bytes: usize,
        components: usize,
        has_one_step_each: bool,
        world_size: u32,
        workers: usize,
    ) -> usize {
        if self == WorkSplit::ByRank {
            return LONGEST_SLICE_BYTES;
        }
        let fair = match wants_help(buffer_bytes) {
            true => chunk_bytes * components.max(1) / (PIECES_PER_WORKER * workers),
            false => usize::MAX,
        };
        let resident = if has_one_step_each { usize::MAX } else { RESIDENT_BYTES / world_size as usize };
        fair.min(resident).clamp(SHORTEST_SLICE_BYTES, LONGEST_SLICE_BYTES)
    }
}

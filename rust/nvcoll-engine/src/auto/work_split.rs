//! How a program is shared out, and how long its tiles are. Tuning changes time, never bits.

use nvcoll_core::counts::held_count;
use nvcoll_core::schedule::{Path, Schedule};

use crate::auto::components::connected_components;
use crate::call::Call;

/// How the work of a call is divided among workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkSplit {
    /// One caller drives all ranks; a worker runs whole tiles.
    ByTile,
    /// A worker runs the queues of its ranks.
    ByRank,
}

/// With less in the buffers of all ranks a call stays on the calling thread, in whose cache they often still lie: one core
/// that has them is faster than two of which one must fetch its half. Measured: two threads win from about 2 MiB, half of
/// the two second-level caches there.
const ALONE_BYTES: usize = 1 << 20;

/// With less in the buffers of all ranks stores never go past the caches, in which the caller may soon look for the results.
/// Chosen: more than the share that most last-level caches have for a core or two.
const STREAMED_BYTES: usize = 32 << 20;

/// The longest slice of a chunk, so that an abort is acknowledged soon. Chosen by the design.
const LONGEST_SLICE_BYTES: usize = 256 << 10;

/// The shortest slice that is worth a claim. Chosen.
const SHORTEST_SLICE_BYTES: usize = 4 << 10;

/// Pieces that a worker should find, so that an uneven start evens out. Chosen.
const PIECES_PER_WORKER: usize = 16;

/// What the slices of a component may take together, where a step reads what an earlier one wrote: half of a second-level
/// cache of 1 MiB, since the other half streams. Chosen.
const RESIDENT_BYTES: usize = 512 << 10;

/// Returns the bytes of the longer buffer of every rank, in all.
fn buffer_bytes(schedule: &Schedule, counts: &[usize], element: usize) -> usize {
    let (collective, roles) = (schedule.collective, schedule.roles());
    let held = |rank| [collective.input(roles, rank), collective.output(roles, rank)];
    let longer = |rank| held(rank).map(|parts| held_count(counts, parts)).into_iter().max().unwrap_or(0);
    (0..schedule.world_size).map(longer).sum::<usize>() * element
}

/// Says whether helpers make a call faster that moves so many bytes.
#[inline]
pub(crate) fn wants_help(buffer_bytes: usize) -> bool {
    buffer_bytes >= ALONE_BYTES
}

/// Says whether stores past the caches may be worth while in a call that moves so many bytes.
pub(crate) fn may_stream(buffer_bytes: usize) -> bool {
    buffer_bytes >= STREAMED_BYTES
}

impl WorkSplit {
    /// Returns how a caller that drives all ranks shares out a schedule.
    pub fn of(path: Path) -> Self {
        match path {
            Path::Mapped => WorkSplit::ByTile,
            Path::Staged | Path::Pushed => WorkSplit::ByRank,
        }
    }

    /// Returns the elements of a chunk in one tile; where tiles are staged there may be room for fewer.
    pub(crate) fn tile_count(self, schedule: &Schedule, call: &Call, workers: usize) -> usize {
        if schedule.path != Path::Mapped {
            return usize::MAX; // as long as there is room
        }
        let element = call.dtype.bytes();
        let counts = call.counts.of_parts(call.collective, schedule.roles());
        let longest = counts.iter().max().copied().unwrap_or(0);
        let chunk_bytes = longest * element / schedule.chunks_per_part.max(1) as usize;
        let (components, bytes) = (connected_components(schedule).len(), buffer_bytes(schedule, &counts, element));
        let has_one_step_each = components == schedule.steps.len();
        self.slice_bytes(chunk_bytes, bytes, components, has_one_step_each, schedule.world_size, workers) / element
    }

    /// Returns the bytes of a chunk in one tile of a mapped schedule, given those of its longest chunk and of all buffers.
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

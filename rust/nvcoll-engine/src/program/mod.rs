//! Programs: a proved schedule with all values resolved that do not depend on the caller's addresses. Running one allocates nothing.
//!
//! ```text
//! step      waits, folds                            a step of w chunks is w folds
//! fold      kernel, element count, addresses        an address is a base pointer and an offset
//! offset    chunk + tile x tile bytes               a tile is the same slice of every chunk
//!           staging: chunk + place of the tile in the ring (`staging_ring.rs`)
//! piece     the elements of one call in one chunk, where several calls are coalesced (`batch/coalesced.rs`)
//! ```
//!
//! `make.rs` and `bind.rs` make programs, `order.rs` says which step waits for which, `cache.rs` keeps them, `run/` runs them by `run_task.rs`, and
//! `call_counts.rs` counts their runs.

pub mod batch;
mod bind;
mod bound_fold;
pub mod cache;
pub mod call_counter;
pub mod call_counts;
mod chunk_offsets;
mod extents;
mod fuse;
pub mod make;
pub(crate) mod order;
pub(crate) mod proof_cache;
mod run_task;
mod staging_ring;
pub(crate) mod store_choice;
mod written_once;

use std::sync::{Arc, Mutex};

use nvcoll_core::limits::staging_bytes;
use nvcoll_core::verify::Verified;

use crate::call::description::DESCRIPTION_WORDS;
use crate::call::Call;
use crate::program::call_counter::CallCounter;
use crate::program::store_choice::StoreChoice;
use bound_fold::{BoundFold, ViewAddress};
use order::StepOrder;

pub(crate) use chunk_offsets::Piece;
pub use run_task::Workspace;
pub(crate) use staging_ring::{Slot, StagingRing};

/// A step of a queue.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    first_fold: u32,
    folds: u32,
    /// The chunks that it writes.
    pub(crate) chunks: std::ops::Range<u32>,
}

/// A proved schedule, bound to dtype, op, counts, tile and instruction set.
#[derive(Debug)]
pub struct Program {
    call: Call,
    pub(crate) fingerprint: [u64; 3],
    /// What a record of the call does not say.
    pub(crate) description: Option<Box<[u64; DESCRIPTION_WORDS]>>,
    /// For each rank, the bytes of its input and of its output.
    pub(crate) user_bytes: Vec<[usize; 2]>,
    pub(crate) tasks: Vec<Task>,
    folds: Vec<BoundFold>,
    addresses: Vec<ViewAddress>,
    /// The rank whose scalar scales the source at each address; `None` if it is not scaled.
    scalar_of: Vec<Option<u32>>,
    pub(crate) order: StepOrder,
    /// The order with early steps, in which a small call runs that is no part of a batch.
    early_order: Option<StepOrder>,
    /// Whether what such a call stages fits the stamp lines.
    pub(crate) is_inline: bool,
    /// Whether some step scales a source by the scalar of its rank.
    pub(crate) is_scaled: bool,
    /// The tasks of each connected component, in order. It is empty if the program stages or if its folds are fused.
    pub(crate) components: Vec<Vec<u32>>,
    /// The folds of a small call, which replace the components.
    fused: Vec<BoundFold>,
    pub(crate) tiles: u32,
    /// Elements of a chunk in one tile; `tile_bytes` is their size.
    tile_count: usize,
    tile_bytes: usize,
    /// The longest slice of a chunk in one tile, if calls of this schedule can be coalesced.
    pub(crate) slice_bytes: Option<usize>,
    /// Chunks of the rank that stages the most.
    pub(crate) staged_chunks: usize,
    /// For each byte that a rank stages, the bytes that go through its caches: see `staging_ring.rs`.
    pub(crate) cached_bytes: usize,
    /// The distance between two of them, in bytes: as packed as the tiles of the call allow, and at most.
    pub(crate) spacing_bytes: usize,
    pub(crate) most_spacing_bytes: usize,
    scratch_bytes: usize,
    buffer_bytes: usize,
    /// The choice between plain and streaming stores; `None` if every call stores plainly.
    pub(crate) stores: Option<Mutex<StoreChoice>>,
    widest: usize,
    /// The count of its runs; `None` for a program of some ranks of a node.
    pub(crate) counter: Option<Arc<CallCounter>>,
}

impl Program {
    /// Returns the call.
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// Counts a run by all ranks of the node that made the program.
    #[inline]
    pub fn count(&self) {
        self.counter.iter().for_each(|counter| counter.count());
    }

    /// Returns the proof.
    pub fn verified(&self) -> &Verified {
        self.order.verified()
    }

    /// Says whether a call that is no part of a batch runs in an order with early steps.
    #[inline]
    pub(crate) fn has_early_order(&self) -> bool {
        self.early_order.is_some()
    }

    /// Returns the name of the algorithm that it runs: what `auto` chose, if the call says `auto`.
    pub fn algorithm(&self) -> &str {
        &self.verified().schedule().algorithm
    }

    /// Returns the number of ranks.
    pub fn world_size(&self) -> u32 {
        self.verified().schedule().world_size
    }

    /// Returns the number of tiles.
    pub fn tiles(&self) -> u32 {
        self.tiles
    }

    /// Returns the number of pieces that workers claim: tiles of components, or one for all fused folds.
    pub(crate) fn pieces(&self) -> u64 {
        self.components.len() as u64 * u64::from(self.tiles) + u64::from(!self.fused.is_empty())
    }

    /// Returns how many steps the longest queue takes in all tiles.
    pub(crate) fn steps_of_longest_queue(&self) -> u64 {
        let longest = self.order.queues.iter().flatten().map(Vec::len).max().unwrap_or(0);
        longest as u64 * u64::from(self.tiles)
    }

    /// Returns the bytes of staging that a rank needs: the whole staging, or 0.
    pub fn staging_bytes(&self) -> usize {
        if self.staged_chunks > 0 {
            staging_bytes(self.world_size())
        } else {
            0
        }
    }

    /// Returns the bytes of scratch that a rank needs.
    pub fn scratch_bytes(&self) -> usize {
        self.scratch_bytes
    }

    /// Returns the sum over all ranks of the longer buffer, in bytes.
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use nvcoll_core::algorithm::build;
    use nvcoll_core::collective::ALL_GATHER;
    use nvcoll_core::counts::Counts;
    use nvcoll_core::schedule::Aliasing;
    use nvcoll_core::verify::verify;

    use super::*;
    use crate::auto::work_split::WorkSplit;
    use crate::kernel::Isa;

    /// Binds the mapped schedule of a call by an algorithm without parameters, as a caller does that drives all ranks.
    pub(super) fn bound(call: Call, world_size: u32, workers: usize) -> Program {
        let roles = call.roles(world_size);
        let verified = verify(build(call.collective, &call.algorithm, roles, call.aliasing).unwrap()).unwrap();
        let tile_count = WorkSplit::ByTile.tile_count(verified.schedule(), &call, workers);
        Program::bind(&verified, call, tile_count, Isa::detect()).unwrap()
    }

    /// Returns the number of destinations of each fold of a large all_gather of four ranks by `nvswitch`.
    fn destinations(aliasing: Aliasing) -> Vec<u32> {
        let (algorithm, counts) = ("nvswitch".into(), Counts::Even(32 << 20));
        let program = bound(Call { algorithm, counts, aliasing, ..Call::without_data(&ALL_GATHER) }, 4, 2);
        assert!(program.folds.iter().all(|fold| fold.n_plain == 0), "no step reads a copy");
        program.folds.iter().map(|fold| fold.n_dst).collect()
    }

    #[test]
    fn in_place_a_copy_leaves_out_the_memory_that_it_reads() {
        assert_eq!(destinations(Aliasing::InPlace), [3; 4]);
        assert_eq!(destinations(Aliasing::Disjoint), [4; 4]);
    }
}

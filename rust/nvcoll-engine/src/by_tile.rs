//! Sharing a program out by tile: one caller drives all ranks, and a worker runs all queues of its own tiles, in the order
//! of the program, and never waits.
//!
//! Tiles of a mapped schedule touch disjoint memory, and program order is a topological order of one tile (the proof says
//! both), so any worker may run any tile at any time. The values that travel through a tile stay in one core's cache, which
//! is why ring and tree run near the memory's speed this way. Workers claim tiles one after the other, so that a late or
//! slow worker takes fewer.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::program::{Program, Workspace};

/// The tiles of one call that are still to be claimed.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    next: AtomicU32,
    is_stopped: AtomicBool,
}

impl Claims {
    fn claim(&self, tiles: u32) -> Option<u32> {
        if self.is_stopped.load(Ordering::Relaxed) {
            return None;
        }
        // Relaxed: a claim orders nothing; results are published when the worker leaves the pool's job.
        Some(self.next.fetch_add(1, Ordering::Relaxed)).filter(|&tile| tile < tiles)
    }

    /// Lets workers finish the tile they are at, and no other.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn was_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }
}

/// Runs tiles until none is left; `between` is called after each.
///
/// # Safety
/// What [`Program::run_task`] demands of `bases`, `scalars` and `workspace`; the program is mapped; all workers of the call
/// share `claims`, and nobody else touches the buffers.
pub(crate) unsafe fn run(
    program: &Program,
    bases: &[*mut u8],
    scalars: &[f64],
    workspace: &mut Workspace,
    claims: &Claims,
    mut between: impl FnMut(),
) {
    while let Some(tile) = claims.claim(program.tiles) {
        for task in 0..program.tasks.len() as u32 {
            // SAFETY: earlier tasks of the tile are done, and other tiles touch other memory; the rest is the caller's.
            unsafe { program.run_task(task, tile, 0, bases, scalars, workspace) };
        }
        between();
    }
}

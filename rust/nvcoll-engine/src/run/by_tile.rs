//! Running by tile: one caller drives all ranks. A worker runs all steps of its pieces in the order of the program, and never waits.
//!
//! ```text
//! piece     component 0 tile 0, component 0 tile 1, …  component 1 tile 0, …    a slice of every buffer that the component touches
//! claims    [ worker 0      ][ worker 1      ][ 0    ][ 1   ][ 0 ][1][0][1]
//! ```
//!
//! Tiles and components of a mapped schedule touch disjoint memory, and program order is a topological order of one tile (the proof
//! says both). So any worker may run any piece at any time. The values of a piece stay in one core's cache, so ring and tree run near
//! the memory's speed. A worker claims a share of the remaining pieces, at least one: long runs of neighbouring slices at first, which
//! suits the prefetchers, and single pieces in the end, so that a late or slow worker takes less. Source: guided self-scheduling,
//! Polychronopoulos and Kuck 1987.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use crate::memory::buffers::Buffers;
use crate::program::{Program, Slot, Workspace};

/// The pieces of one call that workers can still claim.
#[derive(Debug)]
pub(crate) struct Claims {
    next: AtomicU64,
    pieces: u64,
    workers: u64,
    is_stopped: AtomicBool,
}

impl Claims {
    /// Offers all pieces of some programs to `workers`.
    pub(crate) fn new(programs: &[Arc<Program>], workers: usize) -> Self {
        let pieces = programs.iter().map(|program| program.pieces()).sum();
        Self { next: AtomicU64::new(0), pieces, workers: workers as u64, is_stopped: AtomicBool::new(false) }
    }

    pub(crate) fn pieces(&self) -> u64 {
        self.pieces
    }

    fn claim(&self) -> Option<Range<u64>> {
        let share = |next: u64| ((self.pieces - next) / (2 * self.workers)).max(1);
        let claim = |next: u64| (next < self.pieces).then(|| next + share(next));
        // Relaxed: a claim orders nothing; results are published when the worker leaves the pool's job.
        let next = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim).ok()?;
        Some(next..next + share(next))
    }

    /// Stops the claims: workers finish their current piece and claim no other.
    fn stop(&self) {
        // Relaxed: the flag carries nothing; a worker that misses it runs one more piece.
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn was_stopped(&self) -> bool {
        // Relaxed: during the job as in `stop`; after it, the Acquire in `Door::is_empty` orders what helpers stored.
        self.is_stopped.load(Ordering::Relaxed)
    }
}

/// Runs pieces until none is left or `goes_on` returns false, which stops the other workers too. It is asked before
/// each piece.
///
/// # Safety
/// What [`Program::run_task`] demands of `buffers` and `workspace`; the program is mapped; all workers of the call
/// share `claims`, and nobody else touches the buffers, one for each program and rank.
pub(crate) unsafe fn run(
    programs: &[Arc<Program>],
    buffers: &[Buffers],
    workspace: &mut Workspace,
    claims: &Claims,
    mut goes_on: impl FnMut() -> bool,
) {
    let ranks = buffers.len() / programs.len();
    // Claims grow, so a worker comes by every program once.
    let (mut at, mut before) = (0, 0);
    while let Some(claimed) = claims.claim() {
        for piece in claimed {
            if claims.was_stopped() || !goes_on() {
                return claims.stop();
            }
            while piece - before >= programs[at].pieces() {
                (at, before) = (at + 1, before + programs[at].pieces());
            }
            let (program, buffers) = (&programs[at], &buffers[at * ranks..(at + 1) * ranks]);
            // SAFETY: `run` demands it of the buffers and the workspace; the piece was claimed by this worker alone.
            unsafe { run_nth(program, piece - before, buffers, workspace) };
        }
    }
}

/// Runs all pieces on the calling thread, and says whether all were run. It stops when `goes_on`, asked between
/// pieces, returns false.
///
/// # Safety
/// As [`run`].
pub(crate) unsafe fn run_alone(
    program: &Program,
    buffers: &[Buffers],
    workspace: &mut Workspace,
    mut goes_on: impl FnMut() -> bool,
) -> bool {
    // SAFETY: `run` demands it of the buffers and the workspace; this is the only worker.
    unsafe { program.run_fused(buffers, workspace) };
    for component in 0..program.components.len() {
        for tile in 0..program.tiles {
            if component + tile as usize > 0 && !goes_on() {
                return false;
            }
            // SAFETY: as for the fused folds: this is the only worker, and runs piece after piece.
            unsafe { run_piece(program, component, tile, buffers, workspace) };
        }
    }
    true
}

/// Runs a piece by its number.
///
/// # Safety
/// As [`run`], for a piece below [`Program::pieces`] that no other worker runs.
unsafe fn run_nth(program: &Program, piece: u64, buffers: &[Buffers], workspace: &mut Workspace) {
    let (component, tile) = (piece / u64::from(program.tiles), piece % u64::from(program.tiles));
    // SAFETY: the piece is this worker's alone, as demanded; a program without components has one piece, its fused folds.
    unsafe {
        if program.components.is_empty() {
            program.run_fused(buffers, workspace)
        } else {
            run_piece(program, component as usize, tile as u32, buffers, workspace)
        }
    }
}

/// Runs one tile of one connected component.
///
/// # Safety
/// As [`run`], for a tile of a component that no other worker runs.
#[inline]
unsafe fn run_piece(program: &Program, component: usize, tile: u32, buffers: &[Buffers], workspace: &mut Workspace) {
    for &task in &program.components[component] {
        // SAFETY: earlier tasks of the piece are done, and other pieces touch other memory (`Verified`); buffers and workspace are
        // as this function demands.
        unsafe { program.run_task(task, tile, Slot::NONE, buffers, workspace) };
    }
}

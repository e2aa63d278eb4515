//! How the folds of a task run: base pointers of a call and offsets of a tile give the arguments of one kernel.

use super::bound_fold::{BoundFold, ViewAddress};
use super::store_choice::Streaming;
use super::{Piece, Program, Slot};
use crate::auto::work_split::wants_help;
use crate::kernel::Args;
use crate::memory::buffers::Buffers;

/// Memory of one worker for the pointers and scalars of a fold.
#[derive(Debug, Default)]
pub struct Workspace {
    pointers: Vec<*mut u8>,
    scalars: Vec<f64>,
    /// The stores that bypass the caches.
    streaming: Streaming,
}

// SAFETY: the pointers are leftovers of the last fold and are overwritten before they are used again.
unsafe impl Send for Workspace {}

impl Workspace {
    /// Makes room for the folds of a program. It allocates only if all earlier programs were narrower.
    #[inline]
    pub fn fit(&mut self, program: &Program, streaming: Streaming) {
        self.streaming = streaming;
        if self.pointers.len() < program.widest {
            self.pointers.resize(program.widest, std::ptr::null_mut());
            self.scalars.resize(program.widest, 1.0);
        }
    }
}

impl Program {
    /// Runs the fused folds, if there are any.
    ///
    /// # Safety
    /// As [`Program::run_task`], for all ranks.
    #[inline(always)]
    pub(crate) unsafe fn run_fused(&self, buffers: &[Buffers], workspace: &mut Workspace) {
        for fold in &self.fused {
            // SAFETY: this function demands what `run_task` does for all ranks; fused folds wait for nothing.
            unsafe { self.run_fold(fold, 0, Slot::NONE, buffers, workspace) };
        }
    }

    /// Runs one tile of one task, in a slot of staging.
    ///
    /// # Safety
    /// `buffers` has an entry per rank. The buffers of the ranks in the task have the lengths of the call. The waits of the task
    /// are over. `workspace` fits the program.
    // Measured: left to the compiler, a call here costs a small plan one nanosecond of fifteen.
    #[inline(always)]
    pub(crate) unsafe fn run_task(
        &self,
        task: u32,
        tile: u32,
        slot: Slot,
        buffers: &[Buffers],
        workspace: &mut Workspace,
    ) {
        let task = &self.tasks[task as usize];
        for fold in &self.folds[task.first_fold as usize..(task.first_fold + task.folds) as usize] {
            // SAFETY: the fold belongs to this task, and the caller promised the same of the task.
            unsafe { self.run_fold(fold, tile, slot, buffers, workspace) };
        }
    }

    /// Runs the fold of a task on one chunk, for the elements of a piece.
    ///
    /// # Safety
    /// As [`Program::run_task`]; the program can be coalesced, the piece is of its call, and no other piece has its range of
    /// staging.
    pub(crate) unsafe fn run_piece(
        &self,
        task: u32,
        chunk: u32,
        piece: &Piece,
        slot: Slot,
        buffers: &[Buffers],
        workspace: &mut Workspace,
    ) {
        let task = &self.tasks[task as usize];
        let folds = &self.folds[task.first_fold as usize..(task.first_fold + task.folds) as usize];
        let Some(fold) = folds.iter().find(|fold| fold.chunk == chunk) else {
            return; // a copy onto itself
        };
        let begins = piece.start * self.call.dtype.bytes();
        let offset = |address: &ViewAddress| match address.is_staging {
            true => slot.chunk(address.offset) + piece.offset_bytes,
            false => begins,
        };
        // SAFETY: the caller promised it of the task and of the piece. There is one part, so a piece has the same offset in user
        // buffers as in its call.
        unsafe { self.run_fold_at(fold, piece.count, offset, buffers, workspace) };
    }

    /// Runs one tile of one fold, in a slot of staging.
    ///
    /// # Safety
    /// As [`Program::run_task`], for the task that the fold is of.
    #[inline(always)]
    unsafe fn run_fold(&self, fold: &BoundFold, tile: u32, slot: Slot, buffers: &[Buffers], workspace: &mut Workspace) {
        let (elements_before, bytes_before) = (tile as usize * self.tile_count, tile as usize * self.tile_bytes);
        if elements_before >= fold.count {
            return;
        }
        let count = (fold.count - elements_before).min(self.tile_count);
        let offset = |address: &ViewAddress| match address.is_staging {
            true => slot.chunk(address.offset),
            false => address.offset + bytes_before,
        };
        // SAFETY: the offset is that of the tile, and the fold has `count` elements left there; the caller promised the rest.
        unsafe { self.run_fold_at(fold, count, offset, buffers, workspace) };
    }

    /// Runs `count` elements of one fold, with the given `offset` of each address.
    ///
    /// # Safety
    /// As [`Program::run_task`], for the task that the fold is of; every place has `count` elements from its offset on, and the
    /// offset of a destination is that of no other fold that runs now.
    #[inline(always)]
    unsafe fn run_fold_at(
        &self,
        fold: &BoundFold,
        count: usize,
        offset: impl Fn(&ViewAddress) -> usize,
        buffers: &[Buffers],
        workspace: &mut Workspace,
    ) {
        let (n_src, n_dst) = (fold.n_src as usize, fold.n_dst as usize);
        let addresses = &self.addresses[fold.addresses()];
        for (pointer, address) in workspace.pointers.iter_mut().zip(addresses) {
            // SAFETY: addresses are of ranks of this program, and each has its buffers.
            let base = unsafe { Buffers::at(buffers, address.base) };
            *pointer = base.wrapping_add(offset(address));
        }
        if fold.is_scaled {
            let of = &self.scalar_of[fold.first_address as usize..fold.first_address as usize + n_src];
            for (scalar, rank) in workspace.scalars.iter_mut().zip(of) {
                *scalar = rank.map_or(1.0, |rank| buffers[rank as usize].scalar);
            }
        }
        let args = Args {
            src: workspace.pointers.as_ptr().cast(),
            n_src,
            // SAFETY: the workspace has room for n_src + n_dst pointers.
            dst: unsafe { workspace.pointers.as_ptr().add(n_src).cast() },
            n_dst,
            count,
            scalars: workspace.scalars.as_ptr(),
            divisor: self.world_size(),
            plain: fold.n_kept(workspace.streaming),
            is_far: wants_help(self.buffer_bytes),
        };
        // SAFETY: `Verified` says that views are in bounds and that no other step writes them now, because the task's waits are
        // over; the buffers are as long as the call says, as `run_task` demands; `Program::bind` checked the instruction set.
        unsafe { fold.kernel.run(&args) };
    }
}

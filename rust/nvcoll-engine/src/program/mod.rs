//! Programs: a proved schedule with all values resolved that do not depend on the caller's addresses. Running one allocates nothing.
//!
//! ```text
//! step      waits, folds                            a step of w chunks is w folds
//! fold      kernel, element count, addresses        an address is a base pointer and an offset
//! offset    chunk + tile x tile bytes               a tile is the same slice of every chunk
//!           staging: chunk + bank of the call + slot of the tile
//! piece     the elements of one call in one chunk, where several calls are coalesced (`batch/coalesced.rs`)
//! ```
//!
//! `make.rs` makes programs, `cache.rs` keeps them, `run/` runs them. `tallies.rs` counts their runs.

pub mod batch;
pub mod cache;
mod chunk_offsets;
mod extents;
mod fuse;
pub mod make;
pub(crate) mod proof_cache;
pub(crate) mod store_choice;
pub mod tallies;
pub mod tally;
mod written_once;

use std::sync::{Arc, Mutex};

use nvcoll_core::algorithm::Order;
use nvcoll_core::partition::{Partition, GRAIN};
use nvcoll_core::schedule::{Aliasing, Buffer, Dependency, Event, Path, Schedule, Step, View};
use nvcoll_core::verify::Verified;

use crate::auto::components::connected_components;
use crate::auto::work_split::{may_stream, wants_help};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::kernel::{Args, Arm, Isa, Kernel};
use crate::memory::buffers::Buffers;
use crate::program::store_choice::StoreChoice;
use crate::program::tally::Tally;
use chunk_offsets::ChunkOffsets;
pub(crate) use chunk_offsets::Piece;
use extents::Extents;
use nvcoll_core::limits::{check_runnable, slot_bytes, staging_bytes};
use written_once::WrittenOnce;

/// The address of a view, given the buffers of all ranks, the tile and the call.
#[derive(Debug, Clone, Copy)]
struct ViewAddress {
    /// Names the base pointer, as [`Buffers::place`] does.
    base: u32,
    is_staging: bool,
    offset: usize,
}

#[derive(Debug, Clone, Copy)]
struct BoundFold {
    kernel: Kernel,
    first_address: u32,
    n_src: u32,
    n_dst: u32,
    is_scaled: bool,
    /// Whether no other step touches a destination, so that stores may bypass the caches.
    is_written_once: bool,
    /// The chunk that the fold writes. If the program can be coalesced, it is the chunk of the sources too.
    chunk: u32,
    count: usize,
}

impl BoundFold {
    /// Returns the range of its sources and destinations in the list of addresses.
    fn addresses(&self) -> std::ops::Range<usize> {
        let first = self.first_address as usize;
        first..first + (self.n_src + self.n_dst) as usize
    }
}

/// A condition that a step waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wait {
    /// The rank has entered the call.
    Enter { rank: u32 },
    /// A queue of the rank has done `done` steps of tile `tile - lag`; it has `length` steps per tile.
    Steps { rank: u32, queue: u32, length: u32, done: u32, lag: u32 },
}

/// A step of a queue.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    first_fold: u32,
    folds: u32,
    /// The chunks that it writes.
    pub(crate) chunks: std::ops::Range<u32>,
    pub(crate) waits: Vec<Wait>,
    /// The ranks that have a step which waits for this one.
    pub(crate) dependents: Vec<u32>,
    /// The ranks of which only the leave waits for it, in the last tile.
    pub(crate) leavers: Vec<u32>,
}

/// A proved schedule, bound to dtype, op, counts, tile and instruction set.
#[derive(Debug)]
pub struct Program {
    call: Call,
    pub(crate) fingerprint: [u64; 3],
    /// For each rank, the bytes of its input and of its output.
    pub(crate) user_bytes: Vec<[usize; 2]>,
    verified: Verified,
    pub(crate) tasks: Vec<Task>,
    folds: Vec<BoundFold>,
    addresses: Vec<ViewAddress>,
    /// The rank whose scalar scales the source at each address; `None` if it is not scaled.
    scalar_of: Vec<Option<u32>>,
    /// The tasks of each queue of each rank, in order.
    pub(crate) queues: Vec<Vec<Vec<u32>>>,
    /// The waits of each rank before it leaves.
    pub(crate) leave: Vec<Vec<Wait>>,
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
    /// Slots of a bank of staging, at least one. Calls alternate between two banks, tiles between slots.
    pub(crate) slots: u32,
    slot_bytes: usize,
    is_staged: bool,
    scratch_bytes: usize,
    buffer_bytes: usize,
    /// The choice between plain and streaming stores; `None` if every call stores plainly.
    pub(crate) stores: Option<Mutex<StoreChoice>>,
    widest: usize,
    /// The count of its runs; `None` for a program of some ranks of a node.
    pub(crate) tally: Option<Arc<Tally>>,
}

/// A slot of staging, as a number over both banks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot(u32);

impl Slot {
    /// The slot of programs that stage nothing.
    pub(crate) const NONE: Slot = Slot(0);

    /// Returns the slot of a tile of a call, in banks of `slots` slots.
    pub(crate) fn of(call_number: u32, tile: u32, slots: u32) -> Self {
        Self(slots * (call_number & 1) + tile % slots)
    }
}

/// Memory of one worker for the pointers and scalars of a fold.
#[derive(Debug, Default)]
pub struct Workspace {
    pointers: Vec<*mut u8>,
    scalars: Vec<f64>,
    /// Whether destinations that are only written bypass the caches.
    is_streaming: bool,
}

// SAFETY: the pointers are leftovers of the last fold and are overwritten before they are used again.
unsafe impl Send for Workspace {}

impl Workspace {
    /// Makes room for the folds of a program. It allocates only if all earlier programs were narrower.
    #[inline]
    pub fn fit(&mut self, program: &Program, is_streaming: bool) {
        self.is_streaming = is_streaming;
        if self.pointers.len() < program.widest {
            self.pointers.resize(program.widest, std::ptr::null_mut());
            self.scalars.resize(program.widest, 1.0);
        }
    }
}

/// Refuses a schedule that was built for another kind of call.
pub(crate) fn check_form(schedule: &Schedule, call: &Call) -> Result<()> {
    let form = (schedule.collective, schedule.root, schedule.path, schedule.aliasing);
    if form == (call.collective, call.root, call.path, call.aliasing) {
        return Ok(());
    }
    let proved = schedule.title();
    let wanted = "pass a schedule that was built for such a call";
    Err(Error::Invalid(format!("the schedule is {proved}, but the call is {call}: {wanted}")))
}

impl Program {
    /// Binds a proved schedule.
    ///
    /// # Errors
    /// [`Error::NoIsa`] if this processor lacks the instruction set. [`Error::Invalid`] if the call is not what was proved,
    /// or if there are more than 2^31 steps in a call. [`nvcoll_core::Error::CannotRun`] if a rank has too many queues or
    /// stages too many chunks.
    pub fn bind(verified: &Verified, call: Call, tile_count: usize, isa: Isa) -> Result<Program> {
        isa.check()?;
        let schedule = verified.schedule();
        check_form(schedule, &call)?;
        let (roles, element) = (schedule.roles(), call.dtype.bytes());
        check_runnable(schedule, element)?;
        let partition = Partition::new(call.counts.of_parts(call.collective, roles), schedule.chunks_per_part);
        let extents = Extents::of(schedule, &partition);
        let chunk_offsets =
            ChunkOffsets::of(schedule, &partition, element, slot_bytes(schedule.world_size, schedule.slots));
        let staged_count = chunk_offsets.spacing_bytes.map_or(usize::MAX, |bytes| bytes / element);
        let longest = partition.longest_chunk();
        let slice_bytes = can_be_coalesced(verified).then(|| tile_count.min(staged_count).saturating_mul(element));
        let tile_count = tile_count.min(staged_count).min(longest.next_multiple_of(GRAIN));
        let tile_count = (tile_count / GRAIN * GRAIN).max(GRAIN);
        let tiles = longest.div_ceil(tile_count).max(1);
        let queues = schedule.queues();
        if queues.iter().flatten().any(|queue| queue.len() * tiles >= 1 << 31) {
            return Err(Error::Invalid(format!("{call} takes more than 2^31 steps: use an algorithm with fewer")));
        }
        let user_bytes: Vec<_> = extents.counts().map(|counts| counts.map(|count| count * element)).collect();
        let mut program = Program {
            verified: verified.clone(),
            fingerprint: call.fingerprint(),
            buffer_bytes: user_bytes.iter().map(|[input, output]| input.max(output)).sum(),
            user_bytes,
            tasks: Vec::with_capacity(schedule.steps.len()),
            folds: Vec::new(),
            addresses: Vec::new(),
            scalar_of: Vec::new(),
            leave: schedule.leave.iter().map(|waits| resolve(waits, &queues)).collect(),
            queues: queues.iter().map(|r| r.iter().map(|q| q.iter().map(|&p| p as u32).collect()).collect()).collect(),
            components: if schedule.path == Path::Mapped { connected_components(schedule) } else { Vec::new() },
            fused: Vec::new(),
            tiles: tiles as u32,
            tile_count,
            tile_bytes: tile_count * element,
            slice_bytes,
            slots: schedule.slots.max(1),
            slot_bytes: slot_bytes(schedule.world_size, schedule.slots),
            is_staged: chunk_offsets.spacing_bytes.is_some(),
            scratch_bytes: chunk_offsets.scratch_bytes,
            stores: None,
            widest: 1,
            tally: None,
            call,
        };
        let may_stream = schedule.path == Path::Mapped && may_stream(program.buffer_bytes);
        let written_once = if may_stream { WrittenOnce::of(schedule) } else { WrittenOnce::default() };
        let layout = ScheduleLayout { schedule, partition, extents, chunk_offsets, written_once };
        for step in &schedule.steps {
            program.add_task(step, &layout, &queues, isa);
        }
        program.connect(schedule);
        program.fuse_folds();
        if program.folds.iter().any(|fold| fold.is_written_once) {
            program.stores = Some(Mutex::default());
        }
        Ok(program)
    }

    fn add_task(&mut self, step: &Step, layout: &ScheduleLayout<'_>, queues: &[Vec<Vec<usize>>], isa: Isa) {
        let first_fold = self.folds.len() as u32;
        let n_src = step.src.len();
        let has_contribution = step.src.iter().any(|source| source.contribution.is_some());
        let arm = Arm::of(self.call.op, n_src, step.is_final, has_contribution);
        // A copy onto itself is none.
        let is_there = |dst: &View| arm == Arm::Copy && layout.is_same_memory(&step.src[0].view, dst);
        let written: Vec<&View> = step.dst.iter().filter(|dst| !is_there(dst)).collect();
        for nth in 0..step.dst[0].chunks.len() as u32 {
            let chunk = step.dst[0].chunks.start + nth;
            let count = layout.partition.chunk_count(chunk);
            // A chunk that is empty here may hold elements of this call when it is coalesced with others.
            if (count == 0 && self.slice_bytes.is_none()) || written.is_empty() {
                continue;
            }
            let first_address = self.addresses.len() as u32;
            for view in step.src.iter().map(|source| &source.view).chain(written.iter().copied()) {
                self.addresses.push(layout.address_of(view, nth, self.call.dtype.bytes()));
            }
            self.scalar_of.extend(step.src.iter().map(|source| source.contribution));
            self.scalar_of.extend(std::iter::repeat_n(None, written.len()));
            let kernel = Kernel::select(isa, self.call.dtype, arm);
            let is_scaled = arm == Arm::SumScaled;
            let is_written_once = layout.written_once.holds_all(&written, nth);
            let (n_src, n_dst) = (n_src as u32, written.len() as u32);
            self.folds.push(BoundFold {
                kernel,
                first_address,
                n_src,
                n_dst,
                is_scaled,
                is_written_once,
                chunk,
                count,
            });
            self.widest = self.widest.max((n_src + n_dst) as usize);
        }
        let folds = self.folds.len() as u32 - first_fold;
        self.tasks.push(Task {
            first_fold,
            folds,
            chunks: step.dst[0].chunks.clone(),
            waits: resolve(&step.after, queues),
            dependents: Vec::new(),
            leavers: Vec::new(),
        });
    }

    /// Records at every task the ranks that wait for it.
    fn connect(&mut self, schedule: &Schedule) {
        for step in &schedule.steps {
            for awaited in self.awaited(step.rank, &step.after) {
                self.tasks[awaited].dependents.push(step.rank);
            }
        }
        for (rank, after) in (0..).zip(&schedule.leave) {
            for awaited in self.awaited(rank, after) {
                self.tasks[awaited].leavers.push(rank);
            }
        }
        for Task { dependents, leavers, .. } in &mut self.tasks {
            dependents.sort_unstable();
            dependents.dedup();
            leavers.retain(|rank| !dependents.contains(rank));
        }
    }

    /// Returns the tasks of others that a rank waits for.
    fn awaited(&self, waiting: u32, after: &[Dependency]) -> Vec<usize> {
        let awaited = after.iter().filter_map(|&Dependency { rank, event, .. }| match event {
            Event::Step { queue, index } if rank != waiting => {
                Some(self.queues[rank as usize][queue as usize][index as usize] as usize)
            }
            _ => None,
        });
        awaited.collect()
    }

    /// Returns the call.
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// Counts a run by all ranks of the node that made the program.
    #[inline]
    pub fn count(&self) {
        self.tally.iter().for_each(|tally| tally.count());
    }

    /// Returns the proof.
    pub fn verified(&self) -> &Verified {
        &self.verified
    }

    /// Returns the name of the algorithm that it runs: what `auto` chose, if the call says `auto`.
    pub fn algorithm(&self) -> &str {
        &self.verified.schedule().algorithm
    }

    /// Returns the number of ranks.
    pub fn world_size(&self) -> u32 {
        self.verified.schedule().world_size
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
        let longest = self.queues.iter().flatten().map(Vec::len).max().unwrap_or(0);
        longest as u64 * u64::from(self.tiles)
    }

    /// Returns the bytes of staging that a rank needs: the whole staging, or 0.
    pub fn staging_bytes(&self) -> usize {
        if self.is_staged {
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
    /// `buffers` has an entry per rank; those of the ranks in the task are as long as the call says; what the task waits for
    /// has happened; `workspace` fits the program.
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
            // SAFETY: the fold is of this task, of which the caller promised it.
            unsafe { self.run_fold(fold, tile, slot, buffers, workspace) };
        }
    }

    /// Runs the fold of a task on one chunk, for the elements that a piece has there.
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
        let staging = slot.0 as usize * self.slot_bytes + piece.offset_bytes;
        let begins = piece.start * self.call.dtype.bytes();
        let offset = |address: &ViewAddress| if address.is_staging { address.offset + staging } else { begins };
        // SAFETY: the caller promised it of the task and of the piece's home; there is one part, so that in user buffers a piece lies
        // where it does in its call.
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
        let staging = slot.0 as usize * self.slot_bytes;
        let offset = |address: &ViewAddress| address.offset + if address.is_staging { staging } else { bytes_before };
        // SAFETY: the offset is that of the tile, in which the fold has `count` elements left; the caller promised the rest.
        unsafe { self.run_fold_at(fold, count, offset, buffers, workspace) };
    }

    /// Runs `count` elements of one fold, each place at its `offset`.
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
            plain: if workspace.is_streaming && fold.is_written_once { 0 } else { n_dst },
            is_far: wants_help(self.buffer_bytes),
        };
        // SAFETY: `Verified` says that views are in bounds and that no other step writes them now, because the task's waits are
        // over; the buffers are as long as the call says, as `run_task` demands; `Program::bind` checked the instruction set.
        unsafe { fold.kernel.run(&args) };
    }
}

/// The tables that turn views into addresses.
struct ScheduleLayout<'a> {
    schedule: &'a Schedule,
    partition: Partition,
    extents: Extents,
    chunk_offsets: ChunkOffsets,
    written_once: WrittenOnce,
}

impl ScheduleLayout<'_> {
    fn address_of(&self, view: &View, nth: u32, element: usize) -> ViewAddress {
        let chunk = view.chunks.start + nth;
        let in_user = |side| {
            let start = self.extents.start(view.rank, side, self.partition.part_of(chunk));
            (start + self.partition.range_in_part(chunk).start) * element
        };
        let own = || self.chunk_offsets.offset(view.rank, view.buffer, chunk);
        let (buffer, offset) = match view.buffer {
            Buffer::Input => (0, in_user(0)),
            Buffer::Output => (1, in_user(1)),
            Buffer::Scratch(_) => (2, own()),
            Buffer::Staging(_) => (3, own()),
        };
        ViewAddress {
            base: Buffers::place(view.rank, buffer),
            is_staging: matches!(view.buffer, Buffer::Staging(_)),
            offset,
        }
    }

    fn is_same_memory(&self, a: &View, b: &View) -> bool {
        let is_in_place = self.schedule.aliasing == Aliasing::InPlace;
        a == b || (is_in_place && a.rank == b.rank && a.buffer.is_user() && b.buffer.is_user() && a.chunks == b.chunks)
    }
}

/// Says whether calls of the schedule can be coalesced: every element has the same bits in any chunk, and the
/// contract has one part.
fn can_be_coalesced(verified: &Verified) -> bool {
    let schedule = verified.schedule();
    let has_one_part = schedule.collective.parts(schedule.roles()) == 1;
    let is_plain = |view: &View| view.buffer.is_user() || view.buffer.is_staging();
    let stays = |step: &Step| step.views().all(|view| is_plain(view) && view.chunks == step.dst[0].chunks);
    let is_free = matches!(verified.order(), Order::Rank | Order::None);
    has_one_part && is_free && schedule.steps.iter().all(stays)
}

fn resolve(after: &[Dependency], queues: &[Vec<Vec<usize>>]) -> Vec<Wait> {
    let wait = |d: &Dependency| match d.event {
        Event::Enter => Wait::Enter { rank: d.rank },
        Event::Step { queue, index } => {
            let length = queues[d.rank as usize][queue as usize].len() as u32;
            Wait::Steps { rank: d.rank, queue, length, done: index + 1, lag: d.lag }
        }
    };
    after.iter().map(wait).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use nvcoll_core::algorithm::build;
    use nvcoll_core::collective::ALL_GATHER;
    use nvcoll_core::counts::Counts;
    use nvcoll_core::verify::verify;

    use super::*;
    use crate::auto::work_split::WorkSplit;

    /// Binds the mapped schedule of a call by an algorithm without parameters, as a caller does that drives all ranks.
    pub(super) fn bound(call: Call, world_size: u32, workers: usize) -> Program {
        let roles = call.roles(world_size);
        let verified = verify(build(call.collective, &call.algorithm, roles, call.aliasing).unwrap()).unwrap();
        let tile_count = WorkSplit::ByTile.tile_count(verified.schedule(), &call, workers);
        Program::bind(&verified, call, tile_count, Isa::detect()).unwrap()
    }

    /// Returns, for each fold of a large all_gather of four ranks by `nvswitch`, how many destinations it has.
    fn destinations(aliasing: Aliasing) -> Vec<u32> {
        let (algorithm, counts) = ("nvswitch".into(), Counts::Even(32 << 20));
        let program = bound(Call { algorithm, counts, aliasing, ..Call::without_data(&ALL_GATHER) }, 4, 2);
        assert!(program.folds.iter().all(|fold| fold.is_written_once), "nobody reads what it copies");
        program.folds.iter().map(|fold| fold.n_dst).collect()
    }

    #[test]
    fn in_place_a_copy_leaves_out_the_memory_that_it_reads() {
        assert_eq!(destinations(Aliasing::InPlace), [3; 4]);
        assert_eq!(destinations(Aliasing::Disjoint), [4; 4]);
    }
}

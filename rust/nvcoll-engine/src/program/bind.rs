//! Binding: a proved schedule becomes a program, for one call, tile and instruction set.
//!
//! ```text
//! step   ─▶ task, and a fold for each chunk          a copy onto itself becomes no fold
//! view   ─▶ base pointer, offset                     [`Extents`] in user buffers, [`ChunkOffsets`] in scratch and staging
//! waits  ─▶ queue and number of steps                each task also lists the ranks that wait for it
//! ```

use std::sync::Mutex;

use nvcoll_core::algorithm::Order;
use nvcoll_core::limits::{packed_chunk_bytes, slot_bytes, staged_chunk_bytes};
use nvcoll_core::partition::{Partition, GRAIN};
use nvcoll_core::runnable::check_runnable;
use nvcoll_core::schedule::{Aliasing, Buffer, Path, Schedule, Step, View};
use nvcoll_core::verify::Verified;

use super::bound_fold::{BoundFold, ViewAddress};
use super::chunk_offsets::ChunkOffsets;
use super::extents::Extents;
use super::order::StepOrder;
use super::store_choice::{StoreChoice, Streaming};
use super::written_once::WrittenOnce;
use super::{Program, Task};
use crate::auto::components::connected_components;
use crate::auto::work_split::{may_stream, may_stream_staging};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::kernel::{select, Arm, Isa};
use crate::memory::buffers::Buffers;
use crate::sync::stamp::INLINE_BYTES;

/// The longest buffer of a call whose data travel with the enter, in bytes. Measured on 2 processes: with 8 to 1024 bytes that is as
/// fast as mapped memory or faster, with 4 KiB a quarter slower.
const SMALL_BYTES: usize = 1024;

/// Refuses a schedule that was built for another kind of call.
pub(super) fn check_form(schedule: &Schedule, call: &Call) -> Result<()> {
    let form = (schedule.collective, schedule.root, schedule.path, schedule.aliasing);
    if form == (call.collective, call.root, call.path, call.aliasing) && !schedule.has_early_steps() {
        return Ok(());
    }
    let proved = schedule.title();
    if schedule.has_early_steps() {
        return Err(Error::Invalid(format!("the schedule is {proved}, with early steps: pass the one without, the engine makes this form for small calls")));
    }
    let wanted = "pass a schedule that was built for such a call";
    Err(Error::Invalid(format!("the schedule is {proved}, but the call is {call}: {wanted}")))
}

impl Program {
    /// Binds a proved schedule.
    ///
    /// # Errors
    /// [`Error::NoIsa`] if this processor lacks the instruction set. [`Error::Invalid`] if the proof is of another kind of
    /// call, or if there are more than 2^31 steps in a call. [`nvcoll_core::Error::CannotRun`] if a rank has too many queues or
    /// stages too many chunks.
    pub fn bind(verified: &Verified, call: Call, tile_count: usize, isa: Isa) -> Result<Program> {
        isa.check()?;
        let schedule = verified.schedule();
        check_form(schedule, &call)?;
        let (roles, element) = (schedule.roles(), call.dtype.bytes());
        check_runnable(schedule, element)?;
        let partition = Partition::new(call.counts.of_parts(call.collective, roles), schedule.chunks_per_part);
        let extents = Extents::of(schedule, &partition);
        let chunk_offsets = ChunkOffsets::of(schedule, &partition, element);
        let staged_chunks = chunk_offsets.staged_chunks;
        let most_spacing_bytes =
            staged_chunk_bytes(slot_bytes(schedule.world_size, schedule.slots), staged_chunks.max(1));
        let staged_count = if staged_chunks == 0 { usize::MAX } else { most_spacing_bytes / element };
        let longest = partition.longest_chunk();
        let slice_bytes = can_be_coalesced(verified).then(|| tile_count.min(staged_count).saturating_mul(element));
        let tile_count = tile_count.min(staged_count).min(longest.next_multiple_of(GRAIN));
        let tile_count = (tile_count / GRAIN * GRAIN).max(GRAIN);
        let tiles = longest.div_ceil(tile_count).max(1);
        let order = StepOrder::of(verified);
        if order.queues.iter().flatten().any(|queue| queue.len() * tiles >= 1 << 31) {
            return Err(Error::Invalid(format!("{call} takes more than 2^31 steps: use an algorithm with fewer")));
        }
        let user_bytes: Vec<_> = extents.counts().map(|counts| counts.map(|count| count * element)).collect();
        let fingerprint = call.fingerprint();
        let mut program = Program {
            fingerprint,
            description: call.description(fingerprint[0]).map(Box::new),
            buffer_bytes: user_bytes.iter().map(|[input, output]| input.max(output)).sum(),
            tasks: Vec::with_capacity(schedule.steps.len()),
            folds: Vec::new(),
            addresses: Vec::new(),
            scalar_of: Vec::new(),
            order,
            early_order: None,
            is_inline: false,
            is_scaled: false,
            components: if schedule.path == Path::Mapped { connected_components(schedule) } else { Vec::new() },
            fused: Vec::new(),
            tiles: tiles as u32,
            tile_count,
            tile_bytes: tile_count * element,
            slice_bytes,
            staged_chunks,
            cached_bytes: cached_bytes(schedule, &user_bytes, staged_chunks, longest * element),
            user_bytes,
            spacing_bytes: packed_chunk_bytes(tile_count * element).min(most_spacing_bytes),
            most_spacing_bytes,
            scratch_bytes: chunk_offsets.scratch_bytes,
            stores: None,
            widest: 1,
            counter: None,
            call,
        };
        let written_once =
            if may_stream(program.buffer_bytes) { WrittenOnce::of(schedule) } else { WrittenOnce::default() };
        let layout = ScheduleLayout { schedule, partition, extents, chunk_offsets, written_once };
        for step in &schedule.steps {
            program.add_task(step, &layout, isa);
        }
        program.is_scaled = program.folds.iter().any(|fold| fold.is_scaled);
        program.fuse_folds();
        program.stores = program.store_choice().map(Mutex::new);
        Ok(program)
    }

    /// Says whether the data of a call travel with the enter, if its schedule has a form with early steps.
    pub(super) fn is_small(&self) -> bool {
        self.tiles == 1 && self.staged_chunks > 0 && self.longest_buffer() <= SMALL_BYTES
    }

    /// Lets small calls run in the order of the proved form with early steps.
    ///
    /// # Errors
    /// [`Error::Invalid`] if its steps are not the folds of the program, or the program is not small.
    pub(super) fn add_early_order(&mut self, early: &Verified) -> Result<()> {
        if !self.is_small() || !has_same_folds(self.verified().schedule(), early.schedule()) {
            let title = early.schedule().title();
            return Err(Error::Invalid(format!("the form of {title} with early steps is not of this program")));
        }
        self.early_order = Some(StepOrder::of(early));
        self.is_inline = self.staged_bytes() <= INLINE_BYTES;
        Ok(())
    }

    /// Returns the choice between the kinds of stores; `None` if every call stores plainly.
    fn store_choice(&self) -> Option<StoreChoice> {
        let has_once = self.folds.iter().any(|fold| fold.n_plain + fold.n_staging < fold.n_dst);
        let is_staging = self.staged_chunks > 0 && may_stream_staging(self.buffer_bytes);
        let kinds = [has_once.then_some(Streaming::Outputs), is_staging.then_some(Streaming::Staging)];
        (has_once || is_staging).then(|| StoreChoice::of(kinds.into_iter().flatten()))
    }

    fn add_task(&mut self, step: &Step, layout: &ScheduleLayout<'_>, isa: Isa) {
        let first_fold = self.folds.len() as u32;
        let n_src = step.src.len();
        let has_contribution = step.src.iter().any(|source| source.contribution.is_some());
        let arm = Arm::of(self.call.op, n_src, step.is_final, has_contribution);
        // A copy onto the same memory needs no fold.
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
            let (staged, own): (Vec<&View>, Vec<&View>) = written.iter().partition(|view| view.buffer.is_staging());
            let (once, plain): (Vec<&View>, Vec<&View>) =
                own.into_iter().partition(|view| layout.written_once.holds(view, nth));
            // In the order of `BoundFold::n_kept`.
            let sources = step.src.iter().map(|source| &source.view);
            for view in sources.chain(plain.iter().chain(&staged).chain(&once).copied()) {
                self.addresses.push(layout.address_of(view, nth, self.call.dtype.bytes()));
            }
            self.scalar_of.extend(step.src.iter().map(|source| source.contribution));
            self.scalar_of.extend(std::iter::repeat_n(None, written.len()));
            let kernel = select(isa, self.call.dtype, arm);
            let is_scaled = arm == Arm::SumScaled;
            let [n_src, n_dst, n_plain, n_staging] =
                [n_src, written.len(), plain.len(), staged.len()].map(|number| number as u32);
            self.folds.push(BoundFold {
                kernel,
                first_address,
                n_src,
                n_dst,
                is_scaled,
                n_plain,
                n_staging,
                chunk,
                count,
            });
            self.widest = self.widest.max((n_src + n_dst) as usize);
        }
        let folds = self.folds.len() as u32 - first_fold;
        self.tasks.push(Task { first_fold, folds, chunks: step.dst[0].chunks.clone() });
    }

    /// Returns the bytes of a place that a call of one tile uses.
    fn staged_bytes(&self) -> usize {
        let end = |fold: &BoundFold| {
            let bytes = fold.count * self.call.dtype.bytes();
            let staged = self.addresses[fold.addresses()].iter().filter(|address| address.is_staging);
            staged.map(move |address| address.offset * self.spacing_bytes + bytes).max()
        };
        self.folds.iter().filter_map(end).max().unwrap_or(0)
    }

    /// Returns the length of the longest buffer, in bytes.
    fn longest_buffer(&self) -> usize {
        self.user_bytes.iter().flatten().copied().max().unwrap_or(0)
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

/// Returns how many bytes a call brings through the caches of a rank, on average, for each byte that it stages: staging that it writes and
/// reads, and the user's.
fn cached_bytes(schedule: &Schedule, user_bytes: &[[usize; 2]], staged_chunks: usize, chunk_bytes: usize) -> usize {
    let is_in_place = schedule.aliasing == Aliasing::InPlace;
    let of_user = |[input, output]: &[usize; 2]| if is_in_place { *input.max(output) } else { input + output };
    let staging = schedule.steps.iter().flat_map(Step::views).filter(|view| view.buffer.is_staging());
    let through = user_bytes.iter().map(of_user).sum::<usize>()
        + staging.map(|view| view.chunks.len()).sum::<usize>() * chunk_bytes;
    let staged = (staged_chunks * chunk_bytes * user_bytes.len()).max(1);
    (through + staged / 2) / staged
}

/// Says whether two schedules have the same steps, apart from their places and waits.
pub(super) fn has_same_folds(a: &Schedule, b: &Schedule) -> bool {
    let frame = |s: &Schedule| (s.collective, s.roles(), s.chunks_per_part, s.path, s.slots, s.aliasing);
    let fold = |step: &Step| (step.rank, step.is_final, step.at_switch);
    let is_same = |(a, b): (&Step, &Step)| fold(a) == fold(b) && a.src == b.src && a.dst == b.dst;
    frame(a) == frame(b) && a.steps.len() == b.steps.len() && a.steps.iter().zip(&b.steps).all(is_same)
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

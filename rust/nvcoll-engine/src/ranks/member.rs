//! Members: one rank of a communicator, which makes its own calls.

mod messaging;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use nvcoll_core::schedule::Path;

use crate::call::{Call, CallPurpose, PositionedCall, SplitKey};
use crate::deadline::{Deadline, UntilDeadline, WaitLimit};
use crate::error::{Error, Result};
use crate::kernel::FloatEnvironment;
use crate::memory::buffers::Buffers;
use crate::memory::heap::HeapBlock;
use crate::memory::originals::OriginalArray;
use crate::memory::world::addresses::Addresses;
use crate::memory::world::{ReachableBlock, World};
use crate::messages::shared_mailbox::SharedMailbox;
use crate::program::batch::{Batch, Pass};
use crate::program::Program;
use crate::ranks::lane::Lane;
use crate::ranks::memberships::{Memberships, RankEnd};
use crate::ranks::node::check_ranks;
use crate::ranks::subset::{subset, SubsetCounts};
use crate::ranks::{shrink, split, words};
use crate::run::by_rank::RankWorker;
use crate::run::fault::{Fault, Moment, Strike};
use crate::run::quiesce::ring_everybody;
use crate::run::report::words_of_call;
use crate::sync::atomic::Ordering;
use crate::sync::single_flight::{HoldsNoLock, Unlocked};
use crate::sync::{Cause, Doorbell, WaitEnd};
use crate::system::process::Process;

const FORKED: Error = Error::Closed("this process was forked off inside a run, and only the parent is a rank");
const ENDED: Error = Error::Closed("the program of this rank has ended, and its communicators with it");
const IN_A_CALL: Error =
    Error::Busy("the communicator is in a call of another thread: a thread at a time, or a communicator for each");

/// How many seconds a rank whose split failed waits for peers that are through, to end the calls of their group. Its own deadline may have
/// passed. Chosen: they are about to come, unless they are stopped.
const GATHERING_S: f64 = 10.0;

/// One rank of a communicator.
#[derive(Debug)]
pub struct Member {
    /// Itself, for the threads that move what it has in flight.
    this: Weak<Self>,
    pub(crate) world: Arc<World>,
    rank: u32,
    /// The communicators of the same rank of the run.
    memberships: Arc<Memberships<Self>>,
    process: Process,
    /// The state of its calls; `None` after the program of the rank has ended.
    calls: Mutex<Option<MemberCalls>>,
    /// The calls that were issued.
    lane: Lane,
    /// Its messages.
    messages: SharedMailbox,
    subsets: SubsetCounts,
    /// The programs of its splits and of the agreements of its groups, after the first.
    programs_of_words: [OnceLock<Arc<Program>>; 2],
}

/// The state that calls reuse, one after the other.
#[derive(Debug)]
struct MemberCalls {
    number: u32,
    rank_worker: RankWorker,
    scratch: Option<ReachableBlock>,
}

impl Member {
    /// Makes the member with this rank of a world. If the rank has already ended, the member starts ended.
    pub(crate) fn join(world: Arc<World>, rank: u32, memberships: Arc<Memberships<Self>>) -> Arc<Self> {
        let calls =
            MemberCalls { number: 0, rank_worker: RankWorker::of_member(world.world_size(), rank), scratch: None };
        _ = world.board(); // made here, since calls allocate nothing
        let (process, calls) = (Process::current(), Mutex::new(Some(calls)));
        let messages = SharedMailbox::new(world.world_size(), rank);
        let member = Arc::new_cyclic(|this| Self {
            this: this.clone(),
            world,
            rank,
            memberships,
            process,
            calls,
            lane: Lane::default(),
            messages,
            subsets: SubsetCounts::default(),
            programs_of_words: [const { OnceLock::new() }; 2],
        });
        if let Some(end) = member.memberships.add(&member) {
            member.end(end);
        }
        member
    }

    /// Returns the rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the ranks of the run that form this communicator, in the order of ranks here.
    pub fn ranks(&self) -> &[u32] {
        self.world.ranks()
    }

    /// Says whether all memory of a rank is in reach of the others: they are threads of this process, or there is one rank.
    #[inline]
    pub fn share_memory(&self) -> bool {
        matches!(self.world.addresses, Addresses::OneSpace)
    }

    /// Says whether the communicator was split off.
    pub fn is_of_group(&self) -> bool {
        self.world.is_group()
    }

    /// Runs this rank's part of a program.
    ///
    /// # Safety
    /// The buffers are as long as the program's call says, aliased as it says, and touched by nobody outside the team until
    /// `run` returns, on this rank and on its peers.
    ///
    /// # Errors
    /// `Mismatch`, `Returned`, `Overlap`, `Aborted`, `Interrupted`, `Timeout`: afterwards every call of the communicator
    /// fails. `Closed` when the rank's program has ended, and in the child of a fork, where no peer is; `Busy` if another
    /// thread is in a call; `NoMemory` before the call was entered.
    pub unsafe fn run(&self, program: &Arc<Program>, buffers: Buffers, deadline: Deadline) -> Result<()> {
        // SAFETY: the caller's promise is the one that `run_on_copies` asks for, and nothing is a copy.
        unsafe { self.run_on_copies(program, None, buffers, &[], deadline, &mut || false) }
    }

    /// Runs this rank's part of a program on copies of some of its arrays. `originals` are all arrays of the call as
    /// the user passed them, which peers compare. It is empty if nothing is a copy. It asks `is_interrupted` while it waits.
    ///
    /// `mapped` is a program of the same call on the mapped path, which the ranks run instead if all offer one.
    ///
    /// # Safety
    /// As [`Member::run`].
    ///
    /// # Errors
    /// As [`Member::run`].
    pub unsafe fn run_on_copies(
        &self,
        program: &Arc<Program>,
        mapped: Option<&Arc<Program>>,
        buffers: Buffers,
        originals: &[OriginalArray],
        deadline: Deadline,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        check_ranks(program, self.world.world_size())?;
        // The data of a small call travel with the enter.
        let mapped = mapped.filter(|_| !program.has_early_order());
        mapped.map_or(Ok(()), |mapped| check_ranks(mapped, self.world.world_size()))?;
        let mut patience = WaitLimit { deadline, is_interrupted };
        let mut calls = self.begin_in_turn(|| program.call().clone().into(), &mut patience)?;
        let calls = calls.as_mut().ok_or(ENDED)?;
        let scratch_bytes = program.scratch_bytes().max(mapped.map_or(0, |mapped| mapped.scratch_bytes()));
        let is_reached = mapped.is_some() || program.call().path == Path::Mapped;
        let scratch = calls.make_room(&self.world, scratch_bytes, is_reached, program.staging_bytes())?;
        let buffers = [Buffers { scratch, ..buffers }];
        let (pass, mapped) = (Pass::of_copies(program, originals), mapped.map(Pass::of_one));
        // SAFETY: the caller promised it of the buffers; scratch is this member's and as long as the programs need; they are
        // of as many ranks as the world.
        unsafe { calls.run(&self.world, pass, mapped, &buffers, &mut patience) }
    }

    /// Runs a call of this member after those that were issued before it, on the thread of this communicator. `call` makes it, and
    /// catches its panics.
    ///
    /// # Errors
    /// [`Error::Closed`] as [`Member::run`]; [`Error::System`] if there can be no thread.
    pub fn issue(&self, call: Box<dyn FnOnce() + Send>) -> Result<()> {
        if !self.process.is_current() {
            return Err(FORKED);
        }
        if self.calls.try_lock().is_ok_and(|calls| calls.is_none()) {
            return Err(ENDED);
        }
        self.lane.push(call)
    }

    /// Says whether calls that were issued are in flight.
    pub(crate) fn is_busy(&self) -> bool {
        self.lane.is_busy()
    }

    /// Has the member depart after the calls in flight.
    pub(crate) fn depart_in_turn(self: &Arc<Self>) -> Result<()> {
        let member = self.clone();
        self.lane.push(Box::new(move || _ = member.depart_if_idle()))
    }

    /// Waits until no issued call is in flight, and ends their thread.
    pub(crate) fn finish_issued(&self, limit: &mut WaitLimit<'_>) -> WaitEnd {
        let end = self.lane.wait_until_empty(limit);
        if end == WaitEnd::Over {
            self.lane.close();
        }
        end
    }

    /// Allocates memory that every rank can reach; `None` if ranks are threads, which reach all memory.
    ///
    /// # Errors
    /// [`Error::NoMemory`]; [`Error::Closed`] in the child of a fork.
    pub fn allocate(&self, bytes: usize) -> Result<Option<HeapBlock>> {
        match self.process.is_current() {
            true => self.world.origin().allocate(bytes),
            false => Err(FORKED),
        }
    }

    /// Says whether every rank can reach `bytes` bytes from `address` on.
    pub fn is_reachable(&self, address: *mut u8, bytes: usize) -> bool {
        self.world.addresses.is_reachable(self.rank, address, bytes)
    }

    /// Says that the results of the last call are in the user's arrays, after [`Member::run_on_copies`] or a batch with
    /// copies. From now on a rank that enters that call late may pass the same memory.
    pub fn results_are_back(&self) {
        // Release: pairs with the Acquire in `RankWorker::see_who_is_gone`.
        self.world.lines[self.rank as usize].notes.has_copies.store(false, Ordering::Release);
    }

    /// Runs this rank's part of a batch, which has the buffers of this rank.
    ///
    /// # Safety
    /// As [`Member::run`], and no call writes a byte that another one touches.
    ///
    /// # Errors
    /// As [`Member::run`].
    pub unsafe fn run_batch(
        &self,
        batch: &mut Batch,
        deadline: Deadline,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        batch.programs().iter().try_for_each(|program| check_ranks(program, self.world.world_size()))?;
        assert_eq!(batch.buffers.len(), batch.len(), "one entry per call");
        let mut patience = WaitLimit { deadline, is_interrupted };
        let group = || Call::of_words(CallPurpose::PathOfGroup).into();
        let mut calls = self.begin_in_turn(group, &mut patience)?;
        let calls = calls.as_mut().ok_or(ENDED)?;
        let is_reached = batch.programs().iter().any(|program| program.call().path == Path::Mapped);
        let scratch = calls.make_room(&self.world, batch.scratch_bytes(), is_reached, batch.staging_bytes())?;
        batch.place_scratch([scratch].into_iter(), 1);
        batch.survey(self.rank);
        for (pass, buffers) in batch.in_passes(1) {
            // SAFETY: the caller promised it of the buffers, and that calls share nothing that one writes; `place_scratch` gave
            // every call scratch of its own; the programs are of as many ranks as the world.
            unsafe { calls.run(&self.world, pass, None, buffers, &mut patience) }?;
        }
        Ok(())
    }

    /// Splits the ranks into groups; returns this rank's member of its group, if it has a color.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a color of 2^31 or more; else as [`Member::run`].
    pub fn split(
        &self,
        color: Option<u32>,
        key: i32,
        deadline: Deadline,
        unlocked: &impl Unlocked,
        is_interrupted: &mut (dyn FnMut() -> bool + Send),
    ) -> Result<Option<Arc<Self>>> {
        if color.is_some_and(|color| color > i32::MAX as u32) {
            return Err(Error::Invalid(format!("found color {}, expected one below 2^31", color.unwrap_or(0))));
        }
        let program = self.program_of_words(CallPurpose::Split, deadline, unlocked)?;
        unlocked.run(|| self.run_split(program, SplitKey { color, key }, WaitLimit { deadline, is_interrupted }))
    }

    /// Makes a communicator of some ranks of this one, in their order. These ranks call it, with the same list and tag, and no others. It is
    /// no call of this communicator.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a list that is none, or without this rank; [`Error::Overdue`] if a rank has not come before the deadline;
    /// [`Error::PeerLost`]; [`Error::Interrupted`]; [`Error::NoMemory`] and [`Error::System`], or [`Error::Aborted`] if a peer had none;
    /// [`Error::Closed`] as [`Member::run`].
    pub fn subset(
        &self,
        ranks: &[u32],
        tag: u32,
        deadline: Deadline,
        unlocked: &impl Unlocked,
        is_interrupted: &mut (dyn FnMut() -> bool + Send),
    ) -> Result<Arc<Self>> {
        if !self.process.is_current() {
            return Err(FORKED);
        }
        if self.world.lines[self.rank as usize].departure.has_ended() {
            return Err(ENDED);
        }
        unlocked.run(|| {
            let mut limit = WaitLimit { deadline, is_interrupted };
            let (world, rank) = subset(&self.world, self.rank, &self.subsets, ranks, tag, &mut limit)?;
            Ok(Self::join(world, rank, self.memberships.clone()))
        })
    }

    /// Says whether all ranks offer to run the calls of a group mapped. Every rank calls it with its own offer.
    ///
    /// # Errors
    /// As [`Member::run`].
    pub fn agree_on_mapped(
        &self,
        is_offered: bool,
        deadline: Deadline,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<bool> {
        let program = self.program_of_words(CallPurpose::PathOfGroup, deadline, &HoldsNoLock)?;
        let (own, mut patience) = ([u64::from(is_offered), 0], WaitLimit { deadline, is_interrupted });
        let mut calls = self.begin_in_turn(|| program.call().clone().into(), &mut patience)?;
        let calls = calls.as_mut().ok_or(ENDED)?;
        // SAFETY: `program_of_words` bound it for this many ranks; a barrier has no steps, so that no buffer is touched.
        unsafe { calls.say(&self.world, program, own, &mut patience) }?;
        let all = words::words(&self.world, program, calls.number);
        Ok(all.is_some_and(|all| all.iter().all(|&[is_offered, _]| is_offered == 1)))
    }

    /// Returns the program of a call without data in which ranks say words.
    fn program_of_words(
        &self,
        purpose: CallPurpose,
        deadline: Deadline,
        unlocked: &impl Unlocked,
    ) -> Result<&Arc<Program>> {
        let place = &self.programs_of_words[usize::from(purpose == CallPurpose::PathOfGroup)];
        if let Some(program) = place.get() {
            return Ok(program);
        }
        let unlocked = UntilDeadline::new(unlocked, deadline);
        let program = words::program(self.world.world_size(), purpose, &unlocked)
            .map_err(|error| unlocked.explain(error, &Call::of_words(purpose), "its schedule was being proved"))?;
        Ok(place.get_or_init(|| program))
    }

    fn run_split(
        &self,
        program: &Arc<Program>,
        key: SplitKey,
        mut patience: WaitLimit<'_>,
    ) -> Result<Option<Arc<Self>>> {
        let mut calls = self.begin_in_turn(|| program.call().clone().into(), &mut patience)?;
        let calls = calls.as_mut().ok_or(ENDED)?;
        // SAFETY: as in `agree_on_mapped`.
        let outcome = unsafe { calls.say(&self.world, program, key.words(), &mut patience) };
        let join = |limit: &mut WaitLimit<'_>| split::join(&self.world, program, calls.number, self.rank, limit);
        let joined = match outcome {
            Ok(()) => join(&mut patience),
            Err(_) => {
                let deadline = Deadline::after(Some(GATHERING_S));
                join(&mut WaitLimit { deadline, is_interrupted: &mut || false })
            }
        };
        let group = match joined {
            Ok(group) => group,
            Err(error) => return Err(outcome.err().unwrap_or(error)),
        };
        let member = group.map(|(world, rank)| Self::join(world, rank, self.memberships.clone()));
        match outcome {
            Ok(()) => Ok(member),
            Err(error) => {
                // Peers that were through would wait for it.
                member.inspect(|member| _ = member.end(RankEnd::Failed));
                Err(error)
            }
        }
    }

    /// Has a fault strike this rank in a call of this communicator, or in a send or receive of it: `calls` after the next. It replaces the
    /// fault asked for before. The fault writes the time and the number of steps to descriptor `told` as it strikes.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the rank is a thread and the fault would strike its process; [`Error::Closed`] and [`Error::Busy`] as
    /// [`Member::run`].
    pub fn arm(&self, is_of_messages: bool, calls: u32, at: Moment, strike: Strike, told: Option<i32>) -> Result<()> {
        if strike.is_of_process() && self.world.origin().longest_quiesce().is_none() {
            return Err(Error::Invalid(
                "the rank is a thread, and this fault would strike the process of all ranks: delay it, let it raise, or \
                 make ranks processes"
                    .to_owned(),
            ));
        }
        let fault = |call| Fault::new(call, at, strike, told);
        if is_of_messages {
            return self.mailbox()?.with(|mailbox| mailbox.arm(calls, fault)).ok_or(ENDED);
        }
        let mut calls_of_rank = self.begin()?;
        let own = calls_of_rank.as_mut().ok_or(ENDED)?;
        own.rank_worker.fault = Some(Box::new(fault(own.number.wrapping_add(1).wrapping_add(calls))));
        Ok(())
    }

    /// Returns the last calls of this rank, newest first, each with its number.
    pub fn recent_calls(&self) -> Vec<(u32, String)> {
        let lines = &self.world.lines[self.rank as usize];
        let recent = lines.record.recent(lines.stamp.last(), || lines.stamp.last());
        recent.iter().map(|(call, record)| (*call, words_of_call(lines, *call, record))).collect()
    }

    /// Returns the member of this rank among those that are left: whose processes run and whose programs have not ended.
    ///
    /// # Errors
    /// [`Error::Overdue`] names ranks that are left and have not called it; [`Error::Interrupted`]; [`Error::NoMemory`] and [`Error::System`], or
    /// [`Error::Aborted`] if a peer had none; [`Error::Closed`] as [`Member::run`].
    pub fn shrink(
        &self,
        deadline: Deadline,
        unlocked: &impl Unlocked,
        is_interrupted: &mut (dyn FnMut() -> bool + Send),
    ) -> Result<Arc<Self>> {
        if !self.process.is_current() {
            return Err(FORKED);
        }
        if self.world.lines[self.rank as usize].departure.has_ended() {
            return Err(ENDED);
        }
        unlocked.run(|| {
            let _alone = self.memberships.begin_to_shrink();
            let (world, rank) = shrink::shrink(&self.world, self.rank, &mut WaitLimit { deadline, is_interrupted })?;
            Ok(Self::join(world, rank, self.memberships.clone()))
        })
    }

    /// Ends every call of this communicator, now and later, on every rank.
    ///
    /// # Errors
    /// [`Error::Closed`] as [`Member::run`].
    pub fn abort(&self) -> Result<()> {
        if !self.process.is_current() {
            return Err(FORKED);
        }
        if self.calls.try_lock().is_ok_and(|calls| calls.is_none()) {
            return Err(ENDED);
        }
        self.raise(Cause::CalledAbort(self.rank));
        Ok(())
    }

    /// Tells peers that the program of the rank has ended. Its sends are still moved.
    pub(crate) fn begin_to_end(&self) {
        self.world.lines[self.rank as usize].departure.publish_end();
        ring_everybody(&self.world);
    }

    /// Tells peers how the rank ended, and says whether it could: a communicator in a call cannot depart.
    pub(crate) fn end(&self, end: RankEnd) -> bool {
        self.world.lines[self.rank as usize].departure.publish_end();
        match end {
            RankEnd::Returned => return self.depart_if_idle(),
            RankEnd::Failed => self.raise(Cause::Failed(self.rank)),
            #[cfg(target_os = "linux")]
            RankEnd::Exited(status) => self.raise(Cause::Exited(self.rank, status)),
            RankEnd::Interrupted => self.raise(Cause::Interrupted(self.rank)),
        }
        true
    }

    /// Says whether a thread is in a call.
    #[cfg(target_os = "linux")]
    pub(crate) fn is_in_a_call(&self) -> bool {
        self.calls.try_lock().is_err() || self.messages.is_in_a_wait()
    }

    /// Closes the member for calls. It returns when no thread is in one.
    pub(crate) fn close(&self) {
        self.lock().take();
        self.messages.close(&self.world, &ENDED);
    }

    /// Wakes this rank if it sleeps in a call, so that it sees that a peer has ended.
    #[cfg(target_os = "linux")]
    pub(crate) fn wake(&self) {
        Doorbell::ring_all(self.world.lines[self.rank as usize].bells());
    }

    pub(crate) fn raise(&self, cause: Cause) {
        self.world.abort().raise(cause);
        ring_everybody(&self.world);
    }

    /// Departs, and says whether no thread was in a call.
    fn depart_if_idle(&self) -> bool {
        let Ok(mut calls) = self.calls.try_lock() else { return false };
        if self.messages.is_in_a_wait() {
            return false;
        }
        self.messages.close(&self.world, &ENDED);
        calls.take().into_iter().for_each(|calls| self.depart(&calls));
        true
    }

    fn depart(&self, calls: &MemberCalls) {
        self.world.lines[self.rank as usize].departure.publish(calls.number);
        ring_everybody(&self.world);
    }

    /// Begins a call after those that were issued before it.
    #[inline]
    fn begin_in_turn(
        &self,
        call: impl Fn() -> PositionedCall,
        limit: &mut WaitLimit<'_>,
    ) -> Result<MutexGuard<'_, Option<MemberCalls>>> {
        if self.lane.is_busy() && self.process.is_current() && !self.lane.is_own_thread() {
            self.wait_for_turn(call, limit)?;
        }
        self.begin()
    }

    /// Waits until no issued call is in flight. A call that gives up here ends the communicator, as one that has begun: its peers may be
    /// in it.
    #[cold]
    fn wait_for_turn(&self, call: impl Fn() -> PositionedCall, limit: &mut WaitLimit<'_>) -> Result<()> {
        let (cause, error) = match self.lane.wait_until_empty(limit) {
            WaitEnd::Over => return Ok(()),
            WaitEnd::Interrupted => (Cause::Interrupted(self.rank), Error::Interrupted),
            WaitEnd::TimedOut => {
                let missing = "calls that this rank issued before were in flight".to_owned();
                (Cause::TimedOut(self.rank), limit.deadline.error(call(), missing))
            }
        };
        self.raise(cause);
        Err(error)
    }

    #[inline]
    fn begin(&self) -> Result<MutexGuard<'_, Option<MemberCalls>>> {
        if !self.process.is_current() {
            return Err(FORKED);
        }
        match self.calls.try_lock() {
            Ok(calls) => Ok(calls),
            // Another thread looks whether the member has ended, as `issue` does: an issued call has its turn.
            Err(_) if self.lane.is_own_thread() => Ok(self.lock()),
            Err(_) => Err(IN_A_CALL),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<MemberCalls>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Member {
    /// Departs, since a peer that makes one more call would wait forever. The child of a fork drops a copy, and leaves the words
    /// alone, which ranks that are processes share with it.
    fn drop(&mut self) {
        if !self.process.is_current() {
            return self.lane.forget();
        }
        self.lane.close();
        self.messages.close(&self.world, &ENDED);
        let calls = self.calls.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        calls.into_iter().for_each(|calls| self.depart(&calls));
    }
}

impl MemberCalls {
    /// Makes the scratch and staging that a program needs, and returns the address of the scratch. Peers must reach it if `is_reached`.
    fn make_room(
        &mut self,
        world: &World,
        scratch_bytes: usize,
        is_reached: bool,
        staging_bytes: usize,
    ) -> Result<*mut u8> {
        let will_do = |scratch: &ReachableBlock| {
            let is_there = || world.addresses.is_reachable(self.rank_worker.rank(), scratch.start(), scratch.bytes());
            scratch.bytes() >= scratch_bytes && (!is_reached || is_there())
        };
        if scratch_bytes > 0 && !self.scratch.as_ref().is_some_and(will_do) {
            let scratch = match is_reached {
                true => ReachableBlock::allocate(world, "scratch", scratch_bytes)?,
                false => ReachableBlock::of_its_own("scratch", scratch_bytes)?,
            };
            self.scratch = Some(scratch);
        }
        world.make_staging(staging_bytes)?;
        Ok(self.scratch.as_ref().map_or(std::ptr::null_mut(), ReachableBlock::start))
    }

    /// Makes the next call, which has no data, and says two words in it.
    ///
    /// # Safety
    /// The program is a barrier of as many ranks as the world has.
    unsafe fn say(
        &mut self,
        world: &World,
        program: &Arc<Program>,
        words: [u64; 2],
        patience: &mut WaitLimit<'_>,
    ) -> Result<()> {
        // SAFETY: a barrier touches no buffer; the program is of as many ranks as the world, as this function demands.
        unsafe { self.run(world, Pass::of_words(program, words), None, &[Buffers::unknown()], patience) }
    }

    /// Makes the next call, or the calls of the next pass.
    ///
    /// # Safety
    /// What [`RankWorker::run`] demands, for the ranks of this member's world.
    unsafe fn run(
        &mut self,
        world: &World,
        pass: Pass<'_>,
        mapped: Option<Pass<'_>>,
        buffers: &[Buffers],
        patience: &mut WaitLimit<'_>,
    ) -> Result<()> {
        if !matches!(world.addresses, Addresses::OneSpace) {
            for pass in [Some(pass), mapped].into_iter().flatten() {
                for (program, own) in pass.programs().iter().zip(buffers) {
                    check_reachable(world, self.rank_worker.rank(), program, own)?;
                }
            }
        }
        let _environment = FloatEnvironment::round_to_nearest();
        self.number = self.number.wrapping_add(1);
        // SAFETY: this function asks its caller for what `RankWorker::run` demands.
        unsafe { self.rank_worker.run(world, pass, mapped, self.number, buffers, patience) }
    }
}

/// Refuses a mapped program if a buffer of rank `own` is memory that its peers cannot reach.
fn check_reachable(world: &World, own: u32, program: &Program, buffers: &Buffers) -> Result<()> {
    if program.call().path != Path::Mapped || program.call().collective.is_without_data() {
        return Ok(());
    }
    let [input, output] = program.user_bytes[own as usize];
    let parts = [(buffers.input, input), (buffers.output, output), (buffers.scratch, program.scratch_bytes())];
    if parts.into_iter().all(|(address, bytes)| world.addresses.is_reachable(own, address, bytes)) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "path is mapped, and the arrays of rank {own} are memory of its own process: leave `path` out"
    )))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn communicators_that_were_dropped_are_forgotten() {
        let memberships = Arc::<Memberships<Member>>::default();
        let kept = Member::join(Arc::new(World::new(1)), 0, memberships.clone());
        for _ in 0..1000 {
            Member::join(Arc::new(World::new(1)), 0, memberships.clone());
        }
        assert_eq!(memberships.end(RankEnd::Returned).len(), 1);
        assert!(memberships.listed() < 16, "{} are listed", memberships.listed());
        drop(kept);
    }
}

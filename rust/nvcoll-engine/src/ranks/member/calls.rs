//! The calls of a member: its part of a program, of a batch, and the agreement on the path of a group.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use nvcoll_core::schedule::Path;

use super::reused::MemberCalls;
use super::{Member, ENDED, FORKED};
use crate::call::{Call, CallPurpose, PositionedCall};
use crate::deadline::{Deadline, UntilDeadline, WaitLimit};
use crate::error::{Error, Result};
use crate::memory::buffers::Buffers;
use crate::memory::originals::OriginalArray;
use crate::program::batch::{Batch, Pass};
use crate::program::Program;
use crate::ranks::node::check_ranks;
use crate::ranks::words;
use crate::run::wait::now;
use crate::sync::atomic::Ordering;
use crate::sync::single_flight::{HoldsNoLock, Unlocked};
use crate::sync::try_lock::TryLockGuard;
use crate::sync::{Cause, WaitEnd};

const IN_A_CALL: Error =
    Error::Busy("the communicator is in a call of another thread: a thread at a time, or a communicator for each");

impl Member {
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
        let mut never = || false;
        let mut limit = WaitLimit::new(deadline, &mut never);
        // SAFETY: the caller's promise is the one that `run_call` asks for, and nothing is a copy.
        now(unsafe { self.run_call(program, None, buffers, &[], &mut limit) })
    }

    /// Runs this rank's part of a program. If some of its arrays are copies, `originals` are all arrays of the call as the user passed
    /// them, which peers compare; else it is empty.
    ///
    /// `mapped` is a program of the same call on the mapped path, which the ranks run instead if all offer one.
    ///
    /// # Safety
    /// As [`Member::run`]; the call is polled to its end.
    ///
    /// # Errors
    /// As [`Member::run`].
    pub async unsafe fn run_call(
        &self,
        program: &Arc<Program>,
        mapped: Option<&Arc<Program>>,
        buffers: Buffers,
        originals: &[OriginalArray],
        limit: &mut WaitLimit<'_>,
    ) -> Result<()> {
        check_ranks(program, self.world.world_size())?;
        // The data of a small call travel with the enter.
        let mapped = mapped.filter(|_| !program.has_early_order());
        mapped.map_or(Ok(()), |mapped| check_ranks(mapped, self.world.world_size()))?;
        let mut calls = match limit.is_of_issued() {
            true => self.begin_issued().await,
            false => self.begin_in_turn(|| program.call().clone().into(), limit)?,
        };
        let calls = calls.as_mut().ok_or(ENDED)?;
        let scratch_bytes = program.scratch_bytes().max(mapped.map_or(0, |mapped| mapped.scratch_bytes()));
        let is_reached = mapped.is_some() || program.call().path == Path::Mapped;
        let scratch = calls.make_room(&self.world, scratch_bytes, is_reached, program.staging_bytes())?;
        let buffers = [Buffers { scratch, ..buffers }];
        let (pass, mapped) = (Pass::of_copies(program, originals), mapped.map(Pass::of_one));
        let number = calls.begin(&self.world, pass, mapped, &buffers)?;
        // SAFETY: the caller promised it of the buffers; scratch is this member's and as long as the programs need; they are
        // made for the ranks of the world.
        unsafe { calls.rank_worker.run(&self.world, pass, mapped, number, &buffers, limit) }.await
    }

    /// Says that the results of the last call are in the user's arrays, after [`Member::run_call`] or a batch with
    /// copies. From now on a rank that enters that call late may pass the same memory.
    pub fn results_are_back(&self) {
        // Release: pairs with the Acquire in `RankWorker::see_who_is_gone`.
        self.world.lines[self.rank as usize].notes.has_copies.store(false, Ordering::Release);
    }

    /// Runs this rank's part of a batch, which has the buffers of this rank.
    ///
    /// # Safety
    /// As [`Member::run_call`], and no call writes a byte that another one touches.
    ///
    /// # Errors
    /// As [`Member::run`].
    pub async unsafe fn run_batch(&self, batch: &mut Batch, limit: &mut WaitLimit<'_>) -> Result<()> {
        batch.programs().iter().try_for_each(|program| check_ranks(program, self.world.world_size()))?;
        assert_eq!(batch.buffers.len(), batch.len(), "one entry per call");
        let mut calls = match limit.is_of_issued() {
            true => self.begin_issued().await,
            false => self.begin_in_turn(|| Call::of_words(CallPurpose::PathOfGroup).into(), limit)?,
        };
        let calls = calls.as_mut().ok_or(ENDED)?;
        let is_reached = batch.programs().iter().any(|program| program.call().path == Path::Mapped);
        let scratch = calls.make_room(&self.world, batch.scratch_bytes(), is_reached, batch.staging_bytes())?;
        batch.place_scratch([scratch].into_iter(), 1);
        batch.survey(self.rank);
        for (pass, buffers) in batch.in_passes(1) {
            let number = calls.begin(&self.world, pass, None, buffers)?;
            // SAFETY: the caller promised it of the buffers, and that calls share nothing that one writes; `place_scratch` gave
            // every call scratch of its own; the programs have the ranks of the world.
            unsafe { calls.rank_worker.run(&self.world, pass, None, number, buffers, limit) }.await?;
        }
        Ok(())
    }

    /// Says whether all ranks offer to run the calls of a group mapped. Every rank calls it with its own offer.
    ///
    /// # Errors
    /// As [`Member::run`].
    pub async fn agree_on_mapped(&self, is_offered: bool, limit: &mut WaitLimit<'_>) -> Result<bool> {
        let program = self.program_of_words(CallPurpose::PathOfGroup, limit.deadline, &HoldsNoLock)?;
        let own = [u64::from(is_offered), 0];
        let mut calls = match limit.is_of_issued() {
            true => self.begin_issued().await,
            false => self.begin_in_turn(|| program.call().clone().into(), limit)?,
        };
        let calls = calls.as_mut().ok_or(ENDED)?;
        // SAFETY: `program_of_words` bound it for this many ranks; a barrier has no steps, so that no buffer is touched.
        unsafe { calls.say(&self.world, program, own, limit) }.await?;
        let all = words::words(&self.world, program, calls.number);
        Ok(all.is_some_and(|all| all.iter().all(|&[is_offered, _]| is_offered == 1)))
    }

    /// Returns the program of a call without data in which ranks say words.
    pub(super) fn program_of_words(
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

    /// Begins an issued call, whose turn has come. A call of another thread may not be over.
    async fn begin_issued(&self) -> TryLockGuard<'_, Option<MemberCalls>> {
        poll_fn(|_| self.calls.take().map_or(Poll::Pending, Poll::Ready)).await
    }

    /// Begins a call of this thread after those that were issued before it.
    #[inline]
    pub(super) fn begin_in_turn(
        &self,
        call: impl Fn() -> PositionedCall,
        limit: &mut WaitLimit<'_>,
    ) -> Result<TryLockGuard<'_, Option<MemberCalls>>> {
        if self.issued.are_in_flight() && self.process.is_current() {
            self.wait_for_turn(call, limit)?;
        }
        self.begin()
    }

    /// Waits until no issued call is in flight. A call that gives up here ends the communicator, as one that has begun: its peers may be
    /// in it.
    #[cold]
    fn wait_for_turn(&self, call: impl Fn() -> PositionedCall, limit: &mut WaitLimit<'_>) -> Result<()> {
        let (cause, error) = match self.issued.wait_until_over(limit) {
            WaitEnd::Over => return Ok(()),
            WaitEnd::Interrupted => (Cause::Interrupted(self.rank), Error::Interrupted),
            WaitEnd::TimedOut => {
                let missing = "calls that this rank issued before were in flight";
                (Cause::TimedOut(self.rank), limit.deadline.error(call(), missing))
            }
        };
        self.raise(cause);
        Err(error)
    }

    #[inline]
    pub(super) fn begin(&self) -> Result<TryLockGuard<'_, Option<MemberCalls>>> {
        match self.process.is_current() {
            true => self.calls.take().ok_or(IN_A_CALL),
            false => Err(FORKED),
        }
    }
}

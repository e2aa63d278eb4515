//! Members: one rank of a communicator, which makes its own calls. This file has who it is and how it ends.
//!
//! | file | subject |
//! |---|---|
//! | [`calls`] | its part of a program or of a group |
//! | [`reused`] | what its calls reuse, one after the other |
//! | [`messaging`] | its sends and receives |
//! | [`in_flight`] | what the progress thread advances of it |
//! | [`groups`] | communicators that are made of this one |
//! | [`faults`] | faults that a test asks for |

mod calls;
mod faults;
mod groups;
mod in_flight;
mod messaging;
mod reused;

use std::future::Future;
use std::sync::{Arc, OnceLock, Weak};
use std::thread::sleep;
use std::time::Duration;

use crate::deadline::WaitLimit;
use crate::error::{Error, Result};
use crate::memory::heap::HeapBlock;
use crate::memory::world::addresses::Addresses;
use crate::memory::world::World;
use crate::messages::shared_mailbox::SharedMailbox;
use crate::program::Program;
use crate::ranks::memberships::{Memberships, RankEnd};
use crate::ranks::subset::SubsetCounts;
use crate::run::issued_calls::IssuedCalls;
use crate::run::quiesce::ring_everybody;
use crate::run::report::words_of_call;
use crate::run::wait::is_asking;
use crate::sync::try_lock::TryLock;
use crate::sync::{Backoff, Cause, Doorbell, WaitEnd};
use crate::system::process::Process;
use reused::MemberCalls;

const FORKED: Error = Error::Closed("this process was forked off inside a run, and only the parent is a rank");
const ENDED: Error = Error::Closed("the program of this rank has ended, and its communicators with it");

/// The pause between two looks whether a thread has left its call, or sends in flight have ended. Chosen: a chunk is copied in less.
pub(crate) const BETWEEN_LOOKS: Duration = Duration::from_micros(50);

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
    calls: TryLock<Option<MemberCalls>>,
    /// The calls that were issued.
    issued: IssuedCalls,
    /// Its messages.
    messages: SharedMailbox,
    subsets: SubsetCounts,
    /// The numbers by which its errors name the ranks, if they have others than here.
    numbers: OnceLock<Vec<u32>>,
    /// The programs of its splits and of the agreements of its groups, after the first.
    programs_of_words: [OnceLock<Arc<Program>>; 2],
}

impl Member {
    /// Makes the member with this rank of a world. If the rank has already ended, the member starts ended.
    pub(crate) fn join(world: Arc<World>, rank: u32, memberships: Arc<Memberships<Self>>) -> Arc<Self> {
        let calls = MemberCalls::new(world.world_size(), rank);
        _ = world.board(); // made here, since calls allocate nothing
        let (process, calls) = (Process::current(), TryLock::new(Some(calls)));
        let messages = SharedMailbox::new(world.world_size(), rank);
        let member = Arc::new_cyclic(|this| Self {
            this: this.clone(),
            world,
            rank,
            memberships,
            process,
            calls,
            issued: IssuedCalls::default(),
            messages,
            subsets: SubsetCounts::default(),
            numbers: OnceLock::new(),
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

    /// Has errors name the ranks by other numbers from now on: the numbers of a larger communicator. The first numbers stay.
    pub fn name_ranks(&self, numbers: Vec<u32>) {
        _ = self.numbers.set(numbers);
    }

    /// Returns the numbers by which errors name the ranks, if they are others than here.
    pub fn names_of_ranks(&self) -> Option<&[u32]> {
        self.numbers.get().map(Vec::as_slice)
    }

    /// Says whether all memory of a rank is in reach of the others: they are threads of this process, or there is one rank.
    #[inline]
    pub fn is_in_one_space(&self) -> bool {
        matches!(self.world.addresses, Addresses::OneSpace)
    }

    /// Says whether the communicator was split off.
    pub fn is_of_group(&self) -> bool {
        self.world.is_group()
    }

    /// Has the progress thread run a call of this member, after those that were issued before it. `call` waits for no thread: its limits
    /// are those of issued calls. It catches its panics.
    ///
    /// # Errors
    /// [`Error::Closed`] as [`Member::run`]; [`Error::System`] if there can be no thread.
    pub fn issue(&self, call: impl Future<Output = ()> + Send + 'static) -> Result<()> {
        self.check_present()?;
        self.run_in_turn(call)
    }

    /// Says whether calls that were issued are in flight.
    pub(crate) fn is_busy(&self) -> bool {
        self.issued.are_in_flight()
    }

    /// Has the member depart after the calls in flight.
    pub(crate) fn depart_in_turn(self: &Arc<Self>) -> Result<()> {
        let member = self.clone();
        self.run_in_turn(async move { _ = member.depart_if_idle() })
    }

    /// Has the progress thread run a call after those in flight.
    fn run_in_turn(&self, call: impl Future<Output = ()> + Send + 'static) -> Result<()> {
        self.memberships.progress.watch(&self.this, || self.issued.push(Box::pin(call)))
    }

    /// Waits until no issued call is in flight.
    pub(crate) fn finish_issued(&self, limit: &mut WaitLimit<'_>) -> WaitEnd {
        self.issued.wait_until_over(limit)
    }

    /// Checks that this process is a rank whose program has not ended.
    fn check_present(&self) -> Result<()> {
        if !self.process.is_current() {
            return Err(FORKED);
        }
        if self.world.lines[self.rank as usize].departure.has_ended() {
            return Err(ENDED);
        }
        Ok(())
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

    /// Returns the last calls of this rank, newest first, each with its number.
    pub fn recent_calls(&self) -> Vec<(u32, String)> {
        let lines = &self.world.lines[self.rank as usize];
        let recent = lines.record.recent(lines.stamp.last(), || lines.stamp.last());
        recent.iter().map(|(call, record)| (*call, words_of_call(lines, *call, record))).collect()
    }

    /// Ends every call of this communicator, now and later, on every rank.
    ///
    /// # Errors
    /// [`Error::Closed`] as [`Member::run`].
    pub fn abort(&self) -> Result<()> {
        self.check_present()?;
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
            RankEnd::Exited(status) => self.raise(Cause::Exited(self.rank, status)),
            RankEnd::Interrupted => self.raise(Cause::Interrupted(self.rank)),
        }
        true
    }

    /// Says whether a thread is in a call.
    pub(crate) fn is_in_a_call(&self) -> bool {
        self.calls.take().is_none() || self.messages.is_in_a_wait()
    }

    /// Closes the member for calls. It returns when no thread is in one.
    pub(crate) fn close(&self) {
        let mut backoff = Backoff::of_rank();
        loop {
            match self.calls.take() {
                Some(mut calls) => {
                    calls.take();
                    break;
                }
                // The handler of a signal runs in a call of this thread, which sees the abort when the handler returns.
                None if is_asking() => break,
                None => backoff.wait(|| sleep(BETWEEN_LOOKS)),
            }
        }
        self.messages.close(&self.world, &ENDED);
    }

    /// Wakes this rank if it sleeps in a call, so that it sees that a peer has ended.
    pub(crate) fn wake(&self) {
        Doorbell::ring_all(self.world.lines[self.rank as usize].bells());
    }

    pub(crate) fn raise(&self, cause: Cause) {
        self.world.abort().raise(cause);
        ring_everybody(&self.world);
    }

    /// Departs, and says whether no thread was in a call.
    fn depart_if_idle(&self) -> bool {
        let Some(mut calls) = self.calls.take() else { return false };
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
}

impl Drop for Member {
    /// Departs, since a peer that makes one more call would wait forever. The child of a fork drops a copy, and leaves the words
    /// alone, which ranks that are processes share with it.
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        self.messages.close(&self.world, &ENDED);
        let calls = self.calls.take().and_then(|mut calls| calls.take());
        calls.into_iter().for_each(|calls| self.depart(&calls));
    }
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

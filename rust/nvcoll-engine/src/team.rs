//! SPMD: every rank is a thread of its own and makes its own calls, in one communicator or in several.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::batch::{Batch, Pass};
use crate::buffers::Buffers;
use crate::by_rank::Crew;
use crate::deadline::{Deadline, Patience};
use crate::error::{Error, Result};
use crate::failing::ring_everybody;
use crate::forks::Process;
use crate::groups::{self, Wish};
use crate::kernel::FloatEnvironment;
use crate::memberships::{End, Memberships};
use crate::memory::Block;
use crate::program::Program;
use crate::sync::Cause;
use crate::world::World;

const FORKED: Error = Error::Closed("this process was forked off inside a run, its peers are threads of the parent");
const ENDED: Error = Error::Closed("the program of this rank has ended, and its communicators with it");
const IN_A_CALL: Error =
    Error::Busy("the communicator is in a call of another thread: a thread at a time, or a communicator for each");
const LEFT_IN_A_CALL: Error =
    Error::Busy("the program returned while a communicator was in a call of another thread: join the thread");

/// What the ranks of one run share.
#[derive(Debug, Clone)]
pub struct Team {
    world: Arc<World>,
    memberships: Arc<[Arc<Memberships>]>,
}

impl Team {
    /// Makes a team of `world_size` ranks that have called nothing yet.
    pub fn new(world_size: u32) -> Self {
        let memberships = (0..world_size).map(|_| Arc::default()).collect();
        Self { world: Arc::new(World::new(world_size)), memberships }
    }

    /// Returns the member with this rank, in the communicator of all ranks. A rank has one there.
    pub fn member(&self, rank: u32) -> Arc<Member> {
        Member::join(self.world.clone(), rank, self.memberships[rank as usize].clone())
    }

    /// Says that `rank` makes no more calls: peers that make one more with it are told so instead of waiting for ever.
    ///
    /// # Errors
    /// [`Error::Busy`] if another thread is in a call of one of its communicators: then the rank has failed.
    pub fn retire(&self, rank: u32) -> Result<()> {
        let members = self.memberships[rank as usize].end(End::Returned);
        let left = members.iter().filter(|member| member.end(End::Returned)).count();
        if left < members.len() {
            self.fail(rank);
            return Err(LEFT_IN_A_CALL);
        }
        Ok(())
    }

    /// Ends every call, now and later, of every communicator that contains `rank`, because its code failed. Returns when no
    /// thread of the rank is in a call.
    pub fn fail(&self, rank: u32) {
        let members = self.memberships[rank as usize].end(End::Failed);
        members.iter().for_each(|member| _ = member.end(End::Failed));
        // Only now: a call of another thread may wait for a peer that waits in another communicator.
        members.iter().for_each(|member| _ = member.lock().take());
    }

    /// Ends every call of the run, now and later, because the user interrupted the program.
    pub fn interrupt(&self) {
        for memberships in self.memberships.iter() {
            memberships.end(End::Interrupted).iter().for_each(|member| _ = member.end(End::Interrupted));
        }
    }
}

/// One rank of a communicator.
#[derive(Debug)]
pub struct Member {
    world: Arc<World>,
    rank: u32,
    /// Those of the same rank of the run.
    memberships: Arc<Memberships>,
    process: Process,
    /// None when the program of the rank has ended.
    calls: Mutex<Option<Calls>>,
}

/// What one call after the other uses.
#[derive(Debug)]
struct Calls {
    number: u32,
    crew: Crew,
    scratch: Option<Block>,
}

impl Member {
    fn join(world: Arc<World>, rank: u32, memberships: Arc<Memberships>) -> Arc<Self> {
        let calls = Calls { number: 0, crew: Crew::of_member(world.world_size(), rank), scratch: None };
        let (process, calls) = (Process::current(), Mutex::new(Some(calls)));
        let member = Arc::new(Self { world, rank, memberships, process, calls });
        if let Some(end) = member.memberships.add(&member) {
            member.end(end);
        }
        member
    }

    /// Returns the rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the ranks of the run that form this communicator, by rank here.
    pub fn ranks(&self) -> &[u32] {
        self.world.ranks()
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
        let mut calls = self.begin()?;
        let calls = calls.as_mut().ok_or(ENDED)?;
        let scratch = calls.make_room(&self.world, program.scratch_bytes(), program.staging_bytes())?;
        let buffers = [Buffers { scratch, ..buffers }];
        // SAFETY: the caller's; scratch is this member's.
        unsafe { calls.run(&self.world, Pass::of_one(program), &buffers, deadline) }
    }

    /// Runs this rank's part of calls that are launched as one: the batch has the buffers of this rank.
    ///
    /// # Safety
    /// As [`Member::run`], and no call writes a byte that another one touches.
    ///
    /// # Errors
    /// As [`Member::run`].
    pub unsafe fn run_batch(&self, batch: &mut Batch, deadline: Deadline) -> Result<()> {
        let mut calls = self.begin()?;
        let calls = calls.as_mut().ok_or(ENDED)?;
        let scratch = calls.make_room(&self.world, batch.scratch_bytes(), batch.staging_bytes())?;
        batch.place_scratch([scratch].into_iter(), 1);
        for (pass, buffers) in batch.in_passes(1) {
            // SAFETY: the caller's; every call of the batch has scratch of its own.
            unsafe { calls.run(&self.world, pass, buffers, deadline) }?;
        }
        Ok(())
    }

    /// Runs the program of a split; returns this rank's member of its group, if it has a color, which is less than 2^31.
    ///
    /// # Errors
    /// As [`Member::run`].
    pub fn split(
        &self,
        program: &Arc<Program>,
        color: Option<u32>,
        key: i32,
        deadline: Deadline,
    ) -> Result<Option<Arc<Self>>> {
        let mut calls = self.begin()?;
        let calls = calls.as_mut().ok_or(ENDED)?;
        // SAFETY: a split has no steps, so that nobody looks where the addresses lead that its wish stands for.
        let outcome =
            unsafe { calls.run(&self.world, Pass::of_one(program), &[Wish { color, key }.into_buffers()], deadline) };
        let group = groups::join(&self.world, program, calls.number, self.rank);
        let member = group.map(|(world, rank)| Self::join(world, rank, self.memberships.clone()));
        match outcome {
            Ok(()) => Ok(member),
            Err(error) => {
                // Peers that were through would wait for it.
                member.inspect(|member| _ = member.end(End::Failed));
                Err(error)
            }
        }
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
        self.raise(Cause::Called(self.rank));
        Ok(())
    }

    /// Tells peers how the rank ended; says whether it could: a communicator in a call cannot depart.
    fn end(&self, end: End) -> bool {
        match end {
            End::Returned => match self.calls.try_lock() {
                Ok(mut calls) => calls.take().into_iter().for_each(|calls| self.depart(&calls)),
                Err(_) => return false,
            },
            End::Failed => self.raise(Cause::Failed(self.rank)),
            End::Interrupted => self.raise(Cause::Interrupted),
        }
        true
    }

    fn raise(&self, cause: Cause) {
        self.world.abort.raise(cause);
        ring_everybody(&self.world);
    }

    fn depart(&self, calls: &Calls) {
        self.world.lines[self.rank as usize].departure.publish(calls.number);
        ring_everybody(&self.world);
    }

    #[inline]
    fn begin(&self) -> Result<MutexGuard<'_, Option<Calls>>> {
        if !self.process.is_current() {
            return Err(FORKED);
        }
        self.calls.try_lock().map_err(|_| IN_A_CALL)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Calls>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Member {
    /// Departs: a peer that makes one more call would wait for ever.
    fn drop(&mut self) {
        let calls = self.lock().take();
        calls.into_iter().for_each(|calls| self.depart(&calls));
    }
}

impl Calls {
    /// Makes the memory that programs need beside their buffers; returns where scratch begins.
    fn make_room(&mut self, world: &World, scratch_bytes: usize, staging_bytes: usize) -> Result<*mut u8> {
        if self.scratch.as_ref().map_or(0, Block::bytes) < scratch_bytes {
            let no_memory = Error::NoMemory { what: "scratch", bytes: scratch_bytes };
            self.scratch = Some(Block::try_zeroed(scratch_bytes).ok_or(no_memory)?);
        }
        world.make_staging(staging_bytes)?;
        Ok(self.scratch.as_ref().map_or(std::ptr::null_mut(), Block::start))
    }

    /// Makes the next call, or the next calls as one.
    ///
    /// # Safety
    /// As [`Member::run`].
    unsafe fn run(&mut self, world: &World, pass: Pass<'_>, buffers: &[Buffers], deadline: Deadline) -> Result<()> {
        let _environment = FloatEnvironment::round_to_nearest();
        self.number = self.number.wrapping_add(1);
        let mut patience = Patience { deadline, is_interrupted: &mut || false };
        // SAFETY: the caller's; scratch is this member's.
        unsafe { self.crew.run(world, pass, self.number, buffers, &mut patience) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use nvcoll_core::collective::{Collective, BARRIER, SPLIT};

    use super::*;
    use crate::call::Call;
    use crate::making::OnTheSpot;
    use crate::node::Node;
    use crate::sharing::Sharing;

    fn program(collective: &'static Collective) -> Arc<Program> {
        let call = Call::without_data(collective);
        Node::new(2, None).unwrap().program_among(2, &call, Sharing::ByRank, None, &OnTheSpot).unwrap()
    }

    /// 30 seconds: a watchdog, not a bar.
    fn watchdog() -> Deadline {
        Deadline::after(Some(30.0))
    }

    fn meet(member: &Member) -> Result<()> {
        let nothing = std::ptr::null_mut();
        // SAFETY: a barrier touches no buffer.
        unsafe { member.run(&program(&BARRIER), Buffers::new(nothing, nothing, 1.0), watchdog()) }
    }

    /// Rank 0 enters its first call, a split, and is overtaken there: what it has not done yet, `Member::split` does later.
    fn enter_split(team: &Team, wish: Wish) {
        let ([fingerprint, small, count], said) = (program(&SPLIT).fingerprint, wish.into_buffers());
        let [input, output] = [said.input, said.output].map(|address| address as usize as u64);
        let lines = &team.world.lines[0];
        lines.record.write(1, &[fingerprint, small, count, input, output, 0, 0, 1]);
        lines.stamp.enter(1);
    }

    #[test]
    fn a_rank_whose_split_fails_while_its_peer_is_through_ends_the_calls_of_their_group() {
        let (team, wish) = (Team::new(2), Wish { color: Some(3), key: 5 });
        let members = [team.member(0), team.member(1)];
        enter_split(&team, wish);
        let group = members[1].split(&program(&SPLIT), wish.color, 4, watchdog()).unwrap().unwrap();
        assert_eq!((group.rank(), group.ranks()), (0, &[1, 0][..]));
        members[1].abort().unwrap();
        let failed = members[0].split(&program(&SPLIT), wish.color, wish.key, watchdog());
        assert_eq!(failed.unwrap_err(), Error::Aborted { rank: 1, cause: "called abort" });
        assert_eq!(meet(&group), Err(Error::Aborted { rank: 1, cause: "failed" }), "rank 0 is rank 1 of the group");
    }

    #[test]
    fn a_rank_that_failed_or_returned_is_known_in_a_group_that_it_joins_afterwards() {
        for end in [End::Failed, End::Returned, End::Interrupted] {
            let team = Team::new(2);
            team.memberships[0].end(end);
            let world = Arc::new(World::of_group(vec![0, 1]));
            let _ended = Member::join(world.clone(), 0, team.memberships[0].clone());
            let found = meet(&Member::join(world, 1, team.memberships[1].clone())).unwrap_err();
            match end {
                End::Failed => assert_eq!(found, Error::Aborted { rank: 0, cause: "failed" }),
                End::Returned => assert!(matches!(found, Error::Returned { rank: 0, calls: 0, .. }), "{found}"),
                End::Interrupted => assert_eq!(found, Error::Interrupted),
            }
        }
    }

    #[test]
    fn communicators_that_were_dropped_are_forgotten() {
        let memberships = Arc::<Memberships>::default();
        let kept = Member::join(Arc::new(World::new(1)), 0, memberships.clone());
        for _ in 0..1000 {
            Member::join(Arc::new(World::new(1)), 0, memberships.clone());
        }
        assert_eq!(memberships.end(End::Returned).len(), 1);
        assert!(memberships.listed() < 16, "{} are listed", memberships.listed());
        drop(kept);
    }
}

//! Members: one rank of a communicator, which makes its own calls.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use nvcoll_core::schedule::Path;

use crate::call::{Call, CallPurpose, SplitKey};
use crate::deadline::{Deadline, UntilDeadline, WaitLimit};
use crate::error::{Error, Result};
use crate::kernel::FloatEnvironment;
use crate::memory::block::MemoryBlock;
use crate::memory::buffers::Buffers;
use crate::memory::heap::HeapBlock;
use crate::memory::originals::OriginalArray;
use crate::memory::world::addresses::Addresses;
use crate::memory::world::World;
use crate::program::batch::{Batch, Pass};
use crate::program::Program;
use crate::ranks::memberships::{Memberships, RankEnd};
use crate::ranks::node::check_ranks;
use crate::ranks::{split, words};
use crate::run::by_rank::RankWorker;
use crate::run::quiesce::ring_everybody;
use crate::sync::atomic::Ordering;
use crate::sync::single_flight::Unlocked;
use crate::sync::Cause;
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
    world: Arc<World>,
    rank: u32,
    /// The communicators of the same rank of the run.
    memberships: Arc<Memberships<Self>>,
    process: Process,
    /// The state of its calls; `None` after the program of the rank has ended.
    calls: Mutex<Option<MemberCalls>>,
    /// The programs of its splits and of the agreements of its groups, after the first.
    programs_of_words: [OnceLock<Arc<Program>>; 2],
}

/// The state that calls reuse, one after the other.
#[derive(Debug)]
struct MemberCalls {
    number: u32,
    rank_worker: RankWorker,
    scratch: Option<Scratch>,
}

/// The scratch of a member, which its peers can reach.
#[derive(Debug)]
enum Scratch {
    Own(MemoryBlock),
    Symmetric(HeapBlock),
}

impl Scratch {
    fn allocate(world: &World, bytes: usize) -> Result<Self> {
        match world.origin().allocate(bytes)? {
            Some(block) => Ok(Self::Symmetric(block)),
            None => MemoryBlock::try_zeroed(bytes).map(Self::Own).ok_or(Error::NoMemory { what: "scratch", bytes }),
        }
    }

    fn start(&self) -> *mut u8 {
        match self {
            Self::Own(block) => block.start(),
            Self::Symmetric(block) => block.start(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Own(block) => block.bytes(),
            Self::Symmetric(block) => block.bytes(),
        }
    }
}

impl Member {
    /// Makes the member with this rank of a world. If the rank has already ended, the member starts ended.
    pub(crate) fn join(world: Arc<World>, rank: u32, memberships: Arc<Memberships<Self>>) -> Arc<Self> {
        let calls =
            MemberCalls { number: 0, rank_worker: RankWorker::of_member(world.world_size(), rank), scratch: None };
        let (process, calls) = (Process::current(), Mutex::new(Some(calls)));
        let member = Arc::new(Self {
            world,
            rank,
            memberships,
            process,
            calls,
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
        let mapped = mapped.filter(|_| program.alone.is_none());
        mapped.map_or(Ok(()), |mapped| check_ranks(mapped, self.world.world_size()))?;
        let mut calls = self.begin()?;
        let calls = calls.as_mut().ok_or(ENDED)?;
        let scratch_bytes = program.scratch_bytes().max(mapped.map_or(0, |mapped| mapped.scratch_bytes()));
        let scratch = calls.make_room(&self.world, scratch_bytes, program.staging_bytes())?;
        let buffers = [Buffers { scratch, ..buffers }];
        let mut patience = WaitLimit { deadline, is_interrupted };
        let (pass, mapped) = (Pass::of_copies(program, originals), mapped.map(Pass::of_one));
        // SAFETY: the caller promised it of the buffers; scratch is this member's and as long as the programs need; they are
        // of as many ranks as the world.
        unsafe { calls.run(&self.world, pass, mapped, &buffers, &mut patience) }
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
        let mut calls = self.begin()?;
        let calls = calls.as_mut().ok_or(ENDED)?;
        let scratch = calls.make_room(&self.world, batch.scratch_bytes(), batch.staging_bytes())?;
        batch.place_scratch([scratch].into_iter(), 1);
        batch.survey(self.rank);
        let mut patience = WaitLimit { deadline, is_interrupted };
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

    /// Says whether all ranks offer to run the calls of a group mapped. Every rank calls it with its own offer.
    ///
    /// # Errors
    /// As [`Member::run`].
    pub fn agree_on_mapped(
        &self,
        is_offered: bool,
        deadline: Deadline,
        unlocked: &impl Unlocked,
        is_interrupted: &mut (dyn FnMut() -> bool + Send),
    ) -> Result<bool> {
        let program = self.program_of_words(CallPurpose::PathOfGroup, deadline, unlocked)?;
        unlocked.run(|| {
            let mut calls = self.begin()?;
            let calls = calls.as_mut().ok_or(ENDED)?;
            let (own, mut patience) = ([u64::from(is_offered), 0], WaitLimit { deadline, is_interrupted });
            // SAFETY: `program_of_words` bound it for this many ranks; a barrier has no steps, so that no buffer is touched.
            unsafe { calls.say(&self.world, program, own, &mut patience) }?;
            let all = words::words(&self.world, program, calls.number);
            Ok(all.is_some_and(|all| all.iter().all(|&[is_offered, _]| is_offered == 1)))
        })
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
        let mut calls = self.begin()?;
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

    /// Tells peers how the rank ended, and says whether it could: a communicator in a call cannot depart.
    pub(crate) fn end(&self, end: RankEnd) -> bool {
        match end {
            RankEnd::Returned => match self.calls.try_lock() {
                Ok(mut calls) => calls.take().into_iter().for_each(|calls| self.depart(&calls)),
                Err(_) => return false,
            },
            RankEnd::Failed => self.raise(Cause::Failed(self.rank)),
            #[cfg(target_os = "linux")]
            RankEnd::Exited(status) => self.raise(Cause::Exited(self.rank, status)),
            RankEnd::Interrupted => self.raise(Cause::Interrupted),
        }
        true
    }

    /// Says whether a thread is in a call.
    #[cfg(target_os = "linux")]
    pub(crate) fn is_in_a_call(&self) -> bool {
        self.calls.try_lock().is_err()
    }

    /// Closes the member for calls. It returns when no thread is in one.
    pub(crate) fn close(&self) {
        self.lock().take();
    }

    fn raise(&self, cause: Cause) {
        self.world.abort().raise(cause);
        ring_everybody(&self.world);
    }

    fn depart(&self, calls: &MemberCalls) {
        self.world.lines[self.rank as usize].departure.publish(calls.number);
        ring_everybody(&self.world);
    }

    #[inline]
    fn begin(&self) -> Result<MutexGuard<'_, Option<MemberCalls>>> {
        if !self.process.is_current() {
            return Err(FORKED);
        }
        self.calls.try_lock().map_err(|_| IN_A_CALL)
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
            return;
        }
        let calls = self.calls.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        calls.into_iter().for_each(|calls| self.depart(&calls));
    }
}

impl MemberCalls {
    /// Makes the scratch and staging that a program needs, and returns the address of the scratch.
    fn make_room(&mut self, world: &World, scratch_bytes: usize, staging_bytes: usize) -> Result<*mut u8> {
        if self.scratch.as_ref().map_or(0, Scratch::bytes) < scratch_bytes {
            self.scratch = Some(Scratch::allocate(world, scratch_bytes)?);
        }
        world.make_staging(staging_bytes)?;
        Ok(self.scratch.as_ref().map_or(std::ptr::null_mut(), Scratch::start))
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

    /// Ranks that are processes meet in a group by messages, which the rank that is through may send later.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_rank_whose_split_fails_at_its_deadline_ends_the_calls_of_the_group_of_a_peer_that_is_through() {
        use crate::ranks::{mesh::JobSettings, processes::ProcessRank};
        use crate::sync::single_flight::HoldsNoLock;
        use std::thread::{scope, sleep};
        use std::time::Duration;

        let (watchdog, job) = (Deadline::after(Some(30.0)), format!("late in a split {}", std::process::id()));
        let join = |rank| {
            let settings = JobSettings { rank, world_size: 2, job: job.clone(), token: None, deadline: watchdog };
            ProcessRank::join(&settings, &mut || false).unwrap()
        };
        let program = words::program(2, CallPurpose::Split, &HoldsNoLock).unwrap();
        let ([fingerprint, small, count], [color, key]) =
            (program.fingerprint, SplitKey { color: Some(0), key: 0 }.words());
        let [fails, through] = scope(|scope| {
            let through = scope.spawn(|| join(1));
            [join(0), through.join().unwrap()]
        });
        for member in [fails.member(), through.member()] {
            let lines = &member.world.lines[member.rank as usize];
            lines.record.write(1, &[fingerprint, small, count, color, key, 0, 0, 1]);
            lines.stamp.enter(1);
        }
        fails.member().raise(Cause::TimedOut(0));
        scope(|scope| {
            let group = scope.spawn(|| {
                sleep(Duration::from_millis(50));
                let mut limit = WaitLimit { deadline: watchdog, is_interrupted: &mut || false };
                split::join(&through.member().world, &program, 1, 1, &mut limit)
            });
            let late = Deadline::after(Some(0.0));
            let error = fails.member().split(Some(0), 0, late, &HoldsNoLock, &mut || false).unwrap_err();
            assert!(matches!(error, Error::Timeout { .. }), "{error}");
            let (world, _) = group.join().unwrap().unwrap().unwrap();
            assert_eq!(world.abort().cause(), Some(Cause::Failed(0)));
        });
    }

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

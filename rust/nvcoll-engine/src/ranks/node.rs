//! A node: ranks of this process, driven together by one caller.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nvcoll_core::collective::Roles;
use nvcoll_core::counts::Counts;
use nvcoll_core::limits::MAX_RUNNING_RANKS;
use nvcoll_core::op::Op;
use nvcoll_core::verify::Verified;
use nvcoll_core::words::counted;

use crate::auto::choice::{self, CallContext, ChosenAlgorithm, Estimate};
use crate::auto::tuning::Tuning;
use crate::auto::work_split::WorkSplit;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::kernel::Isa;
use crate::memory::block::MemoryBlock;
use crate::memory::buffers::Buffers;
use crate::program::batch::{Batch, Pass};
use crate::program::cache::{ProgramCache, ProgramKey};
use crate::program::proofs::prove;
use crate::program::tallies::Tallies;
use crate::program::{check_form, Program};
use crate::run::deadline::Deadline;
use crate::run::driver::Driver;
use crate::sync::single_flight::{HoldsNoLock, SingleFlight, Unlocked};
use crate::sync::try_lock::OneAtATime;
use crate::system::cpus;
use crate::system::process::Process;

const IN_USE: Error = Error::Busy(
    "the node is in a call of another thread, or in a run of its ranks: wait for it, make a node per thread, or call the \
     rank's communicator",
);

const IN_USE_IN_A_CHILD: Error = Error::Busy(
    "the node is in a call of another thread, or was when this process was forked, and then for good: make a node in the \
     child",
);

/// Ranks in one process.
pub struct Node {
    world_size: u32,
    workers: usize,
    isa: Isa,
    tuning: Arc<Tuning>,
    /// Where it was made.
    process: Process,
    programs: Mutex<ProgramCache>,
    tallies: Arc<Tallies>,
    makers: SingleFlight<ProgramKey>,
    driver: OneAtATime<Driver>,
}

impl Node {
    /// Makes a node of `world_size` ranks; `workers` defaults to the usable CPUs, and is never more than the ranks.
    ///
    /// # Errors
    /// A world size outside 1..=[`MAX_RUNNING_RANKS`], or no workers.
    pub fn new(world_size: u32, workers: Option<usize>) -> Result<Self> {
        if !(1..=MAX_RUNNING_RANKS).contains(&world_size) {
            return Err(nvcoll_core::Error::WorldSize { found: world_size, most: MAX_RUNNING_RANKS }.into());
        }
        if workers == Some(0) {
            return Err(Error::Invalid("workers is 0: it must be at least 1".into()));
        }
        let workers = workers.unwrap_or_else(cpus::usable).min(world_size as usize);
        Ok(Self {
            world_size,
            workers,
            isa: Isa::detect(),
            tuning: Tuning::shipped(),
            process: Process::current(),
            programs: Mutex::default(),
            tallies: Arc::new(Tallies::new(world_size)),
            makers: SingleFlight::new(),
            driver: OneAtATime::new(Driver::new(world_size, None)),
        })
    }

    /// Returns the number of ranks.
    pub fn world_size(&self) -> u32 {
        self.world_size
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Chooses the instruction set of programs bound from now on (results are the same bits with every one).
    ///
    /// # Errors
    /// [`Error::NoIsa`] if this processor lacks it.
    pub fn set_isa(&mut self, isa: Isa) -> Result<()> {
        isa.check()?;
        self.isa = isa;
        self.lock_programs().clear();
        Ok(())
    }

    /// Pins the table by which `auto` chooses for programs bound from now on.
    pub fn set_tuning(&mut self, tuning: Arc<Tuning>) {
        self.tuning = tuning;
        self.lock_programs().clear();
    }

    /// Returns the table by which `auto` chooses.
    pub fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// Returns how often the node was asked for what.
    pub fn tallies(&self) -> &Arc<Tallies> {
        &self.tallies
    }

    /// Returns the program of a call that one caller drives for all ranks.
    ///
    /// # Errors
    /// An unknown algorithm, an op that the dtype does not have, a refutation.
    pub fn program(&self, call: &Call, proof: Option<&Verified>) -> Result<Arc<Program>> {
        self.program_shared(call, WorkSplit::of(call.path), proof, &HoldsNoLock)
    }

    /// Returns the program of a call that every rank makes for itself.
    ///
    /// # Errors
    /// As [`Node::program`].
    pub fn program_of_rank(&self, call: &Call, proof: Option<&Verified>) -> Result<Arc<Program>> {
        self.program_shared(call, WorkSplit::ByRank, proof, &HoldsNoLock)
    }

    /// Returns the program of a call that is shared out so; what takes long is done `aside`.
    ///
    /// # Errors
    /// As [`Node::program`].
    pub fn program_shared(
        &self,
        call: &Call,
        split: WorkSplit,
        proof: Option<&Verified>,
        unlocked: &impl Unlocked,
    ) -> Result<Arc<Program>> {
        self.program_among(self.world_size, call, split, proof, unlocked)
    }

    /// Returns the program of a call of `world_size` ranks: all of the node, or a group of them.
    ///
    /// # Errors
    /// As [`Node::program`].
    pub fn program_among(
        &self,
        world_size: u32,
        call: &Call,
        split: WorkSplit,
        proof: Option<&Verified>,
        unlocked: &impl Unlocked,
    ) -> Result<Arc<Program>> {
        let key = (call.clone(), split, world_size);
        let make = || self.make_program(&key, proof, unlocked);
        self.makers.find_or_make(&key, unlocked, || self.lock_programs().find(&key), make)
    }

    #[cold]
    fn make_program(
        &self,
        key: &ProgramKey,
        proof: Option<&Verified>,
        unlocked: &impl Unlocked,
    ) -> Result<Arc<Program>> {
        let (call, split, world_size) = key;
        check_op(call)?;
        let verified = match proof {
            Some(verified) => verified.clone(),
            None => {
                let roles = call.roles(*world_size);
                let name = match call.algorithm.as_str() {
                    "auto" => self.choose(call, *split, *world_size, unlocked)?.algorithm,
                    name => name,
                };
                prove(call.collective, name, roles, call.path, call.aliasing, unlocked)?
            }
        };
        let found = verified.schedule().world_size;
        if found != *world_size {
            let found = counted(found, "rank");
            return Err(Error::Invalid(format!("the schedule is for {found}, the call is made by {world_size}")));
        }
        check_form(verified.schedule(), call)?; // before anything is counted by the parts of the call
        check_counts(call, verified.schedule().roles())?;
        let mut program = unlocked.run(|| {
            let tile_count = split.tile_count(verified.schedule(), call, self.workers);
            Program::bind(&verified, call.clone(), tile_count, self.isa)
        })?;
        // Not unlocked: a thread that forks while it holds the caller's lock must find no table locked.
        program.tally = (*world_size == self.world_size).then(|| self.tallies.of_all(&program));
        let program = Arc::new(program);
        self.lock_programs().keep(key.clone(), program.clone());
        Ok(program)
    }

    /// Returns the algorithm that `auto` is for a call of `world_size` ranks.
    ///
    /// # Errors
    /// A candidate that cannot be built, or a table of counts that does not fit.
    pub fn choose(
        &self,
        call: &Call,
        split: WorkSplit,
        world_size: u32,
        unlocked: &impl Unlocked,
    ) -> Result<ChosenAlgorithm> {
        choice::choose(&self.context(call, split, world_size)?, &self.tuning, unlocked)
    }

    /// Estimates how long a call of `world_size` ranks takes by each candidate of `auto`.
    ///
    /// # Errors
    /// As [`Node::choose`].
    pub fn estimates(
        &self,
        call: &Call,
        split: WorkSplit,
        world_size: u32,
        unlocked: &impl Unlocked,
    ) -> Result<Vec<Estimate>> {
        choice::estimates(&self.context(call, split, world_size)?, &self.tuning, unlocked)
    }

    fn context<'a>(&self, call: &'a Call, split: WorkSplit, world_size: u32) -> Result<CallContext<'a>> {
        check_counts(call, call.roles(world_size))?;
        Ok(CallContext { call, split, world_size, workers: self.workers })
    }

    fn lock_programs(&self) -> MutexGuard<'_, ProgramCache> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the node for ranks that call for themselves: nobody drives it before the result is dropped.
    ///
    /// # Errors
    /// [`Error::Busy`] if somebody drives it, or if it was taken.
    pub fn occupy(self: Arc<Self>) -> Result<OccupiedNode> {
        if self.driver.close() {
            Ok(OccupiedNode(self))
        } else {
            Err(self.in_use())
        }
    }

    /// Says whether this process made the node, and is not a child that was forked since.
    pub fn is_of_this_process(&self) -> bool {
        self.process.is_current()
    }

    #[cold]
    fn in_use(&self) -> Error {
        if self.is_of_this_process() {
            IN_USE
        } else {
            IN_USE_IN_A_CHILD
        }
    }

    /// Runs a program for all ranks. `is_interrupted` is asked on the calling thread now and then.
    ///
    /// # Safety
    /// `buffers` has one entry per rank, as long as the program's call says, aliased as it says, touched by nobody else
    /// until `run` returns. `scratch` pointers are filled in by the node.
    ///
    /// # Errors
    /// [`Error::Busy`] if another thread is in a call; [`Error::NoMemory`] before a byte moves; [`Error::Interrupted`] and
    /// [`Error::Timeout`] leave the outputs half written and the node usable.
    pub unsafe fn run(
        &self,
        program: &Arc<Program>,
        buffers: &mut [Buffers],
        deadline: Deadline,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        check_ranks(program, self.world_size)?;
        assert_eq!(buffers.len(), self.world_size as usize, "one entry per rank");
        let Some(mut driver) = self.driver.take() else {
            return Err(self.in_use());
        };
        let scratch = driver.prepare(self.world_size, self.workers, program.scratch_bytes())?;
        buffers.iter_mut().zip(scratch).for_each(|(own, scratch)| own.scratch = scratch.start());
        // SAFETY: the caller's.
        unsafe { driver.run_pass(Pass::of_one(program), buffers, deadline, is_interrupted) }?;
        program.count();
        Ok(())
    }

    /// Runs calls that are launched as one: the batch has the buffers of all ranks. The caller counts them afterwards, by
    /// [`Node::count_batch`].
    ///
    /// # Safety
    /// As [`Node::run`], and no call writes a byte that another one touches.
    ///
    /// # Errors
    /// As [`Node::run`].
    pub unsafe fn run_batch(
        &self,
        batch: &mut Batch,
        deadline: Deadline,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let ranks = self.world_size as usize;
        batch.programs().iter().try_for_each(|program| check_ranks(program, self.world_size))?;
        assert_eq!(batch.buffers.len(), batch.len() * ranks, "one entry per call and rank");
        let Some(mut driver) = self.driver.take() else {
            return Err(self.in_use());
        };
        let scratch = driver.prepare(self.world_size, self.workers, batch.scratch_bytes())?;
        batch.place_scratch(scratch.iter().map(MemoryBlock::start), ranks);
        for (pass, buffers) in batch.in_passes(ranks) {
            // SAFETY: the caller's; every call of the batch has scratch of its own.
            unsafe { driver.run_pass(pass, buffers, deadline, is_interrupted) }?;
        }
        Ok(())
    }

    /// Counts a batch that all ranks have run. It locks the table of tallies, so a caller with a lock of its own, such as
    /// Python's, calls it under that lock.
    pub fn count_batch(&self, batch: &mut Batch) {
        batch.count(&self.tallies, self.tallies.ranks());
    }
}

/// A node that nobody drives, because its ranks call for themselves.
pub struct OccupiedNode(Arc<Node>);

impl Drop for OccupiedNode {
    fn drop(&mut self) {
        // SAFETY: `Node::occupy` closed it, and a value is dropped once.
        unsafe { self.0.driver.open() };
    }
}

/// Refuses a program of another number of ranks than those that run it.
#[inline]
pub(crate) fn check_ranks(program: &Program, world_size: u32) -> Result<()> {
    match program.world_size() == world_size {
        true => Ok(()),
        false => Err(of_other_ranks(program, world_size)),
    }
}

#[cold]
fn of_other_ranks(program: &Program, world_size: u32) -> Error {
    let (found, expected) = (counted(program.world_size(), "rank"), counted(world_size, "rank"));
    Error::Invalid(format!("the program is of {found}, it is run by {expected}: bind one for these ranks"))
}

/// Refuses an op that has no meaning on the dtype, or in the collective.
fn check_op(call: &Call) -> Result<()> {
    let Call { collective, op, dtype, .. } = call;
    if !collective.folds() {
        return Ok(());
    }
    op.check(*dtype)?;
    if !collective.is_defined_with(*op) {
        let defined = Op::ALL.iter().filter(|op| collective.is_defined_with(**op) && op.is_defined_on(*dtype));
        let defined = defined.map(|op| op.name()).collect::<Vec<_>>().join(", ");
        return Err(Error::Invalid(format!("{op} is not defined for {}: choose from {defined}", collective.name)));
    }
    Ok(())
}

/// Refuses a table of counts with another length than the collective has parts.
fn check_counts(call: &Call, roles: Roles) -> Result<()> {
    let parts = call.collective.parts(roles) as usize;
    match &call.counts {
        Counts::Table(table) if table.len() != parts => {
            let (found, name) = (table.len(), call.collective.name);
            Err(Error::Invalid(format!("`counts` has {found} numbers, {name} has {parts} parts: pass one for each")))
        }
        _ => Ok(()),
    }
}

//! A node: ranks of this process, driven together by one caller.

use std::sync::Arc;

use nvcoll_core::limits::MAX_RUNNING_RANKS;
use nvcoll_core::verify::Verified;
use nvcoll_core::words::counted;

use crate::auto::work_split::WorkSplit;
use crate::call::Call;
use crate::deadline::{Deadline, UntilDeadline};
use crate::error::{Error, Result};
use crate::memory::block::MemoryBlock;
use crate::memory::buffers::Buffers;
use crate::program::batch::{Batch, Pass};
use crate::program::make::Programs;
use crate::program::Program;
use crate::run::driver::Driver;
use crate::sync::condition::IsInterrupted;
use crate::sync::single_flight::{HoldsNoLock, Unlocked};
use crate::sync::try_lock::TryLock;
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

/// A node: ranks of one process that one caller drives.
pub struct Node {
    world_size: u32,
    /// The process that made the node.
    process: Process,
    programs: Programs,
    driver: TryLock<Driver>,
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
            process: Process::current(),
            programs: Programs::new(world_size, workers),
            driver: TryLock::new(Driver::new(world_size, None)),
        })
    }

    /// Returns the number of ranks.
    pub fn world_size(&self) -> u32 {
        self.world_size
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        self.programs.workers()
    }

    /// Returns the programs of the node, and the settings by which they are made.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Returns the programs of the node, to change the settings by which they are made.
    pub fn programs_mut(&mut self) -> &mut Programs {
        &mut self.programs
    }

    /// Returns the program of a call that one caller drives for all ranks, as [`Programs::find_or_make`] for a caller that
    /// holds no lock.
    ///
    /// # Errors
    /// As [`Programs::find_or_make`].
    pub fn program(&self, call: &Call, proof: Option<&Verified>) -> Result<Arc<Program>> {
        self.programs.find_or_make(call, WorkSplit::of(call.path), self.world_size, proof, &HoldsNoLock)
    }

    /// Returns the program of a call that every rank makes for itself, as [`Programs::find_or_make`] for a caller that holds
    /// no lock.
    ///
    /// # Errors
    /// As [`Programs::find_or_make`].
    pub fn program_of_rank(&self, call: &Call, proof: Option<&Verified>) -> Result<Arc<Program>> {
        self.programs.find_or_make(call, WorkSplit::ByRank, self.world_size, proof, &HoldsNoLock)
    }

    /// Takes the node for ranks that call for themselves. Nobody drives it before the result is dropped.
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

    /// Returns the program of a call that `world_size` ranks make, as [`Programs::find_or_make`] does, until a deadline.
    ///
    /// # Errors
    /// [`Error::Timeout`] if the deadline passes while it is made; else as [`Programs::find_or_make`].
    pub fn program_until(
        &self,
        call: &Call,
        split: WorkSplit,
        world_size: u32,
        proof: Option<&Verified>,
        unlocked: &impl Unlocked,
        deadline: Deadline,
    ) -> Result<Arc<Program>> {
        let unlocked = UntilDeadline::new(unlocked, deadline);
        let program = self.programs.find_or_make(call, split, world_size, proof, &unlocked);
        program.map_err(|error| unlocked.explain(error, call, "its schedule was being built and proved"))
    }

    /// Says whether this process made the node; a child that was forked since did not.
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

    /// Runs a program for all ranks. It asks `is_interrupted` on the calling thread now and then.
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
        is_interrupted: IsInterrupted<'_>,
    ) -> Result<()> {
        check_ranks(program, self.world_size)?;
        assert_eq!(buffers.len(), self.world_size as usize, "one entry per rank");
        let Some(mut driver) = self.driver.take() else {
            return Err(self.in_use());
        };
        let scratch = driver.prepare(self.world_size, self.programs.workers(), program.scratch_bytes())?;
        buffers.iter_mut().zip(scratch).for_each(|(own, scratch)| own.scratch = scratch.start());
        // SAFETY: the caller promised it of the buffers; `prepare` made scratch of the program's length; the program has
        // the ranks of the node (`check_ranks`).
        unsafe { driver.run_pass(Pass::of_one(program), buffers, deadline, is_interrupted) }?;
        program.count();
        Ok(())
    }

    /// Runs a batch for all ranks; the batch has the buffers of all ranks. The caller counts them afterwards, by
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
        is_interrupted: IsInterrupted<'_>,
    ) -> Result<()> {
        let ranks = self.world_size as usize;
        batch.programs().iter().try_for_each(|program| check_ranks(program, self.world_size))?;
        assert_eq!(batch.buffers.len(), batch.len() * ranks, "one entry per call and rank");
        let Some(mut driver) = self.driver.take() else {
            return Err(self.in_use());
        };
        let scratch = driver.prepare(self.world_size, self.programs.workers(), batch.scratch_bytes())?;
        batch.place_scratch(scratch.iter().map(MemoryBlock::start), ranks);
        for (pass, buffers) in batch.in_passes(ranks) {
            // SAFETY: the caller promised it of the buffers, and that calls share nothing that one writes; `place_scratch` gave
            // every call scratch of its own; the programs have the ranks of the node (`check_ranks`).
            unsafe { driver.run_pass(pass, buffers, deadline, is_interrupted) }?;
        }
        Ok(())
    }

    /// Counts a batch that all ranks have run. It locks the table of counts, so a caller with a lock of its own, such as
    /// Python's, calls it under that lock.
    pub fn count_batch(&self, batch: &mut Batch) {
        let call_counts = self.programs.call_counts();
        batch.count(call_counts, call_counts.ranks());
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

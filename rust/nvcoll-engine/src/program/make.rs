//! The way from a call to a program: choose, build, lower, prove, bind.
//!
//! ```text
//! call ─ choose ─▶ algorithm ─ build ─▶ schedule ─ lower ─▶ schedule of the path ─ prove ─▶ proof ─ bind ─▶ program
//!                                              a small call: └─ lower ─▶ with early steps ─ prove ─▶ proof ──┘
//! ```
//!
//! | stage | where | kept result |
//! |---|---|---|
//! | choose | [`choice`], only if the algorithm is `auto` | counts of each candidate, for the whole process |
//! | build, lower, prove | the core; skipped if the caller brings a proof | the proof: while a node uses it, and then as long as [`ProofCache`] has room |
//! | bind | [`Program::bind`] | the program: the last [`KEPT`](crate::program::cache::KEPT) of its node |
//!
//! Each stage can take long, so it runs *unlocked*: a caller that holds a lock, such as Python's, releases it meanwhile. A thread that
//! needs the value another one is making waits for it ([`SingleFlight`]). The tables themselves are locked only under the caller's
//! lock, so a fork copies no locked table.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nvcoll_core::algorithm::{self, NamedAlgorithm};
use nvcoll_core::collective::{Collective, Roles};
use nvcoll_core::counts::Counts;
use nvcoll_core::dtype::DType;
use nvcoll_core::interrupt::Interrupt;
use nvcoll_core::lower::{lower_interruptible, stage_early};
use nvcoll_core::op::Op;
use nvcoll_core::schedule::Schedule;
use nvcoll_core::verify::{verify_interruptible, Unproved, Verified};
use nvcoll_core::words::counted;

use crate::auto::choice::{self, CallContext, ChosenAlgorithm, Estimate};
use crate::auto::tuning::Tuning;
use crate::auto::work_split::WorkSplit;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::kernel::Isa;
use crate::program::bind::check_form;
use crate::program::cache::{ProgramCache, ProgramKey};
use crate::program::call_counts::CallCounts;
use crate::program::proof_cache::{ProofCache, ProofKey};
use crate::program::Program;
use crate::sync::single_flight::{SingleFlight, Unlocked};

static PROOFS: Mutex<Option<ProofCache>> = Mutex::new(None);
static PROOFS_IN_FLIGHT: SingleFlight<ProofKey> = SingleFlight::new();

/// The programs of a node, and the settings by which they are made.
#[derive(Debug)]
pub struct Programs {
    world_size: u32,
    workers: usize,
    isa: Isa,
    tuning: Arc<Tuning>,
    call_counts: Arc<CallCounts>,
    kept: Mutex<ProgramCache>,
    in_flight: SingleFlight<ProgramKey>,
}

impl Programs {
    /// Makes an empty set of programs for a node of `world_size` ranks and `workers` workers.
    pub(crate) fn new(world_size: u32, workers: usize) -> Self {
        Self {
            world_size,
            workers,
            isa: Isa::detect(),
            tuning: Tuning::shipped(),
            call_counts: Arc::new(CallCounts::new(world_size)),
            kept: Mutex::default(),
            in_flight: SingleFlight::new(),
        }
    }

    /// Returns the number of workers for which programs are made.
    #[inline]
    pub(crate) fn workers(&self) -> usize {
        self.workers
    }

    /// Returns the counts of calls that the programs of this node add to.
    pub fn call_counts(&self) -> &Arc<CallCounts> {
        &self.call_counts
    }

    /// Returns the table by which `auto` chooses.
    pub fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// Pins the table by which `auto` chooses, and forgets all programs.
    pub fn set_tuning(&mut self, tuning: Arc<Tuning>) {
        self.tuning = tuning;
        self.lock().clear();
    }

    /// Sets the instruction set of kernels, and forgets all programs. Every set gives the same bits.
    ///
    /// # Errors
    /// [`Error::NoIsa`] if this processor lacks it.
    pub fn set_isa(&mut self, isa: Isa) -> Result<()> {
        isa.check()?;
        self.isa = isa;
        self.lock().clear();
        Ok(())
    }

    /// Returns the program of a call that `world_size` ranks make: all ranks of the node, or a group of them. It is found,
    /// or made by `proof`, or made from the algorithm that the call names.
    ///
    /// # Errors
    /// An unknown algorithm, an op that the dtype does not have, a refutation, a proof of another call.
    pub fn find_or_make(
        &self,
        call: &Call,
        split: WorkSplit,
        world_size: u32,
        proof: Option<&Verified>,
        unlocked: &impl Unlocked,
    ) -> Result<Arc<Program>> {
        let key = (call.clone(), split, world_size);
        let make = || self.make(&key, proof, unlocked);
        self.in_flight.find_or_make(&key, unlocked, || self.lock().find(&key), make)
    }

    /// Makes a program, stage by stage.
    #[cold]
    fn make(&self, key: &ProgramKey, proof: Option<&Verified>, unlocked: &impl Unlocked) -> Result<Arc<Program>> {
        let (call, split, world_size) = key;
        check_op(call.collective, call.op, call.dtype)?;
        let verified = match proof {
            Some(verified) => verified.clone(),
            None => {
                let algorithm = match call.algorithm.as_str() {
                    "auto" => self.choose(call, *split, *world_size, unlocked)?.algorithm,
                    named => named,
                };
                prove(call, algorithm, *world_size, unlocked)?
            }
        };
        check_proof(&verified, call, *world_size)?;
        let mut program = unlocked.run(|| {
            let tile_count = split.tile_count(verified.schedule(), call, self.workers);
            Program::bind(&verified, call.clone(), tile_count, self.isa)
        })?;
        if program.is_small() {
            prove_early(&verified, unlocked)?.map_or(Ok(()), |early| program.add_early_order(&early))?;
        }
        // Not unlocked: a thread that forks while it holds the caller's lock must find no table locked.
        program.counter = (*world_size == self.world_size).then(|| self.call_counts.of_all(&program));
        let program = Arc::new(program);
        self.lock().keep(key.clone(), program.clone());
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

    /// Estimates the time of a call of `world_size` ranks by each candidate of `auto`.
    ///
    /// # Errors
    /// As [`Programs::choose`].
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

    fn lock(&self) -> MutexGuard<'_, ProgramCache> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Programs {
    /// Forgets proofs that only this node used, if too many are kept.
    fn drop(&mut self) {
        self.kept.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        lock_proofs().as_mut().map(ProofCache::trim);
    }
}

/// Builds, lowers and proves the schedule of a registered algorithm for a call, unless its proof is kept.
pub(crate) fn prove(call: &Call, algorithm: &str, world_size: u32, unlocked: &impl Unlocked) -> Result<Verified> {
    let (collective, roles, path, aliasing) = (call.collective, call.roles(world_size), call.path, call.aliasing);
    let name = NamedAlgorithm::read(collective, algorithm)?.name();
    let key = (collective.name, name.clone(), roles, path, aliasing, false);
    let lowered = |interrupt: &Interrupt| {
        let mapped = algorithm::build_interruptible(collective, &name, roles, aliasing, interrupt)?;
        Ok(lower_interruptible(&mapped, path, interrupt)?)
    };
    find_or_prove(&key, unlocked, lowered, |_| true)
}

/// Proves the form of a schedule with early steps, unless its proof is kept; `None` if no step can come before the enter.
fn prove_early(verified: &Verified, unlocked: &impl Unlocked) -> Result<Option<Verified>> {
    let schedule = verified.schedule();
    let Some(early) = unlocked.run(|| stage_early(schedule)) else { return Ok(None) };
    let key = (
        schedule.collective.name,
        schedule.algorithm.clone(),
        schedule.roles(),
        schedule.path,
        schedule.aliasing,
        true,
    );
    // Schedules that callers bring may share a name.
    let is_of_these = |kept: &Verified| **kept.schedule() == early;
    find_or_prove(&key, unlocked, |_| Ok(early.clone()), is_of_these).map(Some)
}

/// Finds a kept proof that `is_wanted`, or proves a schedule and keeps its proof.
fn find_or_prove(
    key: &ProofKey,
    unlocked: &impl Unlocked,
    schedule: impl Fn(&Interrupt) -> Result<Schedule> + Sync,
    is_wanted: impl Fn(&Verified) -> bool,
) -> Result<Verified> {
    let prove = |interrupt: &Interrupt| {
        verify_interruptible(schedule(interrupt)?, interrupt).map_err(|unproved| match unproved {
            Unproved::Refuted(refutation) => Error::Refuted(refutation.to_string()),
            Unproved::Interrupted(interrupted) => Error::Core(interrupted.into()),
        })
    };
    let make = || {
        let interrupt = unlocked.interrupt();
        let verified = unlocked.run(|| prove(&interrupt))?;
        lock_proofs().get_or_insert_default().keep(key.clone(), verified.clone());
        Ok(verified)
    };
    let find = || lock_proofs().as_mut().and_then(|proofs| proofs.find(key)).filter(&is_wanted);
    PROOFS_IN_FLIGHT.find_or_make(key, unlocked, find, make)
}

fn lock_proofs() -> MutexGuard<'static, Option<ProofCache>> {
    PROOFS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Refuses a proof of another number of ranks, or of another form of call; then a table of counts that does not fit.
fn check_proof(verified: &Verified, call: &Call, world_size: u32) -> Result<()> {
    let schedule = verified.schedule();
    if schedule.world_size != world_size {
        let found = counted(schedule.world_size, "rank");
        return Err(Error::Invalid(format!("the schedule is for {found}, the call is made by {world_size}")));
    }
    check_form(schedule, call)?;
    check_counts(call, schedule.roles())
}

/// Refuses an op that has no meaning on the dtype, or in the collective.
///
/// # Errors
/// Such an op.
pub fn check_op(collective: &Collective, op: Op, dtype: DType) -> Result<()> {
    if !collective.folds() {
        return Ok(());
    }
    op.check(dtype)?;
    if !collective.is_defined_with(op) {
        let defined = Op::ALL.iter().filter(|op| collective.is_defined_with(**op) && op.is_defined_on(dtype));
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

//! A node: ranks of this process, driven together by one caller.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nvcoll_core::collective::Roles;
use nvcoll_core::counts::Counts;
use nvcoll_core::error::MAX_WORLD_SIZE;
use nvcoll_core::op::Op;
use nvcoll_core::verify::Verified;
use nvcoll_core::words::counted;

use crate::batch::{Batch, Pass};
use crate::buffers::Buffers;
use crate::busy::OneAtATime;
use crate::by_rank::Crew;
use crate::by_tile::{self, Claims};
use crate::call::Call;
use crate::choice::{self, Asked, Chosen, Estimate};
use crate::cpus;
use crate::deadline::{Deadline, Patience};
use crate::error::{Error, Result};
use crate::forks::Process;
use crate::kernel::{FloatEnvironment, Isa};
use crate::making::{Aside, Makers, OnTheSpot};
use crate::memory::Block;
use crate::pool::Pool;
use crate::program::{check_form, Program, Workspace};
use crate::programs::{Key, Programs};
use crate::proofs::prove;
use crate::sharing::{wants_help, Sharing};
use crate::sync::atomic::give_way;
use crate::tuning::Tuning;
use crate::world::World;

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
    programs: Mutex<Programs>,
    makers: Makers<Key>,
    driver: OneAtATime<Driver>,
}

/// What one call at a time uses.
struct Driver {
    pool: Option<Pool>,
    world: World,
    number: u32,
    crews: Vec<Mutex<Crew>>,
    workspaces: Vec<Mutex<Workspace>>,
    outcomes: Vec<Mutex<Result<()>>>,
    scratch: Vec<Block>,
}

/// A slice of raw pointers that workers of one call share.
struct Shared<'a, T>(&'a [T]);

impl<T> Shared<'_, T> {
    fn all(&self) -> &[T] {
        self.0
    }
}

// SAFETY: the pointers are only read; what they point to is shared by the rules of the schedule, which was proved.
unsafe impl<T> Sync for Shared<'_, T> {}

impl Node {
    /// Makes a node of `world_size` ranks; `workers` defaults to the usable CPUs, and is never more than the ranks.
    ///
    /// # Errors
    /// A world size outside 1..=1024, or no workers.
    pub fn new(world_size: u32, workers: Option<usize>) -> Result<Self> {
        if !(1..=MAX_WORLD_SIZE).contains(&world_size) {
            return Err(nvcoll_core::Error::WorldSize(world_size).into());
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
            makers: Makers::new(),
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

    /// Returns the program of a call that one caller drives for all ranks.
    ///
    /// # Errors
    /// An unknown algorithm, an op that the dtype does not have, a refutation.
    pub fn program(&self, call: &Call, proof: Option<&Verified>) -> Result<Arc<Program>> {
        self.program_shared(call, Sharing::of(call.path), proof, &OnTheSpot)
    }

    /// Returns the program of a call that every rank makes for itself.
    ///
    /// # Errors
    /// As [`Node::program`].
    pub fn program_of_rank(&self, call: &Call, proof: Option<&Verified>) -> Result<Arc<Program>> {
        self.program_shared(call, Sharing::ByRank, proof, &OnTheSpot)
    }

    /// Returns the program of a call that is shared out so; what takes long is done `aside`.
    ///
    /// # Errors
    /// As [`Node::program`].
    pub fn program_shared(
        &self,
        call: &Call,
        sharing: Sharing,
        proof: Option<&Verified>,
        aside: &impl Aside,
    ) -> Result<Arc<Program>> {
        self.program_among(self.world_size, call, sharing, proof, aside)
    }

    /// Returns the program of a call of `world_size` ranks: all of the node, or a group of them.
    ///
    /// # Errors
    /// As [`Node::program`].
    pub fn program_among(
        &self,
        world_size: u32,
        call: &Call,
        sharing: Sharing,
        proof: Option<&Verified>,
        aside: &impl Aside,
    ) -> Result<Arc<Program>> {
        let key = (call.clone(), sharing, world_size);
        let make = || self.make_program(&key, proof, aside);
        self.makers.find_or_make(&key, aside, || self.lock_programs().find(&key), make)
    }

    #[cold]
    fn make_program(&self, key: &Key, proof: Option<&Verified>, aside: &impl Aside) -> Result<Arc<Program>> {
        let (call, sharing, world_size) = key;
        check_op(call)?;
        let verified = match proof {
            Some(verified) => verified.clone(),
            None => {
                let roles = call.roles(*world_size);
                let name = match call.algorithm.as_str() {
                    "auto" => self.choose(call, *sharing, *world_size, aside)?.algorithm,
                    name => name,
                };
                prove(call.collective, name, roles, call.path, call.aliasing, aside)?
            }
        };
        let found = verified.schedule().world_size;
        if found != *world_size {
            let found = counted(found, "rank");
            return Err(Error::Invalid(format!("the schedule is for {found}, the call is made by {world_size}")));
        }
        check_form(verified.schedule(), call)?; // before anything is counted by the parts of the call
        check_counts(call, verified.schedule().roles())?;
        let program = aside.run(|| {
            let tile_count = sharing.tile_count(verified.schedule(), call, self.workers);
            Program::bind(&verified, call.clone(), tile_count, self.isa).map(Arc::new)
        })?;
        self.lock_programs().keep(key.clone(), program.clone());
        Ok(program)
    }

    /// Returns the algorithm that `auto` is for a call of `world_size` ranks.
    ///
    /// # Errors
    /// A candidate that cannot be built, or a table of counts that does not fit.
    pub fn choose(&self, call: &Call, sharing: Sharing, world_size: u32, aside: &impl Aside) -> Result<Chosen> {
        choice::choose(&self.asked(call, sharing, world_size)?, &self.tuning, aside)
    }

    /// Estimates how long a call of `world_size` ranks takes by each candidate of `auto`.
    ///
    /// # Errors
    /// As [`Node::choose`].
    pub fn estimates(
        &self,
        call: &Call,
        sharing: Sharing,
        world_size: u32,
        aside: &impl Aside,
    ) -> Result<Vec<Estimate>> {
        choice::estimates(&self.asked(call, sharing, world_size)?, &self.tuning, aside)
    }

    fn asked<'a>(&self, call: &'a Call, sharing: Sharing, world_size: u32) -> Result<Asked<'a>> {
        check_counts(call, call.roles(world_size))?;
        Ok(Asked { call, sharing, world_size, workers: self.workers })
    }

    fn lock_programs(&self) -> MutexGuard<'_, Programs> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the node for ranks that call for themselves: nobody drives it before the result is dropped.
    ///
    /// # Errors
    /// [`Error::Busy`] if somebody drives it, or if it was taken.
    pub fn occupy(self: Arc<Self>) -> Result<Occupied> {
        if self.driver.close() {
            Ok(Occupied(self))
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
        assert_eq!(buffers.len(), self.world_size as usize, "one entry per rank");
        let Some(mut driver) = self.driver.take() else {
            return Err(self.in_use());
        };
        let scratch = driver.prepare(self.world_size, self.workers, program.scratch_bytes())?;
        buffers.iter_mut().zip(scratch).for_each(|(own, scratch)| own.scratch = scratch.start());
        // SAFETY: the caller's.
        unsafe { driver.run_pass(Pass::of_one(program), buffers, deadline, is_interrupted) }
    }

    /// Runs calls that are launched as one: the batch has the buffers of all ranks.
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
        assert_eq!(batch.buffers.len(), batch.len() * ranks, "one entry per call and rank");
        let Some(mut driver) = self.driver.take() else {
            return Err(self.in_use());
        };
        let scratch = driver.prepare(self.world_size, self.workers, batch.scratch_bytes())?;
        batch.place_scratch(scratch.iter().map(Block::start), ranks);
        for (pass, buffers) in batch.in_passes(ranks) {
            // SAFETY: the caller's; every call of the batch has scratch of its own.
            unsafe { driver.run_pass(pass, buffers, deadline, is_interrupted) }?;
        }
        Ok(())
    }
}

/// A node that nobody drives, because its ranks call for themselves.
pub struct Occupied(Arc<Node>);

impl Drop for Occupied {
    fn drop(&mut self) {
        // SAFETY: `Node::occupy` closed it, and a value is dropped once.
        unsafe { self.0.driver.open() };
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
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

impl Driver {
    fn new(world_size: u32, pool: Option<Pool>) -> Self {
        let workers = pool.as_ref().map_or(1, Pool::workers);
        let block = world_size.div_ceil(workers as u32);
        let crew = |first: u32| Crew::new(world_size, first..(first + block).min(world_size), block);
        Self {
            pool,
            world: World::new(world_size),
            number: 0,
            crews: (0..world_size).step_by(block as usize).map(|first| Mutex::new(crew(first))).collect(),
            workspaces: (0..workers).map(|_| Mutex::default()).collect(),
            outcomes: (0..workers).map(|_| Mutex::new(Ok(()))).collect(),
            scratch: Vec::new(),
        }
    }

    /// Starts the pool if there is none in this process; returns scratch, at least as much as that, of each rank, if any.
    fn prepare(&mut self, world_size: u32, workers: usize, scratch_bytes: usize) -> Result<&[Block]> {
        if self.pool.as_ref().is_none_or(|pool| !pool.is_of_this_process()) {
            self.start(world_size, workers);
        }
        if self.scratch.first().map_or(0, Block::bytes) < scratch_bytes {
            self.make_room(world_size, scratch_bytes)?;
        }
        Ok(&self.scratch)
    }

    #[cold]
    fn start(&mut self, world_size: u32, workers: usize) {
        *self = Self::new(world_size, Some(Pool::new(workers - 1)));
    }

    #[cold]
    fn make_room(&mut self, world_size: u32, bytes: usize) -> Result<()> {
        // What is too small goes first: it would only be in the way.
        self.scratch.clear();
        let blocks: Option<Vec<Block>> = (0..world_size).map(|_| Block::try_zeroed(bytes)).collect();
        self.scratch = blocks.ok_or(Error::NoMemory { what: "scratch", bytes })?;
        Ok(())
    }

    /// # Safety
    /// As [`Node::run`], for every call of the pass.
    unsafe fn run_pass(
        &mut self,
        pass: Pass<'_>,
        buffers: &[Buffers],
        deadline: Deadline,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        // SAFETY: the caller's.
        unsafe {
            match Sharing::of(pass.first().call().path) {
                Sharing::ByTile => self.run_by_tile(pass, buffers, deadline, is_interrupted),
                Sharing::ByRank => self.run_by_rank(pass, buffers, deadline, is_interrupted),
            }
        }
    }

    unsafe fn run_by_tile(
        &mut self,
        pass: Pass<'_>,
        buffers: &[Buffers],
        deadline: Deadline,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let mut has_timed_out = false;
        let mut goes_on = || {
            has_timed_out = deadline.has_passed();
            !has_timed_out && !is_interrupted()
        };
        let choice = pass.stores().map(|stores| (stores, lock(stores).is_next_streamed(), Instant::now()));
        // SAFETY: the caller's.
        let is_done = unsafe {
            self.run_pieces(pass.programs(), buffers, choice.is_some_and(|(_, streamed, _)| streamed), &mut goes_on)
        };
        match (is_done, choice, has_timed_out) {
            (true, None, _) => Ok(()),
            (true, Some((stores, is_streaming, start)), _) => {
                lock(stores).learn(is_streaming, start.elapsed());
                Ok(())
            }
            (false, _, true) => Err(deadline
                .error(pass.first().call().clone().into(), "every rank was driven, but they were not done".into())),
            (false, _, false) => Err(Error::Interrupted),
        }
    }

    /// Says whether all pieces were run: none is begun after `goes_on` says no.
    #[inline]
    unsafe fn run_pieces(
        &mut self,
        programs: &[Arc<Program>],
        buffers: &[Buffers],
        is_streaming: bool,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> bool {
        let pool = self.pool.as_mut().expect("prepare made it");
        let (buffers, workspaces) = (Shared(buffers), &mut self.workspaces);
        let bytes = programs.iter().map(|program| program.buffer_bytes()).sum();
        let claims = Claims::new(programs, workspaces.len());
        if !wants_help(bytes) || claims.pieces() == 1 || pool.workers() == 1 {
            let _environment = FloatEnvironment::round_to_nearest();
            let workspace = workspaces[0].get_mut().unwrap_or_else(PoisonError::into_inner);
            let ranks = buffers.all().len() / programs.len();
            let mut of_programs = programs.iter().zip(buffers.all().chunks_exact(ranks));
            let is_long = wants_help(bytes);
            return of_programs.all(|(program, buffers)| {
                workspace.fit(program, is_streaming);
                // SAFETY: the caller of `run` vouches for the buffers; the workspace fits.
                (!is_long || goes_on()) && unsafe { by_tile::run_alone(program, buffers, workspace, &mut *goes_on) }
            });
        }
        for workspace in &mut *workspaces {
            let workspace = workspace.get_mut().unwrap_or_else(PoisonError::into_inner);
            programs.iter().for_each(|program| workspace.fit(program, is_streaming));
        }
        let work = |worker: usize, goes_on: &mut dyn FnMut() -> bool| {
            let _environment = FloatEnvironment::round_to_nearest();
            let mut workspace = lock(&workspaces[worker]);
            // SAFETY: as above.
            unsafe { by_tile::run(programs, buffers.all(), &mut workspace, &claims, goes_on) };
        };
        pool.run(|| work(0, goes_on), &|helper| work(helper, &mut || true));
        !claims.was_stopped()
    }

    unsafe fn run_by_rank(
        &mut self,
        pass: Pass<'_>,
        buffers: &[Buffers],
        deadline: Deadline,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        self.world.make_staging(pass.first().staging_bytes())?;
        self.number = self.number.wrapping_add(1);
        let (own, outcomes) = (Shared(buffers), &self.outcomes);
        let (crews, world, number) = (&self.crews, &self.world, self.number);
        let begun = AtomicUsize::new(0);
        let work = |worker: usize, is_interrupted: &mut dyn FnMut() -> bool| {
            let Some(crew) = crews.get(worker) else { return };
            // Relaxed: it orders nothing, it only keeps the door open.
            begun.fetch_add(1, Ordering::Relaxed);
            let _environment = FloatEnvironment::round_to_nearest();
            let mut crew = lock(crew);
            let mut patience = Patience { deadline, is_interrupted };
            // SAFETY: the caller of `Node::run` vouches for the buffers.
            let outcome = unsafe { crew.run(world, pass, number, own.all(), &mut patience) };
            *lock(&outcomes[worker]) = outcome;
        };
        let pool = self.pool.as_mut().expect("prepare made it");
        let mine = || {
            work(0, is_interrupted);
            // Ranks that need nothing of others may be through before a helper has woken up for its own.
            while begun.load(Ordering::Relaxed) < crews.len() {
                give_way();
            }
        };
        pool.run(mine, &|helper| work(helper, &mut || false));
        let outcome = self.take_outcome();
        if outcome.is_err() {
            // The abort word stays raised: a new world takes the old one's place.
            self.pool = None;
        }
        outcome
    }

    /// Returns the error of the crew that failed first: the others say that they were aborted.
    fn take_outcome(&mut self) -> Result<()> {
        let outcomes = self.outcomes.iter_mut().map(|o| o.get_mut().unwrap_or_else(PoisonError::into_inner));
        let taken = outcomes.map(|outcome| std::mem::replace(outcome, Ok(())));
        let rank = |outcome: &Result<()>| match outcome {
            Ok(()) => 2,
            Err(Error::Aborted { .. }) => 1,
            Err(_) => 0,
        };
        taken.min_by_key(rank).unwrap_or(Ok(()))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use nvcoll_core::collective::ALL_REDUCE;
    use nvcoll_core::dtype::DType;
    use nvcoll_core::op::Op;
    use nvcoll_core::schedule::{Aliasing, Path};

    /// Runs a call, by rank, as number `number`, of four ranks with 1, 2, 3 and 4; returns what they hold then.
    fn run_as(node: &Node, number: u32, algorithm: &str, path: Path) -> [[i32; 100]; 4] {
        let (dtype, op, aliasing) = (DType::I32, Op::Sum, Aliasing::InPlace);
        let call = Call {
            collective: &ALL_REDUCE,
            algorithm: algorithm.into(),
            dtype,
            op,
            counts: Counts::Even(100),
            root: 0,
            path,
            aliasing,
        };
        let program = node.program_of_rank(&call, None).unwrap();
        let mut data = [1, 2, 3, 4].map(|value| [value; 100]);
        let buffers = data.each_mut().map(|x| {
            let start: *mut u8 = x.as_mut_ptr().cast();
            Buffers::new(start, start, 1.0)
        });
        let mut driver = node.driver.take().unwrap();
        driver.prepare(4, 1, program.scratch_bytes()).unwrap();
        driver.number = number.wrapping_sub(1);
        // SAFETY: four live arrays of a hundred integers, in place.
        unsafe { driver.run_by_rank(Pass::of_one(&program), &buffers, Deadline::after(Some(60.0)), &mut || false) }
            .unwrap();
        data
    }

    #[test]
    fn queues_that_were_not_used_for_2_to_the_31_calls_are_waited_for_and_numbers_wrap() {
        // One worker, which does what it takes for ready in the same order every time.
        let node = Node::new(4, Some(1)).unwrap();
        // A rank makes every call; those that change nothing are left out here.
        for number in [1, 1 << 30, 2 << 30, (2 << 30) + 1, 3 << 30, u32::MAX, 0, 1, 1 << 30, 2 << 30, (2 << 30) + 9] {
            let (algorithm, path) = if number % 2 == 1 { ("ring", Path::Staged) } else { ("nvswitch", Path::Mapped) };
            assert_eq!(run_as(&node, number, algorithm, path), [[10; 100]; 4], "call {number:#x}, {algorithm}");
        }
    }
}

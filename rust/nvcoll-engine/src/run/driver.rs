//! The driver of a node: the threads, the words and the memory by which one caller drives all ranks. One call at a time uses it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::auto::work_split::{wants_help, WorkSplit};
use crate::deadline::{Deadline, WaitLimit};
use crate::error::{Error, Result};
use crate::kernel::FloatEnvironment;
use crate::memory::block::MemoryBlock;
use crate::memory::buffers::Buffers;
use crate::memory::world::World;
use crate::program::batch::Pass;
use crate::program::store_choice::{Streaming, TimedStores};
use crate::program::{Program, Workspace};
use crate::run::by_rank::RankWorker;
use crate::run::by_tile::{self, Claims};
use crate::run::pool::Pool;
use crate::run::wait::now;
use crate::sync::condition::IsInterrupted;
use crate::sync::{Backoff, Doorbell};

/// The threads, words and memory of one call.
pub(crate) struct Driver {
    pool: Option<Pool>,
    world: World,
    number: u32,
    rank_workers: Vec<Mutex<RankWorker>>,
    workspaces: Vec<Mutex<Workspace>>,
    outcomes: Vec<Mutex<Result<()>>>,
    scratch: Vec<MemoryBlock>,
}

impl Driver {
    /// Makes a driver of `world_size` ranks, with the threads of a pool or with the caller's thread alone.
    pub(crate) fn new(world_size: u32, pool: Option<Pool>) -> Self {
        let workers = pool.as_ref().map_or(1, Pool::workers);
        let block = world_size.div_ceil(workers as u32);
        let rank_worker = |first: u32| RankWorker::new(world_size, first..(first + block).min(world_size), block);
        Self {
            pool,
            world: World::new(world_size),
            number: 0,
            rank_workers: (0..world_size).step_by(block as usize).map(|first| Mutex::new(rank_worker(first))).collect(),
            workspaces: (0..workers).map(|_| Mutex::default()).collect(),
            outcomes: (0..workers).map(|_| Mutex::new(Ok(()))).collect(),
            scratch: Vec::new(),
        }
    }

    /// Starts the pool if this process has none, and returns at least `scratch_bytes` of scratch for each rank.
    pub(crate) fn prepare(&mut self, world_size: u32, workers: usize, scratch_bytes: usize) -> Result<&[MemoryBlock]> {
        if self.pool.as_ref().is_none_or(|pool| !pool.is_of_this_process()) {
            self.start(world_size, workers);
        }
        if self.scratch.first().map_or(0, MemoryBlock::bytes) < scratch_bytes {
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
        let blocks: Option<Vec<MemoryBlock>> = (0..world_size).map(|_| MemoryBlock::try_zeroed(bytes)).collect();
        self.scratch = blocks.ok_or(Error::NoMemory { what: "scratch", bytes })?;
        Ok(())
    }

    /// Runs the calls of a pass for all ranks, after [`Driver::prepare`].
    ///
    /// # Safety
    /// As `Node::run`, for every call of the pass.
    ///
    /// # Errors
    /// As `Node::run`.
    pub(crate) unsafe fn run_pass(
        &mut self,
        pass: Pass<'_>,
        buffers: &[Buffers],
        deadline: Deadline,
        is_interrupted: IsInterrupted<'_>,
    ) -> Result<()> {
        // SAFETY: both demand what this function does; the path of the call says which of the two it is.
        unsafe {
            match WorkSplit::of(pass.first().call().path) {
                WorkSplit::ByTile => self.run_by_tile(pass, buffers, deadline, is_interrupted),
                WorkSplit::ByRank => self.run_by_rank(pass, buffers, deadline, is_interrupted),
            }
        }
    }

    /// Runs the calls of a pass by tile.
    ///
    /// # Safety
    /// As [`Driver::run_pass`]; the programs are mapped.
    unsafe fn run_by_tile(
        &mut self,
        pass: Pass<'_>,
        buffers: &[Buffers],
        deadline: Deadline,
        is_interrupted: IsInterrupted<'_>,
    ) -> Result<()> {
        let mut has_timed_out = false;
        let mut goes_on = || {
            has_timed_out = deadline.has_passed();
            !has_timed_out && !is_interrupted()
        };
        let stores = pass.stores().map(|choice| TimedStores::begin(choice, 0));
        let streaming = stores.as_ref().map_or(Streaming::Nothing, |stores| stores.kind);
        // SAFETY: this function demands what `run_pieces` does.
        let is_done = unsafe { self.run_pieces(pass.programs(), buffers, streaming, &mut goes_on) };
        match (is_done, has_timed_out) {
            (true, _) => {
                stores.into_iter().for_each(|stores| stores.learn(|| true));
                Ok(())
            }
            (false, true) => Err(deadline.error(pass.first().call().clone().into(), "not all steps were done")),
            (false, false) => Err(Error::Interrupted),
        }
    }

    /// Runs all pieces and says whether all were run. No piece begins after `goes_on` returned false.
    ///
    /// # Safety
    /// As [`Driver::run_by_tile`].
    #[inline]
    unsafe fn run_pieces(
        &mut self,
        programs: &[Arc<Program>],
        buffers: &[Buffers],
        streaming: Streaming,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> bool {
        let pool = self.pool.as_mut().expect("prepare made it");
        let workspaces = &mut self.workspaces;
        let bytes = programs.iter().map(|program| program.buffer_bytes()).sum();
        let claims = Claims::new(programs, workspaces.len());
        if !wants_help(bytes) || claims.pieces() == 1 || pool.workers() == 1 {
            let _environment = FloatEnvironment::round_to_nearest();
            let workspace = workspaces[0].get_mut().unwrap_or_else(PoisonError::into_inner);
            let ranks = buffers.len() / programs.len();
            let mut of_programs = programs.iter().zip(buffers.chunks_exact(ranks));
            let is_long = wants_help(bytes);
            return of_programs.all(|(program, buffers)| {
                workspace.fit(program, streaming);
                // SAFETY: the caller of `run` vouches for the buffers; the workspace fits.
                (!is_long || goes_on()) && unsafe { by_tile::run_alone(program, buffers, workspace, &mut *goes_on) }
            });
        }
        for workspace in &mut *workspaces {
            let workspace = workspace.get_mut().unwrap_or_else(PoisonError::into_inner);
            programs.iter().for_each(|program| workspace.fit(program, streaming));
        }
        let work = |worker: usize, goes_on: &mut dyn FnMut() -> bool| {
            let _environment = FloatEnvironment::round_to_nearest();
            let mut workspace = lock(&workspaces[worker]);
            // SAFETY: the caller vouches for the buffers; the workspace is this worker's and was fitted to every program;
            // all workers share `claims`.
            unsafe { by_tile::run(programs, buffers, &mut workspace, &claims, goes_on) };
        };
        pool.run(|| work(0, goes_on), &|helper| work(helper, &mut || true));
        !claims.was_stopped()
    }

    /// Runs the calls of a pass by rank.
    ///
    /// # Safety
    /// As [`Driver::run_pass`].
    unsafe fn run_by_rank(
        &mut self,
        pass: Pass<'_>,
        buffers: &[Buffers],
        deadline: Deadline,
        is_interrupted: IsInterrupted<'_>,
    ) -> Result<()> {
        self.world.make_staging(pass.first().staging_bytes())?;
        self.number = self.number.wrapping_add(1);
        let (rank_workers, world, number, outcomes) = (&self.rank_workers, &self.world, self.number, &self.outcomes);
        let (begun, arrivals) = (AtomicUsize::new(0), Doorbell::default());
        let work = |worker: usize, is_interrupted: IsInterrupted<'_>| {
            let Some(rank_worker) = rank_workers.get(worker) else { return };
            // Relaxed: it orders nothing, it only keeps the door open; ringing fences between it and a look who sleeps.
            begun.fetch_add(1, Ordering::Relaxed);
            if worker > 0 {
                Doorbell::ring_all([&arrivals]);
            }
            let _environment = FloatEnvironment::round_to_nearest();
            let mut rank_worker = lock(rank_worker);
            let mut limit = WaitLimit::new(deadline, is_interrupted);
            // SAFETY: the caller of `Node::run` vouches for the buffers.
            let outcome = unsafe { now(rank_worker.run(world, pass, None, number, buffers, &mut limit)) };
            *lock(&outcomes[worker]) = outcome;
        };
        // Out of its place, so that it does not come back if a worker panics: the abort word stays raised then too.
        let mut pool = self.pool.take().expect("prepare made it");
        let mine = || {
            work(0, is_interrupted);
            // Ranks that need nothing of others may be through before a helper has woken up for its own.
            let all_have_begun = || begun.load(Ordering::Relaxed) >= rank_workers.len();
            let mut backoff = Backoff::of_rank();
            while !all_have_begun() {
                backoff.wait(|| arrivals.sleep(all_have_begun, None));
            }
        };
        pool.run(mine, &|helper| work(helper, &mut || false));
        let outcome = self.take_outcome();
        if outcome.is_ok() {
            // Else the abort word stays raised, and a new world takes the old one's place.
            self.pool = Some(pool);
        }
        outcome
    }

    /// Returns the error of the worker that failed first; the others report an abort.
    fn take_outcome(&mut self) -> Result<()> {
        let outcomes = self.outcomes.iter_mut().map(|o| o.get_mut().unwrap_or_else(PoisonError::into_inner));
        let taken = outcomes.map(|outcome| std::mem::replace(outcome, Ok(())));
        let rank = |outcome: &Result<()>| match outcome {
            Ok(()) => 2,
            Err(Error::Aborted { .. } | Error::Exited { .. }) => 1,
            Err(_) => 0,
        };
        taken.min_by_key(rank).unwrap_or(Ok(()))
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use nvcoll_core::collective::ALL_REDUCE;
    use nvcoll_core::counts::Counts;
    use nvcoll_core::dtype::DType;
    use nvcoll_core::schedule::{Aliasing, Path};

    use super::*;
    use crate::call::Call;
    use crate::program::make::Programs;
    use crate::sync::single_flight::HoldsNoLock;

    /// Runs a call, by rank, as number `number`, of four ranks with 1, 2, 3 and 4; returns what they hold then.
    fn run_as(driver: &mut Driver, number: u32, algorithm: &str, path: Path) -> [[i32; 100]; 4] {
        let (dtype, aliasing, counts) = (DType::I32, Aliasing::InPlace, Counts::Even(100));
        let algorithm = algorithm.into();
        let call = Call { algorithm, dtype, counts, path, aliasing, ..Call::without_data(&ALL_REDUCE) };
        let program = Programs::new(4, 1).find_or_make(&call, WorkSplit::ByRank, 4, None, &HoldsNoLock).unwrap();
        let mut data = [1, 2, 3, 4].map(|value| [value; 100]);
        let buffers = data.each_mut().map(|x| {
            let start: *mut u8 = x.as_mut_ptr().cast();
            Buffers::new(start, start, 1.0)
        });
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
        let mut driver = Driver::new(4, None);
        // A rank makes every call; those that change nothing are left out here.
        for number in [1, 1 << 30, 2 << 30, (2 << 30) + 1, 3 << 30, u32::MAX, 0, 1, 1 << 30, 2 << 30, (2 << 30) + 9] {
            let (algorithm, path) = if number % 2 == 1 { ("ring", Path::Staged) } else { ("nvswitch", Path::Mapped) };
            assert_eq!(run_as(&mut driver, number, algorithm, path), [[10; 100]; 4], "call {number:#x}, {algorithm}");
        }
    }
}

//! The roofline: the speed of two hand-written nested loops over the same buffers. They share nothing with the kernels or the executor.
//! Benchmarks run them beside nvcoll, in the same rounds and on the same memory.
//!
//! ```text
//! thread t    for i in its share of 0..count:  sum = x[0][i] + x[1][i] + …  in order;  x[r][i] = sum  for every r
//! ```
//!
//! An in-place all-reduce must read and write every buffer once, and the loops do no more. There are no ranks, no schedule and no waits
//! between ranks. The threads exist before a run and sleep between runs. For a run they are woken, pinned to processors of their own,
//! and meet at a barrier. The clock starts after the barrier and stops when the last thread is done.
//!
//! Cost: `2 * n * count * 4` bytes. It has no other dtypes and ops.

mod handoff;
mod sum;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::system::processors;

pub use handoff::handoff;
pub use sum::StoreMode;

#[derive(Clone)]
struct SumJob {
    buffers: Vec<*mut f32>,
    count: usize,
    stores: StoreMode,
    /// The processors that the caller may use, beginning with its own.
    processors: Vec<usize>,
}

// SAFETY: a job is addresses; threads write disjoint index ranges of what they name, while `run` is borrowed.
unsafe impl Send for SumJob {}

impl SumJob {
    /// Moves the calling thread, number `thread` of the run, to a processor of its own. A woken thread often shares
    /// the processor of its waker, and two spinning threads on one processor measure the scheduler.
    fn pin(&self, thread: usize) {
        if let Some(&processor) = self.processors.get(thread % self.processors.len().max(1)) {
            processors::confine_this_thread(&[processor]);
        }
    }
}

/// The counters of all runs. They only grow: run `g` is over when each has grown as much as in `g` runs.
struct SumState {
    job: Mutex<Option<SumJob>>,
    /// The number of the run, or [`STOPPED`].
    run: AtomicUsize,
    arrived: AtomicUsize,
    started: AtomicUsize,
    finished: AtomicUsize,
    threads: usize,
}

const STOPPED: usize = usize::MAX;

/// The number of spins before a waiting thread yields. Chosen: longer than a barrier takes where every thread has a
/// processor.
const SPINS: u32 = 1 << 14;

/// Threads that wait to add up buffers. Dropping it joins them.
pub struct Roofline {
    shared: Arc<SumState>,
    helpers: Vec<JoinHandle<()>>,
    n: usize,
    runs: usize,
}

impl Roofline {
    /// Starts `threads - 1` threads (the caller is the first) for `n` buffers.
    ///
    /// # Panics
    /// If `threads` or `n` is 0, or a thread cannot be started.
    pub fn new(threads: usize, n: usize) -> Self {
        assert!(threads > 0 && n > 0, "{threads} threads and {n} buffers: pass at least one of each");
        let counter = || AtomicUsize::new(0);
        let (run, arrived, started, finished) = (counter(), counter(), counter(), counter());
        let shared = Arc::new(SumState { job: Mutex::new(None), run, arrived, started, finished, threads });
        let start = |thread| {
            let shared = shared.clone();
            std::thread::spawn(move || shared.serve(thread))
        };
        let helpers = (1..threads).map(start).collect();
        Self { shared, helpers, n, runs: 0 }
    }

    /// Sums `count` floats of every buffer into every buffer; returns the time that took.
    ///
    /// # Panics
    /// If there are not `n` buffers.
    ///
    /// # Safety
    /// Buffers are disjoint, aligned to 4 bytes, and valid for reads and writes of `count` floats that nobody else touches.
    pub unsafe fn run(&mut self, buffers: &[*mut f32], count: usize, stores: StoreMode) -> Duration {
        assert_eq!(buffers.len(), self.n, "the roofline was made for another number of buffers");
        self.runs += 1;
        let processors = processors::allowed();
        let job = SumJob { buffers: buffers.to_vec(), count, stores, processors };
        *self.shared.lock() = Some(job.clone());
        // Release: pairs with the Acquire in `next_run`.
        self.shared.run.store(self.runs, Ordering::Release);
        self.helpers.iter().for_each(|helper| helper.thread().unpark());
        job.pin(0);
        // Acquire: pairs with the Release of each helper that arrives, in `serve`.
        wait_until(|| self.shared.arrived.load(Ordering::Acquire) == self.runs * self.helpers.len());
        let start = Instant::now();
        // Release: pairs with the Acquire in `serve`.
        self.shared.started.store(self.runs, Ordering::Release);
        // SAFETY: this function demands what `sum_share` does; the first share is this thread's alone.
        unsafe { self.shared.sum_share(&job, 0) };
        // Acquire: pairs with the Release in `serve`; the sums of all threads are visible afterwards.
        wait_until(|| self.shared.finished.load(Ordering::Acquire) == self.runs * self.helpers.len());
        let time = start.elapsed();
        processors::confine_this_thread(&job.processors);
        time
    }
}

impl SumState {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<SumJob>> {
        self.job.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, thread: usize) {
        let mut last = 0;
        while let Some(run) = self.next_run(last) {
            last = run;
            let job = self.lock().clone().expect("a run has a job");
            job.pin(thread);
            // Release: pairs with the Acquire of the caller, who then starts the clock.
            self.arrived.fetch_add(1, Ordering::Release);
            // Acquire: pairs with the Release in `run`.
            wait_until(|| self.started.load(Ordering::Acquire) == run);
            // SAFETY: the caller of `run` vouches for the buffers until `finished` is counted; the share is this thread's.
            unsafe { self.sum_share(&job, thread) };
            // Release: pairs with the Acquire in `run`; the sums of this thread come before it.
            self.finished.fetch_add(1, Ordering::Release);
        }
    }

    /// Sleeps until there is a run other than `last`; `None` when the roofline is dropped.
    fn next_run(&self, last: usize) -> Option<usize> {
        loop {
            // Acquire: pairs with the Releases in `run` and `drop`.
            match self.run.load(Ordering::Acquire) {
                STOPPED => return None,
                run if run != last => return Some(run),
                _ => std::thread::park(),
            }
        }
    }

    /// Sums the share of one thread.
    ///
    /// # Safety
    /// What [`Roofline::run`] demands, and no other thread has this share.
    unsafe fn sum_share(&self, job: &SumJob, thread: usize) {
        let share = job.count.div_ceil(self.threads).next_multiple_of(64);
        let range = (share * thread).min(job.count)..(share * (thread + 1)).min(job.count);
        // SAFETY: `Roofline::run` demands `count` elements of every buffer; shares are disjoint and end at the count.
        unsafe { sum::sum(&job.buffers, range, job.stores) };
    }
}

impl Drop for Roofline {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `next_run`.
        self.shared.run.store(STOPPED, Ordering::Release);
        for helper in self.helpers.drain(..) {
            helper.thread().unpark();
            let _ = helper.join();
        }
    }
}

fn wait_until(condition: impl Fn() -> bool) {
    let mut spins = 0;
    while !condition() {
        spins += 1;
        if spins < SPINS {
            std::hint::spin_loop()
        } else {
            std::thread::yield_now()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roofline_sums_what_it_is_given_wherever_it_lies() {
        for (threads, n) in [(1, 1), (1, 2), (2, 3), (3, 4), (2, 8), (2, 9)] {
            let mut roofline = Roofline::new(threads, n);
            for (count, skew) in [(0, 0), (1, 0), (63, 1), (1003, 0), (1003, 1), (20_000, 0), (20_000, 5)] {
                for stores in [StoreMode::Plain, StoreMode::NonTemporal] {
                    let fill =
                        |r: usize| (0..count + n * skew).map(move |i| i.wrapping_sub(r * skew) as f32 + r as f32);
                    let mut memory: Vec<Vec<f32>> = (0..n).map(|r| fill(r).collect()).collect();
                    let at = |(r, x): (usize, &mut Vec<f32>)| x[r * skew..].as_mut_ptr();
                    let buffers: Vec<*mut f32> = memory.iter_mut().enumerate().map(at).collect();
                    // SAFETY: live vectors with `count` floats from the addresses on.
                    unsafe { roofline.run(&buffers, count, stores) };
                    for (r, x) in memory.iter().enumerate() {
                        let mut sums = x[r * skew..][..count].iter().enumerate();
                        assert!(sums.all(|(i, sum)| *sum == (n * i + n * (n - 1) / 2) as f32), "{threads} {n}");
                    }
                }
            }
        }
    }
}

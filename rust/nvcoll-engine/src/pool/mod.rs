//! Worker threads that help the calling thread.
//!
//! ```text
//! caller   publish job ─▶ wake those asleep ─▶ do my share ─▶ close the door ─▶ wait for those inside
//! helper   linger ─▶ asleep ─▶ job seen: enter if the door is open ─▶ do my share ─▶ leave
//! ```
//!
//! A helper that comes too late finds the door closed and the caller does not wait for it, so a call never takes longer
//! for having been offered help. A helper lingers [`LINGER`] after its last job, giving way to others, before it sleeps:
//! waking a sleeper costs tens of microseconds, a lingering one costs a cache miss. The door is one word: open bit, job
//! number, number of helpers inside. This sharing of work among workers is not part of the ranks' protocol.

mod seats;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::forks::Process;
use seats::Seats;

/// How long a helper stays awake after a job, giving way to everybody. Chosen: a few times what calls in a row are apart.
const LINGER: Duration = Duration::from_millis(2);

const OPEN: u64 = 1 << 63;
const INSIDE: u64 = 0xffff;
const ONE_JOB: u64 = 1 << 16;

/// What a helper does: called with its number, from 1.
type Job<'a> = dyn Fn(usize) + Sync + 'a;

struct Shared {
    /// Open bit, job number, helpers inside.
    door: AtomicU64,
    /// The job of the open door; written only while the door is closed and nobody is inside.
    job: Mutex<Option<&'static Job<'static>>>,
    is_stopping: AtomicBool,
    has_panicked: AtomicBool,
    sleeping: Vec<AtomicBool>,
}

/// A set of helpers.
pub struct Pool {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
    seats: Seats,
    process: Process,
}

impl Pool {
    /// Starts `helpers` threads.
    pub fn new(helpers: usize) -> Self {
        let shared = Arc::new(Shared {
            door: AtomicU64::new(0),
            job: Mutex::new(None),
            is_stopping: AtomicBool::new(false),
            has_panicked: AtomicBool::new(false),
            sleeping: (0..helpers).map(|_| AtomicBool::new(false)).collect(),
        });
        let start = |number: usize| {
            let shared = shared.clone();
            let name = format!("nvcoll-{}", number + 1);
            std::thread::Builder::new().name(name).spawn(move || shared.serve(number)).ok()
        };
        let helpers: Vec<_> = (0..helpers).filter_map(start).collect();
        let seats = Seats::take(&helpers);
        Self { shared, helpers, seats, process: Process::current() }
    }

    /// Returns the number of workers: the helpers and the caller.
    pub fn workers(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Says whether the helpers exist in this process: after a fork the child has none.
    pub fn is_of_this_process(&self) -> bool {
        self.process == Process::current()
    }

    /// Runs `mine` on the caller while every helper that comes in time runs `job`, with its number from 1.
    pub fn run(&mut self, mine: impl FnOnce(), job: &Job<'_>) {
        // SAFETY: the reference is forgotten (door closed, nobody inside, slot emptied) before this function returns or
        // unwinds, so no helper uses it longer than it lives.
        let job_of_helpers: &'static Job<'static> =
            unsafe { std::mem::transmute::<&Job<'_>, &'static Job<'static>>(job) };
        self.seats.give_way(&self.helpers);
        *self.shared.lock() = Some(job_of_helpers);
        let number = self.shared.door.load(Ordering::Relaxed) & !(OPEN | INSIDE);
        // SeqCst: pairs with the look at the door in `serve` after `sleeping` is set.
        self.shared.door.store(OPEN | (number.wrapping_add(ONE_JOB) & !(OPEN | INSIDE)), Ordering::SeqCst);
        for (sleeping, helper) in self.shared.sleeping.iter().zip(&self.helpers) {
            if sleeping.load(Ordering::SeqCst) {
                helper.thread().unpark();
            }
        }
        let outcome = catch_unwind(AssertUnwindSafe(mine));
        // AcqRel: Acquire pairs with the Release of helpers that leave.
        self.shared.door.fetch_and(!OPEN, Ordering::AcqRel);
        let mut turns = 0u32;
        while self.shared.door.load(Ordering::Acquire) & INSIDE != 0 {
            turns += 1;
            if turns < 200 {
                std::hint::spin_loop()
            } else {
                std::thread::yield_now()
            }
        }
        *self.shared.lock() = None;
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
        assert!(!self.shared.has_panicked.load(Ordering::Relaxed), "a worker panicked");
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<&'static Job<'static>>> {
        self.job.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn serve(&self, number: usize) {
        let mut last = 0;
        loop {
            let Some(door) = self.next_open_door(number, last) else { return };
            last = door & !(OPEN | INSIDE);
            if self.enter(last) {
                let job = *self.lock();
                if catch_unwind(AssertUnwindSafe(|| job.map(|job| job(number + 1)))).is_err() {
                    self.has_panicked.store(true, Ordering::Relaxed);
                }
                // Release: what the job wrote is visible to the caller, who waits for nobody inside with Acquire.
                self.door.fetch_sub(1, Ordering::Release);
            }
        }
    }

    /// Waits for a door other than `last` to open; `None` when the pool stops.
    fn next_open_door(&self, number: usize, last: u64) -> Option<u64> {
        let mut since = Instant::now();
        loop {
            let door = self.door.load(Ordering::Acquire);
            if self.is_stopping.load(Ordering::Acquire) {
                return None;
            }
            if door & OPEN != 0 && door & !(OPEN | INSIDE) != last {
                return Some(door);
            }
            if since.elapsed() < LINGER {
                (0..50).for_each(|_| std::hint::spin_loop());
                std::thread::yield_now();
                continue;
            }
            self.sleeping[number].store(true, Ordering::SeqCst);
            // SeqCst: pairs with the store of the door and the look at `sleeping` in `run`.
            if self.door.load(Ordering::SeqCst) == door && !self.is_stopping.load(Ordering::SeqCst) {
                std::thread::park_timeout(Duration::from_secs(1));
            }
            self.sleeping[number].store(false, Ordering::SeqCst);
            if self.door.load(Ordering::Relaxed) != door {
                since = Instant::now();
            }
        }
    }

    /// Goes in, if the door of that job is still open.
    fn enter(&self, job: u64) -> bool {
        let mut door = self.door.load(Ordering::Acquire);
        while door & OPEN != 0 && door & !(OPEN | INSIDE) == job {
            // Acquire: pairs with the Release in the store of the door.
            match self.door.compare_exchange_weak(door, door + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(found) => door = found,
            }
        }
        false
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::SeqCst);
        let is_of_this_process = self.is_of_this_process();
        for helper in self.helpers.drain(..) {
            if is_of_this_process {
                helper.thread().unpark();
                let _ = helper.join();
            } else {
                std::mem::forget(helper);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn every_unit_of_work_is_done_once_whether_or_not_helpers_come() {
        let mut pool = Pool::new(3);
        for round in 0..2000 {
            let next = AtomicUsize::new(0);
            let sum = AtomicUsize::new(0);
            let work = || loop {
                let unit = next.fetch_add(1, Ordering::Relaxed);
                if unit >= 100 {
                    break;
                }
                sum.fetch_add(unit, Ordering::Relaxed);
            };
            pool.run(work, &|_| work());
            assert_eq!(sum.load(Ordering::Relaxed), 4950);
            if round % 500 == 0 {
                std::thread::sleep(LINGER * 2);
            }
        }
    }

    #[test]
    fn a_panic_of_the_caller_s_share_passes_through_and_the_pool_goes_on() {
        let mut pool = Pool::new(1);
        assert!(catch_unwind(AssertUnwindSafe(|| pool.run(|| panic!("mine"), &|_| {}))).is_err());
        pool.run(|| {}, &|_| {});
    }
}

//! Helper threads of the calling thread.
//!
//! ```text
//! caller   publish the job ─▶ wake sleeping helpers ─▶ do a share ─▶ close the door ─▶ wait for helpers inside
//! helper   linger ─▶ sleep ─▶ job seen: enter if the door is open ─▶ do a share ─▶ leave
//! ```
//!
//! A helper that comes too late finds the door closed, and the caller does not wait for it. So an offer of help never makes a call
//! longer. A helper lingers after its last job, yielding to other threads, before it sleeps: waking a sleeping helper costs tens of
//! microseconds, a lingering one costs a cache miss. The pool is not part of the ranks' protocol.

pub mod door;
mod helper_placement;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::sync::atomic::{pause, AtomicBool, Ordering};
use crate::sync::backoff::{give_way, Backoff, Next};
use crate::sync::Doorbell;
use crate::system::process::Process;
use door::{Door, DoorState};
use helper_placement::HelperPlacement;

/// The time that a helper stays awake after a job, yielding to other threads. Chosen: the distance between calls of a
/// training step. Measured: calls 2 to 5 ms apart, 1 MiB from each of two ranks, took 1.8 times as long if they met a
/// sleeping helper.
const LINGER: Duration = Duration::from_millis(20);

/// The number of looks at the door before a lingering helper yields. Chosen: a pause may take 140 cycles.
const LOOKS: u32 = 50;

/// Pauses and turns of a caller that waits for helpers to leave, before it sleeps. Chosen.
const PAUSES: u32 = 200;
const TURNS: u32 = 100;

/// The longest sleep of a helper, which bounds the harm of a lost signal. Chosen.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The work of a helper, called with its number, from 1.
type HelperJob<'a> = dyn Fn(usize) + Sync + 'a;

struct PoolState {
    door: Door,
    /// The job on offer. It is written only while the door is closed and no helper is inside.
    job: Mutex<Option<&'static HelperJob<'static>>>,
    is_stopping: AtomicBool,
    has_panicked: AtomicBool,
    sleeping: Vec<AtomicBool>,
    /// The doorbell of the caller that waits for helpers to leave; each leaving helper rings.
    left: Doorbell,
}

/// A set of helpers.
pub struct Pool {
    shared: Arc<PoolState>,
    helpers: Vec<JoinHandle<()>>,
    placement: HelperPlacement,
    process: Process,
}

impl Pool {
    /// Starts `helpers` threads.
    pub fn new(helpers: usize) -> Self {
        let shared = Arc::new(PoolState {
            door: Door::default(),
            job: Mutex::new(None),
            is_stopping: AtomicBool::new(false),
            has_panicked: AtomicBool::new(false),
            sleeping: (0..helpers).map(|_| AtomicBool::new(false)).collect(),
            left: Doorbell::default(),
        });
        // Helpers have consecutive numbers: the first that the system refuses is the last that is asked for.
        let start = |number: usize| {
            let shared = shared.clone();
            let name = format!("nvcoll-{}", number + 1);
            std::thread::Builder::new().name(name).spawn(move || shared.serve(number)).ok()
        };
        let helpers: Vec<_> = (0..helpers).map_while(start).collect();
        let placement = HelperPlacement::take(&helpers);
        Self { shared, helpers, placement, process: Process::current() }
    }

    /// Returns the number of workers: the helpers and the caller.
    pub fn workers(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Says whether the helpers exist in this process: after a fork the child has none.
    pub fn is_of_this_process(&self) -> bool {
        self.process.is_current()
    }

    /// Runs `mine` on the caller while every helper that comes in time runs `job`, with its number from 1.
    pub fn run(&mut self, mine: impl FnOnce(), job: &HelperJob<'_>) {
        // SAFETY: the reference is forgotten (door closed, nobody inside, slot emptied) before this function returns or
        // unwinds, so no helper uses it longer than it lives.
        let job_of_helpers: &'static HelperJob<'static> =
            unsafe { std::mem::transmute::<&HelperJob<'_>, &'static HelperJob<'static>>(job) };
        self.placement.give_way(&self.helpers);
        *self.shared.lock() = Some(job_of_helpers);
        self.shared.door.open();
        for (sleeping, helper) in self.shared.sleeping.iter().zip(&self.helpers) {
            // Relaxed: `open` has fenced.
            if sleeping.load(Ordering::Relaxed) {
                helper.thread().unpark();
            }
        }
        let outcome = catch_unwind(AssertUnwindSafe(mine));
        self.shared.door.close();
        let mut backoff = Backoff::new(PAUSES, TURNS);
        while !self.shared.door.is_empty() {
            backoff.wait(|| self.shared.left.sleep(|| self.shared.door.is_empty(), None));
        }
        *self.shared.lock() = None;
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
        // Relaxed: the Acquire in `Door::is_empty` orders it after the store of a helper that has left.
        assert!(!self.shared.has_panicked.load(Ordering::Relaxed), "a worker panicked");
    }
}

impl PoolState {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<&'static HelperJob<'static>>> {
        self.job.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn serve(&self, number: usize) {
        let mut last = 0;
        loop {
            let Some(door) = self.next_open_door(number, last) else { return };
            last = door.job();
            if self.door.enter(last) {
                let job = *self.lock();
                if catch_unwind(AssertUnwindSafe(|| job.map(|job| job(number + 1)))).is_err() {
                    // Relaxed: the Release in `Door::leave` comes after it.
                    self.has_panicked.store(true, Ordering::Relaxed);
                }
                self.door.leave();
                Doorbell::ring_all([&self.left]);
            }
        }
    }

    /// Looks for a change for about a microsecond, then gives way; says whether to go on so rather than sleep.
    fn linger(&self, door: DoorState, backoff: &mut Backoff) -> bool {
        for _ in 0..LOOKS {
            if self.door.look() != door {
                return true;
            }
            pause();
        }
        let is_awake = backoff.look() == Next::GiveWay;
        if is_awake {
            give_way();
        }
        is_awake
    }

    /// Waits for a door other than `last` to open; `None` when the pool stops.
    fn next_open_door(&self, number: usize, last: u64) -> Option<DoorState> {
        let mut since = Instant::now();
        // However many turns it gives away, a helper sleeps after the first that comes back late.
        let mut backoff = Backoff::new(0, u32::MAX);
        loop {
            let door = self.door.look();
            // Relaxed: the flag orders nothing; whoever sets it wakes every helper and joins it.
            if self.is_stopping.load(Ordering::Relaxed) {
                return None;
            }
            if door.is_open() && door.job() != last {
                return Some(door);
            }
            if since.elapsed() < LINGER && self.linger(door, &mut backoff) {
                continue;
            }
            self.door.doze(door, &self.sleeping[number], || std::thread::park_timeout(LONGEST_SLEEP));
            if self.door.look() != door {
                since = Instant::now();
                backoff = Backoff::new(0, u32::MAX);
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Relaxed: a helper that misses it finds itself woken, does not sleep, and looks again.
        self.shared.is_stopping.store(true, Ordering::Relaxed);
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

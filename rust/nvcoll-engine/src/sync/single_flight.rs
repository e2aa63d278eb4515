//! Single-flight: of several threads that need the same value, one makes it and the others wait for it.
//!
//! ```text
//! find ─ there ────▶ done
//!      └ not there ─ nobody makes it ─▶ make ─▶ wake the waiting threads ─▶ done
//!                  └ somebody does ───▶ wait, unlocked ─▶ find again
//! ```
//!
//! A proof for a thousand ranks takes seconds, and a thousand ranks need it at once. Making and waiting run *unlocked*: a caller that
//! holds a lock which others need, such as Python's, releases it meanwhile. The table of values in flight is locked only for a look-up,
//! never while unlocked. So a thread that forks while it holds the caller's lock leaves no locked table in the child, and entries of
//! the parent count for nothing there. A thread never waits for itself: a maker that asks for its own value (Python code may run where
//! an exception is made) makes it once more.
//!
//! A waiting thread asks its own caller now and then whether to stop, as a maker does.
//!
//! It keeps no values (the caller's `find` and `make` do) and passes on no errors: a thread that waited for a failed maker makes the
//! value itself.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use nvcoll_core::interrupt::{Interrupt, Interrupted, UNITS_PER_QUESTION};

use super::condition::{wait_until, WaitEnd};
use crate::system::process::Process;

/// The way in which a caller runs long work: with its lock released.
pub trait Unlocked {
    /// Runs the work on the calling thread. The caller's lock is free meanwhile, and held again afterwards.
    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T;

    /// Returns the question by which the caller stops such work. By default, the caller never stops it.
    fn interrupt(&self) -> Interrupt {
        Interrupt::never()
    }
}

/// The choice of callers that hold no lock.
#[derive(Debug, Clone, Copy)]
pub struct HoldsNoLock;

impl Unlocked for HoldsNoLock {
    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        work()
    }
}

/// The values that are being made, by key.
#[derive(Debug)]
pub struct SingleFlight<K: Eq + Hash + Clone>(Mutex<Option<HashMap<K, Arc<InFlight>>>>);

/// A value that a thread is making.
#[derive(Debug)]
struct InFlight {
    process: Process,
    thread: ThreadId,
    is_over: Mutex<bool>,
    over: Condvar,
}

/// The right to make a value, and the duty to wake the waiting threads.
struct Leader<'a, K: Eq + Hash + Clone> {
    flights: &'a SingleFlight<K>,
    key: &'a K,
    making: Arc<InFlight>,
}

impl<K: Eq + Hash + Clone> SingleFlight<K> {
    /// Returns a table in which nothing is being made.
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Returns the value that `find` finds, if need be after `make` has made and kept it, on this thread or another.
    ///
    /// # Errors
    /// As `make`; [`Interrupted`] if the caller stops the wait for another thread.
    pub fn find_or_make<V, E: From<Interrupted>>(
        &self,
        key: &K,
        unlocked: &impl Unlocked,
        find: impl Fn() -> Option<V>,
        make: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, E> {
        loop {
            if let Some(found) = find() {
                return Ok(found);
            }
            match self.begin(key) {
                Ok(_leader) => return make(),
                Err(making) => {
                    let interrupt = unlocked.interrupt();
                    unlocked.run(|| making.wait(&interrupt))?;
                }
            }
        }
    }

    /// Begins to make a value, unless another thread of this process does.
    fn begin<'a>(&'a self, key: &'a K) -> Result<Leader<'a, K>, Arc<InFlight>> {
        let (process, thread) = (Process::current(), std::thread::current().id());
        let mut table = lock(&self.0);
        let table = table.get_or_insert_default();
        if let Some(making) = table.get(key).filter(|making| making.process == process && making.thread != thread) {
            return Err(making.clone());
        }
        let making = Arc::new(InFlight { process, thread, is_over: Mutex::new(false), over: Condvar::new() });
        table.insert(key.clone(), making.clone());
        Ok(Leader { flights: self, key, making })
    }
}

impl<K: Eq + Hash + Clone> Default for SingleFlight<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl InFlight {
    /// Waits until the maker has made the value or given up.
    fn wait(&self, interrupt: &Interrupt) -> Result<(), Interrupted> {
        let is_interrupted = || interrupt.check(UNITS_PER_QUESTION as usize).is_err();
        match wait_until(&self.is_over, &self.over, |&is_over| is_over, None, is_interrupted) {
            WaitEnd::Interrupted => Err(Interrupted),
            _ => Ok(()),
        }
    }
}

impl<K: Eq + Hash + Clone> Drop for Leader<'_, K> {
    fn drop(&mut self) {
        lock(&self.flights.0).as_mut().map(|table| table.remove(self.key));
        *lock(&self.making.is_over) = true;
        self.making.over.notify_all();
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{mpsc, Barrier, OnceLock};

    #[test]
    fn threads_that_want_the_same_at_once_make_it_once() {
        let (flights, made, value) = (SingleFlight::new(), AtomicU32::new(0), OnceLock::new());
        let together = Barrier::new(8);
        let make = || {
            made.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(20));
            Ok::<u32, Interrupted>(*value.get_or_init(|| 7))
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    together.wait();
                    assert_eq!(flights.find_or_make(&"key", &HoldsNoLock, || value.get().copied(), make), Ok(7));
                });
            }
        });
        assert_eq!(made.into_inner(), 1);
    }

    /// An error of a maker, or the end of a wait.
    #[derive(Debug, PartialEq)]
    enum Unmade {
        Refuted,
        Interrupted,
    }

    impl From<Interrupted> for Unmade {
        fn from(_: Interrupted) -> Self {
            Self::Interrupted
        }
    }

    #[test]
    fn a_maker_that_fails_or_panics_leaves_the_turn_to_the_next() {
        let flights = SingleFlight::new();
        let make = |outcome: Result<u32, Unmade>| flights.find_or_make(&1, &HoldsNoLock, || None, || outcome);
        assert_eq!(make(Err(Unmade::Refuted)), Err(Unmade::Refuted));
        let panicking =
            || flights.find_or_make(&1, &HoldsNoLock, || None::<u32>, || -> Result<u32, Unmade> { panic!("make") });
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panicking)).is_err());
        assert_eq!(make(Ok(3)), Ok(3));
    }

    #[test]
    fn a_maker_that_asks_for_what_it_makes_does_not_wait_for_itself() {
        let flights = SingleFlight::new();
        let make = |then: &dyn Fn() -> Result<u32, Unmade>| flights.find_or_make(&1, &HoldsNoLock, || None, then);
        assert_eq!(make(&|| make(&|| Ok(5))), Ok(5));
    }

    /// A caller that stops its work at the first question.
    struct Stops;

    impl Unlocked for Stops {
        fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
            work()
        }

        fn interrupt(&self) -> Interrupt {
            Interrupt::when(|| true)
        }
    }

    #[test]
    fn an_interrupt_ends_the_wait_for_a_maker() {
        let (flights, is_making) = (SingleFlight::new(), Barrier::new(2));
        let (stop, stopped) = mpsc::channel();
        let (flights, is_making) = (&flights, &is_making);
        std::thread::scope(|scope| {
            let make = move || {
                is_making.wait();
                stopped.recv_timeout(Duration::from_secs(30)).map_err(|_| Unmade::Refuted)
            };
            let maker = scope.spawn(move || flights.find_or_make(&1, &HoldsNoLock, || None, make));
            is_making.wait();
            let waited = flights.find_or_make(&1, &Stops, || None::<u32>, || Ok(0));
            stop.send(7).unwrap();
            assert_eq!((waited, maker.join().unwrap()), (Err(Unmade::Interrupted), Ok(7)));
        });
    }
}

//! The lane of a communicator: calls that were issued run there one after the other, on a thread of their own.
//!
//! ```text
//! issue      push a call                     the first one starts the thread `nvcoll-async`
//! call       wait until the lane is empty    so that the order of issue is the order of execution
//! end        close the lane                  the thread ends after the last call, and is joined
//! ```
//!
//! One thread per communicator: calls of one communicator run in order, those of several side by side. So two ranks that use two
//! communicators in opposite order finish, and the only code that waits for peers is that of calls which block. Its thread spins
//! briefly in a wait and then sleeps, like every rank (`sync/backoff.rs`); between calls it sleeps.
//!
//! Cost of a call while nothing is in flight: one load. What it does not do: run calls of one communicator side by side.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};

use crate::deadline::WaitLimit;
use crate::error::{Error, Result};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::condition::{wait_until, WaitEnd};

/// The stack of the thread. Chosen: it runs the same calls as the threads of users, with room for Python where it reports. Only what is
/// touched takes memory.
const STACK_BYTES: usize = 1 << 20;

/// A call that was issued.
type IssuedCall = Box<dyn FnOnce() + Send>;

/// The lane of one rank in one communicator.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    shared: Arc<LaneState>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct LaneState {
    /// Calls that were issued and are not over.
    in_flight: AtomicU32,
    thread: OnceLock<ThreadId>,
    queue: Mutex<LaneQueue>,
    changed: Condvar,
}

#[derive(Default)]
struct LaneQueue {
    calls: VecDeque<IssuedCall>,
    is_closed: bool,
}

impl std::fmt::Debug for LaneState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} calls in flight", self.in_flight.load(Ordering::Relaxed))
    }
}

impl Lane {
    /// Runs a call after those that were issued before.
    ///
    /// # Errors
    /// [`Error::System`] if there can be no thread.
    pub(crate) fn push(&self, call: IssuedCall) -> Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            *thread = Some(start(self.shared.clone())?);
        }
        let mut queue = self.shared.lock();
        queue.calls.push_back(call);
        // Relaxed: who issued the call sees its own addition; the lock orders the rest.
        self.shared.in_flight.fetch_add(1, Ordering::Relaxed);
        drop(queue);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Says whether calls are in flight.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        // Acquire: pairs with the Release in `run`, so that the locks of a call that is over are seen free.
        self.shared.in_flight.load(Ordering::Acquire) != 0
    }

    /// Says whether this is the thread of the lane.
    pub(crate) fn is_own_thread(&self) -> bool {
        self.shared.thread.get() == Some(&thread::current().id())
    }

    /// Waits until no call is in flight.
    pub(crate) fn wait_until_empty(&self, limit: &mut WaitLimit<'_>) -> WaitEnd {
        let (queue, changed) = (&self.shared.queue, &self.shared.changed);
        wait_until(queue, changed, |_| !self.is_busy(), limit.deadline.at(), &mut *limit.is_interrupted)
    }

    /// Forgets the thread, which the child of a fork does not have.
    pub(crate) fn forget(&mut self) {
        std::mem::forget(self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Ends the thread after the calls in flight, and waits for it, unless this is it.
    pub(crate) fn close(&self) {
        let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        self.shared.lock().is_closed = true;
        self.shared.changed.notify_all();
        if !self.is_own_thread() {
            thread.join().expect("calls that panic are caught");
        }
    }
}

impl LaneState {
    fn lock(&self) -> MutexGuard<'_, LaneQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next call; `None` when the lane is closed and empty.
    fn next(&self) -> Option<IssuedCall> {
        let mut queue = self.lock();
        loop {
            if let Some(call) = queue.calls.pop_front() {
                return Some(call);
            }
            if queue.is_closed {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn run(&self) {
        self.thread.get_or_init(|| thread::current().id());
        while let Some(call) = self.next() {
            // The issuer's call catches its own panics; one that comes through must not stop the calls behind it.
            _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
            let _queue = self.lock();
            // Release: pairs with the Acquire in `is_busy`.
            self.in_flight.fetch_sub(1, Ordering::Release);
            self.changed.notify_all();
        }
    }
}

fn start(shared: Arc<LaneState>) -> Result<JoinHandle<()>> {
    let made = thread::Builder::new().name("nvcoll-async".into()).stack_size(STACK_BYTES).spawn(move || shared.run());
    made.map_err(|error| Error::System {
        what: "no thread for calls that return at once: end threads, or leave `async_op` out".into(),
        number: error.raw_os_error().unwrap_or(0),
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::deadline::Deadline;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    fn empty(lane: &Lane, seconds: Option<f64>, is_interrupted: bool) -> WaitEnd {
        let deadline = Deadline::after(seconds);
        lane.wait_until_empty(&mut WaitLimit { deadline, is_interrupted: &mut || is_interrupted })
    }

    #[test]
    fn calls_run_in_order_and_a_panic_stops_none_behind_it() {
        let (lane, (ran, calls)) = (Lane::default(), channel());
        for nth in 0..100 {
            let ran = ran.clone();
            let call = move || {
                ran.send(nth).unwrap();
                assert_ne!(nth, 50, "a call that panics");
            };
            lane.push(Box::new(call)).unwrap();
        }
        assert_eq!(empty(&lane, Some(30.0), false), WaitEnd::Over);
        assert_eq!(calls.try_iter().collect::<Vec<_>>(), Vec::from_iter(0..100));
        lane.close();
    }

    #[test]
    fn a_wait_for_an_empty_lane_ends_at_its_deadline_or_when_the_user_interrupts() {
        let (lane, (go, gone)) = (Lane::default(), channel::<()>());
        lane.push(Box::new(move || gone.recv().unwrap())).unwrap();
        assert_eq!(empty(&lane, Some(0.005), false), WaitEnd::TimedOut);
        assert_eq!(empty(&lane, None, true), WaitEnd::Interrupted);
        go.send(()).unwrap();
        assert_eq!(empty(&lane, Some(30.0), false), WaitEnd::Over);
        lane.close();
    }

    #[test]
    fn nothing_is_locked_while_a_waiting_thread_asks_whether_to_stop() {
        let (lane, (go, gone)) = (Lane::default(), channel::<()>());
        lane.push(Box::new(move || gone.recv().unwrap())).unwrap();
        let mut is_interrupted = || lane.push(Box::new(|| ())).is_ok();
        let mut limit = WaitLimit { deadline: Deadline::default(), is_interrupted: &mut is_interrupted };
        assert_eq!(lane.wait_until_empty(&mut limit), WaitEnd::Interrupted);
        go.send(()).unwrap();
        lane.close();
    }

    #[test]
    fn a_lane_that_is_closed_on_its_own_thread_runs_its_calls_and_ends() {
        let (lane, (done, over)) = (Arc::new(Lane::default()), channel());
        let own = lane.clone();
        let close_here = move || {
            own.close();
            done.send(()).unwrap();
        };
        lane.push(Box::new(close_here)).unwrap();
        over.recv_timeout(Duration::from_secs(30)).unwrap();
    }
}

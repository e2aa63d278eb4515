//! The calls that a member was given and whose callers go on. They run one after the other, in the order of issue.
//!
//! ```text
//! issue      push a call                     the progress thread polls the first one
//! call       wait until none is left         so that the order of issue is the order of execution
//! end        the member departs in turn      its departure is the last of them
//! ```
//!
//! A call waits for no thread, so that calls of several communicators of one rank run side by side: two ranks that use two
//! communicators in opposite order finish.
//!
//! Cost of a call while nothing is in flight: one load. What it does not do: run calls of one communicator side by side.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::deadline::WaitLimit;
use crate::run::wait::Advance;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::condition::{wait_until, WaitEnd};

/// A call that was issued.
pub(crate) type IssuedCall = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The issued calls of one rank in one communicator.
#[derive(Default)]
pub(crate) struct IssuedCalls {
    /// Calls that were issued and are not over.
    in_flight: AtomicU32,
    /// Without the call that the progress thread polls.
    waiting: Mutex<VecDeque<IssuedCall>>,
    over: Condvar,
}

impl std::fmt::Debug for IssuedCalls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} calls in flight", self.in_flight.load(Ordering::Relaxed))
    }
}

impl IssuedCalls {
    /// Adds a call after those that were issued before.
    pub(crate) fn push(&self, call: IssuedCall) {
        let mut waiting = self.lock();
        waiting.push_back(call);
        // Relaxed: who issued the call sees its own addition; the lock orders the rest.
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// Says whether calls are in flight.
    #[inline]
    pub(crate) fn are_in_flight(&self) -> bool {
        // Acquire: pairs with the Release in `advance`, so that the locks of a call that is over are seen free.
        self.in_flight.load(Ordering::Acquire) != 0
    }

    /// Waits until no call is in flight.
    pub(crate) fn wait_until_over(&self, limit: &mut WaitLimit<'_>) -> WaitEnd {
        let until = limit.deadline.at();
        wait_until(&self.waiting, &self.over, |_| !self.are_in_flight(), until, || limit.is_interrupted())
    }

    /// Polls the first call; `Over` if there is none. Only the progress thread does it.
    pub(crate) fn advance(&self, waker: &Waker) -> Advance {
        let first = self.lock().pop_front();
        let Some(mut first) = first else { return Advance::Over };
        // Unlocked: the call may take the lock of an interpreter, whose holder may issue the next one.
        let polled = catch_unwind(AssertUnwindSafe(|| first.as_mut().poll(&mut Context::from_waker(waker))));
        if polled.is_ok_and(|polled| polled.is_pending()) {
            self.lock().push_front(first);
            return Advance::Waits;
        }
        // Who issued the call catches its panics; one that comes through must not stop the calls behind it.
        drop(first);
        let _waiting = self.lock();
        // Release: pairs with the Acquire in `are_in_flight`.
        self.in_flight.fetch_sub(1, Ordering::Release);
        self.over.notify_all();
        Advance::Moved
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<IssuedCall>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes a call, and catches its panic.
pub async fn catching<T>(call: impl Future<Output = T>) -> std::thread::Result<T> {
    let mut call = std::pin::pin!(call);
    std::future::poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(context))) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::deadline::Deadline;
    use std::future::{pending, ready};
    use std::sync::mpsc::channel;

    fn over(calls: &IssuedCalls, seconds: Option<f64>, is_interrupted: bool) -> WaitEnd {
        calls.wait_until_over(&mut WaitLimit::new(Deadline::after(seconds), &mut || is_interrupted))
    }

    #[test]
    fn calls_run_in_order_and_a_panic_stops_none_behind_it() {
        let (calls, (ran, order)) = (IssuedCalls::default(), channel());
        for nth in 0..100 {
            let ran = ran.clone();
            calls.push(Box::pin(async move {
                ran.send(nth).unwrap();
                assert_ne!(nth, 50, "a call that panics");
            }));
        }
        while calls.advance(Waker::noop()) != Advance::Over {}
        assert_eq!(over(&calls, Some(30.0), false), WaitEnd::Over);
        assert_eq!(order.try_iter().collect::<Vec<_>>(), Vec::from_iter(0..100));
    }

    #[test]
    fn a_call_that_waits_keeps_those_behind_it_back() {
        let calls = IssuedCalls::default();
        calls.push(Box::pin(pending()));
        calls.push(Box::pin(ready(())));
        assert_eq!([(); 3].map(|()| calls.advance(Waker::noop())), [Advance::Waits; 3]);
        assert_eq!(over(&calls, Some(0.005), false), WaitEnd::TimedOut);
        assert_eq!(over(&calls, None, true), WaitEnd::Interrupted);
    }

    #[test]
    fn nothing_is_locked_while_a_waiting_thread_asks_whether_to_stop() {
        let calls = IssuedCalls::default();
        calls.push(Box::pin(pending()));
        let mut is_interrupted = || {
            calls.push(Box::pin(ready(())));
            true
        };
        let end = calls.wait_until_over(&mut WaitLimit::new(Deadline::default(), &mut is_interrupted));
        assert_eq!(end, WaitEnd::Interrupted);
    }

    #[test]
    fn a_panic_that_is_caught_leaves_the_call_that_catches_it() {
        let caught = catching(async { panic!("here") });
        assert!(crate::run::wait::now(caught).is_err());
    }
}

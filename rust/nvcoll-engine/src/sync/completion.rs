//! The completion of a call that runs on another thread: pending, then done with an outcome.
//!
//! ```text
//! caller                                   thread that runs the call
//!   outcome()  None …                        finish(outcome)  ─▶ wakes who waits, then calls who asked to be called
//!   wait()     spins briefly, then sleeps
//!   when_done(call me)
//! ```
//!
//! The outcome is written once and read without a lock. In the child of a fork nobody finishes what was pending, and the lock may be
//! held for ever: ask [`Completion::is_orphaned`] before a wait.

use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use super::condition::{wait_until, IsInterrupted, WaitEnd};
use super::Backoff;
use crate::system::process::Process;

type Callback = Box<dyn FnOnce() + Send>;

/// The completion of one call.
pub struct Completion<T> {
    outcome: OnceLock<T>,
    callbacks: Mutex<Vec<Callback>>,
    over: Condvar,
    process: Process,
}

impl<T> Default for Completion<T> {
    fn default() -> Self {
        let (outcome, callbacks, over) = Default::default();
        Self { outcome, callbacks, over, process: Process::current() }
    }
}

impl<T> std::fmt::Debug for Completion<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.outcome().is_some() { "Completion(done)" } else { "Completion(pending)" })
    }
}

impl<T> Completion<T> {
    /// Finishes the call, wakes the threads that wait, and makes the calls that were asked for, on this thread.
    ///
    /// # Panics
    /// If the call was finished before.
    pub fn finish(&self, outcome: T) {
        let callbacks = {
            let mut callbacks = self.callbacks.lock().unwrap_or_else(PoisonError::into_inner);
            assert!(self.outcome.set(outcome).is_ok(), "a call is finished once");
            std::mem::take(&mut *callbacks)
        };
        self.over.notify_all();
        callbacks.into_iter().for_each(|call| call());
    }

    /// Returns the outcome; `None` while the call is pending.
    #[inline]
    pub fn outcome(&self) -> Option<&T> {
        self.outcome.get()
    }

    /// Says whether the call is pending and nobody will finish it, because this process was forked off.
    pub fn is_orphaned(&self) -> bool {
        self.outcome().is_none() && !self.process.is_current()
    }

    /// Makes a call when this one is done: at once if it is, else on the thread that finishes it, which should not wait long.
    pub fn when_done(&self, call: impl FnOnce() + Send + 'static) {
        let mut callbacks = self.callbacks.lock().unwrap_or_else(PoisonError::into_inner);
        match self.outcome() {
            None => callbacks.push(Box::new(call)),
            Some(_) => {
                drop(callbacks);
                call();
            }
        }
    }

    /// Waits until the call is done.
    pub fn wait(&self, until: Option<Instant>, is_interrupted: IsInterrupted<'_>) -> WaitEnd {
        let (mut backoff, mut is_spinning) = (Backoff::of_rank(), true);
        while is_spinning && self.outcome().is_none() {
            backoff.wait(|| is_spinning = false);
        }
        wait_until(&self.callbacks, &self.over, |_| self.outcome().is_some(), until, is_interrupted)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn a_waiting_thread_is_woken_and_every_caller_is_called_once() {
        for _ in 0..200 {
            let (completion, (called, calls)) = (Arc::new(Completion::default()), channel());
            let [before, after] = [called.clone(), called];
            completion.when_done(move || before.send(1).unwrap());
            let finisher = completion.clone();
            let thread = std::thread::spawn(move || finisher.finish(7));
            assert_eq!(completion.wait(None, &mut || false), WaitEnd::Over);
            assert_eq!(completion.outcome(), Some(&7));
            thread.join().unwrap();
            completion.when_done(move || after.send(2).unwrap());
            assert_eq!(calls.iter().collect::<Vec<_>>(), [1, 2]);
        }
    }

    #[test]
    fn a_wait_ends_at_its_time_or_when_the_user_interrupts_and_the_call_stays_pending() {
        let completion = Completion::<()>::default();
        let soon = Some(Instant::now() + Duration::from_millis(5));
        assert_eq!(completion.wait(soon, &mut || false), WaitEnd::TimedOut);
        assert_eq!(completion.wait(None, &mut || true), WaitEnd::Interrupted);
        assert!(completion.outcome().is_none() && !completion.is_orphaned());
    }
}

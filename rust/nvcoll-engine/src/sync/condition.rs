//! A wait at a condition variable that ends in time: the thread asks its caller now and then whether to stop.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time between two questions of a waiting thread whether to stop. Chosen: a user who interrupts does not notice it.
pub(crate) const QUESTION: Duration = Duration::from_millis(50);

/// Says whether the user interrupted. It is asked often, so it must be cheap.
pub type IsInterrupted<'a> = &'a mut (dyn FnMut() -> bool + Send);

/// The end of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitEnd {
    /// What was waited for has happened.
    Over,
    /// The time has passed.
    TimedOut,
    /// The user interrupted.
    Interrupted,
}

/// Waits until `is_over` holds for the state behind the lock. `changed` signals changes of the state.
///
/// The lock is free during a question: the question may take a lock of the caller, such as Python's, that is held by a thread
/// which waits for this one.
pub(crate) fn wait_until<T>(
    state: &Mutex<T>,
    changed: &Condvar,
    is_over: impl Fn(&T) -> bool,
    until: Option<Instant>,
    mut is_interrupted: impl FnMut() -> bool,
) -> WaitEnd {
    loop {
        let locked = state.lock().unwrap_or_else(PoisonError::into_inner);
        if is_over(&locked) {
            return WaitEnd::Over;
        }
        let left = until.map_or(QUESTION, |until| until.saturating_duration_since(Instant::now()).min(QUESTION));
        if left.is_zero() {
            return WaitEnd::TimedOut;
        }
        let (locked, _) = changed.wait_timeout(locked, left).unwrap_or_else(PoisonError::into_inner);
        if is_over(&locked) {
            return WaitEnd::Over;
        }
        drop(locked);
        if is_interrupted() {
            return WaitEnd::Interrupted;
        }
    }
}

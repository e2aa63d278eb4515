//! The end of a wait: a deadline, or an interrupt by the user.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nvcoll_core::interrupt::{Interrupt, UNITS_PER_QUESTION};

use crate::call::{Call, PositionedCall};
use crate::error::{Error, LateRanks};
use crate::sync::condition::IsInterrupted;
use crate::sync::single_flight::Unlocked;

/// The time at which a call gives up.
#[derive(Debug, Clone, Copy, Default)]
pub struct Deadline {
    at: Option<Instant>,
    seconds: f64,
}

impl Deadline {
    /// Makes a deadline `seconds` from now. `None`, infinity and times beyond the clock mean never.
    pub fn after(seconds: Option<f64>) -> Self {
        let at = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()).and_then(|d| Instant::now().checked_add(d));
        Self { at, seconds: seconds.unwrap_or(f64::INFINITY) }
    }

    /// Returns the time; `None` if it never comes.
    pub fn at(&self) -> Option<Instant> {
        self.at
    }

    #[inline]
    pub(crate) fn has_passed(&self) -> bool {
        self.at.is_some_and(|at| Instant::now() >= at)
    }

    pub(crate) fn error(&self, what: PositionedCall, missing: impl Into<LateRanks>) -> Error {
        Error::Timeout { what, seconds: self.seconds, missing: Box::new(missing.into()) }
    }

    pub(crate) fn overdue(&self, what: String, missing: impl Into<LateRanks>) -> Error {
        Error::Overdue { what, seconds: self.seconds, missing: Box::new(missing.into()) }
    }

    /// Returns the allowed time in seconds.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }
}

/// A caller that gives up its unlocked work when its deadline passes.
pub struct UntilDeadline<'a, U> {
    unlocked: &'a U,
    deadline: Deadline,
    /// Whether the deadline ended the work.
    has_passed: Arc<AtomicBool>,
}

impl<'a, U: Unlocked> UntilDeadline<'a, U> {
    /// Gives a caller a deadline.
    pub fn new(unlocked: &'a U, deadline: Deadline) -> Self {
        Self { unlocked, deadline, has_passed: Arc::default() }
    }

    /// Turns the interruption of the work into a timeout of a call, if the deadline caused it.
    pub fn explain(&self, error: Error, call: &Call, missing: &str) -> Error {
        // Relaxed: the work ran on this thread.
        match error {
            Error::Core(nvcoll_core::Error::Interrupted) if self.has_passed.load(Ordering::Relaxed) => {
                self.deadline.error(call.clone().into(), missing)
            }
            error => error,
        }
    }
}

impl<U: Unlocked> Unlocked for UntilDeadline<'_, U> {
    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.unlocked.run(work)
    }

    fn interrupt(&self) -> Interrupt {
        let (inner, deadline, has_passed) = (self.unlocked.interrupt(), self.deadline, self.has_passed.clone());
        if deadline.at.is_none() {
            return inner;
        }
        Interrupt::when(move || {
            let is_over = deadline.has_passed();
            // Relaxed: the thread that works looks at it afterwards.
            has_passed.fetch_or(is_over, Ordering::Relaxed);
            is_over || inner.check(UNITS_PER_QUESTION as usize).is_err()
        })
    }
}

/// The limit of a call's waits: its deadline, or an interrupt by the user of the thread that waits.
pub struct WaitLimit<'a> {
    pub(crate) deadline: Deadline,
    /// `None` if no thread waits for the call, which was issued: the progress thread advances it.
    is_interrupted: Option<IsInterrupted<'a>>,
}

impl<'a> WaitLimit<'a> {
    /// Makes the limit of a call whose thread waits for it.
    pub fn new(deadline: Deadline, is_interrupted: IsInterrupted<'a>) -> Self {
        Self { deadline, is_interrupted: Some(is_interrupted) }
    }

    /// Makes the limit of a call that was issued, whose thread goes on.
    pub fn of_issued(deadline: Deadline) -> Self {
        Self { deadline, is_interrupted: None }
    }

    /// Returns the time at which the call gives up.
    pub fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// Says whether the call was issued, and no thread may wait in it.
    pub(crate) fn is_of_issued(&self) -> bool {
        self.is_interrupted.is_none()
    }

    /// Says whether the user interrupts the thread that waits.
    pub(crate) fn is_interrupted(&mut self) -> bool {
        self.is_interrupted.as_mut().is_some_and(|is_interrupted| is_interrupted())
    }
}

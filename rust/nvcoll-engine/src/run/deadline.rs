//! When to give up: a deadline, and the user's interrupt.

use std::time::{Duration, Instant};

use crate::call::PositionedCall;
use crate::error::Error;

/// When to give up.
#[derive(Debug, Clone, Copy, Default)]
pub struct Deadline {
    at: Option<Instant>,
    seconds: f64,
}

impl Deadline {
    /// A deadline `seconds` from now; `None`, infinity and what the clock cannot hold are never.
    pub fn after(seconds: Option<f64>) -> Self {
        let at = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()).and_then(|d| Instant::now().checked_add(d));
        Self { at, seconds: seconds.unwrap_or(f64::INFINITY) }
    }

    pub(crate) fn at(&self) -> Option<Instant> {
        self.at
    }

    #[inline]
    pub(crate) fn has_passed(&self) -> bool {
        self.at.is_some_and(|at| Instant::now() >= at)
    }

    pub(crate) fn error(&self, what: PositionedCall, missing: String) -> Error {
        Error::Timeout { what, seconds: self.seconds, missing }
    }
}

/// How long a worker goes on: until its deadline, or until the user interrupts the program.
pub(crate) struct WaitLimit<'a> {
    pub(crate) deadline: Deadline,
    /// Asked between steps and turns; cheap, since it is asked often.
    pub(crate) is_interrupted: &'a mut dyn FnMut() -> bool,
}

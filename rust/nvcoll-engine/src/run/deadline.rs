//! The end of a wait: a deadline, or an interrupt by the user.

use std::time::{Duration, Instant};

use crate::call::PositionedCall;
use crate::error::Error;

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

/// The limit of a worker's waits: its deadline, or an interrupt by the user.
pub(crate) struct WaitLimit<'a> {
    pub(crate) deadline: Deadline,
    /// Says whether the user interrupted. It is asked often, so it must be cheap.
    pub(crate) is_interrupted: &'a mut dyn FnMut() -> bool,
}

//! The size of a program, and the check of its limits.

use crate::error::{Error, Result};
use crate::limits::{MAX_STEPS, MAX_VIEWS};

/// The size of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Size {
    pub(crate) steps: u64,
    pub(crate) views: u64,
}

impl Size {
    /// Counts a step.
    pub(crate) fn add(&mut self, views: usize) {
        self.steps += 1;
        self.views += views as u64;
    }

    /// Says whether the size is within the limits of a schedule.
    pub(crate) fn fits(self) -> bool {
        self.steps <= MAX_STEPS && self.views <= MAX_VIEWS
    }

    /// Refuses a program that is too large; `what` names it in the message, as in "all_reduce ring of 16384 ranks".
    ///
    /// # Errors
    /// [`Error::TooLarge`] if a limit is exceeded.
    pub(crate) fn check(self, what: impl FnOnce() -> String) -> Result<()> {
        let Self { steps, views } = self;
        if self.fits() {
            Ok(())
        } else {
            Err(Error::TooLarge { what: what(), steps, views })
        }
    }
}

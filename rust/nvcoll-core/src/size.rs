//! How large a program is, and that it is not too large.

use crate::error::{Error, Result};
use crate::limits::{MAX_STEPS, MAX_VIEWS};

/// How large a program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Size {
    pub(crate) steps: u64,
    pub(crate) views: u64,
}

impl Size {
    /// Adds a step.
    pub(crate) fn add(&mut self, views: usize) {
        self.steps += 1;
        self.views += views as u64;
    }

    /// Says whether it is within the limits.
    pub(crate) fn fits(self) -> bool {
        self.steps <= MAX_STEPS && self.views <= MAX_VIEWS
    }

    /// Refuses what is too large; `what` begins the sentence, as in "all_reduce ring of 16384 ranks".
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub(crate) fn check(self, what: impl FnOnce() -> String) -> Result<()> {
        let Self { steps, views } = self;
        if self.fits() {
            Ok(())
        } else {
            Err(Error::TooLarge { what: what(), steps, views })
        }
    }
}

//! Interrupts: a caller stops long work, such as the proof of a ring of a thousand ranks.
//!
//! ```
//! use nvcoll_core::interrupt::Interrupt;
//! use nvcoll_core::{algorithm, collective::{Roles, ALL_REDUCE}, schedule::Aliasing, Error};
//!
//! let interrupt = Interrupt::when(|| true);               // a real caller checks for Ctrl-C
//! let built = algorithm::build_interruptible(&ALL_REDUCE, "ring", Roles::of(100), Aliasing::Disjoint, &interrupt);
//! assert_eq!(built.unwrap_err(), Error::Interrupted);
//! ```
//!
//! Building, lowering, proving and costing take an [`Interrupt`]. They ask it once per [`UNITS_PER_QUESTION`] units of work; a
//! unit is a step or one view of a step. The core has no clock: the caller decides when to stop.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

/// The units of work between two questions. Chosen: they take some milliseconds in worlds of a thousand ranks.
pub const UNITS_PER_QUESTION: u32 = 4096;

/// A question that long work asks its caller regularly: "shall I stop?"
#[derive(Clone, Default)]
pub struct Interrupt(Option<Arc<Question>>);

struct Question {
    is_wanted: Box<dyn Fn() -> bool + Send + Sync>,
    /// The units of work since the last question. Relaxed: the count orders nothing.
    units: AtomicU32,
}

/// The error of work that its caller stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the work was interrupted by its caller: start it again")]
pub struct Interrupted;

impl Interrupt {
    /// Returns an interrupt that never occurs.
    pub fn never() -> Self {
        Self(None)
    }

    /// Returns an interrupt that occurs when `is_wanted` returns true.
    pub fn when(is_wanted: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(Question { is_wanted: Box::new(is_wanted), units: AtomicU32::new(0) })))
    }

    /// Counts units of work, and asks the caller once per [`UNITS_PER_QUESTION`] units.
    ///
    /// # Errors
    /// [`Interrupted`] if the caller stops the work.
    #[inline]
    pub fn check(&self, units: usize) -> Result<(), Interrupted> {
        match &self.0 {
            None => Ok(()),
            Some(question) => question.check(units),
        }
    }
}

impl Question {
    fn check(&self, units: usize) -> Result<(), Interrupted> {
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        // Relaxed, all three: the count carries nothing, and threads that lose a unit ask a little later.
        let done = self.units.load(Ordering::Relaxed).saturating_add(units);
        if done < UNITS_PER_QUESTION {
            self.units.store(done, Ordering::Relaxed);
            return Ok(());
        }
        self.units.store(0, Ordering::Relaxed);
        if (self.is_wanted)() {
            Err(Interrupted)
        } else {
            Ok(())
        }
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Interrupt::when(..)" } else { "Interrupt::never()" })
    }
}

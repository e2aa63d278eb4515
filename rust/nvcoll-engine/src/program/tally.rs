//! A count of calls, which a program points to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// A number of calls, and where the first of them stands among the first calls of all kinds.
///
/// Ranks that call for themselves find the tally of a call before its first rank counts it, in any order; the order of
/// the first counts of a rank is that of its program.
#[derive(Debug)]
pub struct Tally {
    times: AtomicU64,
    nth: AtomicU64,
    begun: Arc<AtomicU64>,
}

impl Tally {
    pub(crate) fn new(begun: &Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(Self { times: AtomicU64::new(0), nth: AtomicU64::new(u64::MAX), begun: begun.clone() })
    }

    /// Counts one.
    #[inline]
    pub fn count(&self) {
        // Relaxed: nothing else is told by it.
        if self.times.fetch_add(1, Ordering::Relaxed) == 0 {
            self.nth.store(self.begun.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Returns how many were counted.
    pub fn times(&self) -> u64 {
        self.times.load(Ordering::Relaxed)
    }

    /// Returns the place of its first call among those of all kinds; the last one before it was called.
    pub(crate) fn nth(&self) -> u64 {
        self.nth.load(Ordering::Relaxed)
    }
}

//! The count of one kind of call, which a program points to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// A number of calls, and the position of the first call among the first calls of all kinds.
///
/// The position follows the first call that counts, not the first look-up: ranks that call for themselves look
/// tallies up in any order.
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

    /// Adds one call.
    #[inline]
    pub fn count(&self) {
        // Relaxed: nothing else is told by it.
        if self.times.fetch_add(1, Ordering::Relaxed) == 0 {
            self.nth.store(self.begun.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Returns the number of calls.
    pub fn times(&self) -> u64 {
        // Relaxed: the number carries nothing; who counted the call and asks on the same thread sees it.
        self.times.load(Ordering::Relaxed)
    }

    /// Returns the position of the first call among those of all kinds; the largest number before the first call.
    pub(crate) fn nth(&self) -> u64 {
        // Relaxed: as in `times`.
        self.nth.load(Ordering::Relaxed)
    }
}

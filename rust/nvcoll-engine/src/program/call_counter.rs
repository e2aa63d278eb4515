//! The counter of one kind of call, to which its programs point.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// A number of calls, and the position of the first call among the first calls of all kinds.
///
/// The position follows the first counted call, not the first look-up, because ranks that call for themselves look up
/// counters in any order.
#[derive(Debug)]
pub struct CallCounter {
    times: AtomicU64,
    nth: AtomicU64,
    begun: Arc<AtomicU64>,
}

impl CallCounter {
    pub(crate) fn new(begun: &Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(Self { times: AtomicU64::new(0), nth: AtomicU64::new(u64::MAX), begun: begun.clone() })
    }

    /// Adds one call.
    #[inline]
    pub fn count(&self) {
        // Relaxed: the count publishes nothing else.
        if self.times.fetch_add(1, Ordering::Relaxed) == 0 {
            self.nth.store(self.begun.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Returns the number of calls.
    pub fn times(&self) -> u64 {
        // Relaxed: the number publishes nothing else. A thread sees the calls that it counted itself.
        self.times.load(Ordering::Relaxed)
    }

    /// Returns the position of the first call among the calls of all kinds; the largest number before the first call.
    pub(crate) fn nth(&self) -> u64 {
        // Relaxed: as in `times`.
        self.nth.load(Ordering::Relaxed)
    }
}

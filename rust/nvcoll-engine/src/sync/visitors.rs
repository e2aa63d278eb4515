//! Visitors of a lock: threads that must not wait for those who hold it long.
//!
//! ```text
//! visitor    counts itself        fence    finds the lock free once
//! holder     takes the lock       fence    sees a visitor: gives it back at once; sees none: works
//! ```
//!
//! So when a visitor has found the lock free, nobody works under it until the visitor leaves: others take the lock for a moment only. A
//! visitor may then spin for it while it holds something that the work of others needs, as Python's lock.

use super::atomic::{fence, AtomicU32, Ordering};

/// The number of visitors.
#[derive(Debug, Default)]
pub struct Visitors(AtomicU32);

impl Visitors {
    /// Counts a visitor, which looks at the lock afterwards.
    pub fn arrive(&self) {
        // Relaxed: the fence orders it before the look; it pairs with that in `are_there`.
        self.0.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Ends a visit.
    pub fn leave(&self) {
        // Release: pairs with the Acquire in `have_left`, so that the lock is seen free.
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Says whether there are visitors, to a thread that has just taken the lock.
    #[inline]
    pub fn are_there(&self) -> bool {
        // The fence pairs with that in `arrive`.
        fence(Ordering::SeqCst);
        self.are_waiting()
    }

    /// Says whether there are visitors, to a thread that has held the lock for a while.
    #[inline]
    pub fn are_waiting(&self) -> bool {
        // Relaxed: a visitor that comes later waits a little longer.
        self.0.load(Ordering::Relaxed) > 0
    }

    /// Says whether all visitors have left.
    pub fn have_left(&self) -> bool {
        // Acquire: pairs with the Release in `leave`.
        self.0.load(Ordering::Acquire) == 0
    }
}

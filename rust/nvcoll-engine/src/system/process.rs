//! Detection of forks. Threads that were started before a fork do not exist in the child.
//!
//! A counter of forks answers this without a system call; comparing process numbers would need one, and every call of a plan asks.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Once;

static FORKS: AtomicU32 = AtomicU32::new(0);

/// The process that ran when the value was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// Returns the running process. A value made before a fork differs from the child's.
    pub(crate) fn current() -> Self {
        static COUNTING: Once = Once::new();
        COUNTING.call_once(|| {
            #[cfg(unix)]
            // SAFETY: the handler is a function that only adds to an atomic number.
            let refused = unsafe { libc::pthread_atfork(None, None, Some(count)) };
            #[cfg(unix)]
            assert_eq!(refused, 0, "no memory to note a fork handler");
        });
        // Relaxed: the child has one thread, which forked.
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Says whether this is still the running process.
    #[inline]
    pub(crate) fn is_current(self) -> bool {
        // Relaxed: as above. Forks are counted since before `self` was made.
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

#[cfg(unix)]
extern "C" fn count() {
    // Relaxed: the child has one thread, which forked.
    FORKS.fetch_add(1, Ordering::Relaxed);
}

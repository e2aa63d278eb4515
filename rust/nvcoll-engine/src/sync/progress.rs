//! Progress words and stamps: the steps that a queue has done, and the call that a rank has entered.
//!
//! ```text
//! progress   (call mod 2^32) << 32 | steps done in this call        one per queue
//! stamp       call                                                  one per rank: "I have entered call c"
//! ```
//!
//! Both only grow, modulo their width, and are compared by wrapping difference. Nothing is ever reset. A word must not fall 2^31 calls
//! behind, so a rank publishes the words of unused queues now and then (`run/by_rank/`). A stamp of c says that the rank has finished
//! c-1. So a rank that sees it may overwrite what the other read in call c-2: this is the stamp rule.

use nvcoll_core::limits::MAX_RUNNING_QUEUES;

use super::atomic::{AtomicU64, Ordering};

/// Queues of one rank that have a progress word.
pub const QUEUES: usize = MAX_RUNNING_QUEUES as usize;

/// The progress word of one queue. It has one writer.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Progress(AtomicU64);

impl Progress {
    /// Publishes that `done` steps of `call` are done. Their results are visible to every rank that sees it.
    #[inline]
    pub fn publish(&self, call: u32, done: u32) {
        // Release: pairs with the Acquire in `has_reached`.
        self.0.store(word(call, done), Ordering::Release);
    }

    /// Says whether at least `done` steps of `call` are done.
    #[inline]
    pub fn has_reached(&self, call: u32, done: u32) -> bool {
        // Acquire: pairs with the Release in `publish`.
        is_at_least(self.0.load(Ordering::Acquire), word(call, done))
    }
}

/// The stamp of one rank: the last call that it has entered. It has one writer.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Stamp(AtomicU64);

impl Stamp {
    /// Enters a call. Its record and the buffers that it names are visible to every rank that sees the stamp.
    #[inline]
    pub fn enter(&self, call: u32) {
        // Release: pairs with the Acquire in `has_entered`.
        self.0.store(word(call, 0), Ordering::Release);
    }

    /// Says whether the rank has entered `call` or a later one.
    #[inline]
    pub fn has_entered(&self, call: u32) -> bool {
        // Acquire: pairs with the Release in `enter`.
        is_at_least(self.0.load(Ordering::Acquire), word(call, 0))
    }
}

fn word(call: u32, done: u32) -> u64 {
    u64::from(call) << 32 | u64::from(done)
}

fn is_at_least(found: u64, wanted: u64) -> bool {
    found.wrapping_sub(wanted) as i64 >= 0
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn progress_of_a_later_call_satisfies_an_earlier_wait_across_the_wrap() {
        let progress = Progress::default();
        progress.publish(u32::MAX, 3);
        assert!(progress.has_reached(u32::MAX, 3) && !progress.has_reached(u32::MAX, 4));
        assert!(!progress.has_reached(0, 0));
        progress.publish(0, 1);
        assert!(progress.has_reached(u32::MAX, 1000) && progress.has_reached(0, 1) && !progress.has_reached(1, 0));
    }

    #[test]
    fn a_stamp_says_that_earlier_calls_were_entered() {
        let stamp = Stamp::default();
        stamp.enter(7);
        assert!(stamp.has_entered(6) && stamp.has_entered(7) && !stamp.has_entered(8));
    }
}

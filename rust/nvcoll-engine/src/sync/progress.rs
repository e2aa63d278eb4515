//! Progress words: the steps that a queue has done, as (call mod 2^32) << 32 | steps done in this call.
//!
//! A word only grows, modulo its width, and is compared by wrapping difference. Nothing is ever reset. A word must not fall 2^31 calls
//! behind, so a rank publishes the words of unused queues now and then (`run/by_rank/`).

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

    /// Returns the word, for a reader who only wants to know whether it changes.
    pub fn word(&self) -> u64 {
        // Relaxed: nothing is read because of it.
        self.0.load(Ordering::Relaxed)
    }

    /// Says whether at least `done` steps of `call` are done.
    #[inline]
    pub fn has_reached(&self, call: u32, done: u32) -> bool {
        // Acquire: pairs with the Release in `publish`.
        is_at_least(self.0.load(Ordering::Acquire), word(call, done))
    }
}

pub(super) fn word(call: u32, done: u32) -> u64 {
    u64::from(call) << 32 | u64::from(done)
}

pub(super) fn is_at_least(found: u64, wanted: u64) -> bool {
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
}

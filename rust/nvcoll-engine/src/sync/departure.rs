//! The departure word: a rank's program has returned, after a number of calls. A peer that waits for it in a later call would wait
//! forever. So a waiting rank looks here before it sleeps, and a departing rank rings everybody. A process departs before it ends. A
//! process that ended and has not departed is missing.

use super::atomic::{AtomicU64, Ordering};

/// The departure word of one rank. It has one writer.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Departure(AtomicU64);

impl Departure {
    /// Publishes that `last` was the rank's last call. The caller rings everybody next.
    pub fn publish(&self, last: u32) {
        // Release: pairs with the Acquire in `last`; everything the rank did in its calls comes before it.
        self.0.store(1 << 32 | u64::from(last), Ordering::Release);
    }

    /// Returns the number of the rank's last call, if its program has returned.
    pub fn last(&self) -> Option<u32> {
        // Acquire: pairs with the Release in `publish`.
        let word = self.0.load(Ordering::Acquire);
        (word >> 32 != 0).then_some(word as u32)
    }

    /// Says whether the rank will never enter `call`.
    pub fn is_before(&self, call: u32) -> bool {
        self.last().is_some_and(|last| (last.wrapping_sub(call) as i32) < 0)
    }

    /// Says whether the rank ended without a word. `is_gone` asks the system whether its process has ended.
    pub fn is_missing(&self, is_gone: impl FnOnce() -> bool) -> bool {
        // It may depart and end between the first look and the question. Who has seen the end sees the departure.
        self.last().is_none() && is_gone() && self.last().is_none()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_has_returned_misses_later_calls_across_the_wrap() {
        let departure = Departure::default();
        assert!(departure.last().is_none() && !departure.is_before(7));
        departure.publish(u32::MAX);
        assert!(departure.is_before(0) && !departure.is_before(u32::MAX) && departure.last() == Some(u32::MAX));
    }

    #[test]
    fn a_rank_that_departs_and_ends_while_a_peer_looks_is_not_missing() {
        let departure = Departure::default();
        assert!(departure.is_missing(|| true) && !departure.is_missing(|| false));
        let departs_and_ends = || {
            departure.publish(1);
            true
        };
        assert!(!departure.is_missing(departs_and_ends));
    }
}

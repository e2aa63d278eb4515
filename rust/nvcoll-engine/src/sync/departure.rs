//! The departure word: a rank's program has returned, after a number of calls. A peer that waits for it in a later call would wait
//! forever. So a waiting rank looks here before it sleeps, and a departing rank rings everybody. A process departs before it ends. A
//! process that ended and has not departed is lost (`World::death_of`). A rank whose program failed raises the abort instead of departing. It
//! also says here that it has ended, since the abort word has room for the first cause only.

use super::atomic::{AtomicU64, Ordering};

const DEPARTED: u64 = 1 << 32;
const ENDED: u64 = 1 << 33;

/// The departure word of one rank. Threads of that rank alone write it.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Departure(AtomicU64);

impl Departure {
    /// Publishes that `last` was the rank's last call. The caller rings everybody next.
    pub fn publish(&self, last: u32) {
        // Release: pairs with the Acquire in `last`; everything the rank did in its calls comes before it.
        self.0.fetch_or(DEPARTED | u64::from(last), Ordering::Release);
    }

    /// Publishes that the rank has ended: its program returned or failed. A rank that departs without that has dropped a communicator.
    pub fn publish_end(&self) {
        // Release: pairs with the Acquire in `has_ended`.
        self.0.fetch_or(ENDED, Ordering::Release);
    }

    /// Says whether the rank has ended.
    pub fn has_ended(&self) -> bool {
        // Acquire: pairs with the Release in `publish_end`.
        self.0.load(Ordering::Acquire) & ENDED != 0
    }

    /// Returns the number of the rank's last call, if its program has returned.
    pub fn last(&self) -> Option<u32> {
        // Acquire: pairs with the Release in `publish`.
        let word = self.0.load(Ordering::Acquire);
        (word & DEPARTED != 0).then_some(word as u32)
    }

    /// Says whether the rank will never enter `call`.
    pub fn is_before(&self, call: u32) -> bool {
        self.last().is_some_and(|last| (last.wrapping_sub(call) as i32) < 0)
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
}

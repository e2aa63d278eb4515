//! The doorbell: a rank with nothing to do sleeps on it, and the ranks that it waits for wake it.
//!
//! ```text
//! sleeper                              publisher
//!   sleeping += 1                        progress = …            (Release)
//!   fence SeqCst           ◀─pairs─▶     fence SeqCst
//!   look again at everything             sleeping? → bell += 1, wake
//!   wait while bell is unchanged
//! ```
//!
//! Either the sleeper's second look sees the progress, or the publisher sees `sleeping`: the fences exclude that both miss. The bell is
//! read before the second look, so a ring in between ends the wait at once. Only sleepers and those who wake them read, modify and write.
//!
//! Several threads may sleep on one bell, and a ring wakes all. One thread may sleep on several bells.

use std::time::{Duration, Instant};

use super::atomic::{fence, AtomicU32, Ordering};
use super::futex::{wait_while, wait_while_all, wake};

/// The doorbell of one rank.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Doorbell {
    sleeping: BellLine,
    bell: BellLine,
}

#[derive(Debug, Default)]
#[repr(C, align(128))]
struct BellLine(AtomicU32);

impl Doorbell {
    /// Sleeps until the bell rings, unless `is_ready` holds after the fence. It may return early.
    pub fn sleep(&self, mut is_ready: impl FnMut() -> bool, deadline: Option<Instant>) {
        let heard = self.begin_sleep();
        // SeqCst: pairs with the fence in `ring_all`: this thread sees what was stored, or that one sees it sleep.
        fence(Ordering::SeqCst);
        if !is_ready() {
            wait_while(&self.bell.0, heard, deadline);
        }
        self.end_sleep();
    }

    /// Sleeps until one of some bells rings, unless `is_ready` holds after the fence, for at most `longest`; says whether it slept on all. It
    /// may return early.
    pub fn sleep_at_all(bells: &[&Self], is_ready: impl FnOnce() -> bool, longest: Duration) -> bool {
        let words: Vec<_> = bells.iter().map(|bell| (&bell.bell.0, bell.begin_sleep())).collect();
        // SeqCst: as in `sleep`.
        fence(Ordering::SeqCst);
        let has_slept_on_all = is_ready() || wait_while_all(&words, longest);
        bells.iter().for_each(|bell| bell.end_sleep());
        has_slept_on_all
    }

    /// Counts a sleeper, which fences and looks afterwards; returns the bell.
    fn begin_sleep(&self) -> u32 {
        // Relaxed, both: the fence orders them before the second look.
        let heard = self.bell.0.load(Ordering::Relaxed);
        self.sleeping.0.fetch_add(1, Ordering::Relaxed);
        heard
    }

    fn end_sleep(&self) {
        // Relaxed: a publisher that still counts this thread rings a bell that nobody needs.
        self.sleeping.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Wakes the rank if it sleeps. The caller has published and fenced.
    fn ring(&self) {
        // Relaxed: `ring_all` has fenced.
        if self.sleeping.0.load(Ordering::Relaxed) != 0 {
            // Relaxed: the bell carries nothing. Who wakes looks at the words themselves; and if it still misses them, its
            // next sleep reads this bell before its fence, which then comes after the fence in `ring_all`.
            self.bell.0.fetch_add(1, Ordering::Relaxed);
            wake(&self.bell.0);
        }
    }

    /// Wakes the sleeping ranks among `doorbells`, after the caller has published.
    pub fn ring_all<'a>(doorbells: impl IntoIterator<Item = &'a Doorbell>) {
        // SeqCst: pairs with the fence in `sleep`; where an abort was seen, with that of `Activity::begin`; where two ranks
        // have stamped, with itself.
        fence(Ordering::SeqCst);
        doorbells.into_iter().for_each(Doorbell::ring);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::Progress;
    use std::sync::Arc;

    #[test]
    fn no_ring_is_lost_between_two_threads_that_hand_over_ten_thousand_times() {
        let shared = Arc::new((Doorbell::default(), Progress::default(), Doorbell::default(), Progress::default()));
        let other = shared.clone();
        let thread = std::thread::spawn(move || {
            for round in 1..=10_000 {
                while !other.1.has_reached(1, round) {
                    other.0.sleep(|| other.1.has_reached(1, round), None);
                }
                other.3.publish(1, round);
                Doorbell::ring_all([&other.2]);
            }
        });
        for round in 1..=10_000 {
            shared.1.publish(1, round);
            Doorbell::ring_all([&shared.0]);
            while !shared.3.has_reached(1, round) {
                shared.2.sleep(|| shared.3.has_reached(1, round), None);
            }
        }
        thread.join().unwrap();
    }

    #[test]
    fn a_sleep_ends_at_its_deadline() {
        let doorbell = Doorbell::default();
        doorbell.sleep(|| false, Some(Instant::now() + std::time::Duration::from_millis(5)));
    }
}

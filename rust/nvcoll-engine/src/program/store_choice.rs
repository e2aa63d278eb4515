//! The choice of stores in large calls, plain or streaming, by measurement during use.
//!
//! A plain store to a line that is in no cache reads the line first. A streaming (non-temporal) store does not, but it evicts the line.
//! The faster one depends on the processor, the sizes and the other programs: plain is up to 2.7 times slower on memory that is only
//! written, and up to 3 times faster on memory that was just read (measured). No table would hold. Only destinations that no other step
//! touches are candidates.
//!
//! ```text
//! first calls   plain, streamed, plain, streamed, …     the first of each is not counted: it meets fresh pages
//! then          the faster one; the other one once in `INTERVAL` calls, and half as often each time it loses
//! ```
//!
//! The choice changes time, never bits. Source: an epsilon-greedy bandit of two arms, Sutton and Barto, chapter 2.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Samples of each kind of store before one is preferred. Chosen.
const SAMPLES: u32 = 3;

/// Calls until the slower kind is tried again. Chosen: a kind that is 3 times slower then costs 3 %, and soon far
/// less.
const INTERVAL: u32 = 64;

/// The longest interval between trials of the slower kind, in calls. Chosen.
const LONGEST_INTERVAL: u32 = 4096;

/// The weight of a new sample. Chosen.
const WEIGHT: f64 = 0.25;

/// The timings of both kinds of stores for one program.
#[derive(Debug)]
pub(crate) struct StoreChoice {
    /// The timing of plain stores, then that of streaming stores.
    kinds: [StoreTiming; 2],
    until_trial: u32,
    interval: u32,
}

#[derive(Debug, Default, Clone, Copy)]
struct StoreTiming {
    samples: u32,
    seconds: f64,
}

impl Default for StoreChoice {
    fn default() -> Self {
        Self { kinds: [StoreTiming::default(); 2], until_trial: INTERVAL, interval: INTERVAL }
    }
}

impl StoreChoice {
    /// Says whether the next call should stream.
    pub(crate) fn is_next_streamed(&self) -> bool {
        let [plain, streamed] = self.kinds;
        if plain.samples.min(streamed.samples) <= SAMPLES {
            return streamed.samples < plain.samples;
        }
        self.is_streaming_faster() != (self.until_trial == 0)
    }

    /// Records the time of a call.
    pub(crate) fn learn(&mut self, was_streamed: bool, time: Duration) {
        let was_faster = self.is_streaming_faster();
        self.kinds[usize::from(was_streamed)].add(time.as_secs_f64());
        if self.is_streaming_faster() != was_faster {
            self.interval = INTERVAL;
        } else if self.until_trial == 0 {
            self.interval = (2 * self.interval).min(LONGEST_INTERVAL);
        } else {
            self.until_trial -= 1;
            return;
        }
        self.until_trial = self.interval;
    }

    fn is_streaming_faster(&self) -> bool {
        self.kinds[1].seconds < self.kinds[0].seconds
    }
}

/// One call that chose how it stores, from its begin until it is learned from.
#[derive(Debug)]
pub(crate) struct TimedStores<'a> {
    choice: &'a Mutex<StoreChoice>,
    pub(crate) is_streamed: bool,
    began: Instant,
}

impl<'a> TimedStores<'a> {
    /// Begins a call, and chooses.
    pub(crate) fn begin(choice: &'a Mutex<StoreChoice>) -> Self {
        let is_streamed = lock(choice).is_next_streamed();
        Self { choice, is_streamed, began: Instant::now() }
    }

    /// Records the time of the call, which succeeded.
    pub(crate) fn learn(self) {
        lock(self.choice).learn(self.is_streamed, self.began.elapsed());
    }
}

fn lock(choice: &Mutex<StoreChoice>) -> MutexGuard<'_, StoreChoice> {
    choice.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StoreTiming {
    fn add(&mut self, seconds: f64) {
        self.samples = self.samples.saturating_add(1);
        match self.samples {
            1 | 2 => self.seconds = seconds,
            _ => self.seconds += WEIGHT * (seconds - self.seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of streamed calls among `calls`.
    fn streamed(stores: &mut StoreChoice, calls: u32, plain: u64, streamed: u64) -> u32 {
        let mut count = 0;
        for _ in 0..calls {
            let is_streamed = stores.is_next_streamed();
            stores.learn(is_streamed, Duration::from_micros(if is_streamed { streamed } else { plain }));
            count += u32::from(is_streamed);
        }
        count
    }

    #[test]
    fn the_faster_kind_is_used_and_the_other_tried_ever_more_seldom() {
        let mut stores = StoreChoice::default();
        assert!((6..=20).contains(&streamed(&mut stores, 10_000, 100, 300)));
        let mut stores = StoreChoice::default();
        assert!(streamed(&mut stores, 10_000, 300, 100) >= 9_980);
    }

    #[test]
    fn a_change_is_noticed() {
        let mut stores = StoreChoice::default();
        streamed(&mut stores, 1_000, 100, 300);
        assert!(streamed(&mut stores, 40_000, 300, 100) > 30_000);
        assert!(streamed(&mut stores, 40_000, 100, 300) < 10_000);
    }
}

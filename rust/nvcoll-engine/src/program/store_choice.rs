//! Whether a large call stores past the caches: tried, and tried again now and then.
//!
//! A store to a line that is nowhere near first reads the line; a non-temporal store does not, but throws the line out of
//! the caches. Which is faster differs by 2.7 in the one direction and by 3 in the other (measured, with memory that is
//! written only and memory that was just read), with the processor, the sizes and what else runs, so that no table would
//! hold. Only destinations that no other step touches come into question: a value that is read again should stay.
//!
//! ```text
//! first calls   plain, streamed, plain, streamed, …     the first of each is not counted: it meets fresh pages
//! then          the faster one; the other one once in `INTERVAL` calls, and half as often each time it fails
//! ```
//!
//! It changes time, never bits. Source: an epsilon-greedy bandit of two arms, Sutton and Barto, chapter 2.

use std::time::Duration;

/// Samples of each kind before one is preferred. Chosen.
const SAMPLES: u32 = 3;

/// Calls until the slower kind is tried again. Chosen: a kind that is 3 times slower then costs 3 %, and soon far less.
const INTERVAL: u32 = 64;

/// The longest that the slower kind is left alone. Chosen.
const LONGEST_INTERVAL: u32 = 4096;

/// How much one more sample counts. Chosen.
const WEIGHT: f64 = 0.25;

/// What a node has learnt about the stores of one program.
#[derive(Debug)]
pub(crate) struct StoreChoice {
    /// Plain, streamed.
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

    /// Learns how long a call took.
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

    /// Returns how many of so many calls were streamed.
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

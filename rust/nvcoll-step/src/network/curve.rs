//! The time of a collective over its bytes: predictions at some sizes, lines on logarithmic scales between them.

use nvcoll_fabric::predict::{AlgorithmFilter, CollectiveCall, Launch, Pattern, Predictor};

use crate::error::Result;

/// The least size of the grid, in bytes. Chosen: below it a call costs its latency.
const LEAST: f64 = 4096.0;
/// The sizes of the grid, each four times the last: 4 KiB to 4 GiB. Chosen: lines between them err by 2 to 7 % on average.
const SIZES: usize = 11;

/// Seconds at each size of the grid.
#[derive(Debug, Clone)]
pub(super) struct Curve([f64; SIZES]);

impl Curve {
    /// Predicts a collective at each size.
    ///
    /// # Errors
    /// As [`Predictor::weigh`].
    pub(super) fn of(predictor: &Predictor, pattern: Pattern) -> Result<Self> {
        let call = CollectiveCall { pattern, launch: Launch::Framework, forced: AlgorithmFilter::default() };
        let mut seconds = [0.0; SIZES];
        for (at, of_size) in seconds.iter_mut().enumerate() {
            let weighed = predictor.weigh(&call, (LEAST as u64) << (2 * at))?;
            *of_size = predictor.us(&call, &weighed) * 1e-6;
        }
        Ok(Self(seconds))
    }

    /// Returns the seconds of a call; beyond the grid they grow as bytes do.
    pub(super) fn seconds(&self, nbytes: f64) -> f64 {
        let (place, last) = (((nbytes / LEAST).log2() / 2.0).max(0.0), SIZES - 1);
        if place >= last as f64 {
            return self.0[last] * nbytes / (LEAST * 4.0_f64.powi(last as i32));
        }
        let (at, part) = (place as usize, place.fract());
        self.0[at] * (self.0[at + 1] / self.0[at]).powf(part)
    }
}

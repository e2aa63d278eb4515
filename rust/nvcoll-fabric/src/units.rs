//! Time in integer picoseconds, rates in integer bytes per second: the same input gives the same output on every machine.
//!
//! A picosecond is less than a byte on any link there is (900 GB/s: 1.1 ps); 2^63 of them are 106 days.

/// Picoseconds.
pub type Ps = u64;

/// A microsecond.
pub const PS_PER_US: u64 = 1_000_000;

const PS_PER_SECOND: u128 = 1_000_000_000_000;

/// Bytes per second.
/// A table has it in decimal GB/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
#[serde(from = "f64")]
pub struct Rate(pub u64);

impl From<f64> for Rate {
    fn from(gbps: f64) -> Self {
        Self::from_gbps(gbps)
    }
}

impl Rate {
    /// Makes a rate of decimal GB/s: 10^9 bytes per second.
    pub fn from_gbps(gbps: f64) -> Self {
        Self((gbps * 1e9).round() as u64)
    }

    /// Returns decimal GB/s.
    pub fn gbps(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Returns the time of `nbytes`, rounded up.
    ///
    /// # Panics
    /// If the rate is zero.
    pub fn time(self, nbytes: u64) -> Ps {
        let ps = (u128::from(nbytes) * PS_PER_SECOND).div_ceil(u128::from(self.0));
        u64::try_from(ps).unwrap_or(u64::MAX)
    }
}

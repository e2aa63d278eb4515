//! Ratios of whole numbers: what is exact in virtual time.

/// Below the line of ratios that are read from decimal fractions. Chosen: finer than anything that is measured.
const MILLION: u32 = 1_000_000;

/// A ratio of whole numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(from = "(u32, u32)")]
pub struct Ratio {
    /// Above the line.
    pub num: u32,
    /// Below the line; not zero.
    pub den: u32,
}

impl From<(u32, u32)> for Ratio {
    fn from((num, den): (u32, u32)) -> Self {
        Self::new(num, den)
    }
}

impl Ratio {
    /// One.
    pub const ONE: Ratio = Ratio { num: 1, den: 1 };

    /// Makes a ratio.
    ///
    /// # Panics
    /// If `den` is zero.
    pub const fn new(num: u32, den: u32) -> Self {
        assert!(den > 0, "a ratio has a denominator");
        Self { num, den }
    }

    /// Returns the nearest number of millionths; none if there are more than fit.
    pub fn nearest(value: f64) -> Option<Ratio> {
        let millionths = (value * f64::from(MILLION)).round();
        (0.0..=f64::from(u32::MAX)).contains(&millionths).then(|| Self::new(millionths as u32, MILLION))
    }

    /// Returns so much of a number, rounded up.
    pub(super) fn of(self, whole: u64) -> u64 {
        let part = (u128::from(whole) * u128::from(self.num)).div_ceil(u128::from(self.den));
        u64::try_from(part).unwrap_or(u64::MAX)
    }
}

//! What a run is given besides a schedule and a fabric.

use super::damage::Damage;
use super::fitted::Fitted;
use super::protocol::Protocol;
use crate::error::{Error, Result};
use crate::units::Ps;

/// Below the line of ratios that are read from decimal fractions. Chosen: finer than anything that is measured.
const MILLION: u32 = 1_000_000;

/// A ratio of whole numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio {
    /// Above the line.
    pub num: u32,
    /// Below the line; not zero.
    pub den: u32,
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

/// How transfers that want the same link at the same time get it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Max-min fair, all at once.
    MaxMin,
    /// One after the other, link by link; a whole tile is on one link before it is on the next.
    Fifo,
}

impl Sharing {
    const NAMES: [(&str, Self); 2] = [("max_min", Sharing::MaxMin), ("fifo", Sharing::Fifo)];

    /// Finds a way of sharing by name.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn named(name: &str) -> Result<Self> {
        named("way of sharing links", &Self::NAMES, name)
    }
}

/// What becomes of a step `at switch` where no switch can do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtSwitch {
    /// It is an error, which names an algorithm that does without.
    Refuse,
    /// It is done by its rank, point to point.
    Ignore,
}

impl AtSwitch {
    const NAMES: [(&str, Self); 2] = [("refuse", AtSwitch::Refuse), ("ignore", AtSwitch::Ignore)];

    /// Finds what becomes of steps at a switch by name.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn named(name: &str) -> Result<Self> {
        named("treatment of steps at a switch", &Self::NAMES, name)
    }
}

fn named<T: Copy>(kind: &'static str, all: &[(&str, T)], name: &str) -> Result<T> {
    let found = all.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    found.ok_or_else(|| Error::Unknown {
        kind,
        name: name.to_owned(),
        known: all.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", "),
    })
}

/// How much a run remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// When each rank ends, and what each link moved.
    Ends,
    /// The critical path too: 32 bytes per step and tile while it runs.
    Path,
    /// A span for every step and tile too.
    Spans,
}

/// What a run is given.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The cost constants of its steps.
    pub protocol: Protocol,
    /// Bytes of a chunk that one tile moves.
    pub slice_bytes: u64,
    /// How links are shared.
    pub sharing: Sharing,
    /// What becomes of steps that ask for a switch.
    pub at_switch: AtSwitch,
    /// What is remembered.
    pub detail: Detail,
    /// For each rank, when it enters the call; empty: all at 0.
    pub starts_ps: Vec<Ps>,
    /// For each rank, how many times as long its steps take as those of a healthy GPU would with the links to
    /// themselves; at least one. Empty: all are healthy.
    pub slowdowns: Vec<Ratio>,
    /// Links that are slower than they should be, or cut.
    pub damages: Vec<Damage>,
    /// What was fitted to measurements, in place of the fabric's own rates and latencies.
    pub fitted: Option<Fitted>,
}

impl Settings {
    /// Returns settings of a healthy machine on which all ranks enter at once, in tiles of so many bytes of a chunk.
    pub fn new(protocol: &Protocol, slice_bytes: u64) -> Self {
        Self {
            protocol: protocol.clone(),
            slice_bytes,
            sharing: Sharing::MaxMin,
            at_switch: AtSwitch::Refuse,
            detail: Detail::Path,
            starts_ps: Vec::new(),
            slowdowns: Vec::new(),
            damages: Vec::new(),
            fitted: None,
        }
    }
}

//! What a run is given besides a schedule and a fabric.

use super::protocol::Protocol;
use crate::units::Ps;

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

/// What becomes of a step `at switch` where no switch can do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtSwitch {
    /// It is an error, which names an algorithm that does without.
    Refuse,
    /// It is done by its rank, point to point.
    Ignore,
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

/// What has happened to a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// Which: a position in the fabric's `links`, which is one direction.
    pub link: usize,
    /// What is left of its rate; zero cuts it, and routes go round it.
    pub left: Ratio,
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
        }
    }
}

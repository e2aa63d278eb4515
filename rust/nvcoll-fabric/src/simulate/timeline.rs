//! What a run tells.

use super::critical::Critical;
use crate::units::Ps;

/// What happened, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    /// For each rank, when it left the call.
    pub ends_ps: Vec<Ps>,
    /// For each link of the fabric, what it did.
    pub links: Vec<LinkUse>,
    /// For each rank, the bytes that its own steps read from and wrote to its memory.
    pub memory_bytes: Vec<u64>,
    /// How many tiles it took.
    pub tiles: u32,
    /// Every step in every tile, by rank, queue and time; empty unless asked for.
    pub spans: Vec<StepSpan>,
    /// Over what the bytes of spans go, the first over nothing; empty unless spans were asked for.
    pub ways: Vec<SpanRoute>,
    /// What the end was waiting for; empty unless asked for.
    pub critical: Critical,
}

impl Timeline {
    /// Returns when the last rank left.
    pub fn total_ps(&self) -> Ps {
        self.ends_ps.iter().copied().max().unwrap_or(0)
    }
}

/// What one direction of a link did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkUse {
    /// Bytes that crossed it, the protocol's included; rounded up.
    pub nbytes: u64,
    /// How long something was on it.
    pub busy_ps: Ps,
}

/// A step in a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepSpan {
    /// The rank.
    pub rank: u32,
    /// Which of its queues.
    pub queue: u32,
    /// The place in that queue.
    pub step: u32,
    /// The tile.
    pub tile: u32,
    /// When everything that it waits for was over.
    pub start_ps: Ps,
    /// When it was done.
    pub end_ps: Ps,
    /// Over what its bytes went: a position in the timeline's `ways`.
    pub way: u32,
}

/// Over what the bytes of a step go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanRoute {
    /// How long after the step is ready they begin to move.
    pub before_ps: Ps,
    /// The links that they cross: positions in the fabric's links.
    pub links: Vec<usize>,
}

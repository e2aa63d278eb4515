//! The result of a run.

use super::critical::Critical;
use crate::units::Ps;

/// The times of ranks, links and steps of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    /// For each rank, the time at which it left the call.
    pub ends_ps: Vec<Ps>,
    /// The use of each link of the fabric.
    pub links: Vec<LinkUse>,
    /// For each rank, the bytes that its own steps read from and wrote to its memory.
    pub memory_bytes: Vec<u64>,
    /// The number of tiles.
    pub tiles: u32,
    /// Every step in every tile, by rank, queue and time; empty unless asked for.
    pub spans: Vec<StepSpan>,
    /// The routes of spans, the first without links; empty unless spans were asked for.
    pub ways: Vec<SpanRoute>,
    /// The critical path.
    pub critical: Critical,
}

impl Timeline {
    /// Returns the time at which the last rank left.
    pub fn total_ps(&self) -> Ps {
        self.ends_ps.iter().copied().max().unwrap_or(0)
    }
}

/// The use of one direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkUse {
    /// Bytes that crossed it, the protocol's included; rounded up.
    pub nbytes: u64,
    /// The time during which it carried bytes.
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
    /// The time at which all that it waits for was over.
    pub start_ps: Ps,
    /// The time at which it was done.
    pub end_ps: Ps,
    /// The route of its bytes: a position in the timeline's `ways`.
    pub way: u32,
}

/// The route of the bytes of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanRoute {
    /// The time from the step being ready to its first byte moving.
    pub before_ps: Ps,
    /// The links that they cross: positions in the fabric's links.
    pub links: Vec<usize>,
}

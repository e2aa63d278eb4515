//! What a call's time is made of, and what carries its bytes.

use super::bottleneck::{Cut, TrafficPattern};

/// What limits the bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Carrier {
    /// What joins a GPU to the others of its node.
    Links,
    /// The same, while a switch folds.
    FoldingSwitch,
    /// A node's cards.
    Cards,
    /// The narrowest link on the way around the GPUs.
    InnerLink(TrafficPattern),
    /// A cut that is narrower than what joins a GPU to the others.
    Cut(Cut),
}

/// The parts of the device's time, in microseconds, and its load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TimeBreakdown {
    /// Kernel and protocol, before the first step.
    pub(super) start_up: f64,
    /// What every call over a network takes more.
    pub(super) network: f64,
    /// Steps from GPU to GPU.
    pub(super) hops: f64,
    /// Channels after the first, which start one after the other.
    pub(super) channels: f64,
    /// Until the stages of a pipeline are full.
    pub(super) fill: f64,
    /// Bytes over rates.
    pub(super) bytes: f64,
    pub(super) carrier: Carrier,
    /// Bytes that the carrier moves, each way.
    pub(super) load: f64,
    /// Bytes that a node's cards move, each way.
    pub(super) of_cards: f64,
}

impl TimeBreakdown {
    pub(super) fn us(&self) -> f64 {
        self.start_up + self.channels + self.network + self.hops + self.fill + self.bytes
    }
}

/// Microseconds of bytes at GB/s.
pub(super) fn us(bytes: f64, gbps: f64) -> f64 {
    bytes / (gbps * 1e3)
}

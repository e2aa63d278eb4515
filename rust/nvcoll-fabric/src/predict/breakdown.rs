//! The parts of a call's time, and the part of the machine that limits its bytes.

use super::bottleneck::{Cut, TrafficPattern};
use crate::nccl::Protocol;

/// Returns the bytes on links per byte of data: with LL, half of them are flags.
pub(super) fn wire(protocol: Protocol) -> f64 {
    if protocol == Protocol::Ll {
        2.0
    } else {
        1.0
    }
}

/// The part of the machine that limits the rate of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) enum Carrier {
    /// The links between a GPU and the others of its node.
    #[default]
    Links,
    /// The links between a GPU and a switch that reduces (NVLS).
    FoldingSwitch,
    /// The network cards of a node.
    Cards,
    /// The narrowest link on the way around the GPUs.
    InnerLink(TrafficPattern),
    /// A cut that is narrower than the links of a GPU.
    Cut(Cut),
}

/// The parts of the device's time, in microseconds, and its load.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct TimeBreakdown {
    /// Kernel and protocol, before the first step.
    pub(super) start_up: f64,
    /// Network software: once per hop between nodes.
    pub(super) network: f64,
    /// Latency of the steps from GPU to GPU.
    pub(super) hops: f64,
    /// Channels after the first, which start one after the other.
    pub(super) channels: f64,
    /// Filling and draining the stages of a pipeline.
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

/// Returns the microseconds of bytes at a rate in GB/s.
pub(super) fn us(bytes: f64, gbps: f64) -> f64 {
    bytes / (gbps * 1e3)
}

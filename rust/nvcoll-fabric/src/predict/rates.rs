//! The rates of links in use: the parts of their line rates that the constants give them on one machine.

use super::constants::Constants;
use super::machine::{Interconnect, MachineSummary};
use crate::hardware::media::LinkFamily;
use crate::hardware::{DeviceKind, Fabric, Link};
use crate::units::Rate;

/// The rates of the links of a GPU and of a node's cards, one way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct UsedRates {
    /// GB/s of a GPU at line rate.
    pub(super) line_gbps: f64,
    /// The GB/s that a GPU sends while it receives as much.
    pub(super) bidirectional_gbps: f64,
    /// The GB/s that a GPU adds to a ring.
    pub(super) ring_gbps: f64,
    /// The GB/s of a GPU in a chain, where two GPUs use one way only.
    pub(super) one_way_gbps: f64,
    /// The GB/s of a node's cards in a long transfer, and at line rate; none for one node.
    pub(super) cards: Option<(f64, f64)>,
}

impl UsedRates {
    /// Selects the rates of a machine.
    pub(super) fn of(machine: &MachineSummary, constants: &Constants) -> Self {
        let effects = &constants.effects;
        let (line_gbps, medium) = (machine.line_gbps, machine.medium);
        let (bidirectional_gbps, one_way_gbps) = match machine.interconnect {
            Interconnect::Nvlink => {
                let part = effects.efficiency.media.get(&medium.name).copied().unwrap_or(medium.efficiency);
                (line_gbps * part, line_gbps * part)
            }
            Interconnect::Peer => (line_gbps * effects.efficiency.pcie, line_gbps * effects.efficiency.pcie),
            // The last GPU of a chain does not send. With more than two GPUs, those between send while they receive.
            Interconnect::Staged => {
                let staged = &effects.staged;
                let senders = machine.sharers.min(f64::from(machine.ranks) - 1.0);
                let part = if machine.ranks == 2 { staged.one_way } else { staged.both_ways };
                (line_gbps * staged.both_ways / machine.sharers, line_gbps * part / senders)
            }
        };
        // A ring enters GPUs that bridges join by one slot and leaves by another: each is used one way, and several pairs of them.
        // 25.9 of 31.5 GB/s on pairs, 68.7 on fours between sockets (public logs of A100 PCIe and H200 NVL).
        let bridged = machine.bridged.filter(|_| machine.interconnect == Interconnect::Peer);
        let of_slots = |gpus: u32| line_gbps * medium.efficiency * f64::from(gpus) / 2.0;
        let ring_gbps = bridged.map_or(bidirectional_gbps, of_slots);
        let cards =
            machine.network.as_ref().map(|network| (network.line_gbps * effects.network.ring, network.line_gbps));
        Self { line_gbps, bidirectional_gbps, ring_gbps, one_way_gbps, cards }
    }

    /// Returns the rate of a link in use. Links of a GPU and of a node's cards have their part of the constants' rate. PCIe links
    /// that are not at a GPU have the fabric's rate, because the constants have the shares of GPUs there.
    pub(super) fn of_link(&self, fabric: &Fabric, machine: &MachineSummary, link: &Link) -> Rate {
        let is_of_gpu = [link.from, link.to].iter().any(|&end| fabric.devices[end].kind == DeviceKind::Gpu);
        match (link.medium.family, machine.interconnect) {
            (LinkFamily::Nvlink | LinkFamily::Xgmi, Interconnect::Nvlink) => {
                Rate::from_gbps(link.line_rate().gbps() * self.bidirectional_gbps / self.line_gbps)
            }
            (LinkFamily::Pcie | LinkFamily::C2c, Interconnect::Peer | Interconnect::Staged) if is_of_gpu => {
                let of_slot = |gpus: u32| self.ring_gbps * 2.0 / f64::from(gpus);
                let bridged = machine.bridged.filter(|_| machine.interconnect == Interconnect::Peer);
                let gbps = bridged.map_or(self.bidirectional_gbps, of_slot);
                Rate::from_gbps(link.line_rate().gbps() * gbps / self.line_gbps)
            }
            (LinkFamily::Network, _) => {
                let part = self.cards.map_or(1.0, |(used, line)| used / line);
                Rate::from_gbps(link.line_rate().gbps() * part)
            }
            _ => link.rate(),
        }
    }
}

//! Cuts that are narrower than the GPUs' own links, and the rate of a link in use.
//!
//! ```text
//! mesh     sends: the cuts of `floor.rs` with the rates of links in use; GPUs forward
//! network  sends: the same cuts, where they let less through than they would if switches blocked nothing
//!          rings and trees: the link between switches with the least rate for each card whose ring crosses it, where a ring
//!          visits the nodes in the order of ranks
//! egress   the largest flow from all GPUs of a node to its cards, with the rates of links in use
//! ```
//!
//! Trees between nodes are taken to be held up as rings are. How a hash spreads the flows of sends is not known here.

use super::bottleneck::{narrowest, Bottleneck, Cut, Visit, NARROWER};
use super::machine::{Interconnect, MachineSummary};
use super::params::UsedRates;
use super::pattern::Pattern;
use crate::error::Result;
use crate::hardware::media::LinkFamily;
use crate::hardware::{DeviceKind, Fabric, Link};
use crate::topology::flow_network::FlowNetwork;
use crate::topology::max_flow::UNBOUNDED;
use crate::units::Rate;

/// Finds the cut of the fabric that limits a pattern of sends more than the links of the GPUs do.
///
/// # Errors
/// As [`Fabric::floor`].
pub(super) fn cut(
    fabric: &Fabric,
    machine: &MachineSummary,
    rates: &UsedRates,
    pattern: Pattern,
) -> Result<Option<Cut>> {
    // The ports of a switch are those of its GPUs. Without NVLink there is one route, and GPUs do not forward.
    let is_mesh = machine.interconnect == Interconnect::Nvlink && !machine.has_switch;
    // Other patterns use one card per node, and no tier is narrower than a card.
    let is_wide = pattern != Pattern::AllToAll || !fabric.has_tiers();
    if !pattern.is_of_sends() || !is_mesh && is_wide {
        return Ok(None);
    }
    let gpu_gbps = |algbw: Option<Rate>| algbw.map(|rate| rate.gbps() * pattern.sent(f64::from(machine.ranks)));
    let in_use = |link: &Link| in_use(fabric, machine, rates, link);
    let gbps = gpu_gbps(pattern.bound(fabric, in_use)?.algbw).unwrap_or(f64::INFINITY);
    if !is_mesh {
        // More than all GPUs send; sums of such rates still fit.
        let unblocked = |link: &Link| if is_between(fabric, link) { Rate(UNBOUNDED << 12) } else { in_use(link) };
        let open = gpu_gbps(pattern.bound(fabric, unblocked)?.algbw).unwrap_or(f64::INFINITY);
        if gbps >= NARROWER * open {
            return Ok(None);
        }
    }
    let line_gbps = gpu_gbps(pattern.floor(fabric)?.algbw).unwrap_or(f64::INFINITY);
    let part = gbps / rates.bidirectional_gbps;
    Ok((part < NARROWER).then_some(Cut { part, line_gbps }))
}

/// Says whether a link joins two switches of a network.
fn is_between(fabric: &Fabric, link: &Link) -> bool {
    [link.from, link.to].iter().all(|&end| fabric.devices[end].kind == DeviceKind::NetworkSwitch)
}

/// The most nodes whose links to the next are looked at. Chosen: groups repeat.
const MOST_NODES: u32 = 256;

/// Finds the link between switches that limits rings over the nodes more than their cards do; its rate is that of a node.
///
/// # Errors
/// [`crate::Error::NoPath`].
pub(super) fn network(fabric: &Fabric, machine: &MachineSummary, rates: &UsedRates) -> Result<Option<Bottleneck>> {
    let Some(between) = machine.network.as_ref().filter(|_| fabric.has_tiers()) else { return Ok(None) };
    let local = machine.local();
    let used = local.min(between.cards);
    let hops = (0..machine.nodes.min(MOST_NODES)).flat_map(|node| {
        let next = (node + 1) % machine.nodes * local;
        (0..used)
            .map(|card| card * local / used)
            .map(move |gpu| (node * local + gpu, next + gpu, 1.0 / f64::from(used)))
    });
    let hops: Vec<Visit> = hops.collect();
    let gbps = |link: &Link| in_use(fabric, machine, rates, link).gbps();
    let narrowest = narrowest(fabric, &hops, |link| is_between(fabric, link), gbps)?;
    let cards = rates.cards.map_or(0.0, |(used, _)| used);
    Ok(narrowest.filter(|narrow| narrow.gbps < NARROWER * cards))
}

/// Returns the GB/s that the GPUs of the first node can bring to its network cards; none for one node.
pub(super) fn egress(fabric: &Fabric, machine: &MachineSummary, rates: &UsedRates) -> Option<f64> {
    rates.cards?;
    let rate = |link: &Link| in_use(fabric, machine, rates, link);
    let node: Vec<usize> = fabric.gpus().into_iter().take(machine.local() as usize).collect();
    let is_own = |&card: &usize| fabric.devices[card].node == fabric.devices[node[0]].node;
    let cards: Vec<usize> = fabric.of_kind(DeviceKind::Nic).filter(is_own).collect();
    Some(Rate(FlowNetwork::of(fabric, rate).between(&node, &cards)).gbps())
}

/// Returns the rate of a link in use. Links of a GPU and of a node's cards have their part of the constants' rate. PCIe links
/// that are not at a GPU have the fabric's rate, because the constants have the shares of GPUs there.
pub(super) fn in_use(fabric: &Fabric, machine: &MachineSummary, rates: &UsedRates, link: &Link) -> Rate {
    let is_of_gpu = [link.from, link.to].iter().any(|&end| fabric.devices[end].kind == DeviceKind::Gpu);
    match (link.medium.family, machine.interconnect) {
        (LinkFamily::Nvlink | LinkFamily::Xgmi, Interconnect::Nvlink) => {
            Rate::from_gbps(link.line_rate().gbps() * rates.bidirectional_gbps / rates.line_gbps)
        }
        (LinkFamily::Pcie | LinkFamily::C2c, Interconnect::Peer | Interconnect::Staged) if is_of_gpu => {
            Rate::from_gbps(link.line_rate().gbps() * rates.bidirectional_gbps / rates.line_gbps)
        }
        (LinkFamily::Network, _) => {
            let part = rates.cards.map_or(1.0, |(used, line)| used / line);
            Rate::from_gbps(link.line_rate().gbps() * part)
        }
        _ => link.rate(),
    }
}

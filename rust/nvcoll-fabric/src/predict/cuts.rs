//! Cuts that are narrower than the GPUs' own links, and the rate of a link in use.
//!
//! ```text
//! mesh     sends: the cuts of `floor.rs` with the rates of links in use; GPUs forward
//! egress   the largest flow from all GPUs of a node to its cards, with the rates of links in use
//! ```

use super::bottleneck::{Cut, NARROWER};
use super::machine::{Interconnect, MachineSummary};
use super::params::ModelParams;
use super::pattern::Pattern;
use crate::error::Result;
use crate::flow_network::FlowNetwork;
use crate::hardware::media::LinkFamily;
use crate::hardware::{DeviceKind, Fabric, Link};
use crate::units::Rate;

/// Finds the cut of the fabric that limits a pattern of sends more than the links of the GPUs do.
///
/// # Errors
/// As [`Fabric::floor`].
pub(super) fn cut(
    fabric: &Fabric,
    machine: &MachineSummary,
    params: &ModelParams,
    pattern: Pattern,
) -> Result<Option<Cut>> {
    // The ports of a switch are those of its GPUs. Without NVLink there is one route, and GPUs do not forward.
    if machine.interconnect != Interconnect::Nvlink || machine.has_switch || !pattern.is_of_sends() {
        return Ok(None);
    }
    let gpu_gbps = |algbw: Option<Rate>| algbw.map(|rate| rate.gbps() * pattern.sent(params.ranks));
    let in_use = |link: &Link| in_use(fabric, machine, params, link);
    let gbps = gpu_gbps(pattern.bound(fabric, in_use)?.algbw).unwrap_or(f64::INFINITY);
    let line_gbps = gpu_gbps(pattern.floor(fabric)?.algbw).unwrap_or(f64::INFINITY);
    let part = gbps / params.bidirectional_gbps;
    Ok((part < NARROWER).then_some(Cut { part, line_gbps }))
}

/// Returns the GB/s that the GPUs of the first node can bring to its network cards; none for one node.
pub(super) fn egress(fabric: &Fabric, machine: &MachineSummary, params: &ModelParams) -> Option<f64> {
    params.inter_node.as_ref()?;
    let rate = |link: &Link| in_use(fabric, machine, params, link);
    let node: Vec<usize> = fabric.gpus().into_iter().take(machine.local() as usize).collect();
    let is_own = |&card: &usize| fabric.devices[card].node == fabric.devices[node[0]].node;
    let cards: Vec<usize> = fabric.of_kind(DeviceKind::Nic).filter(is_own).collect();
    Some(Rate(FlowNetwork::of(fabric, rate).between(&node, &cards)).gbps())
}

/// Returns the rate of a link in use. Links of a GPU and of a node's cards have their part of the constants' rate. PCIe links
/// that are not at a GPU have the fabric's rate, because the constants have the shares of GPUs there.
pub(super) fn in_use(fabric: &Fabric, machine: &MachineSummary, params: &ModelParams, link: &Link) -> Rate {
    let is_of_gpu = [link.from, link.to].iter().any(|&end| fabric.devices[end].kind == DeviceKind::Gpu);
    match (link.medium.family, machine.interconnect) {
        (LinkFamily::Nvlink | LinkFamily::Xgmi, Interconnect::Nvlink) => {
            Rate::from_gbps(link.line_rate().gbps() * params.bidirectional_gbps / params.line_gbps)
        }
        (LinkFamily::Pcie | LinkFamily::C2c, Interconnect::Peer | Interconnect::Staged) if is_of_gpu => {
            Rate::from_gbps(link.line_rate().gbps() * params.bidirectional_gbps / params.line_gbps)
        }
        (LinkFamily::Network, _) => {
            let part = params.inter_node.as_ref().map_or(1.0, |network| network.cards_gbps / network.line_gbps);
            Rate::from_gbps(link.line_rate().gbps() * part)
        }
        _ => link.rate(),
    }
}

//! A fabric as a network of flows: what some GPUs can send to others, whatever the routes.
//!
//! ```text
//! gpu ─▶ socket ─▶ memory ─▶ socket again ─▶ gpu, nic          without peer access, what lies on the host is there twice:
//!  └───▶ nvswitch ─▶ gpu                                        towards memory, and from it
//! ```
//!
//! With several nodes and NICs that reach GPU memory, staging inside the nodes is not asked for: more can flow than really can.

use crate::flow::{MaxFlow, UNBOUNDED};
use crate::hardware::{DeviceKind, Fabric, Link};
use crate::units::Rate;

/// The network, and two places that are no devices.
pub(crate) struct Flows {
    network: MaxFlow,
    source: usize,
    sink: usize,
}

impl Flows {
    pub(crate) fn of(fabric: &Fabric, rate: impl Fn(&Link) -> Rate) -> Self {
        let devices = fabric.devices.len();
        let mut network = MaxFlow::new(2 * devices + 2);
        for link in &fabric.links {
            for (from, to) in ends(fabric, link) {
                network.add(from, to, rate(link).0);
            }
        }
        Self { network, source: 2 * devices, sink: 2 * devices + 1 }
    }

    /// Returns what the devices `from` can send to the devices `to`.
    pub(crate) fn between(&self, from: &[usize], to: &[usize]) -> u64 {
        let mut network = self.network.clone();
        from.iter().for_each(|&at| network.add(self.source, at, UNBOUNDED));
        to.iter().for_each(|&at| network.add(at, self.sink, UNBOUNDED));
        network.between(self.source, self.sink).value
    }

    /// Returns what each GPU could offer at most because of the cut that keeps `receiver` from getting `offer` of each, or
    /// nothing if none does.
    pub(crate) fn less_than(&self, offer: u64, gpus: &[usize], receiver: usize) -> Option<u64> {
        let mut network = self.network.clone();
        gpus.iter().for_each(|&gpu| network.add(self.source, gpu, offer));
        let flow = network.between(self.source, receiver);
        let inside = gpus.iter().filter(|&&gpu| flow.is_inside[gpu]).count() as u64;
        let outside = gpus.len() as u64 - inside;
        let less = (flow.value - outside * offer).checked_div(inside)?;
        (less < offer).then_some(less)
    }
}

/// Where a link is in the network.
fn ends(fabric: &Fabric, link: &Link) -> Vec<(usize, usize)> {
    let kind = |at: usize| fabric.devices[at].kind;
    let is_host = |at: usize| matches!(kind(at), DeviceKind::PcieSwitch | DeviceKind::Socket);
    if !is_staged(fabric) || !(is_host(link.from) || is_host(link.to)) {
        return vec![(link.from, link.to)];
    }
    let again = |at: usize| if is_host(at) { fabric.devices.len() + at } else { at };
    let mut ends = Vec::new();
    if is_host(link.to) && kind(link.from) != DeviceKind::Memory || kind(link.to) == DeviceKind::Memory {
        ends.push((link.from, link.to));
    }
    if is_host(link.from) && kind(link.to) != DeviceKind::Memory || kind(link.from) == DeviceKind::Memory {
        ends.push((again(link.from), again(link.to)));
    }
    ends
}

/// Says whether GPUs that share no NVLink reach each other through memory only.
fn is_staged(fabric: &Fabric) -> bool {
    let has_nic = fabric.of_kind(DeviceKind::Nic).next().is_some();
    !fabric.abilities.peer_access && (!has_nic || !fabric.abilities.gpu_direct)
}

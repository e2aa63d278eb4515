//! A fabric as a network of flows: what some GPUs can send to others, whatever the routes.
//!
//! ```text
//! gpu ─▶ socket ─▶ memory ─▶ socket again ─▶ gpu, nic          without peer access, what lies on the host is there twice:
//!  └───▶ nvswitch ─▶ gpu                                        towards memory, and from it
//! ```
//!
//! With several nodes and NICs that reach GPU memory, staging inside the nodes is not asked for: more can flow than really can.

use std::collections::HashMap;

use crate::hardware::{DeviceKind, Fabric, Link};
use crate::topology::equal_nodes::EqualNodes;
use crate::topology::max_flow::{MaxFlow, UNBOUNDED};
use crate::units::Rate;

/// A device in the network, and whether it is the one that lies behind memory.
type FlowEnd = (usize, bool);

/// A fabric as a network of flows.
///
/// Of equal nodes it keeps one of each group. For each question, nodes of a group whose GPUs take part in the same way become
/// one node, with capacities multiplied by their number: the smallest cut that lies next to the sources is unique, so it treats
/// such nodes alike, and no cut is missed.
pub(crate) struct FlowNetwork {
    /// Edges between shared devices; all edges where nodes differ.
    edges: Vec<FlowEdge>,
    devices: usize,
    /// The devices that no node has, or all.
    shared: usize,
    /// The devices of a node; 0 where nodes differ.
    node_devices: usize,
    /// For each node the number of its group; empty where nodes differ.
    group_of: Vec<usize>,
    /// For each group, the edges of a node, whose devices have their numbers in the first node of all.
    of_group: Vec<Vec<FlowEdge>>,
}

/// An edge and its capacity.
type FlowEdge = (FlowEnd, FlowEnd, u64);

/// What a device does in a question.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct FlowRole {
    is_source: bool,
    is_sink: bool,
}

/// A network in which nodes that take part alike are one.
struct MergedNetwork {
    network: MaxFlow,
    /// For each class of nodes the first of them, and their number.
    classes: Vec<(usize, u64)>,
    places: usize,
}

impl FlowNetwork {
    pub(crate) fn of(fabric: &Fabric, rate: impl Fn(&Link) -> Rate) -> Self {
        Self::with(fabric, rate, EqualNodes::in_groups(fabric))
    }

    fn with(fabric: &Fabric, rate: impl Fn(&Link) -> Rate, equal_nodes: Option<EqualNodes>) -> Self {
        let edges = |links: &[Link], moved: &dyn Fn(FlowEnd) -> FlowEnd| -> Vec<FlowEdge> {
            let edge = |link: &Link| {
                let rate = rate(link).0;
                ends(fabric, link).into_iter().map(move |(from, to)| (moved(from), moved(to), rate))
            };
            links.iter().flat_map(edge).collect()
        };
        let devices = fabric.devices.len();
        let Some(found) = equal_nodes else {
            let edges = edges(&fabric.links, &|end| end);
            return Self { edges, devices, shared: devices, node_devices: 0, group_of: vec![], of_group: vec![] };
        };
        let shared = found.shared_devices;
        let of_group = found.groups.iter().map(|&(node, _)| {
            let moved = |(at, is_behind): FlowEnd| match at < shared {
                true => (at, is_behind),
                false => (at - node * found.node_devices, is_behind),
            };
            edges(&fabric.links[found.links_of(node)], &moved)
        });
        Self {
            edges: edges(&fabric.links[..found.shared_links], &|end| end),
            devices,
            shared,
            node_devices: found.node_devices,
            of_group: of_group.collect(),
            group_of: found.group_of,
        }
    }

    /// Returns what the devices `from` can send to the devices `to`.
    pub(crate) fn between(&self, from: &[usize], to: &[usize]) -> u64 {
        let roles = self.roles(from, to);
        let mut merged = self.merged(&roles);
        let (source, sink) = (merged.places, merged.places + 1);
        for (role, place, size) in self.members(&merged, &roles) {
            if role.is_source {
                merged.network.add(source, place, UNBOUNDED * size);
            }
            if role.is_sink {
                merged.network.add(place, sink, UNBOUNDED * size);
            }
        }
        merged.network.between(source, sink).value
    }

    /// Returns what each GPU could offer at most because of the cut that keeps `receiver` from getting `offer` of each, or
    /// nothing if none does.
    pub(crate) fn less_than(&self, offer: u64, gpus: &[usize], receiver: usize) -> Option<u64> {
        let roles = self.roles(gpus, &[receiver]);
        let mut merged = self.merged(&roles);
        let (source, mut sink) = (merged.places, 0);
        let mut offers = Vec::new();
        for (role, place, size) in self.members(&merged, &roles) {
            if role.is_source {
                merged.network.add(source, place, offer * size);
                offers.push((place, size));
            }
            if role.is_sink {
                sink = place;
            }
        }
        let flow = merged.network.between(source, sink);
        let inside: u64 = offers.iter().filter(|(place, _)| flow.is_inside[*place]).map(|(_, size)| size).sum();
        let outside = gpus.len() as u64 - inside;
        let less = (flow.value - outside * offer).checked_div(inside)?;
        (less < offer).then_some(less)
    }

    fn roles(&self, from: &[usize], to: &[usize]) -> Vec<FlowRole> {
        let mut roles = vec![FlowRole::default(); self.devices];
        from.iter().for_each(|&at| roles[at].is_source = true);
        to.iter().for_each(|&at| roles[at].is_sink = true);
        roles
    }

    /// Makes the network of a question.
    fn merged(&self, roles: &[FlowRole]) -> MergedNetwork {
        let mut numbers: HashMap<(usize, &[FlowRole]), usize> = HashMap::new();
        let mut classes: Vec<(usize, u64)> = Vec::new();
        for (node, &group) in self.group_of.iter().enumerate() {
            let first = self.shared + node * self.node_devices;
            let class = *numbers.entry((group, &roles[first..first + self.node_devices])).or_insert(classes.len());
            if class == classes.len() {
                classes.push((node, 0));
            }
            classes[class].1 += 1;
        }
        let half = self.shared + classes.len() * self.node_devices;
        let mut network = MaxFlow::new(2 * half + 2);
        for &(from, to, capacity) in &self.edges {
            network.add(self.place(from, 0, half), self.place(to, 0, half), capacity);
        }
        for (class, &(node, size)) in classes.iter().enumerate() {
            for &(from, to, capacity) in &self.of_group[self.group_of[node]] {
                network.add(self.place(from, class, half), self.place(to, class, half), capacity * size);
            }
        }
        MergedNetwork { network, classes, places: 2 * half }
    }

    /// Returns the role and the place of each device of the merged network, and the number of devices that it stands for.
    fn members(&self, merged: &MergedNetwork, roles: &[FlowRole]) -> Vec<(FlowRole, usize, u64)> {
        let half = merged.places / 2;
        let shared = (0..self.shared).map(|device| (roles[device], device, 1));
        let of_class = |(class, &(node, size)): (usize, &(usize, u64))| {
            let devices = self.shared..self.shared + self.node_devices;
            let role = move |device: usize| roles[device + node * self.node_devices];
            devices.map(move |device| (role(device), self.place((device, false), class, half), size))
        };
        shared.chain(merged.classes.iter().enumerate().flat_map(of_class)).collect()
    }

    /// Returns the place of a device of the first node in the network, for a class of nodes.
    fn place(&self, (device, is_behind): FlowEnd, class: usize, half: usize) -> usize {
        let device = if device < self.shared { device } else { device + class * self.node_devices };
        if is_behind {
            half + device
        } else {
            device
        }
    }
}

/// Where a link is in the network.
fn ends(fabric: &Fabric, link: &Link) -> Vec<(FlowEnd, FlowEnd)> {
    let kind = |at: usize| fabric.devices[at].kind;
    let is_host = |at: usize| matches!(kind(at), DeviceKind::PcieSwitch | DeviceKind::Socket);
    if !is_staged(fabric) || !(is_host(link.from) || is_host(link.to)) {
        return vec![((link.from, false), (link.to, false))];
    }
    let behind = |at: usize| (at, is_host(at));
    let mut ends = Vec::new();
    if is_host(link.to) && kind(link.from) != DeviceKind::Memory || kind(link.to) == DeviceKind::Memory {
        ends.push(((link.from, false), (link.to, false)));
    }
    if is_host(link.from) && kind(link.to) != DeviceKind::Memory || kind(link.from) == DeviceKind::Memory {
        ends.push((behind(link.from), behind(link.to)));
    }
    ends
}

/// Says whether GPUs that share no NVLink reach each other through memory only.
fn is_staged(fabric: &Fabric) -> bool {
    let has_nic = fabric.of_kind(DeviceKind::Nic).next().is_some();
    !fabric.abilities.peer_access && (!has_nic || !fabric.abilities.gpu_direct)
}

#[cfg(test)]
mod tests {
    use super::{FlowNetwork, Link};
    use crate::hardware::network::{Network, Tier};
    use crate::machines::preset;
    use crate::topology::cluster::{cluster, network};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nodes_that_are_merged_change_no_flow(
            which in 0usize..4, nodes in 3u32..6, drawn in prop::collection::vec(0u8..5, 48), receiver in 0usize..3,
        ) {
            let (node, net) = [
                ("hgx-h100", "ib-ndr-8"), ("dgx1-v100", "ib-hdr-4"), ("rtx4090-4-staged", "ib-ndr-1"), ("gh200-4", "slingshot-4"),
            ][which];
            let tier = |children, part| Tier { children, oversubscription: part, ..Tier::default() };
            let tree = Network { tiers: vec![tier(Some(2), Some(2.0)), tier(None, None)], ..network(net).unwrap().clone() };
            let net = if nodes > 4 { &tree } else { network(net).unwrap() };
            let all = cluster(&preset(node).unwrap(), nodes, net).unwrap();
            let (few, whole) = (FlowNetwork::of(&all, Link::line_rate), FlowNetwork::with(&all, Link::line_rate, None));
            prop_assert!(!few.group_of.is_empty() && whole.group_of.is_empty());
            let gpus = all.gpus();
            let of = |part: u8| gpus.iter().zip(drawn.iter().cycle()).filter(|(_, &drawn)| drawn == part).map(|(&gpu, _)| gpu).collect::<Vec<_>>();
            let (from, to) = (of(0), of(1));
            prop_assert_eq!(few.between(&from, &to), whole.between(&from, &to));
            prop_assert_eq!(few.between(&gpus[..1], &gpus[5..6]), whole.between(&gpus[..1], &gpus[5..6]));
            for offer in [1_000_000_000, 20_000_000_000, 400_000_000_000] {
                let receiver = gpus[receiver];
                prop_assert_eq!(few.less_than(offer, &gpus, receiver), whole.less_than(offer, &gpus, receiver));
            }
        }
    }

    #[test]
    fn a_question_about_thousands_of_nodes_looks_at_a_few() {
        let all = cluster(&preset("hgx-h100").unwrap(), 1000, network("ib-ndr-8").unwrap()).unwrap();
        let flows = FlowNetwork::of(&all, Link::line_rate);
        let gpus = all.gpus();
        let merged = flows.merged(&flows.roles(&gpus[..1], &gpus[4000..4001]));
        assert_eq!(merged.classes.iter().map(|class| class.1).sum::<u64>(), 1000);
        assert_eq!(merged.classes.len(), 3, "the sender's node, the receiver's, and all others");
        assert!(merged.places < 200, "{}", merged.places);
    }
}

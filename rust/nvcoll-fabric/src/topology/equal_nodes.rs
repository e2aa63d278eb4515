//! Clusters of equal nodes: what stands between the nodes, described first, then node after node, each like the first.
//!
//! ```text
//! devices   rail0 rail1 spine │ node 0 │ node 1 │ … │ node N-1        links in the same order
//!           shared              block    block        block
//! ```
//!
//! Nodes that hang at the same shared devices are a group: all nodes, or those at one leaf of a tree. They can change places
//! without changing the machine, so questions about thousands of nodes are answered on a few:
//!
//! - a smallest cut treats nodes of a group alike whose GPUs are on the same sides, so such nodes count as one
//!   (`flow_network.rs`);
//! - what lies inside one node is the same in all ([`EqualNodes::first`]);
//! - a fair share is the same for all pairs of GPUs that a change of places exchanges, where there is one way only between
//!   any two switches (`rates.rs`);
//! - where there is one group, too ([`EqualNodes::of`]), the quickest way between two ranks visits at most three different
//!   nodes, whatever it passes.

use std::collections::HashMap;
use std::ops::Range;

use crate::hardware::{Device, Fabric, Link};

/// Where the parts of a cluster of equal nodes lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EqualNodes {
    /// The number of devices between nodes, which come first.
    pub(crate) shared_devices: usize,
    /// The number of links between these.
    pub(crate) shared_links: usize,
    /// The number of devices of each node.
    pub(crate) node_devices: usize,
    /// The number of links in each node and between it and the shared devices.
    pub(crate) node_links: usize,
    /// The number of nodes: three or more.
    pub(crate) nodes: usize,
    /// For each node, the number of its group.
    pub(crate) group_of: Vec<usize>,
    /// For each group, its first node and the number of its nodes.
    pub(crate) groups: Vec<(usize, usize)>,
}

impl EqualNodes {
    /// Finds the parts of a fabric whose nodes all can change places; none if it has fewer than three nodes, or nodes that
    /// differ or hang at different devices, or if a hash takes one of several ways between two switches.
    pub(crate) fn of(fabric: &Fabric) -> Option<Self> {
        Self::in_groups(fabric).filter(|found| found.groups.len() == 1 && !fabric.has_parallel_ways())
    }

    /// Finds the parts of a fabric whose nodes are alike, but for the shared devices at which they hang; none if it has fewer
    /// than three nodes, or nodes that differ.
    pub(crate) fn in_groups(fabric: &Fabric) -> Option<Self> {
        let shared = fabric.devices.iter().position(|device| device.node.is_some())?;
        let joins = |link: &Link| link.from < shared && link.to < shared;
        let between = fabric.links.iter().take_while(|link| joins(link)).count();
        let nodes = fabric.nodes() as usize;
        let block = |all: Range<usize>| (nodes > 2 && all.len().is_multiple_of(nodes)).then_some(all.len() / nodes);
        let mut equal_nodes = Self {
            shared_devices: shared,
            shared_links: between,
            node_devices: block(shared..fabric.devices.len())?,
            node_links: block(between..fabric.links.len())?,
            nodes,
            group_of: Vec::with_capacity(nodes),
            groups: Vec::new(),
        };
        equal_nodes.are_alike(fabric).then(|| equal_nodes.divide(fabric))?;
        Some(equal_nodes)
    }

    /// Divides the nodes into groups.
    fn divide(&mut self, fabric: &Fabric) {
        let shared_end = |link: &Link| [link.from, link.to].into_iter().find(|&end| end < self.shared_devices);
        let mut numbers: HashMap<Vec<usize>, usize> = HashMap::new();
        for node in 0..self.nodes {
            let ends = fabric.links[self.links_of(node)].iter().filter_map(shared_end).collect();
            let group = *numbers.entry(ends).or_insert(self.groups.len());
            if group == self.groups.len() {
                self.groups.push((node, 0));
            }
            self.groups[group].1 += 1;
            self.group_of.push(group);
        }
    }

    /// Returns the positions of the links of a node.
    pub(crate) fn links_of(&self, node: usize) -> Range<usize> {
        let first = self.shared_links + node * self.node_links;
        first..first + self.node_links
    }

    fn are_alike(&self, fabric: &Fabric) -> bool {
        let (shared, devices, links) = (self.shared_devices, self.node_devices, self.node_links);
        let is_copy = |end: usize, first: usize, nth: usize| match first < shared {
            true => end < shared,
            false => end == first + nth * devices,
        };
        let is_device = |(at, device): (usize, &Device)| {
            let (nth, first) = (at / devices, &fabric.devices[shared + at % devices]);
            device.node == Some(nth as u32) && device.kind == first.kind && first.node == Some(0)
        };
        let is_link = |(at, link): (usize, &Link)| {
            let (nth, first) = (at / links, &fabric.links[self.shared_links + at % links]);
            let is_own = |device: usize| device < shared + devices;
            is_own(first.from)
                && is_own(first.to)
                && is_copy(link.from, first.from, nth)
                && is_copy(link.to, first.to, nth)
                && std::ptr::eq(link.medium, first.medium)
                && link.rate() == first.rate()
        };
        fabric.devices[shared..].iter().enumerate().all(is_device)
            && fabric.links[self.shared_links..].iter().enumerate().all(is_link)
    }

    /// Returns the fabric with its first nodes only; ranks, devices and links keep their numbers.
    pub(crate) fn first(&self, fabric: &Fabric, nodes: usize) -> Fabric {
        let nodes = nodes.min(self.nodes);
        let devices = fabric.devices[..self.shared_devices + nodes * self.node_devices].to_vec();
        fabric.of_parts(devices, fabric.links[..self.shared_links + nodes * self.node_links].to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::EqualNodes;
    use crate::machines::preset;
    use crate::topology::cluster::{cluster, network};

    #[test]
    fn nodes_that_differ_are_no_copies() {
        let mut all = cluster(&preset("hgx-h100").unwrap(), 3, network("ib-ndr-8").unwrap()).unwrap();
        assert!(EqualNodes::of(&all).is_some());
        let last = all.links.len() - 1;
        all.links[last].lanes += 1;
        assert!(EqualNodes::of(&all).is_none());
        all.links.remove(last);
        assert!(EqualNodes::of(&all).is_none());
        assert!(EqualNodes::of(&preset("hgx-h100").unwrap()).is_none());
    }
}

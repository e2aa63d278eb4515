//! Clusters of equal nodes: what stands between the nodes, described first, then node after node, each like the first.
//!
//! ```text
//! devices   rail0 rail1 spine │ node 0 │ node 1 │ … │ node N-1        links in the same order
//!           shared              block    block        block
//! ```
//!
//! Nodes can change places without changing the machine, so questions about thousands of nodes are answered on a few:
//!
//! - the quickest way between two ranks visits at most three different nodes, whatever it passes ([`EqualNodes::first`]);
//! - a smallest cut treats nodes alike whose GPUs are on the same sides, so such nodes count as one (`flow_network.rs`);
//! - a fair share is the same for all pairs of GPUs that a change of places exchanges (`rates.rs`).

use std::ops::Range;

use crate::hardware::{Device, Fabric, Link};

/// Where the parts of a cluster of equal nodes lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
}

impl EqualNodes {
    /// Finds the parts of a fabric; none if it has fewer than three nodes, or nodes that differ.
    pub(crate) fn of(fabric: &Fabric) -> Option<Self> {
        let shared = fabric.devices.iter().position(|device| device.node.is_some())?;
        let joins = |link: &Link| link.from < shared && link.to < shared;
        let between = fabric.links.iter().take_while(|link| joins(link)).count();
        let nodes = fabric.nodes() as usize;
        let block = |all: Range<usize>| (nodes > 2 && all.len().is_multiple_of(nodes)).then_some(all.len() / nodes);
        let equal_nodes = Self {
            shared_devices: shared,
            shared_links: between,
            node_devices: block(shared..fabric.devices.len())?,
            node_links: block(between..fabric.links.len())?,
            nodes,
        };
        equal_nodes.are_alike(fabric).then_some(equal_nodes)
    }

    fn are_alike(&self, fabric: &Fabric) -> bool {
        let (shared, devices, links) = (self.shared_devices, self.node_devices, self.node_links);
        let moved = |device: usize, nth: usize| if device < shared { device } else { device + nth * devices };
        let is_device = |(at, device): (usize, &Device)| {
            let (nth, first) = (at / devices, &fabric.devices[shared + at % devices]);
            device.node == Some(nth as u32) && device.kind == first.kind && first.node == Some(0)
        };
        let is_link = |(at, link): (usize, &Link)| {
            let (nth, first) = (at / links, &fabric.links[self.shared_links + at % links]);
            let ends = (moved(first.from, nth), moved(first.to, nth));
            let is_own = |device: usize| device < shared + devices;
            is_own(first.from)
                && is_own(first.to)
                && (link.from, link.to) == ends
                && std::ptr::eq(link.medium, first.medium)
                && link.rate() == first.rate()
        };
        fabric.devices[shared..].iter().enumerate().all(is_device)
            && fabric.links[self.shared_links..].iter().enumerate().all(is_link)
    }

    /// Returns the fabric with its first nodes only; ranks, devices and links keep their numbers.
    pub(crate) fn first(&self, fabric: &Fabric, nodes: usize) -> Fabric {
        let nodes = nodes.min(self.nodes);
        Fabric {
            name: fabric.name.clone(),
            title: fabric.title.clone(),
            gpu: fabric.gpu,
            devices: fabric.devices[..self.shared_devices + nodes * self.node_devices].to_vec(),
            links: fabric.links[..self.shared_links + nodes * self.node_links].to_vec(),
            abilities: fabric.abilities,
            sources: Vec::new(),
        }
    }

    /// Returns the number that a link has in the first node; a shared link keeps its own.
    pub(crate) fn link_in_first(&self, link: usize) -> usize {
        match link.checked_sub(self.shared_links) {
            Some(nth) => self.shared_links + nth % self.node_links,
            None => link,
        }
    }
}

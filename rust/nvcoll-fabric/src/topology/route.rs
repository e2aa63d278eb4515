//! Which links a transfer between two GPUs crosses.
//!
//! ```text
//! 1. NVLink (or xGMI), directly or through one NVSwitch
//! 2. PCIe, through switches and sockets, if GPUs have peer access
//! 3. host memory: to the memory of the receiver's socket and back out of it, PCIe crossed twice
//! 4. another node: the sender's NIC, the network, the receiver's NIC
//! ```
//!
//! The first that exists is taken, over the fewest links; among equals the widest, then the first described. GPUs that share
//! a PCIe switch or socket with as many network cards use one each: of two ways that are equal the own card's. Of ways over
//! other switches of the network that are equal, a hash of the two GPUs takes one, as static ECMP does; both directions of a
//! pair are hashed apart.
//!
//! Links between GPUs are not passed on, because a GPU forwards nothing by itself: an algorithm that wants that has a step
//! there. Where GPUs forward (an ability), way 1 leads through other GPUs, too, of equal ways by a hash; and way 4 leads
//! through the GPU of the sender's node whose card hangs at the same switch as the receiver's (NCCL's PXN).
//! Source: the order of NCCL's path types (`src/graph/paths.cc`: NVL, PIX, PXB, PHB, SYS, NET).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use nvcoll_core::connected_components::connected_components;

use crate::error::{Error, Result};
use crate::hardware::media::LinkFamily;
use crate::hardware::{DeviceKind, Fabric, Link};
use crate::units::{Ps, Rate};

/// The route of a transfer: the links that it crosses, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Positions in `links`, in order; none if both ends are one.
    pub links: Vec<usize>,
    /// The kind of the route.
    pub kind: RouteKind,
}

nvcoll_core::names! {
    /// The kinds of routes, best first.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum RouteKind {
        /// The transfer stays inside one GPU.
        Local = "local",
        /// The transfer crosses NVLink or xGMI.
        Nvlink = "nvlink",
        /// The transfer crosses PCIe from GPU to GPU.
        Peer = "pcie p2p",
        /// The transfer is host-staged: it passes the memory of a socket.
        Staged = "pcie staged",
        /// The transfer crosses a network.
        Network = "network",
    }
}

impl Route {
    /// Returns what a long transfer reaches alone: the rate of its narrowest link, each crossing counted; none if local.
    pub fn rate(&self, fabric: &Fabric) -> Option<Rate> {
        self.links.iter().map(|&link| fabric.links[link].rate()).min()
    }

    /// Returns the latency: the time that the first byte takes.
    pub fn latency(&self, fabric: &Fabric) -> Ps {
        self.links.iter().map(|&link| fabric.links[link].latency()).sum()
    }
}

impl Fabric {
    /// Finds how a transfer from the memory of GPU `from` to the memory of GPU `to` goes; both are ranks. Who asks for many
    /// takes a [`Router`].
    ///
    /// # Errors
    /// [`Error::NoPath`].
    ///
    /// # Panics
    /// If a rank is not below the number of ranks.
    pub fn route(&self, from: u32, to: u32) -> Result<Route> {
        Router::of(self).route(self, from, to)
    }

    fn why_not(&self, is_one_node: bool) -> &'static str {
        match (is_one_node, self.abilities.peer_access) {
            (true, false) => "there is no peer access, and no memory through which to stage",
            (true, true) => "neither NVLink nor PCIe joins them",
            (false, _) => "no network joins their nodes",
        }
    }

    /// Says whether switches of the network are joined in several ways.
    pub(crate) fn has_parallel_ways(&self) -> bool {
        let mut number = vec![None; self.devices.len()];
        let switches = self.of_kind(DeviceKind::NetworkSwitch).zip(0..).map(|(at, nth)| number[at] = Some(nth)).count();
        let edge = |link: &Link| number[link.from].zip(number[link.to]).filter(|(from, to)| from < to);
        let edges: BTreeSet<(u32, u32)> = self.links.iter().filter_map(edge).collect();
        // A forest has as many edges and trees as places.
        edges.len() + connected_components(switches as u32, edges.iter().copied()).len() != switches
    }

    /// Returns the number of links from a device to each, over devices that are passed and links that are taken; none to what is
    /// not reached.
    pub(crate) fn hops_from(
        &self,
        from: usize,
        is_passed: impl Fn(DeviceKind) -> bool,
        is_taken: impl Fn(LinkFamily) -> bool,
    ) -> Vec<Option<u32>> {
        let (mut leaving, mut hops) = (vec![Vec::new(); self.devices.len()], vec![None; self.devices.len()]);
        let taken = self.links.iter().filter(|link| is_taken(link.medium.family));
        taken.for_each(|link| leaving[link.from].push(link.to));
        hops[from] = Some(0);
        let mut waiting = VecDeque::from([(from, 1)]);
        while let Some((at, next)) = waiting.pop_front() {
            let is_end = at != from && !is_passed(self.devices[at].kind);
            for &to in leaving[at].iter().filter(|_| !is_end) {
                if hops[to].is_none() {
                    hops[to] = Some(next);
                    waiting.push_back((to, next + 1));
                }
            }
        }
        hops
    }
}

/// Finds routes in one fabric, any number of them: what a search needs to know of the whole is looked up once. Between
/// two nodes of a cluster a search looks at these two and what joins them, not at the others; the route is the same
/// (`goes_round`). Work for a pair: the links of two nodes, and those between switches and them.
pub struct Router {
    gpus: Vec<usize>,
    memories: Vec<usize>,
    /// The nearest memory of each GPU of an earlier search.
    nearest: BTreeMap<usize, Option<usize>>,
    /// For each device, the links that leave it, by the node to which they lead: to what stands between nodes first.
    leaving: Vec<Vec<usize>>,
    /// Whether there are more nodes than the two between which a search looks for a way.
    has_other_nodes: bool,
    /// Whether a hash takes one of equal ways between switches, or between GPUs that forward.
    is_hashed: bool,
    /// The best way to each device, and the number of the search that found it.
    best: Vec<(u64, Reached)>,
    search: u64,
}

/// How a device is reached: links, the narrowest of them, and the last.
type Reached = (u32, Reverse<Rate>, usize);

impl Router {
    /// Prepares for a fabric; the others' methods must be given the same.
    pub fn of(fabric: &Fabric) -> Self {
        let mut leaving = vec![Vec::new(); fabric.devices.len()];
        for (position, link) in fabric.links.iter().enumerate() {
            leaving[link.from].push(position);
        }
        leaving.iter_mut().for_each(|of_one| of_one.sort_by_key(|&link| fabric.devices[fabric.links[link].to].node));
        Self {
            gpus: fabric.gpus(),
            memories: fabric.of_kind(DeviceKind::Memory).collect(),
            nearest: BTreeMap::new(),
            has_other_nodes: fabric.nodes() > 2,
            is_hashed: fabric.has_parallel_ways() || fabric.abilities.forwards,
            best: vec![(0, (0, Reverse(Rate(0)), 0)); leaving.len()],
            leaving,
            search: 0,
        }
    }

    /// As [`Fabric::route`].
    ///
    /// # Errors
    /// [`Error::NoPath`].
    ///
    /// # Panics
    /// If a rank is not below the number of ranks.
    pub fn route(&mut self, fabric: &Fabric, from: u32, to: u32) -> Result<Route> {
        let (a, b) = (self.gpus[from as usize], self.gpus[to as usize]);
        if a == b {
            return Ok(Route { links: Vec::new(), kind: RouteKind::Local });
        }
        let is_one_node = fabric.devices[a].node == fabric.devices[b].node;
        let mut found = self.over_nvlink(fabric, a, b);
        if found.is_none() && is_one_node {
            found = self.over_peers(fabric, a, b).or_else(|| self.through_memory(fabric, a, b));
        } else if found.is_none() {
            found = self.over_network(fabric, a, b);
        }
        let (links, kind) = found.ok_or_else(|| Error::NoPath {
            fabric: fabric.name.clone(),
            from: fabric.devices[a].name.clone(),
            to: fabric.devices[b].name.clone(),
            reason: fabric.why_not(is_one_node).to_owned(),
        })?;
        Ok(Route { links, kind })
    }

    fn over_nvlink(&mut self, fabric: &Fabric, a: usize, b: usize) -> Option<(Vec<usize>, RouteKind)> {
        let forwards = fabric.abilities.forwards;
        let is_passed = |kind| kind == DeviceKind::Nvswitch || forwards && kind == DeviceKind::Gpu;
        let path = self.shortest(fabric, a, b, is_passed, LinkFamily::joins_gpus)?;
        Some((path, RouteKind::Nvlink))
    }

    fn over_peers(&mut self, fabric: &Fabric, a: usize, b: usize) -> Option<(Vec<usize>, RouteKind)> {
        let path = fabric.abilities.peer_access.then(|| self.on_host(fabric, a, b)).flatten()?;
        Some((path, RouteKind::Peer))
    }

    fn through_memory(&mut self, fabric: &Fabric, a: usize, b: usize) -> Option<(Vec<usize>, RouteKind)> {
        let memory = self.memory_of(fabric, b)?;
        let path = [self.on_host(fabric, a, memory)?, self.on_host(fabric, memory, b)?].concat();
        Some((path, RouteKind::Staged))
    }

    fn over_network(&mut self, fabric: &Fabric, a: usize, b: usize) -> Option<(Vec<usize>, RouteKind)> {
        if let Some((inside, by)) = self.beside_card_of(fabric, a, b) {
            let (outside, _) = self.over_network(fabric, by, b)?;
            return Some(([inside, outside].concat(), RouteKind::Network));
        }
        let own = [self.own_card(fabric, a), self.own_card(fabric, b)];
        if fabric.abilities.gpu_direct {
            return Some((self.off_host(fabric, a, b, own)?, RouteKind::Network));
        }
        let (from, to) = (self.memory_of(fabric, a)?, self.memory_of(fabric, b)?);
        let between = self.off_host(fabric, from, to, own)?;
        let path = [self.on_host(fabric, a, from)?, between, self.on_host(fabric, to, b)?].concat();
        Some((path, RouteKind::Network))
    }

    /// Where GPUs forward, the way over NVLink to the GPU of `a`'s node whose card hangs at the switch of `b`'s card.
    fn beside_card_of(&mut self, fabric: &Fabric, a: usize, b: usize) -> Option<(Vec<usize>, usize)> {
        if !fabric.abilities.forwards {
            return None;
        }
        let node = fabric.devices[a].node;
        let own = self.gpus.iter().copied().filter(|&gpu| fabric.devices[gpu].node == node);
        let (wanted, near) = (self.own_switch(fabric, b)?, self.own_switch(fabric, a));
        let by = own.into_iter().find(|&gpu| near != Some(wanted) && self.own_switch(fabric, gpu) == Some(wanted))?;
        let (path, _) = self.over_nvlink(fabric, a, by)?;
        Some((path, by))
    }

    /// The switch at which a GPU's own card hangs.
    fn own_switch(&self, fabric: &Fabric, gpu: usize) -> Option<usize> {
        let ends = self.leaving[self.own_card(fabric, gpu)?].iter().map(|&link| fabric.links[link].to);
        ends.into_iter().find(|&at| fabric.devices[at].kind == DeviceKind::NetworkSwitch)
    }

    /// Over NICs and what joins them, among equal ways over the NICs that are somebody's own.
    fn off_host(&mut self, fabric: &Fabric, a: usize, b: usize, own: [Option<usize>; 2]) -> Option<Vec<usize>> {
        let is_passed = |kind| {
            matches!(kind, DeviceKind::PcieSwitch | DeviceKind::Socket | DeviceKind::Nic | DeviceKind::NetworkSwitch)
        };
        let is_strange = |at: usize| fabric.devices[at].kind == DeviceKind::Nic && !own.contains(&Some(at));
        self.shortest_but(fabric, a, b, is_passed, |f| !f.joins_gpus(), is_strange)
    }

    /// Of the NICs at the switch or socket of a GPU, the one that is its own: they are shared out evenly, in order.
    fn own_card(&self, fabric: &Fabric, gpu: usize) -> Option<usize> {
        let kind = |at: usize| fabric.devices[at].kind;
        let ends = |from: usize| self.leaving[from].iter().map(|&link| fabric.links[link].to);
        let seat = ends(gpu).find(|&at| matches!(kind(at), DeviceKind::PcieSwitch | DeviceKind::Socket))?;
        let at_seat = |of: DeviceKind| ends(seat).filter(|&at| kind(at) == of).collect::<Vec<usize>>();
        let (gpus, cards) = (at_seat(DeviceKind::Gpu), at_seat(DeviceKind::Nic));
        let nth = gpus.iter().position(|&other| other == gpu)?;
        cards.get(nth * cards.len() / gpus.len()).copied()
    }

    /// The memory that is nearest to a GPU.
    fn memory_of(&mut self, fabric: &Fabric, gpu: usize) -> Option<usize> {
        if let Some(&known) = self.nearest.get(&gpu) {
            return known;
        }
        let mut nearest: Option<(usize, usize)> = None;
        for at in 0..self.memories.len() {
            let memory = self.memories[at];
            let links = self.on_host(fabric, memory, gpu).map(|path| path.len());
            if let Some(links) = links.filter(|&links| nearest.is_none_or(|(least, _)| links < least)) {
                nearest = Some((links, memory));
            }
        }
        let nearest = nearest.map(|(_, memory)| memory);
        self.nearest.insert(gpu, nearest);
        nearest
    }

    /// Over PCIe and between sockets.
    fn on_host(&mut self, fabric: &Fabric, a: usize, b: usize) -> Option<Vec<usize>> {
        let is_passed = |kind| matches!(kind, DeviceKind::PcieSwitch | DeviceKind::Socket);
        self.shortest(fabric, a, b, is_passed, |f| !f.joins_gpus() && f != LinkFamily::Network)
    }

    /// Fewest links, then widest, then first described.
    pub(crate) fn shortest(
        &mut self,
        fabric: &Fabric,
        a: usize,
        b: usize,
        is_passed: impl Fn(DeviceKind) -> bool,
        is_taken: impl Fn(LinkFamily) -> bool,
    ) -> Option<Vec<usize>> {
        self.shortest_but(fabric, a, b, is_passed, is_taken, |_| false)
    }

    fn shortest_but(
        &mut self,
        fabric: &Fabric,
        a: usize,
        b: usize,
        is_passed: impl Fn(DeviceKind) -> bool,
        is_taken: impl Fn(LinkFamily) -> bool,
        is_avoided: impl Fn(usize) -> bool,
    ) -> Option<Vec<usize>> {
        if self.has_other_nodes {
            let mut seen = vec![None, fabric.devices[a].node, fabric.devices[b].node];
            seen.sort_unstable();
            seen.dedup();
            let path = self.search(fabric, (a, b), &is_passed, &is_taken, &is_avoided, Some(&seen));
            if path.as_ref().is_some_and(|path| !goes_round(fabric, path)) {
                return path;
            }
        }
        self.search(fabric, (a, b), is_passed, is_taken, is_avoided, None)
    }

    /// Fewest links, then widest, then fewest devices that are avoided, then least hash, then first described (Dijkstra,
    /// 1959, on all of these), over the devices of some nodes or of all; those between nodes are of the node that is none.
    fn search(
        &mut self,
        fabric: &Fabric,
        (a, b): (usize, usize),
        is_passed: impl Fn(DeviceKind) -> bool,
        is_taken: impl Fn(LinkFamily) -> bool,
        is_avoided: impl Fn(usize) -> bool,
        seen: Option<&[Option<u32>]>,
    ) -> Option<Vec<usize>> {
        self.search += 1;
        #[cfg(test)]
        crate::topology::excerpt::work::add(1);
        let mut waiting = BinaryHeap::from([Reverse((0u32, Reverse(Rate(u64::MAX)), 0u32, 0u64, a, usize::MAX))]);
        while let Some(Reverse((hops, narrowest, avoided, hashed, at, by))) = waiting.pop() {
            if self.best[at].0 == self.search {
                continue;
            }
            self.best[at] = (self.search, (hops, narrowest, by));
            if at == b {
                break;
            }
            if at != a && !is_passed(fabric.devices[at].kind) {
                continue;
            }
            let all = &self.leaving[at][..];
            let node_of = |link: &usize| fabric.devices[fabric.links[*link].to].node;
            let to_node = |node: &Option<u32>| {
                let (first, end) =
                    (all.partition_point(|l| node_of(l) < *node), all.partition_point(|l| node_of(l) <= *node));
                &all[first..end]
            };
            let every = if seen.is_none() { all } else { &[] };
            let some = seen.unwrap_or_default().iter().flat_map(to_node);
            for &link in every.iter().chain(some) {
                let Link { to, medium, .. } = fabric.links[link];
                if is_taken(medium.family) {
                    let rate = narrowest.0.min(fabric.links[link].rate());
                    let avoided = avoided + u32::from(is_avoided(to));
                    let is_one_of =
                        |at: usize| matches!(fabric.devices[at].kind, DeviceKind::NetworkSwitch | DeviceKind::Gpu);
                    let is_drawn = self.is_hashed && is_one_of(at) && is_one_of(to);
                    let hashed = hashed + if is_drawn { hash(a, b, to) } else { 0 };
                    waiting.push(Reverse((hops + 1, Reverse(rate), avoided, hashed, to, link)));
                }
            }
        }
        let mut path = Vec::new();
        let mut at = b;
        while at != a {
            let (search, (_, _, by)) = self.best[at];
            if search != self.search {
                return None;
            }
            path.push(by);
            at = fabric.links[by].from;
        }
        path.reverse();
        Some(path)
    }
}

/// Returns what a switch draws for the flow between two GPUs: the least of equal ways is taken (SplitMix64, Steele et al., 2014).
fn hash(a: usize, b: usize, switch: usize) -> u64 {
    let mut mixed = ((a as u64) << 42) ^ ((b as u64) << 21) ^ switch as u64;
    for _ in 0..2 {
        mixed = mixed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
    }
    mixed >> 8
}

/// Says whether a path comes back to devices between nodes after it was in a node. One that does not is the one that a
/// search of a cluster of equal nodes finds, too: what leads through a third node leads through the copy in one of the two as
/// well, so nothing is shorter or wider; and among equals links between nodes, being described first, win. In other clusters
/// it is the way that is taken: nodes do not pass on what is for others as long as switches do.
fn goes_round(fabric: &Fabric, path: &[usize]) -> bool {
    let is_between = |device: usize| fabric.devices[device].node.is_none();
    let entries = path.iter().map(|&link| &fabric.links[link]).filter(|l| !is_between(l.from) && is_between(l.to));
    entries.count() > 1
}

#[cfg(test)]
mod tests {
    use super::{goes_round, Router};
    use crate::machines::preset;
    use crate::topology::cluster::{cluster, network};

    #[test]
    fn what_is_not_looked_at_changes_no_route() {
        for (node, net) in [
            ("hgx-h100", "ib-ndr-8"),
            ("dgx1-v100", "ib-hdr-8"),
            ("rtx4090-4-staged", "ib-ndr-8"),
            ("hgx-a100-4", "ib-hdr-8"),
        ] {
            let node = preset(node).unwrap();
            let all = cluster(&node, 4, network(net).unwrap()).unwrap();
            let (mut few, mut whole) = (Router::of(&all), Router::of(&all));
            assert!(few.has_other_nodes, "{}", all.name);
            whole.has_other_nodes = false;
            for (from, to) in (0..all.world_size()).flat_map(|from| (0..all.world_size()).map(move |to| (from, to))) {
                let route = few.route(&all, from, to).unwrap();
                assert_eq!(route, whole.route(&all, from, to).unwrap(), "{from} -> {to} of {}", all.name);
                assert!(!goes_round(&all, &route.links));
            }
        }
    }
}

//! Which links a transfer between two GPUs crosses.
//!
//! ```text
//! 1. NVLink (or xGMI), directly or through one NVSwitch
//! 2. PCIe, through switches and sockets, if GPUs have peer access
//! 3. host memory: to the memory of the receiver's socket and back out of it, PCIe crossed twice
//! 4. another node: the sender's NIC, the network, the receiver's NIC
//! ```
//!
//! The first that exists is taken, over the fewest links; among equals the widest, then the first described. Links between
//! GPUs are not passed on: a GPU forwards nothing by itself, an algorithm that wants that has a step there.
//! Source: the order of NCCL's path types (`src/graph/paths.cc`: NVL, PIX, PXB, PHB, SYS, NET).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::error::{Error, Result};
use crate::hardware::media::Family;
use crate::hardware::{Fabric, Kind, Link};
use crate::units::{Ps, Rate};

/// What a transfer passes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Positions in `links`, in order; none if both ends are one.
    pub links: Vec<usize>,
    /// How it goes.
    pub kind: RouteKind,
}

/// How a transfer goes, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RouteKind {
    /// Inside one GPU.
    Local,
    /// Over NVLink or xGMI.
    Nvlink,
    /// Over PCIe from GPU to GPU.
    Peer,
    /// Through the memory of a socket.
    Staged,
    /// Through a network.
    Network,
}

impl RouteKind {
    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            RouteKind::Local => "local",
            RouteKind::Nvlink => "nvlink",
            RouteKind::Peer => "pcie p2p",
            RouteKind::Staged => "pcie staged",
            RouteKind::Network => "network",
        }
    }
}

impl Route {
    /// Returns what a long transfer reaches alone: the rate of its narrowest link, each crossing counted; none if local.
    pub fn rate(&self, fabric: &Fabric) -> Option<Rate> {
        self.links.iter().map(|&link| fabric.links[link].rate()).min()
    }

    /// Returns how long the first byte takes.
    pub fn latency(&self, fabric: &Fabric) -> Ps {
        self.links.iter().map(|&link| fabric.links[link].latency()).sum()
    }
}

impl Fabric {
    /// Finds how a transfer from the memory of GPU `from` to that of GPU `to` goes; both are ranks.
    ///
    /// # Errors
    /// [`Error::NoPath`].
    ///
    /// # Panics
    /// If there are not so many ranks.
    pub fn route(&self, from: u32, to: u32) -> Result<Route> {
        let gpus = self.gpus();
        let (a, b) = (gpus[from as usize], gpus[to as usize]);
        if a == b {
            return Ok(Route { links: Vec::new(), kind: RouteKind::Local });
        }
        let is_one_node = self.devices[a].node == self.devices[b].node;
        let found = if is_one_node {
            self.over_nvlink(a, b).or_else(|| self.over_peers(a, b)).or_else(|| self.through_memory(a, b))
        } else {
            self.over_nvlink(a, b).or_else(|| self.over_network(a, b))
        };
        let (links, kind) = found.ok_or_else(|| Error::NoPath {
            fabric: self.name.clone(),
            from: self.devices[a].name.clone(),
            to: self.devices[b].name.clone(),
            reason: self.why_not(is_one_node).to_owned(),
        })?;
        Ok(Route { links, kind })
    }

    fn why_not(&self, is_one_node: bool) -> &'static str {
        match (is_one_node, self.abilities.peer_access) {
            (true, false) => "there is no peer access, and no memory through which to stage",
            (true, true) => "neither NVLink nor PCIe joins them",
            (false, _) => "no network joins their nodes",
        }
    }

    fn over_nvlink(&self, a: usize, b: usize) -> Option<(Vec<usize>, RouteKind)> {
        let is_passed = |kind| kind == Kind::Nvswitch;
        let path = self.shortest(a, b, is_passed, Family::joins_gpus)?;
        Some((path, RouteKind::Nvlink))
    }

    fn over_peers(&self, a: usize, b: usize) -> Option<(Vec<usize>, RouteKind)> {
        let path = self.abilities.peer_access.then(|| self.on_host(a, b)).flatten()?;
        Some((path, RouteKind::Peer))
    }

    fn through_memory(&self, a: usize, b: usize) -> Option<(Vec<usize>, RouteKind)> {
        let memory = self.memory_of(b)?;
        Some(([self.on_host(a, memory)?, self.on_host(memory, b)?].concat(), RouteKind::Staged))
    }

    fn over_network(&self, a: usize, b: usize) -> Option<(Vec<usize>, RouteKind)> {
        if self.abilities.gpu_direct {
            return Some((self.off_host(a, b)?, RouteKind::Network));
        }
        let (from, to) = (self.memory_of(a)?, self.memory_of(b)?);
        let path = [self.on_host(a, from)?, self.off_host(from, to)?, self.on_host(to, b)?].concat();
        Some((path, RouteKind::Network))
    }

    /// Over NICs and what joins them.
    fn off_host(&self, a: usize, b: usize) -> Option<Vec<usize>> {
        let is_passed = |kind| matches!(kind, Kind::PcieSwitch | Kind::Socket | Kind::Nic | Kind::NetworkSwitch);
        self.shortest(a, b, is_passed, |f| !f.joins_gpus())
    }

    /// The memory that is nearest to a GPU.
    fn memory_of(&self, gpu: usize) -> Option<usize> {
        let near = |&memory: &usize| self.on_host(memory, gpu).map_or(usize::MAX, |path| path.len());
        self.of_kind(Kind::Memory).filter(|memory| near(memory) < usize::MAX).min_by_key(near)
    }

    /// Over PCIe and between sockets.
    fn on_host(&self, a: usize, b: usize) -> Option<Vec<usize>> {
        let is_passed = |kind| matches!(kind, Kind::PcieSwitch | Kind::Socket);
        self.shortest(a, b, is_passed, |f| !f.joins_gpus() && f != Family::Network)
    }

    /// Fewest links, then widest, then first described (Dijkstra, 1959, on (links, -rate, position)).
    pub(crate) fn shortest(
        &self,
        a: usize,
        b: usize,
        is_passed: impl Fn(Kind) -> bool,
        is_taken: impl Fn(Family) -> bool,
    ) -> Option<Vec<usize>> {
        let leaving = self.links_by_start();
        let mut best: Vec<Option<(u32, Reverse<Rate>, usize)>> = vec![None; self.devices.len()];
        let mut waiting = BinaryHeap::from([Reverse((0u32, Reverse(Rate(u64::MAX)), a, usize::MAX))]);
        while let Some(Reverse((hops, narrowest, at, by))) = waiting.pop() {
            if best[at].is_some() {
                continue;
            }
            best[at] = Some((hops, narrowest, by));
            if at == b {
                break;
            }
            if at != a && !is_passed(self.devices[at].kind) {
                continue;
            }
            for &link in &leaving[at] {
                let Link { to, medium, .. } = self.links[link];
                if is_taken(medium.family) {
                    let rate = narrowest.0.min(self.links[link].rate());
                    waiting.push(Reverse((hops + 1, Reverse(rate), to, link)));
                }
            }
        }
        let mut path = Vec::new();
        let mut at = b;
        while at != a {
            let (_, _, by) = best[at]?;
            path.push(by);
            at = self.links[by].from;
        }
        path.reverse();
        Some(path)
    }

    fn links_by_start(&self) -> Vec<Vec<usize>> {
        let mut leaving = vec![Vec::new(); self.devices.len()];
        for (position, link) in self.links.iter().enumerate() {
            leaving[link.from].push(position);
        }
        leaving
    }
}

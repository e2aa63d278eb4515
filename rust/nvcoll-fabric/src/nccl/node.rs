//! One node as NCCL sees it: directed links with the bandwidths that NCCL assumes, and a path of a class for every pair.
//!
//! ```text
//! gpu ─NVL 370.8─ nvs          a link: number of its medium x GB/s of versions.toml
//!  │                           a path: its links, its class, its narrowest link
//! PCI 48 ─ cpu ─ SYS 10 ─ cpu  classes, best first: NVL, NVB (one GPU between), PIX (one PCIe switch), PXB (several), P2C,
//!  │                           PXN (NVLink to the GPU beside the NIC), PHB (a processor), SYS (two)
//! nic ─ NET 50
//! ```
//!
//! Nodes that an NVSwitch joins are one node here. Bandwidths are in thousandths of GB/s, to which NCCL rounds too, so that
//! what is taken can be given back exactly. Source: NCCL v2.30.7, src/graph/{topo.h, topo.cc, paths.cc}.
//!
//! Without GPUDirect RDMA, or beyond `NCCL_NET_GDR_LEVEL`, all traffic of a GPU with a card passes the GPU's processor.
//!
//! NCCL counts traffic that has no peer access along the same links, through the processor: it does not know of the memory
//! in between. Not modelled: NICs that are merged; GB200 before 2.26, where NCCL takes C2C for NVLink to the processor.

use std::collections::BTreeMap;

use super::constants::{pcie_lane_gbps, processor_of, C2cUse, Processor, VersionConstants};
use super::names::PathClass;
use super::settings::{CrossNic, NcclSettings};
use crate::error::{Error, Result};
use crate::hardware::media::LinkFamily;
use crate::hardware::{DeviceKind, Fabric, Link};
use crate::topology::route::Router;

/// The most network cards of a node. Source: NCCL_TOPO_MAX_NODES, src/include/graph.h of NCCL 2.30.7; older ones have 256 and 576.
const MOST_CARDS: usize = 640;

/// A path from one device to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TopologyPath {
    pub(super) class: PathClass,
    /// Positions in the fabric's links.
    pub(super) links: Vec<usize>,
    /// PCIe carries more than the data: an Intel processor splits it.
    pub(super) is_split: bool,
    /// The link in the other direction that carries an eighth of the traffic: from a GPU before 8.0 that receives from a card.
    pub(super) echo: Option<usize>,
    /// The narrowest link, in thousandths of GB/s.
    pub(super) width: i64,
}

/// The topology of the first node that takes part, as NCCL sees it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NodeTopology {
    /// The number of its GPUs that take part.
    pub(super) gpus: usize,
    /// The number of its network cards; 0 if no other node takes part.
    pub(super) nics: usize,
    /// The capacity of each link of the fabric, in thousandths of GB/s; zero outside the node.
    pub(super) capacity: Vec<i64>,
    /// Whether a link is PCIe.
    pub(super) is_pcie: Vec<bool>,
    /// Whether an NVSwitch joins its GPUs.
    pub(super) has_switch: bool,
    /// The capacity from a GPU to the NVSwitch, in thousandths of GB/s.
    pub(super) to_switch: i64,
    /// The capacity out of each GPU over NVLink and over PCIe, in thousandths of GB/s.
    pub(super) leaving: Vec<(i64, i64)>,
    /// The capacity out of each network card, in thousandths of GB/s.
    pub(super) cards: Vec<i64>,
    between: Vec<Option<TopologyPath>>,
    out: Vec<Option<TopologyPath>>,
    into: Vec<Option<TopologyPath>>,
    /// The widest path to another GPU, or to a network card.
    pub(super) widest: i64,
    /// The capacity out of a GPU over all links, in thousandths of GB/s.
    pub(super) total: i64,
    /// The make of its processors.
    pub(super) processor: Processor,
    /// How much more PCIe carries where an Intel processor splits it.
    pub(super) split_part: f64,
    /// The network cards by which channels leave.
    pub(super) cross_nic: CrossNic,
    c2c: C2cUse,
    has_echo: bool,
}

/// The ranks that take part, sorted into nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeRanks {
    /// The number of ranks.
    pub(super) count: u32,
    /// The number of nodes; nodes that an NVSwitch joins count as one.
    pub(super) nodes: u32,
    /// The GPUs of the first node, as positions in the devices.
    pub(super) first: Vec<usize>,
}

fn unable(fabric: &Fabric, message: String) -> Error {
    Error::Unable { fabric: fabric.name.clone(), message }
}

fn thousandths(gbps: f64) -> i64 {
    (gbps * 1000.0).round() as i64
}

impl NodeRanks {
    /// Sorts the ranks of a fabric into nodes.
    ///
    /// # Errors
    /// [`Error::Unable`] for nodes of unlike numbers of ranks.
    pub(super) fn of(fabric: &Fabric) -> Result<Self> {
        let (gpus, home) = (fabric.gpus(), domains(fabric));
        let mut nodes: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for &gpu in &gpus {
            nodes.entry(home[gpu]).or_default().push(gpu);
        }
        let first = nodes.values().next().cloned().unwrap_or_default();
        if let Some(other) = nodes.values().find(|members| members.len() != first.len()) {
            let (one, other) = (first.len(), other.len());
            let message = format!("NCCL's model is of nodes alike; here one has {one} ranks and one {other}");
            return Err(unable(fabric, message));
        }
        Ok(Self { count: gpus.len() as u32, nodes: nodes.len() as u32, first })
    }
}

/// Numbers the nodes, those with one NVSwitch alike, for every device.
fn domains(fabric: &Fabric) -> Vec<usize> {
    let mut domain: Vec<usize> =
        fabric.devices.iter().map(|device| device.node.map_or(usize::MAX, |node| node as usize)).collect();
    for switch in fabric.of_kind(DeviceKind::Nvswitch) {
        let joined: Vec<usize> = fabric.links.iter().filter(|link| link.to == switch).map(|l| domain[l.from]).collect();
        let Some(&least) = joined.iter().min() else { continue };
        for of in domain.iter_mut().filter(|of| joined.contains(of)) {
            *of = least;
        }
        domain[switch] = least;
    }
    domain
}

/// Tells the processors from what joins sockets.
///
/// # Errors
/// [`Error::Unable`] for a medium that the table does not have.
fn processor(fabric: &Fabric) -> Result<Processor> {
    let is_socket = |position: usize| fabric.devices[position].kind == DeviceKind::Socket;
    let is_told = |link: &&Link| {
        link.medium.family == LinkFamily::C2c || is_socket(link.from) && link.medium.family == LinkFamily::Socket
    };
    let Some(link) = fabric.links.iter().find(is_told) else { return Ok(Processor::Unknown) };
    processor_of(&link.medium.name).ok_or_else(|| {
        let medium = &link.medium.name;
        unable(
            fabric,
            format!("NCCL's model has no row for sockets that {medium} joins: give the processor, or add one"),
        )
    })
}

impl NodeTopology {
    /// Builds the topology of the first node as a version of NCCL sees it.
    ///
    /// # Errors
    /// [`Error::Unable`] for media that NCCL has no figure for, [`Error::NoPath`] between GPUs that nothing joins.
    pub(super) fn of(
        fabric: &Fabric,
        ranks: &NodeRanks,
        constants: &VersionConstants,
        settings: &NcclSettings,
    ) -> Result<Self> {
        let processor = processor(fabric)?;
        let home = domains(fabric);
        let here = home[ranks.first[0]];
        let is_inside = |link: &Link| home[link.from] == here || home[link.to] == here;
        let mut capacity = Vec::with_capacity(fabric.links.len());
        for link in &fabric.links {
            capacity.push(if is_inside(link) { assumed(fabric, link, constants, processor)? } else { 0 });
        }
        let nics: Vec<usize> = match ranks.nodes {
            1 => Vec::new(),
            _ => fabric.of_kind(DeviceKind::Nic).filter(|&nic| home[nic] == here).collect(),
        };
        if nics.len() > MOST_CARDS {
            let message = format!(
                "NCCL knows at most {MOST_CARDS} network cards of a node or rack, and there are {}",
                nics.len()
            );
            return Err(unable(fabric, message));
        }
        let mut node = Self {
            gpus: ranks.first.len(),
            nics: nics.len(),
            is_pcie: fabric.links.iter().map(|link| link.medium.family == LinkFamily::Pcie).collect(),
            has_switch: false,
            to_switch: 0,
            leaving: Vec::new(),
            cards: Vec::new(),
            between: Vec::new(),
            out: Vec::new(),
            into: Vec::new(),
            widest: 0,
            total: 0,
            capacity,
            processor,
            split_part: constants.p2p_over_intel_part,
            cross_nic: settings.cross_nic,
            c2c: constants.c2c,
            has_echo: constants.sm < 80,
        };
        node.join_gpus(fabric, &ranks.first, settings.p2p_level)?;
        node.join_nics(fabric, &ranks.first, &nics);
        if !settings.is_pxn_disabled {
            node.take_nvlink_to_the_nic();
        }
        node.stage_for_the_network(fabric, &ranks.first, &nics, settings.gdr_level);
        node.sum(fabric, &ranks.first);
        if ranks.nodes > 1 && node.out.iter().all(Option::is_none) {
            return Err(Error::NoPath {
                fabric: fabric.name.clone(),
                from: fabric.devices[ranks.first[0]].name.clone(),
                to: "the network".to_owned(),
                reason: "no network card of its node is joined to it".to_owned(),
            });
        }
        Ok(node)
    }

    /// Returns the path between two GPUs.
    pub(super) fn between(&self, from: usize, to: usize) -> Option<&TopologyPath> {
        self.between[from * self.gpus + to].as_ref()
    }

    /// Returns the path from a GPU into the network.
    pub(super) fn out(&self, gpu: usize, nic: usize) -> Option<&TopologyPath> {
        self.out[gpu * self.nics + nic].as_ref()
    }

    /// Returns the path from the network to a GPU.
    pub(super) fn into(&self, nic: usize, gpu: usize) -> Option<&TopologyPath> {
        self.into[gpu * self.nics + nic].as_ref()
    }

    /// Returns the classes of paths between GPUs, or to network cards, each once, best first.
    pub(super) fn classes(&self, of_network: bool) -> Vec<PathClass> {
        let paths = if of_network { [&self.out[..], &self.into] } else { [&self.between[..], &[]] };
        let mut classes: Vec<PathClass> = paths.into_iter().flatten().flatten().map(|path| path.class).collect();
        classes.sort_unstable();
        classes.dedup();
        classes
    }

    fn path(&self, class: PathClass, links: Vec<usize>) -> TopologyPath {
        let width = links.iter().map(|&link| self.capacity[link]).min().unwrap_or(0);
        TopologyPath { class, links, is_split: class == PathClass::Phb && self.processor.is_intel(), echo: None, width }
    }

    /// Finds the paths between GPUs. Without peer access on paths beyond `p2p_level` the processor's memory is between.
    fn join_gpus(&mut self, fabric: &Fabric, gpus: &[usize], p2p_level: Option<PathClass>) -> Result<()> {
        let mut nvlinks = vec![Vec::new(); fabric.devices.len()];
        for (position, link) in fabric.links.iter().enumerate().filter(|(_, l)| l.medium.family == LinkFamily::Nvlink) {
            nvlinks[link.from].push(position);
        }
        let mut router = Router::of(fabric);
        let mut between = vec![None; gpus.len() * gpus.len()];
        for (a, &from) in gpus.iter().enumerate() {
            for (b, &to) in gpus.iter().enumerate().filter(|(b, _)| *b != a) {
                let found = self.over_nvlink(fabric, &mut router, (from, to), &nvlinks);
                let found = found.or_else(|| self.over_gpu(fabric, &mut router, (from, to), gpus, &nvlinks));
                let found = found.or_else(|| self.over_host(fabric, &mut router, from, to));
                let is_reached = |path: &TopologyPath| p2p_level.is_none_or(|level| path.class <= level);
                let found = found.filter(is_reached).or_else(|| self.over_memory(fabric, &mut router, from, to));
                let path = found.ok_or_else(|| Error::NoPath {
                    fabric: fabric.name.clone(),
                    from: fabric.devices[from].name.clone(),
                    to: fabric.devices[to].name.clone(),
                    reason: "neither NVLink nor PCIe joins them".to_owned(),
                })?;
                between[a * gpus.len() + b] = Some(path);
            }
        }
        self.between = between;
        Ok(())
    }

    /// Directly, through one switch, or through several.
    fn over_nvlink(
        &self,
        fabric: &Fabric,
        router: &mut Router,
        (from, to): (usize, usize),
        nvlinks: &[Vec<usize>],
    ) -> Option<TopologyPath> {
        let link = |a: usize, b: usize| nvlinks[a].iter().copied().find(|&link| fabric.links[link].to == b);
        let is_switch = |position: usize| fabric.devices[position].kind == DeviceKind::Nvswitch;
        let switched = || {
            let up = nvlinks[from].iter().filter(|&&link| is_switch(fabric.links[link].to));
            up.copied().find_map(|up| Some(vec![up, link(fabric.links[up].to, to)?]))
        };
        let over_switches = || match fabric.of_kind(DeviceKind::Nvswitch).count() {
            0..=1 => None,
            _ => router.shortest(
                fabric,
                from,
                to,
                |kind| kind == DeviceKind::Nvswitch,
                |family| family == LinkFamily::Nvlink,
            ),
        };
        let links = link(from, to).map(|link| vec![link]).or_else(switched).or_else(over_switches)?;
        Some(self.path(PathClass::Nvl, links))
    }

    /// In a mesh: through a GPU that both reach.
    fn over_gpu(
        &self,
        fabric: &Fabric,
        router: &mut Router,
        (from, to): (usize, usize),
        gpus: &[usize],
        nvlinks: &[Vec<usize>],
    ) -> Option<TopologyPath> {
        gpus.iter().filter(|&&by| by != from && by != to).find_map(|&by| {
            let first = self.over_nvlink(fabric, router, (from, by), nvlinks)?;
            let second = self.over_nvlink(fabric, router, (by, to), nvlinks)?;
            let links = [first.links, second.links].concat();
            Some(self.path(PathClass::Nvb, links))
        })
    }

    fn over_host(&self, fabric: &Fabric, router: &mut Router, from: usize, to: usize) -> Option<TopologyPath> {
        let direct = self.over_pcie(fabric, router, from, to)?;
        if fabric.abilities.peer_access {
            return Some(direct);
        }
        self.over_memory(fabric, router, from, to)
    }

    /// Up to a socket and down again.
    fn over_memory(&self, fabric: &Fabric, router: &mut Router, from: usize, to: usize) -> Option<TopologyPath> {
        let direct = self.over_pcie(fabric, router, from, to)?;
        if direct.class >= PathClass::Phb {
            return Some(direct);
        }
        let up_and_down = fabric.of_kind(DeviceKind::Socket).filter_map(|socket| {
            let links = [
                self.over_pcie(fabric, router, from, socket)?.links,
                self.over_pcie(fabric, router, socket, to)?.links,
            ];
            Some(links.concat())
        });
        Some(self.path(PathClass::Phb, up_and_down.min_by_key(Vec::len)?))
    }

    fn over_pcie(&self, fabric: &Fabric, router: &mut Router, from: usize, to: usize) -> Option<TopologyPath> {
        let is_passed = |kind| matches!(kind, DeviceKind::PcieSwitch | DeviceKind::Socket);
        let is_taken = |family| matches!(family, LinkFamily::Pcie | LinkFamily::Socket | LinkFamily::C2c);
        let links = router.shortest(fabric, from, to, is_passed, is_taken)?;
        let is_c2c = |&link: &usize| fabric.links[link].medium.family == LinkFamily::C2c;
        let class = match host_class(fabric, &links) {
            PathClass::Phb if self.c2c >= C2cUse::OwnClass && links.iter().any(is_c2c) => PathClass::P2c,
            class => class,
        };
        Some(self.path(class, links))
    }

    fn join_nics(&mut self, fabric: &Fabric, gpus: &[usize], nics: &[usize]) {
        let wire = |nic: usize, is_out: bool| {
            let ends = |link: &&Link| {
                link.medium.family == LinkFamily::Network && [link.to, link.from][usize::from(is_out)] == nic
            };
            fabric.links.iter().position(|link| ends(&link))
        };
        let wires: Vec<_> = nics.iter().map(|&nic| (nic, wire(nic, true), wire(nic, false))).collect();
        let router = &mut Router::of(fabric);
        for &gpu in gpus {
            for &(nic, wire_out, wire_in) in &wires {
                let out = self.over_pcie(fabric, router, gpu, nic).zip(wire_out);
                let out = out.map(|(path, wire)| self.path(path.class, [path.links, vec![wire]].concat()));
                let into = self.over_pcie(fabric, router, nic, gpu).zip(wire_in);
                let into = into.map(|(path, wire)| self.path(path.class, [vec![wire], path.links].concat()));
                self.out.push(out);
                let echo = |path: &TopologyPath| self.has_echo.then(|| reverse(fabric, *path.links.last()?)).flatten();
                self.into.push(into.map(|path| TopologyPath { is_split: false, echo: echo(&path), ..path }));
            }
        }
    }

    /// Sends through the GPU beside a network card where that avoids the processor (PXN).
    fn take_nvlink_to_the_nic(&mut self) {
        let direct = self.out.clone();
        let furthest = if self.c2c == C2cUse::Relay { PathClass::P2c } else { PathClass::Pxb };
        let at = |gpu: usize, nic: usize| direct[gpu * self.nics + nic].as_ref();
        let mut better = Vec::new();
        for (gpu, nic) in (0..self.gpus).flat_map(|gpu| (0..self.nics).map(move |nic| (gpu, nic))) {
            if at(gpu, nic).is_some_and(|path| path.class <= furthest) {
                continue;
            }
            let by = (0..self.gpus).find(|&by| {
                by != gpu
                    && at(by, nic).is_some_and(|path| path.class <= furthest)
                    && self.between(gpu, by).is_some_and(|path| path.class == PathClass::Nvl)
            });
            let Some(by) = by else { continue };
            let (Some(first), Some(second)) = (self.between(gpu, by), at(by, nic)) else { continue };
            better.push((
                gpu * self.nics + nic,
                self.path(PathClass::Pxn, [first.links.clone(), second.links.clone()].concat()),
            ));
        }
        for (place, path) in better {
            self.out[place] = Some(path);
        }
    }

    /// Leads traffic with cards through the processor where a GPU's memory is out of their reach: without GPUDirect RDMA, and beyond
    /// `level`. A path through the GPU beside a card is as long as that GPU's own.
    fn stage_for_the_network(&mut self, fabric: &Fabric, gpus: &[usize], nics: &[usize], level: Option<PathClass>) {
        let router = &mut Router::of(fabric);
        let class_at = |paths: &[Option<TopologyPath>], place: usize| paths[place].as_ref().map(|path| path.class);
        let nearest = |nic: usize| (0..gpus.len()).filter_map(|gpu| class_at(&self.into, gpu * nics.len() + nic)).min();
        let nearest: Vec<_> = (0..nics.len()).map(nearest).collect();
        for place in 0..self.out.len() {
            let (gpu, nic) = (gpus[place / nics.len()], nics[place % nics.len()]);
            let Some(class) = class_at(&self.out, place).filter(|&class| class < PathClass::Phb) else { continue };
            let distance = if class == PathClass::Pxn { nearest[place % nics.len()] } else { Some(class) };
            if fabric.abilities.gpu_direct && distance <= Some(level.unwrap_or(PathClass::Sys)) {
                continue;
            }
            let staged = self.over_memory(fabric, router, gpu, nic).zip(self.over_memory(fabric, router, nic, gpu));
            let Some((up, down)) = staged else { continue };
            let wires = (self.out[place].as_ref(), self.into[place].as_ref());
            let (Some(out), Some(into)) = wires else { continue };
            let (last, first) = (out.links.last().copied(), into.links.first().copied());
            self.out[place] = Some(self.path(up.class, up.links.into_iter().chain(last).collect()));
            let down = self.path(down.class, first.into_iter().chain(down.links).collect());
            self.into[place] = Some(TopologyPath { is_split: false, ..down });
        }
    }

    fn sum(&mut self, fabric: &Fabric, gpus: &[usize]) {
        let paths = if self.nics > 0 { &self.out } else { &self.between };
        // A card's own two links end every path out: PCIe to it and its wire.
        let own = |path: &TopologyPath| path.links.iter().rev().take(2).map(|&link| self.capacity[link]).min();
        let widest = |nic: usize| (0..self.gpus).filter_map(|gpu| own(self.out(gpu, nic)?)).max().unwrap_or(0);
        self.cards = (0..self.nics).map(widest).collect();
        self.widest = paths.iter().flatten().map(|path| path.width).max().unwrap_or(0);
        for &gpu in gpus {
            let leaving = || fabric.links.iter().enumerate().filter(move |(_, link)| link.from == gpu);
            let of = |family| move |(_, link): &(usize, &Link)| link.medium.family == family;
            let nvlink: i64 = leaving().filter(of(LinkFamily::Nvlink)).map(|(place, _)| self.capacity[place]).sum();
            let pcie = leaving().filter(of(LinkFamily::Pcie)).map(|(place, _)| self.capacity[place]).max().unwrap_or(0);
            self.total = self.total.max(nvlink).max(pcie);
            self.leaving.push((nvlink, pcie));
            let to_switch = leaving().filter(|(_, link)| fabric.devices[link.to].kind == DeviceKind::Nvswitch);
            let to_switch: i64 = to_switch.map(|(place, _)| self.capacity[place]).sum();
            self.has_switch |= to_switch > 0;
            self.to_switch = self.to_switch.max(to_switch);
        }
    }
}

/// Returns the class of a path over PCIe and processors, C2C as PCIe.
pub(crate) fn host_class(fabric: &Fabric, links: &[usize]) -> PathClass {
    let passed = |kind| links.iter().filter(|&&l| fabric.devices[fabric.links[l].from].kind == kind).count();
    match (passed(DeviceKind::Socket), passed(DeviceKind::PcieSwitch)) {
        (0, 0..=1) => PathClass::Pix,
        (0, _) => PathClass::Pxb,
        (1, _) => PathClass::Phb,
        _ => PathClass::Sys,
    }
}

/// Returns what NCCL assumes of a link, in thousandths of GB/s.
fn assumed(fabric: &Fabric, link: &Link, constants: &VersionConstants, processor: Processor) -> Result<i64> {
    let lanes = f64::from(link.lanes);
    let medium = link.medium;
    let gbps = match medium.family {
        LinkFamily::Nvlink => constants.nvlink_gbps() * lanes,
        LinkFamily::Pcie => {
            let lane = pcie_lane_gbps(medium.lane_gbps).ok_or_else(|| {
                unable(fabric, format!("NCCL's model has no PCIe whose lane carries {} GB/s", medium.lane_gbps))
            })?;
            lane * lanes
        }
        LinkFamily::Socket | LinkFamily::C2c
            if [link.from, link.to].iter().all(|&end| fabric.devices[end].kind == DeviceKind::Socket) =>
        {
            constants.socket_gbps(processor).unwrap_or(medium.lane_gbps * lanes)
        }
        LinkFamily::Network | LinkFamily::C2c | LinkFamily::Socket => medium.lane_gbps * lanes,
        LinkFamily::Memory => 0.0,
        LinkFamily::Xgmi => return Err(unable(fabric, "NCCL does not know xGMI between GPUs: RCCL does".to_owned())),
    };
    Ok(thousandths(gbps))
}

/// Returns the link in the other direction.
fn reverse(fabric: &Fabric, link: usize) -> Option<usize> {
    let of = &fabric.links[link];
    fabric.links.iter().position(|other| (other.from, other.to) == (of.to, of.from) && other.medium == of.medium)
}

//! A summary of a fabric for the closed forms: its GPUs and nodes, their interconnect, and the rates of links.
//!
//! Nodes are taken to be alike. GPUs that an NVSwitch joins are one node, however many trays they are in.

use std::collections::HashSet;

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::hardware::gpus::Generation;
use crate::hardware::media::{self, LinkFamily, Medium};
use crate::hardware::{DeviceKind, Fabric, Link};
use crate::topology::route::Router;

/// The interconnect over which the GPUs of a node reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interconnect {
    /// NVLink or xGMI joins all of them.
    Nvlink,
    /// PCIe, from GPU to GPU.
    Peer,
    /// Host memory, which every byte enters and leaves over PCIe.
    Staged,
}

/// The software of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum NetworkStack {
    Ib,
    Slingshot,
    Roce,
    Efa,
    EfaV2,
    Tcp,
}

/// The network between nodes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NodeNetwork {
    /// The medium of a port.
    pub(super) medium: &'static Medium,
    /// GB/s of all cards of a node at line rate.
    pub(super) line_gbps: f64,
    /// The number of cards of a node.
    pub(super) cards: u32,
}

impl NodeNetwork {
    /// Returns the software of the network. EFA of instances with Hopper and later GPUs writes into their memory; what came before
    /// sends to receivers that match messages.
    pub(super) fn stack(&self, generation: Generation) -> NetworkStack {
        match self.medium.name.split('-').next() {
            Some("efa") if is_recent(generation) => NetworkStack::EfaV2,
            Some("efa") => NetworkStack::Efa,
            Some("ethernet" | "tcpxo") => NetworkStack::Tcp,
            Some("roce") => NetworkStack::Roce,
            Some("slingshot") => NetworkStack::Slingshot,
            _ => NetworkStack::Ib,
        }
    }

    /// Says whether 128 bytes that such a GPU sends over it arrive together and in order, as LL128 needs.
    ///
    /// Cited: over EFA they do from the instances with Hopper on (aws/aws-ofi-nccl#76, #280); over Slingshot they do not
    /// (NVIDIA/nccl#2001). Of EFA the first says the same of LL, which small calls of the table show nevertheless: with Simple
    /// alone they err more.
    fn keeps_lines(&self, generation: Generation) -> bool {
        match self.medium.name.split('-').next() {
            Some("efa") => is_recent(generation),
            Some("slingshot") => false,
            _ => true,
        }
    }
}

fn is_recent(generation: Generation) -> bool {
    generation > Generation::Ada && generation != Generation::Cdna2
}

/// The facts about a fabric on which the closed forms depend.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MachineSummary {
    pub(super) ranks: u32,
    pub(super) nodes: u32,
    pub(super) generation: Generation,
    pub(super) is_amd: bool,
    /// Whether GPUs read from their peers instead of writing to them. Cited: GPUs of compute capability 8.0 do (NVIDIA/nccl
    /// src/graph/paths.cc, `ncclTopoCheckP2p`).
    pub(super) reads_peers: bool,
    pub(super) interconnect: Interconnect,
    /// The medium of the links from a GPU to the others of its node.
    pub(super) medium: &'static Medium,
    /// The GB/s of these links together at line rate, one way, on the GPU that has the fewest.
    pub(super) line_gbps: f64,
    /// The number of GPUs that share the narrowest link to their socket; 1 unless transfers are host-staged.
    pub(super) sharers: f64,
    /// The medium of a GPU's link to its host, and the line rate of that link in GB/s.
    pub(super) host: Option<(&'static Medium, f64)>,
    /// Whether network cards reach the memory of GPUs.
    pub(super) is_direct: bool,
    /// The number of GPUs that have links to each other, where not all have: pairs with bridges, the dies of MI250X. No machine of the
    /// table of measurements is so, but for DGX-1.
    pub(super) bridged: Option<u32>,
    /// Whether an NVSwitch joins the GPUs.
    pub(super) has_switch: bool,
    /// Whether the NVSwitch reduces and multicasts.
    pub(super) folds: bool,
    /// Whether the machine is a rack: GPUs at Grace processors, trays that NVSwitches join.
    pub(super) is_rack: bool,
    pub(super) network: Option<NodeNetwork>,
    /// What it has or lacks, for which reason measurements of machines with this GPU or network do not apply.
    pub(super) lacks: Option<String>,
}

impl MachineSummary {
    /// Summarizes a fabric by a part that stands for it: the fabric itself, or an excerpt.
    ///
    /// # Errors
    /// As [`MachineSummary::of`].
    pub(super) fn of_part(whole: &Fabric, part: &Fabric) -> Result<Self> {
        let found = Self::of(part)?;
        let ranks = whole.world_size();
        Ok(Self { ranks, nodes: ranks / found.local(), ..found })
    }

    /// Summarizes a fabric.
    ///
    /// # Errors
    /// [`Error::Unable`] for one GPU, or nodes with unlike numbers of GPUs; [`Error::NoPath`] if ranks cannot reach each
    /// other.
    pub(super) fn of(fabric: &Fabric) -> Result<Self> {
        let unable = |message: String| Error::Unable { fabric: fabric.name.clone(), message };
        let gpus = fabric.gpus();
        let ranks = gpus.len() as u32;
        if ranks < 2 {
            return Err(unable(
                "one GPU has nobody to talk to: nothing moves, and there is nothing to predict".to_owned(),
            ));
        }
        let over_nvlink = fabric.hops_from(gpus[0], |_| true, LinkFamily::joins_gpus);
        let is_joined = |&gpu: &usize| over_nvlink[gpu].is_some();
        let is_own = |gpu: usize| fabric.devices[gpu].node == fabric.devices[gpus[0]].node;
        let is_one_node = gpus.iter().all(is_joined);
        let node: Vec<usize> = gpus.iter().copied().filter(|&gpu| is_one_node || is_own(gpu)).collect();
        let local = node.len() as u32;
        let nodes = ranks / local;
        if !ranks.is_multiple_of(local) {
            return Err(unable(format!("the first node has {local} of {ranks} GPUs: nodes must be alike")));
        }
        fabric.route(0, 1)?;
        fabric.route(0, ranks - 1)?;
        let interconnect = match (local > 1 && node.iter().all(is_joined), fabric.abilities.peer_access) {
            (true, _) => Interconnect::Nvlink,
            (false, true) => Interconnect::Peer,
            (false, false) => Interconnect::Staged,
        };
        let lines = node.iter().map(|&gpu| line(fabric, gpu, interconnect, &node)).collect::<Option<Vec<_>>>();
        let lines = lines.ok_or_else(|| unable("a GPU has no link to a host, nor to another GPU".to_owned()))?;
        let (medium, line_gbps) = lines.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).expect("there are two GPUs");
        let has_switch = interconnect == Interconnect::Nvlink
            && leaving(fabric, node[0]).any(|link| fabric.devices[link.to].kind == DeviceKind::Nvswitch);
        let is_rack = has_switch && leaving(fabric, node[0]).any(|link| link.medium.family == LinkFamily::C2c);
        let folds = has_switch && fabric.abilities.switch_reduction && fabric.abilities.multicast;
        let network = (nodes > 1).then(|| network(fabric, &node)).flatten();
        if nodes > 1 && network.is_none() {
            return Err(unable("nothing joins its nodes that has a rate".to_owned()));
        }
        let sharers = if interconnect == Interconnect::Staged { sharers(fabric, &node, line_gbps) } else { 1.0 };
        let (host, is_direct) = (line(fabric, node[0], Interconnect::Staged, &node), fabric.abilities.gpu_direct);
        let lanes = |&gpu: &usize| -> u32 {
            let nvlinks = leaving(fabric, gpu).filter(|link| link.medium.family.joins_gpus());
            nvlinks.map(|link| link.lanes).sum()
        };
        let neighbours = |&gpu: &usize| leaving(fabric, gpu).filter(|link| node.contains(&link.to)).count();
        let most = node.iter().map(neighbours).max().unwrap_or(0);
        let is_measured = interconnect == Interconnect::Nvlink && fabric.gpu.sm.is_some();
        let is_partly = !has_switch && !is_measured && most > 0 && most + 1 < node.len();
        let bridged = is_partly.then_some(most as u32 + 1);
        let (least, whole) = (node.iter().map(lanes).min().unwrap_or(0), fabric.gpu.nvlinks);
        let lacks = (has_switch && least < whole)
            .then(|| format!("a GPU has {least} of the {whole} NVLinks of {}", fabric.gpu.title))
            .or_else(|| unmeasured(fabric, network.as_ref()));
        let (generation, is_amd) = (fabric.gpu.generation, fabric.gpu.sm.is_none());
        Ok(Self {
            ranks,
            nodes,
            generation,
            is_amd,
            reads_peers: fabric.gpu.sm == Some(80),
            interconnect,
            medium,
            line_gbps,
            sharers,
            host,
            is_direct,
            bridged,
            has_switch,
            folds,
            is_rack,
            network,
            lacks,
        })
    }

    /// Says whether LL128 is used: over NVLink, from Ampere on, and networks that keep its lines.
    pub(super) fn has_ll128(&self) -> bool {
        let is_old = self.generation <= Generation::Turing;
        let keeps_lines = |network: &NodeNetwork| network.keeps_lines(self.generation);
        self.interconnect == Interconnect::Nvlink && !is_old && self.network.as_ref().is_none_or(keeps_lines)
    }

    pub(super) fn local(&self) -> u32 {
        self.ranks / self.nodes
    }

    /// Names what joins the GPUs of a node.
    pub(super) fn joined_by(&self) -> &'static str {
        match (self.local(), self.interconnect, self.has_switch) {
            (1, ..) => "one GPU",
            _ if self.bridged.is_some() => "links between some GPUs",
            (_, Interconnect::Nvlink, true) => "nvswitch",
            (_, Interconnect::Nvlink, false) => "mesh",
            (_, Interconnect::Peer, _) => "pcie",
            (_, Interconnect::Staged, _) => "host memory",
        }
    }

    /// Returns the class of systems of the table of measurements to which it belongs.
    pub(super) fn class(&self) -> &'static str {
        match (&self.network, self.interconnect) {
            (Some(_), _) if self.is_amd => "amd_multinode",
            (Some(_), _) if self.is_rack => "mnnvl_multi_rack",
            (Some(network), _) => match network.medium.name.split('-').next() {
                Some("efa") => "multinode_efa",
                Some("ethernet") => "multinode_tcp",
                Some("tcpxo") => "multinode_tcpx",
                Some("slingshot") => "multinode_slingshot",
                Some("roce") => "multinode_roce",
                _ => "multinode_ib",
            },
            (None, Interconnect::Nvlink) if self.is_amd => "amd_xgmi",
            (None, Interconnect::Nvlink) if self.is_rack => "mnnvl_nvl72",
            (None, Interconnect::Nvlink) => match (self.has_switch, self.folds, self.generation) {
                (true, true, Generation::Hopper) => "nvswitch_hopper_nvls",
                (true, true, _) => "nvswitch_blackwell_nvls",
                (true, false, _) => "nvswitch_no_nvls",
                (false, ..) if self.ranks == 2 => "nvlink_bridge",
                (false, _, Generation::Volta | Generation::Pascal) => "nvlink_mesh_v100",
                (false, ..) => "nvlink_mesh",
            },
            (None, Interconnect::Peer) => "pcie_p2p",
            (None, Interconnect::Staged) => "pcie_host_staged",
        }
    }
}

fn leaving(fabric: &Fabric, device: usize) -> impl Iterator<Item = &Link> {
    fabric.links.iter().filter(move |link| link.from == device)
}

/// The medium and the line rate in GB/s of what a GPU has to the others of its node.
fn line(fabric: &Fabric, gpu: usize, interconnect: Interconnect, node: &[usize]) -> Option<(&'static Medium, f64)> {
    let leads = |link: &&Link| match interconnect {
        Interconnect::Nvlink => {
            let is_switch = fabric.devices[link.to].kind == DeviceKind::Nvswitch;
            link.medium.family.joins_gpus() && (is_switch || node.contains(&link.to))
        }
        Interconnect::Peer | Interconnect::Staged => matches!(link.medium.family, LinkFamily::Pcie | LinkFamily::C2c),
    };
    let links: Vec<&Link> = leaving(fabric, gpu).filter(leads).collect();
    let gbps = links.iter().map(|link| link.line_rate().gbps()).sum();
    Some((links.first()?.medium, gbps))
}

/// The links from a GPU up to the nearest socket, through switches, which may be behind each other; none if there is no way.
fn uplinks(fabric: &Fabric, router: &mut Router, gpu: usize) -> Vec<usize> {
    let is_taken = |family| matches!(family, LinkFamily::Pcie | LinkFamily::C2c);
    let to = |socket| router.shortest(fabric, gpu, socket, |kind| kind == DeviceKind::PcieSwitch, is_taken);
    fabric.of_kind(DeviceKind::Socket).filter_map(to).min_by_key(Vec::len).unwrap_or_default()
}

/// How many GPUs share the narrowest link on the way to their socket: 1 if each has its own.
fn sharers(fabric: &Fabric, node: &[usize], line_gbps: f64) -> f64 {
    let (mut load, mut router) = (vec![0.0; fabric.links.len()], Router::of(fabric));
    for link in node.iter().flat_map(|&gpu| uplinks(fabric, &mut router, gpu)) {
        load[link] += line_gbps / fabric.links[link].line_rate().gbps();
    }
    load.into_iter().fold(1.0, f64::max)
}

/// Says what no measured machine has of a network, or of GPUs that forward.
fn unmeasured(fabric: &Fabric, network: Option<&NodeNetwork>) -> Option<String> {
    if fabric.has_parallel_ways() {
        return Some("a hash spreads flows over its switches, and only `simulate` knows the hash".to_owned());
    }
    if fabric.abilities.forwards {
        return Some("its GPUs forward, as no measured machine's do; `simulate` runs any schedule".to_owned());
    }
    let medium = network?.medium;
    let is_shipped = media::all().iter().any(|shipped| std::ptr::eq(shipped, medium));
    (!is_shipped).then(|| format!("no measured network has such ports ({})", medium.name))
}

/// The cards of a node that are the nearest to one of its GPUs: NCCL gives a GPU no others (`ncclTopoGetLocalNet`).
fn network(fabric: &Fabric, node: &[usize]) -> Option<NodeNetwork> {
    let mut ports: Vec<&Link> = fabric.network_ports(fabric.devices[node[0]].node).collect();
    let is_host = |kind| matches!(kind, DeviceKind::PcieSwitch | DeviceKind::Socket);
    let mut is_near = HashSet::new();
    for &gpu in node {
        let away = fabric.hops_from(gpu, is_host, |family| !family.joins_gpus());
        let nearest = ports.iter().filter_map(|port| away[port.from]).min();
        is_near.extend(ports.iter().map(|port| port.from).filter(|&card| away[card] == nearest));
    }
    ports.retain(|port| is_near.contains(&port.from));
    let line_gbps = ports.iter().map(|link| link.line_rate().gbps()).sum();
    Some(NodeNetwork { medium: ports.first()?.medium, line_gbps, cards: ports.len() as u32 })
}

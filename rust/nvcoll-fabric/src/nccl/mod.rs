//! What NCCL would choose, and its own estimate of the time: its public cost model, per version and generation.
//!
//! ```text
//! Fabric ─node─▶ links with the GB/s that NCCL assumes ─search─▶ channels x speed, for rings, trees, NVLS
//!                                                                  │
//!    versions.toml: latencies, maxima, factors of the version ─────┴─cost─▶ latency + bytes / bandwidth per
//!                                                                         (algorithm, protocol); the least is taken
//! ```
//!
//! This answers *what would NCCL do*, not *how long will it take*: [`crate::predict`] answers that. The constants of a version
//! come from the newest era of its minor version that is not newer.
//!
//! **Sources.** github.com/NVIDIA/nccl at the tags of `versions.toml`; checked against estimates that NCCL printed
//! (NVIDIA/nccl#1595 and #1453 to six digits, a tuning table of 2.29.7) and against choices stated in public measurements
//! (stas00/ml-engineering): see `tests/nccl.rs`.
//!
//! **Where it is known to be off** (its estimate of its own choice / measured; all_reduce on one node, out of place, on the
//! presets, with the constants of a version near the one that ran; rows of public nccl-tests tables):
//!
//! | system | version | 1 KiB | 64 KiB | 1 MiB | 4-8 MiB | 64 MiB | 1 GiB | 8 GiB |
//! |---|---|---|---|---|---|---|---|---|
//! | H100 x 8 | 2.27.7 | 0.89 | 0.81 | 1.02 | 0.75-0.68 | 0.85 | 1.01 | 1.03 |
//! | B200 x 8, torch adds 20-30 us | 2.27.7 | | 0.29 | 0.42 | 0.34-0.35 | 0.51 | 0.78 | 0.90 |
//! | A100 x 8, one process | 2.8.4 | 0.28 | 0.32 | 0.55 | 0.65-0.67 | 0.95 | 0.99 | 1.00 |
//! | V100 DGX-1, one process | 2.8.4 | 0.21 | 0.26 | 0.61 | 0.74-0.85 | 1.00 | | |
//! | V100 DGX-2, 12 of 16, one process | 2.8.4 | 0.23 | 0.27 | 0.79 | 0.69-0.72 | 1.01 | 0.98 | 0.98 |
//! | RTX 2080 Ti x 2, staged | 2.20.5 | 0.77 | 0.77 | 0.70 | 0.67 | 0.67 | 0.67 | |
//!
//! It has no term for how a program launches (20-45 us for one process with many GPUs), none for filling a pipeline (1-128 MiB
//! is 15-35 % too fast), and does not know that traffic without peer access crosses memory. EFA's and TCP's latencies are not
//! in its tables. Where its lists of speeds hold nothing slow enough (eight RTX 5090 on two AMD sockets: 18 GB/s is the least,
//! 16 there are) its estimate means nothing: see [`Model::is_last_resort`].
//!
//! **What is not here.** CollNet (SHARP) and tuner plugins; sends and receives, so all_to_all, gather and scatter, for which
//! NCCL has no model; the latency that a network plugin reports of a card (InfiniBand's reports
//! none); several calls in one group; fp8's penalty on rings of more than eight ranks.

mod constants;
mod cost;
mod graph;
mod names;
mod node;
mod nvls;
mod search;
mod send_rules;
mod sends;
mod settings;
mod trial;

pub use names::{NcclAlgorithm, PathClass, Protocol};
pub(crate) use node::host_class;
pub(crate) use nvls::NvlsChunks;
pub(crate) use sends::SendChannels;
pub use settings::{CrossNic, NcclSettings, Variable, VARIABLES};

use crate::error::{Error, Result};
use crate::hardware::Fabric;
use crate::units::{Ps, PS_PER_US};
use constants::{NvlsBandwidth, VersionConstants};
use cost::CostModel;
use graph::{ChannelGraph, GraphPattern, LAST_RESORT_GBPS};
use names::{AlgoRule, Function};
use node::{NodeRanks, NodeTopology};
use nvcoll_core::collective::Collective;

/// A pair of algorithm and protocol that NCCL considers for a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The algorithm.
    pub algorithm: NcclAlgorithm,
    /// The protocol.
    pub protocol: Protocol,
    /// The most channels that a call of this size has.
    pub channels: u32,
    /// Bytes over this is the time without latency: GB/s, 10^9 bytes per second.
    pub bandwidth_gbps: f64,
    /// The latency in microseconds.
    pub latency_us: f64,
    /// NCCL's estimate; none if the pair is not considered.
    pub time_ps: Option<Ps>,
    /// The reason why the pair is not considered.
    pub why_disabled: Option<&'static str>,
}

/// The channels of an algorithm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Channels {
    /// The number of channels that the search found; rings and trees run with twice as many.
    pub count: u32,
    /// GB/s of each between GPUs.
    pub node_gbps: f64,
    /// GB/s of each between nodes.
    pub network_gbps: f64,
    /// The worst path between GPUs.
    pub class: PathClass,
    /// The worst path to the network; local on one node.
    pub network_class: PathClass,
}

/// NCCL's cost model of some ranks of a fabric.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    fabric: String,
    costs: CostModel,
    nvls_chunks: NvlsChunks,
    sends: SendChannels,
    /// The channels of collectives without the settings.
    own_channels: u32,
}

impl Model {
    /// Returns the versions with known constants.
    pub fn versions() -> Vec<&'static str> {
        constants::versions()
    }

    /// Returns the newest version whose own text was read, which predictions take without a wish.
    pub fn newest() -> &'static str {
        constants::newest()
    }

    /// Makes the model: `version` as `2.27.7`, `v2.27.7-1` or `2.27`. The links between sockets show which processors there are.
    ///
    /// # Errors
    /// [`Error::Unknown`] for a version before the first known one; [`Error::Unable`] for GPUs or links that NCCL does not
    /// know, or nodes with unlike numbers of ranks; [`Error::NoPath`] if ranks cannot reach each other.
    pub fn of(version: &str, fabric: &Fabric) -> Result<Self> {
        Self::with_settings(version, fabric, &NcclSettings::default())
    }

    /// Makes the model with settings of NCCL.
    ///
    /// # Errors
    /// As [`Model::of`]; [`Error::Setting`] for a setting that the version does not read.
    pub fn with_settings(version: &str, fabric: &Fabric, settings: &NcclSettings) -> Result<Self> {
        let constants = VersionConstants::of(version, fabric.gpu, &fabric.name)?;
        settings.check(&constants.tag, &constants::numbers(&constants.tag).unwrap_or_default())?;
        let part = fabric.excerpt();
        let seen = part.as_ref().unwrap_or(fabric);
        let mut ranks = NodeRanks::of(seen)?;
        let node = NodeTopology::of(seen, &ranks, &constants, settings)?;
        // Only the number of nodes depends on the nodes that an excerpt leaves out.
        ranks.count = fabric.world_size();
        ranks.nodes = ranks.count / ranks.first.len().max(1) as u32;
        let most = constants.max_channels / 2;
        let (mut ring, mut tree, mut nvls) = (
            ChannelGraph::none(GraphPattern::Ring),
            ChannelGraph::none(GraphPattern::Tree),
            ChannelGraph::none(GraphPattern::Tree),
        );
        if ranks.count > 1 {
            ring = search::find(&node, &constants, GraphPattern::Ring, 1, most);
            tree = search::find(&node, &constants, GraphPattern::BalancedTree, ring.channels, ring.channels);
            ring.channels = ring.channels.min(tree.channels);
            tree.channels = ring.channels;
        }
        let is_allowed = settings.nvls != Some(false);
        let folds = fabric.abilities.multicast && fabric.abilities.switch_reduction && is_allowed;
        if folds && constants.sm >= 90 && constants.nvls != NvlsBandwidth::None && node.gpus > 2 {
            nvls = search::find_nvls(&node, &constants);
        }
        let mut channels = (2 * ring.channels).min(constants.max_channels).max(1) as u32;
        // Fast rings over several nodes are run by four channels each, where twice are few.
        if constants.sm >= 90 && ranks.nodes > 1 && ring.intra_gbps > 45.0 && channels < 16 {
            channels *= 2;
        }
        let own_channels = channels;
        let channels = settings.ring_channels(own_channels, constants.max_channels as u32);
        let of_plugin = seen.links.iter().find_map(|link| link.medium.nvls_chunk_kib).map(|kib| kib << 10);
        let nvls_chunks = NvlsChunks::of(&node, &constants, settings, ranks.nodes, nvls.inter, of_plugin);
        let sends = SendChannels::of(&node, &constants, settings, (ranks.count, ranks.nodes), channels);
        let costs = CostModel {
            constants,
            processor: node.processor,
            ranks: ranks.count,
            nodes: ranks.nodes,
            ring,
            tree,
            nvls,
            channels,
            nvls_channels: nvls_chunks.channels,
            settings: settings.clone(),
        };
        Ok(Self { fabric: fabric.name.clone(), costs, nvls_chunks, sends, own_channels })
    }

    /// Returns the tag whose constants these are.
    pub fn tag(&self) -> &str {
        &self.costs.constants.tag
    }

    /// Says whether no ring was found: NCCL then takes one channel in the order of the ranks, counts 0.1 GB/s for it, and runs.
    pub fn is_last_resort(&self) -> bool {
        self.costs.ring.channels > 0 && self.costs.ring.intra_gbps <= LAST_RESORT_GBPS
    }

    /// Returns in what order each channel's ring visits the GPUs of a node, by their positions; none if no ring was found.
    pub(crate) fn rings(&self) -> &[Vec<usize>] {
        &self.costs.ring.order
    }

    /// Returns the channels of an algorithm; none if there is no such graph.
    pub fn channels(&self, algorithm: NcclAlgorithm) -> Option<Channels> {
        let graph = self.costs.graph(algorithm);
        (graph.channels > 0).then_some(Channels {
            count: graph.channels as u32,
            node_gbps: graph.intra_gbps,
            network_gbps: graph.inter_gbps,
            class: graph.intra,
            network_class: graph.inter,
        })
    }

    /// Estimates the time of every pair; `nbytes` is what nccl-tests calls size: the whole buffer, of all ranks for all_gather and
    /// reduce_scatter.
    ///
    /// # Errors
    /// [`Error::Unable`] for a collective without a model in NCCL.
    pub fn candidates(&self, collective: &Collective, nbytes: u64) -> Result<Vec<Candidate>> {
        let function = Function::ALL.into_iter().find(|function| function.collective() == collective);
        let function = function.ok_or_else(|| Error::Unable {
            fabric: self.fabric.clone(),
            message: format!(
                "NCCL has no cost model of {}: it has one of {}",
                collective.name,
                Function::ALL.map(|function| function.collective().name).join(", ")
            ),
        })?;
        if self.costs.ranks == 1 {
            let (algorithm, protocol) = (NcclAlgorithm::Ring, Protocol::Simple);
            let (bandwidth_gbps, latency_us, time_ps, why_disabled) = (0.0, 0.0, Some(0), None);
            let alone =
                Candidate { algorithm, protocol, channels: 1, bandwidth_gbps, latency_us, time_ps, why_disabled };
            return Ok(vec![alone]);
        }
        let pairs = NcclAlgorithm::ALL.into_iter().flat_map(|a| Protocol::ALL.into_iter().map(move |p| (a, p)));
        let mut candidates: Vec<Candidate> = pairs.map(|(a, p)| self.candidate(function, a, p, nbytes)).collect();
        if candidates.iter().all(|candidate| candidate.time_ps.is_none()) {
            for candidate in candidates.iter_mut().filter(|candidate| self.is_backup(function, candidate)) {
                *candidate = self.timed(function, candidate.algorithm, candidate.protocol, nbytes);
            }
        }
        Ok(candidates)
    }

    /// Returns what NCCL would take: the least time, and among equals the first.
    ///
    /// # Errors
    /// As [`Model::candidates`].
    pub fn choice(&self, collective: &Collective, nbytes: u64) -> Result<Candidate> {
        let candidates = self.candidates(collective, nbytes)?;
        let considered = candidates.into_iter().filter(|candidate| candidate.time_ps.is_some());
        considered.min_by_key(|candidate| candidate.time_ps).ok_or_else(|| Error::Unable {
            fabric: self.fabric.clone(),
            message: format!("NCCL would find no way for {}{}", collective.name, self.named_lists()),
        })
    }

    /// Names the lists that may have left nothing, after a colon.
    fn named_lists(&self) -> String {
        let lists = self.costs.settings.names().filter(|name| ["NCCL_ALGO", "NCCL_PROTO"].contains(name));
        let lists = lists.collect::<Vec<_>>().join(" and ");
        if lists.is_empty() {
            lists
        } else {
            format!(": {lists} leaves none that it has here")
        }
    }

    /// Returns the channels of rings and trees with the settings, and the channels that NCCL has without them.
    pub fn ring_channels(&self) -> (u32, u32) {
        (self.costs.channels, self.own_channels)
    }

    /// Returns the channels of NVLS with the settings, and the channels that the version has without them.
    pub fn nvls_channels(&self) -> (u32, u32) {
        (self.nvls_chunks.channels, self.nvls_chunks.own_channels)
    }

    /// Returns the largest number of channels of a call of `nbytes`.
    pub fn used_channels(&self, algorithm: NcclAlgorithm, protocol: Protocol, nbytes: u64) -> u32 {
        self.costs.used_channels(algorithm, protocol, nbytes)
    }

    /// Says whether each channel fetches its work from host memory.
    pub(crate) fn has_work_in_host_memory(&self) -> bool {
        self.costs.constants.work_in_host_memory
    }

    /// Returns the channels of sends.
    pub(crate) fn sends(&self) -> SendChannels {
        self.sends
    }

    /// Returns the channels and chunks of NVLS.
    pub(crate) fn nvls_chunks(&self) -> NvlsChunks {
        self.nvls_chunks
    }

    /// Says whether NCCL takes a pair where its settings leave nothing.
    fn is_backup(&self, function: Function, candidate: &Candidate) -> bool {
        let (algorithm, protocol) = (candidate.algorithm, candidate.protocol);
        let is_left = || self.costs.why_not_protocol(function, algorithm, protocol).is_none();
        algorithm == NcclAlgorithm::Ring
            && match self.costs.constants.algo_rule {
                AlgoRule::RingIsBackup => true,
                AlgoRule::RingIsBackupByProtocol => is_left(),
                _ => false,
            }
    }

    fn candidate(&self, function: Function, algorithm: NcclAlgorithm, protocol: Protocol, nbytes: u64) -> Candidate {
        let why_disabled = self.costs.why_not(function, algorithm, protocol);
        if why_disabled.is_some() {
            let (channels, bandwidth_gbps, latency_us, time_ps) = (0, 0.0, 0.0, None);
            return Candidate { algorithm, protocol, channels, bandwidth_gbps, latency_us, time_ps, why_disabled };
        }
        self.timed(function, algorithm, protocol, nbytes)
    }

    /// Estimates the time of a pair that NCCL considers.
    fn timed(&self, function: Function, algorithm: NcclAlgorithm, protocol: Protocol, nbytes: u64) -> Candidate {
        let costs = &self.costs;
        let bandwidth_gbps =
            costs.algbw_gbps(function, algorithm, protocol) * costs.size_part(algorithm, protocol, nbytes);
        let latency_us =
            costs.latency_us(function, algorithm, protocol) * costs.plateau_part(function, algorithm, protocol, nbytes);
        let us = latency_us + nbytes as f64 / (1000.0 * bandwidth_gbps);
        Candidate {
            algorithm,
            protocol,
            channels: costs.used_channels(algorithm, protocol, nbytes),
            bandwidth_gbps,
            latency_us,
            time_ps: Some((us * PS_PER_US as f64).round() as Ps),
            why_disabled: None,
        }
    }
}

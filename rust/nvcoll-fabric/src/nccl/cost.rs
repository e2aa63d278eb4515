//! What a version's model says a call takes: fixed latency, hops, bandwidth.
//!
//! ```text
//! time = latency + bytes / (1000 x algbw)                     us, GB/s
//!
//! steps            all_reduce 2(n-1)   all_gather, reduce_scatter n-1   broadcast, reduce n
//! ring             base + (steps - crossings) x hop + crossings x network        n / steps  x channels x speed
//! tree             base + 2 ((n/nodes - 1) hop + log2(nodes) network)            1/2        x channels x speed x 0.92
//! NVLS             hop                                                           n / steps  x channels x 2 x speed x 0.85
//! NVLS tree        hop + 2 log2(nodes) network                                   as NVLS, bounded by the network
//! PAT              base + log2(nodes) network / 3.5 + 2.8 n                      channels x speed x 0.75
//! ```
//!
//! with the bounds and factors of `versions.toml` per protocol: LL moves half, LL128 120 of 128 bytes. Several details are
//! the version's: see each function. Source: NCCL src/graph/tuning.cc at the tags of the table. f64 with + - x / only, where
//! NCCL has f32: estimates agree to about six digits.

use super::constants::{Formulas, Hop, Ll128, NvlsBandwidth, Processor, VersionConstants};
use super::graph::{ChannelGraph, GraphPattern};
use super::names::{Function, NcclAlgorithm, PathClass, Protocol};
use super::settings::NcclSettings;

/// NCCL's cost model: constants of the version, ranks, nodes, and the channels that its search found.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CostModel {
    pub(super) constants: VersionConstants,
    pub(super) processor: Processor,
    pub(super) ranks: u32,
    pub(super) nodes: u32,
    pub(super) ring: ChannelGraph,
    pub(super) tree: ChannelGraph,
    pub(super) nvls: ChannelGraph,
    /// The number of channels of collectives.
    pub(super) channels: u32,
    /// The number of channels of NVLS.
    pub(super) nvls_channels: u32,
    pub(super) settings: NcclSettings,
}

impl CostModel {
    pub(super) fn graph(&self, algorithm: NcclAlgorithm) -> &ChannelGraph {
        match algorithm {
            NcclAlgorithm::Ring => &self.ring,
            NcclAlgorithm::Tree | NcclAlgorithm::Pat => &self.tree,
            NcclAlgorithm::Nvls | NcclAlgorithm::NvlsTree => &self.nvls,
        }
    }

    fn per_node(&self) -> f64 {
        f64::from(self.ranks) / f64::from(self.nodes)
    }

    fn steps(&self, function: Function) -> f64 {
        let n = f64::from(self.ranks);
        match function {
            Function::AllReduce => 2.0 * (n - 1.0),
            Function::AllGather | Function::ReduceScatter => n - 1.0,
            Function::Broadcast | Function::Reduce => n,
        }
    }

    /// Returns why NCCL does not consider a pair; none if it does.
    pub(super) fn why_not(
        &self,
        function: Function,
        algorithm: NcclAlgorithm,
        protocol: Protocol,
    ) -> Option<&'static str> {
        let gathers = matches!(function, Function::AllGather | Function::ReduceScatter);
        let has_it = match algorithm {
            NcclAlgorithm::Ring => true,
            NcclAlgorithm::Tree | NcclAlgorithm::NvlsTree => function == Function::AllReduce,
            NcclAlgorithm::Nvls => {
                function == Function::AllReduce || gathers && self.constants.nvls != NvlsBandwidth::Graph
            }
            NcclAlgorithm::Pat => gathers,
        };
        if !has_it {
            return Some("the algorithm does not do this collective");
        }
        if self.constants.base_us(algorithm, protocol).is_none() {
            return Some("the version does not have the algorithm");
        }
        if !self.settings.allows_algorithm(self.constants.algo_rule, function, algorithm, self.nodes) {
            return Some("NCCL_ALGO leaves it out");
        }
        if let Some(why) = self.why_not_protocol(function, algorithm, protocol) {
            return Some(why);
        }
        match algorithm {
            NcclAlgorithm::Ring | NcclAlgorithm::Tree => None,
            _ if protocol != Protocol::Simple => Some("the algorithm has only Simple"),
            NcclAlgorithm::Pat if self.nodes != self.ranks => Some("PAT needs one GPU per node"),
            NcclAlgorithm::Pat => None,
            _ if self.settings.nvls == Some(false) => Some("NCCL_NVLS_ENABLE turns it off"),
            _ if self.nvls.channels < 2 => {
                Some("NVLS needs Hopper or later, more than two GPUs and a switch that folds")
            }
            NcclAlgorithm::Nvls if self.nodes > 1 => Some("NVLS over several nodes needs SHARP in the network"),
            NcclAlgorithm::NvlsTree if self.nodes == 1 => Some("an NVLS tree needs several nodes"),
            NcclAlgorithm::Nvls if gathers && self.per_node() > self.constants.nvls_heads as f64 => {
                Some("NVLS gathers among no more GPUs than it has heads")
            }
            NcclAlgorithm::Nvls | NcclAlgorithm::NvlsTree => None,
        }
    }

    /// Returns why NCCL does not consider a protocol; none if it does. Who names LL128 gets it, whatever the machine.
    pub(super) fn why_not_protocol(
        &self,
        function: Function,
        algorithm: NcclAlgorithm,
        protocol: Protocol,
    ) -> Option<&'static str> {
        match self.settings.allows_protocol(function, protocol) {
            Some(true) => None,
            Some(false) => Some("NCCL_PROTO leaves it out"),
            None if protocol == Protocol::Ll128 && !self.has_ll128(self.graph(algorithm)) => {
                Some("LL128 needs NVLink, a network card near the GPU and a GPU for which the version allows it")
            }
            None => None,
        }
    }

    fn has_ll128(&self, graph: &ChannelGraph) -> bool {
        let sm = self.constants.sm;
        let furthest = if sm >= 90 { PathClass::Pxn } else { PathClass::Pxb };
        let is_near = graph.intra <= PathClass::Nvb && graph.inter <= furthest;
        match self.constants.ll128 {
            Ll128::Nvlink7080 => {
                [70, 80].contains(&sm) && graph.intra <= PathClass::Nvl && graph.inter <= PathClass::Pxb
            }
            Ll128::Nvlink708090 => {
                let is_far = graph.inter > furthest;
                [70, 80, 90].contains(&sm) && graph.intra <= PathClass::Nvl && !is_far
            }
            Ll128::Nvb708090 => [70, 80, 90].contains(&sm) && is_near,
            Ll128::Nvb70To120 => [70, 80, 90, 100, 120].contains(&sm) && is_near,
            Ll128::Nvb70 => sm >= 70 && is_near,
        }
    }

    /// Returns the bandwidth by which bytes are divided, in GB/s, without the tree's factor of size.
    pub(super) fn algbw_gbps(&self, function: Function, algorithm: NcclAlgorithm, protocol: Protocol) -> f64 {
        let gathers = matches!(function, Function::AllGather | Function::ReduceScatter);
        let of_ranks = f64::from(self.ranks) / self.steps(function);
        match algorithm {
            NcclAlgorithm::Ring => self.ring_gbps(function, protocol) * of_ranks,
            NcclAlgorithm::Tree => self.tree_gbps(protocol) * 0.5,
            NcclAlgorithm::Pat => self.bus_gbps(&self.tree) * self.constants.pat_part,
            NcclAlgorithm::Nvls | NcclAlgorithm::NvlsTree => {
                let bus = self.nvls_gbps(function, algorithm);
                let whole = if gathers && !self.is_by_algorithm() { 1.0 } else { of_ranks };
                let of_graph = self.constants.nvls_graph_part;
                bus * match (self.constants.nvls, algorithm) {
                    (NvlsBandwidth::Efficiency, _) => whole,
                    (NvlsBandwidth::Graph, NcclAlgorithm::NvlsTree) => {
                        0.7 * f64::from(self.nodes) / (2.0 * (f64::from(self.nodes) - 1.0))
                    }
                    (NvlsBandwidth::NarrowerUnscaled | NvlsBandwidth::NarrowerHalves, _) if gathers => 1.0,
                    _ => of_graph,
                }
            }
        }
    }

    fn is_by_algorithm(&self) -> bool {
        self.constants.formulas == Formulas::ByAlgorithm
    }

    /// All channels together. One function for all takes the speed between GPUs also on two nodes, since a pair exchanges.
    fn bus_gbps(&self, graph: &ChannelGraph) -> f64 {
        let is_ring = graph.pattern == GraphPattern::Ring;
        let speed = match (self.nodes, self.is_by_algorithm()) {
            (..=1, _) | (2, false) => graph.intra_gbps,
            (_, true) if !is_ring => graph.intra_gbps.min(graph.inter_gbps),
            _ => graph.inter_gbps,
        };
        (graph.channels as f64 * speed).min(self.constants.bus_bound_gbps())
    }

    fn ring_gbps(&self, function: Function, protocol: Protocol) -> f64 {
        let (constants, bus) = (&self.constants, self.bus_gbps(&self.ring));
        match protocol {
            Protocol::Simple => bus,
            Protocol::Ll => {
                let reduces = matches!(function, Function::AllReduce | Function::Reduce);
                let part =
                    if self.nodes > 1 || reduces { constants.ring_ll_part } else { constants.ring_ll_alone_part };
                (bus * part).min(constants.ll_gbps(self.nodes, self.processor))
            }
            Protocol::Ll128 => {
                let is_alone = self.per_node() < 2.0;
                let part = if is_alone { constants.ring_ll128_one_gpu_part } else { constants.ring_ll128_part };
                let most = constants.ring_ll128_gbps(function.collective().name, self.nodes);
                (bus * part).min(self.ring.channels as f64 * most)
            }
        }
    }

    fn tree_gbps(&self, protocol: Protocol) -> f64 {
        let (constants, channels) = (&self.constants, self.tree.channels as f64);
        let bus = (self.bus_gbps(&self.tree) * constants.tree_part).min(channels * constants.tree_gbps(self.nodes));
        let bus = match protocol {
            Protocol::Simple => bus,
            Protocol::Ll => (bus * constants.tree_ll_part).min(constants.ll_gbps(self.nodes, self.processor)),
            Protocol::Ll128 => {
                let is_alone = self.nodes == 1;
                let part = if is_alone { constants.tree_ll128_one_node_part } else { constants.tree_ll128_part };
                (bus * part).min(channels * constants.tree_ll128_gbps(self.nodes))
            }
        };
        if self.tree.pattern == GraphPattern::Tree {
            bus * constants.simple_tree_part
        } else {
            bus
        }
    }

    fn nvls_gbps(&self, function: Function, algorithm: NcclAlgorithm) -> f64 {
        let (intra, inter) = (self.nvls.intra_gbps, self.nvls.inter_gbps);
        let (channels, per_node) = (self.nvls.channels as f64, self.per_node());
        let is_tree = algorithm == NcclAlgorithm::NvlsTree;
        let reduces = function == Function::AllReduce;
        let narrower = match (is_tree, self.nodes <= 2) {
            (true, false) => intra.min(inter / 2.0),
            _ => intra.min(inter),
        };
        if self.constants.nvls == NvlsBandwidth::Ring {
            return self.bus_gbps(&self.ring);
        }
        channels
            * match self.constants.nvls {
                NvlsBandwidth::None | NvlsBandwidth::Ring => 0.0,
                NvlsBandwidth::Graph if self.nodes <= 2 => intra,
                NvlsBandwidth::Graph => inter,
                NvlsBandwidth::NarrowerHalves if !reduces => (intra * (per_node - 1.0) / per_node).min(inter * 0.9),
                NvlsBandwidth::Narrower | NvlsBandwidth::NarrowerUnscaled | NvlsBandwidth::NarrowerHalves => narrower,
                NvlsBandwidth::Efficiency => {
                    let inside = intra * self.constants.nvls_part() * (channels - 1.0) / channels;
                    let inside = if reduces { inside * 2.0 } else { inside * (per_node - 1.0) / per_node };
                    let between = if is_tree && self.nodes <= 2 { inter * 2.0 } else { inter };
                    let most = self.constants.nvls_tree_gbps(self.nodes).filter(|_| is_tree);
                    inside.min(between).min(most.unwrap_or(f64::INFINITY))
                }
            }
    }

    /// Returns the latency in microseconds, without the plateau of rings over several nodes.
    pub(super) fn latency_us(&self, function: Function, algorithm: NcclAlgorithm, protocol: Protocol) -> f64 {
        let constants = &self.constants;
        let base = constants.base_us(algorithm, protocol).unwrap_or(0.0);
        let nodes = f64::from(self.nodes);
        let log_nodes = f64::from(self.nodes.ilog2());
        let inside = if self.graph(algorithm).intra == PathClass::Nvl { Hop::Nvlink } else { Hop::Pcie };
        let mut hop = constants.hop_us(inside, algorithm, protocol);
        if self.nodes > 1 && protocol == Protocol::Ll {
            hop *= constants.ll_hop_several_nodes_part;
        }
        // With one GPU per node nothing hides the network.
        let is_exposed = constants.one_gpu_takes_tree_network && self.nodes == self.ranks;
        let network =
            constants.hop_us(Hop::Network, if is_exposed { NcclAlgorithm::Tree } else { algorithm }, protocol);
        match algorithm {
            NcclAlgorithm::Ring => base + self.ring_hops_us(function, protocol, inside, hop, network),
            NcclAlgorithm::Tree => {
                let others = f64::from(self.ranks / self.nodes) - 1.0;
                base + 2.0 * (others * hop + log_nodes * network)
            }
            NcclAlgorithm::Nvls if self.nodes == 1 => base + hop,
            NcclAlgorithm::Nvls => base + hop + network,
            NcclAlgorithm::NvlsTree if constants.nvls == NvlsBandwidth::Graph => base + 2.0 * (nodes - 1.0) * network,
            NcclAlgorithm::NvlsTree => base + hop + 2.0 * log_nodes * network,
            NcclAlgorithm::Pat => base + log_nodes * (network / 3.5) + f64::from(self.ranks) * 2.8,
        }
    }

    fn ring_hops_us(&self, function: Function, protocol: Protocol, inside: Hop, hop: f64, network: f64) -> f64 {
        let constants = &self.constants;
        let (nodes, steps) = (f64::from(self.nodes), self.steps(function));
        let crossings = match (self.nodes, function) {
            (1, _) => 0.0,
            (_, Function::AllReduce) => 2.0 * (nodes - 1.0) + f64::from(constants.extra_network_steps),
            _ => nodes - 1.0,
        };
        if matches!(function, Function::Broadcast | Function::Reduce) {
            let way = if self.nodes == 1 || self.is_by_algorithm() { inside } else { Hop::Network };
            // One order on all channels is one pipeline; else chunks wait for each other.
            return match (self.ring.is_same, protocol) {
                (true, _) => constants.hop_us(way, NcclAlgorithm::Ring, protocol),
                (false, Protocol::Simple) => steps * constants.hop_us(way, NcclAlgorithm::Tree, protocol),
                (false, _) => steps * constants.hop_us(way, NcclAlgorithm::Ring, protocol),
            };
        }
        let hop = if self.nodes > 1 { hop.max(self.post_us(protocol)) } else { hop };
        (steps - crossings) * hop + crossings * network
    }

    /// What posting a transfer costs a processor.
    fn post_us(&self, protocol: Protocol) -> f64 {
        let is_amd = self.processor == Processor::Amd;
        let post = if is_amd { self.constants.post_amd_us } else { self.constants.post_us };
        post * if protocol == Protocol::Simple { 3.0 } else { 1.0 }
    }

    /// Returns by what the latency of a large all_reduce on a ring over several nodes is multiplied.
    pub(super) fn plateau_part(
        &self,
        function: Function,
        algorithm: NcclAlgorithm,
        protocol: Protocol,
        nbytes: u64,
    ) -> f64 {
        let is_ring = (function, algorithm, protocol) == (Function::AllReduce, NcclAlgorithm::Ring, Protocol::Simple);
        let ranks = u64::from(self.ranks);
        let plateau = self.constants.plateau;
        let begun = nbytes / (u64::from(self.channels) * ranks) >= plateau.per_channel_bytes
            && nbytes >= ranks * plateau.per_rank_bytes;
        if is_ring && self.nodes > 1 && begun {
            self.constants.plateau_part()
        } else {
            1.0
        }
    }

    /// Returns the part of the bandwidth that a tree keeps at a size.
    pub(super) fn size_part(&self, algorithm: NcclAlgorithm, protocol: Protocol, nbytes: u64) -> f64 {
        let is_scaled = match algorithm {
            NcclAlgorithm::Tree => true,
            // On x86; an unknown processor is taken to be x86.
            NcclAlgorithm::NvlsTree => {
                self.constants.has_nvls_tree_size_part() && !matches!(self.processor, Processor::Arm | Processor::Power)
            }
            _ => false,
        };
        if is_scaled {
            self.constants.tree_size_part(algorithm, protocol, nbytes)
        } else {
            1.0
        }
    }

    /// Returns the largest number of channels of a call of `nbytes`: each thread must have some work.
    pub(super) fn used_channels(&self, algorithm: NcclAlgorithm, protocol: Protocol, nbytes: u64) -> u32 {
        if matches!(algorithm, NcclAlgorithm::Nvls | NcclAlgorithm::NvlsTree) {
            return self.nvls_channels;
        }
        if algorithm == NcclAlgorithm::Pat {
            return self.channels;
        }
        let is_narrow = self.ring.intra_gbps * self.ring.channels as f64 <= SLOW_GBPS;
        let is_slow = algorithm == NcclAlgorithm::Ring && is_narrow && !self.is_by_algorithm();
        let (threads, per_thread): (u64, u64) = match protocol {
            Protocol::Ll if algorithm == NcclAlgorithm::Ring => (512, 8 * u64::from(self.ranks)),
            Protocol::Ll => (512, 8),
            Protocol::Ll128 => (640, 8),
            Protocol::Simple => (if is_slow { 256 } else { 512 }, 64),
        };
        (nbytes / (threads * per_thread)).clamp(1, u64::from(self.channels)) as u32
    }
}

/// Cited: what one PCIe 3 x16 carries; a ring no faster gets half the threads (src/graph/tuning.cc, until 2.30).
const SLOW_GBPS: f64 = 12.0;

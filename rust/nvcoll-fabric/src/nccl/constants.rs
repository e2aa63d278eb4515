//! The constants of one version on one generation of GPUs, from `versions.toml`.
//!
//! An era of the table has the values that changed. [`VersionConstants`] has the newest value of every constant up to a version:
//! its fields belong to an era, and a method reads the fields that depend on the generation.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::names::{AlgoRule, NcclAlgorithm, Protocol, TreeChunks};
use super::send_rules::SendRules;
use crate::error::{Error, Result};
use crate::hardware::gpus::Gpu;

/// One value per protocol: `[ll, ll128, simple]`.
type PerProtocol = [f64; 3];
/// Values of the algorithms that a version has.
type PerAlgorithm = BTreeMap<NcclAlgorithm, PerProtocol>;
/// Values from a compute capability on: for one node, two nodes, and more.
type PerNodes = Vec<(u32, f64, f64, f64)>;

/// The kind of a hop, as the table of latencies has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hop {
    Nvlink,
    Pcie,
    Network,
}

/// The rule for the bandwidth of NVLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum NvlsBandwidth {
    /// There is no NVLS.
    None,
    /// The bandwidth of the rings, times a part.
    Ring,
    /// The bandwidth of the graph, times a part.
    Graph,
    /// The lower of the bandwidths inside and between nodes, times 5/6.
    Narrower,
    /// As `Narrower`, without 5/6 for all_gather and reduce_scatter.
    NarrowerUnscaled,
    /// As `NarrowerUnscaled`, and all_gather and reduce_scatter leave out a GPU's own part.
    NarrowerHalves,
    /// Twice the bandwidth inside a node, times an efficiency of the generation.
    Efficiency,
}

/// The condition for LL128, which needs stores of 128 bytes that arrive whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum Ll128 {
    #[serde(rename = "nvlink_70_80")]
    Nvlink7080,
    #[serde(rename = "nvlink_70_80_90")]
    Nvlink708090,
    #[serde(rename = "nvb_70_80_90")]
    Nvb708090,
    #[serde(rename = "nvb_70_to_120")]
    Nvb70To120,
    #[serde(rename = "nvb_70")]
    Nvb70,
}

/// The rule by which a fast channel becomes two of half its speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Duplicate {
    /// After speeds were raised; rings are never raised.
    AllLast,
    /// After speeds were raised, from 25 GB/s on up to compute capability 8.0, from 50 GB/s on up to 9.0, and never after.
    ByAgeLast,
    /// After speeds were raised, except more than four channels below 50 GB/s after 8.0.
    Last,
    /// Before, with that exception.
    First,
}

/// The network cards by which a channel may leave a node, if that is faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum NicCrossing {
    /// The card by which it came.
    #[default]
    Never,
    /// Any card.
    Any,
    /// Any card, and every second channel takes the way of the one before it in the other direction.
    Alternating,
    /// Rings alternate; trees take any card.
    AlternatingRings,
}

/// The way in which the search counts the link from a GPU to the processor of its own package (C2C).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum C2cUse {
    /// It is not known: the GPU hangs at PCIe.
    Pcie,
    /// A path over it to a network card is one through the processor.
    Link,
    /// Such a path has a class of its own.
    OwnClass,
    /// Other GPUs send over it too (PXN).
    Relay,
}

/// How the model computes times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Formulas {
    /// One function for all algorithms.
    OneForAll,
    /// A function for each algorithm: two nodes count what passes between nodes; broadcast and reduce have the hops of a node on
    /// any nodes; gathers by NVLS are divided by their steps; narrow rings and others have the same number of threads.
    ByAlgorithm,
}

/// The bytes at which the plateau of a ring over several nodes begins: one of both is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plateau {
    pub(super) per_rank_bytes: u64,
    pub(super) per_channel_bytes: u64,
}

/// The make of a processor; Intel's by generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Processor {
    /// Before Skylake.
    Broadwell,
    /// Cascade Lake and Ice Lake, too.
    Skylake,
    SapphireRapids,
    EmeraldRapids,
    Amd,
    Arm,
    /// POWER9.
    Power,
    Unknown,
}

impl Processor {
    pub(super) fn is_intel(self) -> bool {
        matches!(self, Self::Broadwell | Self::Skylake | Self::SapphireRapids | Self::EmeraldRapids)
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct PcieLane {
    lane_gbps: f64,
    nccl_gbps: f64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct SocketMedium {
    medium: String,
    processor: Processor,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VersionsFile {
    era: Vec<toml::Table>,
    pcie: Vec<PcieLane>,
    socket: Vec<SocketMedium>,
}

static TABLE: LazyLock<VersionsFile> =
    LazyLock::new(|| toml::from_str(include_str!("versions.toml")).expect("a test reads the table that is shipped"));

/// For each era, its values over those of the eras before it. The first era has every value.
static ERAS: LazyLock<Vec<VersionConstants>> = LazyLock::new(|| {
    let mut all = toml::Table::new();
    let sum = |era: &toml::Table| {
        all.remove("read_as");
        all.extend(era.clone());
        all.clone().try_into().expect("a test reads the table that is shipped")
    };
    TABLE.era.iter().map(sum).collect()
});

/// All constants of a version for one generation of GPUs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VersionConstants {
    version: String,
    pub(super) tag: String,
    /// The tag that was read, where it is not the version's.
    read_as: Option<String>,
    /// Compute capability times ten: of the GPU, not of the table.
    #[serde(skip)]
    pub(super) sm: u32,
    base_us: PerAlgorithm,
    hop_nvlink_us: PerAlgorithm,
    hop_pcie_us: PerAlgorithm,
    hop_network_us: PerAlgorithm,
    ll_gbps: PerNodes,
    ring_ll128_gbps: PerNodes,
    tree_ll128_gbps: PerNodes,
    tree_gbps: PerNodes,
    #[serde(default)]
    nvls_tree_gbps: PerNodes,
    ring_ll128_of_gbps: BTreeMap<String, f64>,
    sm80_bus_gbps: f64,
    sm90_bus_gbps: f64,
    pub(super) ring_ll_part: f64,
    pub(super) ring_ll_alone_part: f64,
    pub(super) ring_ll128_part: f64,
    pub(super) ring_ll128_one_gpu_part: f64,
    pub(super) tree_part: f64,
    pub(super) tree_ll_part: f64,
    pub(super) tree_ll128_one_node_part: f64,
    pub(super) tree_ll128_part: f64,
    pub(super) simple_tree_part: f64,
    pub(super) pat_part: f64,
    pub(super) ll_hop_several_nodes_part: f64,
    pub(super) extra_network_steps: u32,
    pub(super) post_us: f64,
    pub(super) post_amd_us: f64,
    plateau_part: Vec<(u32, f64)>,
    pub(super) plateau: Plateau,
    pub(super) one_gpu_takes_tree_network: bool,
    pub(super) nvls: NvlsBandwidth,
    pub(super) nvls_graph_part: f64,
    pub(super) nvls_heads: usize,
    nvls_part: Vec<(u32, f64)>,
    nvls_channels: Vec<(u32, u32, u32, u32)>,
    pub(super) nvls_tree_chunks: TreeChunks,
    pub(super) sends: SendRules,
    nvls_tree_size_part_from_sm: Option<u32>,
    pub(super) ll128: Ll128,
    pub(super) max_channels: usize,
    /// Whether each channel fetches its work from host memory.
    pub(super) work_in_host_memory: bool,
    pub(super) p2p_over_intel_part: f64,
    pub(super) duplicate: Duplicate,
    pub(super) crossing: NicCrossing,
    /// The part by which a graph that crosses must be faster.
    pub(super) crossing_price: f64,
    pub(super) c2c: C2cUse,
    pub(super) algo_rule: AlgoRule,
    pub(super) formulas: Formulas,
    nvlink_gbps: Vec<(u32, f64)>,
    socket_gbps: BTreeMap<Processor, f64>,
    node_speeds_gbps: Vec<(u32, Vec<f64>)>,
    network_speeds_gbps: Vec<(u32, Vec<f64>)>,
    tree_ll_size_part: Vec<f64>,
    tree_ll128_size_part: Vec<f64>,
    tree_simple_size_part: Vec<f64>,
}

/// Cited (src/graph/tuning.cc, all versions): the entries of the list of factors that trees use.
const TREE_SIZES: usize = 23;

/// Returns the last row that begins at or below `sm`.
fn from_sm<T>(rows: &[T], sm: u32, begins: impl Fn(&T) -> u32) -> Option<&T> {
    rows.iter().rev().find(|row| begins(row) <= sm)
}

/// Returns the versions there are.
pub(super) fn versions() -> Vec<&'static str> {
    ERAS.iter().map(|era| era.version.as_str()).collect()
}

/// Returns the newest version whose own text was read.
pub(super) fn newest() -> &'static str {
    ERAS.iter().rfind(|era| era.read_as.is_none()).map_or("", |era| &era.version)
}

/// Returns the numbers of a version, as `2.27.7`, `v2.27.7-1` or `2.27`.
pub(super) fn numbers(version: &str) -> Option<Vec<u32>> {
    let stem = version.trim_start_matches('v').split(['-', '+']).next()?;
    let numbers: Option<Vec<u32>> = stem.split('.').map(|part| part.parse().ok()).collect();
    numbers.filter(|numbers| numbers.len() >= 2)
}

impl VersionConstants {
    /// Returns the constants of a version, as `2.27.7`, `v2.27.7-1` or `2.27`, which means the last of 2.27.
    ///
    /// # Errors
    /// [`Error::Unknown`] for a text that is no version, and for a version before the first era.
    pub(super) fn of(version: &str, gpu: &Gpu, fabric: &str) -> Result<Self> {
        let unknown =
            || Error::Unknown { kind: "NCCL version", name: version.to_owned(), known: versions().join(", ") };
        let mut asked = numbers(version).ok_or_else(unknown)?;
        if asked.len() == 2 {
            asked.push(u32::MAX);
        }
        let began = |era: &Self| numbers(&era.version).expect("a test reads the versions of the table");
        let older = ERAS.iter().filter(|era| began(era) <= asked).count();
        let is_of_minor = |era: &&Self| began(era)[..2] == asked[..2];
        // A feature may begin with a minor version: a version before the first era of its minor is like that era.
        let newest = match ERAS[..older].last() {
            Some(era) if is_of_minor(&era) => Some(era),
            newest => ERAS.get(older).filter(is_of_minor).or(newest),
        };
        let newest = newest.ok_or_else(unknown)?;
        let sm = gpu.sm.ok_or_else(|| Error::Unable {
            fabric: fabric.to_owned(),
            message: format!("NCCL does not run on {}: its model is of NVIDIA's GPUs", gpu.title),
        })?;
        Ok(Self { sm, ..newest.clone() })
    }

    /// Returns the value of the last row that begins at or below the GPU's compute capability; zero if none does.
    fn at_sm(&self, rows: &[(u32, f64)]) -> f64 {
        from_sm(rows, self.sm, |row| row.0).map_or(0.0, |row| row.1)
    }

    /// Returns the largest bandwidth of all channels together on a GPU of this generation; infinite if the version has no such
    /// bound.
    pub(super) fn bus_bound_gbps(&self) -> f64 {
        let bound = match self.sm {
            80 => self.sm80_bus_gbps,
            90 => self.sm90_bus_gbps,
            _ => 0.0,
        };
        if bound > 0.0 {
            bound
        } else {
            f64::INFINITY
        }
    }

    /// Returns the factor of the latency of a large all_reduce on a ring over several nodes.
    pub(super) fn plateau_part(&self) -> f64 {
        self.at_sm(&self.plateau_part)
    }

    /// Returns the efficiency of NVLS on the generation.
    pub(super) fn nvls_part(&self) -> f64 {
        self.at_sm(&self.nvls_part)
    }

    /// Returns the GB/s of an NVLink.
    pub(super) fn nvlink_gbps(&self) -> f64 {
        self.at_sm(&self.nvlink_gbps)
    }

    /// Says whether the bandwidth of an NVLS tree depends on the size.
    pub(super) fn has_nvls_tree_size_part(&self) -> bool {
        self.nvls_tree_size_part_from_sm.is_some_and(|from| self.sm >= from)
    }

    /// Returns the speeds of channels that the search tries, the greatest first.
    pub(super) fn speeds_gbps(&self, over_network: bool) -> &[f64] {
        let rows = if over_network { &self.network_speeds_gbps } else { &self.node_speeds_gbps };
        &from_sm(rows, self.sm, |row| row.0).expect("a list begins at 0").1
    }

    /// Returns the fixed latency in microseconds; none if the version lacks the algorithm.
    pub(super) fn base_us(&self, algorithm: NcclAlgorithm, protocol: Protocol) -> Option<f64> {
        self.base_us.get(&algorithm).map(|us| us[protocol as usize])
    }

    /// Returns the latency of a hop in microseconds.
    pub(super) fn hop_us(&self, hop: Hop, algorithm: NcclAlgorithm, protocol: Protocol) -> f64 {
        let hops = match hop {
            Hop::Nvlink => &self.hop_nvlink_us,
            Hop::Pcie => &self.hop_pcie_us,
            Hop::Network => &self.hop_network_us,
        };
        hops.get(&algorithm).map_or(0.0, |us| us[protocol as usize])
    }

    fn by_nodes(rows: &PerNodes, sm: u32, nodes: u32) -> Option<f64> {
        let (_, one, two, more) = *from_sm(rows, sm, |row| row.0)?;
        Some(if nodes <= 1 {
            one
        } else if nodes == 2 {
            two
        } else {
            more
        })
    }

    /// Returns the largest bandwidth of all channels with LL, in GB/s: by GPU on one node, by processor on several.
    pub(super) fn ll_gbps(&self, nodes: u32, processor: Processor) -> f64 {
        let row = match (nodes, processor) {
            (0..=1, _) => self.sm,
            (_, Processor::Amd) => 80,
            _ => 70,
        };
        Self::by_nodes(&self.ll_gbps, row, nodes).unwrap_or(self.ll_gbps[0].1)
    }

    /// Returns the largest bandwidth per channel of a ring with LL128.
    pub(super) fn ring_ll128_gbps(&self, collective: &str, nodes: u32) -> f64 {
        let general = || Self::by_nodes(&self.ring_ll128_gbps, self.sm, nodes).unwrap_or(0.0);
        self.ring_ll128_of_gbps.get(collective).copied().unwrap_or_else(general)
    }

    /// Returns the largest bandwidth per channel of a tree with LL128.
    pub(super) fn tree_ll128_gbps(&self, nodes: u32) -> f64 {
        Self::by_nodes(&self.tree_ll128_gbps, self.sm, nodes).unwrap_or(0.0)
    }

    /// Returns the largest bandwidth per channel of a tree; GPUs older than the first row use the first row.
    pub(super) fn tree_gbps(&self, nodes: u32) -> f64 {
        Self::by_nodes(&self.tree_gbps, self.sm.max(self.tree_gbps[0].0), nodes).unwrap_or(0.0)
    }

    /// Returns the largest bandwidth per channel of an NVLS tree; none if the version has no such bound.
    pub(super) fn nvls_tree_gbps(&self, nodes: u32) -> Option<f64> {
        Self::by_nodes(&self.nvls_tree_gbps, self.sm, nodes)
    }

    /// Returns the number of channels of NVLS.
    pub(super) fn nvls_channels(&self, nodes: u32) -> u32 {
        from_sm(&self.nvls_channels, self.sm, |row| row.0).map_or(0, |row| if nodes <= 1 { row.1 } else { row.2 })
    }

    /// Returns the part of its bandwidth that a tree keeps at a size. Trees stop at the 23rd entry of the list, NVLS trees
    /// go to its end.
    pub(super) fn tree_size_part(&self, algorithm: NcclAlgorithm, protocol: Protocol, nbytes: u64) -> f64 {
        let parts = match protocol {
            Protocol::Ll => &self.tree_ll_size_part,
            Protocol::Ll128 => &self.tree_ll128_size_part,
            Protocol::Simple => &self.tree_simple_size_part,
        };
        let entries = if algorithm == NcclAlgorithm::Tree { parts.len().min(TREE_SIZES) } else { parts.len() };
        let power = (nbytes >> 6).checked_ilog2();
        power.and_then(|power| parts[..entries].get(power as usize).copied()).unwrap_or(1.0)
    }

    /// Returns the GB/s between sockets; none for an unknown processor.
    pub(super) fn socket_gbps(&self, processor: Processor) -> Option<f64> {
        self.socket_gbps.get(&processor).copied()
    }
}

/// Returns the GB/s that NCCL assumes for a PCIe lane with line rate `lane_gbps`; none if no generation is within 5 %.
pub(super) fn pcie_lane_gbps(lane_gbps: f64) -> Option<f64> {
    let is_near = |row: &&PcieLane| lane_gbps > row.lane_gbps * 0.95 && lane_gbps < row.lane_gbps * 1.05;
    TABLE.pcie.iter().find(is_near).map(|row| row.nccl_gbps)
}

/// Returns the make of processor that a medium between sockets implies.
pub(super) fn processor_of(medium: &str) -> Option<Processor> {
    TABLE.socket.iter().find(|row| row.medium == medium).map(|row| row.processor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::gpus::all;

    #[test]
    fn every_era_reads_and_they_are_in_order() {
        let began: Vec<_> = ERAS.iter().map(|era| numbers(&era.version).unwrap()).collect();
        assert!(began.windows(2).all(|pair| pair[0] < pair[1]));
        for era in ERAS.iter() {
            assert_eq!(era.tag, format!("v{}-1", era.version));
            for gpu in all().iter().filter(|gpu| gpu.sm.is_some()) {
                let constants = VersionConstants::of(&era.version, gpu, "a test").unwrap();
                assert_eq!(constants.tag, era.tag);
                let falls = |speeds: &[f64]| speeds.windows(2).all(|pair| pair[0] > pair[1]);
                assert!(falls(constants.speeds_gbps(false)) && falls(constants.speeds_gbps(true)), "{}", era.version);
                let parts = [&era.tree_ll_size_part, &era.tree_ll128_size_part, &era.tree_simple_size_part];
                assert!(parts.iter().all(|parts| (23..=24).contains(&parts.len())));
            }
        }
    }

    #[test]
    fn a_version_without_an_era_is_like_the_nearest_of_its_minor_version() {
        let gpu = all().iter().find(|gpu| gpu.name == "h100-sxm").unwrap();
        for (asked, tag) in [
            ("2.27.7", "v2.27.7-1"),
            ("v2.27.7-1", "v2.27.7-1"),
            ("2.28.4+cuda12.9", "v2.28.3-1"),
            ("2.27", "v2.27.7-1"),
            ("2.18.2", "v2.18.1-1"),
            ("2.16.2", "v2.16.5-1"), // no older era of 2.16: not across the border to 2.15
            ("2.28.0", "v2.28.3-1"),
            ("2.13.4", "v2.12.12-1"), // 2.13 changed nothing
            ("2.19.4", "v2.19.4-1"),
            ("2.30", "v2.30.7-1"),
            ("2.31", "v2.31.2-1"),
            ("2.31.0", "v2.31.2-1"),
            ("3.0.0", "v2.31.2-1"),
        ] {
            assert_eq!(VersionConstants::of(asked, gpu, "a test").unwrap().tag, tag, "{asked}");
        }
        for wrong in ["2.7.8", "", "two", "2", "2.x", "1.0"] {
            assert!(matches!(VersionConstants::of(wrong, gpu, "a test"), Err(Error::Unknown { .. })), "{wrong}");
        }
    }
}

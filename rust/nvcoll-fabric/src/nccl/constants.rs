//! The constants of one version on one generation of GPUs, from `versions.toml`.
//!
//! An era of the table has the values that changed. [`VersionConstants`] has the newest value of every constant up to a version.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

use super::names::{AlgoRule, NcclAlgorithm, Protocol, TreeChunks};
use super::send_rules::SendRules;
use crate::error::{Error, Result};
use crate::hardware::gpus::Gpu;

/// One value per protocol: `[ll, ll128, simple]`.
type PerProtocol = [f64; 3];
/// Values from a compute capability on: for one node, two nodes, and more.
type PerNodes = Vec<(u32, f64, f64, f64)>;

/// The kind of a hop, as the table of latencies has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum NicCrossing {
    /// The card by which it came.
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

/// The bytes at which the plateau of a ring over several nodes begins: one of both is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plateau {
    pub(super) per_rank_bytes: u64,
    pub(super) per_channel_bytes: u64,
}

/// The make of a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Processor {
    /// Intel before Skylake.
    Broadwell,
    /// Intel Skylake, Cascade Lake, Ice Lake.
    Skylake,
    /// Intel Sapphire Rapids.
    SapphireRapids,
    /// Intel Emerald Rapids.
    EmeraldRapids,
    /// AMD.
    Amd,
    /// Arm.
    Arm,
    /// POWER9.
    Power,
    /// Unknown.
    Unknown,
}

impl Processor {
    pub(super) fn is_intel(self) -> bool {
        matches!(self, Self::Broadwell | Self::Skylake | Self::SapphireRapids | Self::EmeraldRapids)
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct EraHops {
    nvlink: Option<BTreeMap<NcclAlgorithm, PerProtocol>>,
    pcie: Option<BTreeMap<NcclAlgorithm, PerProtocol>>,
    network: Option<BTreeMap<NcclAlgorithm, PerProtocol>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Maxima {
    ll: Option<PerNodes>,
    ring_ll128: Option<PerNodes>,
    tree_ll128: Option<PerNodes>,
    tree: Option<PerNodes>,
    nvls_tree: Option<PerNodes>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Speeds {
    node: Option<Vec<(u32, Vec<f64>)>>,
    network: Option<Vec<(u32, Vec<f64>)>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct SizeParts {
    ll: Option<Vec<f64>>,
    ll128: Option<Vec<f64>>,
    simple: Option<Vec<f64>>,
}

/// The values that a version changed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Era {
    version: String,
    tag: String,
    base_us: Option<BTreeMap<NcclAlgorithm, PerProtocol>>,
    hop_us: Option<EraHops>,
    maximum_gbps: Option<Maxima>,
    ring_ll128_of_gbps: Option<BTreeMap<String, f64>>,
    sm80_bus_gbps: Option<f64>,
    sm90_bus_gbps: Option<f64>,
    ring_ll_part: Option<f64>,
    ring_ll_alone_part: Option<f64>,
    ring_ll128_part: Option<f64>,
    ring_ll128_one_gpu_part: Option<f64>,
    tree_part: Option<f64>,
    tree_ll_part: Option<f64>,
    tree_ll128_one_node_part: Option<f64>,
    tree_ll128_part: Option<f64>,
    simple_tree_part: Option<f64>,
    pat_part: Option<f64>,
    ll_hop_several_nodes_part: Option<f64>,
    extra_network_steps: Option<u32>,
    post_us: Option<f64>,
    post_amd_us: Option<f64>,
    plateau_part: Option<Vec<(u32, f64)>>,
    plateau: Option<Plateau>,
    one_gpu_takes_tree_network: Option<bool>,
    nvls: Option<NvlsBandwidth>,
    nvls_graph_part: Option<f64>,
    nvls_heads: Option<usize>,
    nvls_part: Option<Vec<(u32, f64)>>,
    nvls_channels: Option<Vec<(u32, u32, u32, u32)>>,
    nvls_tree_chunks: Option<TreeChunks>,
    sends: Option<SendRules>,
    nvls_tree_size_part_from_sm: Option<u32>,
    ll128: Option<Ll128>,
    max_channels: Option<usize>,
    p2p_over_intel_part: Option<f64>,
    duplicate: Option<Duplicate>,
    crossing: Option<NicCrossing>,
    crossing_price: Option<f64>,
    c2c: Option<C2cUse>,
    algo_rule: Option<AlgoRule>,
    nvlink_gbps: Option<Vec<(u32, f64)>>,
    socket_gbps: Option<BTreeMap<Processor, f64>>,
    speeds_gbps: Option<Speeds>,
    tree_size_part: Option<SizeParts>,
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

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct VersionsFile {
    era: Vec<Era>,
    pcie: Vec<PcieLane>,
    socket: Vec<SocketMedium>,
}

fn table() -> &'static VersionsFile {
    static TABLE: OnceLock<VersionsFile> = OnceLock::new();
    TABLE.get_or_init(|| toml::from_str(include_str!("versions.toml")).expect("a test reads the table that is shipped"))
}

/// All constants of a version for one generation of GPUs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct VersionConstants {
    pub(super) tag: &'static str,
    /// Compute capability times ten.
    pub(super) sm: u32,
    base_us: BTreeMap<NcclAlgorithm, PerProtocol>,
    hop_us: [BTreeMap<NcclAlgorithm, PerProtocol>; 3],
    ll: PerNodes,
    ring_ll128: PerNodes,
    tree_ll128: PerNodes,
    tree: PerNodes,
    nvls_tree: PerNodes,
    ring_ll128_of: BTreeMap<String, f64>,
    /// The largest bandwidth of all channels together on a GPU of this generation; none if the version has no such bound.
    pub(super) bus_bound_gbps: Option<f64>,
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
    pub(super) plateau_part: f64,
    pub(super) plateau: Plateau,
    pub(super) one_gpu_takes_tree_network: bool,
    pub(super) nvls: NvlsBandwidth,
    pub(super) nvls_graph_part: f64,
    pub(super) nvls_heads: usize,
    pub(super) nvls_part: f64,
    nvls_channels: Vec<(u32, u32, u32, u32)>,
    pub(super) nvls_tree_chunks: TreeChunks,
    pub(super) sends: SendRules,
    pub(super) nvls_tree_size_part: bool,
    pub(super) ll128: Ll128,
    pub(super) max_channels: usize,
    pub(super) p2p_over_intel_part: f64,
    pub(super) duplicate: Duplicate,
    pub(super) crossing: NicCrossing,
    /// The part by which a graph that crosses must be faster.
    pub(super) crossing_price: f64,
    pub(super) c2c: C2cUse,
    pub(super) algo_rule: AlgoRule,
    pub(super) nvlink_gbps: f64,
    socket_gbps: BTreeMap<Processor, f64>,
    pub(super) speeds_node: Vec<f64>,
    pub(super) speeds_network: Vec<f64>,
    tree_size_part: [Vec<f64>; 3],
}

/// Cited (src/graph/tuning.cc, all versions): the entries of the list of factors that trees use.
const TREE_SIZES: usize = 23;

/// Returns the last row that begins at or below `sm`.
fn from_sm<T>(rows: &[T], sm: u32, begins: impl Fn(&T) -> u32) -> Option<&T> {
    rows.iter().rev().find(|row| begins(row) <= sm)
}

/// Returns the versions there are.
pub(super) fn versions() -> Vec<&'static str> {
    table().era.iter().map(|era| era.version.as_str()).collect()
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
        let eras = &table().era;
        let began = |era: &Era| numbers(&era.version).expect("a test reads the versions of the table");
        let older = eras.iter().filter(|era| began(era) <= asked).count();
        let is_of_minor = |era: &&Era| began(era)[..2] == asked[..2];
        // A feature may begin with a minor version: a version before the first era of its minor is like that era.
        let count = match eras[..older].last().filter(is_of_minor) {
            None if eras.get(older).is_some_and(|era| is_of_minor(&era)) => older + 1,
            _ => older,
        };
        let eras = eras[..count].split_last().ok_or_else(unknown)?;
        let sm = gpu.sm.ok_or_else(|| Error::Unable {
            fabric: fabric.to_owned(),
            message: format!("NCCL does not run on {}: its model is of NVIDIA's GPUs", gpu.title),
        })?;
        Ok(Self::sum(eras.1, eras.0, sm))
    }

    fn sum(older: &'static [Era], newest: &'static Era, sm: u32) -> Self {
        /// Returns the newest value of the eras.
        macro_rules! last {
            ($($field:ident).+) => {
                older.iter().chain([newest]).rev().find_map(|era| last!(@of era, $($field).+))
            };
            (@of $era:ident, $field:ident) => { $era.$field.clone() };
            (@of $era:ident, $group:ident . $field:ident) => { $era.$group.as_ref().and_then(|g| g.$field.clone()) };
        }
        let whole = "the first era names everything, as a test reads";
        let at = |rows: Option<Vec<(u32, f64)>>| {
            rows.and_then(|rows| from_sm(&rows, sm, |row| row.0).map(|row| row.1)).unwrap_or(0.0)
        };
        let speeds = |rows: Option<Vec<(u32, Vec<f64>)>>| {
            from_sm(&rows.expect(whole), sm, |row| row.0).expect("a list begins at 0").1.clone()
        };
        Self {
            tag: &newest.tag,
            sm,
            base_us: last!(base_us).expect(whole),
            hop_us: [
                last!(hop_us.nvlink).expect(whole),
                last!(hop_us.pcie).expect(whole),
                last!(hop_us.network).expect(whole),
            ],
            ll: last!(maximum_gbps.ll).expect(whole),
            ring_ll128: last!(maximum_gbps.ring_ll128).expect(whole),
            tree_ll128: last!(maximum_gbps.tree_ll128).expect(whole),
            tree: last!(maximum_gbps.tree).expect(whole),
            nvls_tree: last!(maximum_gbps.nvls_tree).unwrap_or_default(),
            ring_ll128_of: last!(ring_ll128_of_gbps).expect(whole),
            bus_bound_gbps: match sm {
                80 => last!(sm80_bus_gbps),
                90 => last!(sm90_bus_gbps),
                _ => None,
            }
            .filter(|&bound| bound > 0.0),
            ring_ll_part: last!(ring_ll_part).expect(whole),
            ring_ll_alone_part: last!(ring_ll_alone_part).expect(whole),
            ring_ll128_part: last!(ring_ll128_part).expect(whole),
            ring_ll128_one_gpu_part: last!(ring_ll128_one_gpu_part).expect(whole),
            tree_part: last!(tree_part).expect(whole),
            tree_ll_part: last!(tree_ll_part).expect(whole),
            tree_ll128_one_node_part: last!(tree_ll128_one_node_part).expect(whole),
            tree_ll128_part: last!(tree_ll128_part).expect(whole),
            simple_tree_part: last!(simple_tree_part).expect(whole),
            pat_part: last!(pat_part).expect(whole),
            ll_hop_several_nodes_part: last!(ll_hop_several_nodes_part).expect(whole),
            extra_network_steps: last!(extra_network_steps).expect(whole),
            post_us: last!(post_us).expect(whole),
            post_amd_us: last!(post_amd_us).expect(whole),
            plateau_part: at(last!(plateau_part)),
            plateau: last!(plateau).expect(whole),
            one_gpu_takes_tree_network: last!(one_gpu_takes_tree_network).expect(whole),
            nvls: last!(nvls).expect(whole),
            nvls_graph_part: last!(nvls_graph_part).expect(whole),
            nvls_heads: last!(nvls_heads).expect(whole),
            nvls_part: at(last!(nvls_part)),
            nvls_channels: last!(nvls_channels).expect(whole),
            nvls_tree_chunks: last!(nvls_tree_chunks).expect(whole),
            sends: last!(sends).expect(whole),
            nvls_tree_size_part: last!(nvls_tree_size_part_from_sm).is_some_and(|from| sm >= from),
            ll128: last!(ll128).expect(whole),
            max_channels: last!(max_channels).expect(whole),
            p2p_over_intel_part: last!(p2p_over_intel_part).expect(whole),
            duplicate: last!(duplicate).expect(whole),
            crossing: last!(crossing).expect(whole),
            crossing_price: last!(crossing_price).expect(whole),
            c2c: last!(c2c).expect(whole),
            algo_rule: last!(algo_rule).expect(whole),
            nvlink_gbps: at(last!(nvlink_gbps)),
            socket_gbps: last!(socket_gbps).expect(whole),
            speeds_node: speeds(last!(speeds_gbps.node)),
            speeds_network: speeds(last!(speeds_gbps.network)),
            tree_size_part: [
                last!(tree_size_part.ll).expect(whole),
                last!(tree_size_part.ll128).expect(whole),
                last!(tree_size_part.simple).expect(whole),
            ],
        }
    }

    /// Returns the fixed latency in microseconds; none if the version lacks the algorithm.
    pub(super) fn base_us(&self, algorithm: NcclAlgorithm, protocol: Protocol) -> Option<f64> {
        self.base_us.get(&algorithm).map(|us| us[protocol as usize])
    }

    /// Returns the latency of a hop in microseconds.
    pub(super) fn hop_us(&self, hop: Hop, algorithm: NcclAlgorithm, protocol: Protocol) -> f64 {
        self.hop_us[hop as usize].get(&algorithm).map_or(0.0, |us| us[protocol as usize])
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
        Self::by_nodes(&self.ll, row, nodes).unwrap_or(self.ll[0].1)
    }

    /// Returns the largest bandwidth per channel of a ring with LL128.
    pub(super) fn ring_ll128_gbps(&self, collective: &str, nodes: u32) -> f64 {
        let general = || Self::by_nodes(&self.ring_ll128, self.sm, nodes).unwrap_or(0.0);
        self.ring_ll128_of.get(collective).copied().unwrap_or_else(general)
    }

    /// Returns the largest bandwidth per channel of a tree with LL128.
    pub(super) fn tree_ll128_gbps(&self, nodes: u32) -> f64 {
        Self::by_nodes(&self.tree_ll128, self.sm, nodes).unwrap_or(0.0)
    }

    /// Returns the largest bandwidth per channel of a tree; GPUs older than the first row have that of the first row.
    pub(super) fn tree_gbps(&self, nodes: u32) -> f64 {
        Self::by_nodes(&self.tree, self.sm.max(self.tree[0].0), nodes).unwrap_or(0.0)
    }

    /// Returns the largest bandwidth per channel of an NVLS tree; none if the version has no such bound.
    pub(super) fn nvls_tree_gbps(&self, nodes: u32) -> Option<f64> {
        Self::by_nodes(&self.nvls_tree, self.sm, nodes)
    }

    /// Returns the number of channels of NVLS.
    pub(super) fn nvls_channels(&self, nodes: u32) -> u32 {
        from_sm(&self.nvls_channels, self.sm, |row| row.0).map_or(0, |row| if nodes <= 1 { row.1 } else { row.2 })
    }

    /// Returns the part of its bandwidth that a tree keeps at a size. Trees stop at the 23rd entry of the list, NVLS trees
    /// go to its end.
    pub(super) fn tree_size_part(&self, algorithm: NcclAlgorithm, protocol: Protocol, nbytes: u64) -> f64 {
        let parts = &self.tree_size_part[protocol as usize];
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
    table().pcie.iter().find(is_near).map(|row| row.nccl_gbps)
}

/// Returns the make of processor that a medium between sockets implies.
pub(super) fn processor_of(medium: &str) -> Option<Processor> {
    table().socket.iter().find(|row| row.medium == medium).map(|row| row.processor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::gpus::all;

    #[test]
    fn every_era_reads_and_they_are_in_order() {
        let began: Vec<_> = table().era.iter().map(|era| numbers(&era.version).unwrap()).collect();
        assert!(began.windows(2).all(|pair| pair[0] < pair[1]));
        for era in &table().era {
            assert_eq!(era.tag, format!("v{}-1", era.version));
            for gpu in all().iter().filter(|gpu| gpu.sm.is_some()) {
                let constants = VersionConstants::of(&era.version, gpu, "a test").unwrap();
                assert_eq!(constants.tag, era.tag);
                let falls = |speeds: &[f64]| speeds.windows(2).all(|pair| pair[0] > pair[1]);
                assert!(falls(&constants.speeds_node) && falls(&constants.speeds_network), "{}", era.version);
                assert!(constants.tree_size_part.iter().all(|parts| (23..=24).contains(&parts.len())));
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
            ("3.0.0", "v2.30.7-1"),
        ] {
            assert_eq!(VersionConstants::of(asked, gpu, "a test").unwrap().tag, tag, "{asked}");
        }
        for wrong in ["2.7.8", "", "two", "2", "2.x", "1.0"] {
            assert!(matches!(VersionConstants::of(wrong, gpu, "a test"), Err(Error::Unknown { .. })), "{wrong}");
        }
    }
}

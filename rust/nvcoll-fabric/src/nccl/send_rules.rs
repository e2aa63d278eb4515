//! The rules of sends and receives of a version of NCCL, as `versions.toml` has them.

use serde::Deserialize;

/// The rules of a version. Lengths are in chunks: on one node, and on several.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SendRules {
    pub(super) network: NetworkChannels,
    pub(super) spread: SendSpread,
    pub(super) ll: SmallSends,
    pub(super) least_part: (f64, f64),
    pub(super) longest_part: (f64, f64),
    /// KiB of a chunk over NVLink, over PCIe, and on several nodes.
    pub(super) chunk_kib: (u64, u64, u64),
    /// Whether the chunks of several nodes are twice as long with Arm processors, from compute capability 10.0 on.
    pub(super) is_long_on_arm: bool,
}

/// The channels to a peer on another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum NetworkChannels {
    /// Two.
    Two,
    /// Two; one if all ranks would have more than four times the total; at least one for each network card of a GPU.
    TwoOrFewer,
    /// By the rate of a GPU's cards; fewer if all ranks find no room.
    ByRate,
}

/// Where a message begins with fewer channels, so that all ranks find room in the total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SendSpread {
    /// On one node; the channels per peer are bounded there too, by four times the total.
    OneNode,
    /// Everywhere.
    Everywhere,
}

/// The messages that are sent with LL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SmallSends {
    /// None.
    Never,
    /// Those whose parts are short enough.
    Part,
    /// Those that the channels per peer could carry so.
    MostChannels,
    /// Those that their channels carry so.
    OwnChannels,
}

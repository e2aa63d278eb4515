//! The channels and chunks of NVLS and of its tree over nodes.
//!
//! ```text
//! operations   channels x GPUs of a node: chunks in the switch at a time
//! NVLS         the largest chunk; 64 KiB if bytes < 64 x operations x chunk; then 32 KiB if < 8 x; then 16 KiB if < 2 x
//! NVLS tree    the same with 256 KiB and 32 x, 128 KiB and 16 x, 64 KiB and 4 x, 32 KiB and 1 x
//! ```
//!
//! The largest chunk is 128 KiB (Blackwell on several nodes: up to 256 KiB), or `NCCL_NVLS_CHUNKSIZE`, which the plugin of a
//! network may set (`hardware/media.toml`). That of a tree depends on version, nodes and network cards.
//! Source: NCCL src/enqueue.cc and src/transport/nvls.cc at the tags of `versions.toml`.

use super::constants::VersionConstants;
use super::names::{PathClass, TreeChunks};
use super::node::NodeTopology;
use super::settings::NcclSettings;

const KIB: u64 = 1 << 10;

/// The channels and the chunks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NvlsChunks {
    /// The number of channels.
    pub(crate) channels: u32,
    /// That number without settings.
    pub(crate) own_channels: u32,
    /// The GPUs of a node.
    gpus: u32,
    longest: u64,
    longest_of_tree: u64,
}

impl NvlsChunks {
    /// Finds the chunks on `nodes` nodes. `to_card` is the path to the cards; `of_plugin` the longest chunk that the network's plugin
    /// sets.
    pub(super) fn of(
        node: &NodeTopology,
        constants: &VersionConstants,
        settings: &NcclSettings,
        nodes: u32,
        to_card: PathClass,
        of_plugin: Option<u64>,
    ) -> Self {
        let (gpus, rule, most_channels) = (node.gpus as u32, constants.nvls_tree_chunks, constants.max_channels as u32);
        let (tuned_channels, tuned, tuned_tree) = match rule {
            TreeChunks::ByCards if constants.sm >= 100 && nodes > 1 => tuned(node, nodes, to_card),
            _ => (None, 128 * KIB, None),
        };
        let longest = settings.nvls_chunk_bytes.or(of_plugin).unwrap_or(tuned);
        let own_channels = tuned_channels.unwrap_or_else(|| constants.nvls_channels(nodes));
        let from_four = |otherwise: u64| if nodes >= 4 { 64 * KIB } else { otherwise };
        let longest_of_tree = match rule {
            TreeChunks::OfBuffers => 512 * KIB,
            TreeChunks::ShortFromFour => from_four(512 * KIB),
            TreeChunks::ByCards => tuned_tree.unwrap_or_else(|| from_four(longest)).min(longest),
        };
        let channels = settings.channels_of_nvls(own_channels, most_channels);
        Self { channels, own_channels, gpus, longest, longest_of_tree }
    }

    /// Returns the number of chunks that are in the switch at a time.
    pub(crate) fn operations(&self) -> u64 {
        u64::from(self.channels) * u64::from(self.gpus)
    }

    /// Returns the bytes of a chunk of NVLS, for a call of `nbytes`.
    pub(crate) fn chunk(&self, nbytes: f64) -> u64 {
        self.shortened(self.longest, nbytes, &[(64, 64 * KIB), (8, 32 * KIB), (2, 16 * KIB)])
    }

    /// Returns the bytes of a chunk of the tree over nodes, for a call of `nbytes`.
    pub(crate) fn chunk_of_tree(&self, nbytes: f64) -> u64 {
        let steps = [(32, 256 * KIB), (16, 128 * KIB), (4, 64 * KIB), (1, 32 * KIB)];
        self.shortened(self.longest_of_tree, nbytes, &steps)
    }

    /// Takes a shorter chunk at each step whose number of operations with the chunk so far is more than the call has.
    fn shortened(&self, longest: u64, nbytes: f64, steps: &[(u64, u64)]) -> u64 {
        steps.iter().fold(longest, |chunk, &(operations, shorter)| {
            let is_few = nbytes < (operations * self.operations() * chunk) as f64;
            if is_few && chunk > shorter {
                shorter
            } else {
                chunk
            }
        })
    }
}

/// Returns the channels, the longest chunk and the longest chunk of a tree, for Blackwell over several nodes.
fn tuned(node: &NodeTopology, nodes: u32, to_card: PathClass) -> (Option<u32>, u64, Option<u64>) {
    let is_near = to_card <= PathClass::Pxb;
    let (gpus, card) = (node.gpus, node.cards.iter().min().map_or(0.0, |&slowest| slowest as f64 / 1000.0));
    if nodes == 2 && card >= 48.0 {
        let is_short = gpus >= 16 || (gpus <= 8 && is_near && card < 96.0);
        return match gpus {
            0..=4 => (Some(32), 256 * KIB, Some(256 * KIB)),
            _ if is_short => (Some(32), 128 * KIB, Some(64 * KIB)),
            _ => (Some(32), 128 * KIB, Some(128 * KIB)),
        };
    }
    match (card, gpus) {
        (96.0.., 0..=8) => (Some(24), 256 * KIB, Some(256 * KIB)),
        (96.0.., 9..32) => (Some(32), 128 * KIB, Some(128 * KIB)),
        (96.0.., _) => (Some(32), 128 * KIB, Some(64 * KIB)),
        (48.0.., _) => (Some(24), 128 * KIB, Some(if is_near { 64 * KIB } else { 128 * KIB })),
        _ => (None, 128 * KIB, None),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Model;
    use super::{NvlsChunks, KIB};
    use crate::machines::preset;

    fn chunks(fabric: &str, version: &str) -> NvlsChunks {
        Model::of(version, &preset(fabric).unwrap()).unwrap().nvls_chunks()
    }

    /// The leaps of `h100_8_dgxc` are at 8 MiB, 64 MiB and 1 GiB.
    #[test]
    fn chunks_leap_where_hopper_shows_it() {
        let chunks = chunks("hgx-h100", "2.27.7");
        let kib = |mib: f64| chunks.chunk(mib * 1024.0 * KIB as f64) / KIB;
        assert_eq!([7.9, 8.0, 63.9, 64.0, 1023.9, 1024.0].map(kib), [16, 32, 32, 64, 64, 128]);
    }

    #[test]
    fn blackwell_has_24_channels_on_a_node_since_2_27_and_32_over_nodes() {
        assert_eq!(chunks("hgx-b200", "2.26.2").channels, 32);
        assert_eq!(chunks("hgx-b200", "2.27.3").channels, 24);
        assert_eq!(chunks("hgx-b200x2+ib-ndr-8", "2.27.3").channels, 32);
    }

    #[test]
    fn the_chunks_of_a_tree_depend_on_the_version_and_the_nodes() {
        let gib = (1u64 << 36) as f64;
        let kib = |fabric: &str, version: &str| chunks(fabric, version).chunk_of_tree(gib) / KIB;
        assert_eq!(kib("hgx-h100x4+ib-ndr-8", "2.18.5"), 512);
        assert_eq!(kib("hgx-h100x4+ib-ndr-8", "2.19.3"), 64);
        assert_eq!(kib("hgx-h100x2+ib-ndr-8", "2.27.7"), 512);
        assert_eq!(kib("hgx-h100x2+ib-ndr-8", "2.30.7"), 128);
        assert_eq!(kib("hgx-b200x2+ib-ndr-8", "2.30.7"), 64);
    }
}

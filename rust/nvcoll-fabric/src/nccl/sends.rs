//! The channels of sends and receives: the number for a message, and its protocol.
//!
//! ```text
//! total       the channels of collectives, up to a power of two
//! per peer    over NVLink 2 x what the path has of one link, over PCIe 2, over the network by the version;
//!             the least over all peers, up to a power of two
//! a message   starts with few enough channels that all ranks fit in the total; doubles them, up to those per peer, while a
//!             part exceeds the largest
//! LL          up to 16 KiB on a channel. From 2.22.3 to 2.28 of all channels per peer, and its parts are counted in steps of LL's
//!             own buffer, later in the buffers of Simple
//! ```
//!
//! The lengths are in chunks, which `NCCL_P2P_NVL_CHUNKSIZE` and its like set. So a send between two of eight GPUs on an NVSwitch
//! has 4 of 32 channels up to 64 MiB, and all of them only above 256 MiB.
//! Source: NCCL src/enqueue.cc, src/graph/paths.cc and src/init.cc at the tags of `versions.toml`; before 2.14 src/group.cc.

use super::constants::{Processor, VersionConstants};
use super::names::{PathClass, Protocol};
use super::node::NodeTopology;
use super::send_rules::{NetworkChannels, SendRules, SendSpread, SmallSends};
use super::settings::NcclSettings;

/// Cited: the bytes of a channel up to which a message is sent with LL (`NCCL_P2P_LL_THRESHOLD`).
const LL_BYTES: u64 = 16 << 10;

/// Cited: GB/s to another node for which NCCL counts one channel (`NCCL_P2P_PER_CHANNEL_NET_BW`, src/graph/paths.cc).
const NETWORK_CHANNEL_GBPS: u32 = 14;

/// Cited: the bytes of a channel's buffer under Simple, and the steps into which it is divided (src/init.cc, src/include/device.h).
const BUFFER_BYTES: u64 = 4 << 20;
const STEPS: u64 = 8;

/// Cited: the bytes of a step of LL's buffer (`NCCL_LL_BUFF_LINES`, src/include/device.h).
const LL_STEP_BYTES: f64 = 65536.0;

/// Cited: sends that one channel runs at a time (`NCCL_MAX_DEV_WORK_P2P_PER_BATCH`, src/include/device.h).
const SENDS_AT_ONCE: u32 = 8;

/// The channels of sends between some ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SendChannels {
    /// The number of channels.
    pub(crate) total: u32,
    /// The most and the fewest for a message.
    most: u32,
    fewest: u32,
    /// The bytes of a chunk.
    pub(crate) chunk: u64,
    least_part: u64,
    least_part_ll: u64,
    longest_part: u64,
    ll: SmallSends,
}

impl SendChannels {
    /// Counts the channels between `ranks` on `nodes`. Collectives have `channels`.
    pub(super) fn of(
        node: &NodeTopology,
        constants: &VersionConstants,
        settings: &NcclSettings,
        (ranks, nodes): (u32, u32),
        channels: u32,
    ) -> Self {
        let rules = &constants.sends;
        let total =
            channels.min(settings.max_p2p_channels.unwrap_or(u32::MAX)).max(settings.min_p2p_channels.unwrap_or(1));
        let total = total.min(constants.max_channels as u32).next_power_of_two();
        let is_one_node = nodes == 1;
        let set = settings.channels_per_net_peer;
        let mut most = per_peer(node, constants, set, (ranks, nodes), total).next_power_of_two().min(total);
        if rules.network == NetworkChannels::ByRate && !is_one_node && set.is_none() {
            most = halved(most, ranks.div_ceil(SENDS_AT_ONCE), total);
        }
        let fewest =
            if is_one_node || rules.spread == SendSpread::Everywhere { halved(most, ranks, total) } else { most };
        if is_one_node && rules.spread == SendSpread::OneNode {
            most = halved(most, ranks, 4 * total);
        }
        let of_nodes = |(one, several): (f64, f64)| if is_one_node { one } else { several };
        let chunk = rules.chunk(node, constants.sm, settings, is_one_node);
        let bytes = |chunks: f64| (chunk as f64 * chunks) as u64;
        let (least_part, longest_part) = (bytes(of_nodes(rules.least_part)), bytes(of_nodes(rules.longest_part)));
        let least_part_ll = (LL_STEP_BYTES * of_nodes(rules.least_part)) as u64;
        Self { total, most, fewest, chunk, least_part, least_part_ll, longest_part, ll: rules.ll }
    }

    /// Returns the number of channels of a message of `nbytes`, and its protocol.
    pub(crate) fn of_message(&self, nbytes: u64) -> (u32, Protocol) {
        let is_ll_first = self.ll == SmallSends::MostChannels && nbytes <= u64::from(self.most) * LL_BYTES;
        let least_part = if is_ll_first { self.least_part_ll } else { self.least_part };
        let mut channels = self.fewest.min(nbytes.div_ceil(least_part).max(1) as u32);
        let mut part = least_part.max(nbytes.div_ceil(u64::from(channels)));
        while part > self.longest_part && channels <= self.most / 2 {
            channels *= 2;
            part = nbytes.div_ceil(u64::from(channels));
        }
        let is_ll = match self.ll {
            SmallSends::Never => false,
            SmallSends::Part => part <= LL_BYTES,
            SmallSends::MostChannels => is_ll_first,
            SmallSends::OwnChannels => nbytes <= u64::from(channels) * LL_BYTES,
        };
        (channels, if is_ll { Protocol::Ll } else { Protocol::Simple })
    }
}

impl SendRules {
    fn chunk(&self, node: &NodeTopology, sm: u32, settings: &NcclSettings, is_one_node: bool) -> u64 {
        let (nvlink, pcie, network) = self.chunk_kib;
        let set = |bytes: Option<u64>, kib: u64| bytes.unwrap_or(kib << 10);
        let (nvlink, pcie) = (set(settings.p2p_nvl_chunk_bytes, nvlink), set(settings.p2p_pci_chunk_bytes, pcie));
        let network = set(settings.p2p_net_chunk_bytes, network);
        let is_long = self.is_long_on_arm && node.processor == Processor::Arm && sm >= 100;
        let chunk = match is_one_node {
            true if node.classes(false).iter().all(|&class| class <= PathClass::Nvb) => nvlink,
            true => pcie,
            false if is_long => 2 * network,
            false => network,
        };
        chunk.min(settings.buffer_bytes.unwrap_or(BUFFER_BYTES) / STEPS)
    }
}

/// Halves a number of channels until all takers find room.
fn halved(mut channels: u32, takers: u32, room: u32) -> u32 {
    while u64::from(channels) * u64::from(takers) > u64::from(room) && channels > 1 {
        channels /= 2;
    }
    channels
}

/// Returns the least number of channels to a peer, before it is rounded.
fn per_peer(
    node: &NodeTopology,
    constants: &VersionConstants,
    set: Option<u32>,
    (ranks, nodes): (u32, u32),
    total: u32,
) -> u32 {
    let link = constants.nvlink_gbps() * 1000.0;
    let pairs = (0..node.gpus).flat_map(|a| (0..node.gpus).filter(move |&b| b != a).map(move |b| (a, b)));
    let inside = pairs.filter_map(|(a, b)| node.between(a, b)).map(|path| match path.class {
        PathClass::Nvl => 2 * (path.width as f64 / link).max(1.0) as u32,
        _ => 2,
    });
    let inside = inside.min().unwrap_or(u32::MAX);
    if nodes == 1 {
        return inside.min(total);
    }
    let own = (0..node.gpus).map(|gpu| {
        let (cards, gbps) = cards(node, gpu);
        match constants.sends.network {
            NetworkChannels::Two => 2,
            NetworkChannels::TwoOrFewer => cards.max(if 2 * ranks > 4 * total { 1 } else { 2 }),
            NetworkChannels::ByRate if cards == 0 => 2,
            NetworkChannels::ByRate => cards.max((gbps as u32).div_ceil(NETWORK_CHANNEL_GBPS)),
        }
    });
    let outside = set.or_else(|| own.min()).unwrap_or(2);
    inside.min(outside).min(total)
}

/// Returns the number of a GPU's nearest cards that fill its way to the processor, and their GB/s.
fn cards(node: &NodeTopology, gpu: usize) -> (u32, f64) {
    let paths = || (0..node.nics).filter_map(|nic| node.out(gpu, nic));
    let Some(nearest) = paths().map(|path| path.class).min() else { return (0, 0.0) };
    let most = node.leaving[gpu].1;
    let (mut count, mut sum) = (0, 0);
    for path in paths().filter(|path| path.class == nearest) {
        if count > 0 && sum >= most {
            break;
        }
        count += 1;
        sum += path.width;
    }
    (count, sum as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::super::{Model, Protocol};
    use crate::machines::preset;

    fn channels(fabric: &str, version: &str, mib: u64) -> u32 {
        Model::of(version, &preset(fabric).unwrap()).unwrap().sends().of_message(mib << 20).0
    }

    /// Seen in sendrecv of eight B200: 84.6, 168, 332 and 625 GB/s from 64 to 512 MiB.
    #[test]
    fn a_message_between_two_of_eight_gpus_has_twice_the_channels_from_each_64_mib_on() {
        let found = [1, 64, 65, 128, 129, 256, 257, 512].map(|mib| channels("hgx-b200", "2.27.7", mib));
        assert_eq!(found, [4, 4, 8, 8, 16, 16, 32, 32]);
    }

    #[test]
    fn fewer_gpus_leave_more_channels_to_a_message() {
        assert_eq!(channels("hgx-h100[0-1]", "2.27.7", 1), 16);
        assert_eq!(channels("hgx-h100[0-3]", "2.27.7", 1), 8);
    }

    /// Seen in all_to_all of 512 KiB per peer: 11 us with 2.23 on eight H100, 15 us with 2.29.2.
    #[test]
    fn ll_counts_its_parts_in_its_own_steps_before_2_29() {
        let found = ["2.27.7", "2.29.2"].map(|version| {
            Model::of(version, &preset("hgx-h100[0-1]").unwrap()).unwrap().sends().of_message(64 << 10).0
        });
        assert_eq!(found, [8, 1]);
    }

    /// The total of channels of two nodes is 16: two go to a peer until 2.28, and from 2.29.2 on 50 GB/s need four.
    #[test]
    fn a_peer_on_another_node_has_two_channels_until_the_rate_of_the_card_counts() {
        let versions = ["2.18.5", "2.21.5", "2.28.9", "2.29.2", "2.30.7"];
        let found = versions.map(|version| channels("hgx-h100x2+ib-ndr-8", version, 64));
        assert_eq!(found, [2, 2, 2, 4, 4]);
    }

    #[test]
    fn ll_ends_at_16_kib_of_a_channel() {
        let protocol = |version: &str, kib: u64| {
            let model = Model::of(version, &preset("hgx-h100").unwrap()).unwrap();
            model.sends().of_message(kib << 10).1
        };
        // 64 KiB are the least part: one channel until then. Before 2.29 what all channels could carry counts.
        assert_eq!([16, 17, 64].map(|kib| protocol("2.30.7", kib)), [Protocol::Ll, Protocol::Simple, Protocol::Simple]);
        assert_eq!([64, 512, 513].map(|kib| protocol("2.28.9", kib)), [Protocol::Ll, Protocol::Ll, Protocol::Simple]);
        assert_eq!(protocol("2.12.12", 1), Protocol::Simple);
    }
}

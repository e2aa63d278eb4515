//! The constants that hold on one machine: by its generation, its links and its network, in GB/s and microseconds.
//!
//! | parameters | selected by |
//! |---|---|
//! | start-up, rates of a channel, hops over NVLink | generation of the GPU |
//! | start of a channel | generation of the GPU, and where the version keeps its work |
//! | other hops, rates of links in use | what joins the GPUs of a node |
//! | software and rendezvous of a hop between nodes | the network's software (`NodeNetwork::stack`) |
//! | rates between nodes | the cards; the way from GPUs to them, and for rings and trees the links between switches, if narrower |
//! | channels and chunks | NCCL's rules of the version (`crate::nccl`) |
//!
//! A fit makes these parameters for each trial, so nothing here searches a fabric. Cuts and bottlenecks between switches need
//! the rates of links in use (`rates.rs`), which are known before them.

use super::bottleneck::{Bottlenecks, TrafficPattern, NARROWER};
use super::constants::{
    of_age, Age, ByAge, ByProtocol, Constants, HopEffects, NetworkEffects, NvlsEffects, Operands, PhysicalEffects,
    RampEffects,
};
use super::machine::{Interconnect, MachineSummary};
use super::rates::UsedRates;
use crate::hardware::gpus::Generation;
use crate::nccl::{Model, NcclAlgorithm, NvlsChunks, SendChannels};

/// Channels of GPUs whose number is not in NCCL's model: RCCL's on MI300X. Chosen.
const CHANNELS: f64 = 32.0;

const KIB: f64 = 1024.0;

/// Cited: the channels of a tree over nodes, whose chunks are in flight at each level.
const TREE_CHANNELS: f64 = 16.0;

/// The longest message that is sent before the receiver is asked, on networks where that shows. Seen between 2 and 4 KiB of LL,
/// half of them flags, on Slingshot (gh200_2n4_alps_boeschf and others).
const EAGER_BYTES: f64 = 4.0 * KIB;

/// The messages of Simple between which the long rendezvous of a network grows from nothing to all of it. Seen on rings of
/// a100_8n4_polaris_nccl218 and on trees of gh200_2n4_alps_santis, at the same bytes of a message and not of a call.
const LONG_BYTES: (f64, f64) = (16.0 * KIB, 64.0 * KIB);

/// The parameters of the network between nodes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NetworkParams {
    /// The microseconds that its software adds to every hop.
    pub(super) software_us: f64,
    /// The microseconds that it adds to a hop with a message so long that the receiver is asked first.
    pub(super) rendezvous_us: f64,
    /// The microseconds that it adds to a hop with a long message of Simple, less the time in which the bytes move.
    pub(super) long_rendezvous_us: f64,
    /// GB/s of a node's cards at line rate.
    pub(super) line_gbps: f64,
    /// The GB/s that rings and trees reach in a long transfer, limited by the path from the node's GPUs to the cards and by switches too.
    pub(super) ring_gbps: f64,
    pub(super) tree_gbps: f64,
    /// The number of parts in which GPUs share the cards: one for each GPU, or for each card if cards are fewer.
    pub(super) parts: f64,
    /// The GB/s that one GPU gets of its part.
    pub(super) gpu_gbps: f64,
    /// The GB/s that the GPUs of a node bring to their cards, where that is less than the cards reach.
    pub(super) egress_gbps: Option<f64>,
    /// The GB/s that the sends of all GPUs of a node reach, limited by the path to the cards but not by switches.
    pub(super) sends_gbps: f64,
    /// The microseconds of a hop between nodes.
    pub(super) hops: ByProtocol<f64>,
    /// The constants that depend on nothing.
    pub(super) effects: NetworkEffects,
}

/// The parameters of NVLS: a switch that reduces and multicasts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct NvlsParams {
    /// GB/s of a GPU, each way.
    pub(super) gbps: f64,
    /// Synchronisation per chunk and channel.
    pub(super) chunk_us: f64,
    /// The loops until the three stages are full.
    pub(super) fill_loops: f64,
    pub(super) start_us: f64,
    pub(super) chunks: NvlsChunks,
}

/// The parameters of the step of a ring that sends nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LastStepParams {
    /// The GB/s of one channel, of three operands together.
    pub(super) channel_gbps: f64,
    pub(super) operands: Operands,
}

/// The parameters of sends between GPUs of a node. Rates are over NVLink.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SendParams {
    /// The additional start-up of a block that sends.
    pub(super) start_us: f64,
    /// The GB/s of a channel with Simple, and with LL.
    pub(super) channel_gbps: Option<f64>,
    pub(super) ll_channel_gbps: Option<f64>,
    /// The microseconds in which the first chunk is stored.
    pub(super) chunk_us: f64,
    /// The part of the links' rate that sends reach.
    pub(super) part: f64,
}

/// The parameters of launching, which depend on how the program calls NCCL.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LaunchParams {
    /// The least microseconds of a call where one process has all GPUs of a node.
    pub(super) single_process_us: f64,
    /// The microseconds that one process adds for an all_to_all.
    pub(super) per_peer_us: f64,
    pub(super) framework_us: f64,
}

/// The parameters of the closed forms: the constants that hold on one machine.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ModelParams {
    pub(super) ranks: f64,
    pub(super) nodes: f64,
    pub(super) local: f64,
    pub(super) rates: UsedRates,
    pub(super) channels: f64,
    pub(super) start_us: f64,
    /// The additional start-up of Simple over NVLink, on one node.
    pub(super) startup_us: f64,
    /// The time to start one more channel, over NVLink on one node.
    pub(super) channel_us: f64,
    /// By how much later channels start with each doubling of their number, over NVLink on one node.
    pub(super) spread_us: f64,
    pub(super) ll_gbps: f64,
    /// The GB/s of one channel with LL, over NVLink.
    pub(super) ll_channel_gbps: Option<f64>,
    /// The GB/s of a channel with LL128; none where LL128 is not used.
    pub(super) ll128_channel_gbps: Option<f64>,
    /// The microseconds of a step to the next GPU of the node.
    pub(super) hops: ByProtocol<f64>,
    /// The step of a ring that sends nothing, on one node.
    pub(super) last_step: Option<LastStepParams>,
    /// Channels that begin in step, over NVLink on one node.
    pub(super) ramp: Option<RampEffects>,
    pub(super) nvls: Option<NvlsParams>,
    /// NCCL's channels of sends; none where they are not known.
    pub(super) sends: Option<SendChannels>,
    pub(super) send: SendParams,
    pub(super) inter_node: Option<NetworkParams>,
    pub(super) bottlenecks: Bottlenecks,
    pub(super) launching: LaunchParams,
}

impl NetworkParams {
    /// Returns the most bytes in flight at each level of a tree.
    pub(super) fn most_in_flight(&self) -> f64 {
        self.effects.tree_chunk_kib * KIB * TREE_CHANNELS
    }

    /// Returns the microseconds that software adds to a hop whose message has `bytes` on the wire.
    pub(super) fn software_us(&self, bytes: f64) -> f64 {
        self.software_us + if bytes > EAGER_BYTES { self.rendezvous_us } else { 0.0 }
    }

    /// Returns the microseconds that a hop of Simple waits until its receiver took a message of `bytes`, beyond `moving_us`.
    pub(super) fn long_wait_us(&self, bytes: f64, moving_us: f64) -> f64 {
        let (none, all) = LONG_BYTES;
        let part = ((bytes / none).log2() / (all / none).log2()).clamp(0.0, 1.0);
        (part * self.long_rendezvous_us - moving_us).max(0.0)
    }
}

impl ModelParams {
    /// Selects the constants of a machine with these rates. `model` is NCCL's, if it knows the machine.
    pub(super) fn of(
        machine: &MachineSummary,
        rates: UsedRates,
        bottlenecks: Bottlenecks,
        constants: &Constants,
        model: Option<&Model>,
    ) -> Self {
        let (effects, age) = (&constants.effects, Age::of(machine.generation));
        let is_nvlink = machine.interconnect == Interconnect::Nvlink;
        let local = f64::from(machine.local());
        // Over several nodes the network's own start-up takes its place.
        let is_nvlink_node = is_nvlink && machine.nodes == 1;
        let startup = |by_age: &ByAge| of_age(by_age, age).filter(|_| is_nvlink_node).unwrap_or(0.0);
        let over_nvlink = |by_age: &ByAge| of_age(by_age, age).filter(|_| is_nvlink);
        let fetches_work = !machine.is_amd && model.is_some_and(Model::has_work_in_host_memory);
        let last_step = &effects.last_step;
        let hops = |hop: &dyn Fn(&HopEffects) -> f64| ByProtocol {
            ll: hop(&effects.hop_us.ll),
            ll128: hop(&effects.hop_us.ll128),
            simple: hop(&effects.hop_us.simple),
        };
        let chunks = model.map(Model::nvls_chunks).filter(|_| machine.folds);
        Self {
            ranks: f64::from(machine.ranks),
            nodes: f64::from(machine.nodes),
            local,
            rates,
            channels: model.and_then(ring_channels).unwrap_or(CHANNELS),
            start_us: of_age(&effects.start_us, age).unwrap_or(0.0),
            startup_us: startup(&effects.startup_us),
            channel_us: if fetches_work { startup(&effects.channel_us) } else { 0.0 },
            spread_us: startup(&effects.spread_us),
            ll_gbps: of_age(&effects.ll_gbps, age).unwrap_or(f64::INFINITY),
            ll_channel_gbps: over_nvlink(&effects.ll_channel_gbps),
            ll128_channel_gbps: of_age(&effects.ll128_channel_gbps, age).filter(|_| machine.has_ll128()),
            last_step: of_age(&last_step.channel_gbps, age).filter(|_| machine.nodes == 1).map(|channel_gbps| {
                let operands = if machine.reads_peers { last_step.read } else { last_step.write };
                LastStepParams { channel_gbps, operands }
            }),
            ramp: is_nvlink_node.then_some(effects.ramp),
            hops: hops(&|hop| hop.inside(machine.interconnect, age)),
            nvls: chunks.and_then(|chunks| nvls(machine, &effects.nvls, chunks)),
            sends: model.map(Model::sends),
            send: SendParams {
                start_us: of_age(&effects.send.start_us, age).unwrap_or(0.0),
                channel_gbps: over_nvlink(&effects.send.channel_gbps),
                ll_channel_gbps: over_nvlink(&effects.send.ll_channel_gbps),
                chunk_us: startup(&effects.send.chunk_us),
                part: over_nvlink(&effects.send.part).unwrap_or(1.0),
            },
            inter_node: network(machine, &rates, &bottlenecks, effects, hops(&|hop| hop.network)),
            bottlenecks,
            launching: LaunchParams {
                single_process_us: effects.launch.single_process_us + local * effects.launch.per_gpu_us,
                per_peer_us: effects.launch.per_peer_us * local * (local - 1.0),
                framework_us: effects.launch.framework_us,
            },
        }
    }

    /// Returns the microseconds until all channels of a call have started.
    pub(super) fn channels_us(&self, channels: f64) -> f64 {
        (channels - 1.0) * self.channel_us + channels.log2() * self.spread_us
    }

    /// Says whether a link that is not at a GPU, or the path from GPUs to the cards, limits a ring.
    pub(super) fn is_narrow(&self) -> bool {
        let of_gpu = self.rates.ring_gbps;
        let of_ring = self.bottlenecks.gbps(TrafficPattern::Ring).min(of_gpu);
        let is_egress = |network: &NetworkParams| {
            (network.egress_gbps.is_some() || self.bottlenecks.network.is_some())
                && network.ring_gbps < NARROWER * of_ring
        };
        of_ring < of_gpu || self.inter_node.as_ref().is_some_and(is_egress)
    }
}

/// Returns the channels of a ring: twice the channels that NCCL's search found, or the channels of the settings.
fn ring_channels(model: &Model) -> Option<f64> {
    let (set, own) = model.ring_channels();
    let found = model.channels(NcclAlgorithm::Ring)?.count;
    Some(f64::from(if set == own { 2 * found } else { set }))
}

/// Returns the parameters of the network; none for one node.
fn network(
    machine: &MachineSummary,
    rates: &UsedRates,
    bottlenecks: &Bottlenecks,
    effects: &PhysicalEffects,
    hops: ByProtocol<f64>,
) -> Option<NetworkParams> {
    let (network, (cards_gbps, line_gbps)) = machine.network.as_ref().zip(rates.cards)?;
    let (stack, of, both_ways) = (network.stack(machine.generation), &effects.network, effects.staged.both_ways);
    let local = f64::from(machine.local());
    let staged = bottlenecks.staged.map_or(f64::INFINITY, |line| line * both_ways);
    let egress = if machine.is_direct { bottlenecks.egress.unwrap_or(f64::INFINITY) } else { staged };
    let most = egress.min(bottlenecks.network.as_ref().map_or(f64::INFINITY, |narrow| narrow.gbps));
    let parts = local.min(f64::from(network.cards));
    // One GPU has its share of the cards, bounded by its link to the host.
    let of_host = machine
        .host
        .map_or(f64::INFINITY, |(medium, line)| line * if machine.is_direct { medium.efficiency } else { both_ways });
    Some(NetworkParams {
        software_us: of.hop_us[&stack],
        rendezvous_us: of.rendezvous_us.get(&stack).copied().unwrap_or(0.0),
        long_rendezvous_us: of.long_rendezvous_us.get(&stack).copied().unwrap_or(0.0),
        line_gbps,
        ring_gbps: most.min(cards_gbps),
        tree_gbps: most.min(line_gbps * of.tree),
        parts,
        gpu_gbps: (cards_gbps / parts).min(of_host).min(egress),
        egress_gbps: Some(egress).filter(|&egress| egress < cards_gbps),
        sends_gbps: egress.min(line_gbps * of.sends),
        hops,
        effects: of.clone(),
    })
}

fn nvls(machine: &MachineSummary, effects: &NvlsEffects, chunks: NvlsChunks) -> Option<NvlsParams> {
    let (part, age) = match machine.generation {
        Generation::Hopper => (effects.hopper, Age::Hopper),
        Generation::Blackwell => (effects.blackwell, Age::Blackwell),
        _ => return None,
    };
    Some(NvlsParams {
        gbps: machine.line_gbps * part,
        chunk_us: effects.chunk_us,
        fill_loops: effects.fill_loops,
        start_us: effects.start_us[&age],
        chunks,
    })
}

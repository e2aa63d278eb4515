//! NCCL's channels and their speeds: rings, trees and NVLS on one node.
//!
//! ```text
//! for speed in the version's list, from the widest path down:        40 30 20 18 15 … GB/s
//!     for class in best to worst:  the same order on every channel, then any order
//!         lay rings (trees) until no link has `speed` left           edge-disjoint Hamiltonian cycles, depth first
//!     keep the greatest channels x speed; stop if it is all that a GPU has, or the next speed is below 0.49 of the kept one
//! then channels of 25 GB/s and more become two of half the speed, and what can be raised is raised
//! ```
//!
//! The idea, the lists and the stopping rules are NCCL's (src/graph/search.cc at the tags of `versions.toml`); the search is
//! ours, and the order in which it tries GPUs is close to NCCL's, not the same. It matches what logs show:
//!
//! | machine | rings | NVLS | seen in |
//! |---|---|---|---|
//! | A100 x 8, NVSwitch | 12 x 20 | | the usual log |
//! | H100 x 8, NVSwitch | 12 x 30 | 8 x 40 | NVIDIA/nccl#1197; 360 in all: NVIDIA/nccl#1595 |
//! | B200 x 8, NVSwitch | 16 x 45 | 8 x 80 | 720 in all |
//! | DGX-1, V100 | 6 x 20 | | NVIDIA's rings of the cube mesh |
//! | Blackwell x 8, PCIe, two AMD sockets | none: 0.1 GB/s, 2 channels after doubling | | voipmonitor/rtx6kpro (2.28.3); NVIDIA/nccl#2113 |
//!
//! Over several nodes a channel comes by a network card and leaves by the same one, or, where that is faster, by another
//! (`NCCL_CROSS_NIC` 2, the default; [`NicCrossing`] has the rule of each version).
//!
//! Not modelled: SHARP, two channels where NVLink has two halves.

use super::constants::{Duplicate, NicCrossing, NvlsBandwidth, VersionConstants};
use super::node::{NodeTopology, PathClass, TopologyPath};
use super::settings::CrossNic;

/// The pattern of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GraphPattern {
    /// Every GPU to the next, and back.
    Ring,
    /// A chain whose first two GPUs share what goes to the network.
    BalancedTree,
    /// A chain whose first GPU talks to the network.
    Tree,
}

/// The channels that a search found.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ChannelGraph {
    pub(super) pattern: GraphPattern,
    /// The number of channels; zero if there is no such graph.
    pub(super) channels: usize,
    /// The GB/s of a channel between GPUs.
    pub(super) intra_gbps: f64,
    /// The GB/s of a channel between nodes; between GPUs if there is one node.
    pub(super) inter_gbps: f64,
    /// The worst path between GPUs.
    pub(super) intra: PathClass,
    /// The worst path to the network.
    pub(super) inter: PathClass,
    /// Whether every channel visits the GPUs in one order.
    pub(super) is_same: bool,
    crossing: NicCrossing,
    order: Vec<Vec<usize>>,
}

impl ChannelGraph {
    pub(super) fn none(pattern: GraphPattern) -> Self {
        let (intra, inter) = (PathClass::Local, PathClass::Local);
        let (intra_gbps, inter_gbps, order) = (0.0, 0.0, Vec::new());
        Self {
            pattern,
            channels: 0,
            intra_gbps,
            inter_gbps,
            intra,
            inter,
            is_same: false,
            crossing: NicCrossing::Never,
            order,
        }
    }

    /// For each channel, the order of the GPUs.
    pub(super) fn orders(&self) -> &[Vec<usize>] {
        &self.order
    }
}

/// A goal of the search.
#[derive(Debug, Clone, Copy)]
struct Goal {
    pattern: GraphPattern,
    intra: i64,
    inter: i64,
    intra_class: PathClass,
    inter_class: PathClass,
    is_same: bool,
    /// Whether a channel may leave by another network card than that by which it came.
    crossing: NicCrossing,
    crossing_price: f64,
    least: usize,
    most: usize,
}

impl Goal {
    /// Returns the goal that a graph has reached, with other numbers of channels.
    fn like(graph: &ChannelGraph, constants: &VersionConstants, least: usize, most: usize) -> Self {
        Self {
            pattern: graph.pattern,
            intra: to_thousandths(graph.intra_gbps),
            inter: to_thousandths(graph.inter_gbps),
            intra_class: graph.intra,
            inter_class: graph.inter,
            is_same: graph.is_same,
            crossing: graph.crossing,
            crossing_price: constants.crossing_price,
            least,
            most,
        }
    }

    /// Returns by what a graph with this goal must exceed another one to be taken for it: crossing has its price.
    fn worth(&self, best: &ChannelGraph) -> f64 {
        let crosses = |crossing| f64::from(u8::from(crossing != NicCrossing::Never));
        1.0 + (crosses(self.crossing) - crosses(best.crossing)) * self.crossing_price
    }
}

/// The speed of the last resort: one channel in the order of the ranks. Cited (src/graph/search.cc, all versions).
pub(super) const LAST_RESORT_GBPS: f64 = 0.1;

/// The largest number of GPUs that a trial may visit. Cited (the same).
const VISITS: u32 = 1 << 14;
const VISITS_SAME: u32 = 1 << 8;

struct Trial<'a> {
    node: &'a NodeTopology,
    capacity: Vec<i64>,
    goal: Goal,
    order: Vec<Vec<usize>>,
    /// The network cards by which each channel comes and leaves.
    cards: Vec<(usize, usize)>,
    best: ChannelGraph,
    visits: u32,
    is_perfect: bool,
}

/// The order in which GPUs are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GpuOrder {
    Position,
    Replay,
    Merit,
}

impl Trial<'_> {
    /// Reserves bandwidth on a path: on all its links, or on none.
    fn take(&mut self, path: &TopologyPath, speed: i64) -> bool {
        let needs = self.needs(path, speed);
        if needs.iter().any(|&(link, need)| self.capacity[link] < need) {
            return false;
        }
        needs.iter().for_each(|&(link, need)| self.capacity[link] -= need);
        true
    }

    fn give(&mut self, path: &TopologyPath, speed: i64) {
        self.needs(path, speed).iter().for_each(|&(link, need)| self.capacity[link] += need);
    }

    /// Returns the links that a path uses, and how much of each.
    fn needs(&self, path: &TopologyPath, speed: i64) -> Vec<(usize, i64)> {
        let split = (speed as f64 * self.split_part()).round() as i64;
        let need = |&link: &usize| (link, if path.is_split && self.node.is_pcie[link] { split } else { speed });
        path.links.iter().map(need).chain(path.echo.map(|link| (link, speed / 8))).collect()
    }

    fn split_part(&self) -> f64 {
        self.node.split_part
    }

    fn is_over(&self) -> bool {
        self.visits == 0 || self.is_perfect
    }

    fn next_channel(&mut self) {
        let nth = self.order.len();
        let is_replay = nth > 0 && self.goal.is_same;
        if self.node.nics == 0 {
            if nth == 0 {
                self.start(None, 0, GpuOrder::Position);
            } else {
                self.start(None, self.order[nth - 1][0], GpuOrder::Replay);
            }
            if !is_replay {
                (0..self.node.gpus).for_each(|gpu| self.start(None, gpu, GpuOrder::Merit));
            }
            return;
        }
        for nic in (0..self.node.nics).map(|i| (nth + i) % self.node.nics) {
            if self.twin(nth).is_some_and(|(_, left_by)| nic != left_by) {
                continue;
            }
            if is_replay {
                self.start(Some(nic), self.order[nth - 1][0], GpuOrder::Replay);
                continue;
            }
            if nth == 0 && !self.node.has_switch {
                self.start(Some(nic), 0, GpuOrder::Position);
            }
            for gpu in self.nearest(nic) {
                self.start(Some(nic), gpu, GpuOrder::Merit);
            }
        }
    }

    /// Returns the cards of the channel whose way a channel of alternating rings takes in the other direction: every second one.
    fn twin(&self, channel: usize) -> Option<(usize, usize)> {
        (self.goal.crossing == NicCrossing::Alternating && channel % 2 == 1).then(|| self.cards[channel - 1])
    }

    /// Returns the cards by which a channel that came by `nic` may leave from a GPU, the nearest first. `returned` is the number of
    /// GPUs that have sent to the network: the second takes the card of the first.
    fn ways_out(&self, channel: usize, gpu: usize, nic: usize, returned: usize) -> Vec<usize> {
        if self.goal.crossing == NicCrossing::Never || self.goal.pattern == GraphPattern::Tree {
            return vec![nic];
        }
        if returned > 0 {
            return vec![self.cards[channel].1];
        }
        if let Some((came_by, _)) = self.twin(channel) {
            return vec![came_by];
        }
        let class = |&nic: &usize| self.node.out(gpu, nic).map(|path| path.class);
        let mut nics: Vec<usize> = (0..self.node.nics).filter(|nic| class(nic).is_some()).collect();
        nics.sort_by_key(class);
        nics
    }

    /// Returns the GPUs nearest to a network card, the one with the card's number first.
    fn nearest(&self, nic: usize) -> Vec<usize> {
        let class = |gpu: usize| self.node.into(nic, gpu).map(|path| path.class);
        let Some(best) = (0..self.node.gpus).filter_map(class).min() else { return Vec::new() };
        let mut near: Vec<usize> = (0..self.node.gpus).filter(|&gpu| class(gpu) == Some(best)).collect();
        let own = nic % near.len();
        near.rotate_left(own);
        near
    }

    fn start(&mut self, nic: Option<usize>, gpu: usize, by: GpuOrder) {
        if self.is_over() {
            return;
        }
        let path = nic.and_then(|nic| self.node.into(nic, gpu));
        if nic.is_some() {
            let Some(path) = path.filter(|path| path.class <= self.goal.inter_class) else { return };
            if !self.take(path, self.goal.inter) {
                return;
            }
        }
        self.order.push(vec![gpu]);
        self.cards.extend(nic.map(|nic| (nic, nic)));
        self.visit(nic, by, 0);
        self.cards.truncate(self.order.len() - 1);
        self.order.pop();
        if let Some(path) = path {
            self.give(path, self.goal.inter);
        }
    }

    /// Continues from the last GPU of the last channel. `returned` is the number of GPUs that have sent to the network.
    fn visit(&mut self, nic: Option<usize>, by: GpuOrder, returned: usize) {
        if self.is_over() {
            return;
        }
        self.visits -= 1;
        let (channel, gpus) = (self.order.len() - 1, self.node.gpus);
        let length = self.order[channel].len();
        let (first, last) = (self.order[channel][0], self.order[channel][length - 1]);
        let (places, part): (&[usize], i64) = match self.goal.pattern {
            GraphPattern::Ring => (&[gpus][..], 1),
            GraphPattern::Tree => (&[1][..], 1),
            GraphPattern::BalancedTree => (&[1, 2][..], 2),
        };
        if let Some(nic) = nic.filter(|_| places.get(returned) == Some(&length)) {
            let speed = self.goal.inter / part;
            for out in self.ways_out(channel, last, nic, returned) {
                let node = self.node;
                let Some(path) = node.out(last, out).filter(|path| path.class <= self.goal.inter_class) else {
                    continue;
                };
                if self.take(path, speed) {
                    self.cards[channel].1 = out;
                    self.visit(Some(nic), by, returned + 1);
                    self.give(path, speed);
                }
            }
        } else if length < gpus {
            for next in self.next_gpus(channel, by) {
                self.hop(last, next, |trial| {
                    trial.order[channel].push(next);
                    trial.visit(nic, by, returned);
                    trial.order[channel].pop();
                });
            }
        } else if nic.is_none() && self.goal.pattern == GraphPattern::Ring && gpus > 1 {
            self.hop(last, first, Self::record);
        } else {
            self.record();
        }
    }

    fn hop(&mut self, from: usize, to: usize, then: impl FnOnce(&mut Self)) {
        let node = self.node;
        let Some(path) = node.between(from, to).filter(|path| path.class <= self.goal.intra_class) else { return };
        if self.take(path, self.goal.intra) {
            then(self);
            self.give(path, self.goal.intra);
        }
    }

    /// Orders the next GPUs: neighbours at an NVSwitch; elsewhere the widest and shortest path, then the next number.
    fn next_gpus(&self, channel: usize, by: GpuOrder) -> Vec<usize> {
        let (so_far, gpus) = (&self.order[channel], self.node.gpus);
        let (length, last) = (so_far.len(), so_far[so_far.len() - 1]);
        let is_free = |gpu: &usize| !so_far.contains(gpu);
        match by {
            GpuOrder::Position => vec![length].into_iter().filter(is_free).collect(),
            GpuOrder::Replay => vec![self.order[channel - 1][length]],
            GpuOrder::Merit if self.node.has_switch => {
                let (before, after) = ((last + gpus - 1) % gpus, (last + 1) % gpus);
                let mut near =
                    if self.goal.pattern == GraphPattern::Ring { vec![before, after] } else { vec![after, before] };
                near.dedup();
                near.retain(is_free);
                near
            }
            GpuOrder::Merit => {
                let mut next: Vec<usize> = (1..gpus).map(|step| (last + step) % gpus).filter(is_free).collect();
                let merit = |gpu: &usize| self.node.between(last, *gpu).map(|path| (-path.width, path.links.len()));
                next.sort_by_key(merit);
                next
            }
        }
    }

    fn record(&mut self) {
        let channels = self.order.len();
        let total = |channels: usize, gbps: f64| channels as f64 * gbps;
        let intra_gbps = self.goal.intra as f64 / 1000.0;
        let least = total(self.best.channels, self.best.intra_gbps) * self.goal.worth(&self.best);
        let is_more = total(channels, intra_gbps) > least;
        if channels >= self.goal.least && is_more {
            self.best = ChannelGraph {
                pattern: self.goal.pattern,
                channels,
                intra_gbps,
                inter_gbps: self.goal.inter as f64 / 1000.0,
                intra: self.goal.intra_class,
                inter: self.goal.inter_class,
                is_same: self.goal.is_same,
                crossing: self.goal.crossing,
                order: self.order.clone(),
            };
            self.is_perfect = channels == self.goal.most;
        }
        if channels < self.goal.most {
            self.next_channel();
        }
    }
}

/// Returns an upper bound of the channels of a goal, from the bandwidth of the GPUs and the network cards.
///
/// ```text
/// rings on one node    every GPU sends every channel                  least bandwidth of a GPU / speed
/// chains               all GPUs but any one send it                   sum of the bandwidths / ((n - 1) speed)
/// ```
fn bound(node: &NodeTopology, goal: &Goal) -> usize {
    let leaves = |&(nvlink, pcie): &(i64, i64)| nvlink + if goal.intra_class > PathClass::Nvb { pcie } else { 0 };
    let gpus = node.leaving.iter().map(leaves);
    let by_gpus = match (goal.pattern, node.nics) {
        _ if node.gpus == 1 => i64::MAX,
        (GraphPattern::Ring, 0) => gpus.min().unwrap_or(0) / goal.intra,
        _ => gpus.sum::<i64>() / ((node.gpus as i64 - 1) * goal.intra),
    };
    let by_cards = if node.nics > 0 { node.cards.iter().map(|width| width / goal.inter).sum() } else { i64::MAX };
    usize::try_from(by_gpus.min(by_cards)).unwrap_or(usize::MAX)
}

/// Tries a goal and replaces `best` by a graph that moves more. Returns whether no more channels are possible.
fn attempt(node: &NodeTopology, goal: Goal, best: &mut ChannelGraph) -> bool {
    let can = bound(node, &goal).min(goal.most);
    let more = can as f64 * goal.intra as f64 / 1000.0 > best.channels as f64 * best.intra_gbps * goal.worth(best);
    if can < goal.least || !more {
        return false;
    }
    let visits = if goal.is_same { VISITS_SAME } else { VISITS };
    let (capacity, order) = (node.capacity.clone(), Vec::new());
    let taken = std::mem::replace(best, ChannelGraph::none(goal.pattern));
    let within = Goal { most: can, ..goal };
    let mut trial =
        Trial { node, capacity, goal: within, order, cards: Vec::new(), best: taken, visits, is_perfect: false };
    trial.next_channel();
    *best = trial.best;
    trial.is_perfect && can == goal.most
}

fn to_thousandths(gbps: f64) -> i64 {
    (gbps * 1000.0).round() as i64
}

/// Returns the index of the first speed for which `holds` is true.
fn first_speed(speeds: &[f64], holds: impl Fn(i64) -> bool) -> usize {
    speeds.iter().position(|&speed| holds(to_thousandths(speed))).unwrap_or(speeds.len() - 1)
}

/// Finds rings or trees of `least` to `most` channels.
pub(super) fn find(
    node: &NodeTopology,
    constants: &VersionConstants,
    pattern: GraphPattern,
    least: usize,
    most: usize,
) -> ChannelGraph {
    let speeds = if node.nics > 0 { &constants.speeds_network } else { &constants.speeds_node };
    let mut best = lay(node, constants, speeds, pattern, least, most);
    if constants.duplicate == Duplicate::First {
        duplicate(&mut best, constants, most);
    }
    raise(node, constants, speeds, &mut best, pattern, most);
    if constants.duplicate != Duplicate::First {
        duplicate(&mut best, constants, most);
    }
    if best.channels == 0 {
        (best.channels, best.intra_gbps, best.inter_gbps) = (1, LAST_RESORT_GBPS, LAST_RESORT_GBPS);
        (best.intra, best.inter) = (PathClass::Sys, PathClass::Sys);
    }
    best
}

/// Tries speeds from the greatest down.
fn lay(
    node: &NodeTopology,
    constants: &VersionConstants,
    speeds: &[f64],
    pattern: GraphPattern,
    least: usize,
    most: usize,
) -> ChannelGraph {
    let patterns: &[GraphPattern] = match pattern {
        GraphPattern::BalancedTree if node.gpus == 1 => &[GraphPattern::Tree],
        GraphPattern::BalancedTree if constants.sm >= 90 => &[GraphPattern::BalancedTree, GraphPattern::Tree],
        GraphPattern::BalancedTree => &[GraphPattern::BalancedTree],
        GraphPattern::Ring => &[GraphPattern::Ring],
        GraphPattern::Tree => &[GraphPattern::Tree],
    };
    let mut total = node.total;
    if node.gpus > 1 && pattern != GraphPattern::Ring {
        total = total * node.gpus as i64 / (node.gpus as i64 - 1);
    }
    let start = first_speed(speeds, |speed| speed <= node.widest && speed * least as i64 <= total);
    let none = vec![PathClass::Local];
    let inner = if node.gpus > 1 { node.classes(false) } else { none.clone() };
    let outer = if node.nics > 0 { node.classes(true) } else { none };
    let mut best = ChannelGraph::none(pattern);
    for &speed in &speeds[start..] {
        if best.channels > 0 && speed / best.inter_gbps <= 0.49 {
            break;
        }
        let speed = to_thousandths(speed);
        for &crossing in crossings(node, constants, pattern) {
            let goal = Goal { intra: speed, inter: speed, crossing, ..Goal::like(&best, constants, least, most) };
            if lay_at(node, goal, patterns, (&inner, &outer), &mut best) {
                return best;
            }
        }
    }
    best
}

/// Tries classes of paths from the best on, with the speed and the use of network cards of a goal: those inside the node
/// (`inner`) and to the network (`outer`). Returns whether nothing can be better.
fn lay_at(
    node: &NodeTopology,
    goal: Goal,
    patterns: &[GraphPattern],
    (inner, outer): (&[PathClass], &[PathClass]),
    best: &mut ChannelGraph,
) -> bool {
    for &inter_class in outer {
        for &intra_class in inner {
            for (&pattern, is_same) in patterns.iter().flat_map(|pattern| [(pattern, true), (pattern, false)]) {
                let is_perfect = attempt(node, Goal { pattern, intra_class, inter_class, is_same, ..goal }, best);
                if is_perfect || to_thousandths(best.channels as f64 * best.inter_gbps) >= node.total {
                    return true;
                }
            }
            if best.channels > 0 && intra_class >= best.intra {
                break;
            }
        }
        if best.channels > 0 && inter_class >= best.inter && inter_class >= PathClass::Pxn {
            break;
        }
    }
    false
}

/// Returns the uses of network cards that a search tries, in this order.
fn crossings(node: &NodeTopology, constants: &VersionConstants, pattern: GraphPattern) -> &'static [NicCrossing] {
    match (constants.crossing, pattern, node.cross_nic) {
        _ if node.nics < 2 || pattern == GraphPattern::Tree => &[NicCrossing::Never],
        (NicCrossing::Never, ..) | (_, _, CrossNic::Never) => &[NicCrossing::Never],
        (NicCrossing::Alternating, _, CrossNic::Always) => &[NicCrossing::Alternating],
        // Rings that may cross freely do not alternate.
        (_, _, CrossNic::Always) => &[NicCrossing::Any],
        (NicCrossing::AlternatingRings, GraphPattern::BalancedTree, _) | (NicCrossing::Any, ..) => {
            &[NicCrossing::Never, NicCrossing::Any]
        }
        (NicCrossing::AlternatingRings | NicCrossing::Alternating, ..) => {
            &[NicCrossing::Never, NicCrossing::Alternating]
        }
    }
}

/// Splits channels that are faster than the threads of a channel: two of half the speed.
fn duplicate(graph: &mut ChannelGraph, constants: &VersionConstants, most: usize) {
    let is_slow = constants.sm > 80 && graph.intra_gbps < 50.0;
    let is_spared = match constants.duplicate {
        Duplicate::AllLast => false,
        Duplicate::ByAgeLast => is_slow || constants.sm > 90,
        Duplicate::Last | Duplicate::First => is_slow && graph.channels > 4,
    };
    if graph.channels == 0 || graph.intra_gbps < 25.0 || is_spared {
        return;
    }
    let channels = (2 * graph.channels).min(most);
    let times = channels.div_ceil(graph.channels) as f64;
    graph.order = (0..channels).map(|nth| graph.order[nth % graph.channels].clone()).collect();
    (graph.intra_gbps, graph.inter_gbps, graph.channels) =
        (graph.intra_gbps / times, graph.inter_gbps / times, channels);
}

/// Raises the speed of a ring, or the speed of a tree between GPUs up to twice the speed between nodes.
fn raise(
    node: &NodeTopology,
    constants: &VersionConstants,
    speeds: &[f64],
    best: &mut ChannelGraph,
    pattern: GraphPattern,
    most: usize,
) {
    let is_ring = pattern == GraphPattern::Ring;
    if best.channels == 0 || is_ring && constants.duplicate != Duplicate::First {
        return;
    }
    let (inter, least) = (to_thousandths(best.inter_gbps), best.channels);
    let mut at = first_speed(speeds, |speed| speed <= inter);
    let mut tried = to_thousandths(speeds[at]);
    while at > 0 && (is_ring || tried == to_thousandths(best.intra_gbps) && tried < 2 * inter) {
        at -= 1;
        tried = to_thousandths(speeds[at]);
        let inter = if is_ring { tried } else { inter };
        attempt(node, Goal { intra: tried, inter, ..Goal::like(best, constants, least, most) }, best);
    }
}

/// Finds NVLS channels: GPU k pulls channel k. The link of a GPU carries each channel once, and its own channel twice.
///
/// ```text
/// one node      as many channels as GPUs: (n + 1) x speed <= bandwidth of a GPU to the switch
/// several       as many channels as network cards with a GPU of their own
/// ```
pub(super) fn find_nvls(node: &NodeTopology, constants: &VersionConstants) -> ChannelGraph {
    let mut best = ChannelGraph::none(GraphPattern::Tree);
    let mut heads: Vec<usize> = (0..node.nics).filter_map(|nic| head_of(node, nic)).collect();
    heads.sort_unstable();
    heads.dedup();
    let several = node.nics > 0;
    let most = constants.nvls_heads.min(if several { heads.len() } else { node.gpus });
    let speeds = if several { &constants.speeds_network } else { &constants.speeds_node };
    let per_card = if several { node.widest } else { i64::MAX };
    for speed in speeds.iter().map(|&speed| to_thousandths(speed)).filter(|&speed| speed <= node.widest) {
        if best.channels > 0 && (speed as f64 / 1000.0) / best.inter_gbps <= 0.49 {
            break;
        }
        // A GPU carries each channel once, and the channel that it pulls twice.
        let fit =
            (0..=most).rev().find(|&k| (k as i64 + 1) * speed <= node.to_switch && speed <= per_card).unwrap_or(0);
        if fit > best.channels && (several || fit == most) {
            best.channels = fit;
            (best.intra_gbps, best.inter_gbps) = (speed as f64 / 1000.0, speed as f64 / 1000.0);
            (best.intra, best.inter) = (PathClass::Nvl, if several { PathClass::Pix } else { PathClass::Local });
        }
        if best.channels == most {
            break;
        }
    }
    let is_raised = !matches!(constants.nvls, NvlsBandwidth::Ring | NvlsBandwidth::Graph);
    if best.channels > 0 && is_raised {
        let (node_gbps, found) = (best.intra_gbps, best.inter_gbps);
        let above = speeds.iter().rev().copied().filter(|&speed| speed > found && to_thousandths(speed) <= per_card);
        for speed in above {
            if best.inter_gbps < 2.0 * node_gbps {
                best.inter_gbps = speed;
            }
        }
    }
    best
}

/// Returns the head of a network card: the first GPU whose own card it is. NCCL's channels take the nearest cards of a GPU in
/// turns, and each channel has one of them as the GPU's own. A GPU without a path to a card has no own card.
fn head_of(node: &NodeTopology, nic: usize) -> Option<usize> {
    let class = |gpu: usize, nic: usize| node.into(nic, gpu).map(|path| path.class);
    let nearest = |gpu: usize| {
        let best = (0..node.nics).filter_map(|nic| class(gpu, nic)).min();
        (0..node.nics).filter(|&nic| best.is_some() && class(gpu, nic) == best).collect::<Vec<_>>()
    };
    let cards: Vec<Vec<usize>> = (0..node.gpus).map(nearest).collect();
    let at_card = cards.iter().filter(|of_gpu| of_gpu.contains(&nic)).count();
    (0..node.nics).find_map(|channel| {
        cards.iter().enumerate().find_map(|(gpu, of_gpu)| {
            let count = of_gpu.len();
            let first = if count.is_power_of_two() { mirrored(gpu, count) } else { gpu };
            let own = of_gpu.get((first + channel % count.div_ceil(at_card.max(1)).max(1)) % count.max(1))?;
            (*own == nic).then_some(gpu)
        })
    })
}

/// Reverses the low bits of a number; `power` is two to the number of bits.
fn mirrored(number: usize, power: usize) -> usize {
    let bits = power.trailing_zeros();
    (0..bits).fold(0, |sum, bit| sum | ((number >> bit) & 1) << (bits - 1 - bit))
}

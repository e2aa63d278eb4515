//! One trial of the search: channels of one goal, laid over the links of a node until no link has the speed left.
//!
//! ```text
//! start at a GPU (or at the card by which the channel comes) ─▶ visit: the next GPUs in an order ─▶ record ─▶ the next channel
//!                                              every step takes the speed from the links of its path, and gives it back
//! ```

use super::constants::{NicCrossing, VersionConstants};
use super::graph::{ChannelGraph, GraphPattern};
use super::names::PathClass;
use super::node::{NodeTopology, TopologyPath};

/// A goal of the search.
#[derive(Debug, Clone, Copy)]
pub(super) struct Goal {
    pub(super) pattern: GraphPattern,
    pub(super) intra: i64,
    pub(super) inter: i64,
    pub(super) intra_class: PathClass,
    pub(super) inter_class: PathClass,
    pub(super) is_same: bool,
    /// Whether a channel may leave by another network card than that by which it came.
    pub(super) crossing: NicCrossing,
    pub(super) crossing_price: f64,
    pub(super) least: usize,
    pub(super) most: usize,
}

impl Goal {
    /// Returns the goal that a graph has reached, with other numbers of channels.
    pub(super) fn reached_by(graph: &ChannelGraph, constants: &VersionConstants, least: usize, most: usize) -> Self {
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
    fn required_gain(&self, best: &ChannelGraph) -> f64 {
        let crosses = |crossing| f64::from(u8::from(crossing != NicCrossing::Never));
        1.0 + (crosses(self.crossing) - crosses(best.crossing)) * self.crossing_price
    }
}

/// The largest number of GPUs that a trial may visit. Cited (the same).
const VISITS: u32 = 1 << 14;
const VISITS_SAME: u32 = 1 << 8;

/// A search for the channels of one goal, depth first.
struct Trial<'a> {
    node: &'a NodeTopology,
    capacity: Vec<i64>,
    goal: Goal,
    /// For each network card, the GPUs nearest to it.
    nearest: Vec<Vec<usize>>,
    order: Vec<Vec<usize>>,
    /// The network cards by which each channel comes and leaves.
    cards: Vec<(usize, usize)>,
    best: ChannelGraph,
    visits: u32,
    is_perfect: bool,
}

/// Returns the links that a path uses, and how much of each.
fn needs<'a>(node: &'a NodeTopology, path: &'a TopologyPath, speed: i64) -> impl Iterator<Item = (usize, i64)> + 'a {
    let split = (speed as f64 * node.split_part).round() as i64;
    let need = move |&link: &usize| (link, if path.is_split && node.is_pcie[link] { split } else { speed });
    path.links.iter().map(need).chain(path.echo.map(|link| (link, speed / 8)))
}

/// Returns the GPUs nearest to a network card, the one with the card's number first.
fn nearest(node: &NodeTopology, nic: usize) -> Vec<usize> {
    let class = |gpu: usize| node.into(nic, gpu).map(|path| path.class);
    let Some(best) = (0..node.gpus).filter_map(class).min() else { return Vec::new() };
    let mut near: Vec<usize> = (0..node.gpus).filter(|&gpu| class(gpu) == Some(best)).collect();
    let own = nic % near.len();
    near.rotate_left(own);
    near
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
    fn reserve(&mut self, path: &TopologyPath, speed: i64) -> bool {
        if needs(self.node, path, speed).any(|(link, need)| self.capacity[link] < need) {
            return false;
        }
        needs(self.node, path, speed).for_each(|(link, need)| self.capacity[link] -= need);
        true
    }

    fn release(&mut self, path: &TopologyPath, speed: i64) {
        needs(self.node, path, speed).for_each(|(link, need)| self.capacity[link] += need);
    }

    fn is_over(&self) -> bool {
        self.visits == 0 || self.is_perfect
    }

    fn next_channel(&mut self) {
        if self.is_over() {
            return;
        }
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
            if self.reversed_channel(nth).is_some_and(|(_, left_by)| nic != left_by) {
                continue;
            }
            if is_replay {
                self.start(Some(nic), self.order[nth - 1][0], GpuOrder::Replay);
                continue;
            }
            if nth == 0 && !self.node.has_switch {
                self.start(Some(nic), 0, GpuOrder::Position);
            }
            for at in 0..self.nearest[nic].len() {
                self.start(Some(nic), self.nearest[nic][at], GpuOrder::Merit);
            }
        }
    }

    /// Returns the cards of the channel whose way a channel of alternating rings takes in the other direction: every second one.
    fn reversed_channel(&self, channel: usize) -> Option<(usize, usize)> {
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
        if let Some((came_by, _)) = self.reversed_channel(channel) {
            return vec![came_by];
        }
        let class = |&nic: &usize| self.node.out(gpu, nic).map(|path| path.class);
        let mut nics: Vec<usize> = (0..self.node.nics).filter(|nic| class(nic).is_some()).collect();
        nics.sort_by_key(class);
        nics
    }

    fn start(&mut self, nic: Option<usize>, gpu: usize, by: GpuOrder) {
        if self.is_over() {
            return;
        }
        let path = nic.and_then(|nic| self.node.into(nic, gpu));
        if nic.is_some() {
            let Some(path) = path.filter(|path| path.class <= self.goal.inter_class) else { return };
            if !self.reserve(path, self.goal.inter) {
                return;
            }
        }
        self.order.push(vec![gpu]);
        self.cards.extend(nic.map(|nic| (nic, nic)));
        self.visit(nic, by, 0);
        self.cards.truncate(self.order.len() - 1);
        self.order.pop();
        if let Some(path) = path {
            self.release(path, self.goal.inter);
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
                if self.reserve(path, speed) {
                    self.cards[channel].1 = out;
                    self.visit(Some(nic), by, returned + 1);
                    self.release(path, speed);
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
        if self.reserve(path, self.goal.intra) {
            then(self);
            self.release(path, self.goal.intra);
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
        let least = total(self.best.channels, self.best.intra_gbps) * self.goal.required_gain(&self.best);
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
pub(super) fn attempt(node: &NodeTopology, goal: Goal, best: &mut ChannelGraph) -> bool {
    let can = bound(node, &goal).min(goal.most);
    let more =
        can as f64 * goal.intra as f64 / 1000.0 > best.channels as f64 * best.intra_gbps * goal.required_gain(best);
    if can < goal.least || !more {
        return false;
    }
    let visits = if goal.is_same { VISITS_SAME } else { VISITS };
    let (capacity, order) = (node.capacity.clone(), Vec::new());
    let taken = std::mem::replace(best, ChannelGraph::none(goal.pattern));
    let within = Goal { most: can, ..goal };
    let nearest = (0..node.nics).map(|nic| nearest(node, nic)).collect();
    let mut trial = Trial {
        node,
        capacity,
        goal: within,
        nearest,
        order,
        cards: Vec::new(),
        best: taken,
        visits,
        is_perfect: false,
    };
    trial.next_channel();
    *best = trial.best;
    trial.is_perfect && can == goal.most
}

pub(super) fn to_thousandths(gbps: f64) -> i64 {
    (gbps * 1000.0).round() as i64
}

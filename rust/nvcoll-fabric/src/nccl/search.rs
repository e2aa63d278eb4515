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
use super::graph::{ChannelGraph, GraphPattern, LAST_RESORT_GBPS};
use super::names::PathClass;
use super::node::NodeTopology;
use super::settings::CrossNic;
use super::trial::{attempt, to_thousandths, Goal};

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
    let speeds = constants.speeds_gbps(node.nics > 0);
    let mut best = search_speeds(node, constants, speeds, pattern, least, most);
    if constants.duplicate == Duplicate::First {
        duplicate(&mut best, constants, most);
    }
    raise_speed(node, constants, speeds, &mut best, pattern, most);
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
fn search_speeds(
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
            let goal = Goal { intra: speed, inter: speed, crossing, ..Goal::reached_by(&best, constants, least, most) };
            if search_classes(node, goal, patterns, (&inner, &outer), &mut best) {
                return best;
            }
        }
    }
    best
}

/// Tries classes of paths from the best on, with the speed and the use of network cards of a goal: those inside the node
/// (`inner`) and to the network (`outer`). Returns whether nothing can be better.
fn search_classes(
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
fn raise_speed(
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
        attempt(node, Goal { intra: tried, inter, ..Goal::reached_by(best, constants, least, most) }, best);
    }
}

/// Finds NVLS channels: GPU k pulls channel k. The link of a GPU carries each channel once, and its own channel twice.
///
/// ```text
/// one node      one channel per GPU: (n + 1) x speed <= bandwidth of a GPU to the switch
/// several       one channel per network card with a GPU of its own
/// ```
pub(super) fn find_nvls(node: &NodeTopology, constants: &VersionConstants) -> ChannelGraph {
    let mut best = ChannelGraph::none(GraphPattern::Tree);
    let cards = nearest_cards(node);
    let mut heads: Vec<usize> = (0..node.nics).filter_map(|nic| head_of(node.nics, &cards, nic)).collect();
    heads.sort_unstable();
    heads.dedup();
    let several = node.nics > 0;
    let most = constants.nvls_heads.min(if several { heads.len() } else { node.gpus });
    let speeds = constants.speeds_gbps(several);
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

/// Returns the network cards nearest to each GPU. A GPU without a path to a card has none.
fn nearest_cards(node: &NodeTopology) -> Vec<Vec<usize>> {
    let nearest = |gpu: usize| {
        let class = |nic: usize| node.into(nic, gpu).map(|path| path.class);
        let best = (0..node.nics).filter_map(class).min();
        (0..node.nics).filter(|&nic| best.is_some() && class(nic) == best).collect()
    };
    (0..node.gpus).map(nearest).collect()
}

/// Returns the head of a network card: the first GPU whose own card it is. NCCL's channels take the nearest cards of a GPU in
/// turns, and each channel has one of them as the GPU's own.
fn head_of(nics: usize, cards: &[Vec<usize>], nic: usize) -> Option<usize> {
    let at_card = cards.iter().filter(|of_gpu| of_gpu.contains(&nic)).count();
    (0..nics).find_map(|channel| {
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

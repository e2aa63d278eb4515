//! Links and cuts that limit a ring, a tree or sends more than the GPUs' own links and the cards do.
//!
//! ```text
//! ring     every GPU to the next, and back                    of S, each crossing carries 2 (n-1)/n S, or (n-1)/n S
//! chain    from the first GPU to the last                     S
//! tree     a chain there and back, on one node                S each way
//! sends    all pairs that send, at once                       S/n; of sendrecv S
//!          rate of a crossing = rate of a long transfer on the link / number of crossings, one way
//! mesh     sends: the cuts of `floor.rs` with the rates of links in use; GPUs forward
//! network  sends: the same cuts, where they let less through than they would if switches blocked nothing
//!          rings and trees: the link between switches with the least rate for each card whose ring crosses it, where a ring
//!          visits the nodes in the order of ranks
//! staged   without GPUDirect RDMA: every card's GPU writes to host memory and the card reads there, and back; a link between a switch
//!          and its socket carries both, and so does the memory
//! egress   the largest flow from all GPUs of a node to its cards, with the rates of links in use
//! ```
//!
//! GPUs have the order of NCCL's channels, which carry equal bytes. Where NCCL's search finds no channel, and for sends,
//! it is the order of the ranks. The constants have the links at GPUs, the shares of GPUs on the link to their socket, and
//! NVLink that joins all GPUs. Nodes are equal, so inside nodes only the first is searched. Limitations: between nodes of one
//! GPU, rings and trees ignore links inside the node; no measured system has such a bottleneck, so these predictions are not
//! validated. Trees between nodes are taken to be held up as rings are. How a hash spreads the flows of sends is not known here.

use super::machine::{Interconnect, MachineSummary};
use super::pattern::Pattern;
use super::rates::UsedRates;
use crate::error::Result;
use crate::hardware::{DeviceKind, Fabric, Link};
use crate::nccl::Model;
use crate::topology::flow_network::FlowNetwork;
use crate::topology::max_flow::UNBOUNDED;
use crate::topology::route::Router;
use crate::units::Rate;

/// The part of the rate of a GPU's links below which a link is a bottleneck: rates are whole bytes per second. Chosen.
pub(super) const NARROWER: f64 = 1.0 - 1e-6;

/// A link that limits the transfers that cross it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bottleneck {
    pub(super) name: String,
    /// GB/s of a crossing, in use and at line rate.
    pub(super) gbps: f64,
    pub(super) line_gbps: f64,
}

/// A cut that limits sends on a mesh or in a network: the GPU's line rate in GB/s, and the part of its rate that passes the cut.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cut {
    pub(super) part: f64,
    pub(super) line_gbps: f64,
}

/// The narrowest link of each traffic pattern that is not at a GPU, if there is one.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Bottlenecks {
    pub(super) ring: Option<Bottleneck>,
    pub(super) chain: Option<Bottleneck>,
    pub(super) tree: Option<Bottleneck>,
    /// Of sends, for each of [`Pattern::ALL`].
    pub(super) sends: [Option<Bottleneck>; Pattern::ALL.len()],
    /// For each of [`Pattern::ALL`].
    pub(super) cuts: [Option<Cut>; Pattern::ALL.len()],
    /// GB/s that the GPUs of a node bring to its cards, if there are several nodes.
    pub(super) egress: Option<f64>,
    /// GB/s of a node at line rate where traffic with its cards passes host memory.
    pub(super) staged: Option<f64>,
    /// The link between switches that limits rings over nodes more than the cards do.
    pub(super) network: Option<Bottleneck>,
}

/// The pairs of GPUs between which bytes move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrafficPattern {
    /// To the next, and back to the first.
    Ring,
    /// From the first to the last.
    Chain,
    /// There and back.
    Tree,
    /// All senders of a pattern of sends.
    Sends(Pattern),
}

impl Bottlenecks {
    /// Finds the bottlenecks of each traffic pattern: in the first node of `seen`, a part that stands for the whole, and between
    /// nodes. Cuts are found by [`cut`].
    ///
    /// # Errors
    /// [`crate::Error::NoPath`].
    pub(super) fn of(
        whole: &Fabric,
        seen: &Fabric,
        machine: &MachineSummary,
        rates: &UsedRates,
        model: Option<&Model>,
    ) -> Result<Self> {
        let inside = Self::inside(seen, machine, model)?;
        let (egress, staged) = (egress(whole, machine, rates), staged(seen, machine)?);
        Ok(Self { egress, staged, network: network(whole, machine, rates)?, ..inside })
    }

    fn inside(fabric: &Fabric, machine: &MachineSummary, model: Option<&Model>) -> Result<Self> {
        if machine.interconnect == Interconnect::Nvlink {
            return Ok(Self::default());
        }
        let gbps = |link: &Link| link.rate().gbps();
        let inside = |visits: &[Visit]| narrowest(fabric, visits, |link| is_inner(fabric, link), gbps);
        let mut sends = <[Option<Bottleneck>; Pattern::ALL.len()]>::default();
        for pattern in Pattern::ALL.into_iter().filter(|pattern| pattern.is_of_sends()) {
            sends[pattern as usize] = inside(&sent(machine, pattern, fabric.world_size() - 1))?;
        }
        if machine.local() < 2 {
            return Ok(Self { sends, ..Self::default() });
        }
        let in_order = || vec![(0..machine.local() as usize).collect()];
        let orders = model.map(|model| model.rings().to_vec()).filter(|rings| !rings.is_empty());
        let orders = orders.unwrap_or_else(in_order);
        let narrowest = |traffic| inside(&visits(&orders, traffic, machine.nodes == 1));
        let (ring, chain, tree) =
            (narrowest(TrafficPattern::Ring)?, narrowest(TrafficPattern::Chain)?, narrowest(TrafficPattern::Tree)?);
        Ok(Self { ring, chain, tree, sends, ..Self::default() })
    }

    pub(super) fn of_traffic(&self, traffic: TrafficPattern) -> Option<&Bottleneck> {
        match traffic {
            TrafficPattern::Ring => self.ring.as_ref(),
            TrafficPattern::Chain => self.chain.as_ref(),
            TrafficPattern::Tree => self.tree.as_ref(),
            TrafficPattern::Sends(pattern) => self.sends[pattern as usize].as_ref(),
        }
    }

    /// Returns the GB/s of a crossing, in use; for sends, of S. Infinite if only links at GPUs are crossed.
    pub(super) fn gbps(&self, traffic: TrafficPattern) -> f64 {
        self.of_traffic(traffic).map_or(f64::INFINITY, |narrow| narrow.gbps)
    }
}

/// The pairs of ranks, first the pairs of one channel.
fn pairs(order: &[usize], traffic: TrafficPattern, is_closed: bool) -> Vec<(u32, u32)> {
    let mut order = order.to_vec();
    if traffic != TrafficPattern::Ring {
        // The root is the first rank.
        let root = order.iter().position(|&gpu| gpu == 0).unwrap_or(0);
        order.rotate_left(root);
    }
    let mut pairs: Vec<(u32, u32)> = order.windows(2).map(|pair| (pair[0] as u32, pair[1] as u32)).collect();
    match traffic {
        TrafficPattern::Ring if is_closed => pairs.push((order[order.len() - 1] as u32, order[0] as u32)),
        TrafficPattern::Tree => pairs.extend(pairs.clone().into_iter().map(|(from, to)| (to, from))),
        _ => {}
    }
    pairs
}

/// Two ranks, and the number of crossings from the first to the second.
type Visit = (u32, u32, f64);

/// Returns the pairs of a traffic pattern, whose bytes the channels share.
fn visits(orders: &[Vec<usize>], traffic: TrafficPattern, is_closed: bool) -> Vec<Visit> {
    let share = 1.0 / orders.len() as f64;
    let of_one = |order: &Vec<usize>| pairs(order, traffic, is_closed);
    orders.iter().flat_map(of_one).map(|(from, to)| (from, to, share)).collect()
}

/// Returns sender, receiver and part of S for each pair of a pattern of sends that crosses links of the first node. Bytes to
/// other nodes leave by the sender's card and arrive by the receiver's: the second node stands for all. `last` is the last
/// rank.
fn sent(machine: &MachineSummary, pattern: Pattern, last: u32) -> Vec<Visit> {
    let (n, local) = (machine.ranks, machine.local());
    let (each, outside) = (1.0 / f64::from(n), f64::from(n - local) / f64::from(n));
    let is_alone = machine.nodes == 1;
    let others = (0..local).filter(|_| !is_alone);
    let pairs: Vec<Visit> = match pattern {
        Pattern::AllToAll => {
            let inner = (0..local).flat_map(|from| (0..local).map(move |to| (from, to, each)));
            let outer = others.flat_map(|gpu| [(gpu, local + gpu, outside), (local + gpu, gpu, outside)]);
            inner.chain(outer).collect()
        }
        Pattern::SendRecv => {
            let ends = if is_alone { vec![(local - 1, 0, 1.0)] } else { vec![(local - 1, local, 1.0), (last, 0, 1.0)] };
            (1..local).map(|to| (to - 1, to, 1.0)).chain(ends).collect()
        }
        _ => {
            let outer = others.map(|gpu| (local + gpu, 0, outside / f64::from(local)));
            (1..local).map(|gpu| (gpu, 0, each)).chain(outer).collect()
        }
    };
    let is_of_root = pattern == Pattern::Scatter;
    let turned = |(from, to, times): Visit| if is_of_root { (to, from, times) } else { (from, to, times) };
    pairs.into_iter().filter(|(from, to, _)| from != to).map(turned).collect()
}

/// Says whether a link is neither at a GPU nor at a card: constants have those.
fn is_inner(fabric: &Fabric, link: &Link) -> bool {
    let is_end =
        |at: usize| matches!(fabric.devices[at].kind, DeviceKind::Gpu | DeviceKind::Nic | DeviceKind::NetworkSwitch);
    ![link.from, link.to].into_iter().any(is_end)
}

/// Finds the link with the lowest rate per crossing among the links that are `is_eligible`; `gbps` is the rate of a link in use.
///
/// # Errors
/// [`crate::Error::NoPath`].
fn narrowest(
    fabric: &Fabric,
    visits: &[Visit],
    is_eligible: impl Fn(&Link) -> bool,
    gbps: impl Fn(&Link) -> f64,
) -> Result<Option<Bottleneck>> {
    let mut router = Router::of(fabric);
    let mut crossings = vec![0.0; fabric.links.len()];
    for &(from, to, times) in visits {
        for link in router.route(fabric, from, to)?.links {
            crossings[link] += times;
        }
    }
    let crossed = fabric.links.iter().zip(&crossings).filter(|(link, &times)| times > 0.0 && is_eligible(link));
    let share = |(link, times): (&Link, &f64)| Bottleneck {
        name: format!("{} to {} ({})", device(fabric, link.from), device(fabric, link.to), link.medium.name),
        gbps: gbps(link) / times,
        line_gbps: link.line_rate().gbps() / times,
    };
    Ok(crossed.map(share).reduce(|least, next| if next.gbps < least.gbps { next } else { least }))
}

fn device(fabric: &Fabric, at: usize) -> &str {
    &fabric.devices[at].name
}

/// Finds the cut of the fabric that limits a pattern of sends more than the links of the GPUs do.
///
/// # Errors
/// As [`Fabric::floor`].
pub(super) fn cut(
    fabric: &Fabric,
    machine: &MachineSummary,
    rates: &UsedRates,
    pattern: Pattern,
) -> Result<Option<Cut>> {
    // The ports of a switch are the ports of its GPUs. Without NVLink there is one route, and GPUs do not forward.
    let is_mesh = machine.interconnect == Interconnect::Nvlink && !machine.has_switch;
    // Other patterns use one card per node, and no tier is narrower than a card.
    let is_wide = pattern != Pattern::AllToAll || !fabric.has_tiers();
    if !pattern.is_of_sends() || !is_mesh && is_wide {
        return Ok(None);
    }
    let gpu_gbps = |algbw: Option<Rate>| algbw.map(|rate| rate.gbps() * pattern.sent(f64::from(machine.ranks)));
    let in_use = |link: &Link| rates.of_link(fabric, machine, link);
    let gbps = gpu_gbps(pattern.bound(fabric, in_use)?.algbw).unwrap_or(f64::INFINITY);
    if !is_mesh {
        // More than all GPUs send; sums of such rates still fit.
        let unblocked = |link: &Link| if is_between(fabric, link) { Rate(UNBOUNDED << 12) } else { in_use(link) };
        let open = gpu_gbps(pattern.bound(fabric, unblocked)?.algbw).unwrap_or(f64::INFINITY);
        if gbps >= NARROWER * open {
            return Ok(None);
        }
    }
    let line_gbps = gpu_gbps(pattern.floor(fabric)?.algbw).unwrap_or(f64::INFINITY);
    let part = gbps / rates.bidirectional_gbps;
    Ok((part < NARROWER).then_some(Cut { part, line_gbps }))
}

/// Says whether a link joins two switches of a network.
fn is_between(fabric: &Fabric, link: &Link) -> bool {
    [link.from, link.to].iter().all(|&end| fabric.devices[end].kind == DeviceKind::NetworkSwitch)
}

/// The most nodes whose links to the next are looked at. Chosen: groups repeat.
const MOST_NODES: u32 = 256;

/// Finds the link between switches that limits rings over the nodes more than their cards do; its rate is the rate of a node.
///
/// # Errors
/// [`crate::Error::NoPath`].
fn network(fabric: &Fabric, machine: &MachineSummary, rates: &UsedRates) -> Result<Option<Bottleneck>> {
    let Some(between) = machine.network.as_ref().filter(|_| fabric.has_tiers()) else { return Ok(None) };
    let local = machine.local();
    let used = local.min(between.cards);
    let hops = (0..machine.nodes.min(MOST_NODES)).flat_map(|node| {
        let next = (node + 1) % machine.nodes * local;
        (0..used)
            .map(|card| card * local / used)
            .map(move |gpu| (node * local + gpu, next + gpu, 1.0 / f64::from(used)))
    });
    let hops: Vec<Visit> = hops.collect();
    let gbps = |link: &Link| rates.of_link(fabric, machine, link).gbps();
    let narrowest = narrowest(fabric, &hops, |link| is_between(fabric, link), gbps)?;
    let cards = rates.cards.map_or(0.0, |(used, _)| used);
    Ok(narrowest.filter(|narrow| narrow.gbps < NARROWER * cards))
}

/// Returns the GB/s of a node whose traffic with its cards passes host memory, at line rate; none with GPUDirect RDMA.
///
/// # Errors
/// [`crate::Error::NoPath`].
fn staged(fabric: &Fabric, machine: &MachineSummary) -> Result<Option<f64>> {
    let Some(network) = machine.network.as_ref().filter(|_| !machine.is_direct) else { return Ok(None) };
    let local = machine.local();
    let used = local.min(network.cards);
    let share = 1.0 / f64::from(used);
    let gpus = (0..used).map(|card| card * local / used);
    let visits: Vec<Visit> = gpus.flat_map(|gpu| [(gpu, local + gpu, share), (local + gpu, gpu, share)]).collect();
    // Cards have a rate of their own, and a GPU may have several.
    let is_card = |&end: &usize| matches!(fabric.devices[end].kind, DeviceKind::Nic | DeviceKind::NetworkSwitch);
    let is_inside = |link: &Link| ![link.from, link.to].iter().any(is_card);
    Ok(narrowest(fabric, &visits, is_inside, |link| link.line_rate().gbps())?.map(|narrow| narrow.gbps))
}

/// Returns the GB/s that the GPUs of the first node can bring to its network cards; none for one node.
fn egress(fabric: &Fabric, machine: &MachineSummary, rates: &UsedRates) -> Option<f64> {
    rates.cards?;
    let rate = |link: &Link| rates.of_link(fabric, machine, link);
    let node: Vec<usize> = fabric.gpus().into_iter().take(machine.local() as usize).collect();
    let is_own = |&card: &usize| fabric.devices[card].node == fabric.devices[node[0]].node;
    let cards: Vec<usize> = fabric.of_kind(DeviceKind::Nic).filter(is_own).collect();
    Some(Rate(FlowNetwork::of(fabric, rate).between(&node, &cards)).gbps())
}

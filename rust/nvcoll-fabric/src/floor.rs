//! The floor: the time that no schedule undercuts on a fabric, however clever.
//!
//! ```text
//! floor = the largest of   bytes that must cross a cut / what the cut lets through
//!                          bytes that must be sent in all / what all send together
//!         + latency from one end to the other
//! ```
//!
//! N is the size as nccl-tests counts it: the longer buffer of a rank; s, the GPUs on the side S of a cut that sends.
//!
//! | collective | crosses a cut | is sent in all |
//! |---|---|---|
//! | all_reduce | N | 2 N (n-1); where the switch reduces and multicasts, each GPU sends N min(1 + 1/n, 2 (n-1)/n) |
//! | all_gather, reduce_scatter | N s/n | |
//! | broadcast, reduce, scan | N from or to the root | |
//! | gather, scatter | N (n-1)/n to or from the root | |
//! | all_to_all | N s (n-s) / n | |
//!
//! For all_gather the worst of all 2^n cuts is found: if every GPU offers x and each can receive n x, no cut is in the way; a
//! maximal flow finds that out or a cut S that lets less through, and x becomes B(S)/s (Dinkelbach, 1967). GPUs may pass on
//! what they receive, and what is staged passes memory. Between nodes, where no switch folds, the volume of all_reduce is
//! bounded for nodes as it is for GPUs. all_to_all is bounded by GPUs, nodes, halves of all and of a node, and by what joins
//! groups of nodes to the others. Of many groups some are looked at.
//!
//! Links count at line rate: efficiencies are fitted to measurements, some measurements exceed them, and no measurement may fall
//! below a floor. Source: the cut bound of ForestColl (Zhao et al., 2024), the volume of Patarasuk and Yuan (2009).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashSet};
use std::iter;

use nvcoll_core::collective::{Collective, CollectiveKind};

use crate::error::Result;
use crate::hardware::{Fabric, Link};
use crate::topology::equal_nodes::EqualNodes;
use crate::topology::flow_network::FlowNetwork;
use crate::topology::max_flow::UNBOUNDED;
use crate::topology::route::Router;
use crate::units::{Ps, Rate};

/// The least time of a collective on a fabric, as a line over its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Floor {
    /// The most algbw; none if no byte must move.
    pub algbw: Option<Rate>,
    /// What even an empty call takes.
    pub latency: Ps,
}

impl Floor {
    /// Returns the least time for `nbytes`.
    pub fn time(&self, nbytes: u64) -> Ps {
        self.latency + self.algbw.map_or(0, |rate| rate.time(nbytes))
    }
}

impl Fabric {
    /// Finds the floor of a collective; its root, if it has one, is rank 0.
    ///
    /// # Errors
    /// [`crate::Error::NoPath`].
    pub fn floor(&self, collective: &Collective) -> Result<Floor> {
        self.bound(collective, Link::line_rate)
    }

    /// As [`Fabric::floor`], with links that carry `rate`.
    pub(crate) fn bound(&self, collective: &Collective, rate: impl Fn(&Link) -> Rate) -> Result<Floor> {
        if self.world_size() == 1 {
            return Ok(Floor { algbw: None, latency: 0 });
        }
        let latency = match (EqualNodes::of(self), EqualNodes::in_groups(self)) {
            // Between two ranks of equal nodes no quickest way needs more than three nodes.
            (Some(equal_nodes), _) => equal_nodes.first(self, 3).reach()?,
            (None, Some(_)) => self.least_latency()?,
            (None, None) => self.reach()?,
        };
        let cuts = Cuts::of(self, rate);
        let n = cuts.gpus.len() as u64;
        let bytes_per_second = match collective.kind {
            CollectiveKind::AllReduce => cuts.all_reduce(self.abilities.switch_reduction && self.abilities.multicast),
            CollectiveKind::AllGather | CollectiveKind::ReduceScatter => n * cuts.shard(),
            CollectiveKind::Broadcast | CollectiveKind::Scan | CollectiveKind::Exscan => cuts.rate_of_first(),
            CollectiveKind::Reduce => cuts.rate_to_first(),
            CollectiveKind::Scatter => times(cuts.from(&cuts.gpus[..1]), n, n - 1),
            CollectiveKind::Gather => times(cuts.from(&cuts.gpus[1..]), n, n - 1),
            CollectiveKind::AllToAll => cuts.all_to_all(),
            CollectiveKind::Barrier => return Ok(Floor { algbw: None, latency }),
        };
        Ok(Floor { algbw: Some(Rate(bytes_per_second)), latency })
    }

    /// Returns the latency from rank 0 to the farthest other by the quickest way: routes are chosen by rate, and a
    /// schedule may pass on what it receives (Dijkstra 1959; it ends when nobody can be reached sooner).
    fn reach(&self) -> Result<Ps> {
        let (n, mut router) = (self.world_size(), Router::of(self));
        let mut latencies = vec![Ps::MAX; n as usize];
        latencies[0] = 0;
        let mut waiting: Vec<u32> = (0..n).collect();
        loop {
            let nearest = (0..waiting.len()).min_by_key(|&at| latencies[waiting[at] as usize]);
            let farthest = latencies.iter().copied().max().unwrap_or(0);
            let Some(by) = nearest.map(|at| waiting.swap_remove(at)).filter(|&by| latencies[by as usize] < farthest)
            else {
                return Ok(farthest);
            };
            for &to in &waiting {
                let through = latencies[by as usize].saturating_add(router.route(self, by, to)?.latency(self));
                latencies[to as usize] = latencies[to as usize].min(through);
            }
        }
    }
}

impl Fabric {
    /// Returns the latency from rank 0 to the farthest other over the quickest links, whatever the routes (Dijkstra 1959):
    /// no more than [`Fabric::reach`], which looks at every pair of ranks.
    fn least_latency(&self) -> Result<Ps> {
        let (gpus, mut leaving) = (self.gpus(), vec![Vec::new(); self.devices.len()]);
        self.links.iter().for_each(|link| leaving[link.from].push((link.to, link.latency())));
        let mut latencies = vec![Ps::MAX; self.devices.len()];
        let mut waiting = BinaryHeap::from([Reverse((0, gpus[0]))]);
        while let Some(Reverse((latency, at))) = waiting.pop() {
            if latency < latencies[at] {
                latencies[at] = latency;
                waiting.extend(leaving[at].iter().map(|(to, more)| Reverse((latency + more, *to))));
            }
        }
        let unreached = (0..gpus.len()).find(|&rank| latencies[gpus[rank]] == Ps::MAX);
        // It says why there is no way.
        unreached.map_or(Ok(()), |rank| self.route(0, rank as u32).map(|_| ()))?;
        Ok(gpus.iter().map(|&gpu| latencies[gpu]).max().unwrap_or(0))
    }
}

/// The most groups of nodes whose cuts are all looked at. Chosen: a flow in a graph of hundreds takes milliseconds.
const MOST_GROUPS: usize = 16;

/// Cuts of a fabric, in bytes per second.
struct Cuts {
    flows: FlowNetwork,
    /// Positions of the GPUs.
    gpus: Vec<usize>,
    /// For each node, its GPUs. Nodes of a cluster are alike.
    nodes: Vec<Vec<usize>>,
    /// For each group of nodes that can change places, these nodes.
    groups: Vec<Vec<usize>>,
    /// For each node, what leaves it; for each device, too.
    out: Vec<u64>,
    ports: Vec<u64>,
}

impl Cuts {
    fn of(fabric: &Fabric, rate: impl Fn(&Link) -> Rate) -> Self {
        let gpus = fabric.gpus();
        let mut of_node: BTreeMap<Option<u32>, Vec<usize>> = BTreeMap::new();
        gpus.iter().for_each(|&gpu| of_node.entry(fabric.devices[gpu].node).or_default().push(gpu));
        let (mut leaving, mut ports) = (vec![0; fabric.nodes() as usize], vec![0; fabric.devices.len()]);
        for link in &fabric.links {
            ports[link.from] += rate(link).0;
            let node = fabric.devices[link.from].node.filter(|&node| fabric.devices[link.to].node != Some(node));
            node.into_iter().for_each(|node| leaving[node as usize] += rate(link).0);
        }
        let out = of_node.keys().map(|node| node.map_or(0, |node| leaving[node as usize])).collect();
        let nodes: Vec<Vec<usize>> = of_node.into_values().collect();
        let groups = match EqualNodes::in_groups(fabric).filter(|found| found.nodes == nodes.len()) {
            None => (0..nodes.len()).map(|node| vec![node]).collect(),
            Some(found) => {
                let mut groups = vec![Vec::new(); found.groups.len()];
                found.group_of.iter().enumerate().for_each(|(node, &group)| groups[group].push(node));
                groups
            }
        };
        Self { flows: FlowNetwork::of(fabric, rate), gpus, nodes, groups, out, ports }
    }

    /// What some GPUs can send to all others.
    fn from(&self, inside: &[usize]) -> u64 {
        let is_inside: HashSet<usize> = inside.iter().copied().collect();
        let others: Vec<usize> = self.gpus.iter().copied().filter(|gpu| !is_inside.contains(gpu)).collect();
        self.flows.between(inside, &others)
    }

    /// Returns the groups at which cuts are looked at, the first among them.
    fn some_groups(&self) -> impl Iterator<Item = &Vec<usize>> {
        self.groups.iter().step_by(self.groups.len().div_ceil(MOST_GROUPS))
    }

    /// Returns the GPUs that stand for all but the first GPU: the GPUs of the first two nodes of its group, and of a node of
    /// each other group.
    fn others(&self) -> Vec<usize> {
        let gpus = |(nth, group): (usize, &Vec<usize>)| {
            let nodes = if nth == 0 { 2 } else { 1 };
            group.iter().take(nodes).flat_map(|&node| self.nodes[node].clone()).collect::<Vec<_>>()
        };
        self.some_groups().enumerate().flat_map(gpus).filter(|&gpu| gpu != self.gpus[0]).collect()
    }

    /// The least that the first GPU can send to another.
    fn rate_of_first(&self) -> u64 {
        let rates = self.others().into_iter().map(|other| self.flows.between(&self.gpus[..1], &[other]));
        rates.min().unwrap_or(UNBOUNDED)
    }

    /// The least that another GPU can send to the first.
    fn rate_to_first(&self) -> u64 {
        let rates = self.others().into_iter().map(|other| self.flows.between(&[other], &self.gpus[..1]));
        rates.min().unwrap_or(UNBOUNDED)
    }

    fn all_reduce(&self, folds_in_switch: bool) -> u64 {
        let (n, cut) = (self.gpus.len() as u64, self.rate_of_first().min(self.rate_to_first()));
        let of_nodes = if self.nodes.len() > 1 { self.volume(true) } else { UNBOUNDED };
        let port = || self.nodes[0].iter().map(|&gpu| self.from(&[gpu])).min().unwrap_or(UNBOUNDED);
        let of_gpus = match (folds_in_switch, self.nodes.len()) {
            // A schedule need not use the switch: two GPUs that exchange their buffers send N each.
            (true, 1) => times(port(), n, (n + 1).min(2 * (n - 1))),
            (true, _) => port(),
            (false, _) => self.volume(false),
        };
        cut.min(of_nodes).min(of_gpus)
    }

    /// The algbw of an all_reduce among parties whose switches do not fold: nodes, or GPUs.
    fn volume(&self, are_nodes: bool) -> u64 {
        let parties = |node: usize| self.nodes[node].chunks(if are_nodes { self.nodes[node].len() } else { 1 });
        let (mut sent, mut count) = (0, 0);
        for (nth, group) in self.groups.iter().enumerate() {
            // For other groups: the port rates, an upper bound of the flow.
            let of_first: u64 = match (nth < MOST_GROUPS, are_nodes) {
                (true, _) => parties(group[0]).map(|party| self.from(party)).sum(),
                (false, true) => self.out[group[0]],
                (false, false) => self.nodes[group[0]].iter().map(|&gpu| self.ports[gpu]).sum(),
            };
            sent += of_first * group.len() as u64;
            count += (parties(group[0]).len() * group.len()) as u64;
        }
        sent / (2 * (count - 1))
    }

    /// The most that each GPU can offer so that every other can receive it from all.
    fn shard(&self) -> u64 {
        let mut offer = self.from(&self.gpus[1..]) / (self.gpus.len() as u64 - 1);
        for &receiver in &self.nodes[0] {
            while let Some(less) = self.flows.less_than(offer, &self.gpus, receiver) {
                offer = less;
            }
        }
        offer
    }

    fn all_to_all(&self) -> u64 {
        let n = self.gpus.len() as u64;
        let singles = self.nodes[0].iter().map(std::slice::from_ref);
        let nodes = self.nodes.iter().take(1).filter(|node| node.len() < self.gpus.len()).map(Vec::as_slice);
        let half = |gpus: &[usize]| gpus.len().div_ceil(2);
        let halves = [&self.gpus[..half(&self.gpus)], &self.nodes[0][..half(&self.nodes[0])]];
        let halves = halves.into_iter().take(self.nodes.len());
        let first = |groups: usize| self.groups[..groups].iter().flatten().flat_map(|&node| self.nodes[node].clone());
        let by = self.groups.len().div_ceil(MOST_GROUPS);
        let joined: Vec<Vec<usize>> = iter::once(1)
            .chain((by..self.groups.len()).step_by(by))
            .take_while(|&groups| groups < self.groups.len())
            .map(|groups| first(groups).collect())
            .collect();
        let algbw = |inside: &[usize]| {
            let s = inside.len() as u64;
            times(self.from(inside), n, s * (n - s))
        };
        singles.chain(nodes).chain(halves).chain(joined.iter().map(Vec::as_slice)).map(algbw).min().unwrap_or(UNBOUNDED)
    }
}

fn times(rate: u64, by: u64, over: u64) -> u64 {
    (u128::from(rate) * u128::from(by) / u128::from(over)) as u64
}

#[cfg(test)]
mod tests {
    use nvcoll_core::collective::ALL_REDUCE;

    use super::EqualNodes;
    use crate::machines::preset;
    use crate::topology::cluster::{cluster, network};

    #[test]
    fn three_nodes_reach_as_far_as_all_equal_nodes() {
        for (node, net) in [("hgx-h100", "ib-ndr-8"), ("dgx1-v100", "ib-hdr-4"), ("rtx4090-4-staged", "ib-ndr-1")] {
            let all = cluster(&preset(node).unwrap(), 6, network(net).unwrap()).unwrap();
            let few = EqualNodes::of(&all).unwrap().first(&all, 3);
            assert_eq!(few.world_size(), all.world_size() / 2);
            assert_eq!(few.reach().unwrap(), all.reach().unwrap(), "{}", all.name);
        }
    }

    #[test]
    fn thousands_of_nodes_have_a_bound_too() {
        let node = preset("hgx-h100").unwrap();
        let of = |nodes| cluster(&node, nodes, network("ib-ndr-8").unwrap()).unwrap().floor(&ALL_REDUCE).unwrap();
        assert_eq!(of(4096).latency, of(8).latency);
        assert!(of(4096).algbw < of(8).algbw && of(4096).algbw > None);
    }
}

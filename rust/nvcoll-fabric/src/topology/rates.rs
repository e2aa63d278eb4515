//! The rates of pairs of GPUs, alone and all at once, and of cuts.
//!
//! The first is what a bandwidth test of two GPUs prints; the second, every ordered pair sending at the same time, is what an
//! all_to_all meets. On an NVSwitch they differ by the number of GPUs; on a hybrid cube mesh some pairs keep their own link.

use std::collections::{HashMap, HashSet};

use nvcoll_core::interrupt::{Interrupt, UNITS_PER_QUESTION};

use crate::error::{Error, Result};
use crate::hardware::{Fabric, Link};
use crate::max_min::{share, share_among_classes};
use crate::topology::equal_nodes::EqualNodes;
use crate::topology::flow_network::FlowNetwork;
use crate::topology::route::{Route, Router};
use crate::units::Rate;

/// The work of a search in the units in which interrupts count. Chosen: some microseconds, against steps of nanoseconds.
const UNITS_PER_ROUTE: usize = (UNITS_PER_QUESTION / 64) as usize;

/// The largest number of GPUs with a search of every pair, where nodes that can change places count once. Chosen: half a minute.
const MOST_SEARCHED: u32 = 512;

/// For each rank, the rate that it reaches to each other rank, `None` to itself.
pub type RateMatrix = Vec<Vec<Option<Rate>>>;

impl Fabric {
    /// Returns the routes between all pairs: row `from`, column `to`.
    ///
    /// # Errors
    /// [`Error::NoPath`].
    pub fn routes(&self) -> Result<Vec<Vec<Route>>> {
        self.routes_among(self.world_size(), &Interrupt::never())
    }

    /// Returns the routes between all pairs of the first ranks.
    ///
    /// # Errors
    /// [`Error::NoPath`]; [`Error::Interrupted`].
    pub fn routes_among(&self, ranks: u32, interrupt: &Interrupt) -> Result<Vec<Vec<Route>>> {
        let (ranks, mut router) = (0..ranks.min(self.world_size()), Router::of(self));
        let row = |from| -> Result<Vec<Route>> {
            interrupt.check(UNITS_PER_ROUTE * ranks.len()).map_err(|_| Error::Interrupted)?;
            ranks.clone().map(|to| router.route(self, from, to)).collect()
        };
        ranks.clone().map(row).collect()
    }

    /// Returns the rate of each pair when nothing else moves.
    ///
    /// # Errors
    /// [`Error::NoPath`].
    pub fn alone(&self) -> Result<RateMatrix> {
        self.alone_among(self.world_size(), &Interrupt::never())
    }

    /// Returns the rate of each pair of the first ranks when nothing else moves.
    ///
    /// # Errors
    /// [`Error::NoPath`]; [`Error::Interrupted`].
    pub fn alone_among(&self, ranks: u32, interrupt: &Interrupt) -> Result<RateMatrix> {
        let times = |route: &Route, link: usize| route.links.iter().filter(|&&other| other == link).count();
        let part = |route: &Route, link: usize| self.links[link].rate().0 as f64 / times(route, link) as f64;
        let rate = |route: &Route| route.links.iter().map(|&link| Rate(part(route, link) as u64)).min();
        Ok(self.routes_among(ranks, interrupt)?.iter().map(|row| row.iter().map(rate).collect()).collect())
    }

    /// Returns the rate of each pair when every pair sends, both ways.
    ///
    /// # Errors
    /// [`Error::NoPath`].
    pub fn at_once(&self) -> Result<RateMatrix> {
        self.at_once_among(self.world_size(), &Interrupt::never())
    }

    /// Returns the rate of each pair of the first ranks when every pair of all ranks sends, both ways. In a cluster of equal
    /// nodes, pairs that differ only in the nodes of two groups have one rate: routes are searched in two nodes of each
    /// group. Where a hash takes the ways of flows, all pairs are searched.
    ///
    /// # Errors
    /// [`Error::NoPath`]; [`Error::Interrupted`]; [`Error::Unable`] if there are too many pairs to search.
    pub fn at_once_among(&self, ranks: u32, interrupt: &Interrupt) -> Result<RateMatrix> {
        let shown = ranks.min(self.world_size()) as usize;
        let equal_nodes = EqualNodes::in_groups(self).filter(|_| !self.has_parallel_ways());
        let groups = equal_nodes.as_ref().map_or(self.nodes(), |found| found.groups.len() as u32);
        let searched = self.world_size() / self.nodes().max(1) * groups;
        if searched > MOST_SEARCHED {
            let message = format!(
                "rates of all pairs at once are for {MOST_SEARCHED} GPUs at most, not {searched} (of nodes at the same \
                 switches one counts, unless a hash selects paths): take fewer nodes, or simulate a schedule"
            );
            return Err(Error::Unable { fabric: self.name.clone(), message });
        }
        if let Some(equal_nodes) = equal_nodes {
            return self.at_once_of_groups(&equal_nodes, shown, interrupt);
        }
        let routes = self.routes_among(self.world_size(), interrupt)?;
        let all: Vec<&[usize]> = routes.iter().flatten().map(|route| route.links.as_slice()).collect();
        let rates = share(&all, &self.capacities());
        let some = |(route, rate): (&&[usize], &Rate)| Some(*rate).filter(|_| !route.is_empty());
        let flat: Vec<_> = all.iter().zip(&rates).map(some).collect();
        Ok(flat.chunks(routes.len()).take(shown).map(|row| row[..shown].to_vec()).collect())
    }

    /// Shares links among classes of pairs: the groups of their nodes, their GPUs in these, and whether the nodes are one. A
    /// link of the first node of a group stands for the same link of every node of it.
    fn at_once_of_groups(&self, equal_nodes: &EqualNodes, shown: usize, interrupt: &Interrupt) -> Result<RateMatrix> {
        let EqualNodes { groups, group_of, nodes, .. } = equal_nodes;
        let local = self.world_size() as usize / nodes;
        let second = |group: usize| (0..*nodes).filter(|&node| group_of[node] == group).nth(1);
        // Two nodes for each class of pairs of nodes, the node of the sender being the first of its group.
        let mut places: HashMap<(usize, usize, bool), usize> = HashMap::new();
        let mut ends = Vec::new();
        for (from, &(sender, _)) in groups.iter().enumerate() {
            for (to, &(receiver, _)) in groups.iter().enumerate() {
                let other = if from == to { second(from) } else { Some(receiver) };
                let own = Some(sender).filter(|_| from == to);
                for (node, is_one) in own.map(|node| (node, true)).into_iter().chain(other.map(|node| (node, false))) {
                    places.insert((from, to, is_one), ends.len());
                    ends.push((from, to, is_one, sender, node));
                }
            }
        }
        let (mut router, mut classes) = (Router::of(self), Vec::with_capacity(ends.len() * local * local));
        for &(from, to, is_one, sender, receiver) in &ends {
            let own = usize::from(from == to);
            // Flows of a class that a node of the sender's group sends, and that one of the receiver's group receives.
            let (sent, received) = if is_one { (1, 1) } else { (groups[to].1 - own, groups[from].1 - own) };
            interrupt.check(UNITS_PER_ROUTE * local * local).map_err(|_| Error::Interrupted)?;
            for (i, j) in (0..local).flat_map(|i| (0..local).map(move |j| (i, j))) {
                let route = router.route(self, (sender * local + i) as u32, (receiver * local + j) as u32)?;
                let crossed = |&link: &usize| match link.checked_sub(equal_nodes.shared_links) {
                    None => (link, (sent * groups[from].1) as u64),
                    Some(nth) => {
                        let node = nth / equal_nodes.node_links;
                        let first = equal_nodes.links_of(groups[group_of[node]].0).start;
                        let flows = if node == sender { sent } else { received };
                        (first + nth % equal_nodes.node_links, flows as u64)
                    }
                };
                classes.push(route.links.iter().map(crossed).collect::<Vec<_>>());
            }
        }
        let rates = share_among_classes(classes, &self.capacities());
        let rate = |from: usize, to: usize| {
            let (sender, receiver) = (from / local, to / local);
            let place = places[&(group_of[sender], group_of[receiver], sender == receiver)];
            Some(rates[(place * local + from % local) * local + to % local]).filter(|_| from != to)
        };
        Ok((0..shown).map(|from| (0..shown).map(|to| rate(from, to)).collect()).collect())
    }

    /// Returns the rate at which the ranks `inside` can send to all others: the least that any cut between them lets through.
    ///
    /// GPUs forward nothing; host-staged transfers pass memory.
    ///
    /// # Panics
    /// If a rank is not below the number of ranks.
    pub fn cut(&self, inside: &[u32]) -> Rate {
        let gpus = self.gpus();
        let sources: Vec<usize> = inside.iter().map(|&rank| gpus[rank as usize]).collect();
        let is_source: HashSet<usize> = sources.iter().copied().collect();
        let sinks: Vec<usize> = gpus.iter().copied().filter(|gpu| !is_source.contains(gpu)).collect();
        Rate(FlowNetwork::of(self, Link::rate).between(&sources, &sinks))
    }

    pub(crate) fn capacities(&self) -> Vec<Rate> {
        self.links.iter().map(|link| link.rate()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::share;
    use crate::hardware::network::{Network, Tier};
    use crate::machines::preset;
    use crate::topology::cluster::{cluster, network};
    use crate::topology::equal_nodes::EqualNodes;
    use crate::Fabric;

    #[test]
    fn one_node_stands_for_all_equal_nodes() {
        for (node, net) in [
            ("hgx-h100", "ib-ndr-8"),
            ("dgx1-v100", "ib-hdr-4"),
            ("rtx4090-4-staged", "ib-ndr-1"),
            ("hgx-a100-4", "ib-hdr-4"),
        ] {
            let shipped = network(net).unwrap();
            let tier = |children, part| Tier { children, oversubscription: part, ..Tier::default() };
            let tree = Network { tiers: vec![tier(Some(2), Some(2.0)), tier(None, None)], ..shipped.clone() };
            for (nodes, network) in [(4, shipped), (5, &tree)] {
                is_as_if_each_pair_were_searched(&cluster(&preset(node).unwrap(), nodes, network).unwrap());
            }
        }
    }

    fn is_as_if_each_pair_were_searched(all: &Fabric) {
        assert!(EqualNodes::in_groups(all).is_some(), "{}", all.name);
        let routes = all.routes().unwrap();
        let flat: Vec<&[usize]> = routes.iter().flatten().map(|route| route.links.as_slice()).collect();
        let found = all.at_once().unwrap();
        for (found, (rate, route)) in found.iter().flatten().zip(share(&flat, &all.capacities()).iter().zip(&flat)) {
            match found {
                None => assert!(route.is_empty()),
                Some(found) => assert!(found.0.abs_diff(rate.0) <= rate.0 / 1_000_000, "{found:?}, not {rate:?}"),
            }
        }
    }

    #[test]
    fn some_rows_are_those_of_the_whole_and_of_thousands_of_nodes_too() {
        let four = cluster(&preset("hgx-h100").unwrap(), 4, network("ib-ndr-8").unwrap()).unwrap();
        let never = &nvcoll_core::interrupt::Interrupt::never();
        let (alone, at_once) = (four.alone().unwrap(), four.at_once().unwrap());
        for (rank, row) in four.alone_among(10, never).unwrap().iter().enumerate() {
            assert_eq!(row[..], alone[rank][..10]);
        }
        for (rank, row) in four.at_once_among(10, never).unwrap().iter().enumerate() {
            assert_eq!(row[..], at_once[rank][..10]);
        }
        let many = cluster(&preset("hgx-h100").unwrap(), 4096, network("ib-ndr-8").unwrap()).unwrap();
        assert_eq!(many.at_once_among(16, never).unwrap().len(), 16);
        assert_eq!(many.matrix_among(16, never).unwrap()[0][8], "NET");
    }

    #[test]
    fn a_search_of_all_routes_can_be_interrupted() {
        let many = cluster(&preset("hgx-h100").unwrap(), 512, network("ib-ndr-8").unwrap()).unwrap();
        let interrupt = nvcoll_core::interrupt::Interrupt::when(|| true);
        assert_eq!(many.alone_among(u32::MAX, &interrupt), Err(crate::Error::Interrupted));
    }
}

//! The registry: one line for each algorithm.

use super::row::Algorithm;
use super::{
    binomial_tree, bruck, chain, direct, halving_doubling, neighbor_exchange, nvswitch, one_shot, pairwise, pat,
    recursive_doubling, recursive_doubling_scan, recursive_halving, ring, scatter_all_gather, tree, two_level,
    two_shot,
};
use crate::collective::Collective;

/// Every algorithm, the default of its collective first.
pub static ALGORITHMS: &[&Algorithm] = &[
    &nvswitch::ALL_REDUCE,
    &one_shot::ALL_REDUCE,
    &two_shot::ALL_REDUCE,
    &ring::ALL_REDUCE,
    &tree::ALL_REDUCE,
    &recursive_doubling::ALL_REDUCE,
    &halving_doubling::ALL_REDUCE,
    &two_level::ALL_REDUCE,
    &two_level::ALL_REDUCE_BY_HALVING,
    &nvswitch::REDUCE_SCATTER,
    &direct::REDUCE_SCATTER,
    &ring::REDUCE_SCATTER,
    &recursive_halving::REDUCE_SCATTER,
    &pat::REDUCE_SCATTER,
    &nvswitch::ALL_GATHER,
    &direct::ALL_GATHER,
    &ring::ALL_GATHER,
    &recursive_doubling::ALL_GATHER,
    &bruck::ALL_GATHER,
    &neighbor_exchange::ALL_GATHER,
    &pat::ALL_GATHER,
    &direct::BROADCAST,
    &tree::BROADCAST,
    &chain::BROADCAST,
    &scatter_all_gather::BROADCAST,
    &direct::REDUCE,
    &tree::REDUCE,
    &chain::REDUCE,
    &direct::GATHER,
    &binomial_tree::GATHER,
    &direct::SCATTER,
    &binomial_tree::SCATTER,
    &direct::ALL_TO_ALL,
    &pairwise::ALL_TO_ALL,
    &bruck::ALL_TO_ALL,
    &direct::SCAN,
    &recursive_doubling_scan::SCAN,
    &chain::SCAN,
    &direct::EXSCAN,
    &recursive_doubling_scan::EXSCAN,
    &direct::BARRIER,
];

/// Yields the algorithms of a collective, the default first. `auto` is the default if no size is known.
pub fn of(collective: &'static Collective) -> impl Iterator<Item = &'static Algorithm> {
    ALGORITHMS.iter().copied().filter(move |a| a.collective.kind == collective.kind)
}

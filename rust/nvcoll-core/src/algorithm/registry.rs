//! The registry: one row for each algorithm.

use super::row::Build::{self, Plain, With};
use super::row::{Algorithm, Order};
use super::{
    binomial_tree, bruck, chain, direct, halving_doubling, host_chain, neighbor_exchange, nvswitch, one_shot, pairwise,
    pat, recursive_doubling, recursive_doubling_scan, recursive_halving, ring, scatter_all_gather, tree, two_level,
    two_shot,
};
use crate::collective::{self, Collective};

macro_rules! algorithms {
    ($($collective:ident $name:literal by $build:expr, order $order:ident, from $source:literal; $summary:literal;)*) => {
        /// Every algorithm, the default of its collective first.
        pub static ALGORITHMS: &[&Algorithm] = &[$(&Algorithm {
            name: $name,
            collective: &collective::$collective,
            order: Order::$order,
            summary: $summary,
            source: $source,
            build: $build,
        },)*];
    };
}

const TWO_LEVEL: Build = With(two_level::PARAMETERS, two_level::all_reduce);

algorithms! {
    ALL_REDUCE "nvswitch" by Plain(nvswitch::all_reduce), order Rank, from "NVLink SHARP, NCCL 2.17 and 2.27";
        "each rank reduces its chunk over all ranks and stores it to all ranks";
    ALL_REDUCE "one_shot" by Plain(one_shot::all_reduce), order Rank, from "custom kernels for small messages";
        "every rank reduces all data by itself";
    ALL_REDUCE "two_shot" by Plain(two_shot::all_reduce), order Rank, from "custom kernels for one node";
        "each rank reduces its chunk over all ranks and fetches the other chunks";
    ALL_REDUCE "ring" by Plain(ring::all_reduce), order Own, from "Patarasuk and Yuan 2009";
        "each chunk travels round the ring twice: once for the sum, once for the result";
    ALL_REDUCE "tree" by Plain(tree::all_reduce), order Own, from "Sanders et al. 2009";
        "two binary trees reduce and broadcast half of the data each";
    ALL_REDUCE "recursive_doubling" by Plain(recursive_doubling::all_reduce), order Own, from "Thakur et al. 2005";
        "ranks at distance 1, 2, 4, .. exchange and add their whole sums";
    ALL_REDUCE "halving_doubling" by Plain(halving_doubling::all_reduce), order Own, from "Rabenseifner 2004";
        "ranks at distance 1, 2, 4, .. reduce half of their range each, then fetch the other halves";
    ALL_REDUCE "two_level" by TWO_LEVEL, order Nested, from "Jia et al. 2018";
        "reduce_scatter in each node, ring across nodes, all_gather in each node";
    ALL_REDUCE "two_level(outer=halving_doubling)" by TWO_LEVEL, order Nested, from "Jia et al. 2018, Rabenseifner 2004";
        "reduce_scatter in each node, halving_doubling across nodes, all_gather in each node";
    ALL_REDUCE "host_chain" by With(host_chain::PARAMETERS, host_chain::all_reduce), order Own, from "ours";
        "ranks of a host continue the fold of the host before, then the result runs back";
    REDUCE_SCATTER "nvswitch" by Plain(nvswitch::reduce_scatter), order Rank, from "NVLink SHARP, NCCL 2.17 and 2.27";
        "each rank reduces its part over all ranks";
    REDUCE_SCATTER "direct" by Plain(direct::reduce_scatter), order Rank, from "MPI libraries";
        "each rank reads its part from all ranks and adds it up";
    REDUCE_SCATTER "ring" by Plain(ring::reduce_scatter), order Own, from "Patarasuk and Yuan 2009";
        "each part travels once round the ring for the sum, and ends at its owner";
    REDUCE_SCATTER "recursive_halving" by Plain(recursive_halving::reduce_scatter), order Own, from "Thakur et al. 2005";
        "ranks at distance .., 4, 2, 1 reduce half of their parts each";
    REDUCE_SCATTER "pat" by Plain(pat::reduce_scatter), order Own, from "Jeaugey 2025, NCCL 2.23";
        "a binomial tree per part, near ranks first, reduces to the owner of the part";
    ALL_GATHER "nvswitch" by Plain(nvswitch::all_gather), order None, from "NVLink SHARP, NCCL 2.17 and 2.27";
        "each rank stores its part to all ranks";
    ALL_GATHER "direct" by Plain(direct::all_gather), order None, from "MPI libraries";
        "each rank fetches every part from its owner";
    ALL_GATHER "ring" by Plain(ring::all_gather), order None, from "Patarasuk and Yuan 2009";
        "each part travels once round the ring";
    ALL_GATHER "recursive_doubling" by Plain(recursive_doubling::all_gather), order None, from "Thakur et al. 2005";
        "ranks at distance 1, 2, 4, .. exchange all parts that they have";
    ALL_GATHER "bruck" by Plain(bruck::all_gather), order None, from "Bruck et al. 1997";
        "at distance 1, 2, 4, .. each rank doubles the number of its parts; any number of ranks";
    ALL_GATHER "neighbor_exchange" by Plain(neighbor_exchange::all_gather), order None, from "Chen et al. 2005";
        "neighbours, left and right in turn, exchange the two parts that arrived last";
    ALL_GATHER "pat" by Plain(pat::all_gather), order None, from "Jeaugey 2025, NCCL 2.23";
        "a binomial tree per part, far ranks first, broadcasts from the owner of the part";
    BROADCAST "direct" by Plain(direct::broadcast), order None, from "MPI libraries";
        "each rank copies from the root";
    BROADCAST "tree" by Plain(tree::broadcast), order None, from "Sanders et al. 2009";
        "two binary trees broadcast half of the data each";
    BROADCAST "chain" by Plain(chain::broadcast), order None, from "Open MPI";
        "each rank stores to the next rank, starting at the root";
    BROADCAST "scatter_all_gather" by Plain(scatter_all_gather::broadcast), order None, from "Barnett et al. 1994";
        "each rank except the root fetches one chunk, then the chunks travel round a ring";
    REDUCE "direct" by Plain(direct::reduce), order Rank, from "MPI libraries";
        "the root adds up the inputs of all ranks";
    REDUCE "tree" by Plain(tree::reduce), order Own, from "Sanders et al. 2009";
        "two binary trees reduce half of the data each";
    REDUCE "chain" by Plain(chain::reduce), order Own, from "Open MPI";
        "each rank adds the sum of the next rank to its own input, up to the root";
    GATHER "direct" by Plain(direct::gather), order None, from "MPI libraries";
        "each rank stores its part to the root";
    GATHER "tree" by Plain(binomial_tree::gather), order None, from "MPICH";
        "parts travel up a binomial tree: each rank fetches all parts of its children";
    SCATTER "direct" by Plain(direct::scatter), order None, from "MPI libraries";
        "each rank copies its part from the root";
    SCATTER "tree" by Plain(binomial_tree::scatter), order None, from "MPICH";
        "parts travel down a binomial tree: each rank fetches the parts of its subtree";
    ALL_TO_ALL "direct" by Plain(direct::all_to_all), order None, from "MPI libraries";
        "each rank copies its part from every rank";
    ALL_TO_ALL "pairwise" by Plain(pairwise::all_to_all), order None, from "Thakur et al. 2005";
        "in every round each rank exchanges parts with one other rank";
    ALL_TO_ALL "bruck" by Plain(bruck::all_to_all), order None, from "Bruck et al. 1997";
        "at distance d = .., 4, 2, 1 each rank forwards the parts that are d or more ranks from their target";
    SCAN "direct" by Plain(direct::scan), order Rank, from "MPI libraries";
        "each rank adds up the inputs of all ranks up to itself";
    SCAN "recursive_doubling" by Plain(recursive_doubling_scan::scan), order Own, from "Hillis and Steele 1986";
        "each rank adds the sums of the ranks 1, 2, 4, .. before it";
    SCAN "chain" by Plain(chain::scan), order Own, from "MPI libraries";
        "each rank adds its own input to the sum of the rank before it";
    EXSCAN "direct" by Plain(direct::exscan), order Rank, from "MPI libraries";
        "each rank adds up the inputs of all ranks before itself";
    EXSCAN "recursive_doubling" by Plain(recursive_doubling_scan::exscan), order Own, from "Hillis and Steele 1986";
        "each rank adds the sums of the ranks 1, 2, 4, .. before it, without its own input";
    BARRIER "direct" by Plain(direct::barrier), order None, from "Mellor-Crummey and Scott 1991";
        "every rank waits until all other ranks have entered";
}

/// Yields the algorithms of a collective, the default first. `auto` is the default if no size is known.
pub fn of(collective: &'static Collective) -> impl Iterator<Item = &'static Algorithm> {
    ALGORITHMS.iter().copied().filter(move |a| a.collective.kind == collective.kind)
}

//! two_level all_reduce: within the node, across nodes, within the node.
//!
//! ```text
//! inner: ranks of one node            reduce_scatter nvswitch     rank i of each node holds shard i of its node's sum
//! outer: ranks i of all nodes         all_reduce ring             the shard's sum over all nodes
//! inner                               all_gather nvswitch         every rank holds every shard
//! ```
//!
//! A node is `per_node` ranks, which divide the world; unless it is given, the largest divisor that is at most [`PER_NODE`].
//! Where there is none but 1 (n = 11, 143) all ranks are one node: nodes of one rank would be a plain ring. Across nodes goes
//! a ring, whose k nodes wait for each other 2 (k-1) times, or `outer=halving_doubling`: 2 log2 k times, for many nodes. Of
//! that the bits follow: own order among the sums of nodes, so the whole is nested for both.
//!
//! Bytes per rank with nodes of m and k nodes: (1 + 1/m) N + 5 N/m (k-1)/k + N; by halving, k no power of two, as a mean.
//! Steps of a rank: 2 (k-1) + 2 by ring, 2 log2 k + 2 by halving, k a power of two. Source: the hierarchical all-reduce of
//! Jia et al., "Highly scalable deep learning training system", 2018.

use super::{Algorithm, Arguments, Build::With, Order, Parameter, ParameterValues};
use crate::builder::Builder;
use crate::collective::ALL_REDUCE as COLLECTIVE;

/// GPUs in a node. Chosen: what most machines have.
const PER_NODE: u32 = 8;

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "per_node",
        values: ParameterValues::Whole("the most up to 8 that divide the world"),
        summary: "the ranks of a node",
    },
    Parameter {
        name: "outer",
        values: ParameterValues::OneOf(&["ring", "halving_doubling"]),
        summary: "the algorithm across nodes",
    },
];

/// The registry line.
pub(super) static ALL_REDUCE: Algorithm = Algorithm {
    name: "two_level",
    collective: &COLLECTIVE,
    order: Order::Nested,
    summary: "reduce_scatter inside each node, ring across nodes, all_gather inside each node",
    source: "Jia et al. 2018",
    build: With(PARAMETERS, build),
};

/// The same with another algorithm across nodes.
pub(super) static ALL_REDUCE_BY_HALVING: Algorithm = Algorithm {
    name: "two_level(outer=halving_doubling)",
    summary: "reduce_scatter inside each node, halving and doubling across nodes, all_gather inside each node",
    source: "Jia et al. 2018, Rabenseifner 2004",
    ..ALL_REDUCE
};

fn build(b: &mut Builder, given: &Arguments) {
    let n = b.world_size();
    let largest = || (2..=PER_NODE.min(n)).rev().find(|m| n.is_multiple_of(*m)).unwrap_or(n);
    let per_node = given.whole("per_node").unwrap_or_else(largest);
    let across = given.word("outer").unwrap_or("ring");
    let (inner, outer) = (b.groups(per_node), b.strided_groups(per_node));
    let shard = b.reduce_scatter(&b.inputs(), &inner, "nvswitch");
    let total = b.all_reduce(&shard, &outer, across);
    b.all_gather(&total, &b.outputs(), &inner, "nvswitch");
}

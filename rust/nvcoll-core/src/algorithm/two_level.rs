//! two_level all_reduce: reduce_scatter inside each node, all_reduce across nodes, all_gather inside each node.
//!
//! ```text
//! inner: ranks of one node            reduce_scatter nvswitch     rank i of each node holds shard i of its node's sum
//! outer: ranks i of all nodes         all_reduce ring             the shard's sum over all nodes
//! inner                               all_gather nvswitch         every rank holds every shard
//! ```
//!
//! A node has `per_node` ranks, a divisor of the world size. The default is the largest divisor that is at most [`PER_NODE`]. If 1 is
//! the only such divisor (n = 11, 143), all ranks are one node, because nodes of one rank would be a plain ring. The algorithm
//! across nodes is a ring, with 2 (k-1) waits for k nodes, or `outer=halving_doubling`, with 2 log2 k waits, for many nodes. Results
//! differ between the two: the sums of nodes are folded in the outer algorithm's own order, so the whole order is nested.
//!
//! Bytes per rank with k nodes of m ranks: (1 + 1/m) N + 5 N/m (k-1)/k + N, on average if k is no power of two. Steps per rank:
//! 2 (k-1) + 2 with ring; 2 log2 k + 2 with halving_doubling, if k is a power of two. Source: the hierarchical all-reduce of Jia et
//! al., "Highly scalable deep learning training system", 2018.

use super::parameters::{Arguments, Parameter, ParameterValues};
use crate::builder::Builder;

/// The usual number of GPUs in a node. Chosen: most machines have this number.
const PER_NODE: u32 = 8;

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "per_node",
        values: ParameterValues::Whole("the largest divisor of the world size up to 8"),
        summary: "the ranks of a node",
    },
    Parameter {
        name: "outer",
        values: ParameterValues::OneOf(&["ring", "halving_doubling"]),
        summary: "the algorithm across nodes",
    },
];

/// Writes all_reduce.
pub(super) fn all_reduce(b: &mut Builder, given: &Arguments) {
    let n = b.world_size();
    let largest = || (2..=PER_NODE.min(n)).rev().find(|m| n.is_multiple_of(*m)).unwrap_or(n);
    let per_node = given.whole("per_node").unwrap_or_else(largest);
    let across = given.word("outer").unwrap_or("ring");
    let (inner, outer) = (b.groups(per_node), b.strided_groups(per_node));
    let shard = b.reduce_scatter(&b.inputs(), &inner, "nvswitch");
    let total = b.all_reduce(&shard, &outer, across);
    b.all_gather(&total, &b.outputs(), &inner, "nvswitch");
}

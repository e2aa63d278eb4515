//! two_level all_reduce: within the node, across nodes, within the node.
//!
//! ```text
//! inner: ranks of one node            reduce_scatter nvswitch     rank i of each node holds shard i of its node's sum
//! outer: ranks i of all nodes         all_reduce ring             the shard's sum over all nodes
//! inner                               all_gather nvswitch         every rank holds every shard
//! ```
//!
//! A node is the largest divisor of the world size that is at most [`PER_NODE`]; other sizes by the Python builder's
//! parameter. Where there is none but 1 (n = 11, 143) all ranks are one node: nodes of one rank would be a plain ring. Bytes per rank with nodes of m and k nodes: (1 + 1/m) N + 5 N/m (k-1)/k + (1 + 1/m) N. Order: nested.
//! Source: the hierarchical all-reduce of Jia et al., "Highly scalable deep learning training system", 2018.

use super::{Algorithm, Order};
use crate::builder::Builder;
use crate::collective::ALL_REDUCE as COLLECTIVE;

/// GPUs in a node. Chosen: what most machines have.
const PER_NODE: u32 = 8;

/// The registry line.
pub(super) static ALL_REDUCE: Algorithm = Algorithm {
    name: "two_level",
    collective: &COLLECTIVE,
    order: Order::Nested,
    summary: "reduce_scatter inside each node, ring across nodes, all_gather inside each node",
    source: "Jia et al. 2018",
    build,
};

fn build(b: &mut Builder) {
    let n = b.world_size();
    let per_node = (2..=PER_NODE.min(n)).rev().find(|m| n.is_multiple_of(*m)).unwrap_or(n);
    let (inner, outer) = (b.groups(per_node), b.strided_groups(per_node));
    let shard = b.reduce_scatter(&b.inputs(), &inner, "nvswitch");
    let total = b.all_reduce(&shard, &outer, "ring");
    b.all_gather(&total, &b.outputs(), &inner, "nvswitch");
}

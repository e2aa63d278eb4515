//! tree all_reduce: two binary trees, each for half of the data, in which no rank is an inner node twice.
//!
//! ```text
//! labels 1..n in order; the root of a range is the label with the most trailing zeros, its children the roots of what is
//! left and right of it. Inner nodes have even labels:        4
//!                                                          2   6        tree 0: rank r has label r+1
//!                                                         1 3 5 7       tree 1: labels mirrored (n even) or shifted (n odd)
//! up      an inner node folds its left child, itself and its right child; a leaf's input is read where it is
//! down    the root's fold and then every inner node's copy store into the children's outputs
//! ```
//!
//! Bytes per rank: about 3.1 N at 8 ranks. Waits: about 2 log2 n. One channel per tree, in it one queue up and one down.
//! Order: own, by the shape of the tree, children and self sorted by their lowest rank. Source: Sanders, Speck and Träff,
//! "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009.

use super::{Algorithm, Order};
use crate::builder::{Builder, Region};
use crate::collective::ALL_REDUCE as COLLECTIVE;

/// The registry line.
pub(super) static ALL_REDUCE: Algorithm = Algorithm {
    name: "tree",
    collective: &COLLECTIVE,
    order: Order::Own,
    summary: "two complementary binary trees reduce and broadcast half of the data each",
    source: "Sanders, Speck and Träff 2009",
    build,
};

/// A subtree, by rank.
struct Node {
    rank: u32,
    lowest: u32,
    children: Vec<Node>,
}

fn build(b: &mut Builder) {
    let n = b.world_size();
    for c in b.chunks(2) {
        b.channel(c);
        let root = subtree(1, n, &|label| rank_of(label, n, c)).expect("there is at least one rank");
        up(b, &root, c, true);
        down(b, &root, c);
    }
}

fn rank_of(label: u32, n: u32, tree: u32) -> u32 {
    match tree {
        0 => label - 1,
        _ if n.is_multiple_of(2) => n - label,
        _ => label % n,
    }
}

fn subtree(first: u32, last: u32, rank_of: &impl Fn(u32) -> u32) -> Option<Node> {
    let root = (first..=last).max_by_key(|label| label.trailing_zeros())?;
    let children: Vec<Node> =
        [subtree(first, root - 1, rank_of), subtree(root + 1, last, rank_of)].into_iter().flatten().collect();
    let rank = rank_of(root);
    let lowest = children.iter().map(|child| child.lowest).fold(rank, u32::min);
    Some(Node { rank, lowest, children })
}

/// Folds a subtree into its root and, where the sum is complete, into the root's children; returns where the sum is.
fn up(b: &mut Builder, node: &Node, chunk: u32, is_complete: bool) -> Region {
    if node.children.is_empty() && !is_complete {
        return b.input(node.rank, chunk);
    }
    let mut sums = vec![(node.rank, b.input(node.rank, chunk))];
    for child in &node.children {
        sums.push((child.lowest, up(b, child, chunk, false)));
    }
    sums.sort_by_key(|(lowest, _)| *lowest);
    let sums: Vec<Region> = sums.into_iter().map(|(_, sum)| sum).collect();
    let mut into = vec![b.output(node.rank, chunk)];
    if is_complete {
        into.extend(outputs(b, &node.children, chunk));
    }
    b.fold(&sums, &into)
}

/// Passes the sum, which the children of `node` have, on to their children.
fn down(b: &mut Builder, node: &Node, chunk: u32) {
    for child in node.children.iter().filter(|child| !child.children.is_empty()) {
        b.push(&b.output(child.rank, chunk), &outputs(b, &child.children, chunk));
        down(b, child, chunk);
    }
}

fn outputs(b: &Builder, nodes: &[Node], chunk: u32) -> Vec<Region> {
    nodes.iter().map(|node| b.output(node.rank, chunk)).collect()
}

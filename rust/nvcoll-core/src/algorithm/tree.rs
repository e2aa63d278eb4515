//! tree: two binary trees, each for half of the data; no rank is an inner node of both.
//!
//! ```text
//! labels 1..m in order; the root of a range is the label with the most trailing zeros, its children the roots of what is
//! left and right of it. Inner nodes have even labels:        4
//!                                                          2   6        tree 0: label i is the i-th rank
//!                                                         1 3 5 7       tree 1: labels mirrored (m even) or shifted (m odd)
//! all_reduce   the trees have all n ranks. Up: an inner node folds its left child, itself and its right child; a leaf's input
//!              is read where it is. Down: the root's fold and then every inner node's copy store into the children's outputs
//! reduce       the trees have the n-1 ranks after the root, cyclically; up, and the root folds each tree's root with its own
//! broadcast    the same trees; the root stores each half to its tree's root, and down
//! ```
//!
//! If the collective has a root, the root stands above both trees. No rank then sends or receives much more than N, while the root of
//! a binomial tree sends N log2 n. Tiles stream through the queues, so the data is cut into two chunks only.
//!
//! Bytes per rank: all_reduce about 3.1 N at 8 ranks; with i = (n-1)/2 rounded down, reduce (n+1+2i)/n N, and broadcast (n+i)/n N,
//! out of place (n+1+i)/n N. Waits: about log2 n, twice that for all_reduce. Each tree has one channel, with one queue up and one
//! queue down. Order: own, by the shape of the tree; children and the rank itself are sorted by their lowest rank. Partial sums of a
//! reduce lie in scratch, because only the root has an output. Source: Sanders, Speck and Träff, "Two-tree algorithms for full
//! bandwidth broadcast, reduction and scan", 2009.

use super::row::relative;
use crate::builder::{Builder, Region};

/// Writes all_reduce.
pub(super) fn all_reduce(b: &mut Builder) {
    let n = b.world_size();
    for c in b.chunks(2) {
        b.channel(c);
        let root = subtree(1, n, &|label| rank_of(label, n, c)).expect("there is at least one rank");
        let mut into = vec![b.output(root.rank, c)];
        into.extend(outputs(b, &root.children, c));
        let sums = sums(b, &root, c);
        b.fold(&sums, &into);
        down(b, &root, c);
    }
}

/// Writes reduce.
pub(super) fn reduce(b: &mut Builder) {
    for c in b.chunks(2) {
        b.channel(c);
        let root = below_root(b, c);
        let sums = sums(b, &root, c);
        b.fold(&sums, &[b.output(root.rank, c)]);
    }
}

/// Writes broadcast.
pub(super) fn broadcast(b: &mut Builder) {
    for c in b.chunks(2) {
        b.channel(c);
        let root = below_root(b, c);
        let mut into = outputs(b, &root.children, c);
        if !b.is_in_place() {
            into.push(b.output(root.rank, c));
        }
        if !into.is_empty() {
            b.push(&b.input(root.rank, c), &into);
        }
        down(b, &root, c);
    }
}

/// A subtree of ranks.
struct TreeNode {
    rank: u32,
    lowest: u32,
    children: Vec<TreeNode>,
}

fn rank_of(label: u32, n: u32, tree: u32) -> u32 {
    match tree {
        0 => label - 1,
        _ if n.is_multiple_of(2) => n - label,
        _ => label % n,
    }
}

fn subtree(first: u32, last: u32, rank_of: &impl Fn(u32) -> u32) -> Option<TreeNode> {
    let root = (first..=last).max_by_key(|label| label.trailing_zeros())?;
    let children = [subtree(first, root - 1, rank_of), subtree(root + 1, last, rank_of)];
    Some(node(rank_of(root), children.into_iter().flatten().collect()))
}

fn node(rank: u32, children: Vec<TreeNode>) -> TreeNode {
    let lowest = children.iter().map(|child| child.lowest).fold(rank, u32::min);
    TreeNode { rank, lowest, children }
}

/// Returns the root of the call, with a tree of all other ranks as its only child.
fn below_root(b: &Builder, tree: u32) -> TreeNode {
    let others = b.world_size() - 1;
    let child = subtree(1, others, &|label| relative(b, 1 + rank_of(label, others, tree)));
    node(b.root(), child.into_iter().collect())
}

/// Folds a subtree into its root; returns the region of the sum.
fn up(b: &mut Builder, node: &TreeNode, chunk: u32) -> Region {
    if node.children.is_empty() {
        return b.input(node.rank, chunk);
    }
    let has_output = !b.collective().has_root;
    let into = if has_output { b.output(node.rank, chunk) } else { b.scratch(node.rank, 0, chunk) };
    let sums = sums(b, node, chunk);
    b.fold(&sums, &[into])
}

/// Folds the subtrees below a node; returns the regions that the node folds, in order.
fn sums(b: &mut Builder, node: &TreeNode, chunk: u32) -> Vec<Region> {
    let mut sums = vec![(node.rank, b.input(node.rank, chunk))];
    for child in &node.children {
        sums.push((child.lowest, up(b, child, chunk)));
    }
    sums.sort_by_key(|(lowest, _)| *lowest);
    sums.into_iter().map(|(_, sum)| sum).collect()
}

/// Copies the data of the children of `node` to their children, down to the leaves.
fn down(b: &mut Builder, node: &TreeNode, chunk: u32) {
    for child in node.children.iter().filter(|child| !child.children.is_empty()) {
        b.push(&b.output(child.rank, chunk), &outputs(b, &child.children, chunk));
        down(b, child, chunk);
    }
}

fn outputs(b: &Builder, nodes: &[TreeNode], chunk: u32) -> Vec<Region> {
    nodes.iter().map(|node| b.output(node.rank, chunk)).collect()
}

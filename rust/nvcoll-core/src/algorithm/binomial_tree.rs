//! The binomial tree, and gather and scatter by it: half of the ranks have nobody below them, a quarter one, …
//!
//! ```text
//! place x of a rank after the root, cyclically; parent = x without its lowest bit; children = x + 1, x + 2, x + 4, … below it
//!
//!  0 ─┬──────────────┬───────┬──── 1           n = 8: the subtree of x is the places x .. x + lowest bit - 1;
//!     4 ─┬──── 5     2 ── 3                    n = 6: the same without places 6 and 7
//!        6 ── 7
//!
//! gather     up:     a rank fetches, from each child, the child's own part and all that the child has fetched
//! scatter    down:   a rank fetches, from its parent, its own part and all that its children will fetch
//! ```
//!
//! The parts of a subtree are a run of ranks, two where it passes the last rank. What is on its way lies in scratch, the own
//! part comes from the input or goes to the output: two messages, and no byte is copied within a rank. A part at place x travels
//! as many hops as x has ones. Steps a rank: up to 3 log2 n at the root of a gather, up to 3 elsewhere. Bytes per rank:
//! 2 N/n^2 times all those ones, about N (log2 n)/n, and 2 N/n^2 out of place for the root's own part. Waits: log2 n, rounded up,
//! and one to leave. Direct moves less; here the root meets log2 n ranks instead of n. Source: the binomial gather and scatter
//! of MPICH and Open MPI.

use std::ops::Range;

use super::{cyclic, relative, Algorithm, Build::Plain, Order};
use crate::builder::{Builder, Region};
use crate::collective;

/// The registry line of gather.
pub(super) static GATHER: Algorithm = Algorithm {
    name: "tree",
    collective: &collective::GATHER,
    order: Order::None,
    summary: "parts travel up a binomial tree: each rank fetches all parts of its children",
    source: "the binomial gather of MPICH",
    build: Plain(|b| {
        for place in (0..b.world_size()).rev() {
            for child in children(place, b.world_size()) {
                gather_from(b, place, child);
            }
        }
        place_the_root_s_part(b);
    }),
};

/// The registry line of scatter.
pub(super) static SCATTER: Algorithm = Algorithm {
    name: "tree",
    collective: &collective::SCATTER,
    order: Order::None,
    summary: "parts travel down a binomial tree: each rank fetches the parts of its subtree",
    source: "the binomial scatter of MPICH",
    build: Plain(|b| {
        place_the_root_s_part(b);
        for place in 0..b.world_size() {
            for child in children(place, b.world_size()).rev() {
                scatter_to(b, place, child);
            }
        }
    }),
};

/// The children of a place, the nearest first.
pub(super) fn children(place: u32, n: u32) -> impl DoubleEndedIterator<Item = u32> {
    let reach = if place == 0 { n.next_power_of_two() } else { lowest_bit(place) };
    (0..reach.ilog2()).map(move |bit| place + (1 << bit)).filter(move |&child| child < n)
}

fn lowest_bit(place: u32) -> u32 {
    place & place.wrapping_neg()
}

/// The parts of everybody below a place that is not the root: one run of ranks or two.
fn parts_below(b: &Builder, place: u32) -> impl Iterator<Item = Range<u32>> {
    let n = b.world_size();
    let count = lowest_bit(place).min(n - place) - 1;
    cyclic(relative(b, place + 1), count, n)
}

fn gather_from(b: &mut Builder, place: u32, child: u32) {
    let (rank, from) = (relative(b, place), relative(b, child));
    let into = |b: &mut Builder, parts: Range<u32>| -> Region {
        if place == 0 {
            b.output(rank, parts)
        } else {
            b.scratch(rank, 0, parts)
        }
    };
    let own = into(b, from..from + 1);
    b.copy(&b.input(from, from), &[own]);
    for parts in parts_below(b, child) {
        let (collected, into) = (b.scratch(from, 0, parts.clone()), into(b, parts));
        b.copy(&collected, &[into]);
    }
}

fn scatter_to(b: &mut Builder, place: u32, child: u32) {
    let (rank, to) = (relative(b, place), relative(b, child));
    let from = |b: &mut Builder, parts: Range<u32>| -> Region {
        if place == 0 {
            b.input(rank, parts)
        } else {
            b.scratch(rank, 0, parts)
        }
    };
    let own = from(b, to..to + 1);
    b.copy(&own, &[b.output(to, to)]);
    for parts in parts_below(b, child) {
        let (parts_here, into) = (from(b, parts.clone()), b.scratch(to, 0, parts));
        b.copy(&parts_here, &[into]);
    }
}

/// The root's own part goes nowhere; in place it is there already.
fn place_the_root_s_part(b: &mut Builder) {
    let root = b.root();
    if !b.is_in_place() {
        b.copy(&b.input(root, root), &[b.output(root, root)]);
    }
}

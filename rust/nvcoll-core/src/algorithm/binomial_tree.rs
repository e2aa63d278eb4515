//! tree gather and scatter, by a binomial tree: half of the ranks have no rank below them, a quarter have one, and so on.
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
//! The parts of a subtree are one run of ranks, or two if it passes the last rank. Parts in transit lie in scratch. A rank's own part
//! comes from its input or goes to its output, in a message of its own, so that no byte is copied within a rank. A part at place x
//! travels one hop for each bit of x that is 1.
//!
//! Steps per rank: up to 3 log2 n at the root of a gather, up to 3 elsewhere. Bytes per rank: about N (log2 n)/n (2 N/n^2 for each
//! hop), and 2 N/n^2 out of place for the root's own part. Waits: log2 n, rounded up, and one to leave. direct moves fewer bytes;
//! here the root exchanges with log2 n ranks instead of n. Source: the binomial gather and scatter of MPICH and Open MPI.

use std::ops::Range;

use super::row::{cyclic, relative};
use crate::builder::{Builder, Region};

/// Writes gather.
pub(super) fn gather(b: &mut Builder) {
    for place in (0..b.world_size()).rev() {
        for child in children(place, b.world_size()) {
            gather_from(b, place, child);
        }
    }
    place_the_root_s_part(b);
}

/// Writes scatter.
pub(super) fn scatter(b: &mut Builder) {
    place_the_root_s_part(b);
    for place in 0..b.world_size() {
        for child in children(place, b.world_size()).rev() {
            scatter_to(b, place, child);
        }
    }
}

/// Yields the children of a place, the nearest first.
pub(super) fn children(place: u32, n: u32) -> impl DoubleEndedIterator<Item = u32> {
    let reach = if place == 0 { n.next_power_of_two() } else { lowest_bit(place) };
    (0..reach.ilog2()).map(move |bit| place + (1 << bit)).filter(move |&child| child < n)
}

fn lowest_bit(place: u32) -> u32 {
    place & place.wrapping_neg()
}

/// Yields the parts of all ranks below a place that is not the root: one run of ranks or two.
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

/// Copies the root's own part to its output, unless the call is in place.
fn place_the_root_s_part(b: &mut Builder) {
    let root = b.root();
    if !b.is_in_place() {
        b.copy(&b.input(root, root), &[b.output(root, root)]);
    }
}

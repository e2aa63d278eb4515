//! Bruck's all_gather and all_to_all: log2 n rounds for any n; in each round a rank exchanges with one peer.
//!
//! ```text
//! all_gather   n = 6    rank r has     fetches       from rank
//! d = 1                 r              r+1           r+1
//! d = 2                 r, r+1         r+2, r+3      r+2
//! d = 4                 r .. r+3       r+4, r+5      r+4          all cyclic; the last round fetches what is missing
//!
//! all_to_all            a part has to go x = 0 .. n-1 ranks ahead and goes d for every one among the bits of x
//! d = 4, 2, 1           rank r fetches from rank r-d all parts there that have d still to go
//! ```
//!
//! Bruck's ranks keep their parts in rotated order and rotate them back at the end. Here every part is at its final place from
//! the start, and a range that wraps around is two steps. Cost of all_gather: log2 n steps per rank, rounded up, and one more for
//! each round that wraps around; 2 N bytes per rank, in place 2 N (n-1)/n.
//!
//! In all_to_all, parts in transit lie in scratch. Bruck begins with d = 1; then the parts of one message are not contiguous.
//! Here the farthest round comes first. The parts of one sender that travel together are then `d` contiguous parts, and the first
//! of them has arrived. A round has one peer, but several steps. Cost of all_to_all: about 1.5 n steps per rank (direct has n);
//! about N log2 n bytes per rank (2 N/n, and 2 N/n for each bit that is 1 in the numbers below n). Waits: log2 n, rounded up, and
//! one to leave. Source: Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all communications in multiport
//! message-passing systems", 1997.

use super::row::{cyclic, place_own_parts};
use crate::builder::Builder;

/// Writes all_gather.
pub(super) fn all_gather(b: &mut Builder) {
    let n = b.world_size();
    place_own_parts(b);
    let mut distance = 1;
    while distance < n {
        for r in 0..n {
            let from = (r + distance) % n;
            for parts in cyclic(from, distance.min(n - distance), n) {
                b.copy(&b.output(from, parts.clone()), &[b.output(r, parts)]);
            }
        }
        distance *= 2;
    }
}

/// Writes all_to_all.
pub(super) fn all_to_all(b: &mut Builder) {
    let n = b.world_size();
    for r in 0..n {
        b.copy(&b.input(r, r * n + r), &[b.output(r, r * n + r)]);
    }
    let rounds = n.next_power_of_two().ilog2();
    for (distance, r) in (0..rounds).rev().flat_map(|bit| (0..n).map(move |r| (1 << bit, r))) {
        // The parts of the rank that is `gone` behind the peer: the parts that have travelled this far.
        for gone in (0..n - distance).step_by(2 * distance as usize) {
            fetch(b, r, distance, gone);
        }
    }
}

/// Lets a rank copy the parts that have travelled `gone` ranks and travel `distance` more now; the first is its own.
fn fetch(b: &mut Builder, rank: u32, distance: u32, gone: u32) {
    let n = b.world_size();
    let [peer, sender] = [distance, distance + gone].map(|behind| (rank + n - behind) % n);
    let further = distance.min(n - distance - gone) - 1;
    let destinations = std::iter::once(rank..rank + 1).chain(cyclic((rank + 1) % n, further, n));
    for (nth, to) in destinations.enumerate() {
        let parts = sender * n + to.start..sender * n + to.end;
        let from = if gone == 0 { b.input(peer, parts.clone()) } else { b.scratch(peer, 0, parts.clone()) };
        let into = if nth == 0 { b.output(rank, parts) } else { b.scratch(rank, 0, parts) };
        b.copy(&from, &[into]);
    }
}

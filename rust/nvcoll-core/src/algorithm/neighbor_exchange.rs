//! neighbor_exchange all_gather: each rank exchanges with its two neighbours only and receives two parts per round.
//!
//! ```text
//! n even    round 0          0─1   2─3   4─5         pairs exchange their own parts: both have both
//!           round 1, 3, …   ─0   1─2   3─4   5─      then the other way and back again, each time the two parts that
//!           round 2, 4, …    0─1   2─3   4─5         came last
//! n odd     round k          left ─▶ r ◀─ right      there are no pairs: a part from each neighbour, r-k and r+k
//! ```
//!
//! Steps per rank: n/2, or n-1 if n is odd. Bytes per rank: 2 N, in place 2 N (n-1)/n. Rounds: n/2, rounded down, half as many as
//! a ring has. Source: Chen, Zhang, Zhang and Yuan, "Performance evaluation of allgather algorithms on terascale Linux cluster with
//! Fast Ethernet", 2005. Their algorithm needs an even n (Open MPI uses a ring otherwise). The form for odd n, two rings in
//! opposite directions, is ours.

use super::row::place_own_parts;
use crate::builder::Builder;

/// Writes all_gather.
pub(super) fn all_gather(b: &mut Builder) {
    place_own_parts(b);
    if b.world_size().is_multiple_of(2) {
        exchange_pairs(b);
    } else {
        meet_from_both_sides(b);
    }
}

fn exchange_pairs(b: &mut Builder) {
    let n = b.world_size();
    for r in 0..n {
        b.copy(&b.output(r ^ 1, r ^ 1), &[b.output(r, r ^ 1)]);
    }
    let mut latest: Vec<u32> = (0..n).map(|r| r & !1).collect(); // the first of the two parts
    for round in 1..n / 2 {
        let partner = |r: u32| if (r + round).is_multiple_of(2) { (r + 1) % n } else { (r + n - 1) % n };
        latest = (0..n).map(|r| latest[partner(r) as usize]).collect();
        for r in 0..n {
            let parts = latest[r as usize]..latest[r as usize] + 2;
            b.copy(&b.output(partner(r), parts.clone()), &[b.output(r, parts)]);
        }
    }
}

fn meet_from_both_sides(b: &mut Builder) {
    let n = b.world_size();
    for (round, r) in (1..=n / 2).flat_map(|round| (0..n).map(move |r| (round, r))) {
        for (neighbour, part) in [(r + n - 1, r + n - round), (r + 1, r + round)] {
            b.copy(&b.output(neighbour % n, part % n), &[b.output(r, part % n)]);
        }
    }
}

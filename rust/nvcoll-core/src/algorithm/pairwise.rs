//! pairwise all_to_all: in each round a rank exchanges with one other rank.
//!
//! ```text
//! n a power of two   round k    r ◀─▶ r xor k                   pairs
//! otherwise          round k    r-k ─▶ r ─▶ r+k                 rings of stride k, cyclic
//! ```
//!
//! pairwise differs from direct in one point: a rank's partner reads from it while it reads from the partner, so a link carries
//! equal traffic in both directions. A rank runs its rounds in order. It does not wait for other ranks to finish a round, because no
//! value depends on that. Steps per rank: n. Bytes per rank: 2 N. Waits: 2. Source: Thakur, Rabenseifner and Gropp, "Optimization
//! of collective communication operations in MPICH", 2005.
use crate::builder::Builder;

/// Writes all_to_all.
pub(super) fn all_to_all(b: &mut Builder) {
    let n = b.world_size();
    for (round, r) in (0..n).flat_map(|round| (0..n).map(move |r| (round, r))) {
        let from = if n.is_power_of_two() { r ^ round } else { (r + n - round) % n };
        b.copy(&b.input(from, from * n + r), &[b.output(r, from * n + r)]);
    }
}

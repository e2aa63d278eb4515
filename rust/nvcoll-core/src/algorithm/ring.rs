//! ring: each chunk travels once around the ring to collect contributions, and once more as the sum.
//!
//! ```text
//! all_reduce, chunk c       rank c ─▶ c+1 ─▶ … ─▶ c-1      hop 1 .. n-1: fold what arrives with my own
//!                           rank c-1 ─▶ c ─▶ … ─▶ c-2      hop n .. 2n-2: copy the sum
//! reduce_scatter, part c    rank c+1 ─▶ c+2 ─▶ … ─▶ c      the first round only, one rank later; sums travel through scratch
//! all_gather, part c        rank c ─▶ c+1 ─▶ … ─▶ c-1      the second round only
//! ```
//!
//! Bytes per rank: all_reduce 5 N (n-1)/n; reduce_scatter 3 N (n-1)/n; all_gather 2 N, in place 2 N (n-1)/n. Waits: one per hop and
//! one to leave. Order: own; chunk c is folded upwards from the rank where it starts, cyclically. Source: Patarasuk and Yuan,
//! "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.

use super::row::place_own_parts;
use crate::builder::Builder;

/// Writes all_reduce.
pub(super) fn all_reduce(b: &mut Builder) {
    let n = b.world_size();
    for c in b.chunks(n) {
        let mut x = b.input(c, c);
        for hop in 1..n {
            let r = (c + hop) % n;
            x = b.fold(&[x, b.input(r, c)], &[b.output(r, c)]);
        }
        for hop in n..2 * n - 1 {
            x = b.copy(&x, &[b.output((c + hop) % n, c)]);
        }
    }
}

/// Writes reduce_scatter.
pub(super) fn reduce_scatter(b: &mut Builder) {
    let n = b.world_size();
    for c in b.chunks(1) {
        let mut x = b.input((c + 1) % n, c);
        for hop in 2..=n {
            let r = (c + hop) % n;
            let into = if r == c { b.output(r, c) } else { b.scratch(r, 0, c) };
            x = b.fold(&[x, b.input(r, c)], &[into]);
        }
    }
}

/// Writes all_gather.
pub(super) fn all_gather(b: &mut Builder) {
    let n = b.world_size();
    place_own_parts(b);
    for c in b.chunks(1) {
        for hop in 1..n {
            let (from, to) = ((c + hop - 1) % n, (c + hop) % n);
            b.copy(&b.output(from, c), &[b.output(to, c)]);
        }
    }
}

//! ring all_reduce: each chunk travels once round the ring collecting contributions, then once round again as the sum.
//!
//! ```text
//! chunk c   rank c ─▶ c+1 ─▶ … ─▶ c-1      hop 1 .. n-1: fold what arrives with my own
//!           rank c-1 ─▶ c ─▶ … ─▶ c-2      hop n .. 2n-2: copy the sum
//! ```
//!
//! Bytes per rank, read and written: 5 N (n-1)/n. Waits: 2(n-1) hops and one to leave. Order: own, chunk c is folded
//! from rank c upwards, cyclically. Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
//! workstations", 2009.

use super::{Algorithm, Order};
use crate::builder::Builder;
use crate::collective::ALL_REDUCE as COLLECTIVE;

/// The registry line.
pub(super) static ALL_REDUCE: Algorithm = Algorithm {
    name: "ring",
    collective: &COLLECTIVE,
    order: Order::Own,
    summary: "each chunk goes once round the ring to be summed and once more to be told",
    source: "Patarasuk and Yuan 2009",
    build,
};

fn build(b: &mut Builder) {
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

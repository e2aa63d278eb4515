//! scatter_all_gather broadcast: the root distributes the chunks, and the other ranks gather them around a ring.
//!
//! ```text
//! data in n-1 chunks                 root ─▶ 1: a      root ─▶ 2: b      root ─▶ 3: c
//! all_gather, a ring without root        1 ─▶ 2: a         2 ─▶ 3: b         3 ─▶ 1: c       one hop
//!                                        1 ─▶ 2: c         2 ─▶ 3: a         3 ─▶ 1: b       n-2 hops
//! ```
//!
//! The root's memory, or its port, is read once: each of the other ranks reads one chunk. Every other rank forwards as much as it
//! receives. Steps per rank: n-1. Bytes per rank: 2 N (n-1)/n; out of place 2 N, because the root copies for itself. Waits: n-1
//! hops and one to leave.
//!
//! Departures: van de Geijn's root takes part in the ring and has a chunk of its own. Here the ring leaves the root out, because the
//! root already has all data. His scatter is a tree, which saves latency and sends every byte up to log2 n times. Here each rank
//! reads its chunk from the root. Source: Barnett, Gupta, Payne, Shuler, van de Geijn and Watts, "Interprocessor collective
//! communication library (InterCom)", 1994; MPICH's long broadcast.

use super::row::relative;
use crate::builder::Builder;

/// Writes broadcast.
pub(super) fn broadcast(b: &mut Builder) {
    let (n, root) = (b.world_size(), b.root());
    let others = n - 1;
    if others == 0 {
        return;
    }
    for c in b.chunks(others) {
        b.copy(&b.input(root, c), &[b.output(relative(b, 1 + c), c)]);
    }
    for (hop, c) in (1..others).flat_map(|hop| (0..others).map(move |c| (hop, c))) {
        let [from, to] = [c + hop - 1, c + hop].map(|other| relative(b, 1 + other % others));
        b.copy(&b.output(from, c), &[b.output(to, c)]);
    }
    if !b.is_in_place() {
        b.copy(&b.input(root, 0..others), &[b.output(root, 0..others)]);
    }
}

//! two_shot all_reduce: every rank folds one chunk of all inputs, then copies every other chunk from the rank that folded it.
//!
//! ```text
//! shot 1   rank c:  output[c].c = fold of input[0..n].c
//! shot 2   rank r:  output[r].c = output[c].c                 for every other c, its right neighbour's first
//! ```
//!
//! two_shot is [`nvswitch`](super::nvswitch) without the switch: no rank stores into another rank's memory. Steps per rank: n. Bytes
//! per rank: (3n-1)/n N. Waits: 3. Order: rank. Source: the two-shot all-reduce of custom kernels for one node, as in TensorRT-LLM
//! and PyTorch's intra-node communication; it is a direct reduce-scatter and a direct all-gather.

use crate::builder::{Builder, Region};

/// Writes all_reduce.
pub(super) fn all_reduce(b: &mut Builder) {
    let n = b.world_size();
    for c in b.chunks(n) {
        let all: Vec<Region> = (0..n).map(|r| b.input(r, c)).collect();
        b.fold(&all, &[b.output(c, c)]);
    }
    for (r, hop) in (0..n).flat_map(|r| (1..n).map(move |hop| (r, hop))) {
        let c = (r + hop) % n;
        b.copy(&b.output(c, c), &[b.output(r, c)]);
    }
}

//! one_shot all_reduce: every rank folds the inputs of all ranks for itself.
//!
//! ```text
//! rank r:  output[r] = fold of input[0..n]
//! ```
//!
//! In place, a rank must not overwrite an input that other ranks still read. It folds into scratch, and copies after all ranks have
//! read. Bytes per rank: (n+1) N; in place (n+3) N. Waits: 2. Order: rank. It suits small messages only. Source: the one-shot
//! all-reduce of small messages, as in PyTorch's intra-node communication and NVIDIA's custom all-reduce kernels.

use crate::builder::{Builder, Region};

/// Writes all_reduce.
pub(super) fn all_reduce(b: &mut Builder) {
    let n = b.world_size();
    let inputs: Vec<Region> = b.inputs();
    for r in 0..n {
        let into = if b.is_in_place() { b.scratch(r, 0, 0) } else { b.output(r, 0) };
        b.fold(&inputs, &[into]);
    }
    if b.is_in_place() {
        for r in 0..n {
            let sum = b.scratch(r, 0, 0);
            b.copy(&sum, &[b.output(r, 0)]);
        }
    }
}

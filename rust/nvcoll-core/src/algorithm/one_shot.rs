//! one_shot all_reduce: every rank folds the inputs of all ranks for itself.
//!
//! ```text
//! rank r:  output[r] = fold of input[0..n]
//! ```
//!
//! In place, a rank must not overwrite an input that other ranks still read. It folds into scratch, and copies after all ranks have
//! read. Bytes per rank: (n+1) N; in place (n+3) N. Waits: 2. Order: rank. It suits small messages only. Source: the one-shot
//! all-reduce of small messages, as in PyTorch's intra-node communication and NVIDIA's custom all-reduce kernels.

use super::row::{Algorithm, Build::Plain, Order};
use crate::builder::Region;
use crate::collective::ALL_REDUCE as COLLECTIVE;

/// Registers the algorithm.
pub(super) static ALL_REDUCE: Algorithm = Algorithm {
    name: "one_shot",
    collective: &COLLECTIVE,
    order: Order::Rank,
    summary: "every rank reduces all data by itself",
    source: "custom kernels for small messages",
    build: Plain(|b| {
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
    }),
};

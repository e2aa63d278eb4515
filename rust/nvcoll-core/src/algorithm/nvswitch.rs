//! nvswitch: the algorithm of a switch that reduces and multicasts (NVLS); each half is also a collective of its own.
//!
//! ```text
//! all_reduce      rank c:  output[every rank].c = fold of input[0..n].c          one step per rank
//! reduce_scatter  rank c:  output[c].c          = fold of input[0..n].c
//! all_gather      rank c:  output[every rank].c = input[c].c
//! ```
//!
//! nvswitch is two_shot with both halves in one step. Bytes per rank: 2 N for all_reduce, the lower bound: every input is read
//! once and every output written once. Waits: 2. Order: rank. Source: NVIDIA NVLink SHARP, as NCCL uses it in its NVLS algorithm
//! (NCCL 2.17) and its symmetric kernels (NCCL 2.27). On a CPU, memory that all ranks map takes the role of the switch.

use crate::builder::{Builder, Region};

/// Writes all_reduce.
pub(super) fn all_reduce(b: &mut Builder) {
    for c in b.chunks(b.world_size()) {
        b.at_switch(&inputs(b, c), &outputs(b, c, c));
    }
}

/// Writes reduce_scatter.
pub(super) fn reduce_scatter(b: &mut Builder) {
    for c in b.chunks(1) {
        b.at_switch(&inputs(b, c), &[b.output(c, c)]);
    }
}

/// Writes all_gather.
pub(super) fn all_gather(b: &mut Builder) {
    for c in b.chunks(1) {
        b.at_switch(&[b.input(c, c)], &outputs(b, c, c));
    }
}

fn inputs(b: &Builder, chunk: u32) -> Vec<Region> {
    (0..b.world_size()).map(|r| b.input(r, chunk)).collect()
}

/// Returns the chunk in every rank's output, the executing rank's output first.
fn outputs(b: &Builder, chunk: u32, first: u32) -> Vec<Region> {
    let n = b.world_size();
    (0..n).map(|i| b.output((first + i) % n, chunk)).collect()
}

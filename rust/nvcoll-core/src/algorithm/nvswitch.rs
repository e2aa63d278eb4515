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

use super::row::{Algorithm, Build::Plain, Order};
use crate::builder::{Builder, Region};
use crate::collective;

/// Registers the all_reduce algorithm.
pub(super) static ALL_REDUCE: Algorithm = Algorithm {
    name: "nvswitch",
    collective: &collective::ALL_REDUCE,
    order: Order::Rank,
    summary: "each rank reduces its chunk over all ranks and stores it to all ranks",
    source: "NVLink SHARP, NCCL 2.17 and 2.27",
    build: Plain(|b| {
        for c in b.chunks(b.world_size()) {
            b.at_switch(&inputs(b, c), &outputs(b, c, c));
        }
    }),
};

/// Registers the reduce_scatter algorithm.
pub(super) static REDUCE_SCATTER: Algorithm = Algorithm {
    name: "nvswitch",
    collective: &collective::REDUCE_SCATTER,
    order: Order::Rank,
    summary: "each rank reduces its part over all ranks",
    source: "NVLink SHARP, NCCL 2.17 and 2.27",
    build: Plain(|b| {
        for c in b.chunks(1) {
            b.at_switch(&inputs(b, c), &[b.output(c, c)]);
        }
    }),
};

/// Registers the all_gather algorithm.
pub(super) static ALL_GATHER: Algorithm = Algorithm {
    name: "nvswitch",
    collective: &collective::ALL_GATHER,
    order: Order::None,
    summary: "each rank stores its part to all ranks",
    source: "NVLink SHARP, NCCL 2.17 and 2.27",
    build: Plain(|b| {
        for c in b.chunks(1) {
            b.at_switch(&[b.input(c, c)], &outputs(b, c, c));
        }
    }),
};

fn inputs(b: &Builder, chunk: u32) -> Vec<Region> {
    (0..b.world_size()).map(|r| b.input(r, chunk)).collect()
}

/// Returns the chunk in every rank's output, the executing rank's output first.
fn outputs(b: &Builder, chunk: u32, first: u32) -> Vec<Region> {
    let n = b.world_size();
    (0..n).map(|i| b.output((first + i) % n, chunk)).collect()
}

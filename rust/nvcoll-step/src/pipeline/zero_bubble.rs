//! Zero bubble 2p: the best of a few orders; virtual time runs each of them.
//!
//! Qi et al. (arXiv 2401.10241, section 3.1) search over the switches of a heuristic. This search is ours and uses the same two facts:
//!
//! 1. Between the first forward and the first backward pass of stage r, a micro-batch visits all later stages and returns. The stage
//!    fills that time with forward passes: their number, rounded down or up, is its `warm_up`.
//! 2. The last backward pass of stage r ends earlier than the last one of stage 0 by the way between them, but began later by the same
//!    way forward. Weight passes fill both: stage r defers this number of passes (`deferred`), or the number that memory holds.
//!
//! A third switch lets a weight pass begin in a gap that is shorter than it. Eight orders, the one whose longest stage is shortest.
//! A stage holds at most the activations of 2 p micro-batches.
//!
//! Bubbles with the times of the paper's table 9, beside its table 5 (`tests/pipeline_paper.rs` checks them):
//!
//! | stages | micro-batches | paper | here |
//! |---|---|---|---|
//! | 8 (1.5B) | 24, 32, 64 | 4.33, 0.39, 0.26 % | 4.46, 0.34, 0.22 % |
//! | 8 (6.2B) | 24, 32, 64 | 0.29, 0.22, 0.10 % | 0.25, 0.19, 0.09 % |
//! | 16 | 48, 64, 128 | 0.66, 0.54, 0.28 % | 0.62, 0.50, 0.26 % |
//! | 32 | 96, 128, 256 | 0.38, 0.29, 0.18 % | 0.38, 0.29, 0.23 % |
//!
//! These models store attention scores, so weight passes keep 37 to 43 % of the activations ([`KEPT`](super::schedule::KEPT) is 94 %). With
//! fewer activations in memory, fewer weight passes can be deferred: at 94 %, the same models have bubbles of 2 to 10 %.

use super::schedule::{Chunk, PassOrder, Pipeline};
use super::{timeline, virtual_time};

/// Returns the best order.
pub(super) fn best(pipeline: &Pipeline) -> PassOrder {
    let longest = |order: &PassOrder| timeline::longest(&virtual_time::run(pipeline, order, false));
    orders(pipeline).into_iter().min_by_key(longest).expect("there are orders to choose from")
}

fn orders(pipeline: &Pipeline) -> Vec<PassOrder> {
    let stages = pipeline.stages.len();
    let limit = 2.0 * stages as f64;
    let mut orders = Vec::new();
    for round in [f64::floor, f64::ceil] {
        let warm_up = warm_up(pipeline, round);
        for deferred in [vec![u32::MAX; stages], deferred(pipeline)] {
            for fills_any_gap in [false, true] {
                orders.push(PassOrder { warm_up: warm_up.clone(), deferred: deferred.clone(), fills_any_gap, limit });
            }
        }
    }
    orders
}

/// Returns the forward passes of each stage before its first backward pass. A stage has one more than the next: else it would wait for
/// itself.
fn warm_up(pipeline: &Pipeline, round: fn(f64) -> f64) -> Vec<u32> {
    let stages = pipeline.stages.len() as u32;
    let mut warm_up = vec![0; stages as usize];
    let (mut away, mut next) = (0.0, 0);
    for (stage, chunk) in pipeline.stages.iter().map(|chunks| chunks[0]).enumerate().rev() {
        let fit = if chunk.forward > 0.0 { round(away / chunk.forward) } else { f64::INFINITY };
        let most = 2 * stages - stage as u32;
        next = (1 + fit as u32).clamp(next + 1, most.min(pipeline.micro_batches).max(next + 1));
        warm_up[stage] = next;
        away += way(&chunk, pipeline.send);
    }
    warm_up.iter().map(|count| *count.min(&pipeline.micro_batches)).collect()
}

/// Returns the weight passes that each stage defers: as long as the way from stage 0 to it and back.
fn deferred(pipeline: &Pipeline) -> Vec<u32> {
    let mut away = 0.0;
    let chunks = pipeline.stages.iter().map(|chunks| chunks[0]);
    let deferred = chunks.map(|chunk| {
        let count = if chunk.weight > 0.0 { f64::ceil(away / chunk.weight) } else { 0.0 };
        away += way(&chunk, pipeline.send);
        count as u32
    });
    deferred.collect()
}

/// Returns the seconds of a micro-batch in a stage, forward and backward, with its sends.
fn way(chunk: &Chunk, send: f64) -> f64 {
    chunk.forward + chunk.backward + 2.0 * send
}

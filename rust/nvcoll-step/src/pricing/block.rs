//! What a block costs: one micro-batch in a layer, forward and backward.
//!
//! ```text
//! pass      = smooth max(computing, launches of the processor) + collectives as far as nothing hides them
//! backward  = pass(backward + weights) + what is computed again
//! sharded   = max(pass, traffic) + contention x min(pass, traffic, traffic at the speed of NVLink)
//! ```
//!
//! Computing slows beside collectives only while they move at the speed of NVLink: their kernels hold SMs and memory (arXiv 2507.03114).
//! The smooth maximum, of power 6, stands for layers that are bound by the GPU here and by the processor there.

use super::parts::{Part, Parts};
use super::Pricer;
use crate::error::Result;
use crate::training_step::{Block, Hides, Op, TrainingStep, Work};

/// Seconds of one micro-batch in a block.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BlockTime {
    pub(super) forward: Parts,
    pub(super) backward: Parts,
    /// The part of `backward` that gradients of weights are, which schedules may put off.
    pub(super) weights: f64,
}

/// Seconds of one pass before traffic of sharded parameters.
#[derive(Debug, Clone, Copy, Default)]
struct Pass {
    parts: Parts,
    computing: f64,
    host: f64,
    around_attention: f64,
    traffic: f64,
    traffic_nearby: f64,
}

/// The power of the smooth maximum. Chosen.
const SMOOTH: f64 = 6.0;

/// Context parallelism: the part of attention behind which its traffic hides, the part that stays bare beyond it, and the part that is
/// always bare. Chosen: too few published runs have it.
const CONTEXT: [f64; 3] = [0.7, 0.5, 0.2];

impl Pricer<'_> {
    pub(super) fn block(&self, step: &TrainingStep, block: &Block) -> Result<BlockTime> {
        let forward = self.pass(step, &block.forward, Pass::default())?;
        let weights = self.pass(step, &block.weights, Pass::default())?;
        let backward = self.pass(step, &block.backward, weights)?;
        let (plain_forward, mut plain_backward) = (forward.bounded(), backward.bounded());
        plain_backward.add(Part::Recompute, self.again(block, &forward, &plain_forward));
        Ok(BlockTime {
            forward: self.beside_traffic(plain_forward, &forward),
            backward: self.beside_traffic(plain_backward, &backward),
            weights: weights.computing,
        })
    }

    /// Seconds of what the backward pass computes again: whole layers with their collectives, or parts of what the GPU computes.
    fn again(&self, block: &Block, forward: &Pass, plain: &Parts) -> f64 {
        let recompute = &block.recompute;
        if recompute.is_full() {
            return plain.total();
        }
        recompute.gemm * forward.parts.seconds(Part::Gemm)
            + recompute.attention * forward.parts.seconds(Part::Attention)
            + recompute.elementwise * forward.parts.seconds(Part::Elementwise)
    }

    /// Adds operations to a pass.
    fn pass(&self, step: &TrainingStep, ops: &[Op], mut pass: Pass) -> Result<Pass> {
        for op in ops {
            if let Work::Collective { hides, .. } = op.work {
                self.add_collective(step, op, hides, &mut pass)?;
                continue;
            }
            let seconds = self.compute().seconds(&op.work, op.count)?;
            match op.work {
                Work::Host { .. } => pass.host += seconds,
                Work::Wait { .. } => pass.parts.add(Part::Host, seconds),
                _ => {
                    pass.computing += seconds;
                    pass.parts.add(computing_part(&op.work), seconds);
                }
            }
        }
        Ok(pass)
    }

    fn add_collective(&self, step: &TrainingStep, op: &Op, hides: Hides, pass: &mut Pass) -> Result<()> {
        let seconds = self.collective(step, op)?;
        match hides {
            Hides::Attention => pass.around_attention += seconds,
            Hides::OtherLayer => {
                pass.traffic += seconds;
                pass.traffic_nearby += self.nearby(step, op)?;
            }
            _ => pass.parts.add(collective_part(op), seconds * self.exposed(hides)),
        }
        Ok(())
    }

    /// The pass beside gathers and reductions of the parameters of other layers.
    fn beside_traffic(&self, plain: Parts, pass: &Pass) -> Parts {
        let (mut parts, seconds) = (plain, plain.total());
        if pass.traffic > 0.0 {
            let slowed = self.constants.contention * seconds.min(pass.traffic).min(pass.traffic_nearby);
            parts.add(Part::Sharded, (pass.traffic - seconds).max(0.0) + slowed);
        }
        parts
    }
}

impl Pass {
    /// The parts, with what attention does not hide, and the wait for launches where the processor is the slower.
    fn bounded(&self) -> Parts {
        let (mut parts, around, [behind, beyond, always]) = (self.parts, self.around_attention, CONTEXT);
        let past = (around - behind * parts.seconds(Part::Attention)).max(0.0);
        parts.add(Part::Context, always * around + beyond * past);
        let slower = (self.computing.powf(SMOOTH) + self.host.powf(SMOOTH)).powf(1.0 / SMOOTH);
        parts.add(Part::Host, (slower - self.computing).max(0.0));
        parts
    }
}

fn computing_part(work: &Work) -> Part {
    match work {
        Work::Gemm { .. } => Part::Gemm,
        Work::Attention(_) => Part::Attention,
        _ => Part::Elementwise,
    }
}

/// The part of a collective, by the name of its group.
pub(super) fn collective_part(op: &Op) -> Part {
    let Work::Collective { group, .. } = &op.work else {
        return Part::Host;
    };
    part_of_group(group)
}

/// The part of collectives of a group; `tp 2` and `tp2` are other groups of the kind `tp`.
pub(super) fn part_of_group(group: &str) -> Part {
    match group.trim_end_matches(|end: char| end.is_ascii_digit() || end == ' ') {
        "tp" => Part::Tensor,
        "ep" => Part::Expert,
        "cp" => Part::Context,
        "pp" => Part::Sends,
        "shard" | "copies" => Part::Sharded,
        _ => Part::Data,
    }
}

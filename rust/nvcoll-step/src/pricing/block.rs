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

use super::Pricer;
use crate::error::Result;
use crate::parts::{TimePart, TimeParts};
use crate::step::layers::{Hides, LayerBlock, LayerOp};
use crate::step::work::{StepOp, StepWork};
use crate::step::WorkStep;

/// Seconds of one micro-batch in a block.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BlockTime {
    pub(super) forward: TimeParts,
    pub(super) backward: TimeParts,
    /// The part of `backward` that gradients of weights are, which schedules may put off.
    pub(super) weights: f64,
}

/// Seconds of one pass before traffic of sharded parameters.
#[derive(Debug, Clone, Copy, Default)]
struct BlockPass {
    parts: TimeParts,
    computing: f64,
    host: f64,
    around_attention: f64,
    traffic: f64,
    traffic_nearby: f64,
    copied: f64,
}

/// The power of the smooth maximum. Chosen.
const SMOOTH: f64 = 6.0;

/// Context parallelism: the part of attention behind which its traffic hides, the part that stays bare beyond it, and the part that is
/// always bare. Chosen: too few published runs have it.
const CONTEXT: [f64; 3] = [0.7, 0.5, 0.2];

impl Pricer<'_> {
    pub(super) fn block(&self, step: &WorkStep, block: &LayerBlock) -> Result<BlockTime> {
        let forward = self.pass(step, &block.forward, BlockPass::default())?;
        let weights = self.pass(step, &block.weights, BlockPass::default())?;
        let backward = self.pass(step, &block.backward, weights)?;
        let (plain_forward, mut plain_backward) = (forward.bounded(), backward.bounded());
        plain_backward.add(TimePart::Recompute, self.again(block, &forward, &plain_forward));
        Ok(BlockTime {
            forward: self.beside_traffic(plain_forward, &forward),
            backward: self.beside_traffic(plain_backward, &backward),
            weights: weights.computing,
        })
    }

    /// Seconds of what the backward pass computes again: whole layers with their collectives, or parts of what the GPU computes.
    fn again(&self, block: &LayerBlock, forward: &BlockPass, plain: &TimeParts) -> f64 {
        let recompute = &block.recompute;
        if recompute.is_full() {
            return plain.total();
        }
        recompute.gemm * forward.parts.seconds(TimePart::Gemm)
            + recompute.attention * forward.parts.seconds(TimePart::Attention)
            + recompute.elementwise * forward.parts.seconds(TimePart::Elementwise)
    }

    /// Adds operations to a pass.
    fn pass(&self, step: &WorkStep, ops: &[LayerOp], mut pass: BlockPass) -> Result<BlockPass> {
        for LayerOp { hides, op } in ops {
            if let StepWork::Collective { group, .. } = &op.work {
                self.add_collective(step, op, *hides, step.groups[group].kind.part(), &mut pass)?;
                continue;
            }
            let seconds = self.seconds_of(op)?;
            match op.work {
                StepWork::Copy { .. } if *hides == Hides::OtherLayer => pass.copied += seconds,
                StepWork::Host { .. } => pass.host += seconds,
                StepWork::Stall { .. } => pass.parts.add(TimePart::Host, seconds),
                _ => {
                    pass.computing += seconds;
                    pass.parts.add(op.computing_part(), seconds);
                }
            }
        }
        Ok(pass)
    }

    fn add_collective(
        &self,
        step: &WorkStep,
        op: &StepOp,
        hides: Hides,
        part: TimePart,
        pass: &mut BlockPass,
    ) -> Result<()> {
        let seconds = self.collective(step, op)?;
        match hides {
            Hides::Attention => pass.around_attention += seconds,
            Hides::OtherLayer => {
                pass.traffic += seconds;
                pass.traffic_nearby += self.nearby(step, op)?;
            }
            _ => pass.parts.add(part, seconds * self.exposed(hides)),
        }
        Ok(())
    }

    /// The pass beside gathers, reductions, and copies of other layers from and to RAM.
    fn beside_traffic(&self, plain: TimeParts, pass: &BlockPass) -> TimeParts {
        let (mut parts, seconds) = (plain, plain.total());
        parts.add(TimePart::Copies, (pass.copied - seconds).max(0.0));
        if pass.traffic > 0.0 {
            let slowed = self.constants.contention * seconds.min(pass.traffic).min(pass.traffic_nearby);
            parts.add(TimePart::Sharded, (pass.traffic - seconds).max(0.0) + slowed);
        }
        parts
    }
}

impl BlockPass {
    /// The parts, with what attention does not hide, and the wait for launches where the processor is the slower.
    fn bounded(&self) -> TimeParts {
        let (mut parts, around, [behind, beyond, always]) = (self.parts, self.around_attention, CONTEXT);
        let past = (around - behind * parts.seconds(TimePart::Attention)).max(0.0);
        parts.add(TimePart::Context, always * around + beyond * past);
        let slower = (self.computing.powf(SMOOTH) + self.host.powf(SMOOTH)).powf(1.0 / SMOOTH);
        parts.add(TimePart::Host, (slower - self.computing).max(0.0));
        parts
    }
}

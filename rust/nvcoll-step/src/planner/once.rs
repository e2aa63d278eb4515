//! What happens once in a step: gradients are reduced, the optimizer runs, parameters are gathered.
//!
//! | sharded | gradients | parameters |
//! |---|---|---|
//! | nothing | all-reduce | - |
//! | optimizer, gradients | reduce-scatter, then all-reduce over copies of the shards | all-gather, or a broadcast of each rank |
//! | parameters | the gather and the reduction of embedding and head, which nothing hides; the rest is part of each layer | |
//! | parameters, in a pipeline | each layer once, half of it bare | |
//!
//! Reductions hide behind the backward pass of the last micro-batch, gathers behind the forward pass of the first, where the software
//! does so. Source: ZeRO (arXiv 1910.02054), FSDP (arXiv 2304.11277).

use super::layers::{collective, moved, times, LayerSizes};
use super::request::{Request, StageParameters};
use super::{stages, stall};
use crate::layout::Sharding;
use crate::parts::TimePart;
use crate::step::layers::{Hides, LayerOp};
use crate::step::work::{Direction, MoveRate, StepOp, StepWork};
use nvcoll_fabric::predict::Pattern;

/// Bytes per parameter that the optimizer reads and writes beside states and master copy, each read and written: gradients, bf16 parameters.
const OPTIMIZER_BYTES: f64 = 10.0;

/// The same where all is bf16: parameters are read and written, gradients read.
const NARROW_BYTES: f64 = 6.0;

/// Seconds per parameter of Adam on the processor. Source: ZeRO-Offload (arXiv 2101.06840), table 4: 2.6 s for 10 billion on two Xeon 8168.
const PROCESSOR_SECONDS: f64 = 0.26e-9;

/// Seconds of the optimizer that do not depend on parameters: the norm of gradients, launches. Fitted.
const OPTIMIZER_SECONDS: f64 = 4e-3;

impl Request {
    /// What the ranks of a stage do once in a step.
    pub(super) fn once(&self, parameters: &StageParameters, chunks: &[stages::StageChunk]) -> Vec<LayerOp> {
        let mut found = if self.layout.sharded() == Sharding::Parameters {
            self.sharded_once(parameters, chunks)
        } else {
            self.copies_once(parameters).into_iter().map(|op| self.in_buckets(op)).collect()
        };
        found.extend(self.optimizer(parameters, chunks));
        found
    }

    /// Splits a collective into its buckets; parameters that ranks broadcast in turn stay whole.
    fn in_buckets(&self, mut layer: LayerOp) -> LayerOp {
        let op = &mut layer.op;
        if let (StepWork::Collective { bytes, pattern, .. }, Some(most)) = (&mut op.work, self.software.bucket_mb) {
            if *pattern != Pattern::Broadcast {
                let buckets = (*bytes / (most * 1e6)).ceil().max(1.0);
                (op.count, *bytes) = (op.count * buckets, *bytes / buckets);
            }
        }
        layer
    }

    fn sharded_once(&self, parameters: &StageParameters, chunks: &[stages::StageChunk]) -> Vec<LayerOp> {
        if self.layout.stages == 1 {
            return self.sharded((parameters.ends, 0.0), (parameters.trained_ends, 0.0), true, Hides::Nothing);
        }
        let of = |&(kind, repeat): &(_, u32)| {
            let sizes = LayerSizes::of(self, kind);
            let ops = self.sharded(sizes.parameters(), sizes.trained(), true, Hides::Half).into_iter();
            ops.map(move |op| times(f64::from(repeat), op))
        };
        let twice = |layer: LayerOp| match layer.op.work {
            StepWork::Collective { pattern: Pattern::AllGather, .. } => times(2.0, layer),
            _ => layer,
        };
        chunks.iter().flat_map(|chunk| &chunk.layers).flat_map(of).map(twice).collect()
    }

    fn copies_once(&self, parameters: &StageParameters) -> Vec<LayerOp> {
        let (layout, software) = (&self.layout, &self.software);
        let hide = |behind| if software.overlaps_data { behind } else { Hides::Nothing };
        let ((dense, experts), sharded) = (self.trained(parameters), layout.sharded() != Sharding::None);
        let mut found = Vec::new();
        if layout.replicas() > 1 && sharded {
            found.extend(self.reduce(dense * self.gradient_bytes(), hide(Hides::LastBackward)));
            found.push(self.gather(dense, hide(Hides::FirstForward)));
            if layout.gpus > self.domain && software.host_gather_ms > 0.0 {
                found.push(stall("gather of parameters", software.host_gather_ms * 1e-3 * parameters.layers).into());
            }
        } else if layout.replicas() > 1 {
            let bytes = dense * self.gradient_bytes();
            found.push(collective(Pattern::AllReduce, bytes, "dp", hide(Hides::LastBackward)));
        }
        if experts > 0.0 && layout.expert_replicas() > 1 {
            let of = |pattern, bytes, behind| collective(pattern, experts * bytes, "edp", hide(behind));
            let reduce = if sharded { Pattern::ReduceScatter } else { Pattern::AllReduce };
            found.push(of(reduce, self.gradient_bytes(), Hides::LastBackward));
            if sharded {
                found.push(of(Pattern::AllGather, self.trained_bytes(), Hides::FirstForward));
            }
        }
        found
    }

    /// The gather of parameters: one collective, or a broadcast of each rank in turn.
    fn gather(&self, parameters: f64, hides: Hides) -> LayerOp {
        let shards = f64::from(self.layout.shards());
        if self.software.broadcasts_parameters {
            let each = parameters * 2.0 / shards;
            return times(shards, collective(Pattern::Broadcast, each, "shard", Hides::Nothing));
        }
        collective(Pattern::AllGather, parameters * self.trained_bytes(), "shard", hides)
    }

    /// Passes over parameters and states; products of Newton and Schulz; copies of what the processor keeps, which runs the optimizer then.
    fn optimizer(&self, parameters: &StageParameters, chunks: &[stages::StageChunk]) -> Vec<LayerOp> {
        let (layout, recipe) = (&self.layout, &self.layout.recipe);
        let (dense, experts) = self.trained(parameters);
        let own = dense / f64::from(layout.shards()) + experts / f64::from(layout.expert_shards());
        let [states, _] = recipe.optimizer_bytes(&self.software);
        let traffic = 2.0 * states + if recipe.is_narrow() { NARROW_BYTES } else { OPTIMIZER_BYTES };
        let mut ops = vec![stall("optimizer", OPTIMIZER_SECONDS)];
        if recipe.offloads("optimizer") {
            let copy = |direction, bytes| StepOp::once("optimizer in RAM", StepWork::Copy { bytes, direction });
            ops.push(stall("optimizer of the processor", PROCESSOR_SECONDS * own));
            let copies = [copy(Direction::D2h, self.gradient_bytes() * own), copy(Direction::H2d, 2.0 * own)];
            ops.extend(copies.map(|op| StepOp { part: Some(TimePart::Copies), ..op }));
        } else {
            ops.push(StepOp::once("optimizer", moved(MoveRate::Stream, traffic * own)));
        }
        let layers = chunks.iter().flat_map(|chunk| &chunk.layers);
        ops.extend(layers.flat_map(|&(kind, repeat)| LayerSizes::of(self, kind).orthogonal(repeat.into())));
        let of = |op: StepOp| StepOp { part: op.part.or(Some(TimePart::Optimizer)), ..op }.into();
        ops.into_iter().map(of).collect()
    }

    /// Bytes of a trained parameter that is gathered: adapters are not quantised.
    fn trained_bytes(&self) -> f64 {
        if self.is_adapted() {
            self.software.parameter_bytes
        } else {
            self.parameter_bytes()
        }
    }
}

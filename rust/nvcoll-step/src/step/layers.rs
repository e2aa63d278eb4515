//! What ranks do in layers and stages: the form of planned steps.
//!
//! ```text
//! Layers ─┬─ blocks     name -> operations of one micro-batch in a layer: forward, backward, weights
//!         ├─ pipeline   stages, micro-batches, their order
//!         └─ roles      one per kind of stage: its chunks as runs of blocks, and what happens once in a step
//! ```
//!
//! Ranks that do the same are one role, and layers that do the same are one block: the steps of 16,384 and of 8 GPUs have the same size.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::work::StepOp;
use crate::layout::Recompute;
use crate::memory::RankMemory;
use crate::pipeline::Schedule;

/// Blocks of layers on stages of a pipeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layers {
    /// The software that the planner assumed, if it planned the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub software: Option<String>,
    /// What a layer, the embedding or the head do with one micro-batch, by name.
    pub blocks: BTreeMap<String, LayerBlock>,
    /// The pipeline; one stage by default.
    #[serde(default)]
    pub pipeline: Stages,
    /// One role for each kind of stage. Every stage has one role.
    pub roles: Vec<Role>,
}

/// The pipeline of a step. One stage and one chunk: no pipeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stages {
    /// The number of stages.
    pub stages: u32,
    /// The chunks of each stage.
    pub chunks: u32,
    /// The order in which stages work on micro-batches.
    pub schedule: Schedule,
    /// The micro-batches of a step on each rank.
    pub micro_batches: u32,
    /// What a stage sends to the next for each micro-batch and chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send: Option<LayerOp>,
    /// Seconds that each slot stalls, as a framework is known to do.
    #[serde(default)]
    pub stall_s: f64,
}

impl Default for Stages {
    /// One stage with one micro-batch.
    fn default() -> Self {
        Self { stages: 1, chunks: 1, schedule: Schedule::OneFOneB, micro_batches: 1, send: None, stall_s: 0.0 }
    }
}

/// What the ranks of some stages do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Role {
    /// Its name, as `first stage`.
    pub name: String,
    /// The stages that it stands for.
    pub stages: Vec<u32>,
    /// The blocks of each chunk, in the order of the forward pass.
    pub chunks: Vec<Vec<BlockRun>>,
    /// What happens once in a step, after the last micro-batch.
    pub once: Vec<LayerOp>,
    /// What its ranks keep in memory, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<RankMemory>,
}

/// A block, some times in a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockRun {
    /// The name of the block.
    pub block: String,
    /// How often it comes.
    pub repeat: u32,
}

/// The operations of one micro-batch in a layer, the embedding or the head.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerBlock {
    /// The forward pass.
    pub forward: Vec<LayerOp>,
    /// The backward pass without the gradients of weights.
    pub backward: Vec<LayerOp>,
    /// The gradients of weights.
    #[serde(default)]
    pub weights: Vec<LayerOp>,
    /// The part of the forward pass that the backward pass repeats first.
    #[serde(default)]
    pub recompute: Recompute,
}

/// An operation, with what it hides behind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerOp {
    /// What a collective hides behind.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub hides: Hides,
    /// The operation.
    #[serde(flatten)]
    pub op: StepOp,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_nothing(hides: &Hides) -> bool {
    *hides == Hides::Nothing
}

/// What a collective hides behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hides {
    /// Nothing: computing waits.
    #[default]
    Nothing,
    /// The product whose tiles it carries.
    Tiles,
    /// The computing of another micro-batch: all-to-alls of experts.
    OtherMicroBatch,
    /// Attention: context parallelism.
    Attention,
    /// The computing of another layer: sharded parameters.
    OtherLayer,
    /// The backward pass of the last micro-batch: reductions of gradients.
    LastBackward,
    /// The forward pass of the first micro-batch: gathers of parameters.
    FirstForward,
    /// Half of it behind the pipeline's first and last micro-batches.
    Half,
}

impl Layers {
    /// Returns every operation.
    pub fn ops(&self) -> impl Iterator<Item = &LayerOp> {
        let blocks = self.blocks.values().flat_map(|block| [&block.forward, &block.backward, &block.weights]);
        let once = self.roles.iter().map(|role| &role.once);
        blocks.chain(once).flatten().chain(&self.pipeline.send)
    }
}

impl From<StepOp> for LayerOp {
    /// Returns an operation behind which nothing hides.
    fn from(op: StepOp) -> Self {
        Self { hides: Hides::Nothing, op }
    }
}

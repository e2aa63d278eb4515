//! The training step: the one object that makers write and that pricing reads.
//!
//! ```text
//! TrainingStep ─┬─ groups      name -> ranks that communicate
//!               ├─ blocks      name -> operations of one micro-batch in a layer: forward, backward, weights
//!               └─ roles       one per kind of stage: its chunks as runs of blocks, and what happens once in a step
//! ```
//!
//! Ranks that do the same are one role, and layers that do the same are one block: the step of 16,384 GPUs is as small as that of 8.
//! Three makers are possible: the planner, a recorded script ([`crate::recorded`]), and a file by hand. `docs/training-step.md` documents the JSON, which is
//! this structure, field by field.

use std::collections::BTreeMap;

use nvcoll_fabric::predict::Pattern;
use serde::{Deserialize, Serialize};

use crate::attention::Attention;
use crate::error::{Error, Result};
use crate::layout::{Dtype, Recompute};
use crate::memory::Memory;
use crate::network::Group;
use crate::pipeline::Schedule;
use crate::recorded::Recorded;

/// The name of the format.
pub const SCHEMA: &str = "nvcoll.training-step/1";

/// The most of any number of a step. Chosen: products of three of them are finite.
pub(crate) const MOST: f64 = 1e30;

/// What all ranks do in one step of training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingStep {
    /// The format and its version: [`SCHEMA`].
    pub schema: String,
    /// What it is a step of, for people.
    pub name: String,
    /// The number of GPUs.
    pub gpus: u32,
    /// The tokens of a step.
    pub tokens: f64,
    /// The FLOPs of the model in a step; what is computed twice counts once.
    pub model_flops: f64,
    /// The precision of most GEMMs: that of the peak to which MFU refers.
    pub dtype: Dtype,
    /// Groups of ranks by name.
    pub groups: BTreeMap<String, Group>,
    /// What a layer, the embedding or the head do with one micro-batch, by name; none in a recorded step.
    #[serde(default)]
    pub blocks: BTreeMap<String, Block>,
    /// The pipeline; one stage in a recorded step.
    #[serde(default)]
    pub pipeline: Stages,
    /// One role for each kind of stage. Every stage has one role. None in a recorded step.
    #[serde(default)]
    pub roles: Vec<Role>,
    /// What ranks did, if the step was recorded and not planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Recorded>,
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
    pub send: Option<Op>,
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
    pub chunks: Vec<Vec<Run>>,
    /// What happens once in a step, after the last micro-batch.
    pub once: Vec<Op>,
    /// What its ranks keep in memory.
    pub memory: Memory,
}

/// A block, some times in a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The name of the block.
    pub block: String,
    /// How often it comes.
    pub repeat: u32,
}

/// The operations of one micro-batch in a layer, the embedding or the head.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// The forward pass.
    pub forward: Vec<Op>,
    /// The backward pass without the gradients of weights.
    pub backward: Vec<Op>,
    /// The gradients of weights.
    #[serde(default)]
    pub weights: Vec<Op>,
    /// The part of the forward pass that the backward pass repeats first.
    #[serde(default)]
    pub recompute: Recompute,
}

/// An operation, some times in a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Op {
    /// Its name, as `mlp up`.
    pub name: String,
    /// How often it comes.
    #[serde(default = "once")]
    pub count: f64,
    /// What it does.
    #[serde(flatten)]
    pub work: Work,
}

fn once() -> f64 {
    1.0
}

fn is_once(number: &f64) -> bool {
    *number == 1.0
}

/// What an operation does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "work", rename_all = "snake_case", deny_unknown_fields)]
pub enum Work {
    /// A matrix product, (m, k) times (k, n).
    Gemm {
        /// Rows of the result: tokens, in the forward pass.
        m: f64,
        /// Columns of the result.
        n: f64,
        /// Elements of each product.
        k: f64,
        /// The products of one kernel.
        #[serde(default = "once", skip_serializing_if = "is_once")]
        batch: f64,
        /// The precision of the inputs.
        dtype: Dtype,
        /// For the products of experts, which run as one kernel of `count` products: the part of K that is lost, in that of dense
        /// products times the constant `grouped`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grouped: Option<f64>,
    },
    /// Attention of all heads of a rank.
    Attention(Attention),
    /// Element-wise work: the bytes that it reads and writes, times a factor of the generation.
    Elementwise {
        /// The bytes.
        bytes: f64,
    },
    /// Bytes that stream through memory at its rate: gradients that are accumulated, the optimizer.
    Stream {
        /// The bytes.
        bytes: f64,
    },
    /// Time of the processor, in which the GPU computes what was launched before.
    Host {
        /// Seconds.
        seconds: f64,
    },
    /// Time in which the GPU waits for the processor.
    Wait {
        /// Seconds.
        seconds: f64,
    },
    /// A collective.
    Collective {
        /// Which.
        #[serde(with = "pattern")]
        pattern: Pattern,
        /// The bytes as nccl-tests counts them: those of all ranks together for all_gather and reduce_scatter.
        bytes: f64,
        /// The name of the group.
        group: String,
        /// What it hides behind.
        #[serde(default)]
        hides: Hides,
        /// If a token goes to each node once: the experts of a token, by which the bytes shrink.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        once_per_node: Option<f64>,
    },
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

/// A pattern by its name.
pub(crate) mod pattern {
    use nvcoll_fabric::predict::Pattern;
    use serde::{de, Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(pattern: &Pattern, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(pattern.name())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Pattern, D::Error> {
        Pattern::named(&String::deserialize(from)?).map_err(de::Error::custom)
    }
}

impl TrainingStep {
    /// Reads a step from JSON.
    ///
    /// # Errors
    /// [`Error::Step`] if the text is no such JSON, or contradicts itself.
    pub fn from_json(text: &str) -> Result<Self> {
        let step: Self = serde_json::from_str(text).map_err(|error| Error::Step(error.to_string()))?;
        step.check()?;
        Ok(step)
    }

    /// Returns the step as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("all keys are texts")
    }

    /// Refuses a step that contradicts itself.
    ///
    /// # Errors
    /// [`Error::Step`] with what was found and what was expected.
    pub fn check(&self) -> Result<()> {
        let refuse = |reason: String| Err(Error::Step(reason));
        if self.schema != SCHEMA {
            return refuse(format!("its schema is `{}`, {SCHEMA} was expected", self.schema));
        }
        if self.gpus == 0 || !self.groups.values().all(|group| group.is_sound()) {
            let message = "1 or more were expected, and runs of equal size at a multiple of their length";
            return refuse(format!("it has no GPUs, or a group without ranks, stride or whole runs: {message}"));
        }
        if let Some(recorded) = &self.recorded {
            return recorded.check(self);
        }
        self.check_stages()?;
        self.roles.iter().try_for_each(|role| self.check_role(role))?;
        self.check_numbers()?;
        self.ops().try_for_each(|op| self.check_op(op))
    }

    fn check_stages(&self) -> Result<()> {
        let mut stages: Vec<u32> = self.roles.iter().flat_map(|role| role.stages.iter().copied()).collect();
        stages.sort_unstable();
        let count = self.pipeline.stages;
        if stages.is_empty() || !stages.iter().copied().eq(0..count) {
            let found = stages
                .windows(2)
                .find(|two| two[0] + 1 != two[1])
                .map_or(String::new(), |two| format!(", and {} comes before {} in their order", two[0], two[1]));
            let reason = format!("its roles have {} stages{found}: each of {count} was expected once", stages.len());
            return Err(Error::Step(reason));
        }
        Ok(())
    }

    fn check_role(&self, role: &Role) -> Result<()> {
        let refuse = |reason: String| Err(Error::Step(format!("role `{}` {reason}", role.name)));
        if role.stages.is_empty() {
            return refuse("stands for no stage: one or more were expected".to_owned());
        }
        if role.chunks.len() != self.pipeline.chunks as usize {
            return refuse(format!("has {} chunks, {} were expected", role.chunks.len(), self.pipeline.chunks));
        }
        if let Some(run) = role.chunks.iter().flatten().find(|run| !self.blocks.contains_key(&run.block)) {
            return refuse(format!("runs the block `{}`, which does not exist", run.block));
        }
        Ok(())
    }

    /// Refuses numbers outside operations that are none.
    fn check_numbers(&self) -> Result<()> {
        let of_memory = |role: &Role| {
            let Memory { standing, activations, in_flight, working, loss } = &role.memory;
            let parts = standing.iter().map(|part| part.bytes);
            parts.chain([*activations, *in_flight, *working, *loss]).collect::<Vec<_>>()
        };
        let numbers = self.roles.iter().flat_map(of_memory);
        let numbers = numbers.chain([self.tokens, self.model_flops, self.pipeline.stall_s]);
        if let Some(number) = numbers.into_iter().find(|number| !(0.0..=MOST).contains(number)) {
            let reason =
                format!("its memory, tokens, FLOPs or stall have the number {number:?}: 0 to {MOST:e} was expected");
            return Err(Error::Step(reason));
        }
        let again = |block: &Block| [block.recompute.gemm, block.recompute.attention, block.recompute.elementwise];
        match self.blocks.values().flat_map(again).find(|part| !(0.0..=1.0).contains(part)) {
            None => Ok(()),
            Some(part) => Err(Error::Step(format!("a block computes the part {part} again: 0 to 1 was expected"))),
        }
    }

    /// Returns every operation.
    pub fn ops(&self) -> impl Iterator<Item = &Op> {
        let blocks = self.blocks.values().flat_map(|block| [&block.forward, &block.backward, &block.weights]);
        let once = self.roles.iter().map(|role| &role.once);
        blocks.chain(once).flatten().chain(&self.pipeline.send)
    }

    /// Returns the work of all operations, planned or recorded.
    pub(crate) fn works(&self) -> Box<dyn Iterator<Item = Work> + '_> {
        match &self.recorded {
            None => Box::new(self.ops().map(|op| op.work.clone())),
            Some(recorded) => {
                Box::new(recorded.ranks.iter().flat_map(|rank| &rank.ops).filter_map(|op| op.action.as_work()))
            }
        }
    }

    fn check_op(&self, op: &Op) -> Result<()> {
        let numbers = match &op.work {
            Work::Gemm { m, n, k, batch, grouped, .. } => vec![*m, *n, *k, *batch, grouped.unwrap_or(1.0)],
            Work::Attention(attention) => attention.numbers(),
            Work::Elementwise { bytes } | Work::Stream { bytes } => vec![*bytes],
            Work::Host { seconds } | Work::Wait { seconds } => vec![*seconds],
            Work::Collective { bytes, group, once_per_node, .. } => {
                if !self.groups.contains_key(group) {
                    let reason = format!("`{}` is a collective of the group `{group}`, which does not exist", op.name);
                    return Err(Error::Step(reason));
                }
                vec![*bytes, once_per_node.unwrap_or(1.0)]
            }
        };
        let wrong = numbers.into_iter().chain([op.count]).find(|number| !(0.0..=MOST).contains(number));
        match wrong {
            None => Ok(()),
            Some(number) => {
                Err(Error::Step(format!("`{}` has the number {number:?}, 0 to {MOST:e} was expected", op.name)))
            }
        }
    }
}

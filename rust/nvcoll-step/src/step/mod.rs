//! The step of work: the one object that makers write and that pricing reads.
//!
//! ```text
//! WorkStep ─┬─ groups    name -> ranks that communicate
//!           └─ form ─┬─ Layers    planned: a block stands for its layers, a role for its stages
//!                    └─ Streams   recorded: what ranks issued to streams, in their order; a rank stands for its like
//! ```
//!
//! Both forms are made of the same operations ([`StepOp`]). A form adds what only it knows: a layer what a collective hides behind, a stream when
//! and where an operation was issued. The planner makes layers; the builder makes streams, of a script on a virtual GPU or of a trace. An iteration of
//! a model server is a step, too. `docs/reference/training-step.md` documents the JSON, which is this structure, field by field.

mod check;
pub mod layers;
pub mod streams;
pub mod work;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::layout::Dtype;
use crate::network::Group;
use crate::parts::TimePart;
use layers::Layers;
use streams::Streams;
use work::StepOp;

/// The name of the format.
pub const SCHEMA: &str = "nvcoll.step/1";

/// The most of any number of a step. Chosen: products of three of them are finite.
pub(crate) const MOST: f64 = 1e30;

/// What all ranks do in one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkStep {
    /// The format and its version: [`SCHEMA`].
    pub schema: String,
    /// What it is a step of, for people.
    pub name: String,
    /// The number of GPUs.
    pub gpus: u32,
    /// The tokens of a step of all GPUs together, if they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<f64>,
    /// The FLOPs of the model in a step of all GPUs together, if they are known; what is computed twice counts once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_flops: Option<f64>,
    /// The precision of most GEMMs; MFU refers to its peak.
    pub dtype: Dtype,
    /// Groups of ranks by name.
    pub groups: BTreeMap<String, RankGroup>,
    /// What the ranks do.
    #[serde(flatten)]
    pub form: Form,
}

/// What ranks do: in layers and stages as planned, or on streams as recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Blocks of layers on stages of a pipeline.
    Layers(Layers),
    /// Operations on streams.
    Streams(Streams),
}

/// A group of ranks that communicate: its kind, and which ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankGroup {
    /// The parallelism for which it communicates.
    #[serde(default, skip_serializing_if = "GroupKind::is_other")]
    pub kind: GroupKind,
    /// Its ranks.
    #[serde(flatten)]
    pub ranks: Group,
}

/// The parallelism for which a group communicates, in the short words of the field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupKind {
    /// Tensor parallelism.
    Tp,
    /// Context parallelism.
    Cp,
    /// Expert parallelism.
    Ep,
    /// Stages of a pipeline.
    Pp,
    /// Ranks that share one sharded copy: ZeRO, FSDP.
    Shard,
    /// Ranks with equal shards: HSDP.
    Copies,
    /// Data parallelism.
    Dp,
    /// Data parallelism of experts.
    Edp,
    /// Not known.
    #[default]
    Other,
}

impl GroupKind {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    fn is_other(&self) -> bool {
        *self == Self::Other
    }

    /// Returns the kind that a word names, as `tp`; others are [`GroupKind::Other`].
    pub fn named(word: &str) -> Self {
        match word {
            "tp" => Self::Tp,
            "cp" => Self::Cp,
            "ep" => Self::Ep,
            "pp" => Self::Pp,
            "shard" => Self::Shard,
            "copies" => Self::Copies,
            "dp" => Self::Dp,
            "edp" => Self::Edp,
            _ => Self::Other,
        }
    }

    /// Returns the part of the time to which its collectives belong where nothing hides them.
    pub const fn part(self) -> TimePart {
        match self {
            Self::Tp => TimePart::Tensor,
            Self::Ep => TimePart::Expert,
            Self::Cp => TimePart::Context,
            Self::Pp => TimePart::Sends,
            Self::Shard | Self::Copies => TimePart::Sharded,
            Self::Dp | Self::Edp | Self::Other => TimePart::Data,
        }
    }
}

impl WorkStep {
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

    /// Returns the step's layers, if it has this form.
    pub fn layers(&self) -> Option<&Layers> {
        match &self.form {
            Form::Layers(layers) => Some(layers),
            Form::Streams(_) => None,
        }
    }

    /// Returns the step's streams, if it has this form.
    pub fn streams(&self) -> Option<&Streams> {
        match &self.form {
            Form::Layers(_) => None,
            Form::Streams(streams) => Some(streams),
        }
    }

    /// Returns every operation.
    pub fn ops(&self) -> Box<dyn Iterator<Item = &StepOp> + '_> {
        match &self.form {
            Form::Layers(layers) => Box::new(layers.ops().map(|layer| &layer.op)),
            Form::Streams(streams) => {
                Box::new(streams.ranks.iter().flat_map(|rank| &rank.issued).map(|issued| &issued.op))
            }
        }
    }
}

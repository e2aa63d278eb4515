//! What is trained, and where its state is kept: adapters on a frozen base, optimizers, offload, the loss.
//!
//! | word | parameters | what it changes |
//! |---|---|---|
//! | `lora` | adapters of a rank beside frozen matrices (arXiv 2106.09685) | no gradients and states of the base, products of adapters |
//! | `dora` | a magnitude for each row, too (arXiv 2402.09353) | norms of the adapted matrices |
//! | `quantize` | the base in few bits (arXiv 2305.14314) | its bytes; each product first writes its matrix in bf16 |
//! | `optimizer`, `pure_bf16` | - | bytes of states, passes over them |
//! | `optimizer_in_backward` | - | one gradient at a time |
//! | `offload` | - | copies over the link to the processor, whose memory is taken to suffice |
//! | `loss_chunks`, `document` | - | logits that are there at once; attention within documents |
//! | `filled` | - | tokens that count: a padded sequence is computed in full |
//! | `frozen` | those of the embedding and of the first layers | these have a forward pass alone |
//! | `mtp` | layers of multi-token prediction (arXiv 2412.19437, section 2.2) | a projection, a layer, embedding and head again |
//! | `imbalance` | - | tokens of the fullest expert-parallel rank |
//!
//! What it does not know: routers and decays have no adapters, and biases and norms are not counted.

use std::fmt::{self, Display, Formatter};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::software::Software;
use crate::tables;

nvcoll_core::names! {
    /// The format of frozen matrices.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum FrozenFormat {
        /// 4 bits with a scale of 4 bytes for 64 elements (bitsandbytes).
        #[serde(rename = "nf4")]
        Nf4 = "nf4",
        /// The same with scales of 8 bits, and a scale of 4 bytes for 256 of them: double quantisation of QLoRA.
        #[serde(rename = "nf4-dq")]
        Nf4Double = "nf4-dq",
        /// Integers of 8 bits (LLM.int8).
        #[serde(rename = "int8")]
        Int8 = "int8",
    }
}

impl FrozenFormat {
    /// Returns the bytes of an element, scales included.
    pub const fn bytes(self) -> f64 {
        match self {
            Self::Nf4 => 0.5 + 4.0 / 64.0,
            Self::Nf4Double => 0.5 + (1.0 + 4.0 / 256.0) / 64.0,
            Self::Int8 => 1.0,
        }
    }
}

/// What is trained, and where its state is kept. The default: all parameters, as the software does.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Recipe {
    /// The rank of adapters; none: all parameters are trained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora: Option<u32>,
    /// What has adapters, with commas: `all`, `attention`, `mlp`, or modules, as `q,v`; all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora_targets: Option<String>,
    /// Whether adapters have magnitudes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dora: Option<bool>,
    /// The format of the frozen base; bf16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantize: Option<FrozenFormat>,
    /// The optimizer; AdamW.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimizer: Option<String>,
    /// Whether parameters, gradients and states are bf16, without a master copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pure_bf16: Option<bool>,
    /// Whether the optimizer runs in the backward pass, gradient by gradient.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimizer_in_backward: Option<bool>,
    /// What waits in RAM, with commas: `optimizer`, `parameters`, `activations`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offload: Option<String>,
    /// The chunks of tokens of which logits are there one after the other; 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_chunks: Option<u32>,
    /// Tokens of a document, to which attention in a packed sequence is confined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document: Option<u64>,
    /// The part of a padded sequence that tokens fill; 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filled: Option<f64>,
    /// First layers that are frozen, with the embedding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frozen: Option<u32>,
    /// Layers of multi-token prediction, behind the last layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtp: Option<u32>,
    /// Tokens of the fullest expert-parallel rank, as a multiple of the mean; 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub imbalance: Option<f64>,
}

/// A row of `optimizers.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Optimizer {
    name: String,
    states: f64,
    narrow_states: f64,
    end_states: Option<f64>,
    #[serde(default)]
    pub(crate) paged: bool,
    #[serde(default)]
    pub(crate) iterations: u32,
    #[expect(dead_code, reason = "read by people, and required")]
    source: String,
}

static OPTIMIZERS: LazyLock<Vec<Optimizer>> =
    LazyLock::new(|| tables::rows(include_str!("data/optimizers.toml"), "optimizer"));

/// What can wait in RAM.
const OFFLOADED: [&str; 3] = ["optimizer", "parameters", "activations"];

/// Groups of modules that have adapters, and modules, after PEFT's names.
const TARGETS: [&str; 14] =
    ["all", "attention", "mlp", "q", "k", "v", "o", "gate", "up", "down", "q_a", "q_b", "kv_a", "kv_b"];

/// The bytes of AdamW's states, which rows of software count with the master copy.
const ADAM_STATES: f64 = 8.0;

impl Recipe {
    /// Returns the optimizer.
    ///
    /// # Errors
    /// [`Error::Unknown`], with all names.
    pub(crate) fn optimizer(&self) -> Result<&'static Optimizer> {
        tables::named("optimizer", self.optimizer.as_deref().unwrap_or("adamw"), &OPTIMIZERS, |one| &one.name)
    }

    /// Returns the bytes of the optimizer for a parameter of layers, and of embedding and head, master copy included.
    pub(crate) fn optimizer_bytes(&self, software: &Software) -> [f64; 2] {
        let row = self.optimizer().expect("the recipe was checked");
        if self.is_narrow() {
            return [row.narrow_states, row.end_states.map_or(row.narrow_states, |bytes| bytes / 2.0)];
        }
        let master = software.optimizer_bytes - ADAM_STATES;
        [row.states, row.end_states.unwrap_or(row.states)].map(|states| (master + states).max(0.0))
    }

    /// Returns the bytes of a parameter's moments that the driver may move to RAM.
    pub(crate) fn paged_bytes(&self) -> f64 {
        let row = self.optimizer().expect("the recipe was checked");
        match (row.paged, self.is_narrow()) {
            (false, _) => 0.0,
            (true, false) => row.states,
            (true, true) => row.narrow_states,
        }
    }

    /// Says whether all parameters are trained as the software does.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Says whether parameters, gradients and states are bf16.
    pub(crate) fn is_narrow(&self) -> bool {
        self.pure_bf16 == Some(true)
    }

    /// Says whether a part waits in RAM.
    pub(crate) fn offloads(&self, part: &str) -> bool {
        words(self.offload.as_ref()).any(|word| word == part)
    }

    /// Says whether a module of a group has adapters.
    pub(crate) fn adapts(&self, module: &str, group: &str) -> bool {
        match &self.lora_targets {
            None => true,
            given => words(given.as_ref()).any(|word| word == "all" || word == group || word == module),
        }
    }

    /// Returns the bytes of an element of the base's matrices.
    pub(crate) fn base_bytes(&self) -> f64 {
        self.quantize.map_or(2.0, FrozenFormat::bytes)
    }

    /// Refuses words that are unknown or need another.
    ///
    /// # Errors
    /// [`Error::Unknown`]; [`Error::Layout`] with the rule.
    pub(crate) fn check(&self, micro_batches: u32) -> Result<()> {
        self.optimizer()?;
        known("part that is offloaded", &OFFLOADED, self.offload.as_ref())?;
        known("target of adapters", &TARGETS, self.lora_targets.as_ref())?;
        let needs_rank = [self.lora_targets.is_some(), self.dora == Some(true), self.quantize.is_some()];
        if self.lora.is_none() && needs_rank.contains(&true) {
            return Err(Error::layout(
                "`lora_targets`, `dora` and `quantize` are of adapters: pass their rank, as lora 16",
            ));
        }
        let sizes = [self.lora, self.loss_chunks, self.mtp, self.frozen].map(|size| size.map(u64::from));
        let sizes = sizes.into_iter().chain([self.document]);
        if sizes.flatten().any(|size| !(1..=1 << 20).contains(&size)) {
            return Err(Error::layout(
                "the rank of adapters, chunks of the loss, tokens of a document, and layers are 1 to 1,048,576",
            ));
        }
        if self.filled.is_some_and(|part| !(0.001..=1.0).contains(&part)) {
            return Err(Error::layout(
                "tokens fill more than nothing of a padded sequence, and at most all: `filled` 0.7",
            ));
        }
        if self.imbalance.is_some_and(|times| !(1.0..=1e3).contains(&times)) {
            return Err(Error::layout("the fullest rank of experts gets at least the mean: `imbalance` 1.3"));
        }
        if self.lora.is_some() && (self.mtp.is_some() || self.frozen.is_some()) {
            return Err(Error::layout("with adapters all layers are frozen: leave `mtp` and `frozen` out"));
        }
        if self.lora.is_some() && self.optimizer()?.iterations > 0 {
            return Err(Error::layout("muon is for whole matrices, and adapters have none: take adamw"));
        }
        if self.optimizer_in_backward == Some(true) && micro_batches > 1 {
            return Err(Error::layout(format!(
                "an optimizer in the backward pass cannot add up the gradients of {micro_batches} micro-batches: take one"
            )));
        }
        Ok(())
    }
}

fn words(given: Option<&String>) -> impl Iterator<Item = &str> {
    given.into_iter().flat_map(|text| text.split(',')).map(str::trim)
}

fn known(kind: &'static str, all: &[&str], given: Option<&String>) -> Result<()> {
    match words(given).find(|word| !all.contains(word)) {
        None => Ok(()),
        Some(name) => Err(Error::Unknown { kind, name: name.to_owned(), known: all.join(", ") }),
    }
}

impl Display for Recipe {
    /// Writes what is not the default, as `  LoRA 16  nf4`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(rank) = self.lora {
            write!(f, "  {} {rank}", if self.dora == Some(true) { "DoRA" } else { "LoRA" })?;
        }
        self.lora_targets.iter().try_for_each(|targets| write!(f, " of {targets}"))?;
        self.quantize.iter().try_for_each(|format| write!(f, "  base {}", format.name()))?;
        self.optimizer.iter().try_for_each(|name| write!(f, "  {name}"))?;
        for (is_said, words) in [(self.pure_bf16, "pure bf16"), (self.optimizer_in_backward, "optimizer in backward")] {
            if is_said == Some(true) {
                write!(f, "  {words}")?;
            }
        }
        self.offload.iter().try_for_each(|parts| write!(f, "  {parts} in RAM"))?;
        self.loss_chunks.iter().try_for_each(|chunks| write!(f, "  loss in {chunks} chunks"))?;
        self.document.iter().try_for_each(|tokens| write!(f, "  documents of {tokens} tokens"))?;
        self.filled.iter().try_for_each(|part| write!(f, "  filled {part}"))?;
        self.frozen.iter().try_for_each(|layers| write!(f, "  {layers} layers frozen"))?;
        self.mtp.iter().try_for_each(|layers| write!(f, "  MTP {layers}"))?;
        self.imbalance.iter().try_for_each(|times| write!(f, "  imbalance {times}"))
    }
}

//! Software: how a framework runs a step, one row of `data/software.toml` for each.
//!
//! What frameworks do differently is an input, never a constant that is fitted in secret: which attention kernels, what hides behind
//! what, the precision of gradients, what the processor launches for a layer, and how fast. Each row names its sources; a field whose value
//! was found in the framework's own published runs is listed in `from_runs`.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::tables;

/// Seconds of the processor for one launch in the driver. Cited: cudaLaunchKernel takes 2 to 3 us.
pub(crate) const DRIVER_S: f64 = 2.5e-6;

/// Seconds of the processor for one operator of a framework. Fitted to published eager steps by `tools/training/host_judge.py`.
pub(crate) const OPERATOR_S: f64 = 9.2e-6;

/// Seconds of the processor for a launch with its operators, which a plan does not know: one in the driver and, as in an eager step of
/// PyTorch, two operators, rounded. Published eager steps have 13 to 30 us.
pub const EAGER_LAUNCH_S: f64 = 21e-6;

/// How a framework runs a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Software {
    /// Its name, as `megatron-core`.
    pub name: String,
    /// What it is, with years or versions.
    pub title: String,
    /// The attention kernel.
    pub attention: AttentionKernel,
    /// Bytes that element-wise work moves, as a multiple of fused kernels: 1 fused, 1.25 partly, 1.6 eager.
    pub elementwise: f64,
    /// Launches of the processor in the forward pass of a dense layer: kernels, copies and collectives.
    pub launches_forward: f64,
    /// The same of the backward pass.
    pub launches_backward: f64,
    /// Microseconds of the processor for each launch, with the operators and the Python around it: by default those of eager PyTorch.
    #[serde(default = "eager")]
    pub launch_us: f64,
    /// Microseconds of the processor for each layer whose parameters are sharded, in each pass.
    #[serde(default)]
    pub unit_us: f64,
    /// Whether a vocabulary is padded, so that the rows of its matrices begin where loads of 16 bytes can.
    #[serde(default)]
    pub pads_vocabulary: bool,
    /// Whether RMSNorm is one kernel; otherwise it is six forward and about ten backward, in fp32.
    #[serde(default = "yes")]
    pub fuses_norms: bool,
    /// Milliseconds per tensor-parallel rank that the host adds to each layer and micro-batch.
    #[serde(default)]
    pub host_added_ms: f64,
    /// Milliseconds per tensor-parallel rank and collective of the host, over nodes, with pipeline and tensor parallelism together.
    #[serde(default)]
    pub host_pipelined_ms: f64,
    /// Microseconds per rank beyond the first and collective of tensor parallelism that leaves a node.
    #[serde(default)]
    pub ring_over_nodes_us: f64,
    /// The host time of a layer of experts, as a multiple of Megatron-Core's without CUDA graphs.
    #[serde(default = "one")]
    pub host_experts: f64,
    /// Whether collectives of tensor parallelism hide behind their GEMMs, tile by tile.
    #[serde(default)]
    pub overlaps_tensor: bool,
    /// Whether reductions of gradients and gathers of parameters hide behind the backward and forward passes.
    #[serde(default)]
    pub overlaps_data: bool,
    /// Whether sends between stages hide behind computing.
    #[serde(default)]
    pub overlaps_sends: bool,
    /// Whether all-to-alls of experts hide behind computing of another micro-batch.
    #[serde(default)]
    pub overlaps_experts: bool,
    /// Whether gathers of sharded parameters run beside the computing of another layer.
    #[serde(default = "yes")]
    pub overlaps_sharded: bool,
    /// Whether a token is sent to a node once, however many of its experts are there (DeepEP, arXiv 2412.19437).
    #[serde(default)]
    pub sends_once_per_node: bool,
    /// Whether context-parallel ranks pass keys and values on in a ring, instead of one all-gather.
    #[serde(default)]
    pub passes_keys_in_ring: bool,
    /// Whether the backward pass gathers the inputs of tensor-parallel layers again.
    #[serde(default)]
    pub gathers_inputs_again: bool,
    /// Whether what sequence parallelism gathers for a layer is kept whole for the backward pass. Only memory counts it.
    #[serde(default)]
    pub keeps_gathered: bool,
    /// Whether a stage sends each activation once, split over its tensor-parallel ranks (scatter-gather of Megatron).
    #[serde(default = "yes")]
    pub splits_sends: bool,
    /// Whether tensor parallelism comes with sequence parallelism by default.
    #[serde(default)]
    pub sequence_parallel: bool,
    /// Bytes of a gradient that is reduced.
    pub gradient_bytes: f64,
    /// Bytes of a parameter that is gathered, unless it is fp8.
    pub parameter_bytes: f64,
    /// Whether fp8 parameters are gathered as fp8.
    #[serde(default)]
    pub gathers_fp8: bool,
    /// Bytes per parameter and micro-batch that the accumulation of gradients reads and writes.
    pub accumulation_bytes: f64,
    /// Megabytes of gradients that are reduced together, and of parameters that are gathered together. Default: all of a stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket_mb: Option<f64>,
    /// Whether stages are balanced by cost, with the head as layers.
    #[serde(default)]
    pub balances_stages: bool,
    /// Whether every rank of a sharded optimizer broadcasts its parameters, instead of one all-gather.
    #[serde(default)]
    pub broadcasts_parameters: bool,
    /// Milliseconds per layer that the gather of sharded parameters costs the host, over nodes.
    #[serde(default)]
    pub host_gather_ms: f64,
    /// The stall of each slot of a pipeline of many GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall: Option<Stall>,
    /// Bytes of casts and activations of experts, as a multiple of unfused grouped kernels.
    #[serde(default = "one")]
    pub expert_casts: f64,
    /// The extra loss of K in grouped GEMMs, as a multiple of the loss of a dense GEMM times the constant `grouped`.
    #[serde(default = "one")]
    pub grouped_loss: f64,
    /// Bytes per parameter of all copies of gradients, if there are more than the one that is reduced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_gradient_bytes: Option<f64>,
    /// Whether layers have dropout, whose masks are kept.
    #[serde(default)]
    pub has_dropout: bool,
    /// Bytes per logit at the peak of the loss: bf16 and its gradient 4 in a fused kernel; with fp32 in place of the gradient 6; 10 with a
    /// second copy in fp32.
    #[serde(default = "ten")]
    pub logit_bytes: f64,
    /// Whether activation and gate are one kernel; otherwise the activated gate is kept, too.
    #[serde(default = "yes")]
    pub fuses_activation: bool,
    /// Whether all GEMMs are computed again in the same part, instead of those with the most result per FLOP.
    #[serde(default)]
    pub recomputes_evenly: bool,
    /// Bytes that a norm keeps for each element beyond a fused one: copies in fp32.
    #[serde(default)]
    pub norm_bytes: f64,
    /// Whether a stage keeps what it sent until its backward pass; Megatron-Core frees it.
    #[serde(default)]
    pub keeps_outputs: bool,
    /// Decimal GB of buffers in which gradients and parameters travel, besides the memory of gradients themselves.
    #[serde(default)]
    pub buffer_gb: f64,
    /// Bytes per parameter of the state of a sharded optimizer: fp32 master, two moments.
    #[serde(default = "twelve")]
    pub optimizer_bytes: f64,
    /// Whether the results of experts are weighed after they came back, for which they are kept, instead of in the activation.
    #[serde(default = "yes")]
    pub weighs_results: bool,
    /// Whether tensor parallelism divides the parameters of every expert, too. Only memory counts it: FLOPs are the same.
    #[serde(default)]
    pub divides_experts: bool,
    /// Layers whose activations wait in the memory of the processor. Only memory counts it: copies hide behind computing.
    #[serde(default)]
    pub offloaded_layers: u32,
    /// The names of fields whose values were found in the framework's own published runs, not in its text.
    #[serde(default)]
    pub from_runs: Vec<String>,
    /// The names of fields that are guesses.
    #[serde(default)]
    pub guesses: Vec<String>,
    /// Where the row is from.
    pub source: String,
}

/// An attention kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttentionKernel {
    /// Two GEMMs with the scores in memory between them.
    Unfused,
    /// FlashAttention 1 (arXiv 2205.14135), also as Triton kernel.
    Fa1,
    /// FlashAttention 2 (arXiv 2307.08691).
    Fa2,
    /// The best of the generation: cuDNN, FlashAttention 3 (arXiv 2407.08608).
    Cudnn,
}

/// A pipeline that stalls from some number of GPUs and stages on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stall {
    /// The least number of GPUs.
    pub gpus: u32,
    /// The least number of stages.
    pub stages: u32,
    /// Seconds of each slot: micro-batches and stages less one.
    pub seconds: f64,
}

const fn one() -> f64 {
    1.0
}

const fn yes() -> bool {
    true
}

fn ten() -> f64 {
    10.0
}

fn twelve() -> f64 {
    12.0
}

fn eager() -> f64 {
    1e6 * EAGER_LAUNCH_S
}

/// The most of any number of a row. Chosen.
const MOST: f64 = 1e6;

static SOFTWARE: LazyLock<Vec<Software>> =
    LazyLock::new(|| tables::rows(include_str!("data/software.toml"), "software"));

impl Software {
    /// Returns the software that is shipped.
    pub fn all() -> &'static [Self] {
        &SOFTWARE
    }

    /// Finds software that is shipped.
    ///
    /// # Errors
    /// [`crate::error::Error::Unknown`], with all names.
    pub fn named(name: &str) -> Result<&'static Self> {
        tables::named("software", name, Self::all(), |one| &one.name)
    }

    /// Refuses numbers that no software has.
    ///
    /// # Errors
    /// [`Error::Request`] with the number that is wrong.
    pub fn check(&self) -> Result<()> {
        let numbers = [
            self.elementwise,
            self.launches_forward,
            self.launches_backward,
            self.launch_us,
            self.unit_us,
            self.host_added_ms,
            self.host_pipelined_ms,
            self.ring_over_nodes_us,
            self.host_experts,
            self.gradient_bytes,
            self.parameter_bytes,
            self.accumulation_bytes,
            self.host_gather_ms,
            self.stall.map_or(0.0, |stall| stall.seconds),
            self.expert_casts,
            self.grouped_loss,
            self.memory_gradient_bytes.unwrap_or(0.0),
            self.optimizer_bytes,
            self.logit_bytes,
            self.norm_bytes,
            self.buffer_gb,
            self.bucket_mb.unwrap_or(0.0),
        ];
        match numbers.into_iter().find(|number| !(0.0..=MOST).contains(number)) {
            None => Ok(()),
            Some(number) => {
                let message = format!("software `{}` has the number {number:?}: 0 to {MOST} was expected", self.name);
                Err(Error::Request(message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DRIVER_S, EAGER_LAUNCH_S, OPERATOR_S};

    #[test]
    fn a_launch_of_a_plan_is_its_parts() {
        assert!((DRIVER_S + 2.0 * OPERATOR_S - EAGER_LAUNCH_S).abs() < 0.5e-6);
    }
}

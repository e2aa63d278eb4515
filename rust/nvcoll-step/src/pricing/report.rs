//! The price of a step: one result for steps of both forms.
//!
//! | words | meaning |
//! |---|---|
//! | computes | the GPU works: products, attention, element-wise work, what is computed again, the optimizer |
//! | exposed | the GPU computes nothing as data move between GPUs, and what computing loses beside them |
//! | idle | bubbles of the pipeline, waits for the processor, stalls, copies to and from the processor |
//!
//! The three kinds of parts ([`PartKind`](super::parts::PartKind)) add up to the time of the step. They are those of the slowest stage of layers, and of the rank that waits least for others on streams.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::memory::{Fit, MemoryTable};
use crate::parts::TimeParts;
use crate::step::layers::Hides;

/// The price of a step.
#[derive(Debug, Clone, Serialize)]
pub struct StepReport {
    /// Seconds of the step.
    pub seconds: f64,
    /// The lower end of the 90 % interval, in seconds.
    pub low_s: f64,
    /// The upper end of the 90 % interval, in seconds.
    pub high_s: f64,
    /// Why the interval is wider than that of the class, if it is.
    pub extrapolated: Vec<String>,
    /// Tokens per second and GPU, if the step says its tokens.
    pub tokens_per_second: Option<f64>,
    /// The FLOPs of the model over the dense peak of the step's precision.
    pub mfu: f64,
    /// FLOP/s per GPU of the model, in units of 10^12.
    pub tflops: f64,
    /// Which FLOPs `mfu` and `tflops` count: `model`, or `recorded` ones if the step does not say those of its model.
    pub flops_of: &'static str,
    /// Seconds by part; they sum up to `seconds`.
    pub parts: TimeParts,
    /// Each role, or each kind of rank.
    pub roles: Vec<RolePrice>,
    /// Each block: seconds of one micro-batch; none of streams.
    pub blocks: BTreeMap<String, BlockPrice>,
    /// Each collective with its price.
    pub collectives: Vec<CollectivePrice>,
    /// Lines of the script for which the GPU waits, most first; none of layers.
    pub lines: Vec<LinePrice>,
    /// The memory of each role that is known.
    pub memory: Vec<MemoryTable>,
    /// The memory of the fullest role in GB of 2^30 bytes, as nvidia-smi and PyTorch count, if it is known.
    pub memory_gib: Option<f64>,
    /// What programs get of the GPU's memory, in the same GB.
    pub gpu_memory_gib: f64,
    /// Whether the step fits, if its memory is known.
    pub fit: Option<Fit>,
}

/// The price of what the ranks of a role do.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RolePrice {
    /// The name of the role.
    pub name: String,
    /// Its stages; none of streams.
    pub stages: Vec<u32>,
    /// Seconds of the forward pass of one micro-batch, by chunk.
    pub forward_s: Vec<f64>,
    /// Seconds of the backward pass of one micro-batch, by chunk.
    pub backward_s: Vec<f64>,
    /// Seconds of what happens once.
    pub once_s: f64,
}

/// The price of a block.
#[derive(Debug, Clone, Serialize)]
pub struct BlockPrice {
    /// Seconds of the forward pass by part.
    pub forward: TimeParts,
    /// Seconds of the backward pass by part.
    pub backward: TimeParts,
}

/// The price of one collective of a step.
#[derive(Debug, Clone, Serialize)]
pub struct CollectivePrice {
    /// The block or role in which it is.
    pub of: String,
    /// `forward`, `backward`, `once`, `pipeline`, or `streams`.
    pub pass: &'static str,
    /// Its name.
    pub name: String,
    /// The name of its group.
    pub group: String,
    /// Where the ranks of the group are.
    pub ranks: String,
    /// How often it comes there.
    pub count: f64,
    /// Its bytes, as nccl-tests counts.
    pub bytes: f64,
    /// Seconds of one.
    pub seconds: f64,
    /// What it hides behind in layers.
    pub hides: Option<Hides>,
    /// Seconds of all together that nothing hides on streams.
    pub exposed_s: Option<f64>,
}

/// The time that the GPU loses for a line of the script.
#[derive(Debug, Clone, Serialize)]
pub struct LinePrice {
    /// The line.
    pub line: String,
    /// Seconds of collectives and messages that nothing hides.
    pub exposed_s: f64,
    /// Seconds of copies that nothing hides.
    pub copies_s: f64,
    /// Seconds in which they wait for other ranks.
    pub waits_s: f64,
    /// Seconds in which the GPU waits for the processor to issue its operations.
    pub host_s: f64,
}

impl LinePrice {
    /// Returns all seconds that the GPU loses for the line.
    pub fn lost_s(&self) -> f64 {
        self.exposed_s + self.copies_s + self.waits_s + self.host_s
    }
}

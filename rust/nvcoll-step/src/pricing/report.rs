//! The price of a step: one result for steps of both forms.
//!
//! | words | meaning |
//! |---|---|
//! | computes | the GPU works: products, attention, element-wise work, what is computed again, the optimizer |
//! | exposed | the GPU computes nothing as data move between GPUs, and what computing loses beside them |
//! | idle | bubbles of the pipeline, waits for the processor, stalls, copies to and from the processor |
//!
//! The three kinds of parts ([`PartKind`](super::parts::PartKind)) add up to the time of the step. In layers they come from the slowest stage, on streams from the rank that waits least for others.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::memory::{Fit, MemoryTable, GIB};
use crate::parts::{PartKind, TimeParts};
use crate::step::layers::Hides;

/// The times by which a measured step may differ from its prediction. Chosen: beyond, something else ran.
const UNLIKE: f64 = 5.0;

/// How much of the logarithm of one measured run against its prediction counts where runs like it were measured, and where not.
///
/// The part that is not noise: variance between systems over that plus the variance between runs of one. Chosen: 0.05 and 0.05 for software
/// and GPUs that were measured, 0.10 and 0.05 otherwise.
const TRUSTED: [f64; 2] = [0.5, 0.8];

/// The part of the step from which on waiting limits it. Chosen.
const WAITS: f64 = 0.25;

/// The price of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// The name of the step.
    pub step: String,
    /// The number of GPUs.
    pub gpus: u32,
    /// Seconds of the step.
    pub seconds: f64,
    /// The lower end of the 90 % interval, in seconds.
    pub low_s: f64,
    /// The upper end of the 90 % interval, in seconds.
    pub high_s: f64,
    /// Why the interval is wider than the interval of the class, if it is.
    pub extrapolated: Vec<String>,
    /// Tokens per second and GPU, if the step says its tokens.
    pub tokens_per_second: Option<f64>,
    /// The FLOPs over the dense peak of the step's precision, if the FLOPs are known.
    pub mfu: Option<f64>,
    /// FLOP/s per GPU, in units of 10^12, if they are known.
    pub tflops: Option<f64>,
    /// Which FLOPs `mfu` and `tflops` count: `model`, or `recorded` ones if the step has no FLOPs of its model.
    pub flops_of: String,
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
    /// Seconds that the processor takes to issue a step on streams, which the GPU may hide; none of layers.
    pub issue_s: Option<f64>,
    /// The memory of each role, if it is known.
    pub memory: Option<Vec<MemoryTable>>,
    /// The memory of the fullest role in GB of 2^30 bytes, as nvidia-smi and PyTorch count, if it is known.
    pub memory_gib: Option<f64>,
    /// What programs get of the GPU's memory, in the same GB.
    pub gpu_memory_gib: f64,
    /// Whether the step fits in the memory of the GPU and in RAM, if its memory is known.
    pub fit: Option<Fit>,
    /// The least and the most GiB that wait in the RAM of the fullest host, if something does.
    pub ram_gib: Option<[f64; 2]>,
    /// The least and the most GiB of RAM of a host, if they are known.
    pub host_ram_gib: Option<[u32; 2]>,
    /// Whether what waits in RAM fits there; it may, if the RAM is not known.
    pub ram_fit: Option<Fit>,
}

/// The price of what the ranks of a role do.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlockPrice {
    /// Seconds of the forward pass by part.
    pub forward: TimeParts,
    /// Seconds of the backward pass by part.
    pub backward: TimeParts,
}

/// The price of one collective of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollectivePrice {
    /// The block or role in which it is.
    pub of: String,
    /// `forward`, `backward`, `once`, `pipeline`, or `streams`.
    pub pass: String,
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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

impl StepReport {
    /// Returns the seconds in which the GPU computes.
    pub fn computes_s(&self) -> f64 {
        self.seconds - self.exposed_s() - self.idle_s()
    }

    /// Returns the seconds in which the GPU computes nothing as data move between GPUs, with what computing loses beside them.
    pub fn exposed_s(&self) -> f64 {
        self.parts.of_kind(PartKind::Exposed)
    }

    /// Returns the seconds in which the GPU waits for other stages, the processor, stalls of the software, and copies.
    pub fn idle_s(&self) -> f64 {
        self.parts.of_kind(PartKind::Idle)
    }

    /// Says whether the step fits in the memory of the GPU, whatever waits in RAM.
    pub fn gpu_fit(&self) -> Option<Fit> {
        self.memory.iter().flatten().map(|one| one.fit(self.gpu_memory_gib * GIB)).max()
    }

    /// Says what takes most of the time.
    pub fn limit(&self) -> String {
        let waits = self.exposed_s() + self.idle_s();
        let share = |seconds: f64| 100.0 * seconds / self.seconds;
        if waits < WAITS * self.seconds {
            let (title, seconds) = self.parts.longest(|_| true);
            let verb = if title.ends_with('s') { "take" } else { "takes" };
            return format!("computing: {title} {verb} {:.0} % of the time", share(seconds));
        }
        let (title, seconds) = self.parts.longest(|kind| kind != PartKind::Computes);
        format!("waiting takes {:.0} % of the time, most of it {title} ({:.0} %)", share(waits), share(seconds))
    }

    /// Returns it with all times scaled; rates follow.
    #[must_use]
    pub fn scaled(&self, scale: f64) -> Self {
        Self {
            seconds: self.seconds * scale,
            low_s: self.low_s * scale,
            high_s: self.high_s * scale,
            tokens_per_second: self.tokens_per_second.map(|rate| rate / scale),
            mfu: self.mfu.map(|share| share / scale),
            tflops: self.tflops.map(|rate| rate / scale),
            parts: self.parts * scale,
            ..self.clone()
        }
    }

    /// Compares it with a step that was measured: returns the ratio as measured, and as it counts for other steps, nearer to 1.
    ///
    /// # Errors
    /// [`Error::Measured`] if the time is none, or unlike the prediction by more than noise.
    pub fn measured(&self, measured_s: f64) -> Result<[f64; 2]> {
        if !(measured_s.is_finite() && measured_s > 0.0) {
            return Err(Error::Measured(format!("took {measured_s} s: pass a positive number of seconds")));
        }
        let ratio = measured_s / self.seconds;
        if !(1.0 / UNLIKE..=UNLIKE).contains(&ratio) {
            let what = format!("took {measured_s} s and {:.3} s were predicted", self.seconds);
            return Err(Error::Measured(format!(
                "{what}: more than noise differs, correct the layout, the machine or the software"
            )));
        }
        Ok([ratio, ratio.powf(TRUSTED[usize::from(self.extrapolated.is_empty())])])
    }
}

impl LinePrice {
    /// Returns all seconds that the GPU loses for the line.
    pub fn lost_s(&self) -> f64 {
        self.exposed_s + self.copies_s + self.waits_s + self.host_s
    }
}

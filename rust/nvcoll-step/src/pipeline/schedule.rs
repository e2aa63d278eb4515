//! Schedules, the pipelines that they run, and the order of passes that each fixes.

use nvcoll_fabric::units::Ps;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The part of the activations of a micro-batch that the gradients of the weights still need after the backward pass: 32 of 34 bytes
/// per token and hidden element (arXiv 2401.10241, table 1). With stored attention scores it is 32 / (34 + 5 x heads x sequence / hidden).
pub const KEPT: f64 = 32.0 / 34.0;

/// The most passes that are computed: *chosen*, 64 stages with 8 chunks and 32,768 micro-batches.
const MOST_SLOTS: u64 = 1 << 24;

/// The most seconds of all passes together, which picoseconds in 64 bits hold twice.
const MOST_SECONDS: f64 = 9e6;

/// In which order stages work on micro-batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Schedule {
    /// All forward passes, then all backward passes.
    #[serde(rename = "gpipe")]
    GPipe,
    /// One forward, one backward, after a warm-up; the gradients are flushed at the end of a step.
    #[serde(rename = "1f1b")]
    OneFOneB,
    /// 1F1B over several chunks per stage.
    #[serde(rename = "interleaved")]
    Interleaved,
    /// Weight gradients fill the bubble, with the memory of 1F1B: ZB-H1, which ZB-1p equals in all published figures.
    #[serde(rename = "zero-bubble-1p")]
    ZeroBubble1p,
    /// The same with twice the memory: nearly no bubble is left.
    #[serde(rename = "zero-bubble-2p")]
    ZeroBubble2p,
    /// From both ends at once: a stage has the layers of its mirror image, too, and forward passes of one direction run beside backward
    /// passes of the other (arXiv 2412.19437, section 3.2.1). A micro-batch stands for one of each direction, on the two chunks of a stage.
    #[serde(rename = "dualpipe")]
    DualPipe,
}

impl Schedule {
    /// Returns whether gradients of weights are a pass of their own.
    pub fn splits_backward(self) -> bool {
        matches!(self, Self::ZeroBubble1p | Self::ZeroBubble2p)
    }
}

/// The time of one micro-batch on one chunk of layers, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Chunk {
    /// Forward.
    pub forward: f64,
    /// Backward, without the gradients of the weights.
    pub backward: f64,
    /// The gradients of the weights. A schedule that does not split runs them with the backward pass.
    pub weight: f64,
}

impl Chunk {
    /// Returns the seconds of all its passes.
    pub fn total(&self) -> f64 {
        self.forward + self.backward + self.weight
    }
}

/// A pipeline that is ready to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pipeline {
    /// The order of its passes.
    pub schedule: Schedule,
    /// The chunks of each stage: `stages[stage][chunk]`.
    pub stages: Vec<Vec<Chunk>>,
    /// The micro-batches of a step.
    pub micro_batches: u32,
    /// The seconds that an activation or its gradient needs to the next stage and that nothing hides.
    pub send: f64,
    /// The part of the activations that the gradients of the weights still need; see [`KEPT`].
    pub kept: f64,
}

impl Pipeline {
    /// Makes a pipeline of `stages[stage][chunk]`.
    pub fn new(schedule: Schedule, stages: Vec<Vec<Chunk>>, micro_batches: u32, send: f64) -> Self {
        Self { schedule, stages, micro_batches, send, kept: KEPT }
    }

    /// Refuses what its schedule cannot run.
    ///
    /// # Errors
    /// [`Error::Layout`] with the rule that is broken.
    pub fn check(&self) -> Result<()> {
        let (stages, chunks, micro_batches) = (self.stages.len(), self.chunks(), self.micro_batches);
        let slots = stages as u64 * chunks as u64 * u64::from(micro_batches);
        let uneven = self.stages.iter().map(Vec::len).find(|&one| one != chunks).unwrap_or(chunks);
        let reason = match self.schedule {
            _ if slots == 0 => "a pipeline has at least one stage, one chunk and one micro-batch".to_owned(),
            _ if uneven != chunks => format!("a stage has {uneven} chunks and stage 0 has {chunks}: make them equal"),
            _ if slots > MOST_SLOTS => {
                format!("{slots} micro-batches on chunks, at most {MOST_SLOTS} were expected")
            }
            Schedule::Interleaved if chunks < 2 => {
                "an interleaved schedule needs 2 chunks or more per stage: use 1f1b for one".to_owned()
            }
            Schedule::Interleaved if !(micro_batches as usize).is_multiple_of(stages) => format!(
                "an interleaved schedule needs micro-batches that the stages divide, {micro_batches} and {stages} were found"
            ),
            Schedule::DualPipe if chunks != 2 || !stages.is_multiple_of(2) => {
                format!("dualpipe needs an even number of stages with 2 chunks each, {stages} with {chunks} were found")
            }
            Schedule::Interleaved | Schedule::DualPipe => return self.check_times(),
            _ if chunks > 1 => format!("{chunks} chunks per stage need the interleaved schedule"),
            _ => return self.check_times(),
        };
        Err(Error::layout(reason))
    }

    fn check_times(&self) -> Result<()> {
        let times = || self.stages.iter().flatten().flat_map(|one| [one.forward, one.backward, one.weight, self.send]);
        let sum = f64::from(self.micro_batches) * times().sum::<f64>();
        if let Some(time) = times().find(|time| time.is_nan() || *time < 0.0) {
            return Err(Error::layout(format!("a pass or send of {time} s: 0 s or more were expected")));
        }
        if sum > MOST_SECONDS || !(0.0..=1.0).contains(&self.kept) {
            return Err(Error::layout(format!(
                "passes of {sum:.0} s in all that keep {} of the activations: up to {MOST_SECONDS:.0} s and 0 to 1 were expected",
                self.kept
            )));
        }
        Ok(())
    }

    /// Returns the order of a schedule that fixes it.
    pub(super) fn order(&self) -> PassOrder {
        let (stages, chunks) = (self.stages.len() as u32, self.chunks() as u32);
        let warm_up = |stage: u32| match self.schedule {
            Schedule::GPipe => self.micro_batches,
            Schedule::Interleaved => 2 * (stages - stage - 1) + (chunks - 1) * stages + 1,
            _ => stages - stage,
        };
        let deferred = |stage: u32| if self.schedule.splits_backward() { stage } else { 0 };
        let [warm_up, deferred] = [(0..stages).map(warm_up).collect(), (0..stages).map(deferred).collect()];
        PassOrder { warm_up, deferred, fills_any_gap: false, limit: f64::INFINITY }
    }

    pub(super) fn chunks(&self) -> usize {
        self.stages.first().map_or(0, Vec::len)
    }
}

/// The order of the passes of each stage.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PassOrder {
    /// The micro-batches in flight, in chunks, up to which a stage begins another forward pass.
    pub(super) warm_up: Vec<u32>,
    /// The weight passes that each stage defers: it runs one after a backward pass only if more are pending.
    pub(super) deferred: Vec<u32>,
    /// Whether a weight pass fills a gap that is shorter than it is.
    pub(super) fills_any_gap: bool,
    /// The peak of the activations of a stage, as a multiple of one micro-batch.
    pub(super) limit: f64,
}

/// Rounds seconds to picoseconds.
pub(super) fn ps(seconds: f64) -> Ps {
    (seconds * 1e12).round() as Ps
}

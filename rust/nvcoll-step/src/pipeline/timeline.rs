//! What virtual time leaves: when each stage begins and ends, what it holds, and its passes if they are asked for.

use nvcoll_fabric::units::Ps;
use serde::{Deserialize, Serialize};

/// A kind of pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Pass {
    /// Forward.
    #[serde(rename = "F")]
    Forward,
    /// Backward; with the gradients of the weights, unless the schedule splits them off.
    #[serde(rename = "B")]
    Backward,
    /// The gradients of the weights.
    #[serde(rename = "W")]
    Weight,
}

/// One pass of one micro-batch through one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// What the stage does.
    pub pass: Pass,
    /// The micro-batch, from 0.
    pub micro_batch: u32,
    /// The chunk of the stage, from 0.
    pub chunk: u32,
    /// When it begins.
    pub start_ps: Ps,
    /// When it ends.
    pub end_ps: Ps,
}

/// What one stage does during a step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StageTime {
    /// When its first pass begins.
    pub start_ps: Ps,
    /// When its last pass ends.
    pub end_ps: Ps,
    /// The time of its passes.
    pub busy_ps: Ps,
    /// The peak of its activations, as a multiple of one micro-batch on one chunk: all micro-batches in flight, and the kept part of the ones
    /// that wait for their weight pass.
    pub activations: f64,
    /// The micro-batches of each chunk that are in flight at that moment: forward begun, backward not ended.
    pub in_flight: Vec<u32>,
    /// The micro-batches that wait for their weight pass at that moment.
    pub pending: u32,
    /// Its passes in their order; empty unless they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<Span>,
}

impl StageTime {
    /// Returns the time between its begin and its end in which it waits.
    pub fn idle_ps(&self) -> Ps {
        self.end_ps - self.start_ps - self.busy_ps
    }
}

/// The time of a step of a pipeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// The stages.
    pub stages: Vec<StageTime>,
    /// The seconds from the begin of the first pass to the end of the last.
    pub makespan: f64,
    /// The seconds of a step among others. With zero bubble, a stage begins its next step when it has ended this one, because the
    /// optimizer does not wait for all stages (arXiv 2401.10241, section 4): the longest time of a stage. Otherwise the makespan.
    pub step: f64,
}

impl Timeline {
    pub(super) fn new(stages: Vec<StageTime>, splits_backward: bool) -> Self {
        let seconds = |ps: Ps| ps as f64 / 1e12;
        let makespan = seconds(stages.iter().map(|one| one.end_ps).max().unwrap_or(0));
        let step = if splits_backward { seconds(longest(&stages)) } else { makespan };
        Self { stages, makespan, step }
    }
}

/// Returns the longest time from the begin of a stage to its end.
pub(super) fn longest(stages: &[StageTime]) -> Ps {
    stages.iter().map(|one| one.end_ps - one.start_ps).max().unwrap_or(0)
}

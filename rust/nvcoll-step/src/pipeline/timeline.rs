//! What virtual time leaves: when each stage begins and ends, what it holds, and its passes if they are asked for.

use nvcoll_fabric::units::Ps;
use serde::{Deserialize, Serialize};

use super::{seconds, Schedule};

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
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// What the stage does.
    pub pass: Pass,
    /// The micro-batch, from 0.
    pub micro_batch: u32,
    /// The chunk of the stage, from 0.
    pub chunk: u32,
    /// When it begins, in seconds.
    pub start: f64,
    /// When it ends, in seconds.
    pub end: f64,
}

/// What one stage does during a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageTime {
    /// When its first pass begins, in seconds.
    pub start: f64,
    /// When its last pass ends, in seconds.
    pub end: f64,
    /// The seconds of its passes.
    pub busy: f64,
    /// The seconds between its begin and its end in which it waits.
    pub idle: f64,
    /// The most activations that it holds, in those of one micro-batch on one chunk: those in flight, and the kept part of those that
    /// wait for their weight pass.
    pub activations: f64,
    /// The micro-batches of each chunk that are in flight at that moment: forward begun, backward not ended.
    pub in_flight: Vec<u32>,
    /// The micro-batches that wait for their weight pass at that moment.
    pub pending: u32,
}

/// The time of a step of a pipeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// The stages.
    pub stages: Vec<StageTime>,
    /// The end of the last pass, in seconds from the begin of the first.
    pub makespan: f64,
    /// The seconds of a step among others. With zero bubble, a stage begins its next step when it has ended this one, because the
    /// optimizer does not wait for all stages (arXiv 2401.10241, section 4): the longest time of a stage. Otherwise the makespan.
    pub step: f64,
    /// The passes of each stage in their order; empty unless they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<Vec<Span>>,
}

impl Timeline {
    pub(super) fn new(records: Vec<Record>, schedule: Schedule) -> Self {
        let makespan = records.iter().map(|one| one.now).max().unwrap_or(0);
        let longest = longest(&records);
        let has_spans = records.iter().any(|one| !one.spans.is_empty());
        Self {
            stages: records.iter().map(Record::time).collect(),
            makespan: seconds(makespan),
            step: seconds(if schedule.splits_backward() { longest } else { makespan }),
            spans: if has_spans { records.into_iter().map(|one| one.spans).collect() } else { Vec::new() },
        }
    }

    /// Returns the part of a step in which the busiest stage waits.
    pub fn bubble(&self) -> f64 {
        let busiest = self.stages.iter().map(|one| one.busy).fold(0.0, f64::max);
        if self.step > 0.0 {
            1.0 - busiest / self.step
        } else {
            0.0
        }
    }
}

/// Returns the longest time from the begin of a stage to its end.
pub(super) fn longest(records: &[Record]) -> Ps {
    records.iter().map(|one| one.now - one.start.unwrap_or(0)).max().unwrap_or(0)
}

/// A stage while virtual time runs.
#[derive(Clone)]
pub(super) struct Record {
    pub(super) now: Ps,
    pub(super) start: Option<Ps>,
    busy: Ps,
    pub(super) forwards: usize,
    pub(super) backwards: usize,
    pub(super) weights: usize,
    /// Backward passes that have a weight pass of their own.
    split: usize,
    in_flight: Vec<u32>,
    peak: (f64, Vec<u32>, usize),
    spans: Vec<Span>,
}

impl Record {
    pub(super) fn new(chunks: usize) -> Self {
        let in_flight = vec![0; chunks];
        let peak = (0.0, in_flight.clone(), 0);
        let (forwards, backwards, weights, split) = (0, 0, 0, 0);
        Self { now: 0, start: None, busy: 0, forwards, backwards, weights, split, in_flight, peak, spans: Vec::new() }
    }

    /// Runs a pass as soon as the stage is free and the input is there; returns its end.
    pub(super) fn work(
        &mut self,
        pass: Pass,
        micro_batch: usize,
        chunk: usize,
        arrival: Ps,
        time: Ps,
        with_span: bool,
    ) -> Ps {
        let start = self.now.max(arrival);
        self.start.get_or_insert(start);
        self.now = start + time;
        self.busy += time;
        if with_span {
            let (start, end) = (seconds(start), seconds(self.now));
            self.spans.push(Span { pass, micro_batch: micro_batch as u32, chunk: chunk as u32, start, end });
        }
        self.now
    }

    /// Returns the weight passes that are left for later.
    pub(super) fn pending(&self) -> usize {
        self.split - self.weights
    }

    /// Returns the activations that are held, in those of one micro-batch.
    pub(super) fn held(&self, kept: f64) -> f64 {
        (self.forwards - self.backwards) as f64 + self.pending() as f64 * kept
    }

    pub(super) fn begin_forward(&mut self, chunk: usize, kept: f64) {
        self.forwards += 1;
        self.in_flight[chunk] += 1;
        let held = self.held(kept);
        if held > self.peak.0 {
            self.peak = (held, self.in_flight.clone(), self.pending());
        }
    }

    pub(super) fn end_backward(&mut self, chunk: usize, splits: bool, kept: f64) {
        self.backwards += 1;
        self.in_flight[chunk] -= 1;
        self.split += usize::from(splits);
        let held = self.held(kept);
        if held > self.peak.0 {
            self.peak = (held, self.in_flight.clone(), self.pending());
        }
    }

    fn time(&self) -> StageTime {
        let start = self.start.unwrap_or(0);
        let (activations, in_flight, pending) = self.peak.clone();
        StageTime {
            start: seconds(start),
            end: seconds(self.now),
            busy: seconds(self.busy),
            idle: seconds(self.now - start - self.busy),
            activations,
            in_flight,
            pending: pending as u32,
        }
    }
}

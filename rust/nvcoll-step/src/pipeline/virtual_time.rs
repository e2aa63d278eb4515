//! Virtual time: each stage walks through its order until it needs an end that its neighbour has not reached.
//!
//! ```text
//! ready = the stages that may go on
//! while a stage is in ready:
//!     while the input of its next pass has a time of arrival:
//!         run weight passes: those that memory asks for, those that fit before the arrival
//!         run the pass; after a backward pass, run the weight passes that are not deferred
//!     put its two neighbours in ready
//! ```
//!
//! What a stage does depends on its own past and on times of arrival alone, so any order of visits has the same result (a Kahn network).

use nvcoll_fabric::units::Ps;

use super::timeline::{Pass, Record};
use super::{ps, Order, Pipeline, Schedule};

/// An end that is not known yet.
const UNKNOWN: Ps = Ps::MAX;

/// Runs a pipeline in an order.
///
/// # Panics
/// If stages wait for each other, which no order that `check` lets pass does.
pub(super) fn run(pipeline: &Pipeline, order: &Order, with_spans: bool) -> Vec<Record> {
    let mut clock = Clock::new(pipeline, order, with_spans);
    clock.run();
    assert!(clock.stages.iter().all(|one| one.backwards == clock.slots), "stages wait for each other: {order:?}");
    clock.stages
}

/// The times of the passes of one chunk.
#[derive(Clone, Copy)]
struct Times {
    forward: Ps,
    backward: Ps,
    weight: Ps,
}

struct Clock<'p> {
    order: &'p Order,
    schedule: Schedule,
    /// Stages, chunks, micro-batches; and micro-batches x chunks.
    p: usize,
    v: usize,
    m: usize,
    slots: usize,
    send: Ps,
    kept: f64,
    with_spans: bool,
    /// By stage, then by chunk.
    times: Vec<Times>,
    /// Ends by layer order: chunk 0 of all stages, then chunk 1 of all stages; then by micro-batch.
    forward_ends: Vec<Ps>,
    backward_ends: Vec<Ps>,
    stages: Vec<Record>,
}

impl<'p> Clock<'p> {
    fn new(pipeline: &Pipeline, order: &'p Order, with_spans: bool) -> Self {
        let splits = pipeline.schedule.splits_backward();
        let times = pipeline.stages.iter().flatten().map(|one| Times {
            forward: ps(one.forward),
            backward: ps(one.backward) + if splits { 0 } else { ps(one.weight) },
            weight: if splits { ps(one.weight) } else { 0 },
        });
        let (p, v, m) = (pipeline.stages.len(), pipeline.chunks(), pipeline.micro_batches as usize);
        let ends = vec![UNKNOWN; p * v * m];
        Self {
            order,
            schedule: pipeline.schedule,
            p,
            v,
            m,
            slots: m * v,
            send: if p == 1 { 0 } else { ps(pipeline.send) },
            kept: pipeline.kept,
            with_spans,
            times: times.collect(),
            forward_ends: ends.clone(),
            backward_ends: ends,
            stages: vec![Record::new(v); p],
        }
    }

    fn run(&mut self) {
        let mut ready: Vec<usize> = (0..self.p).rev().collect();
        let mut is_ready = vec![true; self.p];
        while let Some(stage) = ready.pop() {
            is_ready[stage] = false;
            if !self.advance(stage) {
                continue;
            }
            for neighbour in [(stage + self.p - 1) % self.p, (stage + 1) % self.p] {
                if !is_ready[neighbour] {
                    is_ready[neighbour] = true;
                    ready.push(neighbour);
                }
            }
        }
    }

    /// Runs the passes of a stage whose inputs have a time of arrival; returns whether there were any.
    fn advance(&mut self, stage: usize) -> bool {
        let before = self.stages[stage].backwards + self.stages[stage].forwards;
        while let Some((pass, micro_batch, chunk)) = self.next(stage) {
            let Some(arrival) = self.arrival(pass, stage, micro_batch, chunk) else { break };
            self.run_weights(stage, pass, arrival);
            self.run_pass(stage, pass, micro_batch, chunk, arrival);
        }
        let done = self.stages[stage].backwards == self.slots;
        while done && self.stages[stage].pending() > 0 {
            self.run_weight(stage);
        }
        self.stages[stage].backwards + self.stages[stage].forwards > before
    }

    /// Returns the next pass of a stage, its micro-batch and its chunk.
    fn next(&self, stage: usize) -> Option<(Pass, usize, usize)> {
        let Record { forwards, backwards, .. } = self.stages[stage];
        if forwards < self.slots && forwards - backwards < self.order.warm_up[stage] as usize {
            let (micro_batch, chunk) = self.slot(forwards);
            return Some((Pass::Forward, micro_batch, chunk));
        }
        if backwards == self.slots {
            return None;
        }
        let (micro_batch, chunk) = self.slot(backwards);
        let micro_batch = if self.schedule == Schedule::GPipe { self.m - 1 - micro_batch } else { micro_batch };
        Some((Pass::Backward, micro_batch, self.v - 1 - chunk))
    }

    /// Returns micro-batch and chunk of the pass with this number: groups of p micro-batches walk through the chunks.
    fn slot(&self, number: usize) -> (usize, usize) {
        if self.v == 1 {
            return (number, 0);
        }
        let (group, within) = (number / (self.p * self.v), number % (self.p * self.v));
        (group * self.p + within % self.p, within / self.p)
    }

    /// Returns when the input of a pass has arrived, if the end of the pass before it is known.
    fn arrival(&self, pass: Pass, stage: usize, micro_batch: usize, chunk: usize) -> Option<Ps> {
        let place = chunk * self.p + stage;
        let at = |ends: &[Ps], place: usize| ends[place * self.m + micro_batch];
        let (end, send) = match pass {
            Pass::Forward if place == 0 => (0, 0),
            Pass::Forward => (at(&self.forward_ends, place - 1), self.send),
            _ if place + 1 == self.p * self.v => (at(&self.forward_ends, place), 0),
            _ => (at(&self.backward_ends, place + 1), self.send),
        };
        (end != UNKNOWN).then(|| end + send)
    }

    /// Runs the weight passes that come before a pass: for memory, or because they fit before its input arrives.
    fn run_weights(&mut self, stage: usize, pass: Pass, arrival: Ps) {
        let weight = self.times[stage * self.v].weight;
        let least = if self.order.fills_any_gap { 1 } else { weight };
        while self.stages[stage].pending() > 0 {
            let one = &self.stages[stage];
            let is_full = pass == Pass::Forward && one.held(self.kept) + 1.0 > self.order.limit;
            if !is_full && one.now + least > arrival {
                return;
            }
            self.run_weight(stage);
        }
    }

    fn run_weight(&mut self, stage: usize) {
        let weight = self.times[stage * self.v].weight;
        let one = &mut self.stages[stage];
        let micro_batch = one.weights;
        one.weights += 1;
        one.work(Pass::Weight, micro_batch, 0, 0, weight, self.with_spans);
    }

    fn run_pass(&mut self, stage: usize, pass: Pass, micro_batch: usize, chunk: usize, arrival: Ps) {
        let times = self.times[stage * self.v + chunk];
        let end_at = (chunk * self.p + stage) * self.m + micro_batch;
        let splits = self.schedule.splits_backward();
        let one = &mut self.stages[stage];
        if pass == Pass::Forward {
            one.begin_forward(chunk, self.kept);
            self.forward_ends[end_at] = one.work(pass, micro_batch, chunk, arrival, times.forward, self.with_spans);
            return;
        }
        self.backward_ends[end_at] = one.work(pass, micro_batch, chunk, arrival, times.backward, self.with_spans);
        one.end_backward(chunk, splits, self.kept);
        while self.stages[stage].pending() > self.order.deferred[stage] as usize {
            self.run_weight(stage);
        }
    }
}

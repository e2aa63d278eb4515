//! Virtual time: each stage walks through its order until it needs an end that its neighbour has not reached.
//!
//! ```text
//! ready = the stages that may go on
//! while a stage is in ready:
//!     while the input of its next pass has a time of arrival:
//!         run weight passes: first the passes that memory needs, then the passes that fit before the arrival
//!         run the pass; after a backward pass, run the weight passes that are not deferred
//!     put its two neighbours in ready
//! ```
//!
//! What a stage does depends on its own past and on times of arrival alone, so any order of visits has the same result (a Kahn network).

use nvcoll_fabric::units::Ps;

use super::schedule::{ps, PassOrder, Pipeline, Schedule};
use super::timeline::{Pass, Span, StageTime};

/// An end that is not known yet.
const UNKNOWN: Ps = Ps::MAX;

/// Runs a pipeline in an order.
///
/// # Panics
/// If stages wait for each other, which no order that `check` lets pass does.
pub(super) fn run(pipeline: &Pipeline, order: &PassOrder, with_spans: bool) -> Vec<StageTime> {
    let (p, v, m) = (pipeline.stages.len(), pipeline.chunks(), pipeline.micro_batches as usize);
    let send = if p == 1 { 0 } else { ps(pipeline.send) };
    let ends = vec![UNKNOWN; p * v * m];
    let stages = vec![Stage { in_flight: vec![0; v], ..Stage::default() }; p];
    let mut clock = StageClock { pipeline, order, with_spans, p, v, m, send, ends: [ends.clone(), ends], stages };
    clock.run();
    let ended = |stage: Stage| {
        assert_eq!(stage.weights, m * v, "stages wait for each other: {order:?}");
        stage.time
    };
    clock.stages.into_iter().map(ended).collect()
}

struct StageClock<'p> {
    pipeline: &'p Pipeline,
    order: &'p PassOrder,
    with_spans: bool,
    /// Stages, chunks, micro-batches.
    p: usize,
    v: usize,
    m: usize,
    send: Ps,
    /// Ends of forward and of backward passes by place in the model, then by micro-batch. The places are chunk 0 of all stages, then
    /// chunk 1 of all stages, and so on.
    ends: [Vec<Ps>; 2],
    stages: Vec<Stage>,
}

/// A stage, up to now.
#[derive(Clone, Default)]
struct Stage {
    time: StageTime,
    /// The passes that it has run; without weight passes of their own, backward passes count as both.
    forwards: usize,
    backwards: usize,
    weights: usize,
    in_flight: Vec<u32>,
}

impl Stage {
    /// Returns the micro-batches that wait for their weight pass.
    fn pending(&self) -> usize {
        self.backwards - self.weights
    }

    /// Returns the activations that it holds, as a multiple of one micro-batch.
    fn held(&self, kept: f64) -> f64 {
        (self.forwards - self.backwards) as f64 + self.pending() as f64 * kept
    }
}

impl StageClock<'_> {
    fn run(&mut self) {
        let mut ready: Vec<usize> = (0..self.p).rev().collect();
        let mut is_ready = vec![true; self.p];
        while let Some(stage) = ready.pop() {
            is_ready[stage] = false;
            if !self.advance(stage) {
                continue;
            }
            for neighbour in [(stage + self.p - 1) % self.p, (stage + 1) % self.p] {
                if !std::mem::replace(&mut is_ready[neighbour], true) {
                    ready.push(neighbour);
                }
            }
        }
    }

    /// Runs the passes of a stage whose inputs have a time of arrival; returns whether there were any.
    fn advance(&mut self, stage: usize) -> bool {
        let mut has_run = false;
        while let Some((pass, micro_batch, chunk)) = self.next(stage) {
            let Some(arrival) = self.arrival(pass, stage, micro_batch, chunk) else { return has_run };
            self.run_weights(stage, pass, arrival);
            let end = self.work(stage, pass, micro_batch, chunk, arrival);
            let place = chunk * self.p + stage;
            self.ends[usize::from(pass == Pass::Backward)][place * self.m + micro_batch] = end;
            while self.stages[stage].pending() > self.order.deferred[stage] as usize {
                self.work(stage, Pass::Weight, self.stages[stage].weights, 0, 0);
            }
            has_run = true;
        }
        while self.stages[stage].pending() > 0 {
            self.work(stage, Pass::Weight, self.stages[stage].weights, 0, 0);
        }
        has_run
    }

    /// Returns the next pass of a stage, its micro-batch and its chunk.
    fn next(&self, stage: usize) -> Option<(Pass, usize, usize)> {
        let Stage { forwards, backwards, .. } = self.stages[stage];
        let all = self.m * self.v;
        if forwards < all && forwards - backwards < self.order.warm_up[stage] as usize {
            let (micro_batch, chunk) = self.slot(forwards);
            return Some((Pass::Forward, micro_batch, chunk));
        }
        let (micro_batch, chunk) = self.slot(backwards);
        let is_reversed = self.pipeline.schedule == Schedule::GPipe;
        let micro_batch = if is_reversed { all.saturating_sub(micro_batch + 1) } else { micro_batch };
        (backwards < all).then(|| (Pass::Backward, micro_batch, self.v - 1 - chunk))
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
        let [forward, backward] = &self.ends;
        let (ends, before, send) = match pass {
            Pass::Forward if place == 0 => return Some(0),
            Pass::Forward => (forward, place - 1, self.send),
            _ if place + 1 == self.p * self.v => (forward, place, 0),
            _ => (backward, place + 1, self.send),
        };
        let end = ends[before * self.m + micro_batch];
        (end != UNKNOWN).then(|| end + send)
    }

    /// Runs the weight passes that come before a pass: for memory, or because they fit before its input arrives.
    fn run_weights(&mut self, stage: usize, pass: Pass, arrival: Ps) {
        let least = if self.order.fills_any_gap { 1 } else { self.time(stage, Pass::Weight, 0) };
        while self.stages[stage].pending() > 0 {
            let one = &self.stages[stage];
            let is_full = pass == Pass::Forward && one.held(self.pipeline.kept) + 1.0 > self.order.limit;
            if !is_full && one.time.end_ps + least > arrival {
                return;
            }
            self.work(stage, Pass::Weight, one.weights, 0, 0);
        }
    }

    fn time(&self, stage: usize, pass: Pass, chunk: usize) -> Ps {
        let one = &self.pipeline.stages[stage][chunk];
        match pass {
            Pass::Forward => ps(one.forward),
            Pass::Backward if self.pipeline.schedule.splits_backward() => ps(one.backward),
            Pass::Backward => ps(one.backward) + ps(one.weight),
            Pass::Weight => ps(one.weight),
        }
    }

    /// Runs a pass as soon as its stage is free and its input is there; returns its end.
    fn work(&mut self, stage: usize, pass: Pass, micro_batch: usize, chunk: usize, arrival: Ps) -> Ps {
        let busy = self.time(stage, pass, chunk);
        let is_whole = !self.pipeline.schedule.splits_backward();
        let Stage { time, forwards, backwards, weights, in_flight } = &mut self.stages[stage];
        let start_ps = time.end_ps.max(arrival);
        if *forwards == 0 {
            time.start_ps = start_ps;
        }
        time.end_ps = start_ps + busy;
        time.busy_ps += busy;
        if self.with_spans {
            let (micro_batch, chunk) = (micro_batch as u32, chunk as u32);
            time.spans.push(Span { pass, micro_batch, chunk, start_ps, end_ps: time.end_ps });
        }
        match pass {
            Pass::Forward => (*forwards, in_flight[chunk]) = (*forwards + 1, in_flight[chunk] + 1),
            Pass::Backward => {
                (*backwards, in_flight[chunk]) = (*backwards + 1, in_flight[chunk] - 1);
                *weights += usize::from(is_whole);
            }
            Pass::Weight => *weights += 1,
        }
        let one = &mut self.stages[stage];
        let held = one.held(self.pipeline.kept);
        if held > one.time.activations {
            (one.time.activations, one.time.pending) = (held, one.pending() as u32);
            one.time.in_flight.clone_from(&one.in_flight);
        }
        one.time.end_ps
    }
}

//! Planned steps without a pipeline, unrolled into streams, as frameworks run them.
//!
//! Parameters of the next layer are gathered while a layer computes, gradients are reduced behind the rest of the backward pass, and the
//! optimizer waits for them. Time of the processor is that of the plan.

use nvcoll_step::constants::Constants;
use nvcoll_step::training_step::{Hides, Op, TrainingStep, Work};
use serde_json::{json, Value};

const COMPUTE: u32 = 7;
const GATHER: u32 = 9;
const REDUCE: u32 = 10;

/// The operations of the only role.
struct Unroller {
    ops: Vec<Value>,
    events: u64,
}

impl Unroller {
    /// Adds an operation that the processor issues in no time of its own.
    fn add(&mut self, stream: u32, mut op: Value) {
        op["stream"] = json!(stream);
        op["graph"] = json!(true);
        self.ops.push(op);
    }

    fn record(&mut self, stream: u32) -> u64 {
        self.events += 1;
        self.add(stream, json!({"work": "record", "event": self.events}));
        self.events
    }

    fn wait(&mut self, stream: u32, event: u64) {
        self.add(stream, json!({"work": "wait", "event": event}));
    }

    fn collective(&mut self, stream: u32, op: &Op, parts: f64) {
        let Work::Collective { pattern, bytes, group, .. } = &op.work else { return };
        let (pattern, bytes) = (pattern.name(), bytes / parts);
        let op = json!({"name": op.name, "count": op.count, "work": "collective", "pattern": pattern, "bytes": bytes, "group": group});
        self.add(stream, op);
    }

    /// Adds an operation of the compute stream, or of the processor.
    fn compute(&mut self, op: &Op) {
        let elementwise = Constants::shipped().elementwise;
        let passes = elementwise.hopper.min(elementwise.ampere);
        let mut work = match &op.work {
            Work::Elementwise { bytes } => json!({"work": "kernel", "bytes": passes * bytes * op.count}),
            Work::Stream { bytes } => json!({"work": "copy", "bytes": bytes * op.count / 2.0, "direction": "d2d"}),
            Work::Host { seconds } => return self.add(0, json!({"work": "host", "seconds": seconds * op.count})),
            Work::Wait { seconds } => {
                self.add(0, json!({"work": "host_waits", "for": "device"}));
                return self.add(0, json!({"work": "host", "seconds": seconds * op.count}));
            }
            Work::Collective { .. } => return self.collective(COMPUTE, op, 1.0),
            Work::Gemm { m, n, k, dtype, grouped: Some(_), .. } => {
                json!({"work": "gemm", "m": m, "n": n, "k": k, "batch": op.count, "dtype": dtype, "grouped": true})
            }
            work => {
                let mut work = serde_json::to_value(work).unwrap();
                work["count"] = json!(op.count);
                work
            }
        };
        work["name"] = json!(op.name);
        self.add(COMPUTE, work);
    }
}

/// What one micro-batch does in one layer, in one direction.
struct Pass<'s> {
    ops: Vec<&'s Op>,
    /// Whether gradients of the layer are complete after it.
    is_last: bool,
}

fn passes(step: &TrainingStep) -> Vec<Pass<'_>> {
    let runs = &step.roles[0].chunks[0];
    let blocks: Vec<_> = runs.iter().flat_map(|run| (0..run.repeat).map(|_| &step.blocks[&run.block])).collect();
    let mut found = Vec::new();
    for nth in 1..=step.pipeline.micro_batches {
        found.extend(blocks.iter().map(|block| Pass { ops: block.forward.iter().collect(), is_last: false }));
        let is_last = nth == step.pipeline.micro_batches;
        found.extend(
            blocks
                .iter()
                .rev()
                .map(|block| Pass { ops: block.backward.iter().chain(&block.weights).collect(), is_last }),
        );
    }
    found
}

fn is_gather(op: &Op) -> bool {
    matches!(&op.work, Work::Collective { pattern, .. } if pattern.name() == "all_gather")
}

fn hides(op: &Op) -> Option<Hides> {
    match op.work {
        Work::Collective { hides, .. } => Some(hides),
        _ => None,
    }
}

/// Returns a planned step of one stage as streams.
pub(crate) fn unrolled(step: &TrainingStep) -> TrainingStep {
    let mut to = Unroller { ops: Vec::new(), events: 0 };
    let (passes, once) = (passes(step), &step.roles[0].once);
    let layers = passes.iter().filter(|pass| pass.is_last).count() as f64;
    let (mut gathered, mut done): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
    let sharded = |pass: &Pass<'_>, gather: bool| -> Vec<Op> {
        let of = pass.ops.iter().filter(|op| hides(op) == Some(Hides::OtherLayer) && is_gather(op) == gather);
        of.map(|op| (*op).clone()).collect()
    };
    for at in 0..passes.len() {
        for (next, pass) in passes.iter().enumerate().skip(at).take(2) {
            if gathered.len() > next {
                continue;
            }
            if let Some(&before) = next.checked_sub(2).and_then(|at| done.get(at)) {
                to.wait(GATHER, before);
            }
            sharded(pass, true).iter().for_each(|op| to.collective(GATHER, op, 1.0));
            gathered.push(to.record(GATHER));
        }
        to.wait(COMPUTE, gathered[at]);
        passes[at].ops.iter().filter(|op| hides(op) != Some(Hides::OtherLayer)).for_each(|op| to.compute(op));
        done.push(to.record(COMPUTE));
        to.wait(REDUCE, done[at]);
        sharded(&passes[at], false).iter().for_each(|op| to.collective(REDUCE, op, 1.0));
        if passes[at].is_last {
            once.iter()
                .filter(|op| hides(op) == Some(Hides::LastBackward))
                .for_each(|op| to.collective(REDUCE, op, layers));
        }
    }
    let reduced = to.record(REDUCE);
    to.wait(COMPUTE, reduced);
    once.iter().filter(|op| hides(op).is_none()).for_each(|op| to.compute(op));
    let updated = to.record(COMPUTE);
    to.wait(GATHER, updated);
    let memory = json!({"allocated": 1e9, "reserved": 1e9});
    let rank = json!({"rank": 0, "stands_for": step.gpus, "name": "all ranks", "ops": to.ops, "memory": memory});
    let mut recorded = serde_json::to_value(step).unwrap();
    for field in ["blocks", "roles", "pipeline"] {
        recorded.as_object_mut().unwrap().remove(field);
    }
    recorded["recorded"] = json!({"gpu": "h100-sxm", "ranks": [rank]});
    TrainingStep::from_json(&recorded.to_string()).unwrap()
}

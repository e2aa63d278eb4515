//! Planned steps without a pipeline, unrolled into streams, as frameworks run them.
//!
//! Parameters of the next layer are gathered while a layer computes, gradients are reduced behind the rest of the backward pass, and the
//! optimizer waits for them. Time of the processor is that of the plan.

use nvcoll_step::constants::Constants;
use nvcoll_step::step::layers::{Hides, LayerOp};
use nvcoll_step::step::work::{MoveRate, StepOp, StepWork};
use nvcoll_step::step::WorkStep;
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
        self.ops.push(op);
    }

    fn record(&mut self, stream: u32) -> u64 {
        self.events += 1;
        self.add(stream, json!({"work": "record", "event": self.events}));
        self.events
    }

    fn wait(&mut self, stream: u32, event: u64) {
        self.add(stream, json!({"work": "stream_wait", "event": event}));
    }

    fn collective(&mut self, stream: u32, op: &StepOp, parts: f64) {
        let StepWork::Collective { pattern, bytes, group, .. } = &op.work else { return };
        let (pattern, bytes) = (pattern.name(), bytes / parts);
        let op = json!({"name": op.name, "count": op.count, "work": "collective", "pattern": pattern, "bytes": bytes, "group": group});
        self.add(stream, op);
    }

    /// Adds an operation of the compute stream, or of the processor.
    fn compute(&mut self, op: &StepOp) {
        let elementwise = Constants::shipped().elementwise;
        let passes = elementwise.hopper.min(elementwise.ampere);
        let mut work = match &op.work {
            StepWork::Move { bytes, rate: MoveRate::Least, .. } => {
                json!({"work": "move", "bytes": passes * bytes * op.count})
            }
            StepWork::Move { bytes, .. } => {
                json!({"work": "copy", "bytes": bytes * op.count / 2.0, "direction": "d2d"})
            }
            StepWork::Host { seconds } => return self.add(0, json!({"work": "host", "seconds": seconds * op.count})),
            StepWork::Stall { seconds } => {
                self.add(0, json!({"work": "host_wait", "for": "device"}));
                return self.add(0, json!({"work": "host", "seconds": seconds * op.count}));
            }
            StepWork::Collective { .. } => return self.collective(COMPUTE, op, 1.0),
            StepWork::Gemm { m, n, k, batch, dtype, experts: Some(_), .. } => {
                json!({"work": "gemm", "m": m, "n": n, "k": k, "batch": batch, "dtype": dtype, "experts": 1})
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
    ops: Vec<&'s LayerOp>,
    /// Whether gradients of the layer are complete after it.
    is_last: bool,
}

fn passes(step: &WorkStep) -> Vec<Pass<'_>> {
    let layers = step.layers().expect("it is planned");
    let runs = &layers.roles[0].chunks[0];
    let blocks: Vec<_> = runs.iter().flat_map(|run| (0..run.repeat).map(|_| &layers.blocks[&run.block])).collect();
    let mut found = Vec::new();
    for nth in 1..=layers.pipeline.micro_batches {
        found.extend(blocks.iter().map(|block| Pass { ops: block.forward.iter().collect(), is_last: false }));
        let is_last = nth == layers.pipeline.micro_batches;
        found.extend(
            blocks
                .iter()
                .rev()
                .map(|block| Pass { ops: block.backward.iter().chain(&block.weights).collect(), is_last }),
        );
    }
    found
}

fn is_gather(op: &StepOp) -> bool {
    matches!(&op.work, StepWork::Collective { pattern, .. } if pattern.name() == "all_gather")
}

fn hides(one: &LayerOp) -> Option<Hides> {
    match one.op.work {
        StepWork::Collective { .. } => Some(one.hides),
        _ => None,
    }
}

/// Returns a planned step of one stage as streams.
pub(crate) fn unrolled(step: &WorkStep) -> WorkStep {
    let mut to = Unroller { ops: Vec::new(), events: 0 };
    let (passes, once) = (passes(step), &step.layers().expect("it is planned").roles[0].once);
    let layers = passes.iter().filter(|pass| pass.is_last).count() as f64;
    let (mut gathered, mut done): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
    let sharded = |pass: &Pass<'_>, gather: bool| -> Vec<StepOp> {
        let of = pass.ops.iter().filter(|one| hides(one) == Some(Hides::OtherLayer) && is_gather(&one.op) == gather);
        of.map(|one| one.op.clone()).collect()
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
        passes[at].ops.iter().filter(|op| hides(op) != Some(Hides::OtherLayer)).for_each(|one| to.compute(&one.op));
        done.push(to.record(COMPUTE));
        to.wait(REDUCE, done[at]);
        sharded(&passes[at], false).iter().for_each(|op| to.collective(REDUCE, op, 1.0));
        if passes[at].is_last {
            once.iter()
                .filter(|op| hides(op) == Some(Hides::LastBackward))
                .for_each(|one| to.collective(REDUCE, &one.op, layers));
        }
    }
    let reduced = to.record(REDUCE);
    to.wait(COMPUTE, reduced);
    once.iter().filter(|one| hides(one).is_none()).for_each(|one| to.compute(&one.op));
    let updated = to.record(COMPUTE);
    to.wait(GATHER, updated);
    let memory = json!({"allocated": 1e9, "reserved": 1e9});
    let rank = json!({"rank": 0, "stands_for": step.gpus, "name": "all ranks", "host": "timed", "issued": to.ops, "memory": {"allocator": memory}});
    let mut recorded = serde_json::to_value(step).unwrap();
    recorded.as_object_mut().unwrap().remove("layers");
    recorded["streams"] = json!({"gpu": "h100-sxm", "ranks": [rank]});
    WorkStep::from_json(&recorded.to_string()).unwrap()
}

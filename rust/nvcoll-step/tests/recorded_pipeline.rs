//! Stages that send each other activations, as recorded ranks: they end when the timeline of pipelines says.

mod common;

use std::collections::BTreeMap;

use common::{Machine, MACHINE};
use nvcoll_fabric::predict::Pattern;
use nvcoll_step::constants::Constants;
use nvcoll_step::network::Group;
use nvcoll_step::pipeline::{Chunk, Pipeline, Schedule};
use nvcoll_step::pricing::Pricer;
use nvcoll_step::step::WorkStep;
use serde_json::{json, Value};

const COMPUTE: u32 = 1;
const BYTES: f64 = 1e7;

/// The passes of a stage in the order of 1F1B or GPipe: forward or backward.
fn order(schedule: Schedule, stages: usize, stage: usize, micro_batches: usize) -> Vec<bool> {
    let warm_up = if schedule == Schedule::GPipe { micro_batches } else { (stages - stage).min(micro_batches) };
    let mut passes = vec![true; warm_up];
    for nth in 0..micro_batches {
        passes.push(false);
        if warm_up + nth < micro_batches {
            passes.push(true);
        }
    }
    passes
}

/// The operations of a stage: it receives what a pass needs, computes, and sends the result; each message has a stream of its own kind.
fn ops(schedule: Schedule, [stages, stage, micro_batches]: [usize; 3], [forward, backward]: [f64; 2]) -> Value {
    let mut ops = Vec::new();
    let mut event = 0;
    let mut add = |stream: u32, work: Value| {
        let mut op = work;
        op["stream"] = json!(stream);
        op["by_graph"] = json!(true);
        ops.push(op);
    };
    for is_forward in order(schedule, stages, stage, micro_batches) {
        let (from, to) = if is_forward {
            (stage.checked_sub(1), Some(stage + 1).filter(|&next| next < stages))
        } else {
            (Some(stage + 1).filter(|&next| next < stages), stage.checked_sub(1))
        };
        let tag = u64::from(is_forward);
        if let Some(peer) = from {
            event += 1;
            let stream = 10 + u32::from(is_forward);
            add(stream, json!({"work": "message", "way": "recv", "bytes": BYTES, "peer": 8 * peer, "tag": tag}));
            add(stream, json!({"work": "record", "event": event}));
            add(COMPUTE, json!({"work": "stream_wait", "event": event}));
        }
        add(
            COMPUTE,
            json!({"work": "timed", "seconds": if is_forward { forward } else { backward }, "name": "cutlass"}),
        );
        if let Some(peer) = to {
            event += 1;
            let stream = 20 + u32::from(is_forward);
            add(COMPUTE, json!({"work": "record", "event": event}));
            add(stream, json!({"work": "stream_wait", "event": event}));
            add(stream, json!({"work": "message", "way": "send", "bytes": BYTES, "peer": 8 * peer, "tag": tag}));
        }
    }
    add(COMPUTE, json!({"work": "host_wait", "for": "device"}));
    // The optimizer begins when all stages have ended, as the makespan of a pipeline does.
    add(COMPUTE, json!({"work": "collective", "pattern": "all_reduce", "bytes": 0, "group": "stages"}));
    Value::Array(ops)
}

/// Seconds of a recorded step, and of the pipeline that it is.
fn both(schedule: Schedule, stages: usize, micro_batches: usize, [forward, backward]: [f64; 2]) -> [f64; 2] {
    let machine = Machine::of(MACHINE, 8 * stages as u32);
    let constants = Constants::with(&BTreeMap::from([("contention".to_owned(), 0.0)])).unwrap();
    let pricer = Pricer { constants: &constants, ..machine.pricer(true) };
    let memory = json!({"allocated": 1e9, "reserved": 1e9});
    let rank = |stage: usize| {
        let ops = ops(schedule, [stages, stage, micro_batches], [forward, backward]);
        json!({"rank": 8 * stage, "stands_for": 8, "name": format!("stage {stage}"), "issued": ops, "memory": {"allocator": memory}})
    };
    let ranks: Vec<Value> = (0..stages).map(rank).collect();
    let text = json!({
        "schema": "nvcoll.step/1", "name": "stages", "gpus": 8 * stages, "dtype": "bf16",
        "groups": {"stages": {"size": stages, "stride": 8}}, "streams": {"gpu": "h100-sxm", "ranks": ranks},
    });
    let recorded = pricer.price(&WorkStep::from_json(&text.to_string()).unwrap()).unwrap();
    let parts: f64 = recorded.parts.named().map(|(_, seconds)| seconds).sum();
    assert!((parts / recorded.seconds - 1.0).abs() < 1e-6);
    let send = constants.network * pricer.network.seconds(Pattern::SendRecv, BYTES, Group::even(2, 8)).unwrap();
    let chunk = Chunk { forward, backward, weight: 0.0 };
    let pipeline = Pipeline::new(schedule, vec![vec![chunk]; stages], micro_batches as u32, send);
    [recorded.seconds, pipeline.run().step]
}

#[test]
fn stages_end_when_the_timeline_of_pipelines_says() {
    for schedule in [Schedule::OneFOneB, Schedule::GPipe] {
        for (stages, micro_batches) in [(2, 1), (2, 8), (4, 4), (4, 12), (3, 7)] {
            for times in [[0.01, 0.02], [0.02, 0.02], [0.003, 0.001]] {
                let [recorded, pipeline] = both(schedule, stages, micro_batches, times);
                let off = (recorded / pipeline - 1.0).abs();
                assert!(off < 1e-3, "{schedule:?} {stages} {micro_batches} {times:?}: {recorded} and {pipeline}");
            }
        }
    }
}

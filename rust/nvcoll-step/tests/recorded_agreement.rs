//! Planned steps without a pipeline, unrolled into recorded ones: both are priced, and agree within 5 %.
//!

mod common;

use common::unrolled::unrolled;
use common::{layout, request, Machine, MACHINE};
use nvcoll_step::pricing::StepReport;
use serde_json::{json, Value};

fn both(model: &str, fields: Value, software: &str) -> [StepReport; 2] {
    let layout = layout(fields);
    let machine = Machine::of(MACHINE, layout.gpus);
    let step = request(model, layout, software).plan().unwrap();
    [step.clone(), unrolled(&step)].map(|step| machine.pricer(true).price(&step).unwrap())
}

fn assert_agree(model: &str, fields: Value, software: &str) {
    let [planned, recorded] = both(model, fields, software);
    let parts = |price: &StepReport| {
        price.parts.named().map(|(name, seconds)| format!("{name} {seconds:.3}")).collect::<Vec<_>>()
    };
    let (one, other) = (planned.seconds, recorded.seconds);
    let off = (other / one - 1.0).abs();
    assert!(off < 0.05, "{one:.4} {:?} and {other:.4} {:?}", parts(&planned), parts(&recorded));
    assert!((recorded.tflops.unwrap() / planned.tflops.unwrap() * other / one - 1.0).abs() < 1e-9);
}

fn fields(gpus: u32, sharding: &str, global_batch: u32) -> Value {
    json!({"gpus": gpus, "tensor": 1, "stages": 1, "context": 1, "data": gpus, "micro_batch": 1, "global_batch": global_batch,
           "sequence": 8192, "dtype": "bf16", "sharding": sharding})
}

#[test]
fn a_dense_model_on_one_gpu() {
    assert_agree("llama3-8b", fields(1, "none", 4), "torchtitan");
    assert_agree("llama2-7b", fields(1, "none", 2), "torchtitan-compile");
}

#[test]
fn tensor_parallelism_that_nothing_hides() {
    let mut fields = fields(8, "none", 8);
    (fields["tensor"], fields["data"], fields["sequence_parallel"]) = (json!(8), json!(1), json!(true));
    assert_agree("llama3-70b", fields, "torchtitan");
}

#[test]
fn sharded_parameters() {
    for (gpus, batch) in [(8, 8), (64, 64), (64, 256)] {
        assert_agree("llama3-8b", fields(gpus, "parameters", batch), "fsdp2");
    }
    assert_agree("llama3-70b", fields(64, "parameters", 64), "torchtitan-compile");
}

#[test]
fn sharded_parameters_whose_traffic_takes_longer_than_computing() {
    let mut fields = fields(64, "parameters", 64);
    fields["sequence"] = json!(1024);
    let [planned, recorded] = both("llama3-70b", fields, "torchtitan-compile");
    let sharded =
        |price: &StepReport| price.parts.named().find(|(name, _)| *name == "sharded").map_or(0.0, |part| part.1);
    assert!(sharded(&planned) > 0.3 * planned.seconds, "{:?}", planned.parts);
    assert!((recorded.seconds / planned.seconds - 1.0).abs() < 0.05, "{:?} and {:?}", planned.parts, recorded.parts);
}

#[test]
fn replicas() {
    for (gpus, batch) in [(8, 16), (64, 256)] {
        assert_agree("llama3-8b", fields(gpus, "none", batch), "torchtitan");
    }
}

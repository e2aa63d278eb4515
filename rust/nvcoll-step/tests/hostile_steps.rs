//! Steps from files that contradict themselves: they are refused with what was found, and nothing panics, hangs or fills the memory.

mod common;

use std::sync::LazyLock;

use common::{layout, request, Machine, MACHINE};
use nvcoll_step::planner::Request;
use nvcoll_step::pricing::StepTimeline;
use nvcoll_step::step::WorkStep;
use nvcoll_step::Error;
use proptest::prelude::*;
use proptest::sample::{select, Index};
use serde_json::{json, Value};

static ON: LazyLock<Machine> = LazyLock::new(|| Machine::of(MACHINE, 16));

/// A step with all kinds of operations: experts, context and tensor parallelism, four stages of two chunks.
fn step() -> Value {
    let fields = json!({
        "gpus": 16, "tensor": 2, "context": 2, "stages": 4, "data": 1, "chunks": 2, "schedule": "interleaved", "expert": 4,
        "micro_batch": 1, "global_batch": 8, "sequence": 4096, "dtype": "fp8", "sharding": "optimizer",
        "recompute": {"attention": 1.0},
    });
    serde_json::to_value(request("gpt-oss-20b", layout(fields), "megatron-bridge").plan().unwrap()).unwrap()
}

fn with(place: &str, value: Value) -> String {
    let mut step = step();
    *step.pointer_mut(place).unwrap_or_else(|| panic!("no {place}")) = value;
    step.to_string()
}

/// Reads, prices and runs a step; returns its error.
fn outcome(text: &str) -> Result<(), Error> {
    let step = WorkStep::from_json(text)?;
    for is_exact in [false, true] {
        let price = ON.pricer(is_exact).price(&step)?;
        let numbers = [
            price.seconds,
            price.low_s,
            price.high_s,
            price.mfu.unwrap_or(0.0),
            price.tflops.unwrap_or(0.0),
            price.tokens_per_second.unwrap_or(0.0),
            price.memory_gib.unwrap_or(0.0),
        ];
        assert!(numbers.iter().all(|number| number.is_finite() && *number >= 0.0), "{numbers:?}");
        let parts: f64 = price.parts.named().map(|(_, seconds)| seconds).sum();
        assert!(
            (parts / price.seconds - 1.0).abs() < 1e-6,
            "{parts} of {}: {is_exact} {:?} {:?} {:?}",
            price.seconds,
            price.parts,
            step.layers(),
            step.groups
        );
        assert!(price.collectives.iter().all(|one| one.seconds.is_finite()));
    }
    let StepTimeline::Pipeline(_, timeline) = ON.pricer(true).timeline(&step)? else { panic!("it has layers") };
    assert_eq!(timeline.stages.len(), step.layers().unwrap().pipeline.stages as usize);
    Ok(())
}

#[test]
fn the_step_itself_has_a_price() {
    outcome(&step().to_string()).unwrap();
}

#[test]
fn contradictions_are_refused_with_what_was_expected() {
    let mut roles = step()["layers"]["roles"].as_array().unwrap().clone();
    roles.remove(0);
    for (place, value, expected) in [
        ("/schema", json!("nvcoll.step/9"), "nvcoll.step/1 was expected"),
        ("/gpus", json!(0), "no GPUs"),
        ("/gpus", json!(1_000_000), "has 16"),
        ("/layers/roles", json!([]), "have 0 stages"),
        ("/layers/roles", json!(roles), "each of 4 was expected once"),
        ("/layers/roles/0/stages", json!([7]), "each of 4 was expected once"),
        ("/layers/roles/0/stages", json!([0, 0]), "each of 4 was expected once"),
        ("/layers/roles/0/chunks", json!([]), "0 chunks, 2 were expected"),
        ("/layers/roles/0/chunks/0/0/block", json!("attic"), "`attic`, which does not exist"),
        ("/layers/blocks", json!({}), "which does not exist"),
        ("/layers/pipeline/stages", json!(0), "each of 0 was"),
        ("/layers/pipeline/stages", json!(1_000_000), "each of 1000000"),
        ("/layers/pipeline/chunks", json!(0), "0 were expected"),
        ("/layers/pipeline/micro_batches", json!(0), "at least one"),
        ("/layers/pipeline/micro_batches", json!(4_000_000_000u32), "at most"),
        ("/layers/pipeline/micro_batches", json!(7), "that the stages divide"),
        ("/layers/pipeline/stall_s", json!(-1.0), "-1"),
        ("/layers/pipeline/schedule", json!("gpipe"), "interleaved"),
        ("/layers/pipeline/send/group", json!("attic"), "`attic`, which does not exist"),
        ("/groups/tp/size", json!(0), "1 or more"),
        ("/groups/tp/stride", json!(0), "1 or more"),
        ("/groups/tp/size", json!(4_000_000_000u32), "do not fit"),
        ("/groups", json!({}), "which does not exist"),
        ("/layers/roles/0/memory/sum/activations", json!(1e308), "to 1e30 was"),
        ("/layers/roles/0/memory/sum/in_flight", json!(-1), "-1"),
        ("/tokens", json!(1e308), "to 1e30 was"),
        ("/model_flops", json!(-5), "-5"),
        ("/layers/blocks/head/recompute/gemm", json!(2), "0 to 1"),
        ("/layers/blocks/head/forward/0/k", json!(-1), "-1"),
        ("/layers/blocks/head/forward/0/m", json!(1e308), "to 1e30 was"),
        ("/layers/blocks/head/forward/0/m", json!(1e30), "were expected"),
        ("/layers/roles/0/once/0/bytes", json!(1e308), "to 1e30 was"),
    ] {
        let Err(error) = outcome(&with(place, value.clone())) else { panic!("{place} = {value}") };
        let error = error.to_string();
        assert!(error.contains(expected), "{place} = {value}: {error}");
        assert!(error.len() < 400, "{place}: {error}");
    }
}

#[test]
fn a_product_hides_behind_nothing_and_layers_have_no_events() {
    let with = |name: &str, value: Value| {
        let mut step = step();
        step["layers"]["blocks"]["head"]["forward"][0][name] = value;
        outcome(&step.to_string()).unwrap_err().to_string()
    };
    assert!(with("hides", json!("tiles")).contains("only collectives do"));
    let mut step = step();
    step["layers"]["blocks"]["head"]["forward"][0] = json!({"work": "record", "event": 1});
    assert!(outcome(&step.to_string()).unwrap_err().to_string().contains("orders streams"));
}

#[test]
fn text_that_is_no_step_is_refused() {
    for text in ["", "null", "[]", "{}", "nan", r#"{"schema": NaN}"#, "\u{feff}{}"] {
        assert!(matches!(WorkStep::from_json(text), Err(Error::Step(_))), "{text}");
    }
    assert!(matches!(WorkStep::from_json(&"[".repeat(1 << 20)), Err(Error::Step(_))));
    let infinite = step().to_string().replacen("\"tokens\":", "\"tokens\":1e999,\"was\":", 1);
    assert!(matches!(WorkStep::from_json(&infinite), Err(Error::Step(_))));
}

#[test]
fn work_of_no_size_takes_no_time() {
    for (place, value) in [
        ("/layers/blocks/head/forward/0/m", json!(0)),
        ("/layers/blocks/head/forward/0/k", json!(0)),
        ("/layers/blocks/head/forward/0/n", json!(0)),
        ("/layers/blocks/embedding", json!({"forward": [], "backward": []})),
        ("/layers/roles/0/once", json!([])),
        ("/layers/pipeline/send", Value::Null),
        ("/layers/roles/0/memory/sum/standing", json!([])),
    ] {
        outcome(&with(place, value)).unwrap_or_else(|error| panic!("{place}: {error}"));
    }
    let mut nothing = step();
    for block in nothing["layers"]["blocks"].as_object_mut().unwrap().values_mut() {
        *block = json!({"forward": [], "backward": []});
    }
    for role in nothing["layers"]["roles"].as_array_mut().unwrap() {
        role["once"] = json!([]);
    }
    nothing["layers"]["pipeline"]["send"] = Value::Null;
    assert!(outcome(&nothing.to_string()).unwrap_err().to_string().contains("above 0"));
}

#[test]
fn a_million_stages_take_no_square_of_time() {
    let mut step = step();
    let stages = 1_000_000;
    step["layers"]["roles"] = json!([step["layers"]["roles"][0]]);
    step["layers"]["roles"][0]["stages"] = (0..stages).collect();
    step["layers"]["pipeline"]["stages"] = json!(stages);
    step["layers"]["pipeline"]["micro_batches"] = json!(stages);
    assert!(matches!(outcome(&step.to_string()), Err(Error::Layout(_))));
}

/// Changes the value at a place that is counted through all values of a document.
fn change(value: &mut Value, nth: &mut usize, to: &Value) {
    if *nth == 0 {
        *value = to.clone();
        *nth = usize::MAX;
        return;
    }
    *nth = nth.saturating_sub(usize::from(*nth != usize::MAX));
    match value {
        Value::Array(all) => all.iter_mut().for_each(|one| change(one, nth, to)),
        Value::Object(all) => all.values_mut().for_each(|one| change(one, nth, to)),
        _ => {}
    }
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(all) => all.iter().map(count).sum::<usize>(),
        Value::Object(all) => all.values().map(count).sum(),
        _ => 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn one_or_two_changed_values_are_priced_or_refused(
        places in proptest::collection::vec(any::<Index>(), 1..3),
        values in proptest::collection::vec(select(vec![
            json!(0), json!(-1), json!(1), json!(0.5), json!(3), json!(1e308), json!(1e30), json!(1e-300), json!(65536),
            json!(u32::MAX), json!(u64::MAX), Value::Null, json!([]), json!({}), json!(""), json!("fp4"), json!(true),
        ]), 3),
    ) {
        let mut step = step();
        let all = count(&step);
        for (place, value) in places.iter().zip(&values) {
            change(&mut step, &mut place.index(all), value);
        }
        _ = outcome(&step.to_string());
    }

    #[test]
    fn requests_with_changed_values_are_planned_or_refused(
        places in proptest::collection::vec(any::<Index>(), 1..3),
        values in proptest::collection::vec(select(vec![
            json!(0), json!(-1), json!(1), json!(0.5), json!(3), json!(64), json!(1e308), json!(65536), json!(1 << 24),
            json!(u32::MAX), json!(u64::MAX), Value::Null, json!({}), json!("gpipe"), json!("parameters"), json!(true),
        ]), 3),
        name in select(vec!["llama3-8b", "deepseek-v3", "gpt-oss-20b"]),
    ) {
        let fields = json!({
            "gpus": 16, "tensor": 2, "context": 2, "stages": 2, "data": 2, "micro_batch": 1, "global_batch": 16, "sequence": 4096,
            "sharding": "optimizer", "shard_ranks": 2, "recompute": {"gemm": 0.1},
        });
        let mut changed = serde_json::to_value(request(name, layout(fields), "nanotron")).unwrap();
        let all = count(&changed);
        for (place, value) in places.iter().zip(&values) {
            change(&mut changed, &mut place.index(all), value);
        }
        let Ok(request) = serde_json::from_value::<Request>(changed) else { return Ok(()) };
        match request.plan() {
            Ok(step) if step.gpus <= 16 => _ = outcome(&step.to_json()),
            Ok(step) => prop_assert_eq!(step.check(), Ok(())),
            Err(error) => prop_assert!(!matches!(error, Error::Step(_)), "{}", error),
        }
    }
}

//! Recorded steps as JSON: what is written is read, and what contradicts itself is refused with what was found.

use nvcoll_step::recorded::Action;
use nvcoll_step::training_step::TrainingStep;
use nvcoll_step::Error;
use serde_json::{json, Value};

/// Two stages on 16 GPUs, with an operation of each kind.
fn step() -> Value {
    let rank = |rank: u32, name: &str, sends: &str, receives: &str| {
        json!({
            "rank": rank, "stands_for": 8, "name": name, "operators": 40,
            "ops": [
                {"stream": 7, "name": "aten::mm", "line": 0, "work": "gemm", "m": 64, "n": 64, "k": 64, "dtype": "fp32", "count": 1},
                {"stream": 7, "work": "gemm", "m": 64, "n": 64, "k": 64, "batch": 8, "dtype": "bf16", "count": 2},
                {"stream": 7, "work": "attention", "queries": 128, "keys": 128, "sequences": 2, "heads": 8, "qk_dim": 64,
                 "v_dim": 64, "kernel": "fa2", "causal": false},
                {"stream": 7, "name": "aten::add_", "line": 1, "work": "kernel", "bytes": 1e6, "count": 3, "graph": true},
                {"work": "record", "stream": 7, "event": 3},
                {"work": "wait", "stream": 9, "event": 3},
                {"stream": 9, "name": "gradients", "work": "collective", "pattern": "all_reduce", "bytes": 1e6, "group": "dp"},
                {"stream": 9, "work": "collective", "pattern": "all_reduce", "bytes": 4, "group": "pp"},
                {"stream": 11, "work": sends, "bytes": 1e6, "peer": 8 - rank, "tag": 0, "together": 5},
                {"stream": 11, "work": receives, "bytes": 1e6, "peer": 8 - rank, "tag": 1, "together": 5},
                {"stream": 0, "work": "copy", "bytes": 64, "direction": "d2h"},
                {"work": "host_waits", "for": "device"},
                {"work": "host_waits", "for": {"stream": 7}},
                {"work": "host_waits", "for": {"event": 3}},
                {"work": "host", "seconds": 1e-5},
                {"work": "measured", "seconds": 1e-5},
            ],
            "memory": {"allocated": 1e9, "reserved": 2e9, "parts": [{"name": "parameters", "bytes": 5e8}], "stack": ["m.py:5 f"]},
        })
    };
    let ranks = [rank(0, "first stage", "send", "recv"), rank(8, "last stage", "recv", "send")];
    json!({
        "schema": "nvcoll.training-step/1", "name": "two stages", "gpus": 16, "tokens": 0, "model_flops": 0, "dtype": "bf16",
        "groups": {"dp": {"size": 8, "stride": 1}, "pp": {"size": 2, "stride": 8}},
        "recorded": {"gpu": "h100-sxm", "lines": ["model.py:42 forward", "model.py:43 forward"], "ranks": ranks},
    })
}

#[test]
fn what_is_written_is_read() {
    let step = TrainingStep::from_json(&step().to_string()).unwrap();
    let again = TrainingStep::from_json(&step.to_json()).unwrap();
    assert_eq!(step, again);
    let ops = &step.recorded.as_ref().unwrap().ranks[0].ops;
    assert!(matches!(ops[1].action, Action::Gemm { batch: 8.0, .. }) && ops[1].count == 2.0);
    assert!(ops[3].graph && ops[3].line == Some(1));
    let Value::Object(planned) = serde_json::to_value(&step).unwrap() else { panic!() };
    assert!(planned["roles"].as_array().unwrap().is_empty());
}

#[test]
fn contradictions_are_refused_with_what_was_found() {
    let ops = "/recorded/ranks/0/ops";
    for (place, value, expected) in [
        ("/recorded/gpu", json!("h900"), "h900"),
        ("/recorded/ranks", json!([]), "one or more were expected"),
        ("/recorded/ranks/1/rank", json!(0), "0 `first stage`, 0 `last stage`"),
        ("/recorded/ranks/1/rank", json!(16), "below 16"),
        ("/recorded/ranks/1/name", json!("first stage"), "names of their own"),
        ("/recorded/ranks/1/stands_for", json!(9), "stand for 17"),
        ("/recorded/ranks/1/stands_for", json!(0), "1 or more"),
        ("/recorded/ranks/0/ops", json!([]), "work on each rank"),
        ("/recorded/ranks/0/ops", json!([{"work": "host", "seconds": 1}]), "work on each rank"),
        ("/recorded/ranks/0/memory/reserved", json!(-1), "-1"),
        ("/recorded/ranks/0/operators", json!(1e40), "to 1e30 was"),
        ("/tokens", json!(-1), "tokens"),
        ("/groups/dp/size", json!(0), "1 or more"),
        ("/groups/dp/size", json!(17), "reaches beyond 16"),
        ("/groups", json!({}), "`dp`, which does not exist"),
        ("0/m", json!(-64), "-64"),
        ("0/count", json!(-1), "-1"),
        ("0/line", json!(2), "has the line 2: a number below 2"),
        ("0/dtype", json!("fp128"), "fp128"),
        ("0/work", json!("magic"), "magic"),
        ("4/event", json!(4), "event 3, which is never recorded"),
        ("13/for/event", json!(4), "event 4, which is never recorded"),
        ("6/group", json!("attic"), "`attic`, which does not exist"),
        ("6/pattern", json!("all_scatter"), "all_scatter"),
        ("7/pattern", json!("broadcast"), "rank 8 of the same group others"),
        ("7/group", json!("dp"), "rank 8 runs 1 collectives of the group `pp`, rank 0 of the same group none"),
        ("8/peer", json!(16), "has the peer 16"),
        ("8/peer", json!(0), "another rank"),
        ("8/bytes", json!(7), "has 7 bytes, 1000000 are received"),
        ("8/tag", json!(3), "receives"),
        ("10/direction", json!("h2h"), "h2h"),
        ("15/seconds", json!(-1.0), "-1"),
    ] {
        let mut wrong = step();
        let place = if place.starts_with('/') { place.to_owned() } else { format!("{ops}/{place}") };
        *wrong.pointer_mut(&place).unwrap_or_else(|| panic!("no {place}")) = value.clone();
        let Err(error) = TrainingStep::from_json(&wrong.to_string()) else { panic!("{place} = {value}") };
        let text = error.to_string();
        assert!(matches!(error, Error::Step(_) | Error::Fabric(_)), "{place}");
        assert!(text.contains(expected) && text.len() < 900, "{place} = {value}: {text}");
    }
}

#[test]
fn a_step_is_planned_or_recorded_and_not_both() {
    let mut both = step();
    both["roles"] = json!([{"name": "a", "stages": [0], "chunks": [[]], "once": [],
                            "memory": {"standing": [], "activations": 0, "in_flight": 1}}]);
    let error = TrainingStep::from_json(&both.to_string()).unwrap_err().to_string();
    assert!(error.contains("only planned steps have them"), "{error}");
    let mut neither = step();
    neither.as_object_mut().unwrap().remove("recorded");
    assert!(TrainingStep::from_json(&neither.to_string()).unwrap_err().to_string().contains("have 0 stages"));
}

//! Recorded steps as JSON: what is written is read, and what contradicts itself is refused with what was found.

use nvcoll_step::memory::{MemoryLine, RankMemory};
use nvcoll_step::step::work::StepWork;
use nvcoll_step::step::WorkStep;
use nvcoll_step::Error;
use serde_json::{json, Value};

/// Two stages on 16 GPUs, with an operation of each kind.
fn step() -> Value {
    let rank = |rank: u32, name: &str, sends: &str, receives: &str| {
        json!({
            "rank": rank, "stands_for": 8, "name": name, "host": {"launches": {"operators": 40}},
            "issued": [
                {"stream": 7, "name": "aten::mm", "line": 0, "work": "gemm", "m": 64, "n": 64, "k": 64, "dtype": "fp32", "count": 1},
                {"stream": 7, "work": "gemm", "m": 64, "n": 64, "k": 64, "batch": 8, "dtype": "bf16", "count": 2},
                {"stream": 7, "work": "attention", "queries": 128, "keys": 128, "sequences": 2, "heads": 8, "qk_dim": 64,
                 "v_dim": 64, "kernel": "fa2", "causal": false},
                {"stream": 7, "name": "aten::add_", "line": 1, "work": "move", "bytes": 1e6, "launches": 3, "by_graph": true},
                {"work": "record", "stream": 7, "event": 3},
                {"work": "stream_wait", "stream": 9, "event": 3},
                {"stream": 9, "name": "gradients", "work": "collective", "pattern": "all_reduce", "bytes": 1e6, "group": "dp"},
                {"stream": 9, "work": "collective", "pattern": "all_reduce", "bytes": 4, "group": "pp"},
                {"stream": 11, "work": "message", "way": sends, "bytes": 1e6, "peer": 8 - rank, "tag": 0, "together": 5},
                {"stream": 11, "work": "message", "way": receives, "bytes": 1e6, "peer": 8 - rank, "tag": 1, "together": 5},
                {"stream": 0, "work": "copy", "bytes": 64, "direction": "d2h"},
                {"work": "host_wait", "for": "device"},
                {"work": "host_wait", "for": {"stream": 7}},
                {"work": "host_wait", "for": {"event": 3}},
                {"work": "host", "seconds": 1e-5},
                {"work": "timed", "seconds": 1e-5},
            ],
            "memory": {"allocator": {"allocated": 1e9, "reserved": 2e9, "parts": [{"name": "parameters", "bytes": 5e8}], "stack": ["m.py:5 f"]}},
        })
    };
    let ranks = [rank(0, "first stage", "send", "recv"), rank(8, "last stage", "recv", "send")];
    json!({
        "schema": "nvcoll.step/1", "name": "two stages", "gpus": 16, "dtype": "bf16",
        "groups": {"dp": {"kind": "dp", "size": 8, "stride": 1}, "pp": {"kind": "pp", "size": 2, "stride": 8}},
        "streams": {"gpu": "h100-sxm", "lines": ["model.py:42 forward", "model.py:43 forward"], "ranks": ranks},
    })
}

#[test]
fn what_is_written_is_read() {
    let step = WorkStep::from_json(&step().to_string()).unwrap();
    let again = WorkStep::from_json(&step.to_json()).unwrap();
    assert_eq!(step, again);
    let issued = &step.streams().unwrap().ranks[0].issued;
    assert!(matches!(issued[1].op.work, StepWork::Gemm { batch: 8.0, .. }) && issued[1].op.count == 2.0);
    assert!(issued[3].by_graph && issued[3].line == Some(1));
}

#[test]
fn contradictions_are_refused_with_what_was_found() {
    let ops = "/streams/ranks/0/issued";
    for (place, value, expected) in [
        ("/streams/ranks", json!([]), "one or more were expected"),
        ("/streams/ranks/1/rank", json!(0), "0 `first stage`, 0 `last stage`"),
        ("/streams/ranks/1/rank", json!(16), "below 16"),
        ("/streams/ranks/1/name", json!("first stage"), "names of their own"),
        ("/streams/ranks/1/stands_for", json!(9), "stand for 17"),
        ("/streams/ranks/1/stands_for", json!(0), "1 or more"),
        ("/streams/ranks/0/issued", json!([]), "work on each rank"),
        ("/streams/ranks/0/issued", json!([{"work": "host", "seconds": 1}]), "work on each rank"),
        ("/streams/ranks/0/memory/allocator/reserved", json!(-1), "-1"),
        ("/streams/ranks/0/host/launches/operators", json!(1e40), "to 1e30 was"),
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
        let Err(error) = WorkStep::from_json(&wrong.to_string()) else { panic!("{place} = {value}") };
        let text = error.to_string();
        assert!(matches!(error, Error::Step(_) | Error::Fabric(_)), "{place}");
        assert!(text.contains(expected) && text.len() < 900, "{place} = {value}: {text}");
    }
}

#[test]
fn a_step_has_layers_or_streams_and_not_both() {
    let mut both = step();
    both["layers"] = json!({"blocks": {}, "roles": []});
    let error = WorkStep::from_json(&both.to_string()).unwrap_err().to_string();
    assert!(error.contains("unknown field"), "{error}");
    let mut neither = step();
    neither.as_object_mut().unwrap().remove("streams");
    assert!(WorkStep::from_json(&neither.to_string()).is_err());
}

#[test]
fn fields_of_other_work_and_of_the_other_form_are_refused() {
    for (field, value) in [("n", json!(1)), ("way", json!("send")), ("hides", json!("tiles")), ("what", json!(1))] {
        let mut wrong = step();
        wrong["streams"]["ranks"][0]["issued"][10][field] = value;
        let error = WorkStep::from_json(&wrong.to_string()).unwrap_err().to_string();
        assert!(error.contains(field), "{field}: {error}");
    }
    for (at, field, value, expected) in [
        (0, "together", json!(3), "only collectives and messages are"),
        (6, "once_per_node", json!(3), "once_per_node"),
    ] {
        let mut wrong = step();
        wrong["streams"]["ranks"][0]["issued"][at][field] = value;
        let error = WorkStep::from_json(&wrong.to_string()).unwrap_err().to_string();
        assert!(error.contains(expected), "{field}: {error}");
    }
    let mut stall = step();
    stall["streams"]["ranks"][0]["issued"][14] = json!({"work": "stall", "seconds": 1});
    assert!(WorkStep::from_json(&stall.to_string()).unwrap_err().to_string().contains("stalls the GPU"));
}

#[test]
fn the_lines_of_memory_stand_in_one_order_however_a_step_lists_them() {
    let memory = json!({"allocator": {"allocated": 3e9, "reserved": 4e9, "parts": [
        {"name": "activations", "bytes": 1e9}, {"name": "gradients", "bytes": 5e8}, {"name": "parameters", "bytes": 5e8},
    ]}});
    let memory: RankMemory = serde_json::from_value(memory).unwrap();
    let lines: Vec<MemoryLine> = memory.table("all ranks", 8, 5e8).lines.into_keys().collect();
    assert_eq!(lines.len(), 7);
    assert_eq!(lines, MemoryLine::ALL.into_iter().filter(|one| lines.contains(one)).collect::<Vec<_>>());
}

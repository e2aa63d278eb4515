//! Any recorded step: its parts sum up, its price is the same each time, at least that of its longest stream, larger for more bytes, and
//! does not depend on the numbers of streams. Damaged steps are refused or priced; nothing panics or hangs.

mod common;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use common::{Machine, MACHINE};
use nvcoll_step::constants::Constants;
use nvcoll_step::pricing::{Pricer, StepReport};
use nvcoll_step::step::WorkStep;
use nvcoll_step::Error;
use proptest::prelude::*;
use proptest::sample::{select, Index};
use serde_json::{json, Value};

static ON: LazyLock<Machine> = LazyLock::new(|| Machine::of(MACHINE, 16));

static PLAIN: LazyLock<Constants> =
    LazyLock::new(|| Constants::with(&BTreeMap::from([("contention".to_owned(), 0.0)])).unwrap());

/// Work of one stream each, so that tasks of one kind never run at once: computing, ports, cards, copies.
fn work(kind: usize, size: f64) -> Value {
    match kind {
        0 => json!({"stream": 1, "line": 0, "work": "move", "bytes": 1e7 * size}),
        1 => {
            json!({"stream": 2, "line": 1, "work": "collective", "pattern": "all_reduce", "bytes": 1e6 * size, "group": "tp"})
        }
        2 => {
            json!({"stream": 3, "line": 1, "work": "collective", "pattern": "all_gather", "bytes": 1e6 * size, "group": "dp"})
        }
        3 => json!({"stream": 4, "line": 0, "work": "copy", "bytes": 1e5 * size, "direction": "h2d"}),
        _ => json!({"stream": 1, "line": 0, "work": "gemm", "m": 1024.0 * size, "n": 2048, "k": 2048, "dtype": "bf16"}),
    }
}

/// Work in any order, with events between streams: each is recorded before it is waited for, or in the step before.
fn programs() -> impl Strategy<Value = Vec<Value>> {
    let op = prop_oneof![
        5 => (0..5_usize, 1..100_u32).prop_map(|(kind, size)| vec![work(kind, size.into())]),
        3 => (1..5_u32, 1..5_u32, 0..4_u64).prop_map(|(from, to, event)| vec![
            json!({"stream": from, "work": "record", "event": event}), json!({"stream": to, "work": "stream_wait", "event": event}),
        ]),
        1 => (select(vec![json!("device"), json!({"stream": 1}), json!({"stream": 3})]))
            .prop_map(|target| vec![json!({"work": "host_wait", "for": target})]),
        1 => (1..50_u32).prop_map(|us| vec![json!({"work": "host", "seconds": f64::from(us) * 1e-6})]),
    ];
    prop::collection::vec(op, 1..40).prop_map(|ops| {
        let mut ops: Vec<Value> = ops.into_iter().flatten().collect();
        ops.push(work(0, 1.0));
        ops
    })
}

/// The end of a step whose streams are tied. Others drift apart from step to step, and which is the last one changes on the way.
fn device_wait() -> Value {
    json!({"work": "host_wait", "for": "device"})
}

fn step_of(ranks: &[Vec<Value>]) -> Value {
    let memory = json!({"allocated": 1e9, "reserved": 1e9});
    let rank = |(at, ops): (usize, &Vec<Value>)| json!({"rank": 8 * at, "stands_for": 8, "name": format!("rank {at}"), "issued": ops, "memory": {"allocator": memory}});
    let ranks: Vec<Value> = ranks.iter().enumerate().map(rank).collect();
    json!({
        "schema": "nvcoll.step/1", "name": "any", "gpus": 16, "dtype": "bf16",
        "groups": {"tp": {"kind": "tp", "size": 8, "stride": 1}, "dp": {"kind": "dp", "size": 2, "stride": 8}},
        "streams": {"gpu": "h100-sxm", "lines": ["a", "b"], "ranks": ranks},
    })
}

fn priced(pricer: &Pricer<'_>, step: &Value) -> Result<StepReport, Error> {
    let price = pricer.price(&WorkStep::from_json(&step.to_string())?)?;
    let parts: f64 = price.parts.named().map(|(_, seconds)| seconds).sum();
    assert!((parts / price.seconds - 1.0).abs() < 1e-6, "{:?} are {parts} of {}", price.parts, price.seconds);
    Ok(price)
}

/// The most seconds of the processor to issue one operation: an operator of a framework and its launch.
const ISSUE_S: f64 = 9.2e-6 + 2.5e-6;

fn plain() -> Pricer<'static> {
    Pricer { constants: &PLAIN, ..ON.pricer(true) }
}

fn seconds(ops: &[Value]) -> f64 {
    priced(&plain(), &step_of(&[ops.to_vec()])).unwrap().seconds
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_step_takes_as_long_as_its_longest_stream_and_at_most_all_of_it(mut ops in programs()) {
        ops.push(device_wait());
        let found = seconds(&ops);
        prop_assert_eq!(found, seconds(&ops));
        let alone = |op: &Value| if op["work"] == "host_wait" || op["work"] == "record" || op["work"] == "stream_wait" {
            0.0
        } else if op["work"] == "host" {
            op["seconds"].as_f64().unwrap()
        } else {
            let mut step = step_of(&[vec![op.clone()]]);
            step["streams"]["ranks"][0]["host"] = json!("timed");
            priced(&plain(), &step).unwrap().seconds
        };
        let (mut streams, mut all) = (BTreeMap::<String, f64>::new(), 0.0);
        for op in &ops {
            let stream = if op["work"] == "host" { "host".to_owned() } else { op["stream"].to_string() };
            *streams.entry(stream).or_default() += alone(op);
            all += alone(op) + ISSUE_S;
        }
        let longest = streams.values().copied().fold(0.0, f64::max);
        prop_assert!(found >= longest * (1.0 - 1e-6), "{found} s, and a stream takes {longest} s");
        prop_assert!(found <= all, "{found} s, and all of it one after the other {all} s");
    }

    #[test]
    fn more_bytes_take_no_less_time(mut ops in programs(), at in any::<Index>(), more in 1.0..10.0_f64) {
        ops.push(device_wait());
        let mut larger = ops.clone();
        let op = at.get(&ops);
        for field in ["bytes", "m", "seconds"] {
            if let Some(number) = op[field].as_f64() {
                larger[at.index(ops.len())][field] = json!(if field == "m" { (number * more).round() } else { number * more });
            }
        }
        let (before, after) = (seconds(&ops), seconds(&larger));
        prop_assert!(after >= before * (1.0 - 1e-6), "{after} s, and {before} s with fewer bytes");
    }

    #[test]
    fn numbers_of_streams_and_events_mean_nothing(ops in programs()) {
        let mut renamed = ops.clone();
        for op in &mut renamed {
            if let Some(stream) = op["stream"].as_u64() {
                op["stream"] = json!(100 - 7 * stream);
            }
            if let Some(event) = op["event"].as_u64() {
                op["event"] = json!(1000 - event);
            }
            if let Some(stream) = op["for"]["stream"].as_u64() {
                op["for"]["stream"] = json!(100 - 7 * stream);
            }
        }
        prop_assert!((seconds(&renamed) / seconds(&ops) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn independent_streams_may_be_issued_in_any_order(sizes in prop::collection::vec((0..4_usize, 1..100_u32), 1..30)) {
        let graph = |(kind, size): (usize, u32)| {
            let mut op = work(kind, size.into());
            op["by_graph"] = json!(true);
            op
        };
        let mixed: Vec<Value> = sizes.iter().copied().map(graph).collect();
        let mut sorted = mixed.clone();
        sorted.sort_by_key(|op| op["stream"].as_u64());
        prop_assert!((seconds(&sorted) / seconds(&mixed) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn ranks_that_do_the_same_take_as_long_as_one(ops in programs()) {
        let two = priced(&ON.pricer(true), &step_of(&[ops.clone(), ops.clone()])).unwrap();
        let one = priced(&ON.pricer(true), &step_of(&[ops])).unwrap();
        prop_assert!((two.seconds / one.seconds - 1.0).abs() < 1e-9, "{} and {}", two.seconds, one.seconds);
    }

    #[test]
    fn ranks_that_send_each_other_messages_end_or_are_said_to_hang(
        messages in prop::collection::vec((any::<bool>(), 0..3_u64, 1..50_u32, any::<bool>()), 1..20), turned in 0..3_usize,
    ) {
        let of_rank = |rank: u32| -> Vec<Value> {
            let message = |&(forward, tag, size, is_grouped): &(bool, u64, u32, bool)| {
                let way = if forward == (rank == 0) { "send" } else { "recv" };
                let mut op = json!({"stream": 5, "work": "message", "way": way, "bytes": 1e5 * f64::from(size), "peer": 8 - rank, "tag": tag});
                if is_grouped {
                    op["together"] = json!(1);
                }
                vec![op, work(0, size.into())]
            };
            messages.iter().flat_map(message).collect()
        };
        let (first, mut last) = (of_rank(0), of_rank(8));
        let straight = priced(&ON.pricer(true), &step_of(&[first.clone(), last.clone()])).unwrap();
        let again = priced(&ON.pricer(true), &step_of(&[first.clone(), last.clone()])).unwrap();
        prop_assert_eq!(straight.seconds, again.seconds);
        let middle = turned % last.len();
        last.rotate_left(2 * (middle / 2));
        match priced(&ON.pricer(true), &step_of(&[first, last])) {
            Ok(price) => prop_assert!(price.seconds > 0.0),
            Err(Error::Deadlock(text)) => prop_assert!(text.contains("rank 0 waits") && text.contains("rank 8"), "{text}"),
            Err(error) => prop_assert!(error.to_string().contains("message"), "{error}"),
        }
    }

    #[test]
    fn damaged_steps_are_refused_or_priced(
        ops in programs(), at in any::<Index>(), field in any::<Index>(),
        value in select(vec![json!(0), json!(-1), json!(1e30), json!(1e300), json!("move"), json!("send"), json!(null), json!(3), json!({})]),
    ) {
        let mut damaged = ops.clone();
        damaged.push(json!({"stream": 2, "work": "message", "way": "send", "bytes": 10, "peer": 3, "together": 1, "tag": 2}));
        damaged.push(json!({"stream": 2, "work": "message", "way": "recv", "bytes": 10, "peer": 3, "together": 1, "tag": 2}));
        let op = at.index(damaged.len());
        let op = damaged[op].as_object_mut().unwrap();
        let field = field.index(op.len());
        *op.values_mut().nth(field).unwrap() = value;
        for ranks in [vec![damaged.clone()], vec![ops, damaged]] {
            match priced(&ON.pricer(true), &step_of(&ranks)) {
                Ok(price) => prop_assert!(price.seconds.is_finite() && price.seconds > 0.0),
                Err(error) => prop_assert!(error.to_string().len() < 1000, "{error}"),
            }
        }
    }
}

#[test]
fn many_host_waits_neither_recurse_nor_hang() {
    let mut ops: Vec<Value> = Vec::new();
    for event in 0..100_000 {
        ops.push(json!({"stream": 1, "work": "record", "event": event, "by_graph": true}));
        ops.push(json!({"work": "host_wait", "for": {"event": event}, "by_graph": true}));
    }
    ops.push(work(0, 1.0));
    priced(&ON.pricer(true), &step_of(&[ops])).unwrap();
}

#[test]
fn many_streams_and_large_group_calls_are_priced_or_refused() {
    let op = |at: u32| json!({"stream": at % 128, "work": "move", "bytes": 1e6 + f64::from(at), "by_graph": true});
    let mut wide: Vec<Value> = (0..256).map(op).collect();
    priced(&plain(), &step_of(&[wide.clone(), wide.clone()])).unwrap();
    (0..256_usize).for_each(|at| wide[at]["stream"] = json!(at));
    assert!(priced(&plain(), &step_of(&[wide])).unwrap_err().to_string().contains("256 streams"));
    let call = |at: u32| {
        let mut op = work(1, f64::from(at));
        op["together"] = json!(1);
        op
    };
    let calls = |count: u32| step_of(&[(1..=count).map(call).collect()]);
    priced(&plain(), &calls(128)).unwrap();
    assert!(priced(&plain(), &calls(513)).unwrap_err().to_string().contains("of 513 operations"));
}

#[test]
fn times_up_to_the_most_do_not_overflow() {
    let calls = |each: f64| -> Vec<Value> {
        let call = |_| {
            let mut op = work(1, each);
            op["together"] = json!(1);
            op
        };
        (0..500).map(call).collect()
    };
    let second = seconds(&[work(1, 1e6)]) / 1e6;
    let most = seconds(&calls(1.9e3 / second));
    assert!((0.5e6..1e6).contains(&most), "{most}");
    let error = priced(&plain(), &step_of(&[calls(3e3 / second)])).unwrap_err().to_string();
    assert!(error.contains("up to 1e6 s was expected"), "{error}");
}

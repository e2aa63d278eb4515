//! Prices of recorded steps, against closed forms: streams one after another and beside each other, links that are shared, ranks that meet.

mod common;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use common::{Machine, MACHINE};
use nvcoll_fabric::predict::{Pattern, Server};
use nvcoll_step::compute::Compute;
use nvcoll_step::constants::Constants;
use nvcoll_step::memory::{MemoryLine, MemoryPart, MemoryTable, RankMemory};
use nvcoll_step::network::Group;
use nvcoll_step::pricing::{Pricer, StepReport};
use nvcoll_step::step::streams::{HostClock, RankStreams};
use nvcoll_step::step::work::{MoveRate, StepWork};
use nvcoll_step::step::{Form, WorkStep};
use nvcoll_step::Error;
use serde_json::{json, Value};

static ON: LazyLock<Machine> = LazyLock::new(|| Machine::of(MACHINE, 16));

/// Constants without contention of computing and collectives.
static PLAIN: LazyLock<Constants> =
    LazyLock::new(|| Constants::with(&BTreeMap::from([("contention".to_owned(), 0.0)])).unwrap());

fn plain() -> Pricer<'static> {
    Pricer { constants: &PLAIN, ..ON.pricer(true) }
}

fn rank(rank: u32, stands_for: u32, ops: Value) -> Value {
    let memory = json!({"allocated": 4e10, "reserved": 5e10, "parts": [{"name": "parameters", "bytes": 1e10}]});
    json!({"rank": rank, "stands_for": stands_for, "name": format!("rank {rank}"), "issued": ops, "memory": {"allocator": memory}})
}

fn step_of(ranks: Value) -> WorkStep {
    let text = json!({
        "schema": "nvcoll.step/1", "name": "by hand", "gpus": 16, "dtype": "bf16",
        "groups": {"tp": {"kind": "tp", "size": 8, "stride": 1}, "tp 2": {"kind": "tp", "size": 8, "stride": 1}, "dp": {"kind": "dp", "size": 2, "stride": 8}, "pp": {"kind": "pp", "size": 2, "stride": 8}},
        "streams": {"gpu": "h100-sxm", "lines": ["a.py:1 f", "a.py:2 g"], "ranks": ranks},
    });
    WorkStep::from_json(&text.to_string()).unwrap()
}

/// A step of one kind of rank whose processor takes no time.
fn step(ops: Value) -> WorkStep {
    let mut step = step_of(json!([rank(0, 16, ops)]));
    first(&mut step).host = HostClock::Timed;
    step
}

/// The first rank of a step.
fn first(step: &mut WorkStep) -> &mut RankStreams {
    let Form::Streams(streams) = &mut step.form else { panic!("it has streams") };
    &mut streams.ranks[0]
}

fn price(pricer: &Pricer<'_>, step: &WorkStep) -> StepReport {
    let price = pricer.price(step).unwrap();
    let parts: f64 = price.parts.named().map(|(_, seconds)| seconds).sum();
    assert!((parts / price.seconds - 1.0).abs() < 1e-6, "{:?} are {parts} of {}", price.parts, price.seconds);
    price
}

fn assert_near(found: f64, expected: f64, within: f64) {
    assert!((found / expected - 1.0).abs() < within, "{found} found, {expected} expected");
}

fn part(price: &StepReport, name: &str) -> f64 {
    price.parts.named().find(|(part, _)| *part == name).map_or(0.0, |(_, seconds)| seconds)
}

fn gemm(stream: u32) -> Value {
    json!({"stream": stream, "name": "aten::mm", "line": 0, "work": "gemm", "m": 8192, "n": 8192, "k": 8192, "dtype": "bf16"})
}

fn gemm_s(constants: &Constants) -> f64 {
    let work = serde_json::from_value(json!({"work": "gemm", "m": 8192, "n": 8192, "k": 8192, "dtype": "bf16"}));
    compute_s(constants, &work.unwrap())
}

fn compute_s(constants: &Constants, work: &StepWork) -> f64 {
    Compute { device: plain().device, constants }.seconds(work).unwrap()
}

fn collective(stream: u32, bytes: f64, group: &str) -> Value {
    json!({"stream": stream, "name": "c", "line": 1, "work": "collective", "pattern": "all_reduce", "bytes": bytes, "group": group})
}

fn all_reduce_s(bytes: f64, group: Group) -> f64 {
    PLAIN.network * plain().network.seconds(Pattern::AllReduce, bytes, group).unwrap()
}

const TP: Group = Group::even(8, 1);
const DP: Group = Group::even(2, 8);

#[test]
fn operations_of_one_stream_add_up() {
    let bytes = 1e9;
    let kernel = json!({"stream": 7, "name": "aten::add", "work": "move", "bytes": bytes, "launches": 3});
    let adam = json!({"stream": 7, "name": "aten::_fused_adamw_", "part": "optimizer", "work": "move", "bytes": bytes, "rate": "stream"});
    let found = price(&plain(), &step(json!([gemm(7), kernel, collective(7, 1e8, "tp"), gemm(7), adam])));
    let least = bytes / PLAIN.elementwise.ampere;
    let kernel_s =
        compute_s(&PLAIN, &StepWork::Move { bytes: least, launches: 1.0, rate: MoveRate::Least, flops: 0.0 })
            + 3.0 * 2e-6;
    let adam_s = compute_s(&PLAIN, &StepWork::Move { bytes, launches: 1.0, rate: MoveRate::Stream, flops: 0.0 }) + 2e-6;
    assert!(kernel_s > 1.4 * adam_s, "only kernels that are no optimizer's are slower on H100 than on A100");
    assert_near(found.seconds, 2.0 * gemm_s(&PLAIN) + kernel_s + all_reduce_s(1e8, TP) + adam_s, 1e-6);
    assert_near(part(&found, "optimizer"), adam_s, 1e-6);
    assert_near(part(&found, "gemm"), 2.0 * gemm_s(&PLAIN), 1e-6);
    assert_near(part(&found, "elementwise"), kernel_s, 1e-6);
    assert_near(part(&found, "tensor"), all_reduce_s(1e8, TP), 1e-6);
    let one = &found.collectives[0];
    assert_eq!((one.name.as_str(), one.count, one.group.as_str()), ("c", 1.0, "tp"));
    assert_near(one.exposed_s.unwrap(), one.seconds, 1e-6);
    assert_eq!(found.lines.len(), 1);
    assert_eq!(found.lines[0].line, "a.py:2 g");
    assert_near(found.lines[0].exposed_s, one.seconds, 1e-6);
}

#[test]
fn an_all_reduce_of_a_server_costs_what_its_kernel_costs() {
    let mut served = collective(7, 32768.0, "tp");
    served["as"] = json!("vllm");
    let one = step(json!([served]));
    let found = price(&plain(), &one);
    let kernel_s = plain().network.seconds_as(Some(Server::Vllm), Pattern::AllReduce, 32768.0, TP).unwrap();
    assert_near(found.seconds, kernel_s, 1e-6);
    assert!(3.0 * kernel_s < all_reduce_s(32768.0, TP), "NCCL takes longer");
    let text = serde_json::to_string(&one).unwrap();
    assert!(text.contains(r#""as":"vllm""#));
    let refused = WorkStep::from_json(&text.replace("all_reduce", "all_gather")).unwrap_err().to_string();
    assert!(refused.contains("servers have kernels of their own for all_reduce only"), "{refused}");
}

#[test]
fn a_collective_hides_behind_computing_until_an_event_needs_it() {
    let ops = |count: u32| {
        let mut ops = vec![collective(9, 1e8, "dp"), json!({"stream": 9, "work": "record", "event": 1})];
        ops.extend((0..count).map(|_| gemm(7)));
        ops.extend([json!({"stream": 7, "work": "stream_wait", "event": 1}), gemm(7)]);
        ops.extend([
            json!({"stream": 7, "work": "record", "event": 2}),
            json!({"stream": 9, "work": "stream_wait", "event": 2}),
        ]);
        Value::Array(ops)
    };
    let (one, all) = (gemm_s(&PLAIN), all_reduce_s(1e8, DP));
    assert!(all > one && all < 8.0 * one);
    let bare = price(&plain(), &step(ops(1)));
    assert_near(bare.seconds, all + one, 1e-6);
    assert_near(part(&bare, "data"), all - one, 1e-6);
    assert_near(bare.collectives[0].exposed_s.unwrap(), all - one, 1e-6);
    let hidden = price(&plain(), &step(ops(8)));
    assert_near(hidden.seconds, 9.0 * one, 1e-6);
    assert_eq!(part(&hidden, "data"), 0.0);
}

#[test]
fn what_is_left_at_the_end_hides_behind_the_next_step() {
    let found =
        price(&plain(), &step(json!([gemm(7), gemm(7), gemm(7), gemm(7), gemm(7), gemm(7), collective(9, 1e8, "dp")])));
    assert_near(found.seconds, 6.0 * gemm_s(&PLAIN), 1e-6);
}

#[test]
fn collectives_of_one_link_share_it_and_those_of_two_do_not() {
    let bytes = 4e9;
    let alone = |group| all_reduce_s(bytes, group);
    let same = price(&plain(), &step(json!([collective(8, bytes, "tp"), collective(9, bytes, "tp 2")])));
    let needs = plain().network.needs(None, Pattern::AllReduce, bytes, TP).unwrap();
    assert!(needs.ports > 0.99 && needs.cards == 0.0, "{needs:?}");
    assert_near(same.seconds, 2.0 * needs.ports * alone(TP), 1e-3);
    let other = plain().network.needs(None, Pattern::AllReduce, bytes, DP).unwrap();
    assert!(other.cards > 0.99 && other.ports == 0.0, "{other:?}");
    let two = price(&plain(), &step(json!([collective(8, bytes, "tp"), collective(9, bytes, "dp")])));
    assert_near(two.seconds, alone(TP).max(alone(DP)), 1e-6);
}

#[test]
fn collectives_of_one_group_run_one_after_another_as_they_were_issued() {
    let ops = |group: &str| {
        let on = |stream: u32, work: &str, event: u32| json!({"stream": stream, "work": work, "event": event});
        json!([
            collective(8, 4e9, "tp"),
            collective(9, 1e8, group),
            on(9, "record", 1),
            on(7, "stream_wait", 1),
            gemm(7),
            on(8, "record", 2),
            on(7, "stream_wait", 2),
            on(7, "record", 3),
            on(8, "stream_wait", 3),
            on(9, "stream_wait", 3)
        ])
    };
    let [long, short] = [4e9, 1e8].map(|bytes| all_reduce_s(bytes, TP));
    assert_near(price(&plain(), &step(ops("tp"))).seconds, long + short + gemm_s(&PLAIN), 1e-6);
    let shared = price(&plain(), &step(ops("tp 2"))).seconds;
    assert!(shared < long + short + 0.5 * gemm_s(&PLAIN), "the short one ends early: {shared}");
}

#[test]
fn a_shorter_collective_gives_its_share_back() {
    // Both run at half speed until the short one has ended, after twice its time; then the long one runs alone.
    let (long, short) = (all_reduce_s(8e9, TP), all_reduce_s(2e9, TP));
    let joined = json!([{"stream": 6, "work": "record", "event": 1}, {"stream": 8, "work": "stream_wait", "event": 1},
        {"stream": 9, "work": "stream_wait", "event": 1}, collective(8, 8e9, "tp"), collective(9, 2e9, "tp 2"),
        {"stream": 8, "work": "record", "event": 2}, {"stream": 9, "work": "record", "event": 3},
        {"stream": 6, "work": "stream_wait", "event": 2}, {"stream": 6, "work": "stream_wait", "event": 3}]);
    let found = price(&plain(), &step(joined));
    assert_near(found.seconds, long + short, 5e-3);
}

#[test]
fn computing_and_collectives_of_a_node_slow_each_other() {
    let constants = Constants::shipped();
    let bytes = 1e9;
    let on = |stream: u32, work: &str, event: u32| json!({"stream": stream, "work": work, "event": event});
    let moving = [on(9, "stream_wait", 2), collective(9, bytes, "tp"), on(9, "record", 1)];
    let [wait, moves, record] = moving;
    let ops = json!([wait, on(7, "stream_wait", 1), moves, gemm(7), gemm(7), record, on(7, "record", 2)]);
    let found = price(&ON.pricer(true), &step(ops));
    let (busy, moves) = (2.0 * gemm_s(constants), all_reduce_s(bytes, TP));
    let slowed = constants.contention * busy.min(moves);
    assert_near(found.seconds, busy.max(moves) + slowed, 1e-3);
    assert!(part(&found, "tensor") > 0.9 * slowed, "{:?}", found.parts);
}

#[test]
fn group_calls_run_together() {
    let ops = |together: Value| {
        let call = |bytes: f64| {
            let mut op = collective(9, bytes, "tp");
            op["together"] = together.clone();
            op
        };
        json!([call(1e6), call(1e6), call(1e6), call(1e6)])
    };
    let apart = price(&plain(), &step(ops(Value::Null))).seconds;
    let joined = price(&plain(), &step(ops(json!(1)))).seconds;
    assert_near(apart, 4.0 * all_reduce_s(1e6, TP), 1e-6);
    let needs = plain().network.needs(None, Pattern::AllReduce, 1e6, TP).unwrap();
    assert_near(joined, (4.0 * needs.ports).max(1.0) * all_reduce_s(1e6, TP), 1e-3);
}

#[test]
fn the_processor_bounds_small_operations() {
    let small = json!({"stream": 7, "name": "aten::add", "line": 1, "work": "move", "bytes": 1000});
    let many: Vec<Value> = (0..100).map(|_| small.clone()).collect();
    let found = price(&plain(), &step_of(json!([rank(0, 16, Value::Array(many.clone()))])));
    assert_near(found.seconds, 100.0 * 11.7e-6, 0.01);
    assert!(part(&found, "host") > 0.4 * found.seconds, "{:?}", found.parts);
    assert_near(found.lines[0].host_s, part(&found, "host"), 1e-6);
    let graph = price(&plain(), &step(Value::Array(many.clone())));
    assert!(graph.seconds < 0.6 * found.seconds && part(&graph, "host") < 1e-9);
    let mut eager = step_of(json!([rank(0, 16, Value::Array(many))]));
    first(&mut eager).host = HostClock::Launches { operators: Some(300.0), spread: None };
    let bound = price(&plain(), &eager);
    assert_near(bound.seconds, 100.0 * 30.1e-6, 0.01);
    assert_near(bound.issue_s.unwrap(), bound.seconds, 0.01);
    assert!(bound.high_s > 1.55 * bound.seconds && bound.low_s < bound.seconds / 1.55, "of an unknown processor");
    first(&mut eager).host = HostClock::Launches { operators: Some(300.0), spread: Some(1.1) };
    let measured = price(&plain(), &eager);
    assert!(measured.high_s < bound.high_s && measured.low_s > bound.low_s && measured.seconds == bound.seconds);
}

#[test]
fn a_processor_that_waits_cannot_run_ahead() {
    let ops = |waits: Value| {
        json!([gemm(7), {"work": "host_wait", "for": waits, "name": "item"}, {"work": "host", "seconds": 2e-3},
        {"stream": 7, "work": "record", "event": 1}])
    };
    let bound = gemm_s(&PLAIN) + 2e-3;
    for target in [json!("device"), json!({"stream": 7})] {
        let found = price(&plain(), &step(ops(target)));
        assert_near(found.seconds, bound, 1e-6);
        assert_near(part(&found, "host"), 2e-3, 1e-6);
    }
    let free = price(&plain(), &step(ops(json!({"stream": 8}))));
    assert_near(free.seconds, gemm_s(&PLAIN).max(2e-3), 1e-6);
}

#[test]
fn copies_take_the_link_to_the_processor() {
    let copy =
        |stream: u32, direction: &str| json!({"stream": stream, "work": "copy", "bytes": 1e9, "direction": direction});
    let one = price(&plain(), &step(json!([copy(7, "h2d")])));
    assert!((35e9..64e9).contains(&(1e9 / one.seconds)), "{}", one.seconds);
    assert_near(part(&one, "copies"), one.seconds, 1e-6);
    assert_near(price(&plain(), &step(json!([copy(7, "h2d"), copy(8, "d2h")]))).seconds, one.seconds, 1e-6);
    assert_near(price(&plain(), &step(json!([copy(7, "h2d"), copy(8, "h2d")]))).seconds, 2.0 * one.seconds, 1e-2);
}

#[test]
fn ranks_that_wait_for_each_other_for_ever_are_named() {
    let ops = |first: &str, then: &str, tag: u64, peer: u32| {
        json!([{"stream": 1, "line": 1, "work": "message", "way": first, "bytes": 8, "peer": peer, "tag": tag},
               {"stream": 1, "work": "message", "way": then, "bytes": 8, "peer": peer, "tag": 1 - tag}])
    };
    let hangs = step_of(json!([rank(0, 8, ops("send", "recv", 0, 8)), rank(8, 8, ops("send", "recv", 1, 0))]));
    let Err(Error::Deadlock(text)) = ON.pricer(true).price(&hangs) else { panic!("it hangs") };
    assert!(text.contains("rank 0 waits at a.py:2 g for rank 8 to receive 8 bytes"), "{text}");
    assert!(text.contains("rank 8 waits at a.py:2 g for rank 0 to receive 8 bytes"), "{text}");
    let mut together = serde_json::to_value(&hangs).unwrap();
    for rank in 0..2 {
        for op in 0..2 {
            together["streams"]["ranks"][rank]["issued"][op]["together"] = json!(1);
        }
    }
    price(&plain(), &WorkStep::from_json(&together.to_string()).unwrap());
}

#[test]
fn a_collective_of_two_recorded_ranks_waits_for_the_later() {
    let ops = |gemms: usize| {
        let mut ops: Vec<Value> = (0..gemms).map(|_| gemm(7)).collect();
        ops.push(collective(7, 1e8, "pp"));
        Value::Array(ops)
    };
    let mut step = step_of(json!([rank(0, 8, ops(1)), rank(8, 8, ops(3))]));
    let Form::Streams(streams) = &mut step.form else { panic!("it has streams") };
    streams.ranks.iter_mut().for_each(|rank| rank.host = HostClock::Timed);
    let found = price(&plain(), &step);
    assert_near(found.seconds, 3.0 * gemm_s(&PLAIN) + all_reduce_s(1e8, DP), 1e-6);
    assert_eq!(part(&found, "bubble"), 0.0, "the slowest rank waits for nobody");
    assert_eq!(found.roles.len(), 2);
}

#[test]
fn memory_fits_as_the_allocator_decides() {
    let of = |allocated: f64, reserved: f64| {
        let mut step = step(json!([gemm(7)]));
        first(&mut step).memory =
            Some(RankMemory::Allocator { allocated, reserved, parts: Vec::new(), stack: Vec::new() });
        let found = price(&plain(), &step);
        assert_near(found.memory_gib.unwrap() * 1024.0_f64.powi(3), reserved + 132.0 * 4194304.0 + 1.2e9, 1e-9);
        serde_json::to_value(found.fit).unwrap()
    };
    assert_eq!(of(4e10, 8e10), json!("fits"));
    assert_eq!(of(7e10, 8.4e10), json!("tight"));
    assert_eq!(of(8.4e10, 8.5e10), json!("too_large"));
}

#[test]
fn a_plan_and_a_recording_of_the_same_tensors_have_the_same_table() {
    let part = |name, bytes| MemoryPart { name, bytes };
    let standing = vec![part(MemoryLine::Parameters, 2e10), part(MemoryLine::Optimizer, 1e10)];
    let planned = RankMemory::Sum { standing, activations: 5e9, in_flight: 2.0, working: 1e9, loss: 4e9, waiting: 0.0 };
    for gpus in [1, 8] {
        let plan = planned.table("all", gpus, 5e8);
        let is_tensor = |line| !matches!(line, MemoryLine::Reserved | MemoryLine::Nccl | MemoryLine::Context);
        let lines = plan.lines.iter().filter(|(line, _)| is_tensor(**line));
        let parts: Vec<MemoryPart> = lines.map(|(&line, &bytes)| part(line, bytes)).collect();
        let allocated: f64 = parts.iter().map(|one| one.bytes).sum();
        let recorded = RankMemory::Allocator { allocated, reserved: 1.06 * allocated, parts, stack: Vec::new() };
        let recorded = recorded.table("all", gpus, 5e8);
        let names = |table: &MemoryTable| table.lines.keys().copied().collect::<Vec<_>>();
        assert_eq!(names(&plan), names(&recorded));
        assert_near(recorded.bytes(), plan.bytes(), 1e-9);
        assert_eq!(names(&plan).contains(&MemoryLine::Nccl), gpus > 1, "one GPU needs no NCCL");
    }
}

#[test]
fn another_generation_of_gpu_is_said() {
    let mut step = step(json!([gemm(7)]));
    assert!(price(&plain(), &step).extrapolated.iter().all(|reason| !reason.contains("recorded")));
    let Form::Streams(streams) = &mut step.form else { panic!("it has streams") };
    streams.gpu = "b200".to_owned();
    let found = price(&plain(), &step);
    assert!(found.extrapolated.iter().any(|reason| reason.contains("recorded on B200")), "{:?}", found.extrapolated);
    let flops = 2.0 * 8192.0_f64.powi(3);
    assert_near(found.tflops.unwrap(), flops / gemm_s(&PLAIN) / 1e12, 1e-6);
    assert_eq!((found.flops_of.as_str(), found.tokens_per_second), ("recorded", None));
}

#[test]
fn what_is_not_known_of_memory_is_not_made_up() {
    let mut step = step(json!([gemm(7)]));
    first(&mut step).memory = None;
    let found = price(&plain(), &step);
    assert_eq!((found.memory_gib, found.fit, found.memory), (None, None, None));
}

#[test]
fn several_groups_of_one_kind_are_one_part() {
    let found = price(&plain(), &step(json!([collective(7, 1e8, "tp 2")])));
    assert_near(part(&found, "tensor"), found.seconds, 1e-6);
}

#[test]
fn measured_kernels_keep_their_times_beside_collectives_and_each_other() {
    let measured = |stream: u32, seconds: f64| json!({"stream": stream, "work": "timed", "seconds": seconds});
    let reduce = json!({"stream": 9, "work": "collective", "pattern": "all_reduce", "bytes": 1e9, "group": "tp"});
    let found = price(&ON.pricer(true), &step(json!([reduce, measured(1, 0.3), measured(2, 0.5)])));
    assert_near(found.seconds, 0.5, 1e-6);
    assert_near(part(&found, "elementwise"), 0.5, 1e-6);
}

#[test]
fn kernels_of_which_only_a_bound_is_known_widen_the_interval() {
    let kernel = |rate: &str| {
        let bytes = 1e10;
        json!({"stream": 7, "name": "scan_fwd", "work": "move", "bytes": bytes, "rate": rate})
    };
    let of = |ops| price(&plain(), &step(ops));
    let [known, bound] = ["counted", "bound"].map(|rate| of(json!([gemm(7), kernel(rate)])));
    assert_near(bound.seconds, known.seconds, 1e-9);
    let part = 1.0 - gemm_s(&PLAIN) / (bound.seconds - 2e-6);
    assert_near(bound.high_s / bound.seconds, (1.0 + 2.0 * part) * known.high_s / known.seconds, 1e-6);
    assert_near(bound.low_s / bound.seconds, (1.0 - part * 2.0 / 3.0) * known.low_s / known.seconds, 1e-6);
    let told = bound.extrapolated.iter().find(|reason| reason.contains("bytes of their arguments")).unwrap();
    assert!(told.contains(&format!("{:.0} %", 100.0 * part)) && told.contains("`scan_fwd`"), "{told}");
    let mut few = vec![kernel("bound")];
    few.extend((0..400).map(|_| gemm(7)));
    assert_eq!(of(Value::Array(few)).extrapolated, known.extrapolated, "2 % do not matter");
}

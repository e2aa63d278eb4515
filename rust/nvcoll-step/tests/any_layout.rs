//! Any model in any layout with any software: it is planned and priced, or refused with the rule.

mod common;

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex};

use common::{layout, Machine, MACHINE};
use nvcoll_step::layout::Layout;
use nvcoll_step::model::Model;
use nvcoll_step::pipeline::Schedule;
use nvcoll_step::planner::Request;
use nvcoll_step::software::Software;
use nvcoll_step::step::layers::Role;
use nvcoll_step::step::work::StepWork;
use nvcoll_step::step::{Form, WorkStep};
use nvcoll_step::Error;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

/// The machines of each number of GPUs: they are kept, since they learn prices.
static MACHINES: LazyLock<Mutex<BTreeMap<u32, &'static Machine>>> = LazyLock::new(Mutex::default);

fn machine(gpus: u32) -> &'static Machine {
    let mut machines = MACHINES.lock().unwrap();
    machines.entry(gpus).or_insert_with(|| Box::leak(Box::new(Machine::of(MACHINE, gpus))))
}

fn layouts() -> impl Strategy<Value = Layout> {
    let sizes = (
        select(vec![1u32, 2, 4, 8]),
        select(vec![1u32, 2, 4, 5]),
        select(vec![1u32, 2, 4]),
        select(vec![1u32, 2, 4, 6]),
    );
    let schedules = select(vec!["gpipe", "1f1b", "interleaved", "zero-bubble-1p", "zero-bubble-2p", "dualpipe"]);
    let pipeline = (schedules, select(vec![1u32, 2, 3]), select(vec![1u32, 1, 2, 8, 16]));
    let sharding =
        (select(vec!["none", "optimizer", "gradients", "parameters"]), select(vec![None, None, Some(1u32), Some(2)]));
    let batch = (select(vec![1u32, 2, 3]), 1u32..9, select(vec![512u64, 4096, 32768]));
    let rest = (any::<bool>(), select(vec!["bf16", "fp16", "fp8", "tf32"]), select(vec!["tp-cp-dp-pp", "tp-cp-pp-dp"]));
    let again = select(vec![[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.3, 0.5, 1.0]]);
    (sizes, pipeline, sharding, batch, rest, again).prop_map(
        |((tensor, stages, context, data), (schedule, chunks, expert), (sharding, shards), batch, rest, again)| {
            let (micro_batch, micro_batches, sequence) = batch;
            let chunks = if schedule == "interleaved" { chunks } else { 1 };
            layout(json!({
                "gpus": tensor * stages * context * data, "tensor": tensor, "stages": stages, "context": context, "data": data,
                "expert": expert, "schedule": schedule, "chunks": chunks, "sharding": sharding, "shard_ranks": shards,
                "micro_batch": micro_batch, "global_batch": micro_batch * data * stages * micro_batches, "sequence": sequence,
                "sequence_parallel": rest.0, "dtype": rest.1, "order": rest.2,
                "recompute": {"gemm": again[0], "attention": again[1], "elementwise": again[2]},
            }))
        },
    )
}

fn requests() -> impl Strategy<Value = Request> {
    let models = select(Model::all().to_vec());
    let software = select(Software::all().to_vec());
    (models, layouts(), software, select(vec![1u32, 8, 72])).prop_map(|(model, layout, software, domain)| Request {
        model,
        layout,
        software,
        domain,
    })
}

/// Twice the bytes of everything that streams through memory.
fn with_more_bytes(step: &WorkStep) -> WorkStep {
    let mut more = step.clone();
    let Form::Layers(layers) = &mut more.form else { unreachable!() };
    let blocks =
        layers.blocks.values_mut().flat_map(|block| [&mut block.forward, &mut block.backward, &mut block.weights]);
    let once = layers.roles.iter_mut().map(|role| &mut role.once);
    for op in blocks.chain(once).flatten() {
        if let StepWork::Move { bytes, .. } = &mut op.op.work {
            *bytes *= 2.0;
        }
    }
    more
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_step_is_planned_whole_or_refused(request in requests()) {
        let step = match request.plan() {
            Ok(step) => step,
            Err(Error::Layout(_)) => return Ok(()),
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        };
        prop_assert_eq!(&WorkStep::from_json(&step.to_json()).unwrap(), &step);
        let layers = step.layers().unwrap();
        let mut stages: Vec<u32> = layers.roles.iter().flat_map(|role| role.stages.clone()).collect();
        stages.sort_unstable();
        prop_assert_eq!(stages, (0..request.layout.stages).collect::<Vec<_>>());
        let runs = |role: &Role| {
            let runs = role.chunks.iter().flatten().filter(|run| run.block.contains("layer"));
            runs.map(|run| run.repeat).sum::<u32>() * role.stages.len() as u32
        };
        let copies = if request.layout.schedule == Schedule::DualPipe { 2 } else { 1 };
        prop_assert_eq!(layers.roles.iter().map(runs).sum::<u32>(), copies * request.model.layers);
        for role in &layers.roles {
            prop_assert!(role.memory.as_ref().unwrap().table("", 2, 5e8).lines.values().all(|&bytes| bytes > 0.0 && bytes.is_finite()));
        }
        for (name, group) in step.groups.iter().map(|(name, group)| (name, group.ranks)) {
            prop_assert!(u64::from(group.size) * u64::from(group.stride) <= u64::from(step.gpus) || group.size == 1, "{}", name);
        }
    }

    #[test]
    fn a_price_is_the_sum_of_its_parts(request in requests().prop_filter("64 GPUs", |one| one.layout.gpus <= 64)) {
        let Ok(step) = request.plan() else { return Ok(()) };
        let machine = machine(step.gpus);
        let mut seconds = [0.0; 2];
        for is_exact in [false, true] {
            let price = machine.pricer(is_exact).price(&step).unwrap();
            prop_assert!(price.seconds > 0.0 && price.seconds.is_finite());
            let parts: f64 = price.parts.named().map(|(_, seconds)| seconds).sum();
            prop_assert!((parts / price.seconds - 1.0).abs() < 1e-6, "{:?} of {}", price.parts, price.seconds);
            prop_assert!(price.low_s < price.seconds && price.seconds < price.high_s);
            prop_assert!(price.mfu.is_some_and(|mfu| mfu > 0.0 && mfu < 1.0), "{:?}", price.mfu);
            prop_assert!(price.memory_gib.unwrap() > 0.0 && price.collectives.iter().all(|one| one.seconds.is_finite()));
            seconds[usize::from(is_exact)] = price.seconds;
            let more = machine.pricer(is_exact).seconds(&with_more_bytes(&step)).unwrap();
            // Zero bubble fills bubbles with weight passes: longer ones may fill more, in its formula and in its orders.
            let least = if request.layout.schedule.splits_backward() { 0.0 } else { price.seconds * (1.0 - 1e-9) };
            prop_assert!(more >= least, "{more} with more bytes, {}", price.seconds);
        }
    }
}

#[test]
fn groups_of_each_order_are_the_ranks_that_they_name() {
    // Rank = tensor + TP x (context + CP x (data + DP x stage)), or with stage and data exchanged.
    for (order, context) in [("tp-cp-dp-pp", 2), ("tp-cp-pp-dp", 1)] {
        let of = layout(json!({
            "gpus": 32 * context, "tensor": 2, "context": context, "data": 4, "stages": 4, "micro_batch": 1, "global_batch": 64,
            "sequence": 4096, "sharding": "optimizer", "shard_ranks": 2, "order": order,
        }));
        let rank = |tensor: u32, replica: u32, stage: u32| match order {
            "tp-cp-dp-pp" => tensor + 2 * (replica + 4 * context * stage),
            _ => tensor + 2 * (stage + 4 * replica),
        };
        let groups: BTreeMap<_, _> = of.groups().into_iter().collect();
        let ranks = |name: &str| (0..groups[name].size).map(|nth| nth * groups[name].stride).collect::<Vec<_>>();
        assert_eq!(ranks("tp"), [rank(0, 0, 0), rank(1, 0, 0)]);
        assert_eq!(ranks("dp"), (0..4 * context).map(|replica| rank(0, replica, 0)).collect::<Vec<_>>(), "{order}");
        assert_eq!(ranks("shard"), [rank(0, 0, 0), rank(0, 1, 0)]);
        assert_eq!(ranks("copies"), (0..2 * context).map(|copy| rank(0, 2 * copy, 0)).collect::<Vec<_>>());
        assert_eq!(ranks("pp"), [rank(0, 0, 0), rank(0, 0, 1)]);
    }
}

#[test]
fn groups_without_one_stride_are_refused_with_the_rule() {
    let plan = |model: &str, fields: serde_json::Value| common::request(model, layout(fields), "megatron-core").plan();
    let with_context = json!({
        "gpus": 32, "tensor": 2, "context": 2, "data": 2, "stages": 4, "micro_batch": 1, "global_batch": 16, "sequence": 4096,
        "order": "tp-cp-pp-dp",
    });
    let error = plan("llama3-8b", with_context.clone()).unwrap_err().to_string();
    assert!(error.contains("`dp`") && error.contains("tp-cp-dp-pp"), "{error}");
    let mut other = with_context;
    other["order"] = json!("tp-cp-dp-pp");
    plan("llama3-8b", other).unwrap();
    let experts = |tensor: u32, expert: u32| {
        json!({
            "gpus": 8 * tensor, "tensor": tensor, "data": 4, "stages": 2, "expert": expert, "micro_batch": 1, "global_batch": 16,
            "sequence": 4096, "order": "tp-cp-pp-dp",
        })
    };
    assert!(plan("mixtral-8x7b", experts(2, 4)).unwrap_err().to_string().contains("`ep`"));
    let step = plan("mixtral-8x7b", experts(2, 2)).unwrap();
    assert_eq!((step.groups["edp"].ranks.size, step.groups["edp"].ranks.stride), (4, 4));
    let step = plan("mixtral-8x7b", experts(1, 4)).unwrap();
    assert_eq!((step.groups["ep"].ranks.size, step.groups["ep"].ranks.stride), (4, 2));
}

#[test]
fn layouts_that_are_too_large_are_refused() {
    let most = 1u32 << 20;
    let fields = |chunks: u32| {
        json!({
            "gpus": most, "tensor": most, "context": most, "data": most, "stages": most, "chunks": chunks, "micro_batch": most,
            "global_batch": most, "sequence": u32::MAX, "schedule": "interleaved", "expert": most,
        })
    };
    for chunks in [1, most, u32::MAX] {
        let error = common::request("llama3-8b", layout(fields(chunks)), "megatron-core").plan().unwrap_err();
        assert!(matches!(error, Error::Layout(_)), "{error}");
    }
    let one = json!({"gpus": 1024, "data": 1, "stages": 1024, "chunks": most, "micro_batch": 1, "global_batch": 1024,
        "sequence": 1024, "schedule": "interleaved"});
    assert!(matches!(common::request("llama3-8b", layout(one), "nemo").plan().unwrap_err(), Error::Layout(_)));
}

#[test]
fn models_and_software_with_impossible_numbers_are_refused() {
    let plain = json!({"gpus": 1, "data": 1, "micro_batch": 1, "global_batch": 1, "sequence": 1024});
    let request = |model| common::request(model, layout(plain.clone()), "nemo");
    for name in ["llama3-8b", "deepseek-v3", "gpt-oss-20b"] {
        let whole = serde_json::to_value(request(name)).unwrap();
        for (part, key) in [("model", ""), ("model", "experts"), ("model", "mla"), ("software", "")] {
            let Some(of) = whole.pointer(&format!("/{part}{}{key}", if key.is_empty() { "" } else { "/" })) else {
                continue;
            };
            for field in
                of.as_object().into_iter().flatten().filter(|(_, value)| value.is_number()).map(|(field, _)| field)
            {
                for number in [json!(u64::MAX), json!(u32::MAX), json!(0), json!(-1), json!(1e308)] {
                    let mut changed = whole.clone();
                    let place = if key.is_empty() { &mut changed[part] } else { &mut changed[part][key] };
                    place[field] = number;
                    // Most are no request; a request is planned or refused, and the plan has a price or an error.
                    let Ok(request) = serde_json::from_value::<Request>(changed) else { continue };
                    if let Ok(step) = request.plan() {
                        _ = machine(1).pricer(true).price(&step);
                    }
                }
            }
        }
    }
}

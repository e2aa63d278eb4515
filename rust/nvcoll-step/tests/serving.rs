//! Model servers: iterations hold to closed forms, requests are neither lost nor served out of nothing, and what no server does is refused.

mod common;

use std::sync::LazyLock;

use common::Machine;
use nvcoll_step::model::Model;
use nvcoll_step::parts::TimePart;
use nvcoll_step::serving::price::ServingReport;
use nvcoll_step::serving::recorded::{RecordedIteration, RecordedServer};
use nvcoll_step::serving::software::ModelServer;
use nvcoll_step::serving::{IterationBatch, ServingRequest};
use nvcoll_step::Error;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{json, Value};

static ON: LazyLock<Machine> = LazyLock::new(|| Machine::of("hgx-h100", 8));

fn request(model: &str, precision: &str, layout: Value, load: Value) -> ServingRequest {
    let (model, software) = (Model::named(model).unwrap(), ModelServer::named("vllm").unwrap());
    serde_json::from_value(
        json!({"model": model, "software": software, "layout": layout, "precision": precision, "load": load}),
    )
    .unwrap()
}

fn served(request: &ServingRequest) -> Result<ServingReport, Error> {
    ON.pricer(false).serve(request)
}

fn at_once(requests: f64) -> Value {
    json!({"input": 1000.0, "output": 200.0, "concurrency": requests, "spread": 0.0})
}

/// FLOPs of all ranks in an iteration that generates.
fn flops(report: &ServingReport) -> f64 {
    report.decode.tflops.unwrap() * 1e12 * report.decode.seconds * f64::from(report.decode.gpus)
}

#[test]
fn an_iteration_multiplies_each_sequence_with_every_parameter_once() {
    let model = Model::named("llama3-8b").unwrap();
    for tensor in [1, 2, 4, 8] {
        let found = served(&request("llama3-8b", "bf16", json!({"tensor": tensor}), at_once(4.0))).unwrap();
        let products = 2.0 * found.batch * (model.parameters() - model.embedding_parameters());
        let scores = 4.0 * 32.0 * 32.0 * 128.0 * found.batch * 1100.0;
        let part = flops(&found) / (products + scores);
        assert!((part - 1.0).abs() < 0.01, "TP {tensor}: {part} of the closed form");
    }
}

#[test]
fn experts_that_no_token_draws_are_not_read() {
    let of = |requests| {
        let load = json!({"input": 16.0, "output": 64.0, "concurrency": requests, "spread": 0.0});
        let found = served(&request("qwen3-30b-a3b", "bf16", json!({}), load)).unwrap();
        found.decode.parts.seconds(TimePart::Gemm)
    };
    let (one, few, many) = (of(1.0), of(8.0), of(256.0));
    assert!(one < 0.3 * many && few < 0.7 * many && one < few, "{one}, {few}, {many} s");
}

#[test]
fn latent_attention_keeps_one_latent_of_all_heads() {
    let of =
        |tensor: u32| served(&request("deepseek-v2-lite", "bf16", json!({"tensor": tensor}), at_once(4.0))).unwrap();
    let (one, four) = (of(1), of(4));
    let bytes = |report: &ServingReport| report.cache_gib * 1024.0 * 1024.0 * 1024.0 / report.cache_tokens;
    assert!((bytes(&one) - 27.0 * 2.0 * (512.0 + 64.0)).abs() < 1.0, "{} bytes of a token", bytes(&one));
    assert!((bytes(&one) / bytes(&four) - 1.0).abs() < 1e-3, "every rank keeps all of it");
}

#[test]
fn a_state_takes_room_by_the_request_and_is_read_and_written_for_each_token() {
    let state = 32.0 * 128.0 * 128.0 * 4.0 + 3.0 * 8192.0 * 2.0;
    let of = |requests| {
        let mut load = at_once(requests);
        load["input"] = json!(16.0);
        served(&request("qwen3-next-80b-a3b", "fp8", json!({"tensor": 4}), load)).unwrap()
    };
    let (few, many) = (of(16.0), of(128.0));
    let bytes = few.cache_gib * 1024.0 * 1024.0 * 1024.0;
    assert!((bytes / few.cache_tokens - 12.0 * 2.0 * 256.0 * 2.0).abs() < 1.0, "12 layers keep keys and values");
    let most = bytes / (36.0 * state / 4.0);
    assert!(few.at_once <= most && few.at_once > 0.9 * most.min(1024.0), "{} of {most} requests", few.at_once);
    let seconds = |report: &ServingReport| report.decode.parts.seconds(TimePart::State);
    let more = (many.batch - few.batch) * 2.0 * 36.0 * state / 4.0 / 3.35e12;
    let part = (seconds(&many) - seconds(&few)) / more;
    assert!((1.0..1.4).contains(&part), "{part} of the least time of the states");
}

#[test]
fn sparse_attention_reads_the_keys_that_its_indexer_chooses_and_all_keys_of_the_indexer() {
    let of = |model: &str, tokens: f64| {
        let load = json!({"input": tokens, "output": 20000.0, "concurrency": 16.0, "spread": 0.0});
        let mut one = request(model, "mxfp4", json!({"tensor": 8}), load);
        one.model.layers = 8;
        let found = served(&one).unwrap();
        found.decode.parts.seconds(TimePart::Attention) / found.batch
    };
    let [index, keys] = ["deepseek-v3.2", "deepseek-v3"].map(|model| of(model, 90000.0) - of(model, 30000.0));
    let part = index / keys;
    assert!((part - 132.0 / (2.0 * 576.0)).abs() < 0.03, "{part} of the time of a key");
}

#[test]
fn a_long_prompt_takes_time_on_states_in_proportion() {
    let of = |tokens: f64| {
        let mut load = at_once(1.0);
        load["input"] = json!(tokens);
        served(&request("nemotron-h-8b", "bf16", json!({}), load)).unwrap().prefill.parts.seconds(TimePart::State)
    };
    let ratio = of(8192.0) / of(4096.0);
    assert!((1.8..2.1).contains(&ratio), "{ratio}");
}

#[test]
fn fewer_bits_leave_more_room_and_less_time() {
    let of = |precision| served(&request("llama3-70b", precision, json!({"tensor": 8}), at_once(16.0))).unwrap();
    let (wide, narrow, least) = (of("bf16"), of("fp8"), of("int4"));
    assert!(wide.cache_tokens < narrow.cache_tokens && narrow.cache_tokens < least.cache_tokens);
    assert!(wide.tpot_s > narrow.tpot_s && narrow.tpot_s > least.tpot_s);
}

#[test]
fn what_no_server_does_is_refused() {
    let layouts = [
        ("llama3-8b", json!({"tensor": 5}), "must divide"),
        ("llama3-8b", json!({"tensor": 2, "expert": 2}), "need experts"),
        ("qwen3-30b-a3b", json!({"tensor": 4, "attention_copies": 3}), "must divide TP 4"),
        ("llama3-8b", json!({"stages": 64}), "more than the 32 layers"),
        ("llama3-8b", json!({"tensor": 0}), "TP is 0"),
        ("llama3-70b", json!({"tensor": 1}), "no room is left"),
        ("llama3-8b", json!({"tensor": 8, "copies": 2}), "GPUs"),
    ];
    for (model, layout, says) in layouts {
        let error = served(&request(model, "bf16", layout, at_once(4.0))).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let loads = [
        (json!({"input": 1000.0, "output": 200.0}), "pass the requests"),
        (json!({"input": 1000.0, "output": 200.0, "rate": 1.0, "concurrency": 1.0}), "pass the requests"),
        (json!({"input": 0.0, "output": 200.0, "rate": 1.0}), "prompts of 0 tokens"),
        (json!({"input": 1000.0, "output": 200.0, "rate": -1.0}), "-1 requests"),
        (json!({"input": 1e6, "output": 200.0, "rate": 1.0}), "tokens of cache"),
    ];
    for (load, says) in loads {
        let error = served(&request("llama3-8b", "bf16", json!({}), load)).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn a_server_with_impossible_fields_is_refused() {
    let asked = request("llama3-8b", "bf16", json!({}), at_once(4.0));
    for (field, value) in
        [("chunk", 0.0), ("sequences", 0.0), ("iteration_us", -1.0), ("utilization", 5.0), ("reserved", 2.0)]
    {
        let mut json = serde_json::to_value(&asked).unwrap();
        json["software"][field] = value.into();
        let error = served(&serde_json::from_value(json).unwrap()).unwrap_err().to_string();
        assert!(error.contains(&format!("`{field}` of the server is {value}")), "{error}");
    }
}

#[test]
fn requests_that_come_too_fast_are_said_to_wait() {
    let of = |rate| {
        let load = json!({"input": 1000.0, "output": 200.0, "rate": rate});
        served(&request("llama3-8b", "bf16", json!({}), load)).unwrap()
    };
    let (few, many) = (of(2.0), of(500.0));
    assert!(!few.is_saturated && many.is_saturated && many.ttft_s > 10.0 * few.ttft_s);
    assert!((few.tokens_per_second / 400.0 - 1.0).abs() < 0.2, "two requests of 200 tokens a second");
    assert_eq!(many.limit, "requests come faster than they are served");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_load_is_served_or_refused(
        model in select(vec!["llama3-8b", "qwen3-30b-a3b", "deepseek-v2-lite", "gpt-oss-20b"]),
        tensor in select(vec![1_u32, 2, 4, 8]),
        precision in select(vec!["bf16", "fp8", "nvfp4", "mxfp4", "int4"]),
        input in 1.0..20_000.0_f64,
        output in 1.0..3000.0_f64,
        requests in 1.0..300.0_f64,
        is_rate in any::<bool>(),
        spread in 0.0..1.0_f64,
    ) {
        let number = if is_rate { json!({"rate": requests / 10.0}) } else { json!({"concurrency": requests}) };
        let mut load = json!({"input": input, "output": output, "spread": spread});
        load.as_object_mut().unwrap().extend(number.as_object().unwrap().clone());
        let asked = request(model, precision, json!({"tensor": tensor}), load);
        if precision == "mxfp4" && asked.model.experts.is_none() {
            prop_assert!(matches!(served(&asked), Err(Error::Request(_))));
            return Ok(());
        }
        let found = served(&asked).unwrap();
        prop_assert_eq!(&found, &served(&asked).unwrap());
        prop_assert!(found.ttft_s > 0.0 && found.tpot_s >= 0.0 && found.batch >= 0.0, "{:?}", found);
        let most = f64::from(tensor) * found.tokens_per_second * found.tpot_s;
        prop_assert!(is_rate || most <= requests.round() * 1.01 + 1.0, "{} tokens a second of {} requests", most, requests);
        let least = found.decode.seconds.min(found.prefill.seconds);
        prop_assert!(found.ttft_s >= 0.2 * least, "a first token before any iteration: {:?}", found);
    }
}

/// A request whose server has "recorded" planned iterations of some numbers of tokens.
fn recorded(tensor: u32) -> ServingRequest {
    let planned = request("llama3-8b", "bf16", json!({"tensor": tensor}), at_once(16.0));
    let mut quiet = planned.clone();
    (quiet.software.iteration_us, quiet.software.sequence_us) = (0.0, 0.0);
    let batches = [1.0, 8.0, 64.0].into_iter().flat_map(|many: f64| {
        let decode = IterationBatch { decodes: many, cached: 9.0 * many, ..IterationBatch::default() };
        let tokens = 128.0 * many;
        let reading = IterationBatch { prompts: many, tokens, pairs: tokens * 64.5, ..IterationBatch::default() };
        [decode, reading]
    });
    let made = |batch| {
        let step = ON.pricer(false).iteration(&quiet, batch).unwrap();
        RecordedIteration { batch, step }
    };
    let iterations = batches.map(made).collect();
    let server = RecordedServer { cache_tokens: 500_000.0, cache_bytes: 6e10, iterations };
    ServingRequest { recorded: Some(server), ..planned }
}

#[test]
fn recorded_iterations_answer_as_planned_ones_that_they_equal() {
    for tensor in [1, 4] {
        let own = recorded(tensor);
        let (found, planned) =
            (served(&own).unwrap(), served(&ServingRequest { recorded: None, ..own.clone() }).unwrap());
        for (one, other) in [
            (found.ttft_s, planned.ttft_s),
            (found.tpot_s, planned.tpot_s),
            (found.tokens_per_second, planned.tokens_per_second),
            (found.decode.seconds, planned.decode.seconds),
        ] {
            assert!((one / other - 1.0).abs() < 0.05, "TP {tensor}: {one}, planned {other}");
        }
        assert_eq!(found.cache_tokens, 500_000.0);
    }
}

#[test]
fn recorded_iterations_of_another_layout_or_gpu_are_refused() {
    let says = |request: &ServingRequest, on: &Machine, words: &str| {
        let error = on.pricer(false).serve(request).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    let mut own = recorded(1);
    says(&own, &Machine::of("hgx-h200", 8), "recorded on h100-sxm, not on h200");
    own.layout.tensor = 2;
    says(&own, &ON, "recorded with TP 1");
    own.layout.tensor = 1;
    own.recorded.as_mut().unwrap().iterations.truncate(3);
    says(&own, &ON, "two numbers of tokens");
}

//! What fine-tuning changes of a step, against closed forms: parameters that are trained, FLOPs, bytes that are kept, sent and copied.

mod common;

use common::{all_ops, layout, request, Machine};
use nvcoll_step::memory::{MemoryLine, RankMemory};
use nvcoll_step::model::Model;
use nvcoll_step::parts::TimePart;
use nvcoll_step::step::work::{StepOp, StepWork};
use nvcoll_step::step::WorkStep;
use serde_json::{json, Value};

/// The elements of the matrices of a layer of Llama 3.1 8B as (columns, rows), one for each module.
const MODULES: [(f64, f64); 7] = [
    (4096.0, 4096.0),
    (1024.0, 4096.0),
    (1024.0, 4096.0),
    (4096.0, 4096.0),
    (14336.0, 4096.0),
    (14336.0, 4096.0),
    (4096.0, 14336.0),
];

const TOKENS: f64 = 2.0 * 2048.0;
const LAYERS: f64 = 32.0;

fn fields(gpus: u32, recipe: &Value) -> Value {
    json!({"gpus": gpus, "data": gpus, "micro_batch": 1, "global_batch": 2 * gpus, "sequence": 2048, "recipe": recipe})
}

fn planned(recipe: &Value) -> WorkStep {
    request("llama3.1-8b", layout(fields(1, recipe)), "torchtitan").plan().unwrap_or_else(|error| panic!("{error}"))
}

fn refused(recipe: &Value) -> String {
    request("llama3.1-8b", layout(fields(1, recipe)), "torchtitan").plan().unwrap_err().to_string()
}

fn line(step: &WorkStep, name: MemoryLine) -> f64 {
    let Some(memory) = &step.layers().unwrap().roles[0].memory else { panic!("it is planned") };
    memory.table("", 1, 0.0).lines.get(&name).copied().unwrap_or(0.0)
}

fn activations(step: &WorkStep) -> f64 {
    let Some(RankMemory::Sum { activations, .. }) = step.layers().unwrap().roles[0].memory else {
        panic!("it is planned")
    };
    activations
}

fn gemm_flops(step: &WorkStep) -> f64 {
    let is_gemm = |op: &StepOp| matches!(op.work, StepWork::Gemm { .. });
    all_ops(step).into_iter().filter(|(op, ..)| is_gemm(op)).map(|(op, times, _)| op.work.flops() * times).sum()
}

fn copied(step: &WorkStep) -> f64 {
    let bytes = |op: &StepOp| if let StepWork::Copy { bytes, .. } = op.work { bytes } else { 0.0 };
    all_ops(step).into_iter().map(|(op, times, _)| bytes(op) * times).sum()
}

fn assert_equal(found: f64, expected: f64, what: &str) {
    assert!((found / expected - 1.0).abs() < 1e-9, "{what}: {found:e} and {expected:e} were expected");
}

/// Parameters of adapters, by rank and the modules that have one.
fn adapters(rank: f64, modules: &[usize]) -> f64 {
    modules.iter().map(|&index| LAYERS * rank * (MODULES[index].0 + MODULES[index].1)).sum()
}

#[test]
fn adapters_alone_are_trained() {
    // What PEFT prints for "all-linear": trainable params: 41,943,040.
    assert_equal(adapters(16.0, &[0, 1, 2, 3, 4, 5, 6]), 41_943_040.0, "the closed form");
    for (targets, modules) in [
        ("all", &[0, 1, 2, 3, 4, 5, 6][..]),
        ("attention", &[0, 1, 2, 3]),
        ("mlp", &[4, 5, 6]),
        ("q,v,down", &[0, 2, 6]),
    ] {
        let step = planned(&json!({"lora": 16, "lora_targets": targets}));
        let trained = adapters(16.0, modules);
        assert_equal(line(&step, MemoryLine::Parameters), 2.0 * trained, targets);
        assert_equal(line(&step, MemoryLine::Optimizer), 12.0 * trained, targets);
        let parameters = Model::named("llama3.1-8b").unwrap().parameters();
        assert_equal(line(&step, MemoryLine::Frozen), 2.0 * parameters, "the base");
    }
    let magnitudes: f64 = MODULES.iter().map(|(columns, _)| LAYERS * columns).sum();
    let step = planned(&json!({"lora": 16, "dora": true}));
    assert_equal(line(&step, MemoryLine::Parameters), 2.0 * (41_943_040.0 + magnitudes), "magnitudes");
}

#[test]
fn a_frozen_base_has_no_gradients_of_weights() {
    let base: f64 = LAYERS * MODULES.iter().map(|(columns, rows)| columns * rows).sum::<f64>() + 128_256.0 * 4096.0;
    assert_equal(gemm_flops(&planned(&json!({}))), 6.0 * base * TOKENS, "all is trained");
    let step = planned(&json!({"lora": 16}));
    assert_equal(gemm_flops(&step), (4.0 * base + 6.0 * 41_943_040.0) * TOKENS, "adapters");
    let saved = planned(&json!({})).model_flops.unwrap() - step.model_flops.unwrap();
    assert_equal(saved, (2.0 * base - 6.0 * 41_943_040.0) * TOKENS, "FLOPs of the model");
}

#[test]
fn few_bits_are_kept_and_written_wide_before_each_product() {
    let matrices: f64 = LAYERS * MODULES.iter().map(|(columns, rows)| columns * rows).sum::<f64>();
    let ends = 2.0 * 128_256.0 * 4096.0;
    for (format, bytes) in [("nf4", 0.5625), ("nf4-dq", 0.5 + 1.015_625 / 64.0), ("int8", 1.0)] {
        let step = planned(&json!({"lora": 16, "quantize": format}));
        assert_equal(line(&step, MemoryLine::Frozen), bytes * matrices + 2.0 * ends, format);
        let widened = all_ops(&step).into_iter().filter(|(op, ..)| op.name == "widened weights");
        let moved = |op: &StepOp| if let StepWork::Move { bytes, .. } = op.work { bytes } else { 0.0 };
        // Two micro-batches, forward and backward.
        let found: f64 = widened.map(|(op, times, _)| moved(op) * times).sum();
        assert_equal(found, 4.0 * matrices * (bytes + 2.0), "bytes that are moved");
    }
}

#[test]
fn adapters_alone_are_reduced() {
    for sharding in ["none", "optimizer", "gradients", "parameters"] {
        let mut fields = fields(8, &json!({"lora": 16, "quantize": "nf4"}));
        fields["sharding"] = json!(sharding);
        let step = request("llama3.1-8b", layout(fields), "fsdp2").plan().unwrap();
        let sent = |name: &str| -> f64 {
            let of = |op: &StepOp| match &op.work {
                StepWork::Collective { bytes, pattern, .. } if pattern.name() == name => *bytes,
                _ => 0.0,
            };
            all_ops(&step).into_iter().map(|(op, times, _)| of(op) * times / 8.0).sum()
        };
        let gradients = nvcoll_step::software::Software::named("fsdp2").unwrap().gradient_bytes * 41_943_040.0;
        let micro_batches = if sharding == "parameters" { 2.0 } else { 1.0 };
        assert_equal(sent("reduce_scatter") + sent("all_reduce"), micro_batches * gradients, sharding);
    }
}

#[test]
fn two_layers_of_a_sharded_base_are_gathered_without_gradients() {
    let buffers = |recipe: Value| {
        let mut fields = fields(8, &recipe);
        fields["sharding"] = json!("parameters");
        line(&request("llama3.1-8b", layout(fields), "fsdp2").plan().unwrap(), MemoryLine::Buffers)
    };
    let layer: f64 = MODULES.iter().map(|(columns, rows)| columns * rows).sum();
    assert_equal(buffers(json!({})), 2.0 * 4.0 * layer, "all is trained: bf16 parameters and gradients");
    let of_adapters = 2.0 * 2.0 * adapters(16.0, &[0, 1, 2, 3, 4, 5, 6]) / LAYERS;
    assert_equal(buffers(json!({"lora": 16})), 2.0 * 2.0 * layer + of_adapters, "adapters alone have gradients");
    assert_equal(buffers(json!({"lora": 16, "quantize": "nf4"})), 2.0 * 0.5625 * layer + of_adapters, "in four bits");
}

#[test]
fn adapters_are_smaller_than_the_matrices_beside_them() {
    assert!(refused(&json!({"lora": 1025})).contains("rank 1025, and the least dimension of their matrices is 1024"));
    assert!(refused(&json!({"lora": 5000, "lora_targets": "q"})).contains("is 4096"));
    planned(&json!({"lora": 1024}));
    planned(&json!({"lora": 4096, "lora_targets": "q,mlp"}));
}

#[test]
fn optimizers_have_the_bytes_of_their_states() {
    let parameters = Model::named("llama3.1-8b").unwrap().parameters();
    for (name, bytes, narrow) in [
        ("adamw", 12.0, 4.0),
        ("adamw-8bit", 4.0 + 2.03125, 2.03125),
        ("adafactor", 4.0, 0.0),
        ("lion", 8.0, 2.0),
        ("sgd", 4.0, 0.0),
        ("paged-adamw", 4.0, 0.0),
        ("paged-adamw-8bit", 4.0, 0.0),
    ] {
        let of = |recipe: Value| line(&planned(&recipe), MemoryLine::Optimizer);
        assert!((of(json!({"optimizer": name})) - bytes * parameters).abs() < 1.0, "{name}");
        assert!((of(json!({"optimizer": name, "pure_bf16": true})) - narrow * parameters).abs() < 1.0, "{name}");
    }
    assert_equal(line(&planned(&json!({"pure_bf16": true})), MemoryLine::Gradients), 2.0 * parameters, "gradients");
    assert!(refused(&json!({"optimizer": "adam"})).contains("adamw-8bit"));
}

#[test]
fn muon_multiplies_matrices_in_five_iterations() {
    let of_module = |&(columns, rows): &(f64, f64)| {
        let (short, long) = (f64::min(columns, rows), f64::max(columns, rows));
        5.0 * (4.0 * short * short * long + 2.0 * short.powi(3))
    };
    let expected: f64 = LAYERS * MODULES.iter().map(of_module).sum::<f64>();
    let more = gemm_flops(&planned(&json!({"optimizer": "muon"}))) - gemm_flops(&planned(&json!({})));
    assert_equal(more, expected, "products of Newton and Schulz");
    assert!(refused(&json!({"optimizer": "muon", "lora": 8})).contains("whole matrices"));
}

#[test]
fn an_optimizer_in_the_backward_pass_keeps_one_gradient() {
    let recipe = json!({"optimizer_in_backward": true});
    assert!(refused(&recipe).contains("2 micro-batches"));
    let mut fields = fields(1, &recipe);
    fields["global_batch"] = json!(1);
    let step = request("llama3.1-8b", layout(fields), "torchtitan").plan().unwrap();
    assert_equal(line(&step, MemoryLine::Gradients), 4.0 * 128_256.0 * 4096.0, "the gradient of the head");
}

#[test]
fn what_waits_in_ram_is_copied_and_not_kept() {
    let (parameters, ends) = (Model::named("llama3.1-8b").unwrap().parameters(), 2.0 * 128_256.0 * 4096.0);
    let optimizer = planned(&json!({"offload": "optimizer"}));
    assert_equal(line(&optimizer, MemoryLine::Optimizer) + 1.0, 1.0, "states");
    assert_equal(copied(&optimizer), (4.0 + 2.0) * parameters, "gradients there, parameters back");
    let base = planned(&json!({"lora": 16, "offload": "parameters"}));
    let of_layers = 2.0 * (parameters - ends);
    assert_equal(line(&base, MemoryLine::Frozen), 2.0 * ends + of_layers * 2.0 / LAYERS, "two layers stay");
    assert_equal(copied(&base), 4.0 * of_layers, "both passes of two micro-batches");
    let (plain, kept) = (planned(&json!({})), planned(&json!({"offload": "activations"})));
    assert_equal(activations(&kept), activations(&plain) * 2.0 / LAYERS, "activations of two layers");
    assert_equal(copied(&kept), 4.0 * activations(&plain), "there and back");
    let report = Machine::of("rtx4090-2-staged", 1).pricer(false).price(&base).unwrap();
    assert!(report.parts.seconds(TimePart::Copies) > 0.0, "copies are longer than the work of two sequences");
    assert!(refused(&json!({"offload": "gradients"})).contains("activations"));
}

#[test]
fn logits_come_in_chunks_and_attention_stays_within_documents() {
    let loss = |recipe: Value| line(&planned(&recipe), MemoryLine::Loss);
    assert_equal(loss(json!({"loss_chunks": 8})), loss(json!({})) / 8.0, "logits");
    let scores = |recipe: Value| -> f64 {
        let step = planned(&recipe);
        let of = |op: &StepOp| if let StepWork::Attention(one) = &op.work { one.flops() } else { 0.0 };
        all_ops(&step).into_iter().map(|(op, times, _)| of(op) * times).sum()
    };
    assert_equal(scores(json!({"document": 512})), scores(json!({})) / 4.0, "scores of four documents");
    assert_equal(scores(json!({"document": 4096})), scores(json!({})), "a document is no longer than the sequence");
}

#[test]
fn words_that_need_a_rank_are_refused_without() {
    for recipe in [json!({"quantize": "nf4"}), json!({"dora": true}), json!({"lora_targets": "all"})] {
        assert!(refused(&recipe).contains("pass their rank"), "{recipe}");
    }
    assert!(refused(&json!({"lora": 8, "lora_targets": "query"})).contains("choose from all, attention"));
}

#[test]
fn layers_of_multi_token_prediction_have_the_parameters_and_products_that_authors_state() {
    let of = |name: &str| Model::named(name).unwrap().prediction_parameters();
    let (dense, experts) = (of("deepseek-v3").dense, of("deepseek-v3").experts);
    // README of DeepSeek-V3: the module has 11.5 billion parameters of its own.
    assert!(((dense + experts) / 11.5e9 - 1.0).abs() < 0.011, "{dense:e} and {experts:e}");
    let (plain, with) = (planned(&json!({})), planned(&json!({"mtp": 2})));
    let own = of("llama3.1-8b").dense;
    assert_equal(
        own,
        4096.0 * (2.0 * 4096.0) + MODULES.iter().map(|(rows, columns)| rows * columns).sum::<f64>(),
        "own",
    );
    let parameters = |step: &WorkStep| line(step, MemoryLine::Gradients);
    let each = parameters(&plain) / Model::named("llama3.1-8b").unwrap().parameters();
    assert_equal(parameters(&with) - parameters(&plain), 2.0 * own * each, "gradients");
}

#[test]
fn the_fullest_rank_computes_and_receives_more_and_a_padded_sequence_counts_less() {
    let of = |recipe: Value| {
        let fields = json!({"gpus": 8, "data": 8, "expert": 8, "micro_batch": 1, "global_batch": 8, "sequence": 4096, "recipe": recipe});
        request("qwen3-30b-a3b", layout(fields), "torchtitan").plan().unwrap()
    };
    let (even, uneven, padded) = (of(json!({})), of(json!({"imbalance": 1.5})), of(json!({"filled": 0.5})));
    let flops = |step: &WorkStep, of_experts: bool| -> f64 {
        let is_it = |op: &StepOp| matches!(op.work, StepWork::Gemm { experts, .. } if experts.is_some() == of_experts);
        all_ops(step).into_iter().filter(|(op, ..)| is_it(op)).map(|(op, times, _)| op.work.flops() * times).sum()
    };
    assert_equal(flops(&uneven, true), 1.5 * flops(&even, true), "experts");
    assert_equal(flops(&uneven, false), flops(&even, false), "others");
    assert_equal(uneven.model_flops.unwrap(), even.model_flops.unwrap(), "of the model");
    assert_equal(gemm_flops(&padded), gemm_flops(&even), "padding is computed");
    assert_equal(padded.tokens.unwrap(), 0.5 * even.tokens.unwrap(), "tokens that count");
    assert_equal(padded.model_flops.unwrap(), 0.5 * even.model_flops.unwrap(), "of the model");
}

#[test]
fn frozen_layers_have_a_forward_pass_alone() {
    let (all, half) = (planned(&json!({})), planned(&json!({"frozen": 16})));
    let layers = LAYERS * MODULES.iter().map(|(rows, columns)| rows * columns).sum::<f64>();
    let end = 128_256.0 * 4096.0;
    let products = 6.0 * TOKENS * (layers / 2.0 + end) + 2.0 * TOKENS * layers / 2.0;
    assert_equal(gemm_flops(&half), products, "products");
    assert_equal(line(&half, MemoryLine::Frozen), 2.0 * (layers / 2.0 + end), "frozen");
    let trained = (layers / 2.0 + end) / (layers + 2.0 * end);
    for name in [MemoryLine::Parameters, MemoryLine::Gradients, MemoryLine::Optimizer] {
        assert_equal(line(&half, name), trained * line(&all, name), name.name());
    }
    assert_equal(activations(&half), activations(&all) / 2.0, "activations");
    let model_flops = |step: &WorkStep| step.model_flops.unwrap();
    let attention = model_flops(&all) - 6.0 * TOKENS * (layers + end);
    assert_equal(model_flops(&half), products + attention * 2.0 / 3.0, "of the model");
}

#[test]
fn words_that_contradict_are_refused() {
    for (recipe, reason) in [
        (json!({"filled": 0}), "fill more than nothing"),
        (json!({"imbalance": 0.5}), "at least the mean"),
        (json!({"lora": 8, "mtp": 1}), "all layers are frozen"),
        (json!({"frozen": 32}), "at least one of 32 layers"),
    ] {
        assert!(refused(&recipe).contains(reason), "{recipe}");
    }
}

#[test]
fn dualpipe_keeps_two_copies_of_parameters_and_one_more_micro_batch_than_stages() {
    let of = |schedule: &str| {
        let sizes = json!({"gpus": 32, "stages": 4, "data": 8, "sharding": "optimizer", "schedule": schedule});
        let batch = json!({"micro_batch": 1, "global_batch": 128, "sequence": 4096});
        let mut fields = sizes.as_object().unwrap().clone();
        fields.extend(batch.as_object().unwrap().clone());
        request("llama3.1-8b", layout(Value::Object(fields)), "torchtitan").plan().unwrap()
    };
    let (one, both) = (of("1f1b"), of("dualpipe"));
    assert_equal(gemm_flops(&both), gemm_flops(&one), "products");
    let lines = |step: &WorkStep, stage: usize| {
        let roles = &step.layers().unwrap().roles;
        let role = roles.iter().find(|role| role.stages.contains(&(stage as u32))).unwrap();
        role.memory.as_ref().unwrap().table("", 1, 0.0).lines
    };
    let kept = |step: &WorkStep, stage, name| lines(step, stage)[&name];
    for name in [MemoryLine::Parameters, MemoryLine::Gradients] {
        assert_equal(kept(&both, 0, name), kept(&one, 0, name) + kept(&one, 3, name), name.name());
    }
    let states = MemoryLine::Optimizer;
    assert_equal(kept(&both, 1, states), (kept(&one, 1, states) + kept(&one, 2, states)) / 2.0, "optimizer");
    let activations = MemoryLine::Activations; // 1F1B keeps 3 micro-batches in stage 1
    assert_equal(kept(&both, 1, activations), 5.0 / 3.0 * kept(&one, 1, activations), "activations");
}

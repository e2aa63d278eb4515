//! What the planner plans, against counts from the dimensions of the model alone: FLOPs, bytes that are sent, bytes that are kept.

mod common;

use common::{all_ops, layout, request};
use nvcoll_fabric::predict::Pattern;
use nvcoll_step::layout::Layout;
use nvcoll_step::memory::{MemoryLine, RankMemory};
use nvcoll_step::model::{Mixer, Mlp, Model};
use nvcoll_step::parts::TimePart;
use nvcoll_step::recurrent::StateRule;
use nvcoll_step::software::Software;
use nvcoll_step::step::layers::{LayerOp, Role};
use nvcoll_step::step::work::{MoveRate, StepOp, StepWork};
use nvcoll_step::step::WorkStep;
use serde_json::{json, Value};

fn planned(model: &str, fields: Value, software: &str) -> WorkStep {
    request(model, layout(fields), software).plan().unwrap_or_else(|error| panic!("{model}: {error}"))
}

fn assert_equal(found: f64, expected: f64, what: &str) {
    assert!((found / expected - 1.0).abs() < 1e-9, "{what}: {found:e} and {expected:e} were expected");
}

/// The parameters with which a token is multiplied, from the dimensions: all layers, and the head.
fn multiplied(model: &Model) -> f64 {
    let Model { layers, hidden, heads, kv_heads, head_dim, ffn, gated, vocab, .. } = *model;
    let matrices = if gated { 3 } else { 2 };
    let of_layer = |index: u32| {
        let attention = match model.mla {
            None => 2 * hidden * heads * head_dim + 2 * hidden * kv_heads * head_dim,
            Some(mla) => {
                let queries = if mla.q == 0 {
                    hidden * heads * (mla.nope + mla.rope)
                } else {
                    hidden * mla.q + mla.q * heads * (mla.nope + mla.rope)
                };
                let index = model
                    .indexer
                    .map_or(0, |one| one.heads * one.head_dim * mla.q + hidden * (one.head_dim + one.heads));
                queries
                    + hidden * (mla.kv + mla.rope)
                    + mla.kv * heads * (mla.nope + mla.v)
                    + heads * mla.v * hidden
                    + index
            }
        };
        let kind = model.layer(index);
        let attention = match (kind.mixer, model.recurrent) {
            (Mixer::State, Some(one)) => {
                let (keys, values) = (one.key_heads * one.key_dim, one.value_heads * one.value_dim);
                let decays = one.value_heads * if one.rule == StateRule::Delta { 2 } else { 1 };
                hidden * (2 * keys + 3 * values + decays)
            }
            (Mixer::None, _) => 0,
            _ => attention + if model.output_gate { hidden * heads * head_dim } else { 0 },
        };
        let mlp = match (kind.mlp, model.experts) {
            (Mlp::None, _) => 0,
            (Mlp::Dense, _) | (_, None) => matrices * hidden * ffn,
            (Mlp::Experts, Some(one)) => hidden * one.count + matrices * hidden * one.ffn * (one.top_k + one.shared),
        };
        attention + mlp
    };
    ((0..layers).map(of_layer).sum::<u64>() + vocab * hidden) as f64
}

fn layouts() -> Vec<Value> {
    let batch = |fields: Value| {
        let mut all = json!({"micro_batch": 1, "global_batch": 32, "sequence": 4096});
        all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        all
    };
    vec![
        batch(json!({"gpus": 1, "data": 1})),
        batch(json!({"gpus": 32, "tensor": 4, "data": 8, "sequence_parallel": true, "sharding": "optimizer"})),
        batch(json!({"gpus": 16, "tensor": 2, "stages": 4, "data": 2, "micro_batch": 2})),
        batch(json!({"gpus": 16, "context": 4, "data": 4, "sharding": "parameters"})),
        batch(json!({"gpus": 8, "stages": 4, "chunks": 2, "schedule": "interleaved", "data": 2})),
        batch(json!({"gpus": 16, "stages": 8, "schedule": "zero-bubble-2p", "data": 2})),
    ]
}

const MODELS: [&str; 11] = [
    "gpt3-6.7b",
    "llama3-8b",
    "gemma2-27b",
    "bloom-176b",
    "mixtral-8x7b",
    "deepseek-v3",
    "deepseek-v3.2",
    "llama4-maverick",
    "gpt-oss-20b",
    "qwen3-next-80b-a3b",
    "nemotron3-nano-30b-a3b",
];

#[test]
fn products_are_6_flops_per_parameter_and_token() {
    for name in MODELS {
        for fields in layouts() {
            let (model, step) = (Model::named(name).unwrap(), planned(name, fields.clone(), "megatron-core"));
            let divides = fields.get("tensor").is_none() || fields.get("sequence_parallel").is_some();
            if model.mla.is_some() && !divides {
                continue; // each tensor-parallel rank computes the latents of all tokens
            }
            let flops = all_ops(&step).into_iter().map(|(op, times, _)| match op.work {
                StepWork::Gemm { .. } if op.part != Some(TimePart::State) => op.work.flops() * times,
                _ => 0.0,
            });
            let ranks = fields.get("tensor").and_then(Value::as_u64).unwrap_or(1);
            let padded = Model { vocab: model.vocab.div_ceil(128 * ranks) * 128 * ranks, ..model.clone() };
            assert_equal(flops.sum(), 6.0 * multiplied(&padded) * 32.0 * 4096.0, &format!("{name} {fields}"));
        }
    }
}

#[test]
fn scores_are_those_of_all_heads_and_pairs() {
    for name in MODELS {
        for fields in layouts() {
            let (model, step) = (Model::named(name).unwrap(), planned(name, fields.clone(), "megatron-core"));
            let scores = |of_backward| {
                let ops = all_ops(&step).into_iter().map(move |(op, times, _)| match op.work {
                    StepWork::Attention(attention) if attention.backward == of_backward && op.name != "index" => {
                        attention.scores() * times
                    }
                    _ => 0.0,
                });
                ops.sum::<f64>()
            };
            let attending = (0..model.layers).filter(|&index| model.layer(index).attends()).count() as f64;
            let expected = 32.0 * 4096.0f64.powi(2) * model.heads as f64 * attending;
            assert_equal(scores(false), expected, &format!("{name} {fields}"));
            assert_equal(scores(true), expected, &format!("{name} {fields}"));
        }
    }
}

#[test]
fn states_are_products_of_chunks_forward_and_two_and_a_half_times_backward() {
    for (name, layers, heads, sums) in [
        ("qwen3-next-80b-a3b", 36.0, 32.0, 64.0 * 5.0 * 128.0 + 2048.0 + 3.0 * 128.0 * 128.0),
        ("nemotron-h-8b", 24.0, 128.0, 128.0 * (64.0 + 128.0 / 16.0) + 2.0 * 128.0 * 64.0),
    ] {
        for fields in layouts() {
            if fields.get("stages").is_none() {
                let step = planned(name, fields.clone(), "megatron-core");
                let flops = all_ops(&step).into_iter().filter(|(op, ..)| op.name == "state");
                let found: f64 = flops.map(|(op, times, _)| op.work.flops() * times).sum();
                let expected = 3.5 * layers * heads * 2.0 * sums * 32.0 * 4096.0;
                assert_equal(found, expected, &format!("{name} {fields}"));
            }
        }
    }
}

#[test]
fn sparse_attention_scores_all_keys_with_its_indexer_and_sees_the_best() {
    let fields = json!({"gpus": 8, "data": 8, "expert": 8, "micro_batch": 1, "global_batch": 8, "sequence": 8192});
    let (dense, sparse) =
        (planned("deepseek-v3", fields.clone(), "megatron-core"), planned("deepseek-v3.2", fields, "megatron-core"));
    let of = |step: &WorkStep, name: &str| {
        let ops = &step.layers().unwrap().blocks["expert layer"].forward;
        ops.iter().find(|one| one.op.name == name).map_or(0.0, |one| one.op.flops())
    };
    assert_equal(
        of(&sparse, "attention") / of(&dense, "attention"),
        2.0 * 0.25 * (1.0 - 0.125),
        "the best 2,048 of 8,192",
    );
    assert_equal(of(&sparse, "index"), 2.0 * 64.0 * 128.0 * 8192.0 * 8192.0 / 2.0, "64 heads of 128");
}

#[test]
fn layers_of_one_part_move_and_send_half_of_what_layers_of_two_do() {
    let fields = json!({"gpus": 2, "tensor": 2, "data": 1, "micro_batch": 1, "global_batch": 1, "sequence": 4096});
    let step = planned("nemotron-h-8b", fields, "megatron-core");
    let blocks = &step.layers().unwrap().blocks;
    let names = ["layer without MLP", "layer without MLP with state", "dense layer without attention"];
    let reduces = |name: &str| {
        let ops = blocks[name].forward.iter();
        ops.filter(|one| matches!(one.op.work, StepWork::Collective { .. })).map(|one| one.op.count).sum::<f64>()
    };
    assert_eq!(names.map(reduces), [1.0; 3]);
    let scores = |name: &str| blocks[name].forward.iter().any(|one| matches!(one.op.work, StepWork::Attention(_)));
    assert_eq!(names.map(scores), [true, false, false]);
}

#[test]
fn windows_are_those_of_the_layers_that_have_them() {
    let step = planned(
        "gpt-oss-20b",
        json!({"gpus": 1, "data": 1, "micro_batch": 1, "global_batch": 1, "sequence": 4096}),
        "nemo",
    );
    let layers = &step.layers().unwrap().roles[0].chunks[0];
    let of = |block: &str| layers.iter().find(|run| run.block == block).map(|run| run.repeat);
    assert_eq!((of("expert layer with window"), of("expert layer")), (Some(12), Some(12)));
    let window =
        step.layers().unwrap().blocks["expert layer with window"].forward.iter().find_map(|one| match one.op.work {
            StepWork::Attention(attention) => attention.window,
            _ => None,
        });
    assert_eq!(window, Some(128.0));
}

#[test]
fn elementwise_bytes_of_a_layer_are_the_passes_of_fused_kernels() {
    let fields = json!({"gpus": 1, "data": 1, "micro_batch": 1, "global_batch": 1, "sequence": 2048});
    let step = planned("gpt3-6.7b", fields, "megatron-core");
    let bytes = |ops: &[LayerOp]| {
        let of = |work: &StepWork| match work {
            StepWork::Move { bytes, rate: MoveRate::Least, .. } => *bytes,
            _ => 0.0,
        };
        ops.iter().map(|one| of(&one.op.work) * one.op.count).sum::<f64>()
    };
    // Two norms read and write, two residual additions read two and write one; GELU reads and writes 4 h; bf16.
    let element = 2.0 * 2048.0 * 4096.0;
    let blocks = &step.layers().unwrap().blocks;
    let block = &blocks["dense layer"];
    assert_equal(bytes(&block.forward), element * (2.0 * 2.0 + 2.0 * 3.0 + 2.0 * 4.0), "forward");
    assert_equal(bytes(&block.backward), element * (12.0 + 5.0 / 3.0 * 2.0 * 4.0), "backward");
    assert_equal(bytes(&blocks["embedding"].forward) * 2.0, element * 4.0, "embedding, both passes");
}

/// Bytes of the collectives of a group, per rank of it, over all ranks of a step; a rank sends about twice the bytes of an all-reduce.
fn sent(step: &WorkStep, of: &[&str], in_blocks: bool) -> f64 {
    let ops = all_ops(step).into_iter().filter(|(_, _, is_in_block)| *is_in_block == in_blocks);
    let bytes = ops.map(|(op, times, _)| match &op.work {
        StepWork::Collective { pattern, bytes, group, .. } if of.contains(&group.as_str()) => {
            times * bytes * if *pattern == Pattern::AllReduce { 2.0 } else { 1.0 }
        }
        _ => 0.0,
    });
    bytes.sum::<f64>() / f64::from(step.gpus)
}

#[test]
fn sharding_sends_what_the_paper_says() {
    // ZeRO (arXiv 1910.02054), section 7: 2 bytes per parameter and pass; stages 1 and 2 send as much as plain data parallelism, stage 3
    // half as much again. The nemo profile has gradients of 2 bytes.
    let fields = |sharding| json!({"gpus": 8, "data": 8, "micro_batch": 1, "global_batch": 8, "sequence": 2048, "sharding": sharding});
    let step = |sharding| planned("llama3-8b", fields(sharding), "nemo");
    let model = Model::named("llama3-8b").unwrap();
    let plain = sent(&step("none"), &["dp"], false);
    assert_equal(plain, 2.0 * 2.0 * model.parameters(), "plain");
    for sharding in ["optimizer", "gradients"] {
        assert_equal(sent(&step(sharding), &["shard", "copies"], false), plain, sharding);
    }
    let layers = model.parameters() - 2.0 * model.embedding_parameters();
    assert_equal(sent(&step("parameters"), &["shard"], true), 3.0 * 2.0 * layers, "parameters, of layers");
}

#[test]
fn shards_in_a_node_reduce_their_copies_over_nodes() {
    let fields = json!({"gpus": 32, "data": 32, "micro_batch": 1, "global_batch": 32, "sequence": 2048, "sharding": "optimizer", "shard_ranks": 8});
    let step = planned("llama3-8b", fields, "nemo");
    let parameters = Model::named("llama3-8b").unwrap().parameters();
    assert_equal(sent(&step, &["shard"], false), 2.0 * 2.0 * parameters, "in a node");
    assert_equal(sent(&step, &["copies"], false), 2.0 * 2.0 * parameters / 8.0, "over nodes");
    assert_eq!(
        (step.groups["shard"].ranks.size, step.groups["copies"].ranks.size, step.groups["copies"].ranks.stride),
        (8, 4, 8)
    );
}

#[test]
fn tensor_parallelism_sends_four_all_reduces_of_a_layer() {
    // Korthikanti et al. 2022 (arXiv 2205.05198), section 4.2.2: sequence parallelism sends as much.
    let fields = |split| json!({"gpus": 8, "tensor": 8, "data": 1, "micro_batch": 2, "global_batch": 2, "sequence": 2048, "sequence_parallel": split});
    let model = Model::named("gpt3-175b").unwrap();
    let of_layers = 2.0 * 4.0 * 2.0 * 2.0 * 2048.0 * model.hidden as f64 * f64::from(model.layers);
    let loss = 2.0 * 8.0 * 2.0 * 2048.0;
    for split in [false, true] {
        let step = planned("gpt3-175b", fields(split), "megatron-core");
        assert_equal(sent(&step, &["tp"], true), of_layers + loss, "tensor parallelism");
    }
}

#[test]
fn tokens_travel_to_their_experts_and_back_in_both_passes() {
    let fields = json!({"gpus": 16, "data": 16, "expert": 8, "micro_batch": 1, "global_batch": 16, "sequence": 4096});
    let step = planned("mixtral-8x7b", fields, "megatron-core");
    assert_equal(sent(&step, &["ep"], true), 4.0 * 2.0 * 2.0 * 4096.0 * 4096.0 * 32.0, "experts");
}

/// Bytes of a part of the memory in all ranks of one data-parallel replica.
fn kept(step: &WorkStep, layout: &Layout, part: MemoryLine) -> f64 {
    let of_role = |role: &Role| {
        let Some(RankMemory::Sum { standing, .. }) = &role.memory else { panic!("it is planned") };
        let bytes = standing.iter().find(|one| one.name == part).map_or(0.0, |one| one.bytes);
        bytes * role.stages.len() as f64 * f64::from(layout.tensor)
    };
    step.layers().unwrap().roles.iter().map(of_role).sum()
}

#[test]
fn ranks_keep_the_parameters_of_the_model_once_in_a_replica() {
    for name in ["gpt3-6.7b", "llama3-8b", "bloom-176b", "gemma2-27b"] {
        for fields in layouts() {
            let (model, layout) = (Model::named(name).unwrap(), layout(fields.clone()));
            let step = planned(name, fields.clone(), "megatron-core");
            let again = if model.tied && layout.stages > 1 { model.embedding_parameters() } else { 0.0 };
            let (parameters, shards) = (model.parameters() + again, f64::from(layout.shards()));
            assert_equal(
                kept(&step, &layout, MemoryLine::Optimizer),
                12.0 * parameters / shards,
                &format!("{name} {fields}"),
            );
            if fields["sharding"] != "parameters" {
                assert_equal(
                    kept(&step, &layout, MemoryLine::Parameters),
                    2.0 * parameters,
                    &format!("{name} {fields}"),
                );
                assert_equal(
                    kept(&step, &layout, MemoryLine::Gradients),
                    4.0 * parameters,
                    &format!("{name} {fields}"),
                );
            }
        }
    }
}

#[test]
fn experts_are_kept_once_in_an_expert_group() {
    let fields = json!({"gpus": 64, "data": 64, "expert": 64, "micro_batch": 1, "global_batch": 64, "sequence": 4096});
    let model = Model::named("deepseek-v3").unwrap();
    let step = planned("deepseek-v3", fields.clone(), "megatron-core");
    let experts = 58.0 * 256.0 * 3.0 * 7168.0 * 2048.0;
    let expected = 2.0 * (model.parameters() - 58.0 * 256.0 * 7168.0 - experts + experts / 64.0);
    let found = kept(&step, &layout(fields), MemoryLine::Parameters);
    assert!((found / expected - 1.0).abs() < 1e-3, "{found:e} and {expected:e}");
}

#[test]
fn one_gpu_shards_nothing() {
    let of = |sharding: &str, software: &str| {
        let fields =
            json!({"gpus": 1, "data": 1, "micro_batch": 1, "global_batch": 2, "sequence": 2048, "sharding": sharding});
        planned("llama3-8b", fields, software).form
    };
    for software in ["fsdp2", "deepspeed-zero", "megatron-core"] {
        for sharding in ["optimizer", "gradients", "parameters"] {
            assert_eq!(of(sharding, software), of("none", software), "{sharding} of {software}");
        }
    }
}

#[test]
fn the_loss_and_a_layer_at_work_are_not_there_at_once() {
    let lines = |sequence: u64| {
        let again = json!({"gemm": 1.0, "attention": 1.0, "elementwise": 1.0});
        let fields = json!({"gpus": 8, "tensor": 8, "data": 1, "micro_batch": 1, "global_batch": 1, "sequence": sequence, "recompute": again});
        let step = planned("llama3-8b", fields, "megatron-core");
        let table = step.layers().unwrap().roles[0].memory.as_ref().unwrap().table("", 8, 0.0);
        let of = |name| table.lines.get(&name).copied().unwrap_or(0.0);
        (of(MemoryLine::Loss), of(MemoryLine::Temporary))
    };
    assert_equal(lines(2048).0, 2048.0 * 128_256.0 / 8.0 * 6.0, "the loss is larger");
    assert!(lines(2048).1 == 0.0, "a layer at work");
}

#[test]
fn the_loss_moves_what_it_keeps_three_times_however_layers_are_fused() {
    let fields = json!({"gpus": 1, "data": 1, "micro_batch": 1, "global_batch": 1, "sequence": 2048});
    let moved = |logit_bytes: f64, elementwise: f64| -> f64 {
        let mut request = request("llama3-8b", layout(fields.clone()), "megatron-core");
        (request.software.logit_bytes, request.software.elementwise) = (logit_bytes, elementwise);
        let step = request.plan().unwrap();
        let of = |(op, times, _): (&StepOp, f64, bool)| match op.work {
            StepWork::Move { bytes, .. } if op.name == "loss" => bytes * op.count * times,
            _ => 0.0,
        };
        all_ops(&step).into_iter().map(of).sum()
    };
    let logits = 2048.0 * 128_256.0;
    assert_equal(moved(2.0, 1.0), 6.0 * logits, "gradients overwrite logits");
    assert_equal(moved(12.0, 1.9), 36.0 * logits, "a loss in fp32");
}

#[test]
fn frameworks_keep_more_of_a_layer_if_their_rows_say_so() {
    let kept = |recompute: f64, changed: &dyn Fn(&mut Software)| {
        let fields = json!({"gpus": 8, "tensor": 8, "data": 1, "sequence_parallel": true, "micro_batch": 1, "global_batch": 1,
            "sequence": 2048, "recompute": {"gemm": recompute, "attention": 0.0, "elementwise": 0.0}});
        let mut request = request("llama3-8b", layout(fields), "megatron-core");
        changed(&mut request.software);
        let Some(RankMemory::Sum { activations, .. }) = request.plan().unwrap().layers().unwrap().roles[0].memory
        else {
            panic!("it is planned")
        };
        activations / 32.0
    };
    let stream = 2048.0 * 4096.0 / 8.0;
    let more = |recompute, changed: &dyn Fn(&mut Software)| kept(recompute, changed) - kept(recompute, &|_| ());
    assert_equal(more(0.0, &|one| one.norm_bytes = 4.0), 2.0 * 4.0 * stream, "copies of two norms in fp32");
    assert_equal(
        more(0.0, &|one| one.keeps_gathered = true),
        2.0 * 2.0 * 7.0 * stream,
        "the inputs of the other 7 ranks",
    );
    let half = kept(0.0, &|_| ()) - kept(0.5, &|one| one.recomputes_evenly = true);
    assert_equal(half, (1.5 + 1.0 + 7.0) * stream, "queries, keys and values, the residual, up and gate");
}

/// Bytes that one micro-batch keeps in a layer, per element of the residual stream.
fn kept_in_a_layer(model: &str, recompute: Value) -> f64 {
    let fields =
        json!({"gpus": 1, "data": 1, "micro_batch": 1, "global_batch": 1, "sequence": 2048, "recompute": recompute});
    let step = planned(model, fields, "megatron-core");
    let model = Model::named(model).unwrap();
    let Some(RankMemory::Sum { activations, .. }) = step.layers().unwrap().roles[0].memory else {
        panic!("it is planned")
    };
    activations / f64::from(model.layers) / (2048.0 * model.hidden as f64)
}

#[test]
fn layers_keep_what_is_not_computed_again() {
    // 34 bytes of Korthikanti et al. 2022 (arXiv 2205.05198, equation 1) without scores, less two masks of dropout.
    let of = |gemm: f64, attention: f64, elementwise: f64| {
        kept_in_a_layer("gpt3-6.7b", json!({"gemm": gemm, "attention": attention, "elementwise": elementwise}))
    };
    assert_equal(of(0.0, 0.0, 0.0), 34.0 - 2.0, "nothing again");
    assert_equal(of(1.0, 1.0, 1.0), 2.0, "all again: the layer's input");
    assert_equal(of(0.0, 0.0, 1.0), 34.0 - 2.0 - 4.0 - 8.0, "norms and GELU again");
    assert_equal(of(0.0, 1.0, 1.0), 2.0 + 6.0 + 2.0 + 8.0, "results of GEMMs are kept: SAVE_DOT of JAX");
    assert_equal(of(4.0 / 12.0, 1.0, 1.0), 2.0 + 8.0 / 2.0 * 2.0, "of 8 results the half, if 4 of 12 FLOPs come again");
    // DeepSeek-V3: the up-projections of queries, keys and values are 9 % of FLOPs, and most of what is kept of attention.
    let again = |gemm: f64| kept_in_a_layer("deepseek-v3", json!({"gemm": gemm}));
    assert!(again(0.0) - again(0.1) > 2.0 * 128.0 * 448.0 / 7168.0);
}

#[test]
fn shards_in_a_pipeline_are_whole_until_the_step_ends() {
    let fields = |stages: u32| json!({"gpus": 8 * stages, "data": 8, "stages": stages, "micro_batch": 1, "global_batch": 64, "sequence": 2048, "sharding": "parameters"});
    let parameters = Model::named("llama3-8b").unwrap().parameters();
    let in_pipeline = planned("llama3-8b", fields(4), "fsdp2");
    assert_equal(kept(&in_pipeline, &layout(fields(4)), MemoryLine::Parameters), 2.0 * parameters, "parameters");
    assert!(kept(&planned("llama3-8b", fields(1), "fsdp2"), &layout(fields(1)), MemoryLine::Gradients) < parameters);
}

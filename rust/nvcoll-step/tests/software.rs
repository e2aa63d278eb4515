//! The shipped software: each row has a source and marks values that its source code does not show; a row per trait of a framework.

use std::collections::BTreeSet;

use nvcoll_step::software::{AttentionKernel, Software};

#[test]
fn every_row_says_where_each_of_its_fields_is_from() {
    let mut known = BTreeSet::new();
    for row in Software::all() {
        assert!(known.insert(&row.name) && !row.source.is_empty() && !row.title.is_empty(), "{}", row.name);
        let fields = serde_json::to_value(row).unwrap();
        for field in row.from_runs.iter().chain(&row.guesses) {
            assert!(fields.get(field).is_some(), "{} has no field {field}", row.name);
        }
        let both: BTreeSet<_> = row.from_runs.iter().filter(|field| row.guesses.contains(field)).collect();
        assert!(both.is_empty(), "{} both guesses and knows {both:?}", row.name);
    }
}

#[test]
fn numbers_are_possible() {
    for row in Software::all() {
        assert!((0.7..=2.0).contains(&row.elementwise), "{}", row.name); // compiled layers move less than the operators
        assert!([2.0, 4.0].contains(&row.gradient_bytes) && [2.0, 4.0].contains(&row.parameter_bytes), "{}", row.name);
        assert!((4.0..=12.0).contains(&row.accumulation_bytes), "{}", row.name);
        assert!(row.memory_gradient_bytes.is_none_or(|all| all >= row.gradient_bytes), "{}", row.name);
        assert!((1.0..100.0).contains(&row.launches_forward) && (1.0..100.0).contains(&row.launch_us), "{}", row.name);
    }
}

/// Attention, bytes of a reduced gradient, and what hides: tensor parallelism, data parallelism, sends, experts, sharded layers.
type Traits = (AttentionKernel, f64, [bool; 5]);

#[test]
fn traits_are_those_of_the_texts() {
    use AttentionKernel::{Cudnn, Fa1, Fa2, Unfused};
    let traits = |name: &str| -> Traits {
        let row = Software::named(name).unwrap();
        let hides = [row.overlaps_tensor, row.overlaps_data, row.overlaps_sends, row.overlaps_experts];
        (row.attention, row.gradient_bytes, [hides[0], hides[1], hides[2], hides[3], row.overlaps_sharded])
    };
    let bare = [false, false, false, false, true];
    let eager = [false, true, false, false, true];
    let nvidia = [true, true, true, false, true];
    for (name, expected) in [
        ("megatron-2020", (Unfused, 2.0, bare)),
        ("megatron", (Unfused, 4.0, bare)),
        ("megatron-deepspeed", (Unfused, 4.0, bare)),
        ("megatron-core", (Cudnn, 4.0, [true, true, false, false, true])),
        ("nemo", (Cudnn, 2.0, nvidia)),
        ("megatron-bridge", (Cudnn, 2.0, nvidia)),
        ("megatron-bridge-26.06", (Cudnn, 2.0, [true; 5])),
        ("composer-fsdp", (Fa1, 4.0, eager)),
        ("internevo", (Fa1, 2.0, eager)),
        ("nanotron", (Fa2, 4.0, bare)),
        ("pax", (Cudnn, 2.0, [false, true, false, false, false])),
        ("maxtext", (Cudnn, 2.0, eager)),
        ("torchtitan", (Fa2, 4.0, eager)),
        ("torchtitan-compile", (Fa2, 4.0, eager)),
        ("fsdp2", (Fa2, 4.0, eager)),
        ("deepspeed-zero", (Fa2, 2.0, eager)),
        ("lit-gpt", (Fa2, 2.0, eager)),
        ("hf-trainer", (Fa2, 4.0, eager)),
        ("hf-trainer-compile", (Fa2, 4.0, eager)),
        ("trl", (Fa2, 4.0, eager)),
        ("axolotl", (Fa2, 4.0, eager)),
        ("unsloth", (Fa2, 4.0, bare)),
        ("automodel", (Cudnn, 4.0, eager)),
        ("olmo-core", (Fa2, 4.0, eager)),
        ("nanochat", (Cudnn, 4.0, bare)),
        ("llm.c", (Cudnn, 2.0, eager)),
        ("primus", (Cudnn, 2.0, eager)),
    ] {
        assert_eq!(traits(name), expected, "{name}");
    }
    assert_eq!(Software::all().len(), 27, "a new row has a line here, too");
}

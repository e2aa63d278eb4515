//! The shipped models: each has a name of its own and a source, and its dimensions give the parameters that are stated.

use std::collections::BTreeSet;

use nvcoll_step::model::{Layer, Mixer, Mlp, Model, Positions};
use nvcoll_step::Error;

#[test]
fn dimensions_give_the_stated_parameters() {
    for model in Model::all() {
        model.check().unwrap_or_else(|error| panic!("{error}"));
        let table = if model.positions == Positions::Learned { model.sequence * model.hidden } else { 0 };
        let billions = (model.parameters() + table as f64) / 1e9;
        let stated = model.params_b.unwrap_or_else(|| panic!("{} states its parameters", model.name));
        assert!((billions / stated - 1.0).abs() < 0.01, "{}: {billions:.4} of {stated}", model.name);
    }
}

#[test]
fn every_model_has_a_name_of_its_own_and_a_source() {
    let mut known = BTreeSet::new();
    for model in Model::all() {
        assert!(known.insert(&model.name) && known.insert(&model.title), "{} is listed twice", model.name);
        assert!(!model.source.is_empty(), "{}", model.name);
        assert_eq!(model.name, model.name.to_ascii_lowercase());
    }
}

#[test]
fn layers_are_dense_or_of_experts_as_published() {
    let kinds = |name: &str| {
        let model = Model::named(name).unwrap();
        let layers: Vec<Layer> = (0..model.layers).map(|index| model.layer(index)).collect();
        let with = |has: fn(&Layer) -> bool| layers.iter().filter(|layer| has(layer)).count();
        (with(|layer| layer.mlp == Mlp::Experts), with(|layer| layer.mixer == Mixer::Window))
    };
    assert_eq!(kinds("llama3-70b"), (0, 0));
    assert_eq!(kinds("deepseek-v3"), (58, 0));
    assert_eq!(kinds("llama4-maverick"), (24, 0));
    assert_eq!(kinds("gpt-oss-120b"), (36, 18));
    assert_eq!(kinds("mistral-7b"), (0, 32));
    assert_eq!(kinds("gemma3-27b"), (0, 52));
}

#[test]
fn hybrids_have_layers_with_attention_with_a_state_and_of_a_mlp_alone_as_published() {
    let kinds = |name: &str| {
        let model = Model::named(name).unwrap();
        let layers: Vec<Layer> = (0..model.layers).map(|index| model.layer(index)).collect();
        let with = |has: fn(&Layer) -> bool| layers.iter().filter(|layer| has(layer)).count();
        [
            with(|layer| layer.attends()),
            with(|layer| layer.mixer == Mixer::State),
            with(|layer| layer.mixer == Mixer::None),
            with(|layer| layer.mlp == Mlp::None),
        ]
    };
    assert_eq!(kinds("qwen3.5-397b-a17b"), [15, 45, 0, 0]);
    assert_eq!(kinds("qwen3-next-80b-a3b"), [12, 36, 0, 0]);
    assert_eq!(kinds("nemotron-h-8b"), [4, 24, 24, 28]);
    assert_eq!(kinds("nemotron3-nano-30b-a3b"), [6, 23, 23, 29]);
    assert_eq!(kinds("granite4-h-small"), [4, 36, 0, 0]);
}

#[test]
fn patterns_that_contradict_the_model_are_refused() {
    let next = Model::named("qwen3-next-80b-a3b").unwrap();
    let dense = Model { experts: None, ..Model::named("nemotron3-nano-30b-a3b").unwrap().clone() };
    let of = |pattern: &str| Model { pattern: pattern.to_owned(), ..next.clone() };
    let heads = next.recurrent.map(|one| nvcoll_step::recurrent::Recurrent { value_heads: 24, ..one });
    for (model, reason) in [
        (of("mmma?"), "the letter `?`"),
        (of(""), "need one another"),
        (of(&"m".repeat(49)), "49 letters for 48 layers"),
        (dense, "need `experts`"),
        (Model { recurrent: heads, ..next.clone() }, "contradict"),
    ] {
        let error = model.check().unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn an_unknown_model_is_refused_with_the_names_there_are() {
    let error = Model::named("llama5").unwrap_err();
    assert!(matches!(&error, Error::Unknown { .. }) && error.to_string().contains("llama3.1-405b"), "{error}");
}

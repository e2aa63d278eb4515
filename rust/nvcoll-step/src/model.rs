//! Transformers: their dimensions, and the parameters that follow from them.
//!
//! A model is one row of `data/models.toml`, or the same fields in a file of the user's. Layers differ in two ways only: a layer has a
//! dense MLP or experts, and it sees the whole sequence or a window. [`Model::layer`] says which of the four a layer is.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::tables;

/// The dimensions of a transformer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Its name, as `llama3-70b`.
    pub name: String,
    /// What people call it.
    #[serde(default)]
    pub title: String,
    /// The number of transformer layers.
    pub layers: u32,
    /// The width of the residual stream.
    pub hidden: u64,
    /// The number of attention heads.
    pub heads: u64,
    /// The number of heads of keys and values: fewer than `heads` with grouped-query attention.
    pub kv_heads: u64,
    /// The elements of one head.
    pub head_dim: u64,
    /// The width of the MLP of a dense layer.
    pub ffn: u64,
    /// Whether the MLP is gated (SwiGLU, GeGLU): three matrices instead of two.
    pub gated: bool,
    /// The number of tokens of the vocabulary.
    pub vocab: u64,
    /// Whether the embedding and the head share one matrix.
    pub tied: bool,
    /// How tokens know their positions.
    #[serde(default)]
    pub positions: Positions,
    /// The sequence length in tokens with which it was pretrained.
    pub sequence: u64,
    /// Latent attention, as in DeepSeek-V2 and V3, instead of heads of keys and values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mla: Option<LatentAttention>,
    /// Its experts, if it is a mixture of experts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experts: Option<Experts>,
    /// The sliding window of some of its layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// The number of parameters that its authors state, in billions: a test compares it with the dimensions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params_b: Option<f64>,
    /// Where the dimensions are from.
    #[serde(default)]
    pub source: String,
}

/// How tokens know their positions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Positions {
    /// Queries and keys are rotated in every layer.
    #[default]
    Rotary,
    /// A learned table is added to the embedding.
    Learned,
    /// A bias on the scores.
    Alibi,
    /// Not at all.
    None,
}

/// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): ranks of the projections and parts of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatentAttention {
    /// The rank of the projection of queries; 0 if queries have none.
    pub q: u64,
    /// The rank of the projection of keys and values.
    pub kv: u64,
    /// The elements of a query or key that are not rotated.
    pub nope: u64,
    /// The elements of a query or key that are rotated.
    pub rope: u64,
    /// The elements of a value.
    pub v: u64,
}

/// The experts of a mixture of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experts {
    /// The number of routed experts of a layer.
    pub count: u64,
    /// The number of routed experts that a token uses.
    pub top_k: u64,
    /// The width of the MLP of one expert.
    pub ffn: u64,
    /// The width of the shared experts together, in widths of one routed expert.
    #[serde(default)]
    pub shared: u64,
    /// The number of first layers that have a dense MLP instead.
    #[serde(default)]
    pub dense_layers: u32,
    /// Of the layers after those, every so manieth has experts: 2 for Llama 4 Maverick.
    #[serde(default = "every")]
    pub every: u32,
}

fn every() -> u32 {
    1
}

/// A sliding window of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// The tokens that a token sees.
    pub tokens: u64,
    /// Of `every` layers all but the last have the window: 2 if every second layer has it, 1 if all have it.
    pub every: u32,
}

/// In which ways a layer differs from others of its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Layer {
    /// Whether it has experts instead of a dense MLP.
    pub has_experts: bool,
    /// Whether it sees only the window.
    pub has_window: bool,
}

/// The parameters of one layer, by what shards them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Parameters {
    /// Of attention, dense MLP, shared experts and router.
    pub dense: f64,
    /// Of the routed experts.
    pub experts: f64,
}

/// The most of any dimension. Chosen: products of two of them, times the factors here, stay far below 2^64.
const MOST: u64 = 1 << 24;

static MODELS: LazyLock<Vec<Model>> = LazyLock::new(|| tables::rows(include_str!("data/models.toml"), "model"));

impl Model {
    /// Returns the models that are shipped.
    pub fn all() -> &'static [Self] {
        &MODELS
    }

    /// Finds a model that is shipped.
    ///
    /// # Errors
    /// [`Error::Unknown`], with all names.
    pub fn named(name: &str) -> Result<&'static Self> {
        tables::named("model", name, Self::all(), |one| &one.name)
    }

    /// Refuses dimensions that no transformer has.
    ///
    /// # Errors
    /// [`Error::Model`] with the dimension that is wrong.
    pub fn check(&self) -> Result<()> {
        let refuse = |reason: String| Err(Error::Model { name: self.name.clone(), reason });
        let sizes = [self.hidden, self.heads, self.kv_heads, self.head_dim, self.ffn, self.vocab, self.sequence];
        let names = ["hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "sequence"];
        if let Some((name, size)) = names.iter().zip(sizes).find(|(_, size)| !(1..=MOST).contains(size)) {
            return refuse(format!("`{name}` is {size}, 1 to {MOST} was expected"));
        }
        let latents = self.mla.map_or([1; 4], |mla| [mla.kv, mla.nope, mla.v, mla.q.saturating_add(1)]);
        if latents.iter().any(|size| !(1..=MOST).contains(size)) || self.mla.is_some_and(|mla| mla.rope > MOST) {
            return refuse(format!(
                "latent attention of {:?}: 1 to {MOST} was expected, q and rope may be 0",
                self.mla
            ));
        }
        if self.layers == 0 || self.layers > 100_000 {
            return refuse(format!("it has {} layers, 1 to 100,000 were expected", self.layers));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return refuse(format!("{} heads cannot share {} heads of keys and values", self.heads, self.kv_heads));
        }
        if let Some(experts) = self.experts {
            let Experts { count, top_k, ffn, every, dense_layers, shared } = experts;
            let are_sizes = [count, top_k, ffn].iter().all(|size| (1..=MOST).contains(size)) && shared <= MOST;
            if !are_sizes || top_k > count || every == 0 || dense_layers > self.layers {
                return refuse(format!("its experts contradict each other: {experts:?}"));
            }
        }
        if self.window.is_some_and(|window| window.tokens == 0 || window.every == 0) {
            return refuse("its window has no tokens, or repeats every 0 layers".to_owned());
        }
        Ok(())
    }

    /// Returns the kind of the layer at `index`, counted from 0.
    pub fn layer(&self, index: u32) -> Layer {
        let has_experts = self
            .experts
            .is_some_and(|one| index >= one.dense_layers && (index - one.dense_layers + 1).is_multiple_of(one.every));
        let has_window = self.window.is_some_and(|one| one.every == 1 || !(index + 1).is_multiple_of(one.every));
        Layer { has_experts, has_window }
    }

    /// Returns the kinds of its layers, with the number of each.
    pub(crate) fn kinds(&self) -> BTreeMap<Layer, u32> {
        let mut found = BTreeMap::new();
        (0..self.layers).for_each(|index| *found.entry(self.layer(index)).or_default() += 1);
        found
    }

    /// Returns the parameters of a layer; norms and biases are left out, less than 0.1 %.
    pub fn layer_parameters(&self, layer: Layer) -> Parameters {
        let hidden = self.hidden as f64;
        let mlp = |width: u64| if self.gated { 3.0 } else { 2.0 } * hidden * width as f64;
        match self.experts.filter(|_| layer.has_experts) {
            None => Parameters { dense: self.attention_parameters() + mlp(self.ffn), experts: 0.0 },
            Some(one) => Parameters {
                dense: self.attention_parameters() + mlp(one.shared * one.ffn) + hidden * one.count as f64,
                experts: one.count as f64 * mlp(one.ffn),
            },
        }
    }

    fn attention_parameters(&self) -> f64 {
        let (hidden, heads) = (self.hidden as f64, self.heads as f64);
        let Some(mla) = self.mla else {
            return hidden * self.head_dim as f64 * (2 * self.heads + 2 * self.kv_heads) as f64;
        };
        let [q, kv, nope, rope, v] = [mla.q, mla.kv, mla.nope, mla.rope, mla.v].map(|size| size as f64);
        let queries = if mla.q == 0 { hidden * heads * (nope + rope) } else { q * (hidden + heads * (nope + rope)) };
        queries + hidden * (kv + rope) + kv * heads * (nope + v) + heads * v * hidden
    }

    /// Returns the number of parameters of the embedding, which is also the number of the head.
    pub fn embedding_parameters(&self) -> f64 {
        (self.vocab * self.hidden) as f64
    }

    /// Returns the number of parameters.
    pub fn parameters(&self) -> f64 {
        let layers = (0..self.layers).map(|index| self.layer_parameters(self.layer(index)));
        let matrices = if self.tied { 1.0 } else { 2.0 };
        layers.map(|one| one.dense + one.experts).sum::<f64>() + matrices * self.embedding_parameters()
    }

    /// Returns the FLOPs of the model per token, forward and backward, nothing computed twice: 6 per parameter that the token
    /// multiplies with, and the scores; causal attention needs half of the scores.
    ///
    /// The convention of Megatron-Bridge since 25.09. Others count the whole square of scores.
    pub fn flops_per_token(&self, sequence: u64) -> f64 {
        let scores = |layer: Layer| {
            let seen = self.window.filter(|_| layer.has_window).map_or(sequence, |one| one.tokens.min(sequence));
            let pairs = seen as f64 * (1.0 - seen as f64 / (2.0 * sequence as f64));
            6.0 * pairs * self.heads as f64 * self.score_elements()
        };
        let layers = (0..self.layers).map(|index| {
            let layer = self.layer(index);
            let one = self.layer_parameters(layer);
            let active = self.experts.map_or(0.0, |experts| one.experts * experts.top_k as f64 / experts.count as f64);
            6.0 * (one.dense + active) + scores(layer)
        });
        layers.sum::<f64>() + 6.0 * self.embedding_parameters()
    }

    /// Returns the elements of a query and of a value of one head together.
    pub(crate) fn score_elements(&self) -> f64 {
        self.mla.map_or(2 * self.head_dim, |mla| mla.nope + mla.rope + mla.v) as f64
    }
}

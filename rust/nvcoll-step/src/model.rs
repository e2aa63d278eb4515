//! Transformers: their dimensions, and the parameters that follow from them.
//!
//! A model is one row of `data/models.toml`, or the same fields in a file of the user's. A layer mixes tokens (attention to the whole
//! sequence or a window, or a state) and has a MLP (dense or of experts), or has one of the two alone. [`Model::layer`] says which.
//!
//! | letter of `pattern` | the layer |
//! |---|---|
//! | `a`, `m` | attention, or a state; then the MLP |
//! | `*`, `M`, `-`, `E` | attention, a state, a dense MLP, experts, alone: letters of Megatron-LM |
//!
//! All layers are `a` without a pattern; a pattern shorter than the model repeats.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::recurrent::Recurrent;
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
    /// The indexer of sparse attention, as in DeepSeek-V3.2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indexer: Option<Indexer>,
    /// Its experts, if it is a mixture of experts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experts: Option<Experts>,
    /// The sliding window of some of its layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// The layers that keep a state instead of keys and values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recurrent: Option<Recurrent>,
    /// Its kinds of layers, a letter each, repeated.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pattern: String,
    /// Whether a gate as wide as the queries multiplies the result of attention, as in Qwen3-Next.
    #[serde(default, skip_serializing_if = "is_no")]
    pub output_gate: bool,
    /// The number of parameters that its authors state, in billions: a test compares it with the dimensions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params_b: Option<f64>,
    /// Where the dimensions are from.
    #[serde(default)]
    pub source: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_no(value: &bool) -> bool {
    !*value
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

/// Sparse attention (DeepSeek-V3.2, arXiv 2512.02556): heads of an indexer score all keys, and attention sees the best of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Indexer {
    /// The number of its heads, which share one key.
    pub heads: u64,
    /// The elements of a query and of the key.
    pub head_dim: u64,
    /// The keys that a query of attention sees.
    pub keys: u64,
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

/// How a layer mixes tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mixer {
    /// Attention to the whole sequence.
    Attention,
    /// Attention to the window.
    Window,
    /// A state.
    State,
    /// Not at all: it is a MLP alone.
    None,
}

/// The MLP of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mlp {
    /// Dense.
    Dense,
    /// Routed and shared experts.
    Experts,
    /// None: it mixes tokens alone.
    None,
}

/// In which ways a layer differs from others of its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Layer {
    /// How it mixes tokens.
    pub mixer: Mixer,
    /// Its MLP.
    pub mlp: Mlp,
    /// Whether it is frozen, as are all layers before it: it has no backward pass.
    pub is_frozen: bool,
}

impl Layer {
    /// Says whether it has attention, of any kind.
    pub const fn attends(self) -> bool {
        matches!(self.mixer, Mixer::Attention | Mixer::Window)
    }

    /// Returns its parts: mixer, MLP. Each has a norm and adds its result to the residual stream.
    pub(crate) fn parts(self) -> f64 {
        f64::from(u8::from(self.mixer != Mixer::None) + u8::from(self.mlp != Mlp::None))
    }
}

/// The parameters of one layer, by what shards them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Parameters {
    /// Of attention, states, dense MLP, shared experts and router.
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
        let sizes = self.indexer.map_or([1; 3], |one| [one.heads, one.head_dim, one.keys]);
        if sizes.iter().any(|size| !(1..=MOST).contains(size)) || self.indexer.is_some() && self.mla.is_none() {
            return refuse(format!("{:?}: sizes of 1 to {MOST}, and latent attention were expected", self.indexer));
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
        self.check_pattern()
    }

    /// Refuses a pattern that says nothing, or needs what the model lacks.
    fn check_pattern(&self) -> Result<()> {
        let refuse = |reason: String| Err(Error::Model { name: self.name.clone(), reason });
        let is_used = |letters: [char; 2]| self.pattern.contains(letters);
        if let Some(letter) = self.pattern.chars().find(|one| !"am*M-E".contains(*one)) {
            return refuse(format!("`pattern` has the letter `{letter}`: a, m, *, M, -, E were expected"));
        }
        if self.pattern.len() > self.layers as usize {
            return refuse(format!("`pattern` has {} letters for {} layers", self.pattern.len(), self.layers));
        }
        if is_used(['m', 'M']) != self.recurrent.is_some() {
            return refuse("layers m and M of `pattern`, and `recurrent`, need one another".to_owned());
        }
        if self.pattern.contains('E') && self.experts.is_none() {
            return refuse("layers E of `pattern` need `experts`".to_owned());
        }
        let Some(one) = self.recurrent else { return Ok(()) };
        let are_sizes = one.sizes().iter().all(|size| (1..=MOST).contains(size));
        if !are_sizes || !one.value_heads.is_multiple_of(one.key_heads) {
            return refuse(format!("its layers with a state contradict each other: {one:?}"));
        }
        Ok(())
    }

    /// Returns the kind of the layer at `index`, counted from 0.
    pub fn layer(&self, index: u32) -> Layer {
        let has_experts = self
            .experts
            .is_some_and(|one| index >= one.dense_layers && (index - one.dense_layers + 1).is_multiple_of(one.every));
        let has_window = self.window.is_some_and(|one| one.every == 1 || !(index + 1).is_multiple_of(one.every));
        let attention = if has_window { Mixer::Window } else { Mixer::Attention };
        let mlp = if has_experts { Mlp::Experts } else { Mlp::Dense };
        let letters = self.pattern.as_bytes();
        let (mixer, mlp) = match letters.get(index as usize % letters.len().max(1)) {
            Some(b'm') => (Mixer::State, mlp),
            Some(b'M') => (Mixer::State, Mlp::None),
            Some(b'*') => (attention, Mlp::None),
            Some(b'-') => (Mixer::None, Mlp::Dense),
            Some(b'E') => (Mixer::None, Mlp::Experts),
            _ => (attention, mlp),
        };
        Layer { mixer, mlp, is_frozen: false }
    }

    /// Returns the kinds of its layers, with the number of each.
    pub(crate) fn kinds(&self) -> BTreeMap<Layer, u32> {
        let mut found = BTreeMap::new();
        (0..self.layers).for_each(|index| *found.entry(self.layer(index)).or_default() += 1);
        found
    }

    /// Returns the parameters of a layer of multi-token prediction: the last layer, and a projection of two residual streams to one.
    pub fn prediction_parameters(&self) -> Parameters {
        let layer = self.layer_parameters(self.layer(self.layers - 1));
        Parameters { dense: layer.dense + 2.0 * (self.hidden * self.hidden) as f64, ..layer }
    }

    /// Returns the parameters of a layer; norms and biases are left out, less than 0.1 %.
    pub fn layer_parameters(&self, layer: Layer) -> Parameters {
        let hidden = self.hidden as f64;
        let mlp = |width: u64| if self.gated { 3.0 } else { 2.0 } * hidden * width as f64;
        let mixer = match (layer.mixer, self.recurrent) {
            (Mixer::State, Some(one)) => one.parameters(hidden),
            (Mixer::Attention | Mixer::Window, _) => self.attention_parameters(),
            _ => 0.0,
        };
        match (layer.mlp, self.experts) {
            (Mlp::Dense, _) => Parameters { dense: mixer + mlp(self.ffn), experts: 0.0 },
            (Mlp::Experts, Some(one)) => Parameters {
                dense: mixer + mlp(one.shared * one.ffn) + hidden * one.count as f64,
                experts: one.count as f64 * mlp(one.ffn),
            },
            _ => Parameters { dense: mixer, experts: 0.0 },
        }
    }

    fn attention_parameters(&self) -> f64 {
        let (hidden, heads) = (self.hidden as f64, self.heads as f64);
        let Some(mla) = self.mla else {
            let gates = if self.output_gate { self.heads } else { 0 };
            return hidden * self.head_dim as f64 * (2 * self.heads + 2 * self.kv_heads + gates) as f64;
        };
        let [q, kv, nope, rope, v] = [mla.q, mla.kv, mla.nope, mla.rope, mla.v].map(|size| size as f64);
        let queries = if mla.q == 0 { hidden * heads * (nope + rope) } else { q * (hidden + heads * (nope + rope)) };
        let index = self.indexer.map_or(0.0, |one| {
            let (heads, size) = (one.heads as f64, one.head_dim as f64);
            heads * size * if mla.q == 0 { hidden } else { q } + hidden * (size + heads)
        });
        queries + hidden * (kv + rope) + kv * heads * (nope + v) + heads * v * hidden + index
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
    /// multiplies with, the scores, and three times what a state takes forward; causal attention needs half of the scores.
    ///
    /// The convention of Megatron-Bridge since 25.09. Others count the whole square of scores.
    pub fn flops_per_token(&self, sequence: u64) -> f64 {
        let layers = (0..self.layers).map(|index| self.layer_flops(self.layer(index), sequence));
        layers.sum::<f64>() + 6.0 * self.embedding_parameters()
    }

    /// Returns the FLOPs of a layer per token.
    pub(crate) fn layer_flops(&self, layer: Layer, sequence: u64) -> f64 {
        let parameters = self.layer_parameters(layer);
        let part = self.experts.map_or(0.0, |experts| experts.top_k as f64 / experts.count as f64);
        6.0 * (parameters.dense + part * parameters.experts) + self.mixer_flops(layer, sequence)
    }

    fn mixer_flops(&self, layer: Layer, sequence: u64) -> f64 {
        if !layer.attends() {
            let state = self.recurrent.filter(|_| layer.mixer == Mixer::State);
            return state.map_or(0.0, |one| 3.0 * one.token_flops());
        }
        let sequence = sequence as f64;
        let seen = self.most_seen(layer).map_or(sequence, |most| most.min(sequence));
        let pairs = seen * (1.0 - seen / (2.0 * sequence));
        let index = self.indexer.map_or(0.0, |one| 6.0 * sequence / 2.0 * (one.heads * one.head_dim) as f64);
        6.0 * pairs * self.heads as f64 * self.score_elements() + index
    }

    /// Returns the most tokens that a query of a layer sees, if there are any.
    pub(crate) fn most_seen(&self, layer: Layer) -> Option<f64> {
        let window = self.window.filter(|_| layer.mixer == Mixer::Window).map(|one| one.tokens);
        window.or(self.indexer.map(|one| one.keys)).map(|tokens| tokens as f64)
    }

    /// Returns the elements of a query and of a value of one head together.
    pub(crate) fn score_elements(&self) -> f64 {
        self.mla.map_or(2 * self.head_dim, |mla| mla.nope + mla.rope + mla.v) as f64
    }
}

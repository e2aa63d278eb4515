//! Layers that keep a state of a fixed size for each sequence, instead of keys and values of all its tokens.
//!
//! ```text
//! a layer     projection to q, k, v, gate, decays ─▶ short convolution of q, k, v ─▶ state ─▶ gated norm ─▶ projection back
//! scan        S = decay S + k v'               o = S' q       Mamba-2 (arXiv 2405.21060): k is B, q is C, v is x; heads share k and q
//! delta       S = decay S + k (beta (v - S' k))'  o = S' q    gated delta net (arXiv 2412.06464)
//! ```
//!
//! A token that is generated reads and writes the state once. Of many tokens, those of a chunk see each other by products, as in attention, and
//! earlier ones by the state at the start of the chunk: cost per token and head, C tokens in a chunk, keys of K and values of V elements,
//!
//! | rule | FLOPs | elements that kernels read and write |
//! |---|---|---|
//! | scan | 2 (C V + 2 K V), and 2 C K for each head of keys | 3 V, states 4 K V / C, and 4 K for each head of keys |
//! | delta | 2 (C (3 K + 2 V) + C^2 / 2 + 3 K V) | 6 V + 7 K, states 2 K V / C, scores 4 C |
//!
//! Source: the kernels of flash-linear-attention and mamba_ssm. Not here: Mamba-1, decays for each element of a key (Kimi Linear).

use serde::{Deserialize, Serialize};

/// How the state of a layer changes with a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateRule {
    /// It decays, and a product is added: Mamba-2.
    Scan,
    /// What the state has for the key is replaced in part: gated delta net.
    Delta,
}

/// The dimensions of layers with a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recurrent {
    /// How the state changes.
    pub rule: StateRule,
    /// The heads of queries and keys: groups of Mamba-2.
    pub key_heads: u64,
    /// The heads of values, which have a state each.
    pub value_heads: u64,
    /// The elements of a query and a key: the state size of Mamba-2.
    pub key_dim: u64,
    /// The elements of a value.
    pub value_dim: u64,
    /// The tokens of the short convolution.
    pub convolution: u64,
}

/// Bytes of an element of a state, in training and in servers: fp32.
const STATE: f64 = 4.0;

/// What one rank has of a layer with a state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RankRecurrent {
    of: Recurrent,
    key_heads: f64,
    value_heads: f64,
}

impl Recurrent {
    /// Returns its sizes.
    pub(crate) const fn sizes(&self) -> [u64; 5] {
        [self.key_heads, self.value_heads, self.key_dim, self.value_dim, self.convolution]
    }

    /// Returns its parameters in a model of a width; the convolution and what each head has are left out, less than 0.1 %.
    pub(crate) fn parameters(self, hidden: f64) -> f64 {
        let one = self.on_rank(1.0);
        hidden * (one.convolved() + 2.0 * one.value_width() + one.decays())
    }

    /// Returns what one of some ranks has, which divide the heads.
    pub(crate) fn on_rank(self, ranks: f64) -> RankRecurrent {
        let key_heads = (self.key_heads as f64 / ranks).max(1.0);
        RankRecurrent { of: self, key_heads, value_heads: self.value_heads as f64 / ranks }
    }

    /// The tokens of a chunk: those of the kernels of flash-linear-attention, and of Mamba-2 in Megatron-LM and Nemotron-H.
    const fn chunk(&self) -> f64 {
        match self.rule {
            StateRule::Scan => 128.0,
            StateRule::Delta => 64.0,
        }
    }

    /// Returns the FLOPs of a token on the state, forward. Source: Megatron-LM counts 7 for each element for Mamba-2, 8 for delta nets.
    pub(crate) fn token_flops(&self) -> f64 {
        let elements = (self.value_heads * self.key_dim * self.value_dim) as f64;
        elements * if self.rule == StateRule::Delta { 8.0 } else { 7.0 }
    }
}

impl RankRecurrent {
    /// Returns how its state changes.
    pub(crate) const fn rule(&self) -> StateRule {
        self.of.rule
    }

    /// Returns the columns of decays and steps.
    pub(crate) fn decays(&self) -> f64 {
        self.value_heads * if self.of.rule == StateRule::Delta { 2.0 } else { 1.0 }
    }

    /// Returns the elements of the values of a token.
    pub(crate) fn value_width(&self) -> f64 {
        self.value_heads * self.of.value_dim as f64
    }

    /// Returns the elements of a token that the convolution reads, and writes.
    pub(crate) fn convolved(&self) -> f64 {
        2.0 * self.key_heads * self.of.key_dim as f64 + self.value_width()
    }

    /// Returns the bytes of the state of a sequence, and of the tokens that the next convolution needs.
    pub(crate) fn state_bytes(&self) -> f64 {
        self.value_width() * self.of.key_dim as f64 * STATE + self.convolved() * (self.of.convolution - 1) as f64 * 2.0
    }

    /// Returns the work on tokens of which those of a chunk are products, some times: as one kernel of (chunk, sums) times (sums, value).
    pub(crate) fn chunked(&self, tokens: f64, passes: f64) -> StateChunks {
        let [key, value] = [self.of.key_dim, self.of.value_dim].map(|size| size as f64);
        let (heads, shared) = (self.value_heads, self.key_heads / self.value_heads);
        let chunk = self.of.chunk();
        let (sums, elements) = match self.of.rule {
            StateRule::Scan => (
                chunk * (value + shared * key) + 2.0 * key * value,
                3.0 * value + 4.0 * key * value / chunk + 4.0 * key * shared,
            ),
            StateRule::Delta => (
                chunk * (3.0 * key + 2.0 * value) + chunk * chunk / 2.0 + 3.0 * key * value,
                6.0 * value + 7.0 * key + 2.0 * key * value / chunk + 4.0 * chunk,
            ),
        };
        StateChunks {
            sizes: [chunk, value, sums / value],
            batch: passes * heads * tokens / chunk,
            bytes: passes * heads * tokens * 2.0 * elements,
        }
    }
}

/// Products of chunks, as one kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StateChunks {
    /// Rows, columns and sums of each product.
    pub(crate) sizes: [f64; 3],
    pub(crate) batch: f64,
    pub(crate) bytes: f64,
}

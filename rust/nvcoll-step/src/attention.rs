//! Fused or unfused attention of all heads of a rank, as planned and as recorded steps have it.

use serde::{Deserialize, Serialize};

use crate::software::AttentionKernel;

const fn yes() -> bool {
    true
}

const fn is_yes(value: &bool) -> bool {
    *value
}

/// One kernel of attention, or the kernels that do the same unfused.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    /// The queries of one sequence on this rank.
    pub queries: f64,
    /// The keys that the last query of the sequence sees without a window: its tokens.
    pub keys: f64,
    /// The tokens of the sliding window, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<f64>,
    /// The sequences of a micro-batch.
    pub sequences: f64,
    /// The heads of queries on this rank.
    pub heads: f64,
    /// Elements of a query and a key.
    pub qk_dim: f64,
    /// Elements of a value.
    pub v_dim: f64,
    /// The kernel.
    pub kernel: AttentionKernel,
    /// Whether it is the backward pass.
    #[serde(default)]
    pub backward: bool,
    /// Whether a query sees only the keys before it.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub causal: bool,
    /// The bytes that the kernel reads and writes, if they may take longer than its FLOPs: a token that is generated reads all keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<f64>,
}

impl Attention {
    /// Returns the scores of all queries and keys, seen or not.
    pub fn scores(&self) -> f64 {
        self.sequences * self.heads * self.queries * self.keys
    }

    /// Returns the part of the keys that the window lets a query see.
    pub fn part_of_keys(&self) -> f64 {
        self.window.map_or(1.0, |tokens| (tokens / self.keys).min(1.0))
    }

    /// Returns FLOPs of the scores that are seen; backward with the scores computed again.
    pub fn flops(&self) -> f64 {
        let part = self.part_of_keys();
        let seen = if self.causal { part * (1.0 - part / 2.0) } else { part };
        let passes = if self.backward { 2.5 } else { 1.0 };
        passes * 2.0 * self.scores() * (self.qk_dim + self.v_dim) * seen
    }

    /// Returns its numbers; all are at least 0.
    pub(crate) fn numbers(&self) -> Vec<f64> {
        let Self { queries, keys, window, sequences, heads, qk_dim, v_dim, .. } = *self;
        vec![queries, keys, window.unwrap_or(1.0), sequences, heads, qk_dim, v_dim, self.bytes.unwrap_or(0.0)]
    }
}

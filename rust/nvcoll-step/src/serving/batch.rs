//! The batch of an iteration.

use serde::{Deserialize, Serialize};

/// The sequences of an iteration on one attention copy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IterationBatch {
    /// Sequences of which a token is generated.
    pub decodes: f64,
    /// The tokens of each of these that are computed: more than one if drafts are checked.
    pub checked: f64,
    /// The tokens of these sequences in the cache.
    pub cached: f64,
    /// Prompts that are read.
    pub prompts: f64,
    /// The tokens of prompts that are read.
    pub tokens: f64,
    /// Pairs of these tokens and the tokens that they see.
    pub pairs: f64,
}

impl Default for IterationBatch {
    fn default() -> Self {
        Self { decodes: 0.0, checked: 1.0, cached: 0.0, prompts: 0.0, tokens: 0.0, pairs: 0.0 }
    }
}

impl IterationBatch {
    /// Returns the tokens that pass through the layers.
    pub(super) fn rows(&self) -> f64 {
        self.decodes * self.checked + self.tokens
    }
}

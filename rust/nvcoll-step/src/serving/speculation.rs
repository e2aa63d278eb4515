//! Tokens that are drafted ahead, and checked together (arXiv 2211.17192).
//!
//! ```text
//! iteration = one token and k drafts of each sequence, checked + k passes of what drafts, the first over all new tokens
//! tokens    = 1 + a + a^2 + ... + a^k of each sequence, a: the acceptance of a draft whose predecessors were accepted
//! ```
//!
//! The keys and values of a sequence are read once for its k + 1 tokens. Not here: trees of drafts, a number of drafts that varies, and the
//! projection of hidden states by a head.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::model::Model;

/// The most tokens that are drafted. Chosen.
const MOST: u32 = 64;

/// How tokens are drafted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Speculation {
    /// Tokens that are drafted for each sequence in an iteration.
    pub tokens: u32,
    /// The part of drafted tokens that is accepted, of those whose predecessors were.
    pub acceptance: f64,
    /// What drafts.
    pub draft: Drafter,
}

/// What drafts tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Drafter {
    /// A search in the text so far: it takes no time of the GPU.
    Ngram,
    /// One more layer of the model, which reads hidden states of the model: EAGLE, or multi-token prediction.
    Head,
    /// A smaller model.
    Model(Box<Model>),
}

impl Speculation {
    /// Refuses what cannot be.
    pub(super) fn check(&self) -> Result<()> {
        let Self { tokens, acceptance, .. } = self;
        if *tokens > MOST || !(0.0..=1.0).contains(acceptance) {
            return Err(Error::Request(format!(
                "{tokens} tokens are drafted, {acceptance} of them accepted: 0 to {MOST}, and 0 to 1 were expected"
            )));
        }
        Ok(())
    }

    /// Returns the tokens of a sequence that an iteration adds, on average.
    pub(super) fn added(&self) -> f64 {
        (0..=self.tokens).map(|accepted| self.acceptance.powf(f64::from(accepted))).sum()
    }
}

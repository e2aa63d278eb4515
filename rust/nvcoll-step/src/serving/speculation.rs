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

use super::ServingRequest;
use crate::error::{Error, Result};
use crate::model::{Experts, Model};

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
    pub draft: Draft,
}

/// What drafts tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Draft {
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
    fn added(&self) -> f64 {
        (0..=self.tokens).map(|accepted| self.acceptance.powf(f64::from(accepted))).sum()
    }
}

impl ServingRequest {
    /// Returns how tokens are drafted, if any are.
    fn drafting(&self) -> Option<&Speculation> {
        self.speculation.as_ref().filter(|one| one.tokens > 0)
    }

    /// Returns the tokens of a generating sequence that an iteration computes.
    pub(super) fn checked_tokens(&self) -> f64 {
        self.drafting().map_or(1.0, |one| f64::from(one.tokens + 1))
    }

    /// Returns the tokens of a generating sequence that an iteration adds, on average.
    pub(super) fn added_tokens(&self) -> f64 {
        self.drafting().map_or(1.0, Speculation::added)
    }

    /// Says whether tokens are drafted by a layer that has embedding and head of the model.
    pub(super) fn shares_ends(&self) -> bool {
        self.drafting().is_some_and(|one| one.draft == Draft::Head)
    }

    /// Returns the model that drafts, served as this one is, if a model does.
    pub(super) fn draft(&self) -> Option<Self> {
        let model = match &self.drafting()?.draft {
            Draft::Ngram => return None,
            Draft::Head => self.model.head(),
            Draft::Model(model) => (**model).clone(),
        };
        let expert = if model.experts.is_some() { self.layout.expert } else { 1 };
        let layout = super::ServingLayout { expert, stages: 1, ..self.layout };
        Some(Self { model, layout, speculation: None, ..self.clone() })
    }
}

impl Model {
    /// Returns one layer of a model as a model of its own, as a head is: with experts if others have them, and without a window.
    fn head(&self) -> Self {
        let experts = self.experts.map(|one| Experts { dense_layers: 0, every: 1, ..one });
        Self { name: format!("the head of {}", self.name), layers: 1, experts, window: None, ..self.clone() }
    }
}

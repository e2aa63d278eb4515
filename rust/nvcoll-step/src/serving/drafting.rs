//! What drafts tokens of a server: a model that is served as the server's own, on the same GPUs.

use super::speculation::{Drafter, Speculation};
use super::ServingRequest;
use crate::model::{Experts, Model};

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
        self.drafting().is_some_and(|one| one.draft == Drafter::Head)
    }

    /// Returns the model that drafts, served as this one is, if a model does.
    pub(super) fn draft(&self) -> Option<Self> {
        let model = match &self.drafting()?.draft {
            Drafter::Ngram => return None,
            Drafter::Head => self.model.head(),
            Drafter::Model(model) => (**model).clone(),
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

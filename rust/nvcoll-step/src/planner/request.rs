//! What is planned, and what several parts of the planner ask of it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::layout::{Layout, Sharding};
use crate::model::{Layer, Model};
use crate::software::Software;

/// What the planner plans.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The model.
    pub model: Model,
    /// The layout.
    pub layout: Layout,
    /// The software.
    pub software: Software,
    /// The number of GPUs that NVLink joins: the GPUs of a node, or of a rack.
    pub domain: u32,
}

impl Request {
    /// Says whether parameters are sharded and gathered for each layer and micro-batch; in a pipeline they are gathered once in a step.
    pub(super) fn shards_layers(&self) -> bool {
        self.layout.sharded() == Sharding::Parameters && self.layout.stages == 1
    }

    /// Says whether the base is frozen: adapters alone are trained.
    pub(super) fn is_adapted(&self) -> bool {
        self.layout.recipe.lora.is_some()
    }

    /// Returns the kind of the layer at `index`, counted from 0.
    pub(super) fn layer(&self, index: u32) -> Layer {
        let is_frozen = index < self.layout.recipe.frozen.unwrap_or(0);
        Layer { is_frozen, ..self.model.layer(index) }
    }

    /// Returns the kinds of layers.
    pub(super) fn kinds(&self) -> BTreeSet<Layer> {
        (0..self.model.layers).map(|index| self.layer(index)).collect()
    }

    /// Returns the trained parameters of a stage: dense ones with embedding and head, and of experts.
    pub(super) fn trained(&self, of: &StageParameters) -> (f64, f64) {
        (of.trained.0 + of.trained_ends, of.trained.1)
    }

    /// Returns the bytes of a gradient that is reduced.
    pub(super) fn gradient_bytes(&self) -> f64 {
        if self.layout.recipe.is_narrow() {
            2.0
        } else {
            self.software.gradient_bytes
        }
    }

    /// Returns the bytes of a parameter of layers that is gathered.
    pub(super) fn parameter_bytes(&self) -> f64 {
        if self.layout.recipe.quantize.is_some() {
            return self.layout.recipe.base_bytes();
        }
        if self.software.gathers_fp8 && self.layout.dtype.is_narrow() {
            1.0
        } else {
            self.software.parameter_bytes
        }
    }
}

/// Parameters of one stage on one rank.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StageParameters {
    /// Of layers, without routed experts.
    pub(super) dense: f64,
    /// Of routed experts.
    pub(super) experts: f64,
    /// Of embedding and head.
    pub(super) ends: f64,
    /// The number of layers.
    pub(super) layers: f64,
    /// Of layers, trained: adapters, or all of those that are not frozen; dense ones, and of experts.
    pub(super) trained: (f64, f64),
    /// Of embedding and head, trained.
    pub(super) trained_ends: f64,
}

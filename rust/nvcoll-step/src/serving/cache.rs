//! The memory of a server's rank: weights, what an iteration needs beside them, and the tokens for which the rest has room.
//!
//! ```text
//! cache = part of the GPU's memory - weights - largest iteration - CUDA, NCCL, graphs
//! ```
//!
//! Keys and values of full attention take room by the token, states of other layers by the sequence: a request takes both of one pool.

use super::ServingRequest;
use crate::compute::Device;
use crate::error::{Error, Result};
use crate::memory::{MemoryLine, MemoryPart, RankMemory, GIB, NCCL_BYTES};
use crate::model::{Layer, Mixer};

/// Bytes of captured graphs. Chosen: start-up logs of vLLM print 0.2 to 0.6 GiB.
const GRAPHS: f64 = 0.3 * GIB;

/// Bytes of the largest iteration for each token, in widths of the residual stream; for each sequence that is sampled, in logits of 4 bytes.
/// Chosen after a dry run of vLLM: 1.6 GiB for Llama 3 8B.
const ITERATION: [f64; 2] = [6.0, 2.0];

/// The memory of a rank.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cache {
    pub(super) weights: f64,
    pub(super) working: f64,
    /// Bytes of the cache.
    pub(super) bytes: f64,
    /// Tokens of one attention copy.
    pub(super) tokens: f64,
    /// Tokens of which the cache takes the bytes of the states of a sequence.
    pub(super) state_tokens: f64,
}

impl ServingRequest {
    /// Returns the bytes of a token in the cache of one layer on one rank.
    fn token_bytes(&self) -> f64 {
        self.key_bytes() + self.index_bytes()
    }

    /// Returns the bytes of the key of an indexer: 8 bits for an element, and a scale.
    pub(super) fn index_bytes(&self) -> f64 {
        self.model.indexer.map_or(0.0, |one| one.head_dim as f64 + 4.0)
    }

    /// Returns the bytes of keys and values of a token.
    pub(super) fn key_bytes(&self) -> f64 {
        let model = &self.model;
        let of_rank = self.layout.division(model).kv_heads;
        let elements = model
            .mla
            .map_or(2.0 * (model.kv_heads * model.head_dim) as f64 / of_rank, |mla| (mla.kv + mla.rope) as f64);
        elements * self.cache_bytes
    }

    /// Returns the memory of a rank of the stage with most layers.
    ///
    /// # Errors
    /// [`Error::Gpu`] if there is no room for the weights.
    pub(super) fn cache(&self, device: &Device) -> Result<Cache> {
        let (model, layout, software) = (&self.model, &self.layout, &self.software);
        let on_stage = (f64::from(model.layers) / f64::from(layout.stages)).ceil();
        let draft = self.draft();
        let drafting = draft.as_ref().map_or(0.0, |one| one.weights(device))
            + draft.as_ref().filter(|_| !self.shares_ends()).map_or(0.0, Self::end_bytes);
        let weights = self.weights(device) * on_stage / f64::from(model.layers) + self.end_bytes() + drafting;
        let [of_token, of_sequence] = ITERATION;
        let widest = model.hidden as f64 + model.ffn as f64 / f64::from(layout.tensor);
        let working = 2.0 * of_token * software.chunk * widest
            + 4.0 * of_sequence * software.sequences * model.vocab as f64 / f64::from(layout.attention());
        let runtime = device.context + GRAPHS + if layout.engine() > 1 { NCCL_BYTES } else { 0.0 };
        let bytes = software.utilization * device.memory - weights - working.min(0.1 * device.memory) - runtime;
        if bytes <= 0.0 {
            let (takes, has) = (weights / GIB, device.memory / GIB);
            return Err(Error::Gpu(format!(
                "{layout} of {} takes {takes:.0} GiB of weights on each {} of {has:.0} GiB: no room is left for a cache",
                model.name, device.title
            )));
        }
        let drafted = |of: fn(&Self) -> f64| draft.as_ref().map_or(0.0, of);
        let stages = f64::from(layout.stages);
        let token = self.all_token_bytes() / stages + drafted(Self::all_token_bytes);
        let state = self.state_bytes() / stages + drafted(Self::state_bytes);
        let planned = (bytes, (bytes / token).floor());
        let (bytes, tokens) = self.recorded.as_ref().map_or(planned, |one| (one.cache_bytes, one.cache_tokens));
        Ok(Cache { weights, working, bytes, tokens, state_tokens: (state / token).ceil() })
    }

    /// Bytes of the weights of all layers on one rank.
    fn weights(&self, device: &Device) -> f64 {
        let has_experts = self.model.experts.is_some();
        let of_layer = |layer: Layer| -> f64 {
            let matrices = self.matrices(layer).into_iter();
            let bytes = |kind| self.precision.of(kind, has_experts, device).bytes;
            matrices.map(|one| one.columns * one.inner * one.count * bytes(one.kind)).sum()
        };
        self.model.kinds().into_iter().map(|(kind, count)| f64::from(count) * of_layer(kind)).sum()
    }

    /// Bytes of embedding and head on one rank, of a stage that has one if there are several.
    fn end_bytes(&self) -> f64 {
        let matrices = if self.model.tied || self.layout.stages > 1 { 1.0 } else { 2.0 };
        2.0 * matrices * self.model.embedding_parameters() / f64::from(self.layout.attention())
    }

    /// Bytes of a token in the cache of all layers, on one rank.
    fn all_token_bytes(&self) -> f64 {
        self.cached_layers() * self.token_bytes()
    }

    /// Bytes of the states of a sequence in all layers, on one rank.
    fn state_bytes(&self) -> f64 {
        let kinds = self.model.kinds();
        let layers = kinds.iter().filter(|(kind, _)| kind.mixer == Mixer::State).map(|(_, &count)| f64::from(count));
        let of_layer =
            self.model.recurrent.map_or(0.0, |one| one.on_rank(self.layout.attention().into()).state_bytes());
        layers.sum::<f64>() * of_layer
    }

    /// The layers whose cache grows with a sequence: those with a window keep its tokens alone, and count as nothing for long ones.
    fn cached_layers(&self) -> f64 {
        let kinds = self.model.kinds();
        let of = |mixer: Mixer| {
            kinds.iter().filter(|(kind, _)| kind.mixer == mixer).map(|(_, &count)| f64::from(count)).sum::<f64>()
        };
        let length = self.load.input + self.load.output;
        let seen = self.model.window.map_or(0.0, |one| (one.tokens as f64 / length).min(1.0));
        of(Mixer::Attention) + of(Mixer::Window) * seen
    }
}

impl Cache {
    /// Returns the memory as a step has it.
    pub(super) fn memory(&self) -> RankMemory {
        let part = |name, bytes| MemoryPart { name, bytes };
        let parts = vec![part(MemoryLine::Parameters, self.weights), part(MemoryLine::Cache, self.bytes)];
        let allocated = self.weights + self.bytes;
        RankMemory::Allocator { allocated, reserved: allocated + self.working, parts, stack: Vec::new() }
    }
}

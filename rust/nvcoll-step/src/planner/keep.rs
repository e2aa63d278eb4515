//! What a rank keeps in memory: parameters, gradients, optimizer, activations, logits.
//!
//! Activations of a layer, in bytes per element (after Korthikanti et al. 2022, arXiv 2205.05198, with flash attention and without
//! dropout unless the software has it):
//!
//! | what | elements | bytes | unless it is computed again with |
//! |---|---|---|---|
//! | the layer's input | hidden | 2 | - |
//! | results of GEMMs but the last of a dense MLP: queries, keys, values, the residual after attention, up and gate of the MLP | their columns | 2 | GEMMs |
//! | inputs of GEMMs: norms, the MLP's product, permuted tokens | their inner elements | 2, or 1 if GEMMs are narrow | element-wise work |
//! | activated gates, where activation and gate are two kernels | width of the MLP | 2 | element-wise work |
//! | attention's result; again behind a gate | heads | 2 | attention and element-wise work |
//! | of a state: convolved queries, keys, values, the result, and again behind the gate | their widths | 2 | attention and element-wise work |
//! | scores, unfused | heads x sequence^2 | 5 with dropout, 4 without | attention |
//!
//! Sharded parameters that are gathered once in a step, in a pipeline, are kept whole until its end, and their gradients, too.
//!
//! GEMMs that are computed again in part are those with the most result per FLOP, unless the software takes all in the same part. The last GEMM
//! of a dense layer never is: nothing needs its result but the next layer.

use super::layers::{keeps_scores, LayerSizes};
use super::request::{Request, StageParameters};
use super::stages;
use crate::layout::{Recompute, Sharding};
use crate::memory::{in_flight, MemoryLine, MemoryPart, RankMemory};
use crate::model::Layer;
use crate::pipeline::Schedule;

/// Bytes of an input that is kept for a narrow GEMM, as a multiple of its bytes in bf16: Transformer Engine keeps one copy of 8 bits, that
/// of the weight gradient.
const NARROW: f64 = 0.5;

impl Request {
    pub(super) fn memory(&self, of: &StageParameters, chunks: &[stages::StageChunk], stages: &[u32]) -> RankMemory {
        let (layout, software) = (&self.layout, &self.software);
        let layers = || chunks.iter().flat_map(|chunk| &chunk.layers);
        let kept: f64 = layers().map(|&(kind, repeat)| f64::from(repeat) * self.kept(kind)).sum();
        let again = layers().map(|&(kind, _)| self.activations(kind, &Recompute::NONE) - self.kept(kind));
        let on_gpu = (1.0 - f64::from(software.offloaded_layers) / of.layers.max(1.0)).max(0.0);
        let on_gpu = on_gpu.min(self.resident("activations", of));
        let widened = layers().map(|&(kind, _)| LayerSizes::of(self, kind).widened_bytes());
        let is_sent = software.keeps_outputs && layout.stages > 1;
        let sent = if is_sent { chunks.len() as f64 * self.stream_bytes() } else { 0.0 };
        let stage = stages.first().copied().unwrap_or(0);
        let in_flight = in_flight(layout.schedule, layout.stages, layout.chunks, stage, layout.micro_batches());
        let losses = f64::from(1 + chunks.iter().map(|one| one.predicting).sum::<u32>());
        let [standing, whole] = [false, true].map(|is_whole| self.standing(of, is_whole));
        let bytes = |parts: &[MemoryPart]| parts.iter().map(|one| one.bytes).sum::<f64>();
        RankMemory::Sum {
            waiting: bytes(&whole) - bytes(&standing) + kept * (1.0 - on_gpu) * in_flight,
            standing,
            activations: kept * on_gpu + sent,
            in_flight,
            working: again.fold(0.0, f64::max) + self.gathered_bytes() + widened.fold(0.0, f64::max),
            loss: if chunks.iter().any(|chunk| chunk.head) { losses * self.loss_bytes() } else { 0.0 },
        }
    }

    /// What stays on the GPU through the step; `is_whole`: with the parts of it that wait in RAM.
    fn standing(&self, of: &StageParameters, is_whole: bool) -> Vec<MemoryPart> {
        let (layout, software) = (&self.layout, &self.software);
        let (dense, all_experts) = self.trained(of);
        let of_tensor = if software.divides_experts { f64::from(layout.tensor) } else { 1.0 };
        let experts = all_experts / of_tensor;
        let shards = f64::from(layout.shards());
        let expert_shards = f64::from(layout.expert_shards());
        let (gradient, sharded_gradient) = self.kept_gradients();
        let part = |name, bytes| MemoryPart { name, bytes };
        let optimizer = self.optimizer_bytes(of, is_whole);
        let base = self.layout.recipe.base_bytes();
        let ends = of.trained_ends;
        let resident = if is_whole { 1.0 } else { self.resident("parameters", of) };
        let trained_layers = if self.is_adapted() { (0.0, 0.0) } else { of.trained };
        let frozen = |resident: f64, shards: f64, expert_shards: f64| {
            let layers =
                (of.dense - trained_layers.0) / shards + (of.experts - trained_layers.1) / of_tensor / expert_shards;
            base * layers * resident + 2.0 * (of.ends - ends) / shards
        };
        if self.shards_layers() {
            let layer = (of.dense + if layout.expert == 1 { of.experts / of_tensor } else { 0.0 }) / of.layers.max(1.0);
            let of_experts = if layout.expert == 1 { experts } else { 0.0 };
            let ahead = if software.overlaps_sharded { 2.0 } else { 1.0 };
            let trained_layer = (dense - ends + of_experts) / of.layers.max(1.0);
            return vec![
                part(MemoryLine::Parameters, 2.0 * experts / expert_shards * resident),
                part(MemoryLine::Frozen, frozen(resident, shards, expert_shards)),
                part(MemoryLine::Gradients, sharded_gradient * dense / shards + gradient * experts / expert_shards),
                part(MemoryLine::Optimizer, optimizer),
                part(MemoryLine::Buffers, ahead * (base * layer + 2.0 * trained_layer)),
            ];
        }
        let gradients = match layout.sharded() {
            _ if layout.recipe.optimizer_in_backward == Some(true) => {
                gradient * self.largest_matrix().min(dense + experts)
            }
            Sharding::Gradients => gradient * (dense / shards + experts / expert_shards),
            _ => gradient * (dense + experts),
        };
        vec![
            part(MemoryLine::Parameters, 2.0 * (ends + (dense - ends + experts) * resident)),
            part(MemoryLine::Frozen, frozen(resident, 1.0, 1.0)),
            part(MemoryLine::Gradients, gradients),
            part(MemoryLine::Optimizer, optimizer),
            part(MemoryLine::Buffers, 1e9 * software.buffer_gb),
        ]
    }

    /// The part of the layers whose share of something is on the GPU: two, if it waits in RAM.
    fn resident(&self, part: &str, of: &StageParameters) -> f64 {
        if self.layout.recipe.offloads(part) {
            (2.0 / of.layers.max(1.0)).min(1.0)
        } else {
            1.0
        }
    }

    /// Parameters of the largest matrix, whose gradient is there at once at most.
    fn largest_matrix(&self) -> f64 {
        let ends = self.model.embedding_parameters() / f64::from(self.layout.tensor);
        self.model.kinds().into_keys().map(|kind| LayerSizes::of(self, kind).largest_matrix()).fold(ends, f64::max)
    }

    /// Bytes of a gradient as it is kept, and where parameters are sharded.
    fn kept_gradients(&self) -> (f64, f64) {
        match self.layout.recipe.is_narrow() {
            true => (2.0, 2.0),
            false => (self.software.memory_gradient_bytes.unwrap_or(self.software.gradient_bytes), 4.0),
        }
    }

    /// Bytes of the optimizer, all or those that stay on the GPU: paged moments leave it where memory is short.
    fn optimizer_bytes(&self, of: &StageParameters, is_whole: bool) -> f64 {
        let (layout, recipe) = (&self.layout, &self.layout.recipe);
        if recipe.offloads("optimizer") && !is_whole {
            return 0.0;
        }
        let paged = if is_whole { 0.0 } else { recipe.paged_bytes() };
        let [states, of_ends] = recipe.optimizer_bytes(&self.software).map(|bytes| bytes - paged);
        let (dense, experts) = self.trained(of);
        let more = (of_ends - states) * of.trained_ends;
        // Of DualPipe both ranks that have a copy share the optimizer of it.
        let sharing = if layout.schedule == Schedule::DualPipe && layout.shards() > 1 { 2.0 } else { 1.0 };
        let bytes = (states * dense + more) / f64::from(layout.shards());
        (bytes + states * experts / f64::from(layout.expert_shards())) / sharing
    }

    /// Bytes of the residual stream of a micro-batch on one rank.
    fn stream_bytes(&self) -> f64 {
        let sizes = LayerSizes::of(self, self.model.layer(0));
        sizes.stream_bytes() / sizes.divided()
    }

    /// Bytes of what sequence parallelism has whole at once in a backward pass: an input that is gathered again, a gathered gradient, and
    /// a result that is not scattered yet.
    fn gathered_bytes(&self) -> f64 {
        let layout = &self.layout;
        let is_gathered = layout.sequence_parallel && layout.tensor > 1;
        if is_gathered {
            3.0 * f64::from(layout.tensor) * self.stream_bytes()
        } else {
            0.0
        }
    }

    /// Bytes that one micro-batch keeps in one layer.
    pub(super) fn kept(&self, kind: Layer) -> f64 {
        self.activations(kind, &self.layout.recompute)
    }

    /// Bytes that one micro-batch keeps in one layer if these parts are computed again.
    fn activations(&self, kind: Layer, recompute: &Recompute) -> f64 {
        let (model, layout, software) = (&self.model, &self.layout, &self.software);
        let sizes = LayerSizes::of(self, kind);
        let (tokens, tensor) = (sizes.tokens, f64::from(layout.tensor));
        let stream = self.stream_bytes();
        if kind.is_frozen {
            return 0.0;
        }
        if recompute.is_full() {
            return stream;
        }
        let linear = if layout.dtype.is_narrow() { NARROW } else { 1.0 };
        let masks = if software.has_dropout { stream } else { 0.0 };
        let whole = if software.keeps_gathered { sizes.divided() } else { 1.0 };
        let norms = sizes.share() * (2.0 * linear * whole + software.norm_bytes) * stream;
        let elementwise = (norms + masks + self.inner_inputs(&sizes, linear)) * (1.0 - recompute.elementwise);
        let v_dim = model.mla.map_or(model.head_dim, |mla| mla.v);
        let result = 2.0
            * tokens
            * match sizes.state() {
                Some(state) => state.convolved() + 2.0 * state.value_width(),
                None if kind.attends() => {
                    (model.heads * v_dim) as f64 / tensor * if model.output_gate { 2.0 } else { 1.0 }
                }
                None => 0.0,
            };
        let adapters = sizes.adapter_activations() * (1.0 - recompute.gemm);
        let mut bytes = stream + sizes.kept_results(recompute.gemm) + elementwise + adapters;
        bytes += result * (1.0 - recompute.attention.min(recompute.elementwise));
        if kind.attends() && keeps_scores(self) {
            let scores = f64::from(layout.micro_batch) * model.heads as f64 / tensor
                * (layout.sequence * layout.document()) as f64;
            bytes += scores / f64::from(layout.context) * if software.has_dropout { 5.0 } else { 4.0 };
        }
        bytes
    }

    /// Bytes of the inputs of GEMMs within attention and MLP: rotated keys and normed latents, products, permuted tokens.
    fn inner_inputs(&self, sizes: &LayerSizes<'_>, linear: f64) -> f64 {
        let (model, tokens, tensor) = (&self.model, sizes.tokens, f64::from(self.layout.tensor));
        let latent = model.mla.filter(|_| sizes.layer.attends()).map_or(0.0, |mla| {
            let heads = (model.heads * mla.rope) as f64 / tensor;
            2.0 * tokens * ((mla.q + mla.kv) as f64 / sizes.divided() + heads)
        });
        let routed = sizes.routed_tokens();
        let experts = model.experts.filter(|_| routed > 0.0);
        let width = sizes.mlp_width();
        let of_experts = experts.map_or(0.0, |one| routed * (model.hidden + one.ffn) as f64);
        let activated = tokens * width / tensor + experts.map_or(0.0, |one| routed * one.ffn as f64);
        let gates = if model.gated && !self.software.fuses_activation { 2.0 * activated } else { 0.0 };
        latent + gates + 2.0 * linear * (tokens * width / tensor + of_experts)
    }

    /// Bytes of the logits of a micro-batch and of what the loss makes of them.
    fn loss_bytes(&self) -> f64 {
        let sizes = LayerSizes::of(self, self.model.layer(0));
        let logits = sizes.tokens * self.model.vocab as f64 / f64::from(self.layout.tensor);
        logits * self.software.logit_bytes / f64::from(self.layout.recipe.loss_chunks.unwrap_or(1))
    }
}

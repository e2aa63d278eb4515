//! What a rank keeps in memory: parameters, gradients, optimizer, activations, logits.
//!
//! Activations of a layer, in bytes per element (after Korthikanti et al. 2022, arXiv 2205.05198, with flash attention and without
//! dropout unless the software has it):
//!
//! | what | elements | bytes |
//! |---|---|---|
//! | inputs of norms, residuals | hidden | 4 |
//! | inputs of qkv and MLP | hidden | 4, or 2.4 if GEMMs are narrow |
//! | queries, keys, values, attention's result | as the heads | 2 |
//! | MLP | its width | 6 gated, 4 not; 2 less 0.8 if narrow |
//! | scores, unfused | heads x sequence^2 | 5 with dropout, 4 without |

use super::layers::{keeps_scores, Sizes};
use super::{stages, Request, StageParameters};
use crate::layout::Sharding;
use crate::memory::{in_flight, Memory, Part};
use crate::model::Layer;

/// Bytes of an input that is kept for a narrow GEMM, in those of bf16: 8 bits, a copy in part. Fitted to runs that fitted.
const NARROW: f64 = 0.6;

impl Request {
    pub(super) fn memory(&self, of: &StageParameters, chunks: &[stages::Chunk], stages: &[u32]) -> Memory {
        let layout = &self.layout;
        let kept =
            chunks.iter().flat_map(|chunk| &chunk.layers).map(|&(kind, repeat)| f64::from(repeat) * self.kept(kind));
        let full = self.layout.recompute.is_full();
        let whole = chunks.iter().flat_map(|chunk| &chunk.layers).map(|&(kind, _)| self.activations(kind));
        let working = if full { whole.fold(0.0, f64::max) } else { 0.0 };
        let stage = stages.first().copied().unwrap_or(0);
        let micro_batches = layout.micro_batches();
        Memory {
            standing: self.standing(of),
            activations: kept.sum(),
            in_flight: in_flight(layout.schedule, layout.stages, layout.chunks, stage, micro_batches),
            working,
            loss: if chunks.iter().any(|chunk| chunk.head) { self.loss_bytes() } else { 0.0 },
        }
    }

    fn standing(&self, of: &StageParameters) -> Vec<Part> {
        let (layout, software) = (&self.layout, &self.software);
        let (dense, experts) = (of.dense + of.ends, of.experts);
        let shards = f64::from(layout.shards());
        let expert_shards = f64::from(layout.expert_shards());
        let gradient = software.memory_gradient_bytes.unwrap_or(software.gradient_bytes);
        let part = |name: &str, bytes: f64| Part { name: name.to_owned(), bytes };
        let optimizer = software.optimizer_bytes * (dense / shards + experts / expert_shards);
        if layout.sharding == Sharding::Parameters {
            let layer = (of.dense + if layout.expert == 1 { experts } else { 0.0 }) / of.layers.max(1.0);
            return vec![
                part("parameters", 2.0 * experts / expert_shards),
                part("gradients", 4.0 * dense / shards + gradient * experts / expert_shards),
                part("optimizer", optimizer),
                part("gathered layers", 2.0 * 2.0 * 2.0 * layer),
            ];
        }
        let gradients = match layout.sharding {
            Sharding::Gradients => gradient * (dense / shards + experts / expert_shards),
            _ => gradient * (dense + experts),
        };
        vec![part("parameters", 2.0 * (dense + experts)), part("gradients", gradients), part("optimizer", optimizer)]
    }

    /// Bytes that one micro-batch keeps in one layer.
    fn kept(&self, kind: Layer) -> f64 {
        let recompute = &self.layout.recompute;
        if recompute.is_full() {
            let sizes = Sizes::of(self, kind);
            return 2.0 * sizes.tokens * self.model.hidden as f64 / sizes.divided();
        }
        self.activations(kind) * (1.0 - 0.25 * recompute.elementwise) * (1.0 - 0.6 * recompute.gemm)
    }

    /// Bytes that one micro-batch needs in one layer if nothing is computed again.
    fn activations(&self, kind: Layer) -> f64 {
        let (model, layout, software) = (&self.model, &self.layout, &self.software);
        let sizes = Sizes::of(self, kind);
        let (tokens, hidden, tensor) = (sizes.tokens, model.hidden as f64, f64::from(layout.tensor));
        let linear = if layout.dtype.is_narrow() { NARROW } else { 1.0 };
        let masks = if software.has_dropout { 2.0 } else { 0.0 };
        let mut bytes = tokens * hidden * (4.0 + 4.0 * linear + masks) / sizes.divided();
        bytes += 2.0 * tokens * self.attention_elements() / tensor;
        let width = |elements: f64, width: u64| {
            elements * width as f64 * 2.0 * if model.gated { 2.0 + linear } else { 1.0 + linear }
        };
        match model.experts.filter(|_| kind.has_experts) {
            None => bytes += width(tokens / tensor, model.ffn),
            Some(experts) => {
                let routed = tokens / tensor * experts.top_k as f64;
                bytes += routed * hidden * 2.0 * (1.0 + linear) + width(routed, experts.ffn);
                bytes += width(tokens / tensor, experts.ffn * experts.shared);
            }
        }
        if keeps_scores(self) {
            let scores = f64::from(layout.micro_batch) * model.heads as f64 / tensor * (layout.sequence as f64).powi(2);
            bytes += scores / f64::from(layout.context) * if software.has_dropout { 5.0 } else { 4.0 };
        }
        bytes
    }

    /// Elements per token that attention keeps: queries, keys, values, its result, and latents.
    fn attention_elements(&self) -> f64 {
        let (model, tensor) = (&self.model, f64::from(self.layout.tensor));
        let Some(mla) = model.mla else {
            return (model.head_dim * (2 * model.heads + 2 * model.kv_heads)) as f64;
        };
        let latents = tensor * (mla.q + mla.kv + mla.rope) as f64;
        let result = model.heads * mla.v;
        let projected = model.heads * (2 * (mla.nope + mla.rope) + mla.v);
        latents + (result + if self.layout.recompute.gemm > 0.0 { projected / 2 } else { projected }) as f64
    }

    /// Bytes of the logits of a micro-batch: bf16, fp32 for the loss, and a copy where the loss is not fused.
    fn loss_bytes(&self) -> f64 {
        let sizes = Sizes::of(self, self.model.layer(0));
        let copy = if self.software.copies_logits { 4.0 } else { 0.0 };
        sizes.tokens * self.model.vocab as f64 / f64::from(self.layout.tensor) * (2.0 + 4.0 + copy)
    }
}

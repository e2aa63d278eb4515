//! The blocks of a model: what one micro-batch does in a layer, in the embedding and in the head.
//!
//! | part | forward | backward |
//! |---|---|---|
//! | GEMM (m, n, k) | one | one for the input (m, k, n), one for the weight (k, n, m) |
//! | attention | 2 products of causal scores | 5 |
//! | states | a short convolution reads and writes its tokens; products of chunks (`recurrent.rs`) | 2.5 times |
//! | gates of attention and states | read two, write one | 5/3 of that |
//! | norms and residuals | 10 passes over the residual stream: two norms read and write, two additions read twice and write | 12 |
//! | activation | read and write the widths of the MLP, bf16 | 5/3 of that |
//! | tensor parallelism | 2 all-reduces, or all-gather and reduce-scatter twice (arXiv 2205.05198) | the same |
//! | experts | 2 all-to-alls, and 6 passes over the tokens to permute and combine | the same, 1.3 times the passes |
//!
//! Bytes of narrow GEMMs (fp8, fp4) count apart: their inputs are cast and transposed, 3 bytes per element forward and 4 per element of
//! the result backward. Source of the byte counts: ours, from what fused kernels of Transformer Engine must read and write.

use super::request::Request;
use crate::attention::Attention;
use crate::layout::Dtype;
use crate::matrices::{LayerDivision, Matrix, MatrixKind};
use crate::model::{Experts, Layer, Mixer, Mlp};
use crate::parts::TimePart;
use crate::recurrent::RankRecurrent;
use crate::software::{AttentionKernel, EAGER_LAUNCH_S};
use crate::step::layers::{Hides, LayerBlock, LayerOp};
use crate::step::work::{MoveRate, StepOp, StepWork};
use nvcoll_fabric::predict::Pattern;

/// Bytes of an activation: bf16.
pub(super) const ELEMENT: f64 = 2.0;

/// The sizes of what one rank has of one layer.
pub(super) struct LayerSizes<'r> {
    pub(super) request: &'r Request,
    pub(super) layer: Layer,
    /// Tokens of a micro-batch on this rank.
    pub(super) tokens: f64,
    tensor: f64,
    hidden: f64,
}

/// A matrix with the tokens that it multiplies with.
pub(super) struct LayerProduct {
    pub(super) matrix: Matrix,
    pub(super) rows: f64,
}

/// A pass over the matrices of a layer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ProductPass {
    Forward,
    Inputs,
    Weights,
}

impl<'r> LayerSizes<'r> {
    pub(super) fn of(request: &'r Request, layer: Layer) -> Self {
        let layout = &request.layout;
        let tokens = f64::from(layout.micro_batch) * layout.sequence as f64 / f64::from(layout.context);
        Self { request, layer, tokens, tensor: layout.tensor.into(), hidden: request.model.hidden as f64 }
    }

    fn experts(&self) -> Option<Experts> {
        self.request.model.experts.filter(|_| self.layer.mlp == Mlp::Experts)
    }

    /// The width of the dense MLP, or of the shared experts.
    pub(super) fn mlp_width(&self) -> f64 {
        match (self.layer.mlp, self.experts()) {
            (Mlp::None, _) => 0.0,
            (_, Some(one)) => (one.ffn * one.shared) as f64,
            (_, None) => self.request.model.ffn as f64,
        }
    }

    /// Tokens, counted once for each expert that they visit, on this rank, the fullest one.
    fn routed(&self, experts: Experts) -> f64 {
        let fullest = self.request.layout.recipe.imbalance.filter(|_| self.request.layout.expert > 1).unwrap_or(1.0);
        fullest * self.tokens / self.tensor * experts.top_k as f64
    }

    /// The experts on this rank.
    fn local_experts(&self, experts: Experts) -> f64 {
        experts.count as f64 / f64::from(self.request.layout.expert)
    }

    /// Bytes of the residual stream of a micro-batch, not divided among tensor-parallel ranks.
    pub(super) fn stream_bytes(&self) -> f64 {
        self.tokens * self.hidden * ELEMENT
    }

    /// The tensor-parallel ranks that divide norms and residuals.
    pub(super) fn divided(&self) -> f64 {
        if self.request.layout.sequence_parallel {
            self.tensor
        } else {
            1.0
        }
    }

    /// What this rank has of a layer with a state.
    pub(super) fn state(&self) -> Option<RankRecurrent> {
        let state = self.request.model.recurrent.filter(|_| self.layer.mixer == Mixer::State);
        state.map(|one| one.on_rank(self.tensor))
    }

    /// The parts of the layer, in those of one with mixer and MLP.
    pub(super) fn share(&self) -> f64 {
        self.layer.parts() / 2.0
    }

    pub(super) fn products(&self) -> Vec<LayerProduct> {
        let (tensor, expert) = (self.tensor, f64::from(self.request.layout.expert));
        let by = LayerDivision { heads: tensor, kv_heads: tensor, mlp: tensor, experts: expert, expert_width: 1.0 };
        let rows = |matrix: &Matrix| match (matrix.kind, self.experts()) {
            (MatrixKind::Latents, _) => self.tokens / self.divided(),
            (MatrixKind::Router, _) => self.tokens / tensor,
            (MatrixKind::Expert, Some(experts)) => self.routed(experts) / matrix.count,
            _ => self.tokens,
        };
        let matrices = self.request.model.matrices(self.layer, &by).into_iter();
        matrices.map(|matrix| LayerProduct { rows: rows(&matrix), matrix }).collect()
    }

    /// Parameters of this layer on this rank: dense parameters and parameters of its experts.
    pub(super) fn parameters(&self) -> (f64, f64) {
        let (mut dense, mut experts) = (0.0, 0.0);
        for LayerProduct { matrix: Matrix { columns, inner, count, kind, .. }, .. } in self.products() {
            match kind {
                MatrixKind::Router => (),
                MatrixKind::Expert => experts += columns * inner * count,
                _ => dense += columns * inner,
            }
        }
        (dense, experts)
    }

    /// Trained parameters of this layer on this rank, dense and of experts.
    pub(super) fn trained(&self) -> (f64, f64) {
        match self.request.is_adapted() {
            true => self.adapter_parameters(),
            false if self.layer.is_frozen => (0.0, 0.0),
            false => self.parameters(),
        }
    }

    /// Tokens that visit routed experts, once for each of them; 0 in a dense layer.
    pub(super) fn routed_tokens(&self) -> f64 {
        self.experts().map_or(0.0, |experts| self.routed(experts))
    }

    /// Bytes of the results of GEMMs that the backward pass needs, if this part of all FLOPs is computed again.
    pub(super) fn kept_results(&self, again: f64) -> f64 {
        let products = self.products();
        let flops = |one: &LayerProduct| one.rows * one.matrix.columns * one.matrix.inner * one.matrix.count;
        let mut left = again * products.iter().map(flops).sum::<f64>();
        let is_weighed = self.request.software.weighs_results;
        let last = |one: &Matrix| match one.kind {
            MatrixKind::Expert => one.name.ends_with("down") && !is_weighed,
            MatrixKind::Attention | MatrixKind::State => self.layer.mlp == Mlp::None && one.name.ends_with(" out"),
            _ => one.name.ends_with("down"),
        };
        let mut needed: Vec<&LayerProduct> = products.iter().filter(|one| !last(&one.matrix)).collect();
        needed.sort_by(|one, other| one.matrix.inner.total_cmp(&other.matrix.inner));
        let bytes = needed.into_iter().map(|one| {
            let part = if self.request.software.recomputes_evenly { again } else { (left / flops(one)).min(1.0) };
            left -= part * flops(one);
            let divided = if one.matrix.name.ends_with(" out") { self.divided() } else { 1.0 };
            (1.0 - part) * ELEMENT * one.rows * one.matrix.columns * one.matrix.count / divided
        });
        bytes.sum()
    }

    fn gemm(&self, matrix: &Matrix, (m, n, k): (f64, f64, f64), pass: &str) -> LayerOp {
        let narrow = self.request.layout.dtype;
        let dtype = if matches!(matrix.kind, MatrixKind::Router | MatrixKind::Decays) { wide(narrow) } else { narrow };
        let experts = (matrix.kind == MatrixKind::Expert).then_some(self.request.software.grouped_loss);
        let name = if pass.is_empty() { matrix.name.to_owned() } else { format!("{} {pass}", matrix.name) };
        op(&name, StepWork::Gemm { m, n, k, batch: matrix.count, dtype, experts, bytes: None })
    }

    /// Attention and its gate, or the short convolution, the state and its gated norm.
    fn mixer(&self, backward: bool) -> Vec<LayerOp> {
        let (passes, fused) = (if backward { STATE_BACKWARD } else { 1.0 }, self.request.software.elementwise);
        let gate = |width: f64| {
            let bytes = 3.0 * ELEMENT * self.tokens * width * if backward { 5.0 / 3.0 } else { 1.0 };
            op("gate", moved(MoveRate::Least, fused * bytes))
        };
        let Some(state) = self.state() else {
            let model = &self.request.model;
            let heads = (model.heads * model.head_dim) as f64 / self.tensor;
            let gates = (model.output_gate && self.layer.attends()).then(|| gate(heads));
            let attention = self.layer.attends().then(|| self.attention(backward));
            return self.index(backward).into_iter().chain(attention).chain(gates).collect();
        };
        let bytes = 2.0 * passes * ELEMENT * self.tokens * state.convolved();
        let mut found = vec![
            op("short convolution", moved(MoveRate::Counted, bytes)),
            op("state", state.chunked(self.tokens, passes).into()),
        ];
        found.iter_mut().for_each(|one| one.op.part = Some(TimePart::State));
        found.push(gate(state.value_width()));
        found
    }

    /// The scores of the indexer on all keys, whole on each rank.
    fn index(&self, backward: bool) -> Option<LayerOp> {
        let indexer = self.request.model.indexer.filter(|_| self.layer.attends())?;
        let mut index = self.attention(backward);
        index.op.name = "index".to_owned();
        if let StepWork::Attention(one) = &mut index.op.work {
            let (heads, qk_dim) = (indexer.heads as f64, indexer.head_dim as f64);
            *one = Attention { heads, qk_dim, v_dim: 0.0, window: None, ..*one };
        }
        Some(index)
    }

    fn attention(&self, backward: bool) -> LayerOp {
        let (model, layout) = (&self.request.model, &self.request.layout);
        let (qk_dim, v_dim) = match model.mla {
            Some(mla) => (mla.nope + mla.rope, mla.v),
            None => (model.head_dim, model.head_dim),
        };
        let work = StepWork::Attention(Attention {
            queries: layout.document() as f64 / f64::from(layout.context),
            keys: layout.document() as f64,
            window: model.most_seen(self.layer),
            sequences: f64::from(layout.micro_batch) * layout.sequence as f64 / layout.document() as f64,
            heads: model.heads as f64 / self.tensor,
            qk_dim: qk_dim as f64,
            v_dim: v_dim as f64,
            kernel: self.request.software.attention,
            backward,
            causal: true,
            bytes: None,
        });
        op(if backward { "attention backward" } else { "attention" }, work)
    }

    /// Elements of the MLP's activations that are read and written, in both directions of the activation function.
    fn activation_elements(&self) -> (f64, f64) {
        let model = &self.request.model;
        let passes = if model.gated { 3.0 } else { 2.0 };
        let dense = self.tokens * self.mlp_width() / self.tensor * passes;
        (dense, self.experts().map_or(0.0, |one| self.routed(one) * one.ffn as f64 * passes))
    }

    fn elementwise(&self, backward: bool) -> Vec<LayerOp> {
        let (model, software) = (&self.request.model, &self.request.software);
        let fused = software.elementwise;
        let norms = self.share() * if backward { 12.0 } else { 10.0 } * self.stream_bytes() / self.divided();
        let eager = self.eager_norms(backward);
        let heads = (model.heads + model.kv_heads) as f64 * model.head_dim as f64;
        let rotary = match model.positions {
            crate::model::Positions::Rotary if self.layer.attends() => {
                2.0 * ELEMENT * self.tokens * heads / self.tensor
            }
            _ => 0.0,
        };
        let (dense, routed) = self.activation_elements();
        let activation = (dense + software.expert_casts * routed) * ELEMENT * if backward { 5.0 / 3.0 } else { 1.0 };
        let bytes = |bytes| moved(MoveRate::Least, fused * bytes);
        let mut found = vec![op("norms and residuals", moved(MoveRate::Least, fused * norms + eager))];
        if activation > 0.0 {
            found.push(op("activation", bytes(activation)));
        }
        if rotary > 0.0 {
            found.push(op("rotary positions", bytes(rotary)));
        }
        if let Some(experts) = self.experts() {
            let passes = if backward { 6.0 * 1.3 } else { 6.0 };
            found.push(op("permute and combine", bytes(passes * self.routed(experts) * self.hidden * ELEMENT)));
        }
        if self.request.layout.dtype.is_narrow() {
            found.push(op("casts", moved(MoveRate::Least, self.cast_bytes(backward))));
        }
        found
    }

    /// Bytes that RMSNorm moves beyond one kernel where it is written in operators: a cast to fp32, a square, a mean, a product, a cast, and
    /// the product with its weights; backward the same twice.
    fn eager_norms(&self, backward: bool) -> f64 {
        let is_rms = matches!(self.request.model.positions, crate::model::Positions::Rotary);
        if self.request.software.fuses_norms || !is_rms {
            return 0.0;
        }
        let bytes = if backward { EAGER_NORM_BACKWARD } else { EAGER_NORM_FORWARD };
        self.share() * 2.0 * bytes * self.stream_bytes() / ELEMENT / self.divided()
    }

    fn cast_bytes(&self, backward: bool) -> f64 {
        let of_experts = self.request.software.expert_casts.min(1.0);
        let part = |kind| match kind {
            MatrixKind::Router | MatrixKind::Decays => 0.0,
            MatrixKind::Expert => of_experts,
            _ => 1.0,
        };
        let products = self.products();
        let elements = products.iter().map(|LayerProduct { rows, matrix: one }| {
            let columns = if backward { one.columns } else { one.inner };
            rows * columns * one.count * part(one.kind)
        });
        elements.sum::<f64>() * if backward { 4.0 } else { 3.0 }
    }

    fn tensor_collectives(&self, backward: bool) -> Vec<LayerOp> {
        let (layout, software) = (&self.request.layout, &self.request.software);
        if layout.tensor == 1 {
            return Vec::new();
        }
        let hides = if software.overlaps_tensor { Hides::Tiles } else { Hides::Nothing };
        let bytes = self.stream_bytes();
        let of = |pattern, count: f64| times(self.share() * count, collective(pattern, bytes, "tp", hides));
        let mut found = if layout.sequence_parallel {
            let again = if backward && software.gathers_inputs_again { 1.0 } else { 0.0 };
            vec![of(Pattern::AllGather, 2.0 + again), of(Pattern::ReduceScatter, 2.0)]
        } else {
            vec![of(Pattern::AllReduce, 2.0)]
        };
        let over_nodes = layout.tensor > self.request.domain;
        if over_nodes && software.ring_over_nodes_us > 0.0 {
            let seconds = software.ring_over_nodes_us
                * 1e-6
                * (self.tensor - 1.0)
                * self.share()
                * if backward { 6.0 } else { 4.0 };
            found.push(op("ring over nodes", StepWork::Stall { seconds }));
        }
        found
    }

    fn expert_collectives(&self) -> Vec<LayerOp> {
        let (layout, software) = (&self.request.layout, &self.request.software);
        let Some(experts) = self.experts().filter(|_| layout.expert > 1) else {
            return Vec::new();
        };
        let hides = if software.overlaps_experts { Hides::OtherMicroBatch } else { Hides::Nothing };
        let work = StepWork::Collective {
            pattern: Pattern::AllToAll,
            bytes: self.routed(experts) * self.hidden * ELEMENT,
            group: "ep".to_owned(),
            once_per_node: software.sends_once_per_node.then_some(experts.top_k as f64),
            server: None,
        };
        vec![times(2.0, LayerOp { hides, op: StepOp::once("dispatch and combine", work) })]
    }

    /// Keys and values of the other context-parallel ranks: gathered at once, or passed on in a ring, a part in each step of it
    /// (ring attention, arXiv 2310.01889). A state has whole sequences of some heads: tokens go to the ranks of their heads, and back.
    fn context_collectives(&self, backward: bool) -> Vec<LayerOp> {
        let (model, layout) = (&self.request.model, &self.request.layout);
        if layout.context == 1 || self.layer.mixer == Mixer::None {
            return Vec::new();
        }
        if let Some(state) = self.state() {
            let moved = self.tokens * (state.convolved() + state.value_width()) * ELEMENT;
            return vec![times(2.0, collective(Pattern::AllToAll, moved, "cp", Hides::Nothing))];
        }
        let kept =
            model.mla.map_or(2 * model.kv_heads * model.head_dim, |mla| model.heads * (mla.nope + mla.rope + mla.v));
        let (own, ranks) = (self.tokens * kept as f64 / self.tensor * ELEMENT, f64::from(layout.context));
        let rounds = if backward { 2.0 } else { 1.0 };
        let (pattern, bytes, count) = match self.request.software.passes_keys_in_ring {
            true => (Pattern::SendRecv, own, rounds * (ranks - 1.0)),
            false => (Pattern::AllGather, own * ranks, rounds),
        };
        vec![times(count, collective(pattern, bytes, "cp", Hides::Attention))]
    }

    /// Gathers of sharded parameters, and reductions of their gradients.
    fn sharded_collectives(&self, backward: bool) -> Vec<LayerOp> {
        if !self.request.shards_layers() {
            return Vec::new();
        }
        let hides = if self.request.software.overlaps_sharded { Hides::OtherLayer } else { Hides::Nothing };
        self.request.sharded(self.parameters(), self.trained(), backward, hides)
    }

    fn host(&self, backward: bool) -> Vec<LayerOp> {
        let (layout, software) = (&self.request.layout, &self.request.software);
        let frozen = if self.request.is_adapted() { LAUNCHES_FROZEN } else { 1.0 };
        let launches = if backward { frozen * software.launches_backward } else { software.launches_forward };
        let unit = if self.request.shards_layers() { software.unit_us } else { 0.0 };
        let mut seconds = 1e-6 * (self.share() * launches * software.launch_us + unit);
        if let Some(experts) = self.experts() {
            let [fixed, each] = LAUNCHES_EXPERTS[usize::from(backward)];
            let casts = if layout.dtype.is_narrow() { EXPERT_CASTS } else { 1.0 };
            let launches = fixed + each * casts * self.local_experts(experts);
            seconds += EAGER_LAUNCH_S * launches * software.host_experts;
        }
        seconds += COLLECTIVE_S * self.issued_collectives(backward);
        let over_nodes = layout.gpus > self.request.domain;
        if layout.stages > 1 && layout.tensor > 1 && over_nodes {
            let collectives = if backward { 6.0 } else { 4.0 };
            seconds += software.host_pipelined_ms * 1e-3 * self.tensor * self.share() * collectives;
        }
        let mut found = vec![op("launches", StepWork::Host { seconds })];
        if backward && software.host_added_ms > 0.0 {
            let seconds = software.host_added_ms * 1e-3 * self.tensor * self.share();
            found.push(op("host", StepWork::Stall { seconds }));
        }
        found
    }

    /// The collectives of tensor parallelism that Python issues: those that hide behind their products, a library does.
    fn issued_collectives(&self, backward: bool) -> f64 {
        if self.request.software.overlaps_tensor {
            return 0.0;
        }
        let found = self.tensor_collectives(backward);
        found.iter().filter(|one| matches!(one.op.work, StepWork::Collective { .. })).map(|one| one.op.count).sum()
    }

    /// Returns the block of the layer.
    pub(super) fn block(&self) -> LayerBlock {
        let products = self.products();
        let gemms = |size: fn(f64, f64, f64) -> (f64, f64, f64), pass: &str| -> Vec<LayerOp> {
            let gemm =
                |one: &LayerProduct| self.gemm(&one.matrix, size(one.rows, one.matrix.columns, one.matrix.inner), pass);
            products.iter().map(gemm).collect()
        };
        let pass = |backward| {
            let mut ops = self.mixer(backward);
            ops.extend(self.elementwise(backward));
            ops.extend(self.tensor_collectives(backward));
            ops.extend(self.expert_collectives());
            ops.extend(self.context_collectives(backward));
            ops.extend(self.sharded_collectives(backward));
            ops.extend(self.host(backward));
            ops.extend(self.offload_copies(backward));
            ops
        };
        let mut forward = gemms(|rows, columns, inner| (rows, columns, inner), "");
        forward.extend(self.widened(ProductPass::Forward).into_iter().chain(self.adapter_ops(ProductPass::Forward)));
        forward.extend(pass(false));
        if self.layer.is_frozen {
            return LayerBlock { forward, ..LayerBlock::default() };
        }
        let mut backward = gemms(|rows, columns, inner| (rows, inner, columns), "input gradient");
        backward.extend(self.widened(ProductPass::Inputs).into_iter().chain(self.adapter_ops(ProductPass::Inputs)));
        backward.extend(pass(true));
        let mut weights = match self.request.is_adapted() {
            true => self.adapter_ops(ProductPass::Weights),
            false => gemms(|rows, columns, inner| (inner, columns, rows), "weight gradient"),
        };
        let (dense, experts) = self.trained();
        let bytes = (dense + experts) * self.request.software.accumulation_bytes;
        weights.push(op("gradient accumulation", moved(MoveRate::Stream, bytes)));
        LayerBlock { forward, backward, weights, recompute: self.request.layout.recompute }
    }
}

/// Bytes for each element of an RMSNorm in operators. Counted: reads and writes of its kernels, as HF and PyTorch before 2.9 have them.
const EAGER_NORM_FORWARD: f64 = 36.0;
const EAGER_NORM_BACKWARD: f64 = 64.0;

/// What convolution and state take backward, in what they take forward: as attention, they are computed again. Chosen.
const STATE_BACKWARD: f64 = 2.5;

/// The part of the launches of a backward pass that remains where matrices are frozen. Counted: a Llama with PEFT, 64 of 84.
const LAUNCHES_FROZEN: f64 = 0.76;

/// Launches of embedding, head and loss, forward and backward. Counted: 27 to 52, and 20 to 35, by framework.
const LAUNCHES_ENDS: [f64; 2] = [33.0, 28.0];

/// Launches of the experts of a layer, forward and backward: routing and dispatch, and of each local expert. Counted: grouped
/// products of Megatron-Core 0.16.
const LAUNCHES_EXPERTS: [[f64; 2]; 2] = [[60.0, 2.0], [31.0, 4.0]];

/// Seconds of the processor for a collective of tensor parallelism. Measured: 60 to 140 us in dry runs of Megatron-Core and nanotron.
const COLLECTIVE_S: f64 = 100e-6;

/// The times of the launches of an expert where its products are narrow, and each has casts. Chosen.
const EXPERT_CASTS: f64 = 2.5;

pub(super) fn op(name: &str, work: StepWork) -> LayerOp {
    StepOp::once(name, work).into()
}

/// Returns kernels that move bytes.
pub(super) const fn moved(rate: MoveRate, bytes: f64) -> StepWork {
    StepWork::Move { bytes, launches: 1.0, rate, flops: 0.0 }
}

/// Returns an operation that comes more often by a factor.
pub(super) fn times(factor: f64, mut op: LayerOp) -> LayerOp {
    op.op.count *= factor;
    op
}

/// Returns a collective.
pub(super) fn collective(pattern: Pattern, bytes: f64, group: &str, hides: Hides) -> LayerOp {
    let work = StepWork::Collective { pattern, bytes, group: group.to_owned(), once_per_node: None, server: None };
    LayerOp { hides, op: StepOp::once(format!("{group} {}", pattern.name()), work) }
}

/// Returns the precision of what stays wide in narrow training: head, router.
pub(super) fn wide(dtype: Dtype) -> Dtype {
    match dtype {
        Dtype::Fp8 | Dtype::Fp4 => Dtype::Bf16,
        _ => dtype,
    }
}

/// Returns the block of the embedding: four passes over the residual stream.
pub(super) fn embedding(sizes: &LayerSizes<'_>) -> LayerBlock {
    let bytes = sizes.request.software.elementwise * 2.0 * sizes.stream_bytes();
    let work = || vec![op("embedding", moved(MoveRate::Least, bytes))];
    let is_frozen = sizes.request.is_adapted() || sizes.request.layout.recipe.frozen.is_some();
    let backward = if is_frozen { Vec::new() } else { work() };
    LayerBlock { forward: work(), backward, ..LayerBlock::default() }
}

/// Returns what is before a layer of multi-token prediction: an embedding, and a product of two residual streams.
pub(super) fn prediction(sizes: &LayerSizes<'_>) -> LayerBlock {
    let (request, rows, columns, inner) =
        (sizes.request, sizes.tokens, sizes.hidden / sizes.tensor, 2.0 * sizes.hidden);
    let dtype = request.layout.dtype;
    let gemm = |m, n, k| op("projection", StepWork::Gemm { m, n, k, batch: 1.0, dtype, experts: None, bytes: None });
    let mut block = embedding(sizes);
    block.forward.push(gemm(rows, columns, inner));
    block.backward.push(gemm(rows, inner, columns));
    block.weights.push(gemm(inner, columns, rows));
    if request.shards_layers() {
        let parameters = (columns * inner, 0.0);
        block.forward.extend(request.sharded(parameters, parameters, false, Hides::OtherLayer));
        block.backward.extend(request.sharded(parameters, parameters, true, Hides::OtherLayer));
    }
    block
}

/// The number of columns of a rank that a padded vocabulary is a multiple of. Cited: `make-vocab-size-divisible-by` of Megatron-LM.
const PADDED_TO: f64 = 128.0;

/// How often the loss moves the bytes that it keeps of a logit, forward and backward. Counted: 36 bytes where a loss in fp32 keeps 12, 6
/// where gradients overwrite logits of 2.
const LOSS_PASSES: [f64; 2] = [1.2, 1.8];

/// Returns the block of the head and the loss: products, passes over what is kept of logits, one reduction over tensor-parallel ranks.
pub(super) fn head(sizes: &LayerSizes<'_>) -> LayerBlock {
    let (request, tokens, hidden) = (sizes.request, sizes.tokens, sizes.hidden);
    let own = request.model.vocab as f64 / sizes.tensor;
    let columns = if request.software.pads_vocabulary { PADDED_TO * (own / PADDED_TO).ceil() } else { own.floor() };
    let dtype = wide(request.layout.dtype);
    let gemm =
        |name: &str, m, n, k| op(name, StepWork::Gemm { m, n, k, batch: 1.0, dtype, experts: None, bytes: None });
    let loss =
        |times: f64| op("loss", moved(MoveRate::Counted, times * request.software.logit_bytes * tokens * columns));
    let mut forward = vec![gemm("head", tokens, columns, hidden), loss(LOSS_PASSES[0])];
    let weights = gemm("head weight gradient", hidden, columns, tokens);
    let [launched, launched_backward] = LAUNCHES_ENDS
        .map(|count| op("launches", StepWork::Host { seconds: 1e-6 * request.software.launch_us * count }));
    forward.push(launched);
    if request.layout.tensor > 1 {
        forward.push(collective(Pattern::AllReduce, 8.0 * tokens, "tp", Hides::Nothing));
    }
    LayerBlock {
        forward,
        backward: vec![gemm("head input gradient", tokens, hidden, columns), loss(LOSS_PASSES[1]), launched_backward],
        weights: if request.is_adapted() { Vec::new() } else { vec![weights] },
        ..LayerBlock::default()
    }
}

/// Says whether the scores of attention are kept for the backward pass.
pub(super) fn keeps_scores(request: &Request) -> bool {
    request.software.attention == AttentionKernel::Unfused && request.layout.recompute.attention < 1.0
}

impl Request {
    /// Gathers of sharded parameters, and, backward, reductions of the gradients of trained ones.
    pub(super) fn sharded(
        &self,
        (dense, experts): (f64, f64),
        (trained, trained_experts): (f64, f64),
        backward: bool,
        hides: Hides,
    ) -> Vec<LayerOp> {
        let layout = &self.layout;
        let apart = layout.expert > 1;
        let common = if apart { dense } else { dense + experts };
        let mut found = vec![collective(Pattern::AllGather, common * self.parameter_bytes(), "shard", hides)];
        if backward {
            let reduced = if apart { trained } else { trained + trained_experts };
            found.extend(self.reduce(reduced * self.gradient_bytes(), hides));
        }
        if apart && experts > 0.0 && layout.expert_replicas() > 1 {
            found.push(collective(Pattern::AllGather, experts * self.layout.recipe.base_bytes(), "edp", hides));
            if backward {
                found.push(collective(Pattern::ReduceScatter, trained_experts * 2.0, "edp", hides));
            }
        }
        found
    }

    /// The reduction of gradients to shards, and over the copies of the shards.
    pub(super) fn reduce(&self, bytes: f64, hides: Hides) -> Vec<LayerOp> {
        let shards = self.layout.shards();
        let mut found = vec![collective(Pattern::ReduceScatter, bytes, "shard", hides)];
        if shards < self.layout.replicas() {
            found.push(collective(Pattern::AllReduce, bytes / f64::from(shards), "copies", hides));
        }
        found
    }
}

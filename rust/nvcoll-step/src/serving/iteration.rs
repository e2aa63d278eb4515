//! What one rank does in an iteration of a server: a step on one stream.
//!
//! | part | operations of a layer |
//! |---|---|
//! | products | the matrices of the layer, with the bytes of their weights as stored |
//! | latent attention, tokens that are generated | queries to latents and results from latents, instead of the expansion of keys (arXiv 2405.04434) |
//! | states | generated tokens: the state of each sequence is read and written, once; prompts: chunks of products (`recurrent.rs`) |
//! | sparse attention | the scores of an indexer on all keys, in 8 bits for prompts; attention to the best |
//! | attention | generated tokens: the keys and values of their sequences, once; prompts: pairs of tokens |
//! | experts | those that a batch reaches, if popularity has a gamma distribution: one token k of E, others of the rest 1 - (1 + s x)^(-1 / s), x: their mean on an expert, s: its variance over the square of its mean |
//! | element-wise kernels | two norms with their residuals, rotary positions with the store to the cache, the activation |
//! | tensor parallelism | two all_reduces, by the server's own kernels |
//! | drafts | the model that drafts: once over all new tokens, then once for each further draft of a sequence (`speculation.rs`) |
//! | attention copies | the gather of all tokens to the experts, and the reduction of their results |
//!
//! With stages, the iteration is one batch on its way through all of them.

use std::collections::BTreeMap;

use nvcoll_fabric::predict::{Pattern, Server};

use super::batch::IterationBatch;
use super::precision::{Precision, Stored};
use super::ServingRequest;
use crate::attention::Attention;
use crate::compute::Compute;
use crate::layout::Dtype;
use crate::matrices::{Matrix, MatrixKind};
use crate::memory::RankMemory;
use crate::model::{Experts, Layer, Mixer, Mlp};
use crate::network::Group;
use crate::parts::TimePart;
use crate::recurrent::RankRecurrent;
use crate::software::AttentionKernel;
use crate::step::streams::{HostClock, Issued, RankStreams, Streams};
use crate::step::work::{Awaited, Direction, MoveRate, StepOp, StepWork, Way};
use crate::step::{Form, GroupKind, RankGroup, WorkStep, SCHEMA};

/// Bytes of an activation: bf16.
const ELEMENT: f64 = 2.0;

/// What is not quantised.
const WIDE: Stored = Stored { bytes: ELEMENT, product: Dtype::Bf16 };

/// Launches that route tokens to experts, activate, and combine their results: top-k, positions, casts, sum. Counted in vLLM's kernels.
const ROUTING: f64 = 5.0;

/// Launches that sample a token of each sequence; they read the logits once. Counted in a dry run of vLLM, as the bytes below.
const SAMPLING: f64 = 9.0;

/// Launches that prepare an iteration, and copies to the GPU.
const INPUTS: f64 = 11.0;
const COPIES: f64 = 2.0;

/// Elements that the norms of a layer move beyond their own, in widths of the residual stream: where kernels of experts get a copy, and where the
/// results of shared experts are added.
const COPIED: f64 = 1.0;
const ADDED: f64 = 2.0;

/// The products of experts that read tokens.
const UP: &str = "experts up";

/// The multiple to which kernels of products in mxfp4 pad the width of an expert. Cited: vLLM's `triton_kernels`; TP 4 of gpt-oss has 768, not 720.
const PADDED: f64 = 64.0;

/// Launches of a chunked state beyond its first: scores, their inverse, weights, states, results. Counted in flash-linear-attention.
const CHUNKS: f64 = 5.0;

/// Bytes of a score of an indexer, which is the sum over its heads: fp32, written, and read by the choice of the best.
const SCORE: f64 = 8.0;

/// Returns how an operation is repeated.
fn times(count: f64) -> impl Fn(StepOp) -> StepOp {
    move |op| StepOp { count: op.count * count, ..op }
}

/// An iteration of one rank.
pub(super) struct Iteration<'r> {
    pub(super) request: &'r ServingRequest,
    pub(super) compute: Compute<'r>,
    /// The server whose kernels run an all_reduce; none: NCCL.
    pub(super) own: Option<Server>,
    pub(super) batch: IterationBatch,
    /// The kinds of the model's layers.
    pub(super) kinds: &'r BTreeMap<Layer, u32>,
    /// The model that drafts, and the kinds of its layers.
    pub(super) draft: Option<&'r (ServingRequest, BTreeMap<Layer, u32>)>,
}

impl ServingRequest {
    /// Returns the matrices of a layer on one rank, as the server keeps them.
    pub(super) fn matrices(&self, kind: Layer) -> Vec<Matrix> {
        let mut found = self.model.matrices(kind, &self.layout.division(&self.model));
        let is_padded = |one: &&mut Matrix| self.precision == Precision::Mxfp4 && one.kind == MatrixKind::Expert;
        for one in found.iter_mut().filter(is_padded) {
            let (width, multiple) =
                if one.name == UP { (&mut one.columns, 2.0 * PADDED) } else { (&mut one.inner, PADDED) };
            *width = (*width / multiple).ceil() * multiple;
        }
        found
    }
}

impl Iteration<'_> {
    /// Returns the step.
    pub(super) fn step(&self, name: &str, memory: Option<RankMemory>) -> WorkStep {
        let (request, layout) = (self.request, &self.request.layout);
        let issued =
            self.ops().into_iter().map(|op| Issued { stream: 0, line: None, by_graph: true, together: None, op });
        let rank = RankStreams {
            rank: 0,
            stands_for: layout.engine(),
            name: "each rank".to_owned(),
            host: HostClock::Timed,
            memory,
            issued: issued.collect(),
        };
        let groups = [("tp", layout.attention(), GroupKind::Tp), ("ep", layout.tensor, GroupKind::Ep)];
        let groups = groups.into_iter().filter(|(_, size, _)| *size > 1);
        WorkStep {
            schema: SCHEMA.to_owned(),
            name: format!("{name} of {} by {}", request.model.name, request.software.title),
            gpus: layout.engine(),
            tokens: Some(f64::from(layout.attention_copies) * self.batch.rows()),
            model_flops: None,
            dtype: self.stored(MatrixKind::Expert).product,
            groups: groups
                .map(|(name, size, kind)| (name.to_owned(), RankGroup { kind, ranks: Group::even(size, 1) }))
                .collect(),
            form: Form::Streams(Streams {
                gpu: self.compute.device.name.clone(),
                lines: Vec::new(),
                ranks: vec![rank],
            }),
        }
    }

    /// Returns the seconds of the processor before the iteration.
    pub(super) fn scheduler_s(&self) -> f64 {
        let (software, sampled) = (&self.request.software, self.batch.decodes + self.batch.prompts);
        (software.iteration_us + software.sequence_us * sampled) * 1e-6
    }

    fn ops(&self) -> Vec<StepOp> {
        let seconds = self.scheduler_s();
        let copy = StepWork::Copy { bytes: 8.0 * self.batch.rows(), direction: Direction::H2d };
        let inputs = StepOp { count: COPIES, ..StepOp::once("inputs", copy) };
        let scheduler = StepOp::once("scheduler", StepWork::Host { seconds });
        let mut ops = vec![scheduler, inputs, self.moved("inputs", 8.0, INPUTS)];
        ops.extend(self.pass());
        for (pass, count) in self.drafts() {
            ops.extend(pass.pass().into_iter().map(times(count)));
        }
        ops.push(StepOp::once("sampled tokens", StepWork::HostWait { target: Awaited::Device }));
        ops
    }

    /// Returns the passes of the model that drafts, with the number of each.
    fn drafts(&self) -> Vec<(Self, f64)> {
        let Some((request, kinds)) = self.draft else { return Vec::new() };
        let IterationBatch { decodes, cached, prompts, tokens, .. } = self.batch;
        let (decodes, cached) = (decodes + prompts, cached + tokens);
        let next = IterationBatch { decodes, checked: 1.0, cached, ..IterationBatch::default() };
        let pass = |batch| Self { request, kinds, batch, draft: None, ..*self };
        let passes = [(pass(self.batch), 1.0), (pass(next), self.request.checked_tokens() - 2.0)];
        passes.into_iter().filter(|(_, count)| *count > 0.0).collect()
    }

    /// Returns one pass of the model, from tokens to tokens.
    fn pass(&self) -> Vec<StepOp> {
        let ServingRequest { model, layout, .. } = self.request;
        let (hidden, sampled) = (model.hidden as f64, self.batch.decodes * self.batch.checked + self.batch.prompts);
        let mut ops = vec![self.moved("embedding", 2.0 * hidden, 1.0)];
        ops.extend(self.reduced());
        ops.extend(self.of_all_layers(|kind| self.layer(kind)));
        for _ in 1..layout.stages {
            let bytes = self.batch.rows() * hidden * ELEMENT;
            let work = StepWork::Message { way: Way::Send, bytes, peer: layout.tensor, tag: 0 };
            ops.push(StepOp::once("next stage", work));
        }
        let columns = model.vocab as f64 / f64::from(layout.attention());
        ops.push(self.product("head", [sampled, columns, hidden], 1.0, WIDE, None));
        if layout.attention() > 1 {
            ops.push(self.call(Pattern::AllGather, sampled.ceil() * model.vocab as f64 * ELEMENT, "tp"));
        }
        ops.push(moved("sampling", sampled, model.vocab as f64, SAMPLING));
        ops
    }

    /// Returns the number of launches.
    pub(super) fn launches(&self) -> f64 {
        let of = |op: &StepOp| match op.work {
            StepWork::Move { launches, .. } => op.count * launches,
            StepWork::Timed { .. } => op.count * ROUTING,
            _ => op.count,
        };
        self.ops().iter().map(of).sum()
    }

    /// Returns attention of all layers.
    pub(super) fn all_attention(&self) -> Vec<StepOp> {
        let mut ops = self.of_all_layers(|kind| self.attention(kind));
        for (pass, count) in self.drafts() {
            ops.extend(pass.all_attention().into_iter().map(times(count)));
        }
        ops
    }

    fn of_all_layers(&self, ops: impl Fn(Layer) -> Vec<StepOp>) -> Vec<StepOp> {
        self.kinds.iter().flat_map(|(&kind, &count)| ops(kind).into_iter().map(times(count.into()))).collect()
    }

    fn layer(&self, kind: Layer) -> Vec<StepOp> {
        let ServingRequest { model, software, layout, .. } = self.request;
        let (hidden, rows) = (model.hidden as f64, self.batch.rows());
        let (fused, parts) = (software.fuses_norms && layout.attention() > 1, kind.parts());
        let launches = if fused { 0.0 } else { parts };
        let experts = model.experts.filter(|_| kind.mlp == Mlp::Experts);
        let copied = if experts.is_some() && !self.activates() { COPIED } else { 0.0 };
        let added = if experts.is_some_and(|one| one.shared > 0) { ADDED } else { 0.0 };
        let mut ops = vec![self.moved("norms and residuals", (4.0 * parts + copied + added) * hidden, launches)];
        for matrix in self.request.matrices(kind) {
            ops.extend(self.products(&matrix));
        }
        if kind.attends() {
            ops.extend(self.rotated());
            ops.extend(self.attention(kind));
        }
        if let Some(one) = model.recurrent.filter(|_| kind.mixer == Mixer::State) {
            ops.extend(self.state(one.on_rank(layout.attention().into())));
        }
        if kind.mixer != Mixer::None {
            ops.extend(self.reduced());
        }
        if kind.mlp == Mlp::None {
            return ops;
        }
        let part = |width: u64| 3.0 * width as f64 / f64::from(layout.tensor);
        match experts {
            None => ops.push(self.moved("activation", part(model.ffn), 1.0)),
            Some(experts) => ops.extend(self.routed(experts, part)),
        }
        if layout.attention_copies == 1 || experts.is_none() {
            ops.extend(self.reduced());
        } else {
            let all = rows * f64::from(layout.attention_copies) * hidden;
            let narrow = if self.stored(MatrixKind::Expert).product.is_narrow() { 1.0 } else { ELEMENT };
            ops.push(self.call(Pattern::AllGather, all * narrow, "ep"));
            ops.push(self.call(Pattern::ReduceScatter, all * ELEMENT, "ep"));
        }
        ops
    }

    /// Returns the kernels between projections and attention: rotary positions, and what the cache gets.
    fn rotated(&self) -> [StepOp; 2] {
        let ServingRequest { model, layout, .. } = self.request;
        let heads = model.heads as f64 * if model.output_gate { 3.0 } else { 1.0 } / f64::from(layout.attention());
        let of_token = self.request.key_bytes() / self.request.cache_bytes;
        let (kept, launches) = model.mla.map_or((of_token / 2.0, 2.0), |mla| ((mla.kv + mla.rope) as f64, 3.0));
        let rotated = self.moved("rotary positions", 2.0 * (heads * model.head_dim as f64 + kept), launches);
        [rotated, self.moved("cache", 2.0 * of_token, 1.0)]
    }

    /// Returns what kernels of experts do beside products: the activation, the sum, and what was measured beyond the work of all.
    fn routed(&self, experts: Experts, part: impl Fn(u64) -> f64) -> Vec<StepOp> {
        let ServingRequest { model, software, layout, .. } = self.request;
        let active = experts.shared + if self.activates() { 0 } else { experts.top_k };
        let routed = experts.top_k as f64 / f64::from(layout.expert) * f64::from(layout.attention_copies);
        let Compute { device, constants } = self.compute;
        let all = self.stored(MatrixKind::Expert).experts_s(software.name, device);
        let products = 2e-6 * device.of_generation(&constants.graph_experts);
        vec![
            self.moved("activation", part(active * experts.ffn), 0.0),
            self.moved("routing and sum of experts", experts.count as f64 + (routed + 1.0) * model.hidden as f64, 0.0),
            StepOp::once("kernels of experts", StepWork::Timed { seconds: (all - products).max(0.0) }),
        ]
    }

    fn stored(&self, kind: MatrixKind) -> Stored {
        self.request.precision.of(kind, self.request.model.experts.is_some(), self.compute.device)
    }

    /// Returns the products with a matrix.
    fn products(&self, matrix: &Matrix) -> Vec<StepOp> {
        let Matrix { name, columns, inner, kind, .. } = *matrix;
        let stored = self.stored(kind);
        match kind {
            MatrixKind::Expansion => self.expansion(matrix, stored),
            MatrixKind::Expert => {
                let experts = self.request.model.experts.expect("a layer with experts is of a model with experts");
                let (reached, rows) = self.reached(experts, matrix.count);
                let all = rows * reached;
                let read = if name == UP { all.min(self.tokens()) } else { all };
                let written = if name == UP && self.activates() { columns / 2.0 } else { columns };
                let moved = read * inner * stored.product.bytes() + all * written * ELEMENT;
                vec![self.product(name, [rows, columns, inner], reached, stored, Some(moved))]
            }
            _ => {
                let product = self.product(name, [self.batch.rows(), columns, inner], 1.0, stored, None);
                let launches = if name.ends_with(" out") { 1.0 } else { 0.0 }; // others are in the kernel of a norm or an activation
                let cast = stored.product.is_narrow().then(|| self.moved("casts", 1.5 * inner, launches));
                cast.into_iter().chain([product]).collect()
            }
        }
    }

    /// Returns the tokens of all attention copies.
    fn tokens(&self) -> f64 {
        self.batch.rows() * f64::from(self.request.layout.attention_copies)
    }

    /// Says whether the products of experts activate their results themselves, as those of `triton_kernels` do.
    fn activates(&self) -> bool {
        self.request.precision == Precision::Mxfp4
    }

    /// Of the experts of a rank those that a batch reaches, and the rows of each.
    fn reached(&self, experts: Experts, on_rank: f64) -> (f64, f64) {
        let tokens = self.tokens();
        let drawn = experts.top_k as f64 / experts.count as f64;
        let skew = self.compute.constants.experts_skew;
        let first = drawn * on_rank * tokens.min(1.0);
        let others = 1.0 - (1.0 + skew * drawn * (tokens - 1.0).max(0.0)).powf(-1.0 / skew);
        let reached = first + (on_rank - first) * others;
        (reached, tokens * drawn * on_rank / reached)
    }

    /// Latents to keys and values of all heads for prompts; for generated tokens queries to latents, and results from them.
    fn expansion(&self, matrix: &Matrix, stored: Stored) -> Vec<StepOp> {
        let (model, IterationBatch { decodes, tokens, .. }) = (&self.request.model, self.batch);
        let mla = model.mla.expect("latents are of latent attention");
        let heads = model.heads as f64 / f64::from(self.request.layout.attention());
        let [kv, nope, v] = [mla.kv, mla.nope, mla.v].map(|size| size as f64);
        let mut found = Vec::new();
        if tokens > 0.0 {
            found.push(self.product(matrix.name, [tokens, matrix.columns, matrix.inner], 1.0, stored, None));
        }
        if decodes > 0.0 {
            let rows = decodes * self.batch.checked;
            found.push(self.product("queries to latents", [rows, kv, nope], heads, WIDE, None));
            found.push(self.product("results from latents", [rows, v, kv], heads, WIDE, None));
        }
        found
    }

    /// `routed`: the bytes of activations of experts, which read a token once for all of its experts.
    fn product(&self, name: &str, [m, n, k]: [f64; 3], batch: f64, stored: Stored, routed: Option<f64>) -> StepOp {
        let seen = self.compute.weights_seen(stored.bytes, stored.product);
        let moved = routed.unwrap_or_else(|| batch * m * (k * stored.product.bytes() + n * ELEMENT));
        let (bytes, experts) = (batch * n * k * stored.bytes * seen + moved, routed.map(|_| 1.0));
        StepOp::once(name, StepWork::Gemm { m, n, k, batch, dtype: stored.product, experts, bytes: Some(bytes) })
    }

    /// Returns the short convolution, the state and its gated norm: the state of a sequence
    /// is read once, and written for each token, since drafts may be refused.
    fn state(&self, one: RankRecurrent) -> Vec<StepOp> {
        let IterationBatch { decodes, checked, prompts, tokens, .. } = self.batch;
        let mut found = vec![self.moved("short convolution", 2.0 * one.convolved(), 1.0)];
        let bytes = (decodes * (1.0 + checked) + 2.0 * prompts) * one.state_bytes();
        found.push(StepOp::once("states", StepWork::Move { bytes, launches: 1.0, rate: MoveRate::Stream, flops: 0.0 }));
        if tokens > 0.0 {
            found.push(StepOp::once("chunks of prompts", one.chunked(tokens, 1.0).into()));
            found.push(self.moved("parts of chunks", 0.0, CHUNKS));
        }
        found.iter_mut().for_each(|op| op.part = Some(TimePart::State));
        found.push(self.moved("gate", 3.0 * one.value_width(), 1.0));
        found
    }

    /// Returns attention of generated tokens, and of prompts.
    fn attention(&self, kind: Layer) -> Vec<StepOp> {
        if !kind.attends() {
            return Vec::new();
        }
        let (model, IterationBatch { decodes, cached, tokens, pairs, .. }) = (&self.request.model, self.batch);
        let window = model.most_seen(kind).unwrap_or(f64::INFINITY);
        let heads = model.heads as f64 / f64::from(self.request.layout.attention());
        let attend = |name, heads, [sequences, queries, keys]: [f64; 3], [qk_dim, v_dim]: [f64; 2], bytes| {
            let kernel = AttentionKernel::Fa2;
            let (window, backward, causal) = (None, false, false);
            let work =
                Attention { queries, keys, window, sequences, heads, qk_dim, v_dim, kernel, backward, causal, bytes };
            StepOp::once(name, StepWork::Attention(work))
        };
        let mut found = Vec::new();
        let sparse = model.indexer.map(|one| (one.heads as f64, [one.head_dim as f64, 0.0]));
        if let Some((heads, sizes)) = sparse.filter(|_| decodes > 0.0) {
            let bytes = Some(cached * self.request.index_bytes());
            let keys = cached / decodes + self.batch.checked;
            found.push(attend("index", heads, [decodes, self.batch.checked, keys], sizes, bytes));
        }
        if let Some((heads, sizes)) = sparse.filter(|_| tokens > 0.0) {
            let dtype = if self.compute.device.peak(Dtype::Fp8).is_ok() { Dtype::Fp8 } else { Dtype::Bf16 };
            let (m, n, k, bytes) = (tokens, pairs / tokens, heads * sizes[0], Some(SCORE * pairs));
            let work = StepWork::Gemm { m, n, k, batch: 1.0, dtype, experts: None, bytes };
            let part = Some(TimePart::Attention);
            found.push(StepOp { part, ..StepOp::once("index of prompts", work) });
        }
        if decodes > 0.0 {
            let keys = (cached / decodes).min(window) + self.batch.checked;
            let ends = 2.0 * self.batch.checked * heads * model.head_dim as f64 * ELEMENT;
            let bytes = decodes * (keys * self.request.key_bytes() + ends);
            let sizes =
                model.mla.map_or([model.head_dim; 2], |mla| [mla.kv + mla.rope, mla.kv]).map(|size| size as f64);
            found.push(attend("attention", heads, [decodes, self.batch.checked, keys], sizes, Some(bytes)));
            let joined = if model.mla.is_some() { 0.0 } else { 2.0 * heads * model.head_dim as f64 };
            let join = moved("attention, parts joined", decodes * self.batch.checked, joined, 1.0);
            found.push(StepOp { part: Some(TimePart::Attention), ..join });
        }
        if tokens > 0.0 {
            let sizes =
                model.mla.map_or([model.head_dim; 2], |mla| [mla.nope + mla.rope, mla.v]).map(|size| size as f64);
            let bytes = tokens * (heads * (sizes[0] + sizes[1]) * ELEMENT + self.request.key_bytes());
            let seen = [1.0, tokens, (pairs / tokens).min(window)];
            found.push(attend("attention of prompts", heads, seen, sizes, Some(bytes)));
            if let Some(mla) = model.mla {
                found.push(moved("keys of heads", tokens, heads * (2 * mla.nope + mla.rope) as f64, 4.0));
            }
        }
        found
    }

    /// Returns kernels that move elements for each row.
    fn moved(&self, name: &str, elements: f64, launches: f64) -> StepOp {
        moved(name, self.batch.rows(), elements, launches)
    }

    fn call(&self, pattern: Pattern, bytes: f64, group: &str) -> StepOp {
        let server = self.own.filter(|_| pattern == Pattern::AllReduce);
        let work = StepWork::Collective { pattern, bytes, group: group.to_owned(), once_per_node: None, server };
        StepOp::once(format!("{group} {}", pattern.name()), work)
    }

    /// The all_reduce of the residual stream.
    fn reduced(&self) -> Option<StepOp> {
        let bytes = self.batch.rows().ceil() * self.request.model.hidden as f64 * ELEMENT;
        (self.request.layout.attention() > 1).then(|| self.call(Pattern::AllReduce, bytes, "tp"))
    }
}

/// Returns kernels that move elements for each of some rows.
fn moved(name: &str, rows: f64, elements: f64, launches: f64) -> StepOp {
    let bytes = rows * elements * ELEMENT;
    StepOp::once(name, StepWork::Move { bytes, launches, rate: MoveRate::Counted, flops: 0.0 })
}

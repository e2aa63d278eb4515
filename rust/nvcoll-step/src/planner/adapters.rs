//! What a recipe adds to a layer: adapters beside frozen matrices, frozen matrices in few bits, copies of what waits in RAM, Muon.
//!
//! ```text
//! forward    x A (rows, rank, inner), then B (rows, columns, rank); the result is added: read two, write one
//! backward   the same two products for gradients of inputs, two more for those of A and B
//! magnitudes W + B A is made, added and normed: five passes over the matrix in bf16 (arXiv 2402.09353)
//! few bits   each product with a frozen matrix first writes it in bf16
//! offload    copies over the link to the processor, beside another layer
//! ```

use super::layers::{moved, op, LayerSizes, ProductPass, ELEMENT};
use super::request::Request;
use crate::error::{Error, Result};
use crate::matrices::{Matrix, MatrixKind};
use crate::software::EAGER_LAUNCH_S;
use crate::step::layers::{Hides, LayerOp};
use crate::step::work::{Direction, MoveRate, StepOp, StepWork};

/// A module with an adapter: its matrix is a part of one of the layer's.
struct Adapter {
    rows: f64,
    columns: f64,
    inner: f64,
    count: f64,
    is_expert: bool,
}

/// Launches of an adapter forward and backward, with casts between its fp32 and the bf16 of the layer, and of a frozen matrix of few bits.
/// Counted: PEFT and bitsandbytes, data/training-steps/launches.csv.
const LAUNCHES: [f64; 2] = [8.0, 12.0];
const LAUNCHES_WIDENED: [f64; 2] = [3.0, 4.0];

/// Returns the time of the processor for the launches of some modules; `of_module`: forward and backward.
fn launched(name: &str, of_module: [f64; 2], pass: ProductPass, modules: usize) -> LayerOp {
    let launches = of_module[usize::from(pass != ProductPass::Forward)] * modules as f64;
    op(name, StepWork::Host { seconds: launches * EAGER_LAUNCH_S })
}

impl LayerSizes<'_> {
    /// The parts of a matrix that frameworks have as modules: name and part of the columns.
    fn modules(&self, matrix: &Matrix) -> Vec<(&'static str, f64)> {
        let model = &self.request.model;
        let (heads, keys) = (model.heads as f64 * if model.output_gate { 2.0 } else { 1.0 }, model.kv_heads as f64);
        let (all, latents) = (heads + 2.0 * keys, model.mla.map_or(0.0, |mla| mla.q as f64));
        match matrix.name {
            "qkv" => vec![("q", heads / all), ("k", keys / all), ("v", keys / all)],
            "latents" if latents > 0.0 => {
                vec![("q_a", latents / matrix.columns), ("kv_a", 1.0 - latents / matrix.columns)]
            }
            "latents" => vec![("kv_a", 1.0)],
            "queries" => vec![("q_b", 1.0)],
            "keys and values" => vec![("kv_b", 1.0)],
            "attention out" | "state out" => vec![("o", 1.0)],
            "state in" => vec![("in", 1.0)],
            name if name.ends_with("down") => vec![("down", 1.0)],
            name if name.ends_with("up") && model.gated => vec![("gate", 0.5), ("up", 0.5)],
            name if name.ends_with("up") => vec![("up", 1.0)],
            _ => Vec::new(),
        }
    }

    fn adapters(&self) -> Vec<Adapter> {
        let recipe = &self.request.layout.recipe;
        if recipe.lora.is_none() {
            return Vec::new();
        }
        let of = |rows: f64, matrix: &Matrix| -> Vec<Adapter> {
            let is_expert = matrix.kind == MatrixKind::Expert;
            let group = if is_expert || matrix.kind == MatrixKind::Mlp { "mlp" } else { "attention" };
            let modules = self.modules(matrix).into_iter().filter(|(name, _)| recipe.adapts(name, group));
            let adapter = |(_, part): (_, f64)| Adapter {
                rows,
                columns: part * matrix.columns,
                inner: matrix.inner,
                count: matrix.count,
                is_expert,
            };
            modules.map(adapter).collect()
        };
        self.products().iter().flat_map(|one| of(one.rows, &one.matrix)).collect()
    }

    /// The least dimension of the matrices that have adapters.
    fn least_dimension(&self) -> f64 {
        self.adapters().iter().map(|one| one.columns.min(one.inner)).fold(f64::INFINITY, f64::min)
    }

    fn rank(&self) -> f64 {
        self.request.layout.recipe.lora.unwrap_or(0).into()
    }

    fn has_magnitudes(&self) -> bool {
        self.request.layout.recipe.dora == Some(true)
    }

    /// Parameters of adapters on this rank: beside dense matrices, and beside experts.
    pub(super) fn adapter_parameters(&self) -> (f64, f64) {
        let (mut dense, mut experts) = (0.0, 0.0);
        for one in self.adapters() {
            let magnitudes = if self.has_magnitudes() { one.columns } else { 0.0 };
            let parameters = one.count * (self.rank() * (one.columns + one.inner) + magnitudes);
            *if one.is_expert { &mut experts } else { &mut dense } += parameters;
        }
        (dense, experts)
    }

    /// Bytes of the products with A, which the backward pass needs.
    pub(super) fn adapter_activations(&self) -> f64 {
        self.adapters().iter().map(|one| ELEMENT * one.rows * one.count * self.rank()).sum()
    }

    /// What adapters do in a pass.
    pub(super) fn adapter_ops(&self, pass: ProductPass) -> Vec<LayerOp> {
        let (rank, adapters) = (self.rank(), self.adapters());
        if adapters.is_empty() {
            return Vec::new();
        }
        let mut found: Vec<LayerOp> = adapters.iter().flat_map(|one| self.products_of(one, pass)).collect();
        if pass != ProductPass::Weights {
            let added: f64 = adapters.iter().map(|one| 3.0 * one.rows * one.columns * one.count).sum();
            let bytes = self.request.software.elementwise * ELEMENT * added;
            found.push(op("adapters added", moved(MoveRate::Least, bytes)));
            found.push(launched("launches of adapters", LAUNCHES, pass, adapters.len()));
        }
        if pass == ProductPass::Forward && self.has_magnitudes() {
            let of_matrix = |one: &Adapter| self.adapter_gemm("magnitudes", [one.columns, one.inner, rank], one.count);
            found.extend(adapters.iter().map(of_matrix));
            let elements: f64 = adapters.iter().map(|one| one.columns * one.inner * one.count).sum();
            found.push(op("norms of magnitudes", moved(MoveRate::Counted, 5.0 * ELEMENT * elements)));
        }
        found
    }

    fn products_of(&self, &Adapter { rows, columns, inner, count, .. }: &Adapter, pass: ProductPass) -> [LayerOp; 2] {
        let rank = self.rank();
        let [first, second] = match pass {
            ProductPass::Forward => [[rows, rank, inner], [rows, columns, rank]],
            ProductPass::Inputs => [[rows, rank, columns], [rows, inner, rank]],
            ProductPass::Weights => [[inner, rank, rows], [rank, columns, rows]],
        };
        [self.adapter_gemm("adapter", first, count), self.adapter_gemm("adapter", second, count)]
    }

    /// A product that stays wide in narrow training.
    fn adapter_gemm(&self, name: &str, [m, n, k]: [f64; 3], batch: f64) -> LayerOp {
        let dtype = super::layers::wide(self.request.layout.dtype);
        op(name, StepWork::Gemm { m, n, k, batch, dtype, experts: None, bytes: None })
    }

    /// The pass that writes frozen matrices in bf16, before the products of one direction.
    pub(super) fn widened(&self, pass: ProductPass) -> Vec<LayerOp> {
        let Some(format) = self.request.layout.recipe.quantize else {
            return Vec::new();
        };
        let (dense, experts) = self.parameters();
        let bytes = (dense + experts) * (format.bytes() + ELEMENT);
        let modules: usize = self.products().iter().map(|one| self.modules(&one.matrix).len()).sum();
        let host = launched("launches of widened weights", LAUNCHES_WIDENED, pass, modules);
        vec![op("widened weights", moved(MoveRate::Counted, bytes)), host]
    }

    /// Copies of what waits in RAM, beside the work of another layer: parameters in both passes, activations there and back.
    pub(super) fn offload_copies(&self, backward: bool) -> Vec<LayerOp> {
        let (layout, layer) = (&self.request.layout, self.layer);
        let copy = |name, part, bytes, direction| {
            let copied = StepOp::once(name, StepWork::Copy { bytes, direction });
            layout.recipe.offloads(part).then_some(LayerOp { hides: Hides::OtherLayer, op: copied })
        };
        let (dense, experts) = self.parameters();
        let shards = if self.request.shards_layers() { f64::from(layout.shards()) } else { 1.0 };
        let bytes = (dense + experts) * layout.recipe.base_bytes() / shards;
        let parameters = copy("parameters from RAM", "parameters", bytes, Direction::H2d);
        let direction = if backward { Direction::H2d } else { Direction::D2h };
        let activations = copy("activations in RAM", "activations", self.request.kept(layer), direction);
        parameters.into_iter().chain(activations).collect()
    }

    /// Products of Newton and Schulz for the matrices of some layers: x xT, its square, and their product with x, in each iteration.
    pub(super) fn orthogonal(&self, layers: f64) -> Vec<StepOp> {
        let layout = &self.request.layout;
        let iterations = layout.recipe.optimizer().map_or(0, |row| row.iterations);
        let of = |matrix: &Matrix| -> Vec<StepOp> {
            let is_expert = matrix.kind == MatrixKind::Expert;
            let shards = if is_expert { layout.expert_shards() } else { layout.shards() };
            let count = f64::from(iterations) * layers / f64::from(shards);
            let of_module = |(_, part): (_, f64)| {
                let (columns, inner) = (part * matrix.columns, matrix.inner);
                let (short, long) = (columns.min(inner), columns.max(inner));
                let sizes = [[short, short, long], [short, short, short], [short, long, short]];
                sizes.map(|size| StepOp { count, ..self.adapter_gemm("Newton-Schulz", size, matrix.count).op })
            };
            self.modules(matrix).into_iter().flat_map(of_module).collect()
        };
        if iterations == 0 || self.layer.is_frozen {
            return Vec::new();
        }
        self.products().iter().flat_map(|one| of(&one.matrix)).collect()
    }

    /// Bytes of the largest matrix in bf16, which is there while its product runs.
    pub(super) fn widened_bytes(&self) -> f64 {
        self.request.layout.recipe.quantize.map_or(0.0, |_| ELEMENT * self.largest_matrix())
    }

    /// Parameters of the largest matrix.
    pub(super) fn largest_matrix(&self) -> f64 {
        let of = |matrix: &Matrix| {
            let part = self.modules(matrix).into_iter().map(|(_, part)| part).fold(0.0, f64::max);
            part * matrix.columns * matrix.inner
        };
        self.products().iter().map(|one| of(&one.matrix)).fold(0.0, f64::max)
    }
}

impl Request {
    /// Refuses adapters that are no smaller than a matrix beside them.
    pub(super) fn check_adapters(&self) -> Result<()> {
        let whole = Self { layout: self.layout.undivided(), ..self.clone() };
        let least = whole.model.kinds().into_keys().map(|kind| LayerSizes::of(&whole, kind).least_dimension());
        let least = least.fold(f64::INFINITY, f64::min);
        match self.layout.recipe.lora {
            Some(rank) if f64::from(rank) > least => Err(Error::layout(format!(
                "adapters have rank {rank}, and the least dimension of their matrices is {least}: take a lower rank"
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the FLOPs of the model per token. A frozen base has no gradients of weights, a third of its products; layers that are frozen
    /// alone have a forward pass.
    pub(super) fn flops_per_token(&self) -> f64 {
        let (model, sequence) = (&self.model, self.layout.document());
        let all = model.flops_per_token(sequence);
        if !self.is_adapted() {
            let of = |index: u32| model.layer_flops(model.layer(index), sequence);
            let frozen: f64 = (0..self.layout.recipe.frozen.unwrap_or(0)).map(of).sum();
            let head = 6.0 * (model.embedding_parameters() + 2.0 * (model.hidden * model.hidden) as f64);
            let predicting = f64::from(self.layout.recipe.mtp.unwrap_or(0));
            return all - 2.0 / 3.0 * frozen + predicting * (of(model.layers - 1) + head);
        }
        let active = |experts: f64| model.experts.map_or(0.0, |one| experts * one.top_k as f64 / one.count as f64);
        let whole = Self { layout: self.layout.undivided(), ..self.clone() };
        let layers = (0..model.layers).map(|index| {
            let base = model.layer_parameters(model.layer(index));
            let (dense, experts) = LayerSizes::of(&whole, model.layer(index)).adapter_parameters();
            6.0 * (dense + active(experts)) - 2.0 * (base.dense + active(base.experts))
        });
        all + layers.sum::<f64>() - 2.0 * model.embedding_parameters()
    }
}

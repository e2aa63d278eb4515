//! The matrices of a layer, as one rank has them: what training and serving multiply with, and what both keep.

use crate::model::{Layer, Mixer, Mlp, Model};
use crate::recurrent::{RankRecurrent, StateRule};

/// A matrix of a layer: its result has `columns`, its products have `inner` elements.
pub(crate) struct Matrix {
    pub(crate) name: &'static str,
    pub(crate) columns: f64,
    pub(crate) inner: f64,
    /// How many there are on a rank: experts.
    pub(crate) count: f64,
    pub(crate) kind: MatrixKind,
}

/// What a matrix is for, as far as rows, precision or sharding depend on it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatrixKind {
    /// The projection to latents, which every tensor-parallel rank has whole.
    Latents,
    /// The expansion of latent keys and values.
    Expansion,
    Attention,
    /// The projections of a layer with a state.
    State,
    /// The projection to decays of a delta net, a few columns.
    Decays,
    Mlp,
    Router,
    Expert,
}

/// Among how many ranks the parts of a layer are divided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LayerDivision {
    /// The heads of queries.
    pub(crate) heads: f64,
    /// The heads of keys and values.
    pub(crate) kv_heads: f64,
    /// The widths of dense MLPs and shared experts.
    pub(crate) mlp: f64,
    /// The routed experts.
    pub(crate) experts: f64,
    /// The width of a routed expert.
    pub(crate) expert_width: f64,
}

impl Model {
    /// Returns the matrices of a layer on one rank; norms and biases are left out.
    pub(crate) fn matrices(&self, layer: Layer, by: &LayerDivision) -> Vec<Matrix> {
        let mut found = match (layer.mixer, self.recurrent) {
            (Mixer::State, Some(one)) => self.state_matrices(&one.on_rank(by.heads)),
            (Mixer::Attention | Mixer::Window, _) => self.attention_matrices(by),
            _ => Vec::new(),
        };
        let (hidden, up) = (self.hidden as f64, if self.gated { 2.0 } else { 1.0 });
        let of = |kind, name, columns, inner, count| Matrix { name, columns, inner, count, kind };
        if layer.mlp == Mlp::None {
            return found;
        }
        let Some(experts) = self.experts.filter(|_| layer.mlp == Mlp::Experts) else {
            let width = self.ffn as f64 / by.mlp;
            found.push(of(MatrixKind::Mlp, "mlp up", up * width, hidden, 1.0));
            found.push(of(MatrixKind::Mlp, "mlp down", hidden, width, 1.0));
            return found;
        };
        found.push(of(MatrixKind::Router, "router", experts.count as f64, hidden, 1.0));
        if experts.shared > 0 {
            let width = (experts.ffn * experts.shared) as f64 / by.mlp;
            found.push(of(MatrixKind::Mlp, "shared expert up", up * width, hidden, 1.0));
            found.push(of(MatrixKind::Mlp, "shared expert down", hidden, width, 1.0));
        }
        let (count, width) = (experts.count as f64 / by.experts, experts.ffn as f64 / by.expert_width);
        found.push(of(MatrixKind::Expert, "experts up", up * width, hidden, count));
        found.push(of(MatrixKind::Expert, "experts down", hidden, width, count));
        found
    }

    /// The projections of a layer with a state: decays of delta nets have a matrix of their own.
    fn state_matrices(&self, one: &RankRecurrent) -> Vec<Matrix> {
        let (hidden, values, decays) = (self.hidden as f64, one.value_width(), one.decays());
        let of = |kind, name, columns, inner| Matrix { name, columns, inner, count: 1.0, kind };
        let columns = one.convolved() + values;
        let mut found = match one.rule() {
            StateRule::Scan => vec![of(MatrixKind::State, "state in", columns + decays, hidden)],
            StateRule::Delta => vec![
                of(MatrixKind::State, "state in", columns, hidden),
                of(MatrixKind::Decays, "decays", decays, hidden),
            ],
        };
        found.push(of(MatrixKind::State, "state out", hidden, values));
        found
    }

    fn attention_matrices(&self, by: &LayerDivision) -> Vec<Matrix> {
        let (hidden, heads) = (self.hidden as f64, self.heads as f64 / by.heads);
        let of = |kind, name, columns, inner| Matrix { name, columns, inner, count: 1.0, kind };
        let Some(mla) = self.mla else {
            let (head, keys) = (self.head_dim as f64, 2.0 * self.kv_heads as f64 / by.kv_heads);
            let queries = if self.output_gate { 2.0 * heads } else { heads };
            return vec![
                of(MatrixKind::Attention, "qkv", (queries + keys) * head, hidden),
                of(MatrixKind::Attention, "attention out", hidden, heads * head),
            ];
        };
        let [q, kv, nope, rope, v] = [mla.q, mla.kv, mla.nope, mla.rope, mla.v].map(|size| size as f64);
        let mut found = vec![
            of(MatrixKind::Latents, "latents", q + kv + rope, hidden),
            of(MatrixKind::Attention, "queries", heads * (nope + rope), if q > 0.0 { q } else { hidden }),
            of(MatrixKind::Expansion, "keys and values", heads * (nope + v), kv),
            of(MatrixKind::Attention, "attention out", hidden, heads * v),
        ];
        if let Some(one) = self.indexer {
            let (index, size) = (one.heads as f64, one.head_dim as f64);
            found.push(of(MatrixKind::Latents, "index keys", size + index, hidden));
            found.push(of(MatrixKind::Latents, "index queries", index * size, if q > 0.0 { q } else { hidden }));
        }
        found
    }
}

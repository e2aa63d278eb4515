//! Rows about the algorithms among which `auto` chooses: see [`crate::rows`].

use pyo3::inspect::PyStaticExpr;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;
use pyo3::IntoPyObjectExt;

use nvcoll_engine::auto::choice::{ChosenAlgorithm, Estimate, MODELLED_RANKS};
use nvcoll_engine::auto::estimate::{Mode, COEFFICIENTS};

use crate::rows::{class, rows};

rows! {
    /// A coefficient of the cost model; `per_second` of its units are a second.
    CoefficientRow(coefficient: (&'static str, f64)) {
        name: &'static str = coefficient.0,
        per_second: f64 = coefficient.1,
    }

    /// The model by which `auto` chooses: its modes, its coefficients, and the most ranks for which it estimates candidates.
    CostModel(_unit: ()) {
        modes: Vec<&'static str> = Mode::ALL.iter().map(|mode| mode.name()).collect(),
        coefficients: Vec<CoefficientRow> = COEFFICIENTS.iter().copied().map(CoefficientRow).collect(),
        most_ranks: u32 = MODELLED_RANKS,
    }

    /// What `auto` expects of one algorithm: bytes that all ranks read and write, waits and steps of the longest chain, the
    /// factor of each coefficient, and seconds.
    CandidateRow(estimate: Estimate) {
        algorithm: &'static str = estimate.algorithm,
        moved_bytes: f64 = estimate.moved_bytes,
        waits: u32 = estimate.waits,
        steps: u64 = estimate.steps,
        terms: Vec<f64> = estimate.terms.to_vec(),
        seconds: f64 = estimate.seconds,
    }

    /// What `auto` chooses for a call, why, and what it expects of each candidate.
    AutoChoice(chosen: (ChosenAlgorithm, Vec<Estimate>)) {
        algorithm: &'static str = chosen.0.algorithm,
        why: &'static str = chosen.0.why,
        candidates: Vec<CandidateRow> = chosen.1.into_iter().map(CandidateRow).collect(),
    }
}

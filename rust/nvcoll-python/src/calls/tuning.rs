//! Tuning tables and estimates of `auto`, for `nvcoll explain` and `nvcoll bench --tune`.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use nvcoll_core::counts::Counts;
use nvcoll_core::dtype::DType;
use nvcoll_core::op::Op;
use nvcoll_core::schedule::Aliasing;
use nvcoll_engine::auto::choice::MODELLED_RANKS;
use nvcoll_engine::auto::estimate::{Mode, COEFFICIENTS};
use nvcoll_engine::auto::tuning::{self, candidates, Tuning, FORMAT};
use nvcoll_engine::auto::work_split::WorkSplit;
use nvcoll_engine::call::Call;
use nvcoll_engine::ranks::node::Node;

use crate::error::{invalid, of_engine};
use crate::gil::WithoutGil;
use crate::integers::integer;
use crate::rows::{AutoChoice, CandidateRow, CoefficientRow, CostModel};
use crate::schedules::schedule::{collective_named, path_named};

/// Reads `tuning=`. Default: the table that the environment names, else the shipped table.
pub(crate) fn of_option(py: Python<'_>, file: Option<PathBuf>) -> PyResult<Arc<Tuning>> {
    let table = file.map_or_else(tuning::of_environment, |file| tuning::read(&file));
    table.map_err(|error| of_engine(py, &error))
}

/// Returns a table as a dictionary: machine, caches, and the coefficients of each mode.
pub(crate) fn as_dict<'py>(py: Python<'py>, table: &Tuning) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("format", FORMAT)?;
    all.set_item("machine", &table.machine)?;
    all.set_item("near_bytes", table.caches.near_bytes)?;
    all.set_item("far_bytes", table.caches.far_bytes)?;
    for &mode in Mode::ALL {
        let of_mode = PyDict::new(py);
        for ((name, _), value) in COEFFICIENTS.iter().zip(table.coefficients(mode)) {
            of_mode.set_item(name, value)?;
        }
        all.set_item(mode.name(), of_mode)?;
    }
    Ok(all)
}

/// The most elements of an estimate. Chosen: the bytes of all ranks fit 64 bits.
const MOST_ELEMENTS: i64 = 1 << 48;

/// Returns the algorithm that `auto` selects for a call of all ranks, and its estimate of each candidate.
#[allow(clippy::too_many_arguments)]
pub(crate) fn estimates(
    py: Python<'_>,
    engine: &Node,
    collective: &str,
    count: &Bound<'_, PyAny>,
    dtype: &str,
    root: &Bound<'_, PyAny>,
    path: &str,
    in_place: bool,
    by_rank: bool,
) -> PyResult<AutoChoice> {
    let contract = collective_named(py, collective)?;
    let dtype = DType::named(dtype).ok_or_else(|| invalid(py, format!("no dtype is called `{dtype}`")))?;
    let root = integer("root", root, 0..=engine.world_size() - 1)?;
    let path = path_named(py, path)?;
    let aliasing = if in_place { Aliasing::InPlace } else { Aliasing::Disjoint };
    if !contract.aliasings().contains(&aliasing) {
        return Err(invalid(py, format!("{collective} is never in place")));
    }
    let count = integer("count", count, 0..=MOST_ELEMENTS)? as usize;
    let (algorithm, op, counts) = ("auto".into(), Op::Sum, Counts::Even(count));
    let call = Call { root, algorithm, dtype, op, counts, path, aliasing, ..Call::without_data(contract) };
    let split = if by_rank { WorkSplit::ByRank } else { WorkSplit::of(path) };
    let (ranks, unlocked) = (engine.world_size(), WithoutGil(py));
    let chosen = engine.programs().choose(&call, split, ranks, &unlocked).map_err(|error| of_engine(py, &error))?;
    let all = engine.programs().estimates(&call, split, ranks, &unlocked).map_err(|error| of_engine(py, &error))?;
    let rows = all.into_iter().map(|estimate| CandidateRow {
        algorithm: estimate.algorithm,
        moved_bytes: estimate.moved_bytes,
        waits: estimate.waits,
        steps: estimate.steps,
        terms: estimate.terms.to_vec(),
        seconds: estimate.seconds,
    });
    Ok(AutoChoice { algorithm: chosen.algorithm, why: chosen.why, candidates: rows.collect() })
}

/// Returns the cost model of `auto`.
#[pyfunction]
pub(crate) fn cost_model() -> CostModel {
    let coefficients = COEFFICIENTS.iter().map(|&(name, per_second)| CoefficientRow { name, per_second });
    CostModel {
        modes: Mode::ALL.iter().map(|mode| mode.name()).collect(),
        coefficients: coefficients.collect(),
        most_ranks: MODELLED_RANKS,
    }
}

/// Returns the algorithms among which `auto` selects, the default first.
#[pyfunction]
pub(crate) fn auto_candidates(py: Python<'_>, collective: &str) -> PyResult<Vec<&'static str>> {
    Ok(candidates(collective_named(py, collective)?).map(|algorithm| algorithm.name).collect())
}

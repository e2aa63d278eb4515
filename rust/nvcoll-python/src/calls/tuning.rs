//! Tuning tables and estimates of `auto`, for `nvcoll explain` and `nvcoll bench --tune`.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use nvcoll_core::counts::Counts;
use nvcoll_core::dtype::DType;
use nvcoll_core::op::Op;
use nvcoll_core::schedule::Aliasing;
use nvcoll_engine::auto::estimate::{Mode, COEFFICIENTS};
use nvcoll_engine::auto::tuning::{candidates, FORMAT};
use nvcoll_engine::auto::work_split::WorkSplit;
use nvcoll_engine::call::Call;

use crate::calls::node::Node;
use crate::engine::error::of_engine;
use crate::engine::gil::WithoutGil;
use crate::engine::rows::{AutoChoice, CostModel};
use crate::error::invalid;
use crate::integers::integer;
use crate::schedules::schedule::{collective_named, path_named};

/// The most elements of an estimate. Chosen: the bytes of all ranks fit 64 bits.
const MOST_ELEMENTS: i64 = 1 << 48;

#[pymethods]
impl Node {
    /// The tuning table of `auto`: machine, caches in bytes, and the coefficients of each mode.
    #[getter]
    fn tuning<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let table = self.endpoint.node().programs().tuning();
        let all = PyDict::new(py);
        all.set_item("format", FORMAT)?;
        all.set_item("machine", &table.machine)?;
        all.set_item("near_bytes", table.caches.near_bytes)?;
        all.set_item("far_bytes", table.caches.far_bytes)?;
        for mode in Mode::ALL {
            let of_mode = PyDict::new(py);
            for ((name, _), value) in COEFFICIENTS.iter().zip(table.coefficients(mode)) {
                of_mode.set_item(name, value)?;
            }
            all.set_item(mode.name(), of_mode)?;
        }
        Ok(all)
    }

    /// Returns the algorithm that `auto` selects for a call, and its estimate of each candidate.
    ///
    /// Args:
    ///     collective: the name of the collective.
    ///     count: elements of the longer buffer.
    ///     dtype: the name of the dtype.
    ///     root: the root, for a collective that has one. Default: 0.
    ///     path: mapped, staged or pushed.
    ///     in_place: whether input and output are the same memory.
    ///     by_rank: whether every rank calls for itself, as in `Node.run`.
    ///
    /// Returns:
    ///     The algorithm, the reason, and the candidates with their estimates in seconds; no candidates above 64 ranks.
    ///
    /// Raises:
    ///     InvalidArgument: a name is unknown, a number is out of range, or the collective is never in place.
    #[pyo3(
        signature = (
            collective, count: "int", dtype="float32", *, root: "int | None" = None, path: "_Path | str" = "mapped",
            in_place=true, by_rank=false
        )
    )]
    #[allow(clippy::too_many_arguments)]
    fn estimates(
        &self,
        py: Python<'_>,
        collective: &str,
        count: &Bound<'_, PyAny>,
        dtype: &str,
        root: Option<&Bound<'_, PyAny>>,
        path: &str,
        in_place: bool,
        by_rank: bool,
    ) -> PyResult<AutoChoice> {
        let (engine, contract) = (self.endpoint.node(), collective_named(py, collective)?);
        let dtype = DType::named(dtype).ok_or_else(|| invalid(py, format!("no dtype is called `{dtype}`")))?;
        let root = root.map_or(Ok(0), |root| integer("root", root, 0..=engine.world_size() - 1))?;
        let path = path_named(py, path)?;
        let aliasing = if in_place { Aliasing::InPlace } else { Aliasing::Disjoint };
        if !contract.aliasings().contains(&aliasing) {
            return Err(invalid(py, format!("{collective} is never in place")));
        }
        let counts = Counts::Even(integer("count", count, 0..=MOST_ELEMENTS)? as usize);
        let (algorithm, op) = ("auto".into(), Op::Sum);
        let call = Call { root, algorithm, dtype, op, counts, path, aliasing, ..Call::without_data(contract) };
        let split = if by_rank { WorkSplit::ByRank } else { WorkSplit::of(path) };
        let (ranks, unlocked, programs) = (engine.world_size(), WithoutGil::AtOnce(py), engine.programs());
        let chosen = programs.choose(&call, split, ranks, &unlocked).map_err(|error| of_engine(py, &error))?;
        let all = programs.estimates(&call, split, ranks, &unlocked).map_err(|error| of_engine(py, &error))?;
        Ok(AutoChoice((chosen, all)))
    }
}

/// Returns the cost model of `auto`.
#[pyfunction]
pub(crate) fn cost_model() -> CostModel {
    CostModel(())
}

/// Returns the algorithms among which `auto` selects, the default first.
#[pyfunction]
pub(crate) fn auto_candidates(py: Python<'_>, collective: &str) -> PyResult<Vec<&'static str>> {
    Ok(candidates(collective_named(py, collective)?).map(|algorithm| algorithm.name).collect())
}

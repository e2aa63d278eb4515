//! The counts of a node's calls, for `Node.report`. Not public.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use nvcoll_core::algorithm::build_interruptible;
use nvcoll_core::schedule::Path;
use nvcoll_engine::program::call_counts::{CallCounts as Engine, CountedCall};

use crate::error::of_core;
use crate::gil::interrupt;
use crate::schedules::schedule::Schedule;

/// Counts the calls of a node, or of a rank that is a process, by kind. Not public: reports tabulate it.
///
/// It is filled while the node is used, and keeps nothing of the node alive.
#[pyclass(name = "CallCounts", module = "nvcoll._nvcoll", frozen)]
pub(crate) struct CallCounts(pub(crate) Arc<Engine>);

/// Counts the calls of one collective, algorithm, dtype, op, root, size and set of ranks. Not public.
#[pyclass(name = "Calls", module = "nvcoll._nvcoll", frozen)]
pub(crate) struct Calls {
    /// The name of the collective; `sendrecv` of sends, which their senders count.
    #[pyo3(get)]
    collective: &'static str,
    /// The root, as a position in `ranks`; None if the collective has none.
    #[pyo3(get)]
    root: Option<u32>,
    /// The algorithm as the caller named it.
    #[pyo3(get)]
    algorithm: String,
    /// The name of the dtype; None in a barrier.
    #[pyo3(get)]
    dtype: Option<&'static str>,
    /// The name of the op; None if the collective reduces nothing.
    #[pyo3(get)]
    op: Option<&'static str>,
    /// The bytes of the longest buffer of a rank; in a group, of all its calls of the kind.
    #[pyo3(get)]
    nbytes: usize,
    /// The number of calls of a group that are counted as one; 1 outside of groups.
    #[pyo3(get)]
    grouped: usize,
    /// The ranks of the run that took part, by rank in the call.
    #[pyo3(get)]
    ranks: Py<PyTuple>,
    /// The number of such calls.
    #[pyo3(get)]
    times: u64,
    counted: CountedCall,
}

#[pymethods]
impl CallCounts {
    /// The number of ranks of the node.
    #[getter]
    fn world_size(&self) -> u32 {
        self.0.world_size()
    }

    /// Returns the kinds of calls in the order of their first call. Calls that failed are not counted.
    fn calls(&self, py: Python<'_>) -> PyResult<Vec<Calls>> {
        self.0.counted().into_iter().map(|counted| Calls::of(py, counted)).collect()
    }

    /// The number of calls that are not in `calls`, because there were too many kinds of them.
    #[getter]
    fn others(&self) -> u64 {
        self.0.others()
    }
}

#[pymethods]
impl Calls {
    /// The schedule that the first of these calls ran; None of sends. Of a registered algorithm it is the mapped one, however ranks reach each
    /// other's memory here: a machine of GPUs does it in its own way.
    #[getter]
    fn schedule(&self, py: Python<'_>) -> PyResult<Option<Schedule>> {
        let Some(ran) = self.counted.schedule.as_deref() else { return Ok(None) };
        if ran.path == Path::Mapped || self.counted.kind.algorithm.contains('#') {
            return Ok(Some(Schedule::of(ran.clone())));
        }
        let build = || build_interruptible(ran.collective, &ran.algorithm, ran.roles(), ran.aliasing, &interrupt());
        py.detach(build).map(|built| Some(Schedule::of(built))).map_err(|error| of_core(py, &error))
    }
}

impl Calls {
    fn of(py: Python<'_>, counted: CountedCall) -> PyResult<Self> {
        let (kind, ran) = (&counted.kind, counted.schedule.as_deref());
        let has_data = ran.is_none_or(|ran| ran.collective.parts(ran.roles()) > 0);
        Ok(Self {
            collective: kind.collective,
            root: ran.filter(|ran| ran.collective.has_root).map(|_| kind.root),
            algorithm: kind.algorithm.split('#').next().unwrap_or_default().into(),
            dtype: has_data.then(|| kind.dtype.name()),
            op: ran.filter(|ran| ran.collective.folds()).map(|_| kind.op.name()),
            nbytes: if has_data { kind.count * kind.dtype.bytes() } else { 0 },
            grouped: kind.calls,
            ranks: PyTuple::new(py, kind.ranks.iter())?.unbind(),
            times: counted.times,
            counted,
        })
    }
}

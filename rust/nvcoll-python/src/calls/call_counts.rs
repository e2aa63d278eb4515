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
pub(crate) struct Calls(CountedCall);

#[pymethods]
impl CallCounts {
    /// The number of ranks of the node.
    #[getter]
    fn world_size(&self) -> u32 {
        self.0.world_size()
    }

    /// Returns the kinds of calls in the order of their first call. Calls that failed are not counted.
    fn calls(&self) -> Vec<Calls> {
        self.0.counted().into_iter().map(Calls).collect()
    }

    /// The number of calls that are not in `calls`, because there were too many kinds of them.
    #[getter]
    fn others(&self) -> u64 {
        self.0.others()
    }
}

#[pymethods]
impl Calls {
    /// The name of the collective; `sendrecv` of sends, which their senders count.
    #[getter]
    fn collective(&self) -> &'static str {
        self.0.kind.collective
    }

    /// The root, as a position in `ranks`; None if the collective has none.
    #[getter]
    fn root(&self) -> Option<u32> {
        self.0.schedule.as_ref().filter(|ran| ran.collective.has_root).map(|_| self.0.kind.root)
    }

    /// The algorithm as the caller named it.
    #[getter]
    fn algorithm(&self) -> &str {
        let name = &self.0.kind.algorithm;
        name.split_once('#').map_or(name, |(name, _)| name)
    }

    /// The name of the dtype; None in a barrier.
    #[getter]
    fn dtype(&self) -> Option<&'static str> {
        self.has_data().then(|| self.0.kind.dtype.name())
    }

    /// The name of the op; None if the collective reduces nothing.
    #[getter]
    fn op(&self) -> Option<&'static str> {
        self.0.schedule.as_ref().filter(|ran| ran.collective.folds()).map(|_| self.0.kind.op.name())
    }

    /// The bytes of the longest buffer of a rank; in a group, of all its calls of the kind.
    #[getter]
    fn nbytes(&self) -> usize {
        if self.has_data() {
            self.0.kind.count * self.0.kind.dtype.bytes()
        } else {
            0
        }
    }

    /// The number of calls of a group that are counted as one; 1 outside of groups.
    #[getter]
    fn grouped(&self) -> usize {
        self.0.kind.calls
    }

    /// The ranks of the run that took part, by rank in the call.
    #[getter]
    fn ranks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.kind.ranks.iter())
    }

    /// The number of such calls.
    #[getter]
    fn times(&self) -> u64 {
        self.0.times
    }

    /// The schedule that the first of these calls ran; None of sends. Of a registered algorithm it is the mapped one, however ranks reach each
    /// other's memory here: a machine of GPUs does it in its own way.
    #[getter]
    fn schedule(&self, py: Python<'_>) -> PyResult<Option<Schedule>> {
        let Some(ran) = self.0.schedule.as_deref() else { return Ok(None) };
        if ran.path == Path::Mapped || self.0.kind.algorithm.contains('#') {
            return Ok(Some(Schedule::of(ran.clone())));
        }
        let build = || build_interruptible(ran.collective, &ran.algorithm, ran.roles(), ran.aliasing, &interrupt());
        py.detach(build).map(|built| Some(Schedule::of(built))).map_err(|error| of_core(py, &error))
    }
}

impl Calls {
    fn has_data(&self) -> bool {
        self.0.schedule.as_ref().is_none_or(|ran| ran.collective.parts(ran.roles()) > 0)
    }
}

//! `Node`: one thread calls for all ranks.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use nvcoll_core::limits::MAX_RUNNING_RANKS;
use nvcoll_engine::auto::tuning;
use nvcoll_engine::kernel::Isa;
use nvcoll_engine::ranks::node::Node as Engine;
use nvcoll_engine::Deadline;

use crate::calls::call_counts::CallCounts;
use crate::calls::choices::Seconds;
use crate::calls::endpoint::Endpoint;
use crate::calls::group::Group;
use crate::calls::plan::Plan;
use crate::calls::request::Request;
use crate::calls::team::Team;
use crate::engine::error::of_engine;
use crate::error::invalid;
use crate::integers::integer;
use crate::schedules::schedule::collective_named;

/// Ranks in this process: a node of virtual GPUs.
#[pyclass(name = "Node", module = "nvcoll._nvcoll", subclass, frozen)]
pub(crate) struct Node {
    pub(crate) endpoint: Arc<Endpoint>,
}

#[pymethods]
impl Node {
    #[new]
    #[pyo3(signature = (world_size: "int", *, workers: "int | None" = None, isa=None, tuning=None))]
    fn new(
        py: Python<'_>,
        world_size: &Bound<'_, PyAny>,
        workers: Option<&Bound<'_, PyAny>>,
        isa: Option<&str>,
        tuning: Option<PathBuf>,
    ) -> PyResult<Self> {
        let world_size = integer("world_size", world_size, 1..=MAX_RUNNING_RANKS)?;
        let workers = workers.map(|workers| integer("workers", workers, 1..=u32::MAX)).transpose()?;
        let engine = Engine::new(world_size, workers.map(|workers| workers as usize));
        let mut engine = engine.map_err(|e| of_engine(py, &e))?;
        if let Some(name) = isa {
            engine.programs_mut().set_isa(isa_named(py, name)?).map_err(|e| of_engine(py, &e))?;
        }
        let table = tuning.map_or_else(tuning::of_environment, |file| tuning::read(&file));
        engine.programs_mut().set_tuning(table.map_err(|e| of_engine(py, &e))?);
        Ok(Self { endpoint: Endpoint::of_node(engine) })
    }

    fn __repr__(&self) -> String {
        format!("Node({}, workers={})", self.endpoint.node().world_size(), self.endpoint.node().workers())
    }

    /// The number of ranks.
    #[getter]
    fn world_size(&self) -> u32 {
        self.endpoint.node().world_size()
    }

    /// The number of threads of a call, with the caller.
    #[getter]
    fn workers(&self) -> usize {
        self.endpoint.node().workers()
    }

    /// Makes a call of all ranks without data.
    ///
    /// Args:
    ///     timeout: seconds that the call may take. Default: no limit.
    ///
    /// Raises:
    ///     InvalidArgument: a group is open.
    ///     Busy: another thread uses the node.
    #[pyo3(signature = (*, timeout=None))]
    fn barrier(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<()> {
        self.endpoint.barrier(py, timeout)
    }

    /// Prepares a call for repeated runs on the same arrays.
    ///
    /// A plan holds its arrays and reads them at every run. `Plan.run` refuses a numpy array that has moved. Do not resize a
    /// torch tensor while its plan lives: torch does not refuse, and the plan cannot see it.
    ///
    /// Args:
    ///     collective: the name of a collective, such as `"all_gather"`.
    ///     arrays: the arrays, as in the method of that name. None for a barrier.
    ///     op, root, counts, algorithm, out, path: as in the method of that name.
    ///
    /// Returns:
    ///     The plan. `Plan.result` is the result of the method.
    ///
    /// Raises:
    ///     InvalidArgument: an argument cannot be used; the message names argument and rank.
    #[pyo3(
        signature = (
            collective, arrays=None, op: "_Op | None" = None, *, root: "int | None" = None,
            counts: "Sequence[int] | Sequence[Sequence[int]] | None" = None, algorithm: "_Algorithm | None" = None, out=None,
            path: "_Path | str | None" = None
        )
    )]
    #[allow(clippy::too_many_arguments)]
    fn plan<'py>(
        &self,
        py: Python<'py>,
        collective: &str,
        arrays: Option<&Bound<'py, PyAny>>,
        op: Option<&Bound<'py, PyAny>>,
        root: Option<&Bound<'py, PyAny>>,
        counts: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: Option<&str>,
    ) -> PyResult<Plan> {
        let (collective, never) = (collective_named(py, collective)?, Deadline::after(None));
        let is_without_data = collective.is_without_data();
        let (call, result) = match arrays {
            None if is_without_data => (self.endpoint.bind_barrier(py, never)?, py.None().into_bound(py)),
            Some(_) if is_without_data => {
                return Err(invalid(py, format!("`arrays` is given, and {} has none: leave it out", collective.name)))
            }
            None => return Err(invalid(py, format!("`arrays` is left out, and {} needs it", collective.name))),
            Some(arrays) => {
                let new = Request::new(collective, arrays, path);
                let request = Request { op, root, counts, algorithm, out, is_deferred: true, ..new };
                self.endpoint.bind(py, request, never)?
            }
        };
        Ok(Plan::new(self.endpoint.clone(), call.keep(py), result.unbind()))
    }

    /// Groups the calls in a `with` block: they launch together at the end of the block.
    ///
    /// In the block, the collectives of this node on this thread check their arguments and return their results, in which new
    /// arrays hold zeros. No array is read or written before the end of the block. If the block raises, no call is made. The
    /// calls of a group have no order: an array that one call writes shares no byte with the arrays of another. Plans, other
    /// groups and the ranks of `run` run at once. A group that is deleted in its block ends the block without its calls.
    ///
    /// Args:
    ///     timeout: seconds that the calls may take together. Default: no limit.
    ///
    /// Returns:
    ///     The group. Its `run` launches the same calls again.
    ///
    /// Raises:
    ///     InvalidArgument: at the end of the block: arrays of two calls share memory, and one of them is written.
    ///     Busy: another group of this node is open.
    ///
    /// Example:
    ///     >>> node, grads = nvcoll.Node(2), np.ones((3, 2, 5), dtype="f4")
    ///     >>> with node.group() as group:
    ///     ...     for grad in grads:
    ///     ...         _ = node.all_reduce(grad)
    ///     >>> len(group), grads.min(), grads.max()
    ///     (3, 2.0, 2.0)
    #[pyo3(signature = (*, timeout=None))]
    fn group(slf: Bound<'_, Self>, timeout: Option<Seconds>) -> Group {
        let endpoint = slf.get().endpoint.clone();
        Group::new(slf.into_any().unbind(), endpoint, timeout, false)
    }

    /// The counts of calls by kind. Not public: `Node.report` tabulates them.
    #[getter]
    fn _call_counts(&self) -> CallCounts {
        CallCounts(self.endpoint.node().programs().call_counts().clone())
    }

    /// Makes the team of ranks of one `Node.run`. Not public.
    fn _team(&self, py: Python<'_>) -> PyResult<Team> {
        Team::new(py, self.endpoint.node().clone())
    }

    /// Visits the arrays of an open group, for the garbage collector.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.endpoint.group.traverse(&visit)
    }
}

/// Reads `isa=`.
fn isa_named(py: Python<'_>, name: &str) -> PyResult<Isa> {
    Isa::named(name).ok_or_else(|| {
        let known: Vec<&str> = Isa::available().iter().map(|isa| isa.short_name()).collect();
        invalid(py, format!("no instruction set is called `{name}`: choose from {}", known.join(", ")))
    })
}

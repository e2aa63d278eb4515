//! `Node`: calls that one thread makes for all ranks.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use nvcoll_core::limits::MAX_RUNNING_RANKS;
use nvcoll_engine::kernel::Isa;
use nvcoll_engine::ranks::node::Node as Engine;
use nvcoll_engine::Deadline;

use crate::calls::Seconds;
use crate::endpoint::Endpoint;
use crate::error::{invalid, of_engine};
use crate::group::Group;
use crate::integers::integer;
use crate::plan::Plan;
use crate::request::Request;
use crate::rows::AutoChoice;
use crate::schedule::collective_named;
use crate::tallies::Tallies;
use crate::team::Team;
use crate::tuning::estimates;

/// Ranks in this process: a node of virtual GPUs.
#[pyclass(name = "Node", module = "nvcoll._nvcoll", subclass, frozen)]
pub(crate) struct Node {
    pub(crate) endpoint: Arc<Endpoint>,
}

#[pymethods]
impl Node {
    #[new]
    #[pyo3(signature = (world_size, *, workers=None, isa=None, tuning=None))]
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
        engine.programs_mut().set_tuning(crate::tuning::of_option(py, tuning)?);
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

    /// The number of threads that work for a call, the caller included.
    #[getter]
    fn workers(&self) -> usize {
        self.endpoint.node().workers()
    }

    /// The table by which `auto` chooses: machine, caches, and the coefficients of each mode.
    #[getter]
    fn tuning<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        crate::tuning::as_dict(py, self.endpoint.node().programs().tuning())
    }

    /// Returns what `auto` chooses for a call of `count` elements, and the time it expects of each candidate.
    ///
    /// Args:
    ///     collective: its name.
    ///     count: elements, as `all_reduce` counts them; of the whole buffer where that is cut among ranks.
    ///     dtype: the name of the elements' type.
    ///     root: the root, if the collective has one.
    ///     path: mapped or staged.
    ///     in_place: whether input and output are the same memory.
    ///     by_rank: whether every rank calls for itself, as in `Node.run`.
    ///
    /// Returns:
    ///     The choice: algorithm, why in words, and candidates with what is expected of each. No candidates above 64 ranks.
    #[pyo3(signature = (collective, count, dtype="float32", *, root=None, path="mapped", in_place=true, by_rank=false))]
    #[allow(clippy::too_many_arguments, clippy::type_complexity)]
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
        let zero = 0u32.into_pyobject(py)?.into_any();
        estimates(py, self.endpoint.node(), collective, count, dtype, root.unwrap_or(&zero), path, in_place, by_rank)
    }

    /// Returns when every rank has taken part: a call for all ranks that moves nothing.
    #[pyo3(signature = (*, timeout=None))]
    fn barrier(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<()> {
        self.endpoint.barrier(py, timeout)
    }

    /// Prepares a call that runs again and again on the same arrays.
    ///
    /// A plan keeps the memory of its arrays and reads them anew each time. `Plan.run` refuses a numpy array that has moved
    /// since; do not resize a torch tensor while the plan lives, because torch does not refuse to.
    ///
    /// Args:
    ///     collective: a name, such as `"all_gather"`.
    ///     arrays: as in the method of that name, and so are all others. None for a barrier.
    ///
    /// Returns:
    ///     A plan; its `result` is what the method would return.
    #[pyo3(signature = (collective, arrays=None, op=None, *, root=None, counts=None, algorithm=None, out=None, path="mapped"))]
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
        path: &str,
    ) -> PyResult<Plan> {
        let (collective, never) = (collective_named(py, collective)?, Deadline::after(None));
        let is_without_data = collective.is_without_data();
        let (prepared, result) = match arrays {
            None if is_without_data => (self.endpoint.prepare_barrier(py, never)?, py.None().into_bound(py)),
            Some(_) if is_without_data => {
                return Err(invalid(py, format!("`arrays` is given, and {} has none: leave it out", collective.name)))
            }
            None => return Err(invalid(py, format!("`arrays` is left out, and {} needs it", collective.name))),
            Some(arrays) => {
                let new = Request::new(collective, arrays, path);
                let request = Request { op, root, counts, algorithm, out, is_deferred: true, ..new };
                self.endpoint.prepare(py, request, never)?
            }
        };
        Ok(Plan::new(self.endpoint.clone(), prepared.keep(py, "plan"), result.unbind()))
    }

    /// Groups calls: those that are made in a `with` block of it are launched as one when the block ends.
    ///
    /// Inside the block the collectives of this node, on this thread, check their arguments and return what they will return
    /// (a new array holds zeros until then); nothing is read or written before the block ends, and nothing at all if it raises.
    /// The calls of a group have no order, and what one of them writes shares no byte with what another touches. Plans, other
    /// groups and the ranks of `run` are not affected: they run at once. A group that is dropped inside its block ends it, and
    /// its calls are not made.
    ///
    /// Args:
    ///     timeout: seconds that the calls may take together.
    ///
    /// Returns:
    ///     The group, whose `run` launches the same calls again.
    ///
    /// Raises:
    ///     InvalidArgument: at the end of the block, arrays of two calls that share memory of which some is written.
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
        Group::new(slf.into_any().unbind(), endpoint, timeout)
    }

    /// Counts the calls of this node by kind. Not public: `Node.report` tabulates them.
    #[getter]
    fn _tallies(&self) -> Tallies {
        Tallies(self.endpoint.node().programs().tallies().clone())
    }

    /// Makes a team of this node's ranks, each of which makes its own calls. Not public: `Node.run` starts its threads.
    fn _team(&self, py: Python<'_>) -> PyResult<Team> {
        Team::new(py, self.endpoint.node().clone())
    }

    /// Shows the garbage collector the arrays of a group that is open.
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

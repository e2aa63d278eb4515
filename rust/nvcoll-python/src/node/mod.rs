//! `Node`: calls that one thread makes for all ranks.

mod collectives;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use nvcoll_core::collective::BARRIER;
use nvcoll_core::limits::MAX_RUNNING_RANKS;
use nvcoll_core::verify::Verified;
use nvcoll_engine::auto::work_split::WorkSplit;
use nvcoll_engine::call::Call;
use nvcoll_engine::kernel::Isa;
use nvcoll_engine::program::batch::Batch;
use nvcoll_engine::{Buffers, Deadline};

use crate::arrays::Caller;
use crate::calls::{deadline, Seconds, SharedProgram};
use crate::error::{invalid, of_engine};
use crate::gil::{watched, WithoutGil};
use crate::group::{Group, Grouped, Home, OpenGroup};
use crate::plan::{Plan, Prepared};
use crate::request::{Checked, Request};
use crate::rows::AutoChoice;
use crate::schedule::collective_named;
use crate::tallies::Tallies;
use crate::team::Team;
use crate::tuning::estimates;
use crate::whole::whole;

/// Ranks in this process: a node of virtual GPUs.
#[pyclass(name = "Node", module = "nvcoll._nvcoll", subclass, frozen)]
pub(crate) struct Node {
    engine: Arc<nvcoll_engine::ranks::node::Node>,
    group: OpenGroup,
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
        let world_size = whole("world_size", world_size, 1..=MAX_RUNNING_RANKS)?;
        let workers = workers.map(|workers| whole("workers", workers, 1..=u32::MAX)).transpose()?;
        let engine = nvcoll_engine::ranks::node::Node::new(world_size, workers.map(|workers| workers as usize));
        let mut engine = engine.map_err(|e| of_engine(py, &e))?;
        if let Some(name) = isa {
            engine.programs_mut().set_isa(isa_named(py, name)?).map_err(|e| of_engine(py, &e))?;
        }
        engine.programs_mut().set_tuning(crate::tuning::of_option(py, tuning)?);
        Ok(Self { engine: Arc::new(engine), group: OpenGroup::default() })
    }

    fn __repr__(&self) -> String {
        format!("Node({}, workers={})", self.engine.world_size(), self.engine.workers())
    }

    /// The number of ranks.
    #[getter]
    fn world_size(&self) -> u32 {
        self.engine.world_size()
    }

    /// The number of threads that work for a call, the caller included.
    #[getter]
    fn workers(&self) -> usize {
        self.engine.workers()
    }

    /// The table by which `auto` chooses: machine, caches, and the coefficients of each mode.
    #[getter]
    fn tuning<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        crate::tuning::as_dict(py, self.engine.programs().tuning())
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
        estimates(py, &self.engine, collective, count, dtype, root.unwrap_or(&zero), path, in_place, by_rank)
    }

    /// Returns when every rank has taken part: a call for all ranks that moves nothing.
    #[pyo3(signature = (*, timeout=None))]
    fn barrier(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<()> {
        self.group.refuse(py, "barrier")?;
        let deadline = deadline(timeout);
        self.prepare_barrier(py, deadline)?.run(py, &self.engine, deadline)
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
        slf: &Bound<'py, Self>,
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
        let (node, collective) = (slf.get(), collective_named(py, collective)?);
        let is_without_data = collective.is_without_data();
        let (mut prepared, result) = match arrays {
            None if is_without_data => (node.prepare_barrier(py, Deadline::after(None))?, py.None().into_bound(py)),
            Some(_) if is_without_data => {
                return Err(invalid(py, format!("`arrays` is given, and {} has none: leave it out", collective.name)))
            }
            None => return Err(invalid(py, format!("`arrays` is left out, and {} needs it", collective.name))),
            Some(arrays) => node.prepare(
                py,
                Request {
                    op,
                    root,
                    counts,
                    algorithm,
                    out,
                    is_deferred: true,
                    ..Request::new(collective, arrays, path)
                },
                Deadline::after(None),
            )?,
        };
        prepared.operands.iter_mut().for_each(|operands| operands.bind(py));
        let program = prepared.program.clone();
        let result = result.unbind();
        Ok(Plan { node: node.engine.clone(), program, prepared: Mutex::new(prepared), result })
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
        Group::new(Box::new(slf.clone().unbind()), timeout)
    }

    /// Counts the calls of this node by kind. Not public: `Node.report` tabulates them.
    #[getter]
    fn _tallies(&self) -> Tallies {
        Tallies(self.engine.programs().tallies().clone())
    }

    /// Makes a team of this node's ranks, each of which makes its own calls. Not public: `Node.run` starts its threads.
    fn _team(&self, py: Python<'_>) -> PyResult<Team> {
        Team::new(py, self.engine.clone())
    }

    /// Shows the garbage collector the arrays of a group that is open.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.group.traverse(&visit)
    }
}

/// Reads `isa=`.
fn isa_named(py: Python<'_>, name: &str) -> PyResult<Isa> {
    Isa::named(name).ok_or_else(|| {
        let known: Vec<&str> = Isa::available().iter().map(|isa| isa.short_name()).collect();
        invalid(py, format!("no instruction set is called `{name}`: choose from {}", known.join(", ")))
    })
}

impl Node {
    fn call<'py>(
        &self,
        py: Python<'py>,
        request: Request<'_, 'py>,
        timeout: Option<Seconds>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (is_deferred, deadline) = (self.group.is_open(), deadline(timeout));
        let (prepared, result) = self.prepare(py, Request { is_deferred, ..request }, deadline)?;
        match (is_deferred, prepared) {
            (true, Prepared { program, buffers, operands: Some(operands) }) => {
                self.group.add(py, Grouped { operands, program, buffers }, timeout)?;
            }
            (_, mut prepared) => prepared.run(py, &self.engine, deadline)?,
        }
        Ok(result)
    }

    fn prepare<'py>(
        &self,
        py: Python<'py>,
        request: Request<'_, 'py>,
        deadline: Deadline,
    ) -> PyResult<(Prepared, Bound<'py, PyAny>)> {
        let Checked { operands, reduction, call, proof, result } =
            request.check(Caller::Node, self.engine.world_size(), deadline)?;
        let program = self.program(py, &call, proof.as_ref(), deadline)?;
        let buffers = operands.buffers(|at| reduction.scalar(at));
        Ok((Prepared { program, buffers, operands: Some(operands) }, result))
    }

    fn prepare_barrier(&self, py: Python<'_>, deadline: Deadline) -> PyResult<Prepared> {
        let program = self.program(py, &Call::without_data(&BARRIER), None, deadline)?;
        let nothing = Buffers::new(std::ptr::null_mut(), std::ptr::null_mut(), 1.0);
        let buffers = vec![nothing; self.engine.world_size() as usize];
        Ok(Prepared { program, buffers, operands: None })
    }

    fn program(
        &self,
        py: Python<'_>,
        call: &Call,
        proof: Option<&Verified>,
        deadline: Deadline,
    ) -> PyResult<SharedProgram> {
        let (split, ranks) = (WorkSplit::of(call.path), self.engine.world_size());
        let program = self.engine.program_until(call, split, ranks, proof, &WithoutGil(py), deadline);
        program.map_err(|e| of_engine(py, &e))
    }
}

impl Home for Py<Node> {
    fn open_group(&self) -> &OpenGroup {
        &self.get().group
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(self)
    }

    /// Runs the calls with an eye on Ctrl-C.
    fn run_batch(&self, py: Python<'_>, batch: &mut Batch, deadline: Deadline) -> PyResult<()> {
        let engine = &self.get().engine;
        // SAFETY: `Operands::new` checked the arrays of each call, `Operands::check_apart_from_each_other` those of different
        // calls, and the group's `Launch` holds the operands with their owners until the run is over.
        watched(py, |is_interrupted| unsafe { engine.run_batch(batch, deadline, is_interrupted) })?;
        engine.count_batch(batch);
        Ok(())
    }
}

//! `Node` and `Plan`: calls that one thread makes for all ranks.

use std::sync::Arc;

use pyo3::prelude::*;

use nvcoll_core::collective::{Collective, ALL_REDUCE};
use nvcoll_core::counts::Counts;
use nvcoll_core::error::MAX_WORLD_SIZE;
use nvcoll_engine::kernel::Isa;
use nvcoll_engine::sharing::Sharing;
use nvcoll_engine::Buffers;

use crate::arrays::Operands;
use crate::calls::{deadline, Choice, Reduction, SharedProgram};
use crate::error::{invalid, of_engine};
use crate::gil::{Detached, Signals, WithoutGil};
use crate::schedule::path_named;
use crate::team::Team;
use crate::whole::whole;

/// Ranks in this process: a node of virtual GPUs.
#[pyclass(name = "Node", module = "nvcoll._nvcoll", subclass, frozen)]
pub(crate) struct Node {
    pub(crate) engine: Arc<nvcoll_engine::node::Node>,
}

#[pymethods]
impl Node {
    #[new]
    #[pyo3(signature = (world_size, *, workers=None, isa=None))]
    fn new(
        py: Python<'_>,
        world_size: &Bound<'_, PyAny>,
        workers: Option<&Bound<'_, PyAny>>,
        isa: Option<&str>,
    ) -> PyResult<Self> {
        let world_size = whole("world_size", world_size, 1..=MAX_WORLD_SIZE)?;
        let workers = workers.map(|workers| whole("workers", workers, 1..=u32::MAX)).transpose()?;
        let engine = nvcoll_engine::node::Node::new(world_size, workers.map(|workers| workers as usize));
        let mut engine = engine.map_err(|e| of_engine(py, &e))?;
        if let Some(name) = isa {
            engine.set_isa(isa_named(py, name)?).map_err(|e| of_engine(py, &e))?;
        }
        Ok(Self { engine: Arc::new(engine) })
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

    /// Reduces the arrays of all ranks element by element and gives every rank the result.
    ///
    /// Args:
    ///     arrays: a list of one array per rank, or one array whose axis 0 is the rank: numpy arrays, or anything in CPU
    ///         memory with DLPack or the buffer protocol. Any supported dtype and any strides; dtype and count are the same
    ///         on every rank. Written on every rank, unless there is `out`.
    ///     op: a name, or `nvcoll.premul_sum(scalars)`. Default: sum.
    ///     algorithm: a name, an algorithm or a schedule. Default: one that folds in the order of ranks.
    ///     out: where the results go, like `arrays`. Either it is the memory of `arrays`, rank by rank, or it shares no byte
    ///         with it. No two written arrays share a byte.
    ///     path: how ranks reach each other, mapped or staged.
    ///     timeout: seconds that the call may take.
    ///
    /// Returns:
    ///     `out` if it is given, else `arrays`.
    ///
    /// Raises:
    ///     InvalidArgument: an array that cannot be used; the message names argument and rank. Nothing was written.
    ///     Timeout, KeyboardInterrupt: the call ended early. Strided arrays are as they were; packed arrays that the call
    ///         writes hold no particular values.
    #[pyo3(signature = (arrays, op=None, *, algorithm=None, out=None, path="mapped", timeout=None))]
    #[allow(clippy::too_many_arguments)]
    fn all_reduce<'py>(
        &self,
        py: Python<'py>,
        arrays: &Bound<'py, PyAny>,
        op: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut prepared = self.prepare(py, &ALL_REDUCE, arrays, op, algorithm, out, path)?;
        prepared.run(py, &self.engine, timeout)?;
        Ok(out.unwrap_or(arrays).clone())
    }

    /// Prepares a call that runs again and again on the same arrays. See `all_reduce` for the arguments.
    ///
    /// A plan keeps the memory of its arrays and reads them anew each time. Do not resize them while it lives: numpy and the
    /// buffer protocol refuse to, torch does not.
    #[pyo3(signature = (collective, arrays, op=None, *, algorithm=None, out=None, path="mapped"))]
    #[allow(clippy::too_many_arguments)]
    fn plan<'py>(
        slf: &Bound<'py, Self>,
        py: Python<'py>,
        collective: &str,
        arrays: &Bound<'py, PyAny>,
        op: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
    ) -> PyResult<Plan> {
        if collective != ALL_REDUCE.name {
            return Err(invalid(py, format!("no plan for `{collective}`: a node runs all_reduce")));
        }
        let prepared = slf.get().prepare(py, &ALL_REDUCE, arrays, op, algorithm, out, path)?;
        let program = prepared.program.clone();
        Ok(Plan { node: slf.get().engine.clone(), program, prepared: std::sync::Mutex::new(prepared) })
    }

    /// Makes a team of this node's ranks, each of which makes its own calls.
    fn team(&self, py: Python<'_>) -> PyResult<Team> {
        Team::new(py, self.engine.clone())
    }
}

/// Reads `isa=`.
fn isa_named(py: Python<'_>, name: &str) -> PyResult<Isa> {
    Isa::named(name).ok_or_else(|| {
        let known: Vec<&str> = Isa::available().iter().map(|isa| isa.short_name()).collect();
        invalid(py, format!("no instruction set is called `{name}`: choose from {}", known.join(", ")))
    })
}

/// What a call needs, checked.
struct Prepared {
    program: SharedProgram,
    buffers: Detached<Vec<Buffers>>,
    operands: Operands,
}

impl Prepared {
    /// Runs the call; strided arrays are packed before and written back after it.
    fn run(&mut self, py: Python<'_>, engine: &nvcoll_engine::node::Node, timeout: Option<f64>) -> PyResult<()> {
        self.operands.gather(py);
        run(py, engine, &self.program, self.buffers.get(), timeout)?;
        self.operands.write_back(py);
        Ok(())
    }
}

impl Node {
    #[allow(clippy::too_many_arguments)]
    fn prepare<'py>(
        &self,
        py: Python<'py>,
        collective: &'static Collective,
        arrays: &Bound<'py, PyAny>,
        op: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
    ) -> PyResult<Prepared> {
        let world_size = self.engine.world_size();
        let operands = Operands::of_node(collective.name, arrays, out, world_size)?;
        let (aliasing, dtype, count) = (operands.aliasing(), operands.dtype(), operands.count());
        let path = path_named(py, path)?;
        let reduction = Reduction::of_option(op, world_size as usize)?;
        reduction.check(py, dtype)?;
        let choice = Choice::of_option(algorithm, world_size, path, aliasing)?;
        let call = choice.call(collective, dtype, reduction.op, 0, Counts::Even(count), path, aliasing);
        let (sharing, proof) = (Sharing::of(path), choice.proof.as_ref());
        let program = self.engine.program_shared(&call, sharing, proof, &WithoutGil(py));
        let program = program.map_err(|e| of_engine(py, &e))?;
        let buffers = Detached(operands.buffers(|at| reduction.scalar(at)));
        Ok(Prepared { program, buffers, operands })
    }
}

/// Runs a program without the GIL, with an eye on Ctrl-C.
fn run(
    py: Python<'_>,
    engine: &nvcoll_engine::node::Node,
    program: &SharedProgram,
    buffers: &mut [Buffers],
    timeout: Option<f64>,
) -> PyResult<()> {
    let (mut buffers, deadline) = (Detached(buffers), deadline(py, timeout)?);
    let (outcome, raised) = py.detach(|| {
        let mut signals = Signals::new();
        // SAFETY: the arrays were checked for count, dtype and overlap, and the caller holds their owners.
        let outcome = unsafe { engine.run(program, buffers.get(), deadline, &mut || signals.check()) };
        (outcome, signals.raised)
    });
    match (outcome, raised) {
        (_, Some(raised)) => Err(raised),
        (Err(error), None) => Err(of_engine(py, &error)),
        (Ok(()), None) => Ok(()),
    }
}

/// A call with everything resolved: proof, kernels, addresses. Made by `Node.plan`.
#[pyclass(name = "Plan", module = "nvcoll", frozen)]
pub(crate) struct Plan {
    node: Arc<nvcoll_engine::node::Node>,
    program: SharedProgram,
    prepared: std::sync::Mutex<Prepared>,
}

#[pymethods]
impl Plan {
    /// Runs the call on the arrays that the plan was made for.
    #[pyo3(signature = (*, timeout=None))]
    fn run(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let Ok(mut prepared) = self.prepared.try_lock() else {
            let message = match self.node.is_of_this_process() {
                true => "the plan is running in another thread: wait for it",
                false => {
                    "the plan is running in another thread, or was when this process was forked: make one in the child"
                }
            };
            return Err(of_engine(py, &nvcoll_engine::Error::Busy(message)));
        };
        prepared.run(py, &self.node, timeout)
    }

    /// The number of tiles in which the plan passes over the data.
    #[getter]
    fn tiles(&self) -> u32 {
        self.program.tiles()
    }

    fn __repr__(&self) -> String {
        format!("<nvcoll.Plan {}>", self.program.call())
    }
}

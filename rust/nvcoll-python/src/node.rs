//! `Node` and `Plan`: calls that one thread makes for all ranks.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use nvcoll_core::collective::{
    Roles, ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BARRIER, BROADCAST, EXSCAN, GATHER, REDUCE, REDUCE_SCATTER, SCAN,
    SCATTER, SPLIT,
};
use nvcoll_core::error::MAX_WORLD_SIZE;
use nvcoll_core::verify::Verified;
use nvcoll_engine::batch::Batch;
use nvcoll_engine::call::Call;
use nvcoll_engine::kernel::Isa;
use nvcoll_engine::sharing::Sharing;
use nvcoll_engine::{Buffers, Deadline};

use crate::arrays::{Caller, Operands};
use crate::calls::{deadline, SharedProgram};
use crate::error::{invalid, of_engine};
use crate::gil::{Detached, Signals, WithoutGil};
use crate::group::{Group, Grouped, Home, OpenGroup};
use crate::request::{Checked, Request};
use crate::schedule::collective_named;
use crate::team::Team;
use crate::tuning::{estimates, Estimates};
use crate::whole::whole;

/// Ranks in this process: a node of virtual GPUs.
#[pyclass(name = "Node", module = "nvcoll._nvcoll", subclass, frozen)]
pub(crate) struct Node {
    pub(crate) engine: Arc<nvcoll_engine::node::Node>,
    pub(crate) group: OpenGroup,
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
        let world_size = whole("world_size", world_size, 1..=MAX_WORLD_SIZE)?;
        let workers = workers.map(|workers| whole("workers", workers, 1..=u32::MAX)).transpose()?;
        let engine = nvcoll_engine::node::Node::new(world_size, workers.map(|workers| workers as usize));
        let mut engine = engine.map_err(|e| of_engine(py, &e))?;
        if let Some(name) = isa {
            engine.set_isa(isa_named(py, name)?).map_err(|e| of_engine(py, &e))?;
        }
        engine.set_tuning(crate::tuning::of_option(py, tuning)?);
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
        crate::tuning::as_dict(py, self.engine.tuning())
    }

    /// What `auto` chooses for a call of `count` elements, and what it expects of each candidate.
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
    ///     The name of the algorithm, why in words, and for each candidate a tuple: name, bytes that all ranks read and
    ///     write, waits, steps, what each coefficient is multiplied with, seconds. No candidates above 64 ranks.
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
    ) -> PyResult<Estimates> {
        let zero = 0u32.into_pyobject(py)?.into_any();
        estimates(py, self, collective, count, dtype, root.unwrap_or(&zero), path, in_place, by_rank)
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
        let request = Request { op, algorithm, out, ..Request::new(&ALL_REDUCE, arrays, path) };
        self.call(py, request, timeout)
    }

    /// Reduces the arrays of all ranks and gives rank r part r of the result.
    ///
    /// Args:
    ///     arrays: one array per rank, of all parts, as in `all_reduce`. Read.
    ///     counts: elements of each part, one number per rank, 0 allowed. Default: the length cut as numpy's `array_split` does.
    ///     out: one array per rank, of its part. In place if each is part r of `arrays[r]`. Default: new arrays of one axis, of
    ///         the kind of `arrays`.
    ///     op, algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out`, or the list of new arrays.
    ///
    /// Raises:
    ///     InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`.
    #[pyo3(signature = (arrays, op=None, *, counts=None, algorithm=None, out=None, path="mapped", timeout=None))]
    #[allow(clippy::too_many_arguments)]
    fn reduce_scatter<'py>(
        &self,
        py: Python<'py>,
        arrays: &Bound<'py, PyAny>,
        op: Option<&Bound<'py, PyAny>>,
        counts: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = Request { op, counts, algorithm, out, ..Request::new(&REDUCE_SCATTER, arrays, path) };
        self.call(py, request, timeout)
    }

    /// Gives every rank the arrays of all ranks, one after the other.
    ///
    /// Args:
    ///     arrays: one array per rank, as in `all_reduce`; they may differ in length. Read.
    ///     counts: elements of each array, one number per rank. Default: what the arrays hold.
    ///     out: one array per rank, of all elements. In place if `arrays[r]` is part r of each. Default: new arrays of one axis, of
    ///         the kind of `arrays`.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out`, or the list of new arrays.
    ///
    /// Raises:
    ///     InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`.
    #[pyo3(signature = (arrays, *, counts=None, algorithm=None, out=None, path="mapped", timeout=None))]
    #[allow(clippy::too_many_arguments)]
    fn all_gather<'py>(
        &self,
        py: Python<'py>,
        arrays: &Bound<'py, PyAny>,
        counts: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = Request { counts, algorithm, out, ..Request::new(&ALL_GATHER, arrays, path) };
        self.call(py, request, timeout)
    }

    /// Gives every rank the array of the root.
    ///
    /// Args:
    ///     arrays: one array per rank, of one length, as in `all_reduce`. Read on the root, written elsewhere; with `out` only the
    ///         root's is looked at.
    ///     root: the rank whose array it is.
    ///     out: one array per rank, written on every rank. Default: in place.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out` if it is given, else `arrays`.
    ///
    /// Raises:
    ///     InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`.
    #[pyo3(signature = (arrays, *, root=None, algorithm=None, out=None, path="mapped", timeout=None), text_signature = "($self, arrays, *, root=0, algorithm=None, out=None, path='mapped', timeout=None)")]
    #[allow(clippy::too_many_arguments)]
    fn broadcast<'py>(
        &self,
        py: Python<'py>,
        arrays: &Bound<'py, PyAny>,
        root: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = Request { root, algorithm, out, ..Request::new(&BROADCAST, arrays, path) };
        self.call(py, request, timeout)
    }

    /// Reduces the arrays of all ranks element by element and gives the root the result.
    ///
    /// Args:
    ///     arrays: one array per rank, as in `all_reduce`. Written on the root, unless there is `out`; read elsewhere.
    ///     root: the rank that has the result.
    ///     out: the root's array. Default: in place.
    ///     op, algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out` if it is given, else the root's array.
    ///
    /// Raises:
    ///     InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`.
    #[pyo3(signature = (arrays, op=None, *, root=None, algorithm=None, out=None, path="mapped", timeout=None), text_signature = "($self, arrays, op=None, *, root=0, algorithm=None, out=None, path='mapped', timeout=None)")]
    #[allow(clippy::too_many_arguments)]
    fn reduce<'py>(
        &self,
        py: Python<'py>,
        arrays: &Bound<'py, PyAny>,
        op: Option<&Bound<'py, PyAny>>,
        root: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = Request { op, root, algorithm, out, ..Request::new(&REDUCE, arrays, path) };
        self.call(py, request, timeout)
    }

    /// Gives the root the arrays of all ranks, one after the other.
    ///
    /// Args:
    ///     arrays: one array per rank, as in `all_reduce`; they may differ in length. Read.
    ///     root: the rank that has the result.
    ///     counts: elements of each array, one number per rank. Default: what the arrays hold.
    ///     out: the root's array, of all elements. In place if `arrays[root]` is its part. Default: a new array of one axis, of the
    ///         kind of the root's.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out`, or the new array.
    ///
    /// Raises:
    ///     InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`.
    #[pyo3(signature = (arrays, *, root=None, counts=None, algorithm=None, out=None, path="mapped", timeout=None), text_signature = "($self, arrays, *, root=0, counts=None, algorithm=None, out=None, path='mapped', timeout=None)")]
    #[allow(clippy::too_many_arguments)]
    fn gather<'py>(
        &self,
        py: Python<'py>,
        arrays: &Bound<'py, PyAny>,
        root: Option<&Bound<'py, PyAny>>,
        counts: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = Request { root, counts, algorithm, out, ..Request::new(&GATHER, arrays, path) };
        self.call(py, request, timeout)
    }

    /// Gives rank r part r of the root's array.
    ///
    /// Args:
    ///     arrays: the root's array, of all parts. Read.
    ///     root: the rank whose array it is.
    ///     counts: elements of each part, one number per rank, 0 allowed. Default: the length cut as numpy's `array_split` does.
    ///     out: one array per rank, of its part. In place if the root's is its part of `arrays`. Default: new arrays of one axis,
    ///         of the kind of `arrays`.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out`, or the list of new arrays.
    ///
    /// Raises:
    ///     InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`.
    #[pyo3(signature = (arrays, *, root=None, counts=None, algorithm=None, out=None, path="mapped", timeout=None), text_signature = "($self, arrays, *, root=0, counts=None, algorithm=None, out=None, path='mapped', timeout=None)")]
    #[allow(clippy::too_many_arguments)]
    fn scatter<'py>(
        &self,
        py: Python<'py>,
        arrays: &Bound<'py, PyAny>,
        root: Option<&Bound<'py, PyAny>>,
        counts: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = Request { root, counts, algorithm, out, ..Request::new(&SCATTER, arrays, path) };
        self.call(py, request, timeout)
    }

    /// Gives rank r part r of the array of every rank, in the order of ranks.
    ///
    /// Args:
    ///     arrays: one array per rank, of all that it sends, first what rank 0 receives. Read.
    ///     counts: a table of numbers, one row per rank: row q is how many elements rank q sends to each rank, 0 allowed. Default:
    ///         the length, the same on every rank, cut as numpy's `array_split` does.
    ///     out: one array per rank, of all that it receives; never in place. Default: new arrays of one axis, of the kind of
    ///         `arrays`.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out`, or the list of new arrays.
    ///
    /// Raises:
    ///     InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`.
    #[pyo3(signature = (arrays, *, counts=None, algorithm=None, out=None, path="mapped", timeout=None))]
    #[allow(clippy::too_many_arguments)]
    fn all_to_all<'py>(
        &self,
        py: Python<'py>,
        arrays: &Bound<'py, PyAny>,
        counts: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = Request { counts, algorithm, out, ..Request::new(&ALL_TO_ALL, arrays, path) };
        self.call(py, request, timeout)
    }

    /// Gives rank r the reduction of the arrays of ranks 0 to r.
    ///
    /// Args:
    ///     arrays: one array per rank, as in `all_reduce`. Written, unless there is `out`.
    ///     out: one array per rank, as in `all_reduce`. Default: in place.
    ///     op: a name: all but avg and premul_sum. Default: sum.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out` if it is given, else `arrays`.
    ///
    /// Raises:
    ///     InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`.
    #[pyo3(signature = (arrays, op=None, *, algorithm=None, out=None, path="mapped", timeout=None))]
    #[allow(clippy::too_many_arguments)]
    fn scan<'py>(
        &self,
        py: Python<'py>,
        arrays: &Bound<'py, PyAny>,
        op: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = Request { op, algorithm, out, ..Request::new(&SCAN, arrays, path) };
        self.call(py, request, timeout)
    }

    /// Gives rank r the reduction of the arrays of ranks 0 to r - 1; rank 0 receives nothing.
    ///
    /// Args:
    ///     arrays: one array per rank, as in `all_reduce`. Written, unless there is `out`; that of rank 0 stays as it is.
    ///     out: one array per rank, as in `all_reduce`; that of rank 0 is not looked at. Default: in place.
    ///     op: a name: all but avg and premul_sum. Default: sum.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out` if it is given, else `arrays`.
    ///
    /// Raises:
    ///     InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`.
    #[pyo3(signature = (arrays, op=None, *, algorithm=None, out=None, path="mapped", timeout=None))]
    #[allow(clippy::too_many_arguments)]
    fn exscan<'py>(
        &self,
        py: Python<'py>,
        arrays: &Bound<'py, PyAny>,
        op: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = Request { op, algorithm, out, ..Request::new(&EXSCAN, arrays, path) };
        self.call(py, request, timeout)
    }

    /// Returns when every rank has taken part: a call for all ranks that moves nothing.
    #[pyo3(signature = (*, timeout=None))]
    fn barrier(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.group.refuse(py, "barrier")?;
        self.prepare_barrier(py)?.run(py, &self.engine, timeout)
    }

    /// Prepares a call that runs again and again on the same arrays.
    ///
    /// A plan keeps the memory of its arrays and reads them anew each time. Do not resize them while it lives: numpy and the
    /// buffer protocol refuse to, torch does not.
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
        if collective == &SPLIT {
            return Err(invalid(py, "no plan for split: it makes communicators, which is comm.split"));
        }
        let is_without_data = collective.parts(Roles::of(2)) == 0;
        let (prepared, result) = match arrays {
            None if is_without_data => (node.prepare_barrier(py)?, py.None().into_bound(py)),
            Some(_) if is_without_data => {
                return Err(invalid(py, format!("`arrays` is given, and {} has none: leave it out", collective.name)))
            }
            None => return Err(invalid(py, format!("`arrays` is left out, and {} needs it", collective.name))),
            Some(arrays) => node
                .prepare(py, Request { op, root, counts, algorithm, out, ..Request::new(collective, arrays, path) })?,
        };
        let program = prepared.program.clone();
        let result = result.unbind();
        Ok(Plan { node: node.engine.clone(), program, prepared: std::sync::Mutex::new(prepared), result })
    }

    /// Groups calls: those that are made in a `with` block of it are launched as one when the block ends.
    ///
    /// Inside the block the collectives of this node, on this thread, check their arguments and return what they will return;
    /// nothing is read or written before the block ends, and nothing at all if it raises. The calls of a group have no
    /// order, and what one of them writes shares no byte with what another touches. Plans, other groups and the ranks of
    /// `run` are not affected: they run at once.
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
    fn group(slf: Bound<'_, Self>, timeout: Option<f64>) -> PyResult<Group> {
        Group::new(slf.py(), Home::Node(slf.clone().unbind()), timeout)
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
    /// None in a barrier.
    operands: Option<Operands>,
}

impl Prepared {
    /// Runs the call; strided arrays are packed before and written back after it.
    fn run(&mut self, py: Python<'_>, engine: &nvcoll_engine::node::Node, timeout: Option<f64>) -> PyResult<()> {
        self.operands.iter_mut().for_each(|operands| operands.gather(py));
        run(py, engine, &self.program, self.buffers.get(), timeout)?;
        self.operands.iter_mut().for_each(|operands| operands.write_back(py));
        Ok(())
    }
}

impl Node {
    fn call<'py>(
        &self,
        py: Python<'py>,
        request: Request<'_, 'py>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (prepared, result) = self.prepare(py, request)?;
        match (self.group.is_open(), prepared) {
            (true, Prepared { program, buffers: Detached(buffers), operands: Some(operands) }) => {
                self.group.add(py, Grouped { operands, program, buffers }, timeout)?;
            }
            (_, mut prepared) => prepared.run(py, &self.engine, timeout)?,
        }
        Ok(result)
    }

    /// Runs calls as one, with an eye on Ctrl-C.
    pub(crate) fn run_batch(&self, py: Python<'_>, batch: &mut Detached<Batch>, deadline: Deadline) -> PyResult<()> {
        // SAFETY: the arrays were checked, each call's and all among each other, and the group holds their owners.
        watched(py, |is_interrupted| unsafe { self.engine.run_batch(batch.get(), deadline, is_interrupted) })
    }

    fn prepare<'py>(&self, py: Python<'py>, request: Request<'_, 'py>) -> PyResult<(Prepared, Bound<'py, PyAny>)> {
        let Checked { operands, reduction, call, proof, result } =
            request.check(Caller::Node, self.engine.world_size())?;
        let program = self.program(py, &call, proof.as_ref())?;
        let buffers = Detached(operands.buffers(|at| reduction.scalar(at)));
        Ok((Prepared { program, buffers, operands: Some(operands) }, result))
    }

    fn prepare_barrier(&self, py: Python<'_>) -> PyResult<Prepared> {
        let program = self.program(py, &Call::without_data(&BARRIER), None)?;
        let nothing = Buffers::new(std::ptr::null_mut(), std::ptr::null_mut(), 1.0);
        let buffers = Detached(vec![nothing; self.engine.world_size() as usize]);
        Ok(Prepared { program, buffers, operands: None })
    }

    fn program(&self, py: Python<'_>, call: &Call, proof: Option<&Verified>) -> PyResult<SharedProgram> {
        let program = self.engine.program_shared(call, Sharing::of(call.path), proof, &WithoutGil(py));
        program.map_err(|e| of_engine(py, &e))
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
    // SAFETY: the arrays were checked for count, dtype and overlap, and the caller holds their owners.
    watched(py, |is_interrupted| unsafe { engine.run(program, buffers.get(), deadline, is_interrupted) })
}

/// Does what the engine is asked without the GIL, with an eye on Ctrl-C.
#[inline]
fn watched(
    py: Python<'_>,
    work: impl FnOnce(&mut dyn FnMut() -> bool) -> nvcoll_engine::Result<()> + Send,
) -> PyResult<()> {
    let (outcome, raised) = py.detach(|| {
        let mut signals = Signals::new();
        let outcome = work(&mut || signals.check());
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
    result: Py<PyAny>,
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

    /// What a run writes: what the method of the collective would return.
    #[getter]
    fn result<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.result.bind(py).clone()
    }

    /// The number of tiles in which the plan passes over the data.
    #[getter]
    fn tiles(&self) -> u32 {
        self.program.tiles()
    }

    /// The name of the algorithm that the plan runs: what `auto` chose, if none was named.
    #[getter]
    fn algorithm(&self) -> &str {
        self.program.algorithm()
    }

    fn __repr__(&self) -> String {
        format!("<nvcoll.Plan {}>", self.program.call())
    }
}

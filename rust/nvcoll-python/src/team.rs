//! `Team` and `Communicator`: ranks that are threads and make their own calls.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use nvcoll_core::collective::{
    ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BARRIER, BROADCAST, EXSCAN, GATHER, REDUCE, REDUCE_SCATTER, SCAN, SCATTER,
    SPLIT,
};
use nvcoll_core::counts::Counts;
use nvcoll_core::dtype::DType;
use nvcoll_core::schedule::Aliasing;
use nvcoll_core::verify::Verified;
use nvcoll_engine::batch::Batch;
use nvcoll_engine::call::Call;
use nvcoll_engine::member::Member;
use nvcoll_engine::node::Occupied;
use nvcoll_engine::sharing::Sharing;
use nvcoll_engine::{Buffers, Deadline, Error};

use crate::arrays::Caller;
use crate::calls::{deadline, SharedProgram};
use crate::counts::{self, Rows, Table};
use crate::error::{invalid, of_engine, of_group};
use crate::gil::{Detached, WithoutGil};
use crate::group::{Group, Grouped, Home, OpenGroup};
use crate::request::{Checked, Request};
use crate::whole::whole;

/// The ranks of one `Node.run`. Nobody drives the node while it lasts.
#[pyclass(name = "Team", module = "nvcoll._nvcoll", frozen)]
pub(crate) struct Team {
    node: Arc<nvcoll_engine::node::Node>,
    team: nvcoll_engine::team::Team,
    occupied: Mutex<Option<Occupied>>,
}

impl Team {
    pub(crate) fn new(py: Python<'_>, node: Arc<nvcoll_engine::node::Node>) -> PyResult<Self> {
        let occupied = node.clone().occupy().map_err(|e| of_engine(py, &e))?;
        let team = nvcoll_engine::team::Team::new(node.world_size());
        Ok(Self { node, team, occupied: Mutex::new(Some(occupied)) })
    }
}

#[pymethods]
impl Team {
    /// The communicator of a rank; each rank has one.
    fn communicator(&self, py: Python<'_>, rank: u32, timeout: Option<f64>) -> PyResult<Communicator> {
        deadline(py, timeout)?;
        Ok(Communicator::new(self.node.clone(), timeout, self.team.member(rank)))
    }

    /// Ends the communicators of a rank whose program has returned: peers that make one more call are told so.
    fn retire(&self, py: Python<'_>, comm: &Communicator) -> PyResult<()> {
        py.detach(|| self.team.retire(comm.rank_of_run())).map_err(|error| of_engine(py, &error))
    }

    /// Ends every call of every communicator that contains a rank, because its program failed.
    fn fail(&self, py: Python<'_>, comm: &Communicator) {
        py.detach(|| self.team.fail(comm.rank_of_run()));
    }

    /// Ends every call of the run because the user interrupted the program.
    fn interrupt(&self) {
        self.team.interrupt();
    }

    /// Gives the node back.
    fn end(&self) {
        self.occupied.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// One rank's door to its peers: what `Node.run` passes to the program of a rank, for as long as that runs, and what
/// `split` makes of it. One thread at a time may use a communicator; several threads of a rank may use one each.
#[pyclass(name = "Communicator", module = "nvcoll", frozen)]
pub(crate) struct Communicator {
    node: Arc<nvcoll_engine::node::Node>,
    timeout: Option<f64>,
    member: Arc<Member>,
    pub(crate) group: OpenGroup,
}

#[pymethods]
impl Communicator {
    /// This rank, from 0.
    #[getter]
    fn rank(&self) -> u32 {
        self.member.rank()
    }

    /// The number of ranks.
    #[getter]
    fn world_size(&self) -> u32 {
        self.member.ranks().len() as u32
    }

    /// The ranks of the run that form this communicator, by their rank here: 0, 1, … unless it was split off.
    #[getter]
    fn ranks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.member.ranks())
    }

    /// Reduces `x` with the arrays that the other ranks pass, element by element; every rank must make the same call.
    ///
    /// Args:
    ///     x: this rank's array, as in `Node.all_reduce`. Written, unless there is `out`.
    ///     op: a name, or `nvcoll.premul_sum(scalar)` with the scalar of this rank. Default: sum.
    ///     algorithm: a name, an algorithm or a schedule. Default: one that folds in the order of ranks.
    ///     out: where the result goes: the memory of `x`, or no byte of it.
    ///     path: how ranks reach each other, mapped or staged.
    ///     timeout: seconds that the call may take. Default: that of `Node.run`.
    ///
    /// Returns:
    ///     `out` if it is given, else `x`.
    ///
    /// Raises:
    ///     Mismatch: another rank made a different call; the message names both.
    ///     Aborted: the program of another rank failed, or a rank called `abort`.
    ///     Timeout: the message says which ranks have not entered the call.
    #[pyo3(signature = (x, op=None, *, algorithm=None, out=None, path="mapped", timeout=None))]
    #[allow(clippy::too_many_arguments)]
    fn all_reduce<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        op: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = Request { op, algorithm, out, ..Request::new(&ALL_REDUCE, x, path) };
        self.call(py, request, timeout)
    }

    /// Reduces `x` with the arrays of the other ranks; this rank, r, receives part r of the result.
    ///
    /// Args:
    ///     x: this rank's array, of all parts. Read.
    ///     counts: elements of each part, one number per rank, the same on every rank. Default: the length cut as numpy's
    ///         `array_split` does.
    ///     out: this rank's part. In place if it is part r of `x`. Default: a new array of one axis, of the kind of `x`.
    ///     op, algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out`, or the new array.
    ///
    /// Raises:
    ///     InvalidArgument, Mismatch, Aborted, Timeout: as in `all_reduce`.
    #[pyo3(signature = (x, op=None, *, counts=None, algorithm=None, out=None, path="mapped", timeout=None))]
    #[allow(clippy::too_many_arguments)]
    fn reduce_scatter<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        op: Option<&Bound<'py, PyAny>>,
        counts: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = Request { op, counts, algorithm, out, ..Request::new(&REDUCE_SCATTER, x, path) };
        self.call(py, request, timeout)
    }

    /// Gives every rank the arrays of all ranks, one after the other.
    ///
    /// Args:
    ///     x: this rank's array. Read.
    ///     counts: elements of each rank's array, one number per rank, the same on every rank. Default: as many as `x` on every rank.
    ///     out: an array of all elements. In place if `x` is this rank's part of it. Default: a new array of one axis, of the kind
    ///         of `x`.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out`, or the new array.
    ///
    /// Raises:
    ///     InvalidArgument, Mismatch, Aborted, Timeout: as in `all_reduce`.
    #[pyo3(signature = (x, *, counts=None, algorithm=None, out=None, path="mapped", timeout=None))]
    #[allow(clippy::too_many_arguments)]
    fn all_gather<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        counts: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = Request { counts, algorithm, out, ..Request::new(&ALL_GATHER, x, path) };
        self.call(py, request, timeout)
    }

    /// Gives every rank the array of the root.
    ///
    /// Args:
    ///     x: this rank's array. Read on the root, written elsewhere; with `out` only the root's is looked at.
    ///     root: the rank whose array it is.
    ///     out: where the result goes, on every rank. Default: in place.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out` if it is given, else `x`.
    ///
    /// Raises:
    ///     InvalidArgument, Mismatch, Aborted, Timeout: as in `all_reduce`.
    #[pyo3(signature = (x, *, root=None, algorithm=None, out=None, path="mapped", timeout=None), text_signature = "($self, x, *, root=0, algorithm=None, out=None, path='mapped', timeout=None)")]
    #[allow(clippy::too_many_arguments)]
    fn broadcast<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        root: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = Request { root, algorithm, out, ..Request::new(&BROADCAST, x, path) };
        self.call(py, request, timeout)
    }

    /// Reduces `x` with the arrays of the other ranks, element by element, and gives the root the result.
    ///
    /// Args:
    ///     x: this rank's array. Written on the root, unless there is `out`; read elsewhere.
    ///     root: the rank that has the result.
    ///     out: on the root, where the result goes; elsewhere not looked at. Default: in place.
    ///     op, algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     On the root `out` if it is given, else `x`; elsewhere None.
    ///
    /// Raises:
    ///     InvalidArgument, Mismatch, Aborted, Timeout: as in `all_reduce`.
    #[pyo3(signature = (x, op=None, *, root=None, algorithm=None, out=None, path="mapped", timeout=None), text_signature = "($self, x, op=None, *, root=0, algorithm=None, out=None, path='mapped', timeout=None)")]
    #[allow(clippy::too_many_arguments)]
    fn reduce<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        op: Option<&Bound<'py, PyAny>>,
        root: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = Request { op, root, algorithm, out, ..Request::new(&REDUCE, x, path) };
        self.call(py, request, timeout)
    }

    /// Gives the root the arrays of all ranks, one after the other.
    ///
    /// Args:
    ///     x: this rank's array. Read.
    ///     root: the rank that has the result.
    ///     counts: elements of each rank's array, one number per rank, the same on every rank. Default: as many as `x` on every rank.
    ///     out: on the root, an array of all elements; in place if `x` is the root's part of it. Elsewhere not looked at. Default: a
    ///         new array of one axis, of the kind of the root's `x`.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     On the root `out`, or the new array; elsewhere None.
    ///
    /// Raises:
    ///     InvalidArgument, Mismatch, Aborted, Timeout: as in `all_reduce`.
    #[pyo3(signature = (x, *, root=None, counts=None, algorithm=None, out=None, path="mapped", timeout=None), text_signature = "($self, x, *, root=0, counts=None, algorithm=None, out=None, path='mapped', timeout=None)")]
    #[allow(clippy::too_many_arguments)]
    fn gather<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        root: Option<&Bound<'py, PyAny>>,
        counts: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = Request { root, counts, algorithm, out, ..Request::new(&GATHER, x, path) };
        self.call(py, request, timeout)
    }

    /// Gives this rank, r, part r of the root's array.
    ///
    /// Args:
    ///     x: on the root, the array of all parts. Read. Elsewhere None; without `out`, an array like the root's, which says dtype,
    ///         kind and length, and is not read.
    ///     root: the rank whose array it is.
    ///     counts: elements of each part, one number per rank, the same on every rank. Default: the length of `x` cut as numpy's
    ///         `array_split` does; a rank that passes only `out` takes all parts to be as long as that.
    ///     out: this rank's part. On the root, in place if it is its part of `x`. Default: a new array of one axis, of the kind of
    ///         `x`.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out`, or the new array.
    ///
    /// Raises:
    ///     InvalidArgument, Mismatch, Aborted, Timeout: as in `all_reduce`.
    #[pyo3(signature = (x, *, root=None, counts=None, algorithm=None, out=None, path="mapped", timeout=None), text_signature = "($self, x, *, root=0, counts=None, algorithm=None, out=None, path='mapped', timeout=None)")]
    #[allow(clippy::too_many_arguments)]
    fn scatter<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        root: Option<&Bound<'py, PyAny>>,
        counts: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = Request { root, counts, algorithm, out, ..Request::new(&SCATTER, x, path) };
        self.call(py, request, timeout)
    }

    /// Reduces `x` with the arrays of the ranks before this one.
    ///
    /// Args:
    ///     x: this rank's array. Written, unless there is `out`.
    ///     out: where the result goes: the memory of `x`, or no byte of it.
    ///     op: a name: all but avg and premul_sum. Default: sum.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out` if it is given, else `x`.
    ///
    /// Raises:
    ///     InvalidArgument, Mismatch, Aborted, Timeout: as in `all_reduce`.
    #[pyo3(signature = (x, op=None, *, algorithm=None, out=None, path="mapped", timeout=None))]
    #[allow(clippy::too_many_arguments)]
    fn scan<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        op: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = Request { op, algorithm, out, ..Request::new(&SCAN, x, path) };
        self.call(py, request, timeout)
    }

    /// Reduces the arrays of the ranks before this one; rank 0 receives nothing.
    ///
    /// Args:
    ///     x: this rank's array. Written, unless there is `out`; on rank 0 it stays as it is.
    ///     out: where the result goes: the memory of `x`, or no byte of it. On rank 0 it stays as it is, and is given if it is on
    ///         other ranks.
    ///     op: a name: all but avg and premul_sum. Default: sum.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out` if it is given, else `x`.
    ///
    /// Raises:
    ///     InvalidArgument, Mismatch, Aborted, Timeout: as in `all_reduce`.
    #[pyo3(signature = (x, op=None, *, algorithm=None, out=None, path="mapped", timeout=None))]
    #[allow(clippy::too_many_arguments)]
    fn exscan<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        op: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = Request { op, algorithm, out, ..Request::new(&EXSCAN, x, path) };
        self.call(py, request, timeout)
    }

    /// Gives this rank, r, part r of the array of every rank, in the order of ranks.
    ///
    /// Args:
    ///     x: all that this rank sends, first what rank 0 receives. Read.
    ///     counts: how many elements this rank sends to each rank, 0 allowed. Or, the same on every rank, a table whose row q is
    ///         what rank q sends to each. Default: the length, the same on every rank, cut as numpy's `array_split` does.
    ///     recv_counts: how many elements this rank receives from each rank, for a check, and only without a table.
    ///     out: all that this rank receives; never in place. Default: a new array of one axis, of the kind of `x`.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// A table needs no second call. Rows do: ranks tell each other theirs first, so all ranks pass rows or none.
    ///
    /// Returns:
    ///     `out`, or the new array.
    ///
    /// Raises:
    ///     Mismatch: as in `all_reduce`; or a rank does not receive what another sends it, on every rank.
    ///     InvalidArgument, Aborted, Timeout: as in `all_reduce`.
    #[pyo3(signature = (x, *, counts=None, recv_counts=None, algorithm=None, out=None, path="mapped", timeout=None))]
    #[allow(clippy::too_many_arguments)]
    fn all_to_all<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        counts: Option<&Bound<'py, PyAny>>,
        recv_counts: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let deadline = deadline(py, timeout.or(self.timeout))?;
        let table = self.all_to_all_table(py, counts, recv_counts, deadline)?;
        let request = Request { table, algorithm, out, ..Request::new(&ALL_TO_ALL, x, path) };
        if self.group.is_open() {
            return self.keep(py, request, timeout);
        }
        self.call_until(py, request, deadline)
    }

    /// Returns when every rank has called it.
    #[pyo3(signature = (*, timeout=None))]
    fn barrier(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.group.refuse(py, "barrier")?;
        let program = self.program(py, &Call::without_data(&BARRIER), None)?;
        let nothing = std::ptr::null_mut();
        let buffers = Buffers::new(nothing, nothing, 1.0);
        self.execute(py, &program, buffers, deadline(py, timeout.or(self.timeout))?)
    }

    /// Splits the ranks into groups, each with a communicator of its own; every rank must call it.
    ///
    /// Args:
    ///     color: ranks of the same color, a whole number from 0, form a group. None: this rank joins no group.
    ///     key: ranks of a group are ordered by it; those of the same key by their rank here.
    ///     timeout: seconds that the call may take. Default: that of `Node.run`.
    ///
    /// Returns:
    ///     The communicator of this rank's group; None without a color. It has numbers, calls and errors of its own, and
    ///     the default timeout of this one. A mismatch, a timeout or `abort` ends the calls of the communicator in which
    ///     it happens, not those of others; a rank whose program raises ends the calls of every communicator that it is in.
    ///     It lasts as long as the program of its rank; a rank that drops it leaves it.
    ///
    /// Raises:
    ///     InvalidArgument: a color or a key that is none; nothing was called.
    ///     Mismatch, Aborted, Timeout: as in `all_reduce`.
    ///
    /// Example:
    ///     >>> def program(comm):
    ///     ...     row = comm.split(comm.rank // 2)
    ///     ...     return row.ranks, row.rank
    ///     >>> nvcoll.Node(4).run(program)
    ///     [((0, 1), 0), ((0, 1), 1), ((2, 3), 0), ((2, 3), 1)]
    #[pyo3(signature = (color, key=None, *, timeout=None))]
    fn split(
        &self,
        py: Python<'_>,
        color: Option<&Bound<'_, PyAny>>,
        key: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Self>> {
        self.group.refuse(py, "split")?;
        let color = color.map(|color| whole("`color`", color, 0..=i32::MAX)).transpose()?;
        let key = key.map_or(Ok(0), |key| whole("`key`", key, i32::MIN..=i32::MAX))?;
        let deadline = deadline(py, timeout.or(self.timeout))?;
        let program = self.program(py, &Call::without_data(&SPLIT), None)?;
        let group = py.detach(|| self.member.split(&program, color.map(i32::unsigned_abs), key, deadline));
        let member = group.map_err(|error| self.error(py, &error))?;
        Ok(member.map(|member| Self::new(self.node.clone(), self.timeout, member)))
    }

    /// Groups calls: those that are made in a `with` block of it are launched as one when the block ends; see `Node.group`.
    ///
    /// Every rank must make the same calls in it, in the same order.
    ///
    /// Args:
    ///     timeout: seconds that each part of the group may take: calls by one algorithm are one part. Default: that of
    ///         `Node.run`.
    ///
    /// Raises:
    ///     Mismatch: at the end of the block; the message names the call in the group.
    ///     InvalidArgument, Busy: as in `Node.group`.
    #[pyo3(signature = (*, timeout=None))]
    fn group(slf: Bound<'_, Self>, timeout: Option<f64>) -> PyResult<Group> {
        let timeout = timeout.or(slf.get().timeout);
        Group::new(slf.py(), Home::Rank(slf.clone().unbind()), timeout)
    }

    /// Ends every call of this communicator, now and later, on every rank: they raise `Aborted`, which names this rank.
    ///
    /// Any thread may call it, also while another is in a call. Other communicators of the same ranks stay usable: those
    /// that were split off this one, and the one that this was split off.
    ///
    /// Raises:
    ///     Closed: the program of this rank has ended.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.member.abort().map_err(|error| self.error(py, &error))
    }

    fn __repr__(&self) -> String {
        let of_run = self.member.is_of_group().then(|| format!(", {} of the run", listed(self.member.ranks())));
        let (rank, world_size) = (self.rank(), self.world_size());
        format!("<nvcoll.Communicator rank {rank} of {world_size}{}>", of_run.unwrap_or_default())
    }
}

impl Communicator {
    fn new(node: Arc<nvcoll_engine::node::Node>, timeout: Option<f64>, member: Arc<Member>) -> Self {
        Self { node, timeout, member, group: OpenGroup::default() }
    }

    fn rank_of_run(&self) -> u32 {
        self.member.ranks()[self.rank() as usize]
    }

    /// Returns the exception; it says which ranks are meant if the communicator has numbers of its own.
    fn error(&self, py: Python<'_>, error: &Error) -> PyErr {
        match self.member.is_of_group() {
            true => of_group(py, error, &listed(self.member.ranks())),
            false => of_engine(py, error),
        }
    }

    fn program(&self, py: Python<'_>, call: &Call, proof: Option<&Verified>) -> PyResult<SharedProgram> {
        let (world_size, aside) = (self.world_size(), WithoutGil(py));
        let program = self.node.program_among(world_size, call, Sharing::ByRank, proof, &aside);
        program.map_err(|error| of_engine(py, &error))
    }

    fn call<'py>(
        &self,
        py: Python<'py>,
        request: Request<'_, 'py>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if self.group.is_open() {
            return self.keep(py, request, timeout);
        }
        self.call_until(py, request, deadline(py, timeout.or(self.timeout))?)
    }

    /// Keeps a call for the end of the group.
    fn keep<'py>(
        &self,
        py: Python<'py>,
        request: Request<'_, 'py>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Checked { operands, reduction, call, proof, result } =
            request.check(Caller::Rank(self.rank()), self.world_size())?;
        let program = self.program(py, &call, proof.as_ref())?;
        let buffers = operands.buffers(|at| reduction.scalar(at));
        self.group.add(py, Grouped { operands, program, buffers }, timeout)?;
        Ok(result)
    }

    /// Runs calls as one.
    pub(crate) fn run_batch(&self, py: Python<'_>, batch: &mut Detached<Batch>, deadline: Deadline) -> PyResult<()> {
        // SAFETY: the arrays of this rank were checked, each call's and all among each other, and the group holds their
        // owners; that no rank writes what another one passed is checked when they meet.
        let outcome = py.detach(|| unsafe { self.member.run_batch(batch.get(), deadline) });
        outcome.map_err(|error| self.error(py, &error))
    }

    fn call_until<'py>(
        &self,
        py: Python<'py>,
        request: Request<'_, 'py>,
        deadline: Deadline,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Checked { mut operands, reduction, call, proof, result } =
            request.check(Caller::Rank(self.rank()), self.world_size())?;
        let program = self.program(py, &call, proof.as_ref())?;
        operands.gather(py);
        self.execute(py, &program, operands.buffers(|at| reduction.scalar(at))[0], deadline)?;
        operands.write_back(py);
        Ok(result)
    }

    /// Returns how many elements each rank sends to each; none if that was left open.
    fn all_to_all_table<'py>(
        &self,
        py: Python<'py>,
        counts: Option<&Bound<'py, PyAny>>,
        recv_counts: Option<&Bound<'py, PyAny>>,
        deadline: Deadline,
    ) -> PyResult<Option<Vec<usize>>> {
        let world_size = self.world_size();
        let send = match counts.map(|counts| counts::read(&ALL_TO_ALL, world_size, counts)).transpose()? {
            Some(Table::Row(send)) => send,
            _ if recv_counts.is_some() => {
                return Err(invalid(py, "`recv_counts` is given without a row of `counts`: pass what this rank sends"))
            }
            Some(Table::Whole(table)) => return Ok(Some(table)),
            None => return Ok(None),
        };
        let receive = recv_counts.map(|counts| counts::row("recv_counts", counts, world_size, "rank")).transpose()?;
        let mut rows = Rows::of_rank(self.rank(), &send, receive.as_deref());
        self.exchange(py, &mut rows, deadline)?;
        rows.table(py).map(Some)
    }

    /// Tells all ranks each other's rows, by an all_gather in place.
    fn exchange(&self, py: Python<'_>, rows: &mut Rows, deadline: Deadline) -> PyResult<()> {
        let (world_size, words) = (self.world_size() as usize, Rows::words(self.world_size() as usize));
        let call = Call {
            dtype: DType::I32,
            counts: Counts::Even(words * world_size),
            aliasing: Aliasing::InPlace,
            ..Call::without_data(&ALL_GATHER)
        };
        let all = rows.start();
        let own = all.wrapping_add(self.rank() as usize * words * DType::I32.bytes());
        self.execute(py, &self.program(py, &call, None)?, Buffers::new(own, all, 1.0), deadline)
    }

    fn execute(&self, py: Python<'_>, program: &SharedProgram, buffers: Buffers, deadline: Deadline) -> PyResult<()> {
        let mut buffers = Detached(buffers);
        let outcome = py.detach(|| {
            // SAFETY: the arrays were checked for count and dtype; their owners are held until this call returns; that no
            // rank writes what another one passed is checked when they meet.
            unsafe { self.member.run(program, *buffers.get(), deadline) }
        });
        outcome.map_err(|error| self.error(py, &error))
    }
}

/// Ranks that a list shows. Chosen.
const SHOWN: usize = 16;

/// Lists ranks in words.
fn listed(ranks: &[u32]) -> String {
    let shown: Vec<String> = ranks.iter().take(SHOWN).map(u32::to_string).collect();
    let more = if ranks.len() > SHOWN { ", …" } else { "" };
    format!("rank{} {}{more}", if ranks.len() == 1 { "" } else { "s" }, shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_ranks_is_short_and_counts_one_in_the_singular() {
        assert_eq!(listed(&[7]), "rank 7");
        assert_eq!(listed(&[3, 0]), "ranks 3, 0");
        let many = listed(&(0..1024).collect::<Vec<_>>());
        assert!(many.starts_with("ranks 0, 1,") && many.ends_with(", 15, …"), "{many}");
    }
}

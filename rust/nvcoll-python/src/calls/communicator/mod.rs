//! `Communicator`: one rank, a thread or a process, calls for itself.

mod all_to_all;
mod memory;
mod point_to_point;

use std::sync::Arc;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use nvcoll_engine::ranks::member::Member;
use nvcoll_engine::ranks::node::Node;
use nvcoll_engine::sync::condition::IsInterrupted;

use crate::arrays::in_flight::{self, IssueQueue};
use crate::arrays::places_of;
use crate::calls::choices::Seconds;
use crate::calls::endpoint::Endpoint;
use crate::calls::group::Group;
use crate::calls::work::Work;
use crate::engine::error::{listed, of_member};
use crate::engine::gil::WithoutGil;
use crate::gil::interruptible;
use crate::integers::{integer, items_of, ANY};

pub(crate) use point_to_point::Message;

/// The collectives of one rank. `nvcoll.init` returns the communicator of a rank that is a process, `Node.run` passes one to the
/// program of each rank that is a thread, and `split` makes others. A communicator ends with the program of its rank. One thread
/// at a time may use it; several threads of a rank use one each.
///
/// Example:
///     >>> import numpy as np, nvcoll
///     >>> nvcoll.Node(2).run(lambda comm: comm.all_reduce(np.full(2, comm.rank + 1)).tolist())
///     [[3, 3], [3, 3]]
#[pyclass(name = "Communicator", module = "nvcoll", frozen, subclass)]
pub(crate) struct Communicator {
    pub(crate) endpoint: Arc<Endpoint>,
    member: Arc<Member>,
}

#[pymethods]
impl Communicator {
    /// Makes the base of a communicator of ranks on several hosts; `inner` has the ranks of this host. It has groups of its own.
    /// Not public.
    #[new]
    fn base_of(inner: &Bound<'_, Self>) -> Self {
        let Self { endpoint, member } = inner.get();
        Self::new(endpoint.node().clone(), endpoint.timeout, member.clone())
    }

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

    /// The ranks of the run, or of the job, that form this communicator, in the order of ranks here.
    #[getter]
    fn ranks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.member.ranks())
    }

    /// The ranks of this communicator on each host, hosts in the order of their lowest ranks: `((0, 1), (2, 3))`. A communicator of this
    /// class is on one host.
    #[getter]
    fn hosts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, [PyTuple::new(py, 0..self.world_size())?])
    }

    /// Waits until every rank has called it.
    ///
    /// Args:
    ///     timeout: seconds that the call may take. Default: that of `Node.run` or `init`.
    ///     async_op: whether to return at once, with a `Work` to wait for. Its `timeout` counts from its turn. Default: false.
    ///
    /// Raises:
    ///     InvalidArgument: a group is open.
    ///     Mismatch: another rank made a different call; the message names both.
    ///     Aborted: the program of another rank failed, or a rank called `abort`.
    ///     Timeout: the deadline passed; the message names the ranks that have not entered the call.
    #[pyo3(signature = (*, timeout=None, async_op=false))]
    fn barrier(&self, py: Python<'_>, timeout: Option<Seconds>, async_op: bool) -> PyResult<Option<Work>> {
        match async_op {
            true => self.endpoint.issue_barrier(py, timeout).map(Some),
            false => self.endpoint.barrier(py, timeout).map(|()| None),
        }
    }

    /// Splits the ranks into groups, each with its own communicator. Every rank must call it.
    ///
    /// A mismatch, a timeout or `abort` ends the calls of one communicator. A rank whose program raises ends the calls of all
    /// its communicators. A rank that deletes its communicator leaves the group.
    ///
    /// Args:
    ///     color: a whole number from 0: ranks of one color form a group. None: this rank joins no group.
    ///     key: a whole number that orders the ranks of a group; equal keys by rank. Default: 0.
    ///     timeout: seconds that the call may take. Default: that of `Node.run` or `init`.
    ///
    /// Returns:
    ///     The communicator of this rank's group, with ranks of its own and the default timeout of this communicator; None
    ///     without a color.
    ///
    /// Raises:
    ///     InvalidArgument: the color or the key is not such a number, or a group of calls is open.
    ///     Mismatch: another rank made a different call; the message names both.
    ///     Aborted: the program of another rank failed, or a rank called `abort`.
    ///     Timeout: the deadline passed; the message names the ranks that have not entered the call.
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
        timeout: Option<Seconds>,
    ) -> PyResult<Option<Self>> {
        self.endpoint.group.refuse(py, "split")?;
        let color = color.map(|color| integer("`color`", color, 0..=i32::MAX)).transpose()?;
        let key = key.map_or(Ok(0), |key| integer("`key`", key, i32::MIN..=i32::MAX))?;
        let deadline = self.endpoint.deadline(timeout);
        let color = color.map(i32::unsigned_abs);
        let member = self.regrouped(py, |unlocked, is_interrupted| {
            self.member.split(color, key, deadline, unlocked, is_interrupted)
        })?;
        Ok(member.map(|member| self.of(member)))
    }

    /// Makes a communicator of some ranks. Only these ranks call it, all with the same list and tag.
    ///
    /// `subset` is no call of this communicator: another thread may be in one. Ranks that make several subsets of the same ranks with
    /// one tag make them in the same order.
    ///
    /// Args:
    ///     ranks: ranks of this communicator, in the order that the new communicator gives them. This rank is among them.
    ///     tag: a whole number from 0 that tells apart subsets of the same ranks. Default: 0.
    ///     timeout: seconds that the call may take. Default: that of `Node.run` or `init`.
    ///
    /// Returns:
    ///     The communicator of these ranks, with the default timeout of this one.
    ///
    /// Raises:
    ///     InvalidArgument: the list is empty, has a rank twice or one that does not exist, or leaves out the rank that calls.
    ///     Timeout: a rank of the list has not called it; between threads, `subset` does not wait.
    ///     PeerLost, Aborted: a rank of the list died, or has no memory or descriptors for the communicator.
    ///
    /// Example:
    ///     >>> def program(comm):
    ///     ...     if comm.rank != 1:
    ///     ...         pair = comm.subset([2, 0])
    ///     ...         return pair.ranks, pair.rank
    ///     >>> nvcoll.Node(3).run(program)
    ///     [((2, 0), 1), None, ((2, 0), 0)]
    #[pyo3(signature = (ranks: "Sequence[int]", tag: "int | None" = None, *, timeout=None))]
    fn subset(
        &self,
        py: Python<'_>,
        ranks: &Bound<'_, PyAny>,
        tag: Option<&Bound<'_, PyAny>>,
        timeout: Option<Seconds>,
    ) -> PyResult<Self> {
        let items = items_of("`ranks`", ranks, "a list of ranks")?;
        let ranks: Vec<u32> =
            items.iter().map(|rank| integer("a rank of `ranks`", rank, ANY)).collect::<PyResult<_>>()?;
        let tag = tag.map_or(Ok(0), |tag| integer("`tag`", tag, 0..=i32::MAX))?.unsigned_abs();
        let deadline = self.endpoint.deadline(timeout);
        let member = self.regrouped(py, |unlocked, is_interrupted| {
            self.member.subset(&ranks, tag, deadline, unlocked, is_interrupted)
        })?;
        Ok(self.of(member))
    }

    /// Refuses arrays that a call copies, while a call of another communicator has them. Not public: it is for torch's lists of tensors.
    fn _refuse_in_flight(&self, py: Python<'_>, arrays: Vec<Bound<'_, PyAny>>, is_written: bool) -> PyResult<()> {
        let arrays = places_of(self.rank(), &arrays, is_written)?;
        let label = |at| format!("tensor {at} of a list");
        in_flight::check(py, &"a call", &arrays, Some(IssueQueue::of(&self.member)), label)
    }

    /// Returns a communicator of the remaining ranks, after a rank was lost.
    ///
    /// A rank remains if its process runs and its program has not ended. All remaining ranks must call `shrink`. If a rank ends meanwhile,
    /// `shrink` leaves it out and continues with the others. The remaining ranks keep their order.
    ///
    /// The outputs of a call that failed are undefined. Everything else is intact, also other communicators. You can shrink every
    /// communicator that contains the lost rank: one after the other, in the same order on every rank.
    ///
    /// Args:
    ///     timeout: seconds that the call may take. Default: that of `Node.run` or `init`.
    ///
    /// Returns:
    ///     The communicator. It numbers its ranks from 0, and has the default timeout of this communicator.
    ///
    /// Raises:
    ///     Timeout: a rank runs and has not called `shrink`; the message names it.
    ///     Aborted: a rank has no memory or descriptors for the communicator.
    ///     InvalidArgument: a group of calls is open.
    ///
    /// Example:
    ///     >>> def program(comm):
    ///     ...     return comm.shrink().ranks
    ///     >>> nvcoll.Node(2).run(program)
    ///     [(0, 1), (0, 1)]
    #[pyo3(signature = (*, timeout=None))]
    fn shrink(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<Self> {
        self.endpoint.group.refuse(py, "shrink")?;
        let deadline = self.endpoint.deadline(timeout);
        let member =
            self.regrouped(py, |unlocked, is_interrupted| self.member.shrink(deadline, unlocked, is_interrupted))?;
        Ok(self.of(member))
    }

    /// Groups the calls in a `with` block. nvcoll launches them together at the end of the block, as in `Node.group`.
    ///
    /// Every rank must make the same collectives in the block, in the same order. If the block raises, this rank makes none of its calls.
    /// Its peers then get `Mismatch` at its next call or at the end of its program, or `Aborted` if its program raises.
    ///
    /// Args:
    ///     timeout: seconds per part of the group. The calls of one algorithm form a part. Default: that of `Node.run` or `init`.
    ///     async_op: whether the program continues after the block while the calls run. The group then has a `Work` in `work`.
    ///         Default: false.
    ///
    /// Returns:
    ///     The group. Its `run` launches the same calls again.
    ///
    /// Raises:
    ///     Mismatch: at the end of the block, if another rank made different calls; the message names the call in the group.
    ///     InvalidArgument: at the end of the block, if arrays of two calls share memory and one call writes to its array.
    ///     Busy: another group of this communicator is open.
    #[pyo3(signature = (*, timeout=None, async_op=false))]
    fn group(slf: Bound<'_, Self>, timeout: Option<Seconds>, async_op: bool) -> Group {
        let endpoint = slf.get().endpoint.clone();
        Group::new(slf.into_any().unbind(), endpoint, timeout, async_op)
    }

    /// Adds a call that Python code makes to the open group, which passes them to `_make_group` with its timeout; says whether a group is
    /// open. Not public: it is for hosts.
    #[pyo3(signature = (call: "Callable[[float | None], object]", timeout, is_async))]
    fn _add_to_group(
        &self,
        py: Python<'_>,
        call: Py<PyAny>,
        timeout: Option<Seconds>,
        is_async: bool,
    ) -> PyResult<bool> {
        let group = &self.endpoint.group;
        if !group.is_open() {
            return Ok(false);
        }
        match is_async {
            true => group.refuse_async(py)?,
            false => group.add(py, timeout, |calls| calls.add_made(call))?,
        }
        Ok(true)
    }

    /// Refuses a call if a group is open. Not public: it is for hosts.
    fn _refuse_in_group(&self, py: Python<'_>, call: &str) -> PyResult<()> {
        self.endpoint.group.refuse(py, call)
    }

    /// Ends the current calls and all later calls of this communicator on every rank. The calls raise `Aborted`; it names this rank.
    ///
    /// Any thread may call `abort`, also while another thread is in a call. Other communicators of the same ranks stay usable.
    ///
    /// Raises:
    ///     Closed: the program of this rank has ended.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.member.abort().map_err(|error| of_member(py, &self.member, &error))
    }

    /// Has errors and messages name the ranks by other numbers: this communicator is the part of a larger one that is on this host. Behind
    /// its ranks have the numbers of the ranks on other hosts, which send through `_deliver`.
    fn _name_ranks(&self, numbers: Vec<u32>) {
        self.member.name_ranks(numbers);
    }

    /// Returns the last calls of this rank in this communicator, newest first, at most 15. Each call is a number and a description.
    ///
    /// The first call of the communicator has number 1. Any thread may call `recent_calls`, also while another thread is in a call.
    /// Sends and receives are not among them.
    ///
    /// Example:
    ///     >>> def program(comm):
    ///     ...     comm.barrier()
    ///     ...     comm.all_gather(np.zeros(2))
    ///     ...     return comm.recent_calls()
    ///     >>> nvcoll.Node(2).run(program)[0]
    ///     [(2, 'all_gather of 4 float64, out of place, mapped, auto'), (1, 'barrier')]
    fn recent_calls(&self) -> Vec<(u32, String)> {
        self.member.recent_calls()
    }

    fn __repr__(&self) -> String {
        let of_run = self.member.is_of_group().then(|| format!(", {} of the run", listed(self.member.ranks())));
        let (rank, world_size) = (self.rank(), self.world_size());
        format!("<nvcoll.Communicator rank {rank} of {world_size}{}>", of_run.unwrap_or_default())
    }

    /// Visits the arrays of an open group, for the garbage collector.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.endpoint.group.traverse(&visit)
    }
}

impl Communicator {
    pub(crate) fn new(node: Arc<Node>, timeout: Option<Seconds>, member: Arc<Member>) -> Self {
        Self { endpoint: Endpoint::of_rank(node, member.clone(), timeout), member }
    }

    /// Returns a communicator of other ranks, with the default timeout of this one.
    fn of(&self, member: Arc<Member>) -> Self {
        Self::new(self.endpoint.node().clone(), self.endpoint.timeout, member)
    }

    /// Has `make` form a group of ranks without the GIL. A rank that is a process checks for Ctrl-C; ranks that are threads take the
    /// GIL in turn.
    fn regrouped<T>(
        &self,
        py: Python<'_>,
        make: impl FnOnce(&WithoutGil<'_>, IsInterrupted<'_>) -> nvcoll_engine::Result<T>,
    ) -> PyResult<T> {
        let made = match self.member.is_in_one_space() {
            true => make(&WithoutGil::InTurn(py), &mut || false),
            false => interruptible(|is_interrupted| make(&WithoutGil::AtOnce(py), is_interrupted))?,
        };
        made.map_err(|error| of_member(py, &self.member, &error))
    }

    pub(crate) fn member(&self) -> &Member {
        &self.member
    }

    pub(crate) fn rank_of_run(&self) -> u32 {
        self.member.ranks()[self.rank() as usize]
    }
}

//! `Communicator`: the calls that one rank, a thread, makes for itself.

mod all_to_all;

use std::sync::Arc;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use nvcoll_engine::ranks::member::Member;
use nvcoll_engine::ranks::node::Node;

use crate::calls::Seconds;
use crate::endpoint::Endpoint;
use crate::error::{listed, of_member};
use crate::gil::handoff::InTurn;
use crate::group::Group;
use crate::integers::integer;

/// One rank's door to its peers: what `Node.run` passes to the program of a rank, for as long as that runs, and what
/// `split` makes of it. One thread at a time may use a communicator; several threads of a rank may use one each.
#[pyclass(name = "Communicator", module = "nvcoll", frozen)]
pub(crate) struct Communicator {
    pub(crate) endpoint: Arc<Endpoint>,
    member: Arc<Member>,
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

    /// Returns when every rank has called it.
    #[pyo3(signature = (*, timeout=None))]
    fn barrier(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<()> {
        self.endpoint.barrier(py, timeout)
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
        timeout: Option<Seconds>,
    ) -> PyResult<Option<Self>> {
        self.endpoint.group.refuse(py, "split")?;
        let color = color.map(|color| integer("`color`", color, 0..=i32::MAX)).transpose()?;
        let key = key.map_or(Ok(0), |key| integer("`key`", key, i32::MIN..=i32::MAX))?;
        let deadline = self.endpoint.deadline(timeout);
        let group = self.member.split(color.map(i32::unsigned_abs), key, deadline, &InTurn(py));
        let member = group.map_err(|error| of_member(py, &self.member, &error))?;
        Ok(member.map(|member| Self::new(self.endpoint.node().clone(), self.endpoint.timeout, member)))
    }

    /// Groups calls: those that are made in a `with` block of it are launched as one when the block ends; see `Node.group`.
    ///
    /// Every rank must make the same calls in it, in the same order. If the block raises, none of this rank's calls is made: its
    /// peers, which wait for them, get `Mismatch` when it makes another call or its program returns, `Aborted` when that raises.
    ///
    /// Args:
    ///     timeout: seconds that each part of the group may take: calls by one algorithm are one part. Default: that of
    ///         `Node.run`.
    ///
    /// Raises:
    ///     Mismatch: at the end of the block; the message names the call in the group.
    ///     InvalidArgument, Busy: as in `Node.group`.
    #[pyo3(signature = (*, timeout=None))]
    fn group(slf: Bound<'_, Self>, timeout: Option<Seconds>) -> Group {
        let endpoint = slf.get().endpoint.clone();
        Group::new(slf.into_any().unbind(), endpoint, timeout)
    }

    /// Ends every call of this communicator, now and later, on every rank: they raise `Aborted`, which names this rank.
    ///
    /// Any thread may call it, also while another is in a call. Other communicators of the same ranks stay usable: those
    /// that were split off this one, and the one that this was split off.
    ///
    /// Raises:
    ///     Closed: the program of this rank has ended.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.member.abort().map_err(|error| of_member(py, &self.member, &error))
    }

    fn __repr__(&self) -> String {
        let of_run = self.member.is_of_group().then(|| format!(", {} of the run", listed(self.member.ranks())));
        let (rank, world_size) = (self.rank(), self.world_size());
        format!("<nvcoll.Communicator rank {rank} of {world_size}{}>", of_run.unwrap_or_default())
    }

    /// Shows the garbage collector the arrays of a group that is open.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.endpoint.group.traverse(&visit)
    }
}

impl Communicator {
    pub(crate) fn new(node: Arc<Node>, timeout: Option<Seconds>, member: Arc<Member>) -> Self {
        Self { endpoint: Endpoint::of_rank(node, member.clone(), timeout), member }
    }

    /// Refuses to end its rank's program while a group is open; see [`crate::group::OpenGroup::check_left`].
    pub(crate) fn check_left(&self, py: Python<'_>) -> PyResult<()> {
        self.endpoint.group.check_left(py)
    }

    pub(crate) fn rank_of_run(&self) -> u32 {
        self.member.ranks()[self.rank() as usize]
    }
}

//! `Communicator`: the calls that one rank, a thread, makes for itself.

mod all_to_all;
mod collectives;

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use nvcoll_core::collective::BARRIER;
use nvcoll_core::verify::Verified;
use nvcoll_engine::auto::work_split::WorkSplit;
use nvcoll_engine::call::Call;
use nvcoll_engine::program::batch::Batch;
use nvcoll_engine::program::tally::Tally;
use nvcoll_engine::ranks::member::Member;
use nvcoll_engine::{Buffers, Deadline, Error, OriginalArray};

use crate::arrays::Caller;
use crate::calls::{deadline, Seconds, SharedProgram};
use crate::error::{of_engine, of_group};
use crate::gil::WithoutGil;
use crate::group::{Group, Grouped, Home, OpenGroup};
use crate::request::{Checked, Request};
use crate::turn::{in_turn, InTurn};
use crate::whole::whole;

/// One rank's door to its peers: what `Node.run` passes to the program of a rank, for as long as that runs, and what
/// `split` makes of it. One thread at a time may use a communicator; several threads of a rank may use one each.
#[pyclass(name = "Communicator", module = "nvcoll", frozen)]
pub(crate) struct Communicator {
    node: Arc<nvcoll_engine::ranks::node::Node>,
    timeout: Option<Seconds>,
    member: Arc<Member>,
    group: OpenGroup,
    tallies: Mutex<Vec<(SharedProgram, Arc<Tally>)>>,
}

/// So many tallies a communicator of a group remembers. Chosen: more than a training step has calls in it.
const REMEMBERED: usize = 16;

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
        self.group.refuse(py, "barrier")?;
        let deadline = deadline(timeout.or(self.timeout));
        let program = self.program(py, &Call::without_data(&BARRIER), None, deadline)?;
        let nothing = std::ptr::null_mut();
        let buffers = Buffers::new(nothing, nothing, 1.0);
        self.execute(py, &program, buffers, &[], deadline)?;
        self.count(&program);
        Ok(())
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
        self.group.refuse(py, "split")?;
        let color = color.map(|color| whole("`color`", color, 0..=i32::MAX)).transpose()?;
        let key = key.map_or(Ok(0), |key| whole("`key`", key, i32::MIN..=i32::MAX))?;
        let deadline = deadline(timeout.or(self.timeout));
        let group = self.member.split(color.map(i32::unsigned_abs), key, deadline, &InTurn(py));
        let member = group.map_err(|error| self.error(py, &error))?;
        Ok(member.map(|member| Self::new(self.node.clone(), self.timeout, member)))
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
        let timeout = timeout.or(slf.get().timeout);
        Group::new(Box::new(slf.clone().unbind()), timeout)
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

    /// Shows the garbage collector the arrays of a group that is open.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.group.traverse(&visit)
    }
}

impl Communicator {
    pub(crate) fn new(
        node: Arc<nvcoll_engine::ranks::node::Node>,
        timeout: Option<Seconds>,
        member: Arc<Member>,
    ) -> Self {
        Self { node, timeout, member, group: OpenGroup::default(), tallies: Mutex::default() }
    }

    /// Refuses to end its rank's program while a group is open; see [`OpenGroup::check_left`].
    pub(crate) fn check_left(&self, py: Python<'_>) -> PyResult<()> {
        self.group.check_left(py)
    }

    pub(crate) fn rank_of_run(&self) -> u32 {
        self.member.ranks()[self.rank() as usize]
    }

    /// Returns the exception; it says which ranks are meant if the communicator has numbers of its own.
    fn error(&self, py: Python<'_>, error: &Error) -> PyErr {
        match self.member.is_of_group() {
            true => of_group(py, error, &listed(self.member.ranks())),
            false => of_engine(py, error),
        }
    }

    fn program(
        &self,
        py: Python<'_>,
        call: &Call,
        proof: Option<&Verified>,
        deadline: Deadline,
    ) -> PyResult<SharedProgram> {
        let (split, ranks) = (WorkSplit::ByRank, self.world_size());
        let program = self.node.program_until(call, split, ranks, proof, &WithoutGil(py), deadline);
        program.map_err(|error| self.error(py, &error))
    }

    fn call<'py>(
        &self,
        py: Python<'py>,
        request: Request<'_, 'py>,
        timeout: Option<Seconds>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if self.group.is_open() {
            return self.keep(py, request, timeout);
        }
        self.call_until(py, request, deadline(timeout.or(self.timeout)))
    }

    /// Keeps a call for the end of the group.
    fn keep<'py>(
        &self,
        py: Python<'py>,
        request: Request<'_, 'py>,
        timeout: Option<Seconds>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let never = Deadline::after(None);
        let Checked { operands, reduction, call, proof, result } =
            Request { is_deferred: true, ..request }.check(Caller::Rank(self.rank()), self.world_size(), never)?;
        let program = self.program(py, &call, proof.as_ref(), never)?;
        let buffers = operands.buffers(|at| reduction.scalar(at));
        self.group.add(py, Grouped { operands, program, buffers }, timeout)?;
        Ok(result)
    }

    fn call_until<'py>(
        &self,
        py: Python<'py>,
        request: Request<'_, 'py>,
        deadline: Deadline,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Checked { mut operands, reduction, call, proof, result } =
            request.check(Caller::Rank(self.rank()), self.world_size(), deadline)?;
        let program = self.program(py, &call, proof.as_ref(), deadline)?;
        operands.gather(py);
        let (buffers, originals) = (operands.buffers(|at| reduction.scalar(at))[0], operands.originals());
        self.execute(py, &program, buffers, &originals, deadline)?;
        self.count(&program);
        operands.write_back(py);
        Ok(result)
    }

    /// Counts a call that succeeded, on the first rank.
    fn count(&self, program: &SharedProgram) {
        if self.rank() != 0 {
            return;
        }
        if !self.member.is_of_group() {
            return program.count();
        }
        let mut known = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, tally)) = known.iter().find(|(one, _)| Arc::ptr_eq(one, program)) {
            return tally.count();
        }
        let tally = self.node.programs().tallies().among(program, self.member.ranks());
        tally.count();
        known.truncate(REMEMBERED - 1);
        known.insert(0, (program.clone(), tally));
    }

    fn execute(
        &self,
        py: Python<'_>,
        program: &SharedProgram,
        buffers: Buffers,
        originals: &[OriginalArray],
        deadline: Deadline,
    ) -> PyResult<()> {
        let outcome = in_turn(py, || {
            // SAFETY: `Operands::new` checked count and dtype of the arrays, and `call_until` holds the operands until this
            // returns; `all_to_all` holds the rows of counts, and a barrier has no arrays. The engine compares the
            // footprints of ranks when they meet, so that no rank writes what another one passed.
            unsafe { self.member.run_on_copies(program, buffers, originals, deadline) }
        });
        outcome.map_err(|error| self.error(py, &error))
    }
}

impl Home for Py<Communicator> {
    fn open_group(&self) -> &OpenGroup {
        &self.get().group
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(self)
    }

    fn run_batch(&self, py: Python<'_>, batch: &mut Batch, deadline: Deadline) -> PyResult<()> {
        let comm = self.get();
        // SAFETY: `Operands::new` checked the arrays of each call, `Operands::check_apart_from_each_other` those of different
        // calls, and the group's `Launch` holds the operands until the run is over. The engine compares the footprints of
        // ranks when they meet, so that no rank writes what another one passed.
        let outcome = in_turn(py, || unsafe { comm.member.run_batch(batch, deadline) });
        outcome.map_err(|error| comm.error(py, &error))?;
        if comm.rank() == 0 {
            batch.count(comm.node.programs().tallies(), comm.member.ranks());
        }
        Ok(())
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

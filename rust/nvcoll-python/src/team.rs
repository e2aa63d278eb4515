//! `Team` and `Communicator`: ranks that are threads and make their own calls.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use nvcoll_core::collective::{ALL_REDUCE, BARRIER, SPLIT};
use nvcoll_core::counts::Counts;
use nvcoll_core::verify::Verified;
use nvcoll_engine::call::Call;
use nvcoll_engine::node::Occupied;
use nvcoll_engine::sharing::Sharing;
use nvcoll_engine::team::Member;
use nvcoll_engine::{Buffers, Error};

use crate::arrays::Operands;
use crate::calls::{deadline, Choice, Reduction, SharedProgram};
use crate::error::{of_engine, of_group};
use crate::gil::{Detached, WithoutGil};
use crate::schedule::path_named;
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
        Ok(Communicator { node: self.node.clone(), timeout, member: self.team.member(rank) })
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
        let mut operands = Operands::of_rank(ALL_REDUCE.name, x, out, self.rank())?;
        let (aliasing, dtype, count) = (operands.aliasing(), operands.dtype(), operands.count());
        let path = path_named(py, path)?;
        let reduction = Reduction::of_option(op, 1)?;
        reduction.check(py, dtype)?;
        let choice = Choice::of_option(algorithm, self.world_size(), path, aliasing)?;
        let call = choice.call(&ALL_REDUCE, dtype, reduction.op, 0, Counts::Even(count), path, aliasing);
        let program = self.program(py, &call, choice.proof.as_ref())?;
        operands.gather(py);
        self.execute(py, &program, operands.buffers(|at| reduction.scalar(at))[0], timeout)?;
        operands.write_back(py);
        Ok(out.unwrap_or(x).clone())
    }

    /// Returns when every rank has called it.
    #[pyo3(signature = (*, timeout=None))]
    fn barrier(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let program = self.program(py, &Call::without_data(&BARRIER), None)?;
        let nothing = std::ptr::null_mut();
        let buffers = Buffers::new(nothing, nothing, 1.0);
        self.execute(py, &program, buffers, timeout)
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
        let color = color.map(|color| whole("`color`", color, 0..=i32::MAX)).transpose()?;
        let key = key.map_or(Ok(0), |key| whole("`key`", key, i32::MIN..=i32::MAX))?;
        let deadline = deadline(py, timeout.or(self.timeout))?;
        let program = self.program(py, &Call::without_data(&SPLIT), None)?;
        let group = py.detach(|| self.member.split(&program, color.map(i32::unsigned_abs), key, deadline));
        let member = group.map_err(|error| self.error(py, &error))?;
        Ok(member.map(|member| Self { node: self.node.clone(), timeout: self.timeout, member }))
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

    fn execute(&self, py: Python<'_>, program: &SharedProgram, buffers: Buffers, timeout: Option<f64>) -> PyResult<()> {
        let deadline = deadline(py, timeout.or(self.timeout))?;
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

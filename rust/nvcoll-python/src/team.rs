//! `Team` and `Communicator`: ranks that are threads and make their own calls.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use nvcoll_core::collective::ALL_REDUCE;
use nvcoll_core::counts::Counts;
use nvcoll_core::verify::Verified;
use nvcoll_engine::call::Call;
use nvcoll_engine::node::Occupied;
use nvcoll_engine::sharing::Sharing;
use nvcoll_engine::team::Member;
use nvcoll_engine::{Buffers, Error};

use crate::arrays::Operands;
use crate::calls::{deadline, Choice, Reduction, SharedProgram};
use crate::error::of_engine;
use crate::gil::{Detached, WithoutGil};
use crate::schedule::path_named;

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
        let member = Mutex::new(Some(self.team.member(rank)));
        Ok(Communicator { node: self.node.clone(), rank, timeout, member })
    }

    /// Ends a communicator whose program has returned: peers that make one more call are told so.
    fn retire(&self, py: Python<'_>, comm: &Communicator) -> PyResult<()> {
        if let Ok(mut member) = comm.member.try_lock() {
            member.take().into_iter().for_each(Member::depart);
            return Ok(());
        }
        self.fail(py, comm);
        let message = "the program returned while its communicator was in a call of another thread: join the thread";
        Err(of_engine(py, &Error::Busy(message)))
    }

    /// Ends a communicator whose program failed, and with it every call of the team.
    fn fail(&self, py: Python<'_>, comm: &Communicator) {
        self.team.fail(comm.rank);
        // A call of another thread ends because of the abort.
        py.detach(|| comm.lock().take());
    }

    /// Ends every call of the team because the user interrupted the program.
    fn interrupt(&self) {
        self.team.interrupt();
    }

    /// Gives the node back.
    fn end(&self) {
        self.occupied.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// One rank's door to its peers: what `Node.run` passes to the program of a rank, for as long as that runs.
#[pyclass(name = "Communicator", module = "nvcoll", frozen)]
pub(crate) struct Communicator {
    node: Arc<nvcoll_engine::node::Node>,
    rank: u32,
    timeout: Option<f64>,
    /// None when the program of this rank has ended.
    member: Mutex<Option<Member>>,
}

#[pymethods]
impl Communicator {
    /// This rank, from 0.
    #[getter]
    fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of ranks.
    #[getter]
    fn world_size(&self) -> u32 {
        self.node.world_size()
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
    ///     Aborted: the program of another rank failed.
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
        let mut operands = Operands::of_rank(ALL_REDUCE.name, x, out, self.rank)?;
        let (aliasing, dtype, count) = (operands.aliasing(), operands.dtype(), operands.count());
        let path = path_named(py, path)?;
        let reduction = Reduction::of_option(op, 1)?;
        reduction.check(py, dtype)?;
        let choice = Choice::of_option(algorithm, self.node.world_size(), path, aliasing)?;
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
        let program = self.program(py, &Call::barrier(), None)?;
        let nothing = std::ptr::null_mut();
        let buffers = Buffers::new(nothing, nothing, 1.0);
        self.execute(py, &program, buffers, timeout)
    }

    fn __repr__(&self) -> String {
        format!("<nvcoll.Communicator rank {} of {}>", self.rank, self.node.world_size())
    }
}

impl Communicator {
    fn lock(&self) -> MutexGuard<'_, Option<Member>> {
        self.member.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn program(&self, py: Python<'_>, call: &Call, proof: Option<&Verified>) -> PyResult<SharedProgram> {
        let program = self.node.program_shared(call, Sharing::ByRank, proof, &WithoutGil(py));
        program.map_err(|error| of_engine(py, &error))
    }

    fn execute(&self, py: Python<'_>, program: &SharedProgram, buffers: Buffers, timeout: Option<f64>) -> PyResult<()> {
        let deadline = deadline(py, timeout.or(self.timeout))?;
        let mut buffers = Detached(buffers);
        let outcome = py.detach(|| {
            let Ok(mut member) = self.member.try_lock() else {
                return Err(Error::Busy("the communicator is in a call of another thread: one thread per rank"));
            };
            let Some(member) = member.as_mut() else {
                return Err(Error::Closed("the program of this rank has ended, and its communicator with it"));
            };
            // SAFETY: the arrays were checked for count and dtype; their owners are held until this call returns; that no
            // rank writes what another one passed is checked when they meet.
            unsafe { member.run(program, *buffers.get(), deadline) }
        });
        outcome.map_err(|error| of_engine(py, &error))
    }
}

//! `Team` and `Communicator`: ranks that are threads and make their own calls.

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;

use nvcoll_core::collective::{ALL_REDUCE, BARRIER};
use nvcoll_core::dtype::DType;
use nvcoll_core::op::Op;
use nvcoll_core::schedule::{Aliasing, Path};
use nvcoll_engine::call::Call;
use nvcoll_engine::team::Member;
use nvcoll_engine::{Buffers, Deadline};

use crate::arrays::{check, Array};
use crate::calls::{buffers, path_named, Choice, Detached, Reduction, SharedProgram};
use crate::error::of_engine;

/// The ranks of one `Node.run`.
#[pyclass(name = "Team", module = "nvcoll._nvcoll", frozen)]
pub(crate) struct Team {
    node: Arc<nvcoll_engine::node::Node>,
    team: nvcoll_engine::team::Team,
}

impl Team {
    pub(crate) fn new(node: Arc<nvcoll_engine::node::Node>) -> Self {
        let team = nvcoll_engine::team::Team::new(node.world_size());
        Self { node, team }
    }
}

#[pymethods]
impl Team {
    /// The communicator of a rank; each rank has one.
    fn communicator(&self, rank: u32, timeout: Option<f64>) -> Communicator {
        let member = Mutex::new(self.team.member(rank));
        Communicator { node: self.node.clone(), rank, timeout, member }
    }

    /// Ends every call of the team because code of `rank` failed.
    fn fail(&self, rank: u32) {
        self.team.fail(rank);
    }

    /// Ends every call of the team because the user interrupted the program.
    fn interrupt(&self) {
        self.team.interrupt();
    }
}

/// One rank's door to its peers. See `nvcoll.Communicator`.
#[pyclass(name = "Communicator", module = "nvcoll", frozen)]
pub(crate) struct Communicator {
    node: Arc<nvcoll_engine::node::Node>,
    rank: u32,
    timeout: Option<f64>,
    member: Mutex<Member>,
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
        let inputs = [Array::of(x, "`x`")?];
        let outputs: Vec<Array<'py>> = match out {
            Some(out) if !out.is(x) => vec![Array::of(out, "`out`")?],
            _ => Vec::new(),
        };
        check(py, &inputs, &outputs, ALL_REDUCE.name)?;
        let aliasing = if outputs.is_empty() { Aliasing::InPlace } else { Aliasing::Disjoint };
        let path = path_named(py, path)?;
        let reduction = Reduction::of_option(op, 1)?;
        reduction.check(py, inputs[0].dtype)?;
        let choice = Choice::of_option(algorithm, self.node.world_size(), path, aliasing)?;
        let call = choice.call(&ALL_REDUCE, inputs[0].dtype, reduction.op, inputs[0].count, path, aliasing);
        let program = self.node.program_of_rank(&call, choice.proof.as_ref()).map_err(|e| of_engine(py, &e))?;
        self.execute(py, &program, buffers(&inputs, &outputs, &reduction)[0], timeout)?;
        let written = outputs.first().unwrap_or(&inputs[0]);
        written.write_back()?;
        Ok(out.unwrap_or(x).clone())
    }

    /// Returns when every rank has called it.
    #[pyo3(signature = (*, timeout=None))]
    fn barrier(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let call = Call {
            collective: &BARRIER,
            algorithm: "auto".into(),
            dtype: DType::F32,
            op: Op::Sum,
            count: 0,
            path: Path::Mapped,
            aliasing: Aliasing::Disjoint,
        };
        let program = self.node.program_of_rank(&call, None).map_err(|e| of_engine(py, &e))?;
        let nothing = std::ptr::null_mut();
        let buffers = Buffers { input: nothing, output: nothing, scratch: nothing, scalar: 1.0 };
        self.execute(py, &program, buffers, timeout)
    }

    fn __repr__(&self) -> String {
        format!("<nvcoll.Communicator rank {} of {}>", self.rank, self.node.world_size())
    }
}

impl Communicator {
    fn execute(&self, py: Python<'_>, program: &SharedProgram, buffers: Buffers, timeout: Option<f64>) -> PyResult<()> {
        let mut buffers = Detached(buffers);
        let outcome = py.detach(|| {
            let Ok(mut member) = self.member.try_lock() else {
                return Err(nvcoll_engine::Error::Busy(
                    "the communicator is in a call of another thread: one thread per rank",
                ));
            };
            // SAFETY: the arrays were checked for count and dtype; their holders live until this call returns; ranks that
            // pass overlapping memory are refused by nobody and get undefined values, as in every MPI.
            unsafe { member.run(program, *buffers.get(), Deadline::after(timeout.or(self.timeout))) }
        });
        outcome.map_err(|error| of_engine(py, &error))
    }
}

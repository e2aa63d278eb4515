//! `Job`: this process is one rank of a job of processes. `nvcoll.init` makes it.

use std::sync::Arc;

use pyo3::prelude::*;

use nvcoll_engine::join::JobSettings;
use nvcoll_engine::processes::ProcessRank;
use nvcoll_engine::ranks::node::Node;

use crate::calls::call_counts::CallCounts;
use crate::calls::choices::{deadline, Seconds};
use crate::calls::communicator::Communicator;
use crate::engine::error::of_engine;
use crate::gil::interruptible;

/// One rank of a job of processes. Not public.
#[pyclass(name = "Job", module = "nvcoll._nvcoll", frozen)]
pub(crate) struct Job {
    node: Arc<Node>,
    rank: ProcessRank,
}

#[pymethods]
impl Job {
    /// Joins a job; returns when all of its ranks have joined. `_timeout`, the default of calls, is checked before.
    #[new]
    #[pyo3(signature = (rank, world_size, job, token: "bytes | None", join_timeout, _timeout))]
    fn join(
        py: Python<'_>,
        rank: u32,
        world_size: u32,
        job: String,
        token: Option<[u8; 32]>,
        join_timeout: Option<Seconds>,
        _timeout: Option<Seconds>,
    ) -> PyResult<Self> {
        let settings = JobSettings { rank, world_size, job, token, deadline: deadline(join_timeout) };
        let joined = py.detach(|| interruptible(|is_interrupted| ProcessRank::join(&settings, is_interrupted)))?;
        let rank = joined.map_err(|error| of_engine(py, &error))?;
        let node = Node::new(world_size, Some(rank.workers())).map_err(|error| of_engine(py, &error))?;
        Ok(Self { node: Arc::new(node), rank })
    }

    /// Returns the communicator of all ranks. `timeout` is the default of its calls.
    #[pyo3(signature = (timeout))]
    fn communicator(&self, timeout: Option<Seconds>) -> Communicator {
        Communicator::new(self.node.clone(), timeout, self.rank.member().clone())
    }

    /// The counts of calls by kind, of the communicators whose first rank this is.
    #[getter]
    fn call_counts(&self) -> CallCounts {
        CallCounts(self.node.programs().call_counts().clone())
    }

    /// Ends the communicators of this rank, after its calls in flight. Peers that make one more call get an error.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        self.finish_issued(py)?;
        py.detach(|| self.rank.leave()).map_err(|error| of_engine(py, &error))
    }

    /// Ends the communicators of this rank when its process ends. The exit status says whether it returned or failed.
    fn leave_at_exit(&self, py: Python<'_>) -> PyResult<()> {
        self.finish_issued(py)?;
        py.detach(|| self.rank.leave_at_exit()).map_err(|error| of_engine(py, &error))
    }

    /// Ends every call of every communicator that contains this rank, because its program failed.
    fn fail(&self, py: Python<'_>) {
        py.detach(|| self.rank.fail());
    }
}

impl Job {
    /// Makes the calls in flight.
    fn finish_issued(&self, py: Python<'_>) -> PyResult<()> {
        let finished = py.detach(|| interruptible(|is_interrupted| self.rank.finish_issued(is_interrupted)))?;
        finished.map_err(|error| of_engine(py, &error))
    }
}

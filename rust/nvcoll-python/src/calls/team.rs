//! `Team`: the ranks of one `Node.run`. Each is a thread and calls for itself.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;

use nvcoll_engine::ranks::node::OccupiedNode;

use crate::calls::choices::Seconds;
use crate::calls::communicator::Communicator;
use crate::engine::error::of_engine;
use crate::integers::integer;

/// The ranks of one `Node.run`. Not public. The node itself can make no call while a team exists.
#[pyclass(name = "Team", module = "nvcoll._nvcoll", frozen)]
pub(crate) struct Team {
    node: Arc<nvcoll_engine::ranks::node::Node>,
    team: nvcoll_engine::ranks::team::Team,
    occupied: Mutex<Option<OccupiedNode>>,
}

impl Team {
    pub(crate) fn new(py: Python<'_>, node: Arc<nvcoll_engine::ranks::node::Node>) -> PyResult<Self> {
        let occupied = node.clone().occupy().map_err(|e| of_engine(py, &e))?;
        let team = nvcoll_engine::ranks::team::Team::new(node.world_size());
        Ok(Self { node, team, occupied: Mutex::new(Some(occupied)) })
    }
}

#[pymethods]
impl Team {
    /// Returns the communicator of a rank.
    #[pyo3(signature = (rank: "int", timeout))]
    fn communicator(&self, rank: &Bound<'_, PyAny>, timeout: Option<Seconds>) -> PyResult<Communicator> {
        let py = rank.py();
        let rank = integer("rank", rank, 0..=self.node.world_size() - 1)?;
        let member = self.team.member(rank).map_err(|error| of_engine(py, &error))?;
        Ok(Communicator::new(self.node.clone(), timeout, member))
    }

    /// Ends the communicators of a rank whose program has returned. Peers that make one more call get an error.
    fn retire(&self, py: Python<'_>, comm: &Communicator) -> PyResult<()> {
        comm.endpoint.group.check_left(py)?;
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

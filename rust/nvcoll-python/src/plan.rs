//! `Plan`: a call that is prepared once and runs again and again.

use std::sync::{Arc, Mutex};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use nvcoll_engine::{Buffers, Deadline};

use crate::arrays::Operands;
use crate::calls::{deadline, Seconds, SharedProgram};
use crate::error::of_engine;
use crate::gil::watched;

/// What a call needs, checked.
pub(crate) struct Prepared {
    pub(crate) program: SharedProgram,
    pub(crate) buffers: Vec<Buffers>,
    /// None in a barrier.
    pub(crate) operands: Option<Operands>,
}

impl Prepared {
    /// Runs the call; strided arrays are packed before and written back after it.
    pub(crate) fn run(
        &mut self,
        py: Python<'_>,
        engine: &nvcoll_engine::ranks::node::Node,
        deadline: Deadline,
    ) -> PyResult<()> {
        self.operands.iter_mut().for_each(|operands| operands.gather(py));
        run(py, engine, &self.program, &mut self.buffers, deadline)?;
        self.operands.iter_mut().for_each(|operands| operands.write_back(py));
        Ok(())
    }
}

/// Runs a program without the GIL, with an eye on Ctrl-C.
fn run(
    py: Python<'_>,
    engine: &nvcoll_engine::ranks::node::Node,
    program: &SharedProgram,
    buffers: &mut [Buffers],
    deadline: Deadline,
) -> PyResult<()> {
    // SAFETY: `Operands::new` checked count, dtype and overlap of the arrays, and `Prepared` holds the operands with their
    // owners beside these buffers until the run is over. A barrier has no arrays.
    watched(py, |is_interrupted| unsafe { engine.run(program, buffers, deadline, is_interrupted) })
}

/// A call with everything resolved: proof, kernels, addresses. Made by `Node.plan`.
#[pyclass(name = "Plan", module = "nvcoll", frozen)]
pub(crate) struct Plan {
    pub(crate) node: Arc<nvcoll_engine::ranks::node::Node>,
    pub(crate) program: SharedProgram,
    pub(crate) prepared: Mutex<Prepared>,
    pub(crate) result: Py<PyAny>,
}

#[pymethods]
impl Plan {
    /// Runs the call on the arrays that the plan was made for, which are read anew.
    ///
    /// A plan keeps the memory of its arrays. Tensors of torch and other libraries that lend their memory through DLPack must
    /// not be resized while it lives: it cannot see that, and their library does not refuse to.
    ///
    /// Args:
    ///     timeout: seconds that the call may take.
    ///
    /// Raises:
    ///     InvalidArgument: a numpy array has moved, changed its shape or become read-only since the plan was made.
    ///     Busy: the plan runs in another thread.
    ///     Timeout, KeyboardInterrupt: as in `Node.all_reduce`.
    #[pyo3(signature = (*, timeout=None))]
    fn run(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<()> {
        let deadline = deadline(timeout);
        let Ok(mut prepared) = self.prepared.try_lock() else {
            let message = match self.node.is_of_this_process() {
                true => "the plan is running in another thread: wait for it",
                false => {
                    "the plan is running in another thread, or was when this process was forked: make one in the child"
                }
            };
            return Err(of_engine(py, &nvcoll_engine::Error::Busy(message)));
        };
        prepared.operands.as_ref().map_or(Ok(()), |operands| operands.check_bound(py, "plan"))?;
        prepared.run(py, &self.node, deadline)
    }

    /// What a run writes: what the method of the collective would return. A new array holds zeros before the first run.
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

    /// Shows the garbage collector what the plan holds, so that an array can have its plan as an attribute. It has nothing
    /// to clear: every cycle passes through an object of its user's. Runs begin and end with the GIL, so that all passes of
    /// one collection see the same; arrays that a run is using stay.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.result)?;
        let Ok(prepared) = self.prepared.try_lock() else { return Ok(()) };
        for object in prepared.operands.iter().flat_map(Operands::objects) {
            visit.call(object)?;
        }
        Ok(())
    }
}

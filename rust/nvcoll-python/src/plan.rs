//! `Plan`: a call that is prepared once and runs again and again.

use std::sync::{Arc, Mutex};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use nvcoll_engine::Error;

use crate::arrays::Kept;
use crate::calls::{deadline, Seconds, SharedProgram};
use crate::endpoint::Endpoint;
use crate::error::of_engine;

/// A call that runs again and again on the same arrays. Made by `Node.plan`.
#[pyclass(name = "Plan", module = "nvcoll", frozen)]
pub(crate) struct Plan {
    endpoint: Arc<Endpoint>,
    program: SharedProgram,
    call: Mutex<Kept>,
    result: Py<PyAny>,
}

impl Plan {
    /// Makes a plan of a call by `endpoint` that returns `result`.
    pub(crate) fn new(endpoint: Arc<Endpoint>, call: Kept, result: Py<PyAny>) -> Self {
        Self { endpoint, program: call.program().clone(), call: Mutex::new(call), result }
    }
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
        let Ok(mut call) = self.call.try_lock() else {
            let message = match self.endpoint.node().is_of_this_process() {
                true => "the plan is running in another thread: wait for it",
                false => {
                    "the plan is running in another thread, or was when this process was forked: make one in the child"
                }
            };
            return Err(of_engine(py, &Error::Busy(message)));
        };
        call.run(py, &self.endpoint, deadline)
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
        let Ok(call) = self.call.try_lock() else { return Ok(()) };
        let mut objects = call.objects();
        objects.try_for_each(|object| visit.call(object))
    }
}

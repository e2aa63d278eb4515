//! `Plan`: a call that is prepared once and runs again and again.

use std::sync::{Arc, Mutex};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use nvcoll_engine::Error;

use crate::arrays::{BoundCall, SharedProgram};
use crate::calls::choices::{deadline, Seconds};
use crate::calls::endpoint::Endpoint;
use crate::engine::error::of_engine;

/// A call that runs again and again on the same arrays. Made by `Node.plan`.
///
/// Example:
///     >>> import numpy as np, nvcoll
///     >>> arrays = np.ones((2, 3))
///     >>> plan = nvcoll.Node(2).plan("all_reduce", arrays)
///     >>> for _ in range(3):
///     ...     _ = plan.run()
///     >>> arrays[0].tolist()
///     [8.0, 8.0, 8.0]
#[pyclass(name = "Plan", module = "nvcoll", frozen)]
pub(crate) struct Plan {
    endpoint: Arc<Endpoint>,
    program: SharedProgram,
    call: Mutex<BoundCall>,
    result: Py<PyAny>,
}

impl Plan {
    /// Makes a plan of a call by `endpoint` that returns `result`.
    pub(crate) fn new(endpoint: Arc<Endpoint>, call: BoundCall, result: Py<PyAny>) -> Self {
        let program = call.programs().expect("a plan is of one call").own.clone();
        Self { endpoint, program, call: Mutex::new(call), result }
    }
}

#[pymethods]
impl Plan {
    /// Runs the call on the arrays of the plan with their present elements.
    ///
    /// Do not resize a torch tensor, or another tensor with DLPack, while its plan lives: its library does not refuse, and the
    /// plan cannot see it.
    ///
    /// Args:
    ///     timeout: seconds that the call may take. Default: no limit.
    ///
    /// Raises:
    ///     InvalidArgument: a numpy array has moved, changed its shape or become read-only since the plan was made.
    ///     Busy: the plan, or its node, runs in another thread.
    ///     Timeout, KeyboardInterrupt: the call ended early. Strided arrays are unchanged; contiguous outputs are undefined.
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
        self.endpoint.run(py, &mut call, deadline)
    }

    /// The result of a run, as the method of the collective returns it. New arrays hold zeros before the first run.
    #[getter]
    fn result<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.result.bind(py).clone()
    }

    /// The number of tiles, each a pass over a part of the data.
    #[getter]
    fn tiles(&self) -> u32 {
        self.program.tiles()
    }

    /// The name of the algorithm, which `auto` selected if the caller named none.
    #[getter]
    fn algorithm(&self) -> &str {
        self.program.algorithm()
    }

    fn __repr__(&self) -> String {
        format!("<nvcoll.Plan {}>", self.program.call())
    }

    /// Visits the objects of the plan for the garbage collector, so that an array can have its plan as an attribute. There is no
    /// `__clear__`, because every cycle passes through an object of the user. Runs begin and end with the GIL, so that all passes
    /// of one collection see the same objects; arrays in a run stay.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.result)?;
        self.call.try_lock().map_or(Ok(()), |call| call.traverse(&visit))
    }
}

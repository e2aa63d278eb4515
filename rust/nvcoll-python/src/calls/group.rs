//! Groups: calls that launch together at the end of a `with` block.
//!
//! ```text
//! with node.group() as group:      opens: calls of this thread are checked and kept, and return their results
//!     node.all_reduce(a)
//!     node.all_reduce(b)
//!                                  closes: all calls run, as one batch of the engine
//! group.run()                      the same calls again, on the same arrays
//! ```
//!
//! The calls of a group have no order. An array that one call writes shares no byte with the arrays of another.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;

use nvcoll_core::words::counted;
use nvcoll_engine::ranks::member::Member;
use nvcoll_engine::{Error, WaitLimit};

use crate::arrays::in_flight::{IssueQueue, Outcome};
use crate::arrays::BoundCall;
use crate::calls::choices::{deadline, Seconds};
use crate::calls::endpoint::Endpoint;
use crate::calls::issue::{issue, Issued, IssuedCall};
use crate::calls::work::Work;
use crate::engine::error::of_engine;

/// Calls that launch together. Made by `Node.group` and `Communicator.group`.
///
/// Example:
///     >>> import numpy as np, nvcoll
///     >>> def program(comm):
///     ...     x, y = np.ones(1), np.ones(1)
///     ...     with comm.group():
///     ...         comm.all_reduce(x)
///     ...         comm.all_reduce(y)
///     ...     return float(x[0] + y[0])
///     >>> nvcoll.Node(2).run(program)
///     [4.0, 4.0]
#[pyclass(name = "Group", module = "nvcoll", frozen)]
pub(crate) struct Group {
    /// The node or the communicator, which lives as long as the group.
    owner: Py<PyAny>,
    endpoint: Arc<Endpoint>,
    timeout: Option<Seconds>,
    is_async: bool,
    calls: Mutex<Option<BoundCall>>,
    /// The work of an asynchronous group, once its block has ended.
    work: OnceLock<Py<Work>>,
    /// Whether its block is open.
    is_inside: AtomicBool,
}

impl Group {
    /// Makes a group of calls by `endpoint`, which belongs to the Python object `owner`.
    pub(crate) fn new(owner: Py<PyAny>, endpoint: Arc<Endpoint>, timeout: Option<Seconds>, is_async: bool) -> Self {
        let (timeout, calls, work) = (timeout.or(endpoint.timeout), Mutex::new(None), OnceLock::new());
        Self { owner, endpoint, timeout, is_async, calls, work, is_inside: AtomicBool::new(false) }
    }

    /// Issues the calls, which the group gets back when they are over.
    fn issue(slf: &Bound<'_, Self>, calls: BoundCall) -> PyResult<Py<Work>> {
        let (py, this) = (slf.py(), slf.get());
        if let Some(work) = this.have_made(py, &calls, this.timeout, true) {
            *this.calls() = Some(calls);
            return Ok(work?.cast_into::<Work>()?.unbind());
        }
        calls.check(py, this.endpoint.member().map(IssueQueue::of))?;
        let issued = Issued { call: calls.words(), arrays: calls.arrays(), result: py.None() };
        let call = IssuedGroup { group: slf.clone().unbind(), calls: Some(calls) };
        Py::new(py, issue(py, &this.endpoint, issued, call)?)
    }

    /// Has the owner make the calls of Python code, if the group has some.
    fn have_made<'py>(
        &self,
        py: Python<'py>,
        calls: &BoundCall,
        timeout: Option<Seconds>,
        is_async: bool,
    ) -> Option<PyResult<Bound<'py, PyAny>>> {
        let made: Vec<_> = calls.made().iter().map(|call| call.clone_ref(py)).collect();
        let make = || self.owner.bind(py).call_method1(intern!(py, "_make_group"), (made, timeout, is_async));
        (!calls.made().is_empty()).then(make)
    }

    fn calls(&self) -> MutexGuard<'_, Option<BoundCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Group {
    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().endpoint.group.open(slf.py())?;
        // Relaxed: the GIL orders it before the swap in `__exit__`.
        slf.get().is_inside.store(true, Ordering::Relaxed);
        Ok(slf)
    }

    /// Launches the calls, unless the block raised.
    fn __exit__(
        slf: &Bound<'_, Self>,
        kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let (py, this) = (slf.py(), slf.get());
        // Relaxed: of two threads that leave one sees true; the calls are under a lock.
        if !this.is_inside.swap(false, Ordering::Relaxed) {
            return Err(of_engine(py, &Error::Busy("the group is not open: begin its `with` block first")));
        }
        let calls = this.endpoint.group.close();
        if kind.is_none() {
            let mut calls = calls.unwrap_or_else(BoundCall::group);
            calls.check_apart(py)?;
            if this.is_async {
                _ = this.work.set(Self::issue(slf, calls)?);
            } else {
                *this.calls() = Some(calls);
                this.run(py, None)?;
            }
        }
        Ok(false)
    }

    /// The `Work` of the calls, if `group` got `async_op` and the block has ended; else None.
    #[getter]
    fn work(&self, py: Python<'_>) -> Option<Py<Work>> {
        self.work.get().map(|work| work.clone_ref(py))
    }

    /// Launches the calls of the group again, on the same arrays with their present elements.
    ///
    /// Do not resize a torch tensor, or another tensor with DLPack, while its group lives: its library does not refuse, and the
    /// group cannot see it.
    ///
    /// Args:
    ///     timeout: seconds that the calls may take together. Default: that of `group()`.
    ///
    /// Raises:
    ///     InvalidArgument: a numpy array has moved, changed its shape or become read-only since the group was launched.
    ///     Busy: the group runs in another thread, or its `with` block has not ended.
    ///     Mismatch, Aborted: in a group of a communicator, as in its collectives.
    ///     Timeout, KeyboardInterrupt: the calls ended early. Strided arrays are unchanged; contiguous outputs are undefined.
    #[pyo3(signature = (*, timeout=None))]
    fn run(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<()> {
        let timeout = timeout.or(self.timeout);
        match self.calls.try_lock().as_deref_mut() {
            Ok(Some(calls)) => match self.have_made(py, calls, timeout, false) {
                Some(made) => made.map(drop),
                None => self.endpoint.run(py, calls, deadline(timeout)),
            },
            Ok(None) if self.work.get().is_none() => {
                Err(of_engine(py, &Error::Busy("the group was not launched: end its `with` block first")))
            }
            _ => Err(of_engine(py, &Error::Busy("the group is running in another thread: wait for it"))),
        }
    }

    /// The number of calls; 0 before the block has ended.
    fn __len__(&self) -> usize {
        self.calls.try_lock().ok().and_then(|calls| calls.as_ref().map(BoundCall::len)).unwrap_or(0)
    }

    fn __repr__(&self) -> String {
        format!("<nvcoll.Group of {}>", counted(self.__len__() as u64, "call"))
    }

    /// Visits the objects of the group, for the garbage collector; see `Plan`.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.owner)?;
        self.work.get().map_or(Ok(()), |work| visit.call(work))?;
        let Ok(calls) = self.calls.try_lock() else { return Ok(()) };
        calls.as_ref().map_or(Ok(()), |calls| calls.traverse(&visit))
    }
}

/// The calls of a group in flight.
struct IssuedGroup {
    group: Py<Group>,
    calls: Option<BoundCall>,
}

impl IssuedCall for IssuedGroup {
    async fn run(&mut self, endpoint: &Endpoint, member: &Member) -> Outcome {
        let calls = self.calls.as_mut().expect("they are given back once");
        let made = calls.run_of_rank(member, &mut WaitLimit::of_issued(deadline(self.group.get().timeout))).await;
        if made.is_ok() {
            endpoint.count(calls);
        }
        *self.group.get().calls() = self.calls.take();
        Ok(made.map(|()| None)?)
    }
}

impl Drop for Group {
    /// Ends the block of a group that is deleted in it, without its calls.
    fn drop(&mut self) {
        if *self.is_inside.get_mut() {
            self.endpoint.group.lose();
        }
    }
}

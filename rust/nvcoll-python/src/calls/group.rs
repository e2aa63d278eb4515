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
use std::thread::ThreadId;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use nvcoll_core::words::counted;
use nvcoll_engine::Error;

use crate::arrays::in_flight::LaneOfRank;
use crate::arrays::{Kept, Launch, MessageArray};
use crate::calls::choices::{deadline, Seconds};
use crate::calls::endpoint::Endpoint;
use crate::calls::issue::{issue, Issued};
use crate::calls::work::Work;
use crate::error::{invalid, of_engine};

/// The calls of an endpoint while its group is open.
#[derive(Default)]
pub(crate) struct OpenGroup {
    /// Every call reads it. It is exact on the thread that opens and closes the group; other threads decide under the lock.
    is_open: AtomicBool,
    calls: Mutex<Option<(ThreadId, KeptCalls)>>,
    /// Whether a group was deleted in its block with calls in it.
    has_lost_calls: AtomicBool,
}

/// What a group makes at its end.
#[derive(Default)]
struct KeptCalls {
    collectives: Vec<Kept>,
    messages: Vec<MessageArray>,
}

impl KeptCalls {
    fn is_empty(&self) -> bool {
        self.collectives.is_empty() && self.messages.is_empty()
    }

    fn objects(&self) -> impl Iterator<Item = &Py<PyAny>> {
        let messages = self.messages.iter().filter_map(MessageArray::object);
        self.collectives.iter().flat_map(Kept::objects).chain(messages)
    }
}

impl OpenGroup {
    /// Says whether calls are kept for the end of a block.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        // Relaxed: the thread that opened it sees its own store.
        self.is_open.load(Ordering::Relaxed)
    }

    /// Keeps a call.
    ///
    /// # Errors
    /// `InvalidArgument` if the call has a timeout; `Busy` on another thread than that of the group.
    pub(crate) fn add(&self, py: Python<'_>, call: Kept, timeout: Option<Seconds>) -> PyResult<()> {
        self.keep(py, timeout, |calls| calls.collectives.push(call))
    }

    /// Keeps a send or a receive.
    ///
    /// # Errors
    /// As [`OpenGroup::add`].
    pub(crate) fn add_message(&self, py: Python<'_>, message: MessageArray, timeout: Option<Seconds>) -> PyResult<()> {
        self.keep(py, timeout, |calls| calls.messages.push(message))
    }

    fn keep(&self, py: Python<'_>, timeout: Option<Seconds>, add: impl FnOnce(&mut KeptCalls)) -> PyResult<()> {
        if timeout.is_some() {
            return Err(invalid(py, "`timeout` is given in a group, whose calls run as one: pass it to group()"));
        }
        match &mut *self.lock() {
            Some((thread, calls)) if *thread == std::thread::current().id() => {
                add(calls);
                Ok(())
            }
            _ => Err(of_engine(py, &IN_A_GROUP)),
        }
    }

    /// Refuses a call that cannot be in a group.
    pub(crate) fn refuse(&self, py: Python<'_>, what: &str) -> PyResult<()> {
        match self.is_open() {
            true => Err(invalid(py, format!("{what} cannot be in a group: call it outside"))),
            false => Ok(()),
        }
    }

    /// Refuses `async_op` of a call in a group.
    pub(crate) fn refuse_async(&self, py: Python<'_>) -> PyResult<()> {
        match self.is_open() {
            true => Err(invalid(py, "`async_op` is given in a group, whose calls run as one: pass it to group()")),
            false => Ok(()),
        }
    }

    /// Refuses to end the program of a rank while calls wait for the end of a block.
    ///
    /// # Errors
    /// `Busy`.
    pub(crate) fn check_left(&self, py: Python<'_>) -> PyResult<()> {
        match &*self.lock() {
            Some((_, calls)) if !calls.is_empty() => Err(of_engine(py, &LEFT_IN_A_GROUP)),
            // Relaxed: `check_left` runs on the thread of the rank; a block dropped elsewhere held the GIL.
            _ if self.has_lost_calls.load(Ordering::Relaxed) => Err(of_engine(py, &LEFT_IN_A_GROUP)),
            _ => Ok(()),
        }
    }

    fn open(&self, py: Python<'_>) -> PyResult<()> {
        let mut calls = self.lock();
        if calls.is_some() {
            return Err(of_engine(py, &IN_A_GROUP));
        }
        *calls = Some((std::thread::current().id(), KeptCalls::default()));
        // Relaxed: pairs with the load in `is_open` on this thread; others decide under the lock.
        self.is_open.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn close(&self) -> KeptCalls {
        let calls = self.lock().take();
        // Relaxed: as in `open`.
        self.is_open.store(false, Ordering::Relaxed);
        calls.map(|(_, calls)| calls).unwrap_or_default()
    }

    /// Visits the arrays of the kept calls, for the garbage collector.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(calls) = self.calls.try_lock() else { return Ok(()) };
        let mut waiting = calls.iter().flat_map(|(_, calls)| calls.objects());
        waiting.try_for_each(|object| visit.call(object))
    }

    fn lock(&self) -> MutexGuard<'_, Option<(ThreadId, KeptCalls)>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const IN_A_GROUP: Error = Error::Busy("a group is open: end its `with` block first, on the thread that opened it");

const LEFT_IN_A_GROUP: Error =
    Error::Busy("the program returned while a group was open, whose calls were not made: end its `with` block first");

/// Calls that launch together. Made by `Node.group` and `Communicator.group`.
#[pyclass(name = "Group", module = "nvcoll", frozen)]
pub(crate) struct Group {
    /// The node or the communicator, which lives as long as the group.
    owner: Py<PyAny>,
    endpoint: Arc<Endpoint>,
    timeout: Option<Seconds>,
    is_async: bool,
    launch: Mutex<Option<Launch>>,
    /// The work of an asynchronous group, once its block has ended.
    work: OnceLock<Py<Work>>,
    /// Whether its block is open.
    is_inside: AtomicBool,
}

impl Group {
    /// Makes a group of calls by `endpoint`, which belongs to the Python object `owner`.
    pub(crate) fn new(owner: Py<PyAny>, endpoint: Arc<Endpoint>, timeout: Option<Seconds>, is_async: bool) -> Self {
        let (timeout, launch, work) = (timeout.or(endpoint.timeout), Mutex::new(None), OnceLock::new());
        Self { owner, endpoint, timeout, is_async, launch, work, is_inside: AtomicBool::new(false) }
    }

    /// Issues the calls. The group keeps them, and the thread of its communicator runs them there.
    fn issue(slf: &Bound<'_, Self>) -> PyResult<Py<Work>> {
        let (py, this, timeout) = (slf.py(), slf.get(), slf.get().timeout);
        let (call, arrays) = {
            let launch = this.launch();
            let launch = launch.as_ref().expect("the block has ended");
            launch.check(py, this.endpoint.member().map(LaneOfRank::of))?;
            (format!("a group of {}", counted(launch.len() as u64, "call")), launch.arrays())
        };
        let issued = Issued { call, arrays, result: py.None() };
        let work = issue(py, &this.endpoint, issued, slf.clone().unbind(), move |group, endpoint, member| {
            let mut launch = group.get().launch();
            let launch = launch.as_mut().expect("as above");
            launch.run_of_rank(member, deadline(timeout), &mut || false)?;
            launch.count(endpoint);
            Ok(None)
        })?;
        Py::new(py, work)
    }

    fn launch(&self) -> MutexGuard<'_, Option<Launch>> {
        self.launch.lock().unwrap_or_else(PoisonError::into_inner)
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
            *this.launch() = Some(Launch::new(py, calls.collectives, calls.messages)?);
            match this.is_async {
                true => _ = this.work.set(Self::issue(slf)?),
                false => this.run(py, None)?,
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
        let deadline = deadline(timeout.or(self.timeout));
        match self.launch.try_lock().as_deref_mut() {
            Ok(Some(launch)) => launch.run(py, &self.endpoint, deadline),
            Ok(None) => Err(of_engine(py, &Error::Busy("the group was not launched: end its `with` block first"))),
            Err(_) => Err(of_engine(py, &Error::Busy("the group is running in another thread: wait for it"))),
        }
    }

    /// The number of calls; 0 before the block has ended.
    fn __len__(&self) -> usize {
        self.launch.try_lock().ok().and_then(|launch| launch.as_ref().map(Launch::len)).unwrap_or(0)
    }

    fn __repr__(&self) -> String {
        format!("<nvcoll.Group of {}>", counted(self.__len__() as u64, "call"))
    }

    /// Visits the objects of the group, for the garbage collector; see `Plan`.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.owner)?;
        self.work.get().map_or(Ok(()), |work| visit.call(work))?;
        let Ok(launch) = self.launch.try_lock() else { return Ok(()) };
        let mut objects = launch.iter().flat_map(Launch::objects);
        objects.try_for_each(|object| visit.call(object))
    }
}

impl Drop for Group {
    /// Ends the block of a group that is deleted in it, without its calls.
    fn drop(&mut self) {
        if *self.is_inside.get_mut() {
            let group = &self.endpoint.group;
            let has_calls = !group.close().is_empty();
            // Relaxed: the GIL, which is held where Python drops an object, orders it before `check_left`.
            group.has_lost_calls.fetch_or(has_calls, Ordering::Relaxed);
        }
    }
}

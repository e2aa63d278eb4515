//! `Work`: a call that runs while its caller continues.
//!
//! ```text
//! issue ─▶ Work ─ wait() ─▶ the result of the call, or its exception
//!            │  ─ await ──▶ the same, in asyncio
//!            └ deleted ───▶ the call continues; if it fails, Python reports it like an exception in a destructor
//! ```
//!
//! A `Work` reads a [`Completion`]. Any thread may finish the completion, with or without the GIL. `arrays/in_flight.rs` holds the arrays
//! of the call until the call is over, also if its `Work` is deleted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;

use nvcoll_engine::messages::transfer::MessageTransfer;
use nvcoll_engine::ranks::member::Member;
use nvcoll_engine::sync::{Completion, WaitEnd};
use nvcoll_engine::{Deadline, Error};

use crate::arrays::in_flight::{self, Failure, InFlight, IssueQueue, Outcome};
use crate::arrays::places_of;
use crate::calls::choices::{deadline, Seconds};
use crate::engine::error::of_engine;
use crate::engine::gil::{attached, patiently};
use crate::error::raise;

/// An asynchronous call. `isend`, `irecv` and calls of `Communicator` with `async_op=True` return a `Work` immediately. In asyncio,
/// `await work` waits like `wait`, without blocking the loop. If the task is cancelled meanwhile, the call stays in flight.
///
/// Example:
///     >>> import numpy as np, nvcoll
///     >>> def program(comm):
///     ...     work = comm.all_reduce(np.ones(2), async_op=True)  # the program may compute after this line
///     ...     return work.wait().tolist()
///     >>> nvcoll.Node(2).run(program)
///     [[2.0, 2.0], [2.0, 2.0]]
#[pyclass(name = "Work", module = "nvcoll", frozen, weakref)]
pub(crate) struct Work {
    /// The call, in words.
    call: String,
    completion: Arc<Completion<Outcome>>,
    /// The result of the call, if the outcome has none.
    result: Py<PyAny>,
    member: Arc<Member>,
    /// The send or the receive of this work, and its deadline. Threads that wait for it move it.
    transfer: Option<(Arc<MessageTransfer>, Deadline)>,
    /// Makes the exception that the program gets of the engine's, if ranks are on several hosts.
    meaning: OnceLock<Py<PyAny>>,
    /// Whether the program has seen the outcome.
    is_seen: AtomicBool,
}

#[pymethods]
impl Work {
    /// Waits until the call is over, and returns the result that the call has without `async_op`.
    ///
    /// Args:
    ///     timeout: seconds that this wait may take. When they have passed, the call stays in flight and you may wait again. The
    ///         `timeout` of the call itself ends the call. Default: no limit.
    ///
    /// Returns:
    ///     The result of the call.
    ///
    /// Raises:
    ///     Timeout: the wait or the call took too long; the message says which.
    ///     Mismatch, Aborted: as the call without `async_op`.
    ///     Closed: this process is a fork, and the call was in flight at the fork.
    ///     KeyboardInterrupt: Ctrl-C ended the wait; the call stays in flight.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<Py<PyAny>> {
        match self.outcome(py, timeout)? {
            Ok(result) => Ok(result.as_ref().unwrap_or(&self.result).clone_ref(py)),
            Err(failure) => Err(self.raised(py, failure)),
        }
    }

    /// Says whether the call is over. A call that failed is over too.
    fn done(&self, py: Python<'_>) -> bool {
        if self.transfer.is_some() && self.completion.outcome().is_none() {
            py.detach(|| self.member.advance_messages());
        }
        let is_done = self.completion.outcome().is_some();
        if is_done {
            in_flight::settle(py);
        }
        is_done
    }

    /// Waits until the call is over. Returns its exception, or None if the call succeeded.
    ///
    /// Args:
    ///     timeout: seconds that this wait may take, as in `wait`. Default: no limit.
    ///
    /// Raises:
    ///     Timeout: the wait took too long; the call stays in flight.
    #[pyo3(signature = (timeout=None))]
    fn exception(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<Option<PyErr>> {
        let outcome = self.outcome(py, timeout)?;
        Ok(outcome.as_ref().err().map(|failure| self.raised(py, failure)))
    }

    fn __await__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        py.import(intern!(py, "nvcoll.ranks.awaiting"))?.call_method1(intern!(py, "outcome"), (slf,))
    }

    /// Calls `ring` when the call is over, on any thread. Not public.
    #[pyo3(signature = (ring: "Callable[[], object]"))]
    fn _when_done(&self, py: Python<'_>, ring: Py<PyAny>) -> PyResult<()> {
        self.refuse_orphan(py)?;
        self.completion.when_done(move || {
            attached(|py| ring.call0(py).map_or_else(|error| error.write_unraisable(py, Some(ring.bind(py))), drop));
        });
        Ok(())
    }

    /// Keeps arrays until the call is over, which then writes them, and refuses them to other communicators meanwhile. Not public.
    fn _keep(&self, py: Python<'_>, arrays: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        let held: Vec<Py<PyAny>> = arrays.iter().map(|array| array.clone().unbind()).collect();
        in_flight::add(
            py,
            InFlight {
                call: self.call.clone(),
                queue: Some(IssueQueue::of(&self.member)),
                arrays: places_of(self.member.rank(), &arrays, true)?,
                completion: self.completion.clone(),
                give_back: Box::new(move || drop(held)),
            },
        );
        Ok(())
    }

    /// Ends the call, which Python code made, with its result or its exception. Not public.
    #[pyo3(signature = (result, error: "BaseException | None" = None))]
    fn _finish(&self, result: Py<PyAny>, error: Option<Bound<'_, PyAny>>) {
        self.completion.finish(match error {
            Some(error) => Err(Failure::Raised(PyErr::from_value(error))),
            None => Ok(Some(result)),
        });
    }

    /// Has `wait` raise what `meaning` makes of the engine's exception. Not public.
    #[pyo3(signature = (meaning: "Callable[[BaseException], BaseException]"))]
    fn _explain(&self, meaning: Py<PyAny>) {
        _ = self.meaning.set(meaning);
    }

    fn __repr__(&self) -> String {
        let (rank, world_size) = (self.member.rank(), self.member.ranks().len());
        let state = match self.completion.outcome() {
            None => "in flight",
            Some(Ok(_)) => "done",
            Some(Err(_)) => "failed",
        };
        format!("<nvcoll.Work {}, rank {rank} of {world_size}, {state}>", self.call)
    }

    /// Visits the result, for the garbage collector.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.result)?;
        self.meaning.get().map_or(Ok(()), |meaning| visit.call(meaning))
    }
}

impl Work {
    /// Makes the work of a call of `member`. The call returns `result`; `call` describes it in words.
    pub(crate) fn new(
        call: String,
        completion: Arc<Completion<Outcome>>,
        result: Py<PyAny>,
        member: Arc<Member>,
    ) -> Self {
        let (meaning, is_seen) = (OnceLock::new(), AtomicBool::new(false));
        Self { call, completion, result, member, transfer: None, meaning, is_seen }
    }

    /// Makes the exception that the program gets.
    fn raised(&self, py: Python<'_>, failure: &Failure) -> PyErr {
        let error = failure.raised(py, &self.member);
        match (failure, self.meaning.get()) {
            (Failure::Engine(_), Some(meaning)) => {
                let meant = meaning.bind(py).call1((error.into_value(py),));
                meant.map_or_else(|failed| failed, PyErr::from_value)
            }
            _ => error,
        }
    }

    /// Turns this work into that of a send or a receive.
    pub(crate) fn of_transfer(mut self, transfer: Arc<MessageTransfer>, deadline: Deadline) -> Self {
        self.transfer = Some((transfer, deadline));
        self
    }

    /// Waits for the outcome.
    fn outcome(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<&Outcome> {
        if self.completion.outcome().is_none() {
            self.refuse_orphan(py)?;
            let until: Deadline = deadline(timeout);
            let end = patiently(py, &self.member, |is_interrupted| match &self.transfer {
                None => self.completion.wait(until.at(), is_interrupted),
                Some((transfer, deadline)) => {
                    match self.member.attend(transfer, *deadline, until.at(), is_interrupted) {
                        // Another thread may have ended the transfer, and be about to tell the completion.
                        WaitEnd::Over => self.completion.wait(until.at(), is_interrupted),
                        end => end,
                    }
                }
            })?;
            match end {
                WaitEnd::Over => {}
                WaitEnd::Interrupted => return Err(of_engine(py, &Error::Interrupted)),
                WaitEnd::TimedOut => {
                    let message = format!(
                        "{} is in flight after a wait of {} s: wait again; its own `timeout` would end it",
                        self.call,
                        until.seconds()
                    );
                    return Err(raise(py, "Timeout", message));
                }
            }
        }
        in_flight::settle(py);
        // Relaxed: the destructor, which reads it, holds the last reference.
        self.is_seen.store(true, Ordering::Relaxed);
        Ok(self.completion.outcome().expect("the wait is over"))
    }

    fn refuse_orphan(&self, py: Python<'_>) -> PyResult<()> {
        const FORKED: Error =
            Error::Closed("this process was forked off with the call in flight, which only the parent makes");
        match self.completion.is_orphaned() {
            true => Err(of_engine(py, &FORKED)),
            false => Ok(()),
        }
    }
}

impl Drop for Work {
    /// Reports a failure that the program has not seen. Python reports an exception in a destructor in the same way.
    fn drop(&mut self) {
        Python::attach(in_flight::settle);
        if *self.is_seen.get_mut() || self.completion.is_orphaned() {
            return;
        }
        let (call, member, completion) = (std::mem::take(&mut self.call), self.member.clone(), self.completion.clone());
        self.completion.when_done(move || {
            let Some(Err(failure)) = completion.outcome() else { return };
            if !failure.is_of_ended(member.rank()) {
                attached(|py| {
                    let error = failure.raised(py, &member);
                    _ = error.value(py).call_method1(intern!(py, "add_note"), (format!("nobody waited for {call}"),));
                    error.write_unraisable(py, None);
                });
            }
        });
    }
}

//! The calls of an open group, which are kept for the end of its block.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use nvcoll_engine::Error;

use crate::arrays::BoundCall;
use crate::calls::choices::Seconds;
use crate::engine::error::of_engine;
use crate::error::invalid;

/// The calls of an endpoint while its group is open.
#[derive(Default)]
pub(crate) struct OpenGroup {
    /// Every call reads it. It is exact on the thread that opens and closes the group; other threads decide under the lock.
    is_open: AtomicBool,
    calls: Mutex<Option<(ThreadId, BoundCall)>>,
    /// Whether a group was deleted in its block with calls in it.
    has_lost_calls: AtomicBool,
}

impl OpenGroup {
    /// Says whether calls are kept for the end of a block.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        // Relaxed: the thread that opened it sees its own store.
        self.is_open.load(Ordering::Relaxed)
    }

    /// Keeps a call that has no `timeout` of its own; `add` adds it to the group.
    ///
    /// # Errors
    /// `InvalidArgument` if the call has a timeout; `Busy` on another thread than that of the group.
    pub(crate) fn add(
        &self,
        py: Python<'_>,
        timeout: Option<Seconds>,
        add: impl FnOnce(&mut BoundCall),
    ) -> PyResult<()> {
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
        self.refuse_with(py, || format!("{what} cannot be in a group: call it outside"))
    }

    /// Refuses `async_op` of a call in a group.
    pub(crate) fn refuse_async(&self, py: Python<'_>) -> PyResult<()> {
        self.refuse_with(py, || "`async_op` is given in a group, whose calls run as one: pass it to group()".into())
    }

    fn refuse_with(&self, py: Python<'_>, message: impl FnOnce() -> String) -> PyResult<()> {
        if self.is_open() {
            Err(invalid(py, message()))
        } else {
            Ok(())
        }
    }

    /// Refuses to end the program of a rank while calls wait for the end of a block.
    ///
    /// # Errors
    /// `Busy`.
    pub(crate) fn check_left(&self, py: Python<'_>) -> PyResult<()> {
        match &*self.lock() {
            Some((_, calls)) if calls.len() > 0 => Err(of_engine(py, &LEFT_IN_A_GROUP)),
            // Relaxed: `check_left` runs on the thread of the rank; a block dropped elsewhere held the GIL.
            _ if self.has_lost_calls.load(Ordering::Relaxed) => Err(of_engine(py, &LEFT_IN_A_GROUP)),
            _ => Ok(()),
        }
    }

    pub(crate) fn open(&self, py: Python<'_>) -> PyResult<()> {
        let mut calls = self.lock();
        if calls.is_some() {
            return Err(of_engine(py, &IN_A_GROUP));
        }
        *calls = Some((std::thread::current().id(), BoundCall::group()));
        // Relaxed: pairs with the load in `is_open` on this thread; others decide under the lock.
        self.is_open.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn close(&self) -> Option<BoundCall> {
        let calls = self.lock().take();
        // Relaxed: as in `open`.
        self.is_open.store(false, Ordering::Relaxed);
        calls.map(|(_, calls)| calls)
    }

    /// Closes a group that is deleted in its block, without its calls.
    pub(crate) fn lose(&self) {
        let has_calls = self.close().is_some_and(|calls| calls.len() > 0);
        // Relaxed: the GIL, which is held where Python drops an object, orders it before `check_left`.
        self.has_lost_calls.fetch_or(has_calls, Ordering::Relaxed);
    }

    /// Visits the arrays of the kept calls, for the garbage collector.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(calls) = self.calls.try_lock() else { return Ok(()) };
        calls.as_ref().map_or(Ok(()), |(_, calls)| calls.traverse(visit))
    }

    fn lock(&self) -> MutexGuard<'_, Option<(ThreadId, BoundCall)>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const IN_A_GROUP: Error = Error::Busy("a group is open: end its `with` block first, on the thread that opened it");

const LEFT_IN_A_GROUP: Error =
    Error::Busy("the program returned while a group was open, whose calls were not made: end its `with` block first");

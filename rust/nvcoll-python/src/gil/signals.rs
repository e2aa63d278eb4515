//! Signal handlers of Python during a long call: on its main thread they run at intervals, and what one raises ends the call.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::intern;
use pyo3::prelude::*;

use nvcoll_core::interrupt::Interrupt;

use crate::error;

/// The interval at which a long call checks for Ctrl-C. Chosen.
const SIGNAL_CHECK: Duration = Duration::from_millis(50);

/// Checks for Ctrl-C at intervals, on the thread that makes the call, and keeps the exception.
struct Signals {
    /// The time of the next check; none before the first question.
    next: Option<Instant>,
    raised: Option<PyErr>,
}

impl Signals {
    fn new() -> Self {
        Self { next: None, raised: None }
    }

    fn check(&mut self) -> bool {
        let now = Instant::now();
        if now >= *self.next.get_or_insert(now + SIGNAL_CHECK) {
            self.next = Some(now + SIGNAL_CHECK);
            self.raised = raised_by_signal();
        }
        self.raised.is_some()
    }
}

thread_local! {
    /// A process, and whether this thread is its main thread in Python. A thread that forks becomes the main thread of the child.
    static IS_MAIN: Cell<Option<(u32, bool)>> = const { Cell::new(None) };
}

/// Returns the check for Ctrl-C of building, lowering and proving.
pub(crate) fn interrupt() -> Interrupt {
    let signals = Mutex::new(Signals::new());
    Interrupt::when(move || {
        let raised = {
            let mut signals = signals.lock().unwrap_or_else(PoisonError::into_inner);
            signals.check();
            signals.raised.take()
        };
        let is_interrupted = raised.is_some();
        if is_interrupted {
            error::RAISED.set(raised);
        }
        is_interrupted
    })
}

/// Runs pending signal handlers and returns the exception that one raised. Python runs handlers on its main thread only. Other threads
/// do not attach here, because the interpreter may be ending.
fn raised_by_signal() -> Option<PyErr> {
    let process = std::process::id();
    match IS_MAIN.get() {
        Some((known, false)) if known == process => return None,
        _ => {}
    }
    let check = |py: Python<'_>| {
        let is_main = is_main_thread(py)?;
        IS_MAIN.set(Some((process, is_main)));
        py.check_signals()
    };
    Python::try_attach(check).and_then(Result::err)
}

fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import(intern!(py, "threading"))?;
    let main = threading.call_method0(intern!(py, "main_thread"))?.getattr(intern!(py, "ident"))?;
    threading.call_method0(intern!(py, "get_ident"))?.eq(main)
}

/// Does work with checks for Ctrl-C. The exception of a signal handler takes precedence over the outcome.
pub(crate) fn interruptible<T>(work: impl FnOnce(&mut (dyn FnMut() -> bool + Send)) -> T) -> PyResult<T> {
    let mut signals = Signals::new();
    let outcome = work(&mut || signals.check());
    signals.raised.map_or(Ok(outcome), Err)
}

//! The interpreter while a call runs: released, and looked after for Ctrl-C.

use std::cell::{Cell, RefCell};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::intern;
use pyo3::prelude::*;

use nvcoll_core::interrupt::Interrupt;
use nvcoll_engine::sync::single_flight::Unlocked;

use crate::error::{of_engine, of_fabric};

/// How often a long call looks for Ctrl-C. Chosen.
const SIGNAL_CHECK: Duration = Duration::from_millis(50);

/// Looks for Ctrl-C now and then, on the thread that makes the call, and keeps what was raised.
struct Signals {
    /// None before the first look, which a small call never comes to.
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
    /// What a signal raised on this thread while the core worked: the core's error has no room for it.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// The process in which this thread found out whether it is the main thread of Python, and the answer: who forks becomes
    /// the main thread of the child.
    static IS_MAIN: Cell<Option<(u32, bool)>> = const { Cell::new(None) };
}

/// Returns the question that building, lowering and proving ask: whether Ctrl-C was pressed.
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
            RAISED.set(raised);
        }
        is_interrupted
    })
}

/// Returns what a signal raised on this thread while the core worked.
pub(crate) fn raised() -> PyErr {
    RAISED.take().unwrap_or_else(|| PyKeyboardInterrupt::new_err(()))
}

/// Returns what a signal handler raised. Python runs handlers on its main thread only, so other threads leave the interpreter
/// alone: it may be ending, and then nobody can attach to it any more.
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

/// Does something without the GIL, with an eye on Ctrl-C; what a signal raised comes first.
#[inline]
fn interruptibly<T: Send>(py: Python<'_>, work: impl FnOnce(&mut dyn FnMut() -> bool) -> T + Send) -> PyResult<T> {
    let (outcome, raised) = py.detach(|| {
        let mut signals = Signals::new();
        let outcome = work(&mut || signals.check());
        (outcome, signals.raised)
    });
    raised.map_or(Ok(outcome), Err)
}

/// Does what the engine is asked without the GIL, with an eye on Ctrl-C.
#[inline]
pub(crate) fn watched(
    py: Python<'_>,
    work: impl FnOnce(&mut dyn FnMut() -> bool) -> nvcoll_engine::Result<()> + Send,
) -> PyResult<()> {
    interruptibly(py, work)?.map_err(|error| of_engine(py, &error))
}

/// Does what the fabric is asked without the GIL, with an eye on Ctrl-C.
pub(crate) fn watched_in_fabric<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&mut dyn FnMut() -> bool) -> nvcoll_fabric::Result<T> + Send,
) -> PyResult<T> {
    interruptibly(py, work)?.map_err(|error| of_fabric(py, &error))
}

/// Does without the GIL what takes long.
pub(crate) struct WithoutGil<'py>(pub(crate) Python<'py>);

impl Unlocked for WithoutGil<'_> {
    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.0.detach(work)
    }

    fn interrupt(&self) -> Interrupt {
        interrupt()
    }
}

//! The GIL during a call: it is released, and the call checks for Ctrl-C.
//!
//! Threads of calls in flight have no Python code of their own and take the GIL for moments only, by [`attached`]: to wake an event loop,
//! or to report a failure. The interpreter ends a thread that asks for the GIL while it ends itself, in the middle of Rust code. So
//! [`end_attaching`] runs before: it waits for those that are attached, and the others find the door shut.

pub(crate) mod handoff;

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::intern;
use pyo3::prelude::*;

use nvcoll_core::interrupt::Interrupt;
use nvcoll_engine::ranks::member::Member;
use nvcoll_engine::sync::single_flight::Unlocked;

use crate::error::{self, of_engine, of_fabric, of_member};
use crate::gil::handoff::in_turn;

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

/// Does work without the GIL, with checks for Ctrl-C: see [`interruptible`].
#[inline]
fn interruptibly<T: Send>(py: Python<'_>, work: impl FnOnce(&mut dyn FnMut() -> bool) -> T + Send) -> PyResult<T> {
    py.detach(|| interruptible(|is_interrupted| work(is_interrupted)))
}

/// Does work with checks for Ctrl-C. The exception of a signal handler takes precedence over the outcome.
pub(crate) fn interruptible<T>(work: impl FnOnce(&mut (dyn FnMut() -> bool + Send)) -> T) -> PyResult<T> {
    let mut signals = Signals::new();
    let outcome = work(&mut || signals.check());
    signals.raised.map_or(Ok(outcome), Err)
}

/// Does the engine's work without the GIL, with checks for Ctrl-C.
#[inline]
pub(crate) fn watched(
    py: Python<'_>,
    work: impl FnOnce(&mut dyn FnMut() -> bool) -> nvcoll_engine::Result<()> + Send,
) -> PyResult<()> {
    interruptibly(py, work)?.map_err(|error| of_engine(py, &error))
}

/// Does the engine's work in a call of one rank without the GIL. A rank that is a process checks for Ctrl-C; ranks that are threads of
/// `Node.run` are interrupted by their run, and take the GIL in turn.
#[inline]
pub(crate) fn watched_rank(
    py: Python<'_>,
    member: &Member,
    work: impl FnOnce(&mut dyn FnMut() -> bool) -> nvcoll_engine::Result<()> + Send,
) -> PyResult<()> {
    let outcome = match member.share_memory() {
        true => in_turn(py, || work(&mut || false)),
        false => interruptibly(py, work)?,
    };
    // A Ctrl-C for all ranks often arrives together with the failure of a peer that it has ended first.
    outcome.map_err(|error| py.check_signals().err().unwrap_or_else(|| of_member(py, member, &error)))
}

/// Waits for a call of one rank without the GIL: see [`watched_rank`].
pub(crate) fn patiently<T: Send>(
    py: Python<'_>,
    member: &Member,
    wait: impl FnOnce(&mut dyn FnMut() -> bool) -> T + Send,
) -> PyResult<T> {
    match member.share_memory() {
        true => Ok(in_turn(py, || wait(&mut || false))),
        false => interruptibly(py, wait),
    }
}

/// In [`ATTACHED`]: the interpreter ends.
const ENDING: usize = 1 << (usize::BITS - 1);

/// How many threads of calls in flight have the GIL or ask for it.
static ATTACHED: AtomicUsize = AtomicUsize::new(0);

/// How long the end of the interpreter waits for threads of calls in flight. Chosen: what they do takes microseconds. In the child of a
/// fork the number may be that of threads that it does not have.
const LONGEST_ATTACHED: Duration = Duration::from_secs(1);

/// Does brief work in Python on a thread of calls in flight; `None` if the interpreter ends.
pub(crate) fn attached<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    // Acquire and Release: `end_attaching` sees all that an attached thread did.
    let is_open = ATTACHED.fetch_add(1, Ordering::Acquire) & ENDING == 0;
    let done = if is_open { Python::try_attach(work) } else { None };
    ATTACHED.fetch_sub(1, Ordering::Release);
    done
}

/// Keeps threads of calls in flight from Python from now on. Not public: it runs at the end of the program.
#[pyfunction(name = "_end_attaching")]
fn end_attaching(py: Python<'_>) {
    py.detach(|| {
        let until = Instant::now() + LONGEST_ATTACHED;
        ATTACHED.fetch_or(ENDING, Ordering::Acquire);
        while ATTACHED.load(Ordering::Acquire) != ENDING && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Adds the functions of this module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(end_attaching, module)?)
}

/// Does the fabric's work without the GIL, with checks for Ctrl-C.
pub(crate) fn watched_in_fabric<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&mut dyn FnMut() -> bool) -> nvcoll_fabric::Result<T> + Send,
) -> PyResult<T> {
    interruptibly(py, work)?.map_err(|error| of_fabric(py, &error))
}

/// Does long work of the engine without the GIL.
pub(crate) struct WithoutGil<'py>(pub(crate) Python<'py>);

impl Unlocked for WithoutGil<'_> {
    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.0.detach(work)
    }

    fn interrupt(&self) -> Interrupt {
        interrupt()
    }
}

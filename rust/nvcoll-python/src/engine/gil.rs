//! The GIL during a call of the engine.
//!
//! Threads of calls in flight have no Python code of their own and take the GIL for moments only, by [`attached`]: to wake an event loop,
//! or to report a failure. The interpreter ends a thread that asks for the GIL while it ends itself, in the middle of Rust code. So
//! [`end_attaching`] runs before: it waits for attached threads; other threads cannot attach any more.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use nvcoll_core::interrupt::Interrupt;
use nvcoll_engine::ranks::member::Member;
use nvcoll_engine::sync::condition::IsInterrupted;
use nvcoll_engine::sync::single_flight::Unlocked;
use nvcoll_engine::{Deadline, WaitLimit};

use crate::engine::error::{of_engine, of_member};
use crate::engine::handoff::in_turn;
use crate::gil::{interrupt, interruptibly};

/// Does the engine's work without the GIL, with checks for Ctrl-C.
#[inline]
pub(crate) fn watched(
    py: Python<'_>,
    work: impl FnOnce(IsInterrupted<'_>) -> nvcoll_engine::Result<()> + Send,
) -> PyResult<()> {
    interruptibly(py, work)?.map_err(|error| of_engine(py, &error))
}

/// Does the engine's work in a call of one rank without the GIL. A rank that is a process checks for Ctrl-C; ranks that are threads of
/// `Node.run` are interrupted by their run, and take the GIL in turn.
#[inline]
pub(crate) fn watched_rank(
    py: Python<'_>,
    member: &Member,
    deadline: Deadline,
    work: impl FnOnce(&mut WaitLimit<'_>) -> nvcoll_engine::Result<()> + Send,
) -> PyResult<()> {
    let work = |is_interrupted: IsInterrupted<'_>| work(&mut WaitLimit::new(deadline, is_interrupted));
    let outcome = patiently(py, member, work)?;
    // A Ctrl-C for all ranks often arrives together with the failure of a peer that it has ended first.
    outcome.map_err(|error| py.check_signals().err().unwrap_or_else(|| of_member(py, member, &error)))
}

/// Waits for a call of one rank without the GIL: see [`watched_rank`].
#[inline]
pub(crate) fn patiently<T: Send>(
    py: Python<'_>,
    member: &Member,
    wait: impl FnOnce(IsInterrupted<'_>) -> T + Send,
) -> PyResult<T> {
    // A rank that is alone on its host waits for others, too.
    match member.is_in_one_space() && member.names_of_ranks().is_none() {
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
pub(crate) fn end_attaching(py: Python<'_>) {
    py.detach(|| {
        let until = Instant::now() + LONGEST_ATTACHED;
        ATTACHED.fetch_or(ENDING, Ordering::Acquire);
        while ATTACHED.load(Ordering::Acquire) != ENDING && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Does long work of the engine without the GIL.
pub(crate) enum WithoutGil<'py> {
    AtOnce(Python<'py>),
    /// In a call of a rank that is a thread: see [`in_turn`].
    InTurn(Python<'py>),
}

impl Unlocked for WithoutGil<'_> {
    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match *self {
            Self::AtOnce(py) => py.detach(work),
            Self::InTurn(py) => in_turn(py, work),
        }
    }

    fn interrupt(&self) -> Interrupt {
        interrupt()
    }
}

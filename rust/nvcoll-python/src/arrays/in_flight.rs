//! The arrays of calls in flight: held until the call is over, and refused to other calls meanwhile.
//!
//! ```text
//! issue     check: does an array of the new call share a byte with one in flight, and is one of the two written?   then add
//!           calls that one communicator runs in the order of issue may share arrays
//! over      the thread that ran the call finishes its completion; it cannot drop Python objects
//! settle    a thread with the GIL gives back what calls that are over held
//! ```
//!
//! The list is locked only by threads that hold the GIL, and they keep it meanwhile. So a child of a fork finds it unlocked; it forgets
//! the entries of its parent, whose threads it does not have.
//!
//! **Cost.** A call while nothing is in flight reads one word. Others are compared with each call in flight.

use std::fmt::Display;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use nvcoll_engine::memory::strided::{first_conflict, Conflict, PlacedArray, TryBudget};
use nvcoll_engine::ranks::member::Member;
use nvcoll_engine::sync::Completion;
use nvcoll_engine::{Error, OriginalArray};

use crate::engine::error::of_member;
use crate::error::raise;

static IN_FLIGHT: Mutex<Vec<InFlight>> = Mutex::new(Vec::new());

/// The length of the list.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The outcome of a call: its result, if it was unknown when the call was issued, or its failure.
pub(crate) type Outcome = Result<Option<Py<PyAny>>, Failure>;

/// The failure of a call. It becomes an exception when the program waits.
pub(crate) enum Failure {
    /// An error of the engine.
    Engine(Error),
    /// An exception of Python code that the call ran.
    Raised(PyErr),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl Failure {
    /// Makes the exception.
    pub(crate) fn raised(&self, py: Python<'_>, member: &Member) -> PyErr {
        match self {
            Self::Engine(error) => of_member(py, member, error),
            Self::Raised(error) => error.clone_ref(py),
        }
    }

    /// Says whether the call failed because its own rank had ended. The end of the rank reports the reason itself.
    pub(crate) fn is_of_ended(&self, own: u32) -> bool {
        match self {
            Self::Engine(Error::Closed(_) | Error::Interrupted) => true,
            Self::Engine(Error::Aborted { rank, .. } | Error::Exited { rank, .. }) => *rank == own,
            Self::Engine(_) | Self::Raised(_) => false,
        }
    }
}

/// A call in flight.
pub(crate) struct InFlight {
    /// The call, in words.
    pub(crate) call: String,
    /// The queue in which it is, after the calls that were issued before; none for a message, which moves beside them.
    pub(crate) queue: Option<IssueQueue>,
    pub(crate) arrays: Vec<OriginalArray>,
    pub(crate) completion: Arc<Completion<Outcome>>,
    /// Gives the arrays back, once the call is over.
    pub(crate) give_back: Box<dyn FnOnce() + Send>,
}

/// The issued calls of a rank in a communicator, by the address of its member, which lives as long as they.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct IssueQueue(usize);

impl IssueQueue {
    pub(crate) fn of(member: &Member) -> Self {
        Self(std::ptr::from_ref(member).addr())
    }
}

/// Says whether calls are in flight, or were.
#[inline]
pub(crate) fn any() -> bool {
    // Relaxed: changes happen with the GIL, which the caller holds.
    COUNT.load(Ordering::Relaxed) != 0
}

/// Refuses a call whose arrays share a byte with an array in flight, if one of the two is written; `label` names an array. A call
/// that is issued in a queue may share the arrays of earlier calls of the queue.
///
/// # Errors
/// `Busy`, which names both calls.
pub(crate) fn check(
    py: Python<'_>,
    call: &dyn Display,
    arrays: &[OriginalArray],
    queue: Option<IssueQueue>,
    label: impl Fn(usize) -> String,
) -> PyResult<()> {
    settle(py);
    // The lock is free again before the exception is made, since Python may then collect garbage, whose end makes calls.
    let found = conflict(call, arrays, queue, label);
    found.map_or(Ok(()), |message| Err(raise(py, "Busy", message)))
}

/// Returns the message about an array that is in flight, if there is one.
fn conflict(
    call: &dyn Display,
    arrays: &[OriginalArray],
    queue: Option<IssueQueue>,
    label: impl Fn(usize) -> String,
) -> Option<String> {
    let in_flight = list();
    let mut others = in_flight.iter().filter(|one| queue.is_none() || one.queue != queue);
    let (conflict, other) = others.find_map(|one| Some((conflict_of(arrays, &one.arrays)?, &one.call)))?;
    let (own, how) = match conflict {
        Conflict::Shared(own, _) => (label(own), "shares memory with"),
        Conflict::Undecided(own, _) => (label(own), "interleaves with"),
    };
    Some(format!(
        "{own} in {call} {how} an array of {other}, which is in flight, and one of the two is written: wait for that call \
         first"
    ))
}

/// Finds the first conflict between the arrays of two calls. Neither call has a conflict in itself.
fn conflict_of(own: &[OriginalArray], others: &[OriginalArray]) -> Option<Conflict> {
    let all = own.iter().chain(others).enumerate();
    let mut ranges: Vec<_> =
        all.map(|(number, array)| PlacedArray::new(array.address, &array.layout, array.is_written, number)).collect();
    first_conflict(&mut ranges, &mut TryBudget::of_a_call())
}

/// Adds a call that [`check`] let pass.
pub(crate) fn add(_py: Python<'_>, call: InFlight) {
    let mut in_flight = list();
    in_flight.push(call);
    COUNT.store(in_flight.len(), Ordering::Relaxed);
}

/// Gives back the arrays of calls that are over.
pub(crate) fn settle(_py: Python<'_>) {
    if !any() {
        return;
    }
    let over: Vec<InFlight> = {
        let mut in_flight = list();
        let (orphans, rest) = in_flight.drain(..).partition(|call: &InFlight| call.completion.is_orphaned());
        std::mem::forget::<Vec<InFlight>>(orphans);
        let (over, pending) = Vec::into_iter(rest).partition(|call| call.completion.outcome().is_some());
        *in_flight = pending;
        COUNT.store(in_flight.len(), Ordering::Relaxed);
        over
    };
    // Unlocked, since the end of an object may run Python code that makes calls.
    over.into_iter().for_each(|call| (call.give_back)());
}

fn list() -> MutexGuard<'static, Vec<InFlight>> {
    IN_FLIGHT.lock().unwrap_or_else(PoisonError::into_inner)
}

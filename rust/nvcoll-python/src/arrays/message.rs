//! The array of a send or a receive. The engine demands of it:
//!
//! | demand | kept by |
//! |---|---|
//! | it lives until the transfer has ended | a call that waits holds the array; one that returns at once leaves it with the calls in flight |
//! | nobody else touches it meanwhile | the caller's promise, which no array library can enforce; calls of nvcoll are refused |

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;

use nvcoll_core::dtype::DType;
use nvcoll_engine::memory::strided::{PlacedArray, TryBudget};
use nvcoll_engine::messages::transfer::{Direction, Envelope, MessageBuffer, MessageTransfer, TransferEnd};
use nvcoll_engine::ranks::member::Member;
use nvcoll_engine::run::wait::now;
use nvcoll_engine::sync::Completion;
use nvcoll_engine::{Deadline, Error, OriginalArray};

use super::array::Array;
use super::bound::BoundArrays;
use super::in_flight::{self, InFlight, IssueQueue, Outcome};
use super::operands::{refuse_conflict, APART};
use super::source::{self, Owner};
use crate::engine::error::of_member;
use crate::engine::gil::watched_rank;
use crate::error::invalid;

/// The envelope of a message, once it was received.
pub(crate) type ReceivedEnvelope = Arc<Mutex<Option<Envelope>>>;

/// The array of a send or a receive.
pub(crate) struct MessageArray {
    argument: &'static str,
    array: Array,
    owner: Owner,
    pub(crate) direction: Direction,
    tag: Option<u32>,
    pub(crate) received: ReceivedEnvelope,
}

// SAFETY: the addresses are followed by the engine, under the rules of transfers, and in `gather` and `write_back`. The owner is only
// dropped: with the interpreter attached, or by pyo3 later.
unsafe impl Send for MessageArray {}

impl MessageArray {
    /// Reads the array of a transfer; `argument` names it in messages.
    ///
    /// # Errors
    /// `InvalidArgument` if it cannot be used.
    pub(crate) fn read(
        argument: &'static str,
        object: &Bound<'_, PyAny>,
        direction: Direction,
        tag: Option<u32>,
    ) -> PyResult<Self> {
        let about = |reason: super::reason::Reason| reason.about(object.py(), format!("`{argument}`"));
        let (mut array, owner) = source::read(object.clone()).map_err(about)?;
        if matches!(direction, Direction::From(_)) {
            array.require_writable(&mut TryBudget::of_a_call()).map_err(about)?;
        }
        array.make_copy().map_err(about)?;
        Ok(Self { argument, array, owner, direction, tag, received: Arc::default() })
    }

    /// Returns the dtype, and the number of elements.
    pub(crate) fn elements(&self) -> (DType, usize) {
        (self.array.dtype, self.array.layout.count())
    }

    fn is_received(&self) -> bool {
        matches!(self.direction, Direction::From(_))
    }

    /// Returns the transfer in words.
    fn words(&self) -> String {
        MessageTransfer::new(self.direction, self.tag, &self.buffer(None)).to_string()
    }

    /// Returns the array as the user passed it.
    pub(crate) fn original(&self) -> OriginalArray {
        self.array.original(self.is_received())
    }

    /// Records the array, if it is numpy's.
    pub(super) fn bind(&self, py: Python<'_>, bound: &mut BoundArrays) {
        if let Some(array) = self.owner.array() {
            bound.add(array.bind(py), self.argument, None, self.is_received());
        }
    }

    /// Returns the Python object that is held, for the garbage collector.
    pub(crate) fn object(&self) -> Option<&Py<PyAny>> {
        self.owner.array().map(Py::as_any)
    }

    /// Refuses an array that shares memory with one in flight, other than in calls before it on `queue`.
    ///
    /// # Errors
    /// `Busy`.
    pub(crate) fn refuse_in_flight(&self, py: Python<'_>, queue: Option<IssueQueue>) -> PyResult<()> {
        match in_flight::any() {
            true => in_flight::check(py, &self.words(), &[self.original()], queue, |_| format!("`{}`", self.argument)),
            false => Ok(()),
        }
    }

    /// Refuses arrays that share a byte where one of them is written.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub(crate) fn check_apart(py: Python<'_>, arrays: &[Self]) -> PyResult<()> {
        let mut ranges: Vec<_> = arrays.iter().enumerate().map(|(number, one)| one.placed(number)).collect();
        let label = |number: usize| arrays[number].label();
        refuse_conflict(py, &mut ranges, &mut TryBudget::of_a_call(), label, |_, _| APART.into())
    }

    /// Returns the range of the array, with a number.
    pub(super) fn placed(&self, number: usize) -> PlacedArray<'_> {
        self.array.placed(self.is_received(), number)
    }

    /// Returns the name of the array in messages.
    pub(super) fn label(&self) -> String {
        format!("`{}` of a {}", self.argument, self.words())
    }

    fn buffer(&self, at_end: Option<Box<dyn TransferEnd>>) -> MessageBuffer {
        let (address, bytes) = (self.array.start(), self.array.layout.bytes());
        MessageBuffer { address, bytes, dtype: self.array.dtype, at_end }
    }

    /// Begins the transfer.
    ///
    /// # Safety
    /// The array lives until the transfer has ended.
    unsafe fn begin(
        &self,
        member: &Member,
        at_end: Option<Box<dyn TransferEnd>>,
    ) -> nvcoll_engine::Result<Arc<MessageTransfer>> {
        if !self.is_received() {
            // SAFETY: the owner is here.
            unsafe { self.array.gather() };
        }
        // SAFETY: the caller promised that the array lives; who called the user's function promised the rest.
        unsafe {
            match self.direction {
                Direction::To(rank) => member.send(self.buffer(at_end), rank, self.tag.unwrap_or(0)),
                Direction::From(rank) => member.receive(self.buffer(at_end), rank, self.tag),
            }
        }
    }

    /// Ends a transfer that has succeeded.
    pub(super) fn end(&self, transfer: &MessageTransfer) {
        if let (Some(Ok(envelope)), true) = (transfer.outcome(), self.is_received()) {
            // SAFETY: the owner is here, and the array may be written, as `read` has found.
            unsafe { self.array.write_back() };
            self.note(envelope);
        }
    }

    fn note(&self, envelope: &Envelope) {
        *self.received.lock().unwrap_or_else(PoisonError::into_inner) = Some(*envelope);
    }

    /// Makes transfers that belong together; sends stand before receives. It gives the GIL away if it must wait.
    ///
    /// # Errors
    /// Those of [`Member::send`], [`Member::receive`] and [`Member::finish`].
    pub(crate) fn exchange(
        py: Python<'_>,
        member: &Member,
        arrays: &[Self],
        deadline: impl FnOnce() -> Deadline,
    ) -> PyResult<()> {
        arrays.iter().try_for_each(|array| array.refuse_in_flight(py, None))?;
        let (begun, refused) = Self::begin_all(arrays, member);
        if refused.is_some() || begun.iter().any(|transfer| !matches!(transfer.outcome(), Some(Ok(_)))) {
            let waited = watched_rank(py, member, deadline(), |limit| now(member.finish(&begun, limit)));
            refused.map_or(Ok(()), |error| Err(of_member(py, member, &error)))?;
            waited?;
        }
        arrays.iter().zip(&begun).for_each(|(array, transfer)| array.end(transfer));
        Ok(())
    }

    /// Begins transfers. If one is refused, those before it end, with the communicator. The caller waits for what has begun.
    pub(super) fn begin_all(arrays: &[Self], member: &Member) -> (Vec<Arc<MessageTransfer>>, Option<Error>) {
        let mut begun = Vec::with_capacity(arrays.len());
        for array in arrays {
            // SAFETY: callers wait until what has begun has ended, and hold the arrays meanwhile.
            match unsafe { array.begin(member, None) } {
                Ok(transfer) => begun.push(transfer),
                Err(error) => {
                    if !begun.is_empty() {
                        member.give_up();
                    }
                    return (begun, Some(error));
                }
            }
        }
        (begun, None)
    }

    /// Begins the transfer and returns at once.
    ///
    /// # Errors
    /// Those of [`Member::send`] and [`Member::receive`].
    pub(crate) fn issue(self, py: Python<'_>, member: &Arc<Member>, deadline: Deadline) -> PyResult<IssuedMessage> {
        self.refuse_in_flight(py, None)?;
        let (call, arrays, completion) = (self.words(), vec![self.original()], Arc::new(Completion::default()));
        let array = Arc::new(Mutex::new(Some(self)));
        let begun = {
            let at_end = Box::new(EndOfIssued { array: array.clone(), completion: completion.clone() });
            let held = array.lock().unwrap_or_else(PoisonError::into_inner);
            let message = held.as_ref().expect("it was just made");
            // The end of a small message needs the array, too.
            let address: *const MessageArray = message;
            drop(held);
            // SAFETY: the array stays in its place until it is given back, when the transfer has ended.
            unsafe { (*address).begin(member, Some(at_end)) }
        };
        let transfer = begun.map_err(|error| of_member(py, member, &error))?;
        member.leave_in_flight(&transfer, deadline).map_err(|error| of_member(py, member, &error))?;
        let give_back = Box::new(move || drop(array.lock().unwrap_or_else(PoisonError::into_inner).take()));
        in_flight::add(
            py,
            InFlight { call: call.clone(), queue: None, arrays, completion: completion.clone(), give_back },
        );
        Ok(IssuedMessage { call, completion, transfer })
    }
}

/// Takes a message of a rank on another host, whose bytes are in an array.
///
/// # Errors
/// `InvalidArgument` if the array cannot be read, or there is no such dtype; those of [`Member::deliver`].
pub(crate) fn deliver(
    py: Python<'_>,
    member: &Member,
    source: u32,
    tag: u32,
    dtype: &str,
    data: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let (array, _owner) = source::read(data.clone()).map_err(|reason| reason.about(py, "`data`".to_owned()))?;
    let dtype = DType::named(dtype).ok_or_else(|| invalid(py, format!("there is no dtype {dtype}")))?;
    if array.layout.is_strided() {
        return Err(invalid(py, "`data` is strided: pass a packed array"));
    }
    let bytes = match array.layout.bytes() {
        0 => &[],
        // SAFETY: the source found so many bytes there; the owner is held, and who has the GIL writes none of them meanwhile.
        bytes => unsafe { std::slice::from_raw_parts(array.first, bytes) },
    };
    member.deliver(Envelope { source, tag, dtype, bytes: bytes.len() }, bytes).map_err(|e| of_member(py, member, &e))
}

/// A transfer whose call has returned: its words, and what tells of its end.
pub(crate) struct IssuedMessage {
    pub(crate) call: String,
    pub(crate) completion: Arc<Completion<Outcome>>,
    pub(crate) transfer: Arc<MessageTransfer>,
}

/// The end of a transfer whose call has returned.
struct EndOfIssued {
    array: Arc<Mutex<Option<MessageArray>>>,
    completion: Arc<Completion<Outcome>>,
}

impl TransferEnd for EndOfIssued {
    fn write_back(&mut self) {
        if let Some(message) = &*self.array.lock().unwrap_or_else(PoisonError::into_inner) {
            // SAFETY: as in `MessageArray::end`.
            unsafe { message.array.write_back() };
        }
    }

    fn over(&mut self, outcome: &nvcoll_engine::Result<Envelope>) {
        if let (Ok(envelope), Some(message)) = (outcome, &*self.array.lock().unwrap_or_else(PoisonError::into_inner)) {
            message.note(envelope);
        }
        self.completion.finish(outcome.as_ref().map(|_| None).map_err(|error| error.clone().into()));
    }
}

//! Transfers: a send or a receive from the call to its end, and the array that it moves.

use std::fmt::{self, Display, Formatter};
use std::sync::{Mutex, OnceLock, PoisonError};

use nvcoll_core::dtype::DType;

use crate::error::{Error, Result};
use crate::sync::record::{record_of_message, Record};

/// What matching knows of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// The rank that sent it.
    pub source: u32,
    /// Its tag.
    pub tag: u32,
    /// The dtype of its elements.
    pub dtype: DType,
    /// Its bytes.
    pub bytes: usize,
}

/// What is to be done at the end of a transfer, on the thread that ends it. It also keeps the array of the transfer alive.
pub trait TransferEnd: Send {
    /// The message is in the buffer, and nobody knows it yet. The mailbox is locked: this must not wait for another thread.
    fn write_back(&mut self);

    /// The outcome can be read. The mailbox is not locked.
    fn over(&mut self, outcome: &Result<Envelope>);
}

/// The array of a transfer: packed memory, and what is to be done at the end.
pub struct MessageBuffer {
    /// The first byte.
    pub address: *mut u8,
    /// The length.
    pub bytes: usize,
    /// The dtype.
    pub dtype: DType,
    /// What is to be done at the end.
    pub at_end: Option<Box<dyn TransferEnd>>,
}

// SAFETY: who starts a transfer promises that nobody else touches the memory before it ends.
unsafe impl Send for MessageBuffer {}

impl fmt::Debug for MessageBuffer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageBuffer")
            .field("address", &self.address)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// The other end of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// A send to a rank.
    To(u32),
    /// A receive from a rank, or from any.
    From(Option<u32>),
}

impl Direction {
    /// Returns the rank at the other end, if it is one.
    pub(crate) fn peer(self) -> Option<u32> {
        match self {
            Self::To(rank) => Some(rank),
            Self::From(rank) => rank,
        }
    }
}

/// A send or a receive.
#[derive(Debug)]
pub struct MessageTransfer {
    /// The other end.
    pub direction: Direction,
    /// The tag; a receive without one takes any.
    pub tag: Option<u32>,
    dtype: DType,
    bytes: usize,
    outcome: OnceLock<Result<Envelope>>,
    /// What is left to be done when it has ended: see [`MessageTransfer::tell`].
    untold: Untold,
}

#[derive(Default)]
struct Untold(Mutex<Option<Box<dyn TransferEnd>>>);

impl fmt::Debug for Untold {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Untold")
    }
}

impl MessageTransfer {
    /// Describes a transfer of a buffer that has not begun.
    pub fn new(direction: Direction, tag: Option<u32>, buffer: &MessageBuffer) -> Self {
        Self {
            direction,
            tag,
            dtype: buffer.dtype,
            bytes: buffer.bytes,
            outcome: OnceLock::new(),
            untold: Untold::default(),
        }
    }

    /// Returns the outcome, once the transfer has ended: the envelope of the message, or what went wrong.
    #[inline]
    pub fn outcome(&self) -> Option<&Result<Envelope>> {
        self.outcome.get()
    }

    /// Returns a record that says what a rank waits for: this transfer, and `more` others.
    pub(super) fn record(&self, more: usize) -> Record {
        record_of_message(matches!(self.direction, Direction::To(_)), self.tag, self.bytes, more)
    }

    /// Ends the transfer, which uses its buffer no more.
    pub(super) fn end(&self, outcome: Result<Envelope>, buffer: MessageBuffer) {
        if let Some(mut at_end) = buffer.at_end {
            if let (Ok(_), Direction::From(_)) = (&outcome, self.direction) {
                at_end.write_back();
            }
            *self.untold.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(at_end);
        }
        let _ = self.outcome.set(outcome);
    }

    /// Tells the end of the transfer to who asked for it, once. The mailbox is not locked.
    pub(super) fn tell(&self) {
        let Some(outcome) = self.outcome() else { return };
        let untold = self.untold.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut at_end) = untold {
            at_end.over(outcome);
        }
    }

    /// Says whether it is a receive that may take messages of a rank.
    #[inline]
    pub(super) fn may_come_from(&self, source: u32) -> bool {
        matches!(self.direction, Direction::From(from) if from.is_none_or(|from| from == source))
    }

    /// Says whether a receive takes a message.
    #[inline]
    pub(super) fn takes(&self, source: u32, tag: u32) -> bool {
        self.may_come_from(source) && self.tag.is_none_or(|wanted| wanted == tag)
    }

    /// Refuses a message of another dtype or length than the array has.
    pub(super) fn check(&self, own: u32, envelope: Envelope) -> Result<()> {
        if (envelope.dtype, envelope.bytes) == (self.dtype, self.bytes) {
            return Ok(());
        }
        let Envelope { source, tag, .. } = envelope;
        let (sent, room) = (elements(envelope.dtype, envelope.bytes), elements(self.dtype, self.bytes));
        Err(Error::UnlikeMessage { sender: source, tag, sent, receiver: own, room })
    }
}

/// Names an array by its elements.
fn elements(dtype: DType, bytes: usize) -> String {
    format!("{} {dtype}", bytes / dtype.bytes())
}

impl Display for MessageTransfer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let what = elements(self.dtype, self.bytes);
        match self.direction {
            Direction::To(rank) => write!(f, "send of {what} to rank {rank}")?,
            Direction::From(Some(rank)) => write!(f, "recv of {what} from rank {rank}")?,
            Direction::From(None) => write!(f, "recv of {what} from any rank")?,
        }
        match self.tag {
            Some(tag) => write!(f, " with tag {tag}"),
            None => f.write_str(" with any tag"),
        }
    }
}

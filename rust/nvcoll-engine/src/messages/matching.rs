//! Matching: receives that wait for a message, and messages that wait for a receive.
//!
//! ```text
//! a message arrives     the first receive that takes it, in order of the calls     else it is kept, behind those that came before
//! a receive is posted   the first message that it takes, in order of arrival       else it is kept, behind those posted before
//! ```
//!
//! Messages of one sender arrive in the order in which it sent them, so of two that a receive takes, it gets the one sent first. This is
//! the rule of MPI. A small message is kept here, a large one stays with its sender, which has offered it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::transfer::{Envelope, MessageBuffer, MessageTransfer};

/// A receive that waits.
#[derive(Debug)]
pub(super) struct PostedReceive {
    pub(super) transfer: Arc<MessageTransfer>,
    pub(super) buffer: MessageBuffer,
}

/// A message that waits.
#[derive(Debug)]
pub(super) struct UnmatchedMessage {
    pub(super) envelope: Envelope,
    pub(super) content: MessageContent,
}

/// Where the bytes of a message are.
#[derive(Debug)]
pub(super) enum MessageContent {
    /// Here.
    Kept(Box<[u8]>),
    /// With the sender.
    Offered(MessageOffer),
}

/// An offer: the number of its frame, and the word for the address of the data.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessageOffer {
    pub(super) number: u64,
    pub(super) address: u64,
}

/// What one rank receives.
#[derive(Debug, Default)]
pub(super) struct Matching {
    pub(super) posted: VecDeque<PostedReceive>,
    pub(super) unmatched: VecDeque<UnmatchedMessage>,
}

impl Matching {
    /// Takes the receive for a message that arrives.
    #[inline]
    pub(super) fn receive_for(&mut self, source: u32, tag: u32) -> Option<PostedReceive> {
        let at = self.posted.iter().position(|posted| posted.transfer.takes(source, tag))?;
        self.posted.remove(at)
    }

    /// Takes the message for a receive that is posted.
    #[inline]
    pub(super) fn message_for(&mut self, transfer: &MessageTransfer) -> Option<UnmatchedMessage> {
        let takes = |message: &UnmatchedMessage| transfer.takes(message.envelope.source, message.envelope.tag);
        let at = self.unmatched.iter().position(takes)?;
        self.unmatched.remove(at)
    }
}

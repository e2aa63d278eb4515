//! The messages of a member. They take no part in its calls: a thread may send while another one is in a collective.

use std::sync::Arc;
use std::time::Instant;

use super::{Member, ENDED, FORKED};
use crate::deadline::{Deadline, WaitLimit};
use crate::error::Result;
use crate::messages::shared_mailbox::SharedMailbox;
use crate::messages::transfer::{MessageBuffer, MessageTransfer};
use crate::sync::condition::IsInterrupted;
use crate::sync::{Cause, WaitEnd};

impl Member {
    /// Begins a send to rank `to`. A small message is on its way when this returns.
    ///
    /// # Safety
    /// The buffer is readable, and nobody writes it, until the transfer has ended.
    ///
    /// # Errors
    /// [`Error::NoMemory`](crate::Error::NoMemory); the cause of an abort; `NoPeer` if the receiver has returned; `Closed` as [`Member::run`].
    pub unsafe fn send(&self, buffer: MessageBuffer, to: u32, tag: u32) -> Result<Arc<MessageTransfer>> {
        // SAFETY: the caller promised it.
        self.mailbox()?.with(|mailbox| unsafe { mailbox.send(&self.world, buffer, to, tag) }).ok_or(ENDED)?
    }

    /// Begins a receive from a rank, or from any, of a message with a tag, or with any. It has ended when this returns, if a small
    /// message was there.
    ///
    /// # Safety
    /// The buffer is writable, and nobody else touches it, until the transfer has ended.
    ///
    /// # Errors
    /// The cause of an abort; `Closed` as [`Member::run`].
    pub unsafe fn receive(
        &self,
        buffer: MessageBuffer,
        from: Option<u32>,
        tag: Option<u32>,
    ) -> Result<Arc<MessageTransfer>> {
        let received = self.mailbox()?.with(|mailbox| {
            mailbox.advance(&self.world);
            // SAFETY: the caller promised it.
            unsafe { mailbox.receive(&self.world, buffer, from, tag) }
        });
        received.ok_or(ENDED)?
    }

    /// Waits until every one of some transfers has ended. It moves all transfers of this member meanwhile. If one fails, all end. When this
    /// returns, nobody touches the buffers any more.
    ///
    /// # Errors
    /// `UnlikeMessage`, `NoPeer`, `Overdue`, `Interrupted`, `Aborted`: afterwards every call of the communicator fails. `Closed` as
    /// [`Member::run`].
    pub async fn finish(&self, transfers: &[Arc<MessageTransfer>], limit: &mut WaitLimit<'_>) -> Result<()> {
        let outcome = self.mailbox()?.finish(&self.world, self.rank, transfers, limit).await;
        self.leave_to_progress_thread();
        outcome
    }

    /// Ends every transfer of this member, and every call of the communicator, because a transfer could not begin that belongs to others.
    pub fn give_up(&self) {
        self.raise(Cause::Failed(self.rank));
    }

    /// Has a transfer move while its call returns, until it ends or its deadline passes: by threads of the rank that wait for messages of
    /// this communicator, else by the progress thread.
    ///
    /// # Errors
    /// `System` if there can be no thread; `Closed` as [`Member::run`].
    pub fn leave_in_flight(&self, transfer: &Arc<MessageTransfer>, deadline: Deadline) -> Result<()> {
        match self.mailbox()?.keep(transfer, deadline) {
            true => self.memberships.progress.watch(&self.this, || ()),
            false => Ok(()),
        }
    }

    /// Waits until a transfer in flight has ended, or until a time, and moves all transfers of this member meanwhile. The transfer fails at
    /// its deadline.
    pub fn attend(
        &self,
        transfer: &Arc<MessageTransfer>,
        deadline: Deadline,
        until: Option<Instant>,
        is_interrupted: IsInterrupted<'_>,
    ) -> WaitEnd {
        let end = self.messages.attend(&self.world, self.rank, transfer, deadline, until, is_interrupted);
        self.leave_to_progress_thread();
        end
    }

    /// Has the progress thread go on where a thread has waited, if transfers are in flight.
    fn leave_to_progress_thread(&self) {
        if self.messages.has_issued() {
            self.memberships.progress.look_again();
        }
    }

    /// Moves the sends of a rank whose program has ended; says whether some are left.
    pub(crate) fn finish_sends(&self) -> bool {
        self.mailbox().is_ok_and(|messages| messages.with(|mailbox| mailbox.finish_sends(&self.world)) == Some(true))
    }

    /// Moves every transfer of this member as far as it goes.
    pub fn advance_messages(&self) {
        if let Ok(messages) = self.mailbox() {
            messages.with(|mailbox| mailbox.advance(&self.world));
        }
    }

    /// Returns the mailbox, whose lock the child of a fork may find locked for ever.
    #[inline]
    pub(super) fn mailbox(&self) -> Result<&SharedMailbox> {
        match self.process.is_current() {
            true => Ok(&self.messages),
            false => Err(FORKED),
        }
    }
}

//! The messages of a member. They take no part in its calls: a thread may send while another one is in a collective.

use std::sync::Arc;
use std::time::Instant;

use super::{Member, ENDED, FORKED};
use crate::deadline::{Deadline, WaitLimit};
use crate::error::Result;
use crate::messages::shared_mailbox::SharedMailbox;
use crate::messages::transfer::{Envelope, MessageBuffer, MessageTransfer};
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

    /// Takes a message of a rank of another host, which another carrier has brought. Its source is behind the ranks of this world. The first
    /// receive that takes it gets it; else it is kept.
    ///
    /// # Errors
    /// The cause of an abort; `Closed` as [`Member::run`].
    ///
    /// # Panics
    /// If the source is a rank of this world, or `data` is no message of this length.
    pub fn deliver(&self, envelope: Envelope, data: &[u8]) -> Result<()> {
        assert!(envelope.source >= self.world.world_size(), "rank {} is on this host", envelope.source);
        self.mailbox()?.with(|mailbox| mailbox.deliver(&self.world, envelope, data)).ok_or(ENDED)?
    }

    /// Says whether a receive waits for a message that a rank may send, which may be on another host.
    pub fn awaits(&self, source: u32) -> bool {
        self.mailbox().is_ok_and(|messages| messages.with(|mailbox| mailbox.awaits(source)) == Some(true))
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::memory::world::World;
    use crate::ranks::memberships::Memberships;
    use nvcoll_core::dtype::DType;

    /// The number of the first rank on another host, since the world of the test has one.
    const FAR: u32 = 1;

    fn alone() -> Arc<Member> {
        Member::join(Arc::new(World::new(1)), 0, Arc::<Memberships<Member>>::default())
    }

    fn receive(member: &Member, into: &mut [u8], from: Option<u32>, tag: Option<u32>) -> Arc<MessageTransfer> {
        let buffer = MessageBuffer { address: into.as_mut_ptr(), bytes: into.len(), dtype: DType::U8, at_end: None };
        // SAFETY: the tests keep the arrays until the transfers have ended, or forget the member with them.
        unsafe { member.receive(buffer, from, tag) }.unwrap()
    }

    fn deliver(member: &Member, tag: u32, data: &[u8]) -> Result<()> {
        member.deliver(Envelope { source: FAR, tag, dtype: DType::U8, bytes: data.len() }, data)
    }

    #[test]
    fn a_message_of_another_host_takes_the_first_receive_that_fits_or_waits_for_one() {
        let (member, mut early, mut late, mut any) = (alone(), [0; 2], [0; 2], [0; 2]);
        let first = receive(&member, &mut early, Some(FAR), Some(7));
        assert!(member.awaits(FAR) && !member.awaits(FAR + 1));
        deliver(&member, 8, &[3, 4]).unwrap();
        assert!(first.outcome().is_none());
        deliver(&member, 7, &[1, 2]).unwrap();
        assert_eq!(first.outcome().unwrap().as_ref().unwrap().source, FAR);
        assert!(!member.awaits(FAR));
        assert!(receive(&member, &mut late, Some(FAR), None).outcome().is_some());
        let second = receive(&member, &mut any, None, None);
        assert!(second.outcome().is_none() && member.awaits(FAR) && member.awaits(FAR + 1));
        deliver(&member, 9, &[5, 6]).unwrap();
        assert!(second.outcome().is_some());
        assert_eq!([early, late, any], [[1, 2], [3, 4], [5, 6]]);
    }

    #[test]
    fn a_message_of_another_host_that_does_not_fit_ends_the_communicator() {
        let (member, mut array) = (alone(), [0; 2]);
        let unlike = receive(&member, &mut array, Some(FAR), None);
        deliver(&member, 4, &[1, 2, 3]).unwrap();
        let ended = unlike.outcome().unwrap();
        assert!(matches!(ended, Err(Error::UnlikeMessage { sender: FAR, receiver: 0, tag: 4, .. })), "{ended:?}");
        assert_eq!(array, [0; 2]);
        assert!(deliver(&member, 4, &[1, 2]).is_err());
    }
}

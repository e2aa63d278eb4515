//! The messages of a member. They take no part in its calls: a thread may send while another one is in a collective. A rank that waits
//! in a collective moves its messages meanwhile.

use std::sync::{Arc, MutexGuard};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{Member, ENDED, FORKED};
use crate::deadline::{Deadline, WaitLimit};
use crate::error::{Error, Result};
use crate::messages::mailbox::Mailbox;
use crate::messages::transfer::{MessageBuffer, MessageTransfer};
use crate::sync::atomic::pause;
use crate::sync::condition::{WaitEnd, QUESTION};
use crate::sync::Cause;

const IN_USE: Error = Error::Busy(
    "another thread sends or receives with the communicator: a thread at a time, or a communicator for each",
);

/// The longest sleep of a rank while another of its threads moves its transfers. Chosen.
const LONGEST_SLEEP: Duration = Duration::from_micros(100);

impl Member {
    /// Begins a send to rank `to`. A small message is on its way when this returns.
    ///
    /// # Safety
    /// The buffer is readable, and nobody writes it, until the transfer has ended.
    ///
    /// # Errors
    /// [`Error::NoMemory`]; the cause of an abort; `NoPeer` if the receiver has returned; `Closed` and `Busy` as [`Member::run`].
    pub unsafe fn send(&self, buffer: MessageBuffer, to: u32, tag: u32) -> Result<Arc<MessageTransfer>> {
        let mut mailbox = self.mailbox_of_visitor()?;
        // SAFETY: the caller promised it.
        unsafe { mailbox.as_mut().ok_or(ENDED)?.send(&self.world, buffer, to, tag) }
    }

    /// Begins a receive from a rank, or from any, of a message with a tag, or with any. It has ended when this returns, if a small
    /// message was there.
    ///
    /// # Safety
    /// The buffer is writable, and nobody else touches it, until the transfer has ended.
    ///
    /// # Errors
    /// The cause of an abort; `Closed` and `Busy` as [`Member::run`].
    pub unsafe fn receive(
        &self,
        buffer: MessageBuffer,
        from: Option<u32>,
        tag: Option<u32>,
    ) -> Result<Arc<MessageTransfer>> {
        let mut mailbox = self.mailbox_of_visitor()?;
        let mailbox = mailbox.as_mut().ok_or(ENDED)?;
        mailbox.advance(&self.world);
        // SAFETY: the caller promised it.
        unsafe { mailbox.receive(&self.world, buffer, from, tag) }
    }

    /// Waits until every one of some transfers has ended. It moves all transfers of this member meanwhile. If one fails, all end. When this
    /// returns, nobody touches the buffers any more.
    ///
    /// # Errors
    /// `UnlikeMessage`, `NoPeer`, `Overdue`, `Interrupted`, `Aborted`: afterwards every call of the communicator fails. `Closed` as
    /// [`Member::run`].
    pub fn finish(
        &self,
        transfers: &[Arc<MessageTransfer>],
        deadline: Deadline,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let mut limit = WaitLimit { deadline, is_interrupted };
        loop {
            match self.mailbox() {
                Ok(mut mailbox) => {
                    let pause_at = self.is_tended().then(|| Instant::now() + QUESTION);
                    mailbox.as_mut().ok_or(ENDED)?.wait(&self.world, transfers, &mut limit, pause_at)?;
                    if pause_at.is_none() {
                        return Ok(());
                    }
                }
                Err(IN_USE) => {}
                Err(error) => return Err(error),
            }
            // The thread that has the mailbox moves these transfers too, and ends them if the world is aborted.
            if transfers.iter().all(|transfer| transfer.outcome().is_some()) {
                let outcomes = transfers.iter().filter_map(|transfer| transfer.outcome());
                return outcomes.cloned().find_map(Result::err).map_or(Ok(()), Err);
            }
            if limit.deadline.has_passed() {
                self.raise(Cause::TimedOut(self.rank));
            } else if (limit.is_interrupted)() {
                self.raise(Cause::Interrupted(self.rank));
            }
            match self.is_tended() {
                true => self.wait_for_visitors(),
                false => sleep(LONGEST_SLEEP),
            }
        }
    }

    /// Ends every transfer of this member, and every call of the communicator, because a transfer could not begin that belongs to others.
    pub fn give_up(&self) {
        self.raise(Cause::Failed(self.rank));
    }

    /// Waits until a transfer has ended, or until a time, and moves all transfers of this member meanwhile. The transfer fails at its
    /// deadline.
    pub fn drive(
        &self,
        transfer: &Arc<MessageTransfer>,
        deadline: Deadline,
        until: Option<Instant>,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> WaitEnd {
        while transfer.outcome().is_none() {
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                return WaitEnd::TimedOut;
            }
            if is_interrupted() {
                return WaitEnd::Interrupted;
            }
            let pause_at = until.map_or(now + QUESTION, |until| until.min(now + QUESTION));
            match self.mailbox().as_deref_mut() {
                Ok(Some(mailbox)) => {
                    let mut limit = WaitLimit { deadline, is_interrupted: &mut || false };
                    // The outcome of the transfer says what went wrong.
                    _ = mailbox.wait(&self.world, std::slice::from_ref(transfer), &mut limit, Some(pause_at));
                }
                _ => sleep(LONGEST_SLEEP),
            }
            self.wait_for_visitors();
        }
        WaitEnd::Over
    }

    /// Looks once at a transfer: moves all transfers of this member, unless another thread does, and ends this one if its time is up or its
    /// peer is gone.
    pub fn poll(&self, transfer: &Arc<MessageTransfer>, deadline: Deadline) {
        if let Ok(Some(mailbox)) = self.mailbox().as_deref_mut() {
            let mut limit = WaitLimit { deadline, is_interrupted: &mut || false };
            // The outcome of the transfer says what went wrong.
            _ = mailbox.poll(&self.world, std::slice::from_ref(transfer), &mut limit);
        }
    }

    /// Moves the sends of a rank whose program has ended; says whether some are left.
    pub(crate) fn finish_sends(&self) -> bool {
        let _visit = self.come_in();
        match self.mailbox_of_visitor().as_deref_mut() {
            Ok(Some(mailbox)) => mailbox.finish_sends(&self.world),
            _ => false,
        }
    }

    /// Moves every transfer of this member as far as it goes, unless another thread does.
    pub fn advance_messages(&self) {
        if let Ok(Some(mailbox)) = self.mailbox().as_deref_mut() {
            if mailbox.is_used() {
                mailbox.advance(&self.world);
            }
        }
    }

    /// Moves messages whenever a wait in a call asks whether it is interrupted.
    pub(super) fn while_messages_move<'a>(
        &'a self,
        is_interrupted: &'a mut (dyn FnMut() -> bool + 'a),
    ) -> impl FnMut() -> bool + 'a {
        move || {
            self.advance_messages();
            is_interrupted()
        }
    }

    /// Returns the mailbox to a thread that moves transfers; not while a visitor needs it.
    #[inline]
    pub(super) fn mailbox(&self) -> Result<MutexGuard<'_, Option<Mailbox>>> {
        if !self.process.is_current() {
            return Err(FORKED);
        }
        let mailbox = self.messages.try_lock().map_err(|_| IN_USE)?;
        match self.has_visitors() {
            false => Ok(mailbox),
            true => Err(IN_USE),
        }
    }

    /// Returns the mailbox to a visitor, or to the only thread that uses it.
    #[inline]
    pub(super) fn mailbox_of_visitor(&self) -> Result<MutexGuard<'_, Option<Mailbox>>> {
        if !self.process.is_current() {
            return Err(FORKED);
        }
        loop {
            match self.messages.try_lock() {
                Ok(mailbox) => return Ok(mailbox),
                // Another thread looks whether a visitor has come: see `MailboxVisit`.
                Err(_) if self.is_tended() => pause(),
                Err(_) => return Err(IN_USE),
            }
        }
    }
}

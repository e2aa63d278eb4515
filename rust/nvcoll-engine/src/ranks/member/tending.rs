//! Messages of a member that move in the background: see `ranks/tender.rs`.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::sleep;
use std::time::Duration;

use super::Member;
use crate::deadline::{Deadline, WaitLimit};
use crate::error::Result;
use crate::messages::transfer::MessageTransfer;
use crate::ranks::tender::HasMessages;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Doorbell, Visitors};

/// The sleep of a visitor between two looks. Chosen: a poll takes microseconds.
const LOOK: Duration = Duration::from_micros(20);

/// What a member knows of its tender.
#[derive(Debug, Default)]
pub(crate) struct Tending {
    is_on: AtomicBool,
    transfers: Mutex<Vec<(Weak<MessageTransfer>, Deadline)>>,
    /// The threads that need the mailbox now. Threads that wait for a transfer leave it to them.
    pub(super) visitors: Arc<Visitors>,
}

impl Tending {
    fn pending(&self) -> Vec<(Arc<MessageTransfer>, Deadline)> {
        let mut transfers = self.transfers.lock().unwrap_or_else(PoisonError::into_inner);
        transfers.retain(|(transfer, _)| transfer.upgrade().is_some_and(|transfer| transfer.outcome().is_none()));
        transfers.iter().filter_map(|(transfer, deadline)| Some((transfer.upgrade()?, *deadline))).collect()
    }
}

/// A thread that needs the mailbox of a member for a moment: see `sync/visitors.rs`. Its drop gives the mailbox back.
#[derive(Debug)]
pub struct MailboxVisit<'a>(&'a Member);

impl MailboxVisit<'_> {
    /// Says whether nobody uses the mailbox.
    pub fn is_free(&self) -> bool {
        self.0.messages.try_lock().is_ok()
    }

    /// Waits until nobody uses the mailbox. A thread with the interpreter's lock must not call it.
    pub fn wait(&self) {
        while !self.is_free() {
            sleep(LOOK);
        }
    }
}

impl Drop for MailboxVisit<'_> {
    fn drop(&mut self) {
        self.0.tending.visitors.leave();
    }
}

impl Member {
    /// Has messages in flight move in the background, from now on.
    pub fn move_in_background(&self) {
        // Relaxed: who calls this begins transfers afterwards.
        self.tending.is_on.store(true, Ordering::Relaxed);
    }

    /// Says whether messages in flight move in the background.
    #[inline]
    pub fn is_tended(&self) -> bool {
        // Relaxed: as above.
        self.tending.is_on.load(Ordering::Relaxed)
    }

    /// Has a transfer move in the background until it ends or its deadline passes.
    ///
    /// # Errors
    /// `System` if there can be no thread.
    pub fn tend(self: &Arc<Self>, transfer: &Arc<MessageTransfer>, deadline: Deadline) -> Result<()> {
        if transfer.outcome().is_some() {
            return Ok(());
        }
        let mut transfers = self.tending.transfers.lock().unwrap_or_else(PoisonError::into_inner);
        transfers.push((Arc::downgrade(transfer), deadline));
        drop(transfers);
        self.memberships.tender.tend(self)
    }

    /// Asks the threads that use the mailbox to leave it, if messages move in the background.
    pub fn visit(&self) -> Option<MailboxVisit<'_>> {
        if !self.is_tended() || !self.process.is_current() {
            return None;
        }
        self.tending.visitors.arrive();
        let visit = MailboxVisit(self);
        if !visit.is_free() {
            Doorbell::ring_all(self.world.lines[self.rank as usize].bells());
        }
        Some(visit)
    }

    /// Visits, and waits until nobody uses the mailbox. A thread with the interpreter's lock must not call it.
    pub(super) fn come_in(&self) -> Option<MailboxVisit<'_>> {
        let visit = self.visit();
        visit.as_ref().inspect(|visit| visit.wait());
        visit
    }

    /// Says whether a visitor needs the mailbox, to a thread that has just locked it.
    #[inline]
    pub(super) fn has_visitors(&self) -> bool {
        self.is_tended() && self.tending.visitors.are_there()
    }

    /// Waits until visitors have gone.
    pub(super) fn wait_for_visitors(&self) {
        while !self.tending.visitors.have_left() {
            sleep(LOOK);
        }
    }
}

impl HasMessages for Member {
    fn has_tended(&self) -> bool {
        !self.tending.pending().is_empty()
    }

    fn poll_tended(&self) -> bool {
        let pending = self.tending.pending();
        if pending.is_empty() {
            return false;
        }
        let transfers: Vec<_> = pending.iter().map(|(transfer, _)| transfer.clone()).collect();
        let first = pending.iter().min_by_key(|(_, deadline)| (deadline.at().is_none(), deadline.at()));
        let deadline = first.map_or_else(Deadline::default, |&(_, deadline)| deadline);
        let Ok(mut mailbox) = self.mailbox() else { return false };
        let Some(mailbox) = mailbox.as_mut() else { return false };
        if mailbox.advance(&self.world) {
            return true;
        }
        // The outcomes of the transfers say what went wrong.
        _ = mailbox.poll(&self.world, &transfers, &mut WaitLimit { deadline, is_interrupted: &mut || false });
        false
    }
}

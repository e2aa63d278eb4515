//! The mailbox of a rank, as its threads share it: each locks it for moments, and nobody sleeps with the lock.
//!
//! ```text
//! call of a thread      lock, begin or move transfers, unlock, tell what has ended
//! wait for transfers    lock, move all, unlock; sleep at the bell of messages, as many threads as like
//! progress thread       moves the transfers whose calls have returned, unless a thread waits here
//! ```
//!
//! Who holds Python's lock may wait for this one: under it nobody asks for Python's. That is why ends are told afterwards.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use super::mailbox::Mailbox;
use super::transfer::MessageTransfer;
use crate::deadline::{Deadline, WaitLimit};
use crate::error::{Error, Result};
use crate::memory::world::notice::Notice;
use crate::memory::world::World;
use crate::run::fault::Moment;
use crate::run::wait::{fly, look, now, Advance, Flight};
use crate::run::wait_graph::WaitGraph;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::condition::{IsInterrupted, QUESTION};
use crate::sync::record::WORDS;
use crate::sync::{Cause, Doorbell, WaitEnd};

/// The mailbox of a rank. It is closed when the program of the rank has ended.
#[derive(Debug)]
pub(crate) struct SharedMailbox {
    mailbox: Mutex<Option<Mailbox>>,
    /// The number of threads that wait for transfers, and move all meanwhile.
    waiting: AtomicU32,
}

impl SharedMailbox {
    /// Makes the mailbox of a rank that has sent nothing yet.
    pub(crate) fn new(world_size: u32, own: u32) -> Self {
        Self { mailbox: Mutex::new(Some(Mailbox::new(world_size, own))), waiting: AtomicU32::new(0) }
    }

    /// Does something with the mailbox, and tells what has ended; `None` if it is closed.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Mailbox) -> T) -> Option<T> {
        use_locked(self.lock(), work)
    }

    /// Does something with the mailbox, unless it is closed or locked.
    fn with_free<T>(&self, work: impl FnOnce(&mut Mailbox) -> T) -> Option<T> {
        match self.mailbox.try_lock() {
            Ok(mailbox) => use_locked(mailbox, work),
            Err(TryLockError::Poisoned(mailbox)) => use_locked(mailbox.into_inner(), work),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Mailbox>> {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether a thread waits for transfers.
    pub(crate) fn is_in_a_wait(&self) -> bool {
        // Acquire: pairs with the Release at the end of a wait.
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Closes it: all transfers end with this error.
    pub(crate) fn close(&self, world: &World, error: &Error) {
        let closed = self.lock().take();
        if let Some(mut mailbox) = closed {
            mailbox.end_all(world, error);
            mailbox.take_ended().iter().for_each(|transfer| transfer.tell());
        }
    }

    /// Waits until every one of some transfers has ended, and moves all transfers of the rank meanwhile. If one fails, all end. When this
    /// returns, nobody touches their buffers any more.
    pub(crate) async fn finish(
        &self,
        world: &World,
        own: u32,
        transfers: &[Arc<MessageTransfer>],
        limit: &mut WaitLimit<'_>,
    ) -> Result<()> {
        let mut never = || None;
        let mut flight = TransfersFlight::new(self, world, own, transfers, &mut never);
        let ended = self.wait(&mut flight, limit).await;
        let wait_graph = flight.wait_graph;
        let of_transfers = || outcome_of(transfers).unwrap_or(Ok(()));
        let outcome = self.with(|mailbox| match (ended, of_transfers()) {
            (Err(cause), _) => Err(mailbox.fail(world, transfers, limit, &wait_graph, cause)),
            (Ok(()), Ok(())) => {
                mailbox.strike_at(world, Moment::Leave);
                Ok(())
            }
            (Ok(()), Err(error)) => {
                // The others have arrays of the same caller.
                mailbox.end_all(world, &error);
                Err(error)
            }
        });
        outcome.unwrap_or_else(of_transfers)
    }

    /// Waits until a transfer whose call has returned has ended, or until a time, or until the user interrupts. It fails at its deadline.
    pub(crate) fn attend(
        &self,
        world: &World,
        own: u32,
        transfer: &Arc<MessageTransfer>,
        deadline: Deadline,
        until: Option<Instant>,
        is_interrupted: IsInterrupted<'_>,
    ) -> WaitEnd {
        let (mut end, mut next_question, transfers) = (None, Instant::now() + QUESTION, std::slice::from_ref(transfer));
        let mut pause = || {
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                end = Some(WaitEnd::TimedOut);
            } else if now >= next_question {
                next_question = now + QUESTION;
                end = is_interrupted().then_some(WaitEnd::Interrupted);
            }
            end
        };
        let new = TransfersFlight::new(self, world, own, transfers, &mut pause);
        let mut flight = TransfersFlight { until, ..new };
        let mut never = || false;
        let mut limit = WaitLimit::new(deadline, &mut never);
        if let Err(cause) = now(self.wait(&mut flight, &mut limit)) {
            let wait_graph = flight.wait_graph;
            // The outcome of the transfer says what went wrong.
            _ = self.with(|mailbox| mailbox.fail(world, transfers, &mut limit, &wait_graph, cause));
        }
        transfer.outcome().map_or_else(|| end.unwrap_or(WaitEnd::TimedOut), |_| WaitEnd::Over)
    }

    async fn wait<'a>(
        &self,
        flight: &mut TransfersFlight<'a, '_>,
        limit: &mut WaitLimit<'_>,
    ) -> std::result::Result<(), Cause> {
        // Relaxed: the progress thread may look once more.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let ended = fly(flight, limit).await;
        // Release: pairs with the Acquire in `is_in_a_wait`.
        self.waiting.fetch_sub(1, Ordering::Release);
        ended
    }

    /// Keeps a transfer whose call returns until it ends; says whether it has not ended yet.
    pub(crate) fn keep(&self, transfer: &Arc<MessageTransfer>, deadline: Deadline) -> bool {
        let is_pending = || transfer.outcome().is_none();
        let is_kept = self.with(|mailbox| is_pending().then(|| mailbox.keep(transfer.clone(), deadline)).is_some());
        // It may have ended before it was kept, on another thread.
        transfer.tell();
        is_kept == Some(true) && is_pending()
    }

    /// Says whether transfers are in flight whose calls have returned.
    pub(crate) fn has_issued(&self) -> bool {
        self.with(|mailbox| mailbox.has_issued()) == Some(true)
    }

    /// Moves the transfers whose calls have returned, unless a thread waits here; returns `Over` if there is none.
    pub(crate) fn advance_issued(&self, world: &World, own: u32) -> Advance {
        if self.is_in_a_wait() {
            return Advance::Waits;
        }
        let advance = |mailbox: &mut Mailbox| {
            let (transfers, deadline) = mailbox.issued();
            if transfers.is_empty() {
                return (Advance::Over, None);
            }
            match mailbox.advance(world) {
                true => (Advance::Moved, None),
                false => (Advance::Waits, Some((transfers, deadline))),
            }
        };
        let Some((came, pending)) = self.with_free(advance) else { return Advance::Waits };
        if let Some((transfers, deadline)) = pending {
            let mut limit = WaitLimit::of_issued(deadline);
            let mut never = || None;
            let mut flight = TransfersFlight::new(self, world, own, &transfers, &mut never);
            if let Err(cause) = look(&mut flight, &mut limit) {
                let wait_graph = flight.wait_graph;
                // The outcomes of the transfers say what went wrong.
                _ = self.with(|mailbox| mailbox.fail(world, &transfers, &mut limit, &wait_graph, cause));
                return Advance::Moved;
            }
        }
        came
    }
}

/// Does something with a locked mailbox, and tells what has ended when it is free again.
fn use_locked<T>(mut locked: MutexGuard<'_, Option<Mailbox>>, work: impl FnOnce(&mut Mailbox) -> T) -> Option<T> {
    let mailbox = locked.as_mut()?;
    let done = work(mailbox);
    let ended = mailbox.take_ended();
    drop(locked);
    ended.iter().for_each(|transfer| transfer.tell());
    Some(done)
}

/// Some transfers of a rank, for which a thread waits.
struct TransfersFlight<'a, 'transfers> {
    mailbox: &'transfers SharedMailbox,
    world: &'a World,
    own: u32,
    transfers: &'transfers [Arc<MessageTransfer>],
    /// Says how the wait ends before the transfers do.
    pause: &'transfers mut (dyn FnMut() -> Option<WaitEnd> + Send),
    until: Option<Instant>,
    wait_graph: WaitGraph,
}

impl<'a, 'transfers> TransfersFlight<'a, 'transfers> {
    fn new(
        mailbox: &'transfers SharedMailbox,
        world: &'a World,
        own: u32,
        transfers: &'transfers [Arc<MessageTransfer>],
        pause: &'transfers mut (dyn FnMut() -> Option<WaitEnd> + Send),
    ) -> Self {
        Self { mailbox, world, own, transfers, pause, until: None, wait_graph: WaitGraph::default() }
    }

    fn pending(&self) -> impl Iterator<Item = &Arc<MessageTransfer>> {
        self.transfers.iter().filter(|transfer| transfer.outcome().is_none())
    }
}

impl<'a> Flight<'a> for TransfersFlight<'a, '_> {
    fn advance(&mut self) -> std::result::Result<Advance, Cause> {
        if outcome_of(self.transfers).is_some() {
            return Ok(Advance::Over);
        }
        // A mailbox that is closed has ended its transfers.
        let has_moved = self.mailbox.with(|mailbox| mailbox.advance(self.world)).unwrap_or(false);
        Ok(match outcome_of(self.transfers).is_some() || (self.pause)().is_some() {
            true => Advance::Over,
            false if has_moved => Advance::Moved,
            false => Advance::Waits,
        })
    }

    fn world(&self) -> &'a World {
        self.world
    }

    fn bell(&self) -> &'a Doorbell {
        self.world.lines[self.own as usize].message_bell()
    }

    fn until(&self) -> Option<Instant> {
        self.until
    }

    fn rank(&self) -> u32 {
        self.own
    }

    fn look_who_left(&mut self) -> Option<Cause> {
        self.mailbox.with(|mailbox| mailbox.look_who_left(self.world, self.transfers))?
    }

    fn notice(&self) -> Option<Notice> {
        let named = self.pending().filter_map(|transfer| transfer.direction.peer());
        let awaited = named.filter_map(|rank| self.world.ranks().get(rank as usize).copied()).collect();
        let mut pending = self.pending();
        let record = pending.next().map_or([0; WORDS], |first| first.record(pending.count()));
        Some(Notice { world: *self.world.name(), call: 0, record, awaited, since_ns: 0, until_ns: 0 })
    }

    fn keep_wait_graph(&mut self, found: WaitGraph) {
        self.wait_graph = found;
    }
}

/// Returns the outcome of some transfers together, once all have ended or one has failed.
#[inline]
fn outcome_of(transfers: &[Arc<MessageTransfer>]) -> Option<Result<()>> {
    let mut is_over = true;
    for transfer in transfers {
        match transfer.outcome() {
            None => is_over = false,
            Some(Ok(_)) => {}
            Some(Err(error)) => return Some(Err(error.clone())),
        }
    }
    is_over.then_some(Ok(()))
}

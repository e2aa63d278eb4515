//! The mailbox of a rank: its streams, its transfers, and its waits for them.

use std::sync::Arc;
use std::time::Instant;

use super::incoming::{Incoming, OfferedReceive, StreamFailure};
use super::matching::{Matching, MessageContent, PostedReceive, UnmatchedMessage};
use super::outgoing::{Outgoing, PendingSend};
use super::stream::{MessageStream, StreamWords};
use super::transfer::{Direction, Envelope, MessageBuffer, MessageTransfer};
use crate::deadline::WaitLimit;
use crate::error::{Error, Result};
use crate::memory::world::notice::Notice;
use crate::memory::world::notice_board::PostedNotice;
use crate::memory::world::World;
use crate::run::doings::doings;
use crate::run::fault::{Fault, Moment};
use crate::run::quiesce::{ring_everybody, sleep_until_quiet};
use crate::run::report::{error_of, timed_out_before};
use crate::sync::atomic::pause;
use crate::sync::backoff::{give_way, Backoff, Next};
use crate::sync::record::WORDS;
use crate::sync::{Cause, Doorbell, Pair, Visitors};

/// The messages of one rank. One thread at a time uses it.
#[derive(Debug)]
pub(crate) struct Mailbox {
    own: u32,
    outgoing: Vec<Option<Box<Outgoing>>>,
    incoming: Vec<Option<Box<Incoming>>>,
    matching: Matching,
    /// What its peers did when its time was up; begins with a semicolon.
    doings: String,
    /// The number of sends and receives that it has begun.
    begun: u32,
    /// The threads that need the mailbox now.
    visitors: Arc<Visitors>,
    /// What a test has asked to happen. A step is a move of any transfer.
    fault: Option<Box<Fault>>,
}

impl Mailbox {
    /// Makes the mailbox of a rank that has sent nothing yet. A wait that may pause leaves the mailbox to `visitors`.
    pub(crate) fn new(world_size: u32, own: u32, visitors: Arc<Visitors>) -> Self {
        let (outgoing, incoming) = ((0..world_size).map(|_| None).collect(), (0..world_size).map(|_| None).collect());
        let (matching, doings) = Default::default();
        Self { own, outgoing, incoming, matching, doings, begun: 0, visitors, fault: None }
    }

    /// Has a fault strike in a send or receive, `calls` after the next.
    pub(crate) fn arm(&mut self, calls: u32, fault: impl FnOnce(u32) -> Fault) {
        self.fault = Some(Box::new(fault(self.begun.wrapping_add(1).wrapping_add(calls))));
    }

    /// Has a fault strike, if a test has asked for one at this moment.
    #[inline]
    fn come_to(&mut self, world: &World, moment: Moment) {
        if self.fault.as_mut().is_some_and(|fault| fault.reach(self.begun, moment)) {
            world.abort().raise(Cause::Failed(self.own));
            ring_everybody(world);
        }
    }

    /// Begins a send.
    ///
    /// # Safety
    /// The buffer is readable, and nobody writes it, until the transfer has ended.
    ///
    /// # Errors
    /// [`Error::NoMemory`] for the stream; the cause of an abort; the end of the receiver.
    pub(crate) unsafe fn send(
        &mut self,
        world: &World,
        buffer: MessageBuffer,
        to: u32,
        tag: u32,
    ) -> Result<Arc<MessageTransfer>> {
        self.begun = self.begun.wrapping_add(1);
        self.come_to(world, Moment::Before);
        self.check(world)?;
        let transfer = Arc::new(MessageTransfer::new(Direction::To(to), Some(tag), &buffer));
        if let Some(error) = self.who_left(world, &transfer) {
            return Err(error);
        }
        if self.outgoing[to as usize].is_none() {
            self.outgoing[to as usize] = Some(Box::new(Outgoing::new(open(world, self.own, to)?, to)));
        }
        let envelope = Envelope { source: self.own, tag, dtype: buffer.dtype, bytes: buffer.bytes };
        let sending = PendingSend { transfer: transfer.clone(), envelope, buffer };
        let outgoing = self.outgoing[to as usize].as_mut().expect("it was just made");
        if outgoing.begin(world, self.own, sending) {
            Doorbell::ring_all(world.lines[to as usize].bells());
        }
        self.come_to(world, Moment::After(0));
        Ok(transfer)
    }

    /// Begins a receive.
    ///
    /// # Safety
    /// The buffer is writable, and nobody else touches it, until the transfer has ended.
    ///
    /// # Errors
    /// The cause of an abort.
    pub(crate) unsafe fn receive(
        &mut self,
        world: &World,
        buffer: MessageBuffer,
        from: Option<u32>,
        tag: Option<u32>,
    ) -> Result<Arc<MessageTransfer>> {
        self.begun = self.begun.wrapping_add(1);
        self.come_to(world, Moment::Before);
        self.check(world)?;
        let transfer = Arc::new(MessageTransfer::new(Direction::From(from), tag, &buffer));
        let Some(UnmatchedMessage { envelope, content }) = self.matching.message_for(&transfer) else {
            self.matching.posted.push_back(PostedReceive { transfer: transfer.clone(), buffer });
            self.come_to(world, Moment::After(0));
            return Ok(transfer);
        };
        let incoming = self.incoming[envelope.source as usize].as_mut().expect("a message came from it");
        let outcome = match content {
            MessageContent::Kept(kept) => incoming.deliver_kept(self.own, envelope, &kept, &transfer, buffer),
            MessageContent::Offered(offer) => {
                incoming.begin(self.own, OfferedReceive { transfer: transfer.clone(), buffer, envelope, offer })
            }
        };
        self.note(world, outcome);
        self.come_to(world, Moment::After(0));
        Ok(transfer)
    }

    /// Says whether a transfer has begun that has not ended.
    pub(crate) fn is_used(&self) -> bool {
        !self.matching.posted.is_empty()
            || self.outgoing.iter().flatten().any(|end| !end.is_idle())
            || self.incoming.iter().flatten().any(|end| !end.is_idle())
    }

    /// Moves every transfer as far as it goes; says whether something moved.
    pub(crate) fn advance(&mut self, world: &World) -> bool {
        let mut has_moved = false;
        for peer in 0..world.world_size() {
            let mut moved = false;
            if self.incoming[peer as usize].is_none() {
                self.incoming[peer as usize] =
                    find(world, peer, self.own).map(|stream| Box::new(Incoming::new(stream, peer)));
            }
            if let Some(incoming) = &mut self.incoming[peer as usize] {
                let outcome = incoming.advance(world, self.own, &mut self.matching);
                moved = matches!(outcome, Ok(true));
                self.note(world, outcome.map(drop));
            }
            if let Some(outgoing) = self.outgoing[peer as usize].as_mut().filter(|outgoing| !outgoing.is_idle()) {
                moved |= outgoing.advance(world, self.own);
            }
            if moved {
                Doorbell::ring_all(world.lines[peer as usize].bells());
            }
            has_moved |= moved;
        }
        if has_moved {
            self.come_to(world, Moment::After(1));
        }
        has_moved
    }

    /// Waits until every one of some transfers has ended, or until a pause. If one fails, or the wait ends otherwise, all transfers of
    /// the rank end.
    ///
    /// # Errors
    /// That of the first that failed; the cause of an abort; the end of a peer; the deadline.
    pub(crate) fn wait(
        &mut self,
        world: &World,
        transfers: &[Arc<MessageTransfer>],
        limit: &mut WaitLimit<'_>,
        pause_at: Option<Instant>,
    ) -> Result<()> {
        let (mut backoff, mut posted) = (Backoff::of_rank(), None);
        loop {
            match outcome_of(transfers) {
                None => {}
                Some(Ok(())) => {
                    self.come_to(world, Moment::Leave);
                    return Ok(());
                }
                Some(Err(error)) => {
                    // The others have arrays of the same caller.
                    self.end_all(world, &error);
                    return Err(error);
                }
            }
            if self.advance(world) {
                backoff = Backoff::of_rank();
                self.look_at_limit(world, transfers, limit, world.abort().cause())?;
                if self.is_to_pause(pause_at) {
                    return Ok(());
                }
                continue;
            }
            let next = backoff.look();
            if next == Next::Pause {
                pause();
                continue;
            }
            self.look_at_time(world, transfers, limit, &mut posted)?;
            if self.is_to_pause(pause_at) {
                return Ok(());
            }
            if next == Next::GiveWay {
                give_way();
                continue;
            }
            self.look_who_left(world, transfers, limit)?;
            self.post(world, transfers, &mut posted, false);
            let lines = &world.lines[self.own as usize];
            let mut has_news = || {
                let is_over = self.advance(world) || outcome_of(transfers).is_some() || world.abort().cause().is_some();
                is_over || self.is_to_pause(pause_at)
            };
            let until = [limit.deadline.at(), pause_at].into_iter().flatten().min();
            lines.message_bell().sleep(&mut has_news, until);
        }
    }

    /// Says whether a wait gives the mailbox back for a while: at its time, or to a visitor.
    #[inline]
    fn is_to_pause(&self, pause_at: Option<Instant>) -> bool {
        // A visitor rings after it has come.
        pause_at.is_some_and(|at| self.visitors.are_waiting() || Instant::now() >= at)
    }

    /// Moves every transfer once, and ends all if one of some has no time left or nobody to wait for, as [`Mailbox::wait`] does.
    ///
    /// # Errors
    /// As [`Mailbox::wait`].
    pub(crate) fn poll(
        &mut self,
        world: &World,
        transfers: &[Arc<MessageTransfer>],
        limit: &mut WaitLimit<'_>,
    ) -> Result<()> {
        if self.advance(world) || outcome_of(transfers).is_some() {
            return Ok(());
        }
        self.look_at_time(world, transfers, limit, &mut None)?;
        self.look_who_left(world, transfers, limit)
    }

    /// Moves the sends of a rank whose program has ended, and says whether some are left. Those end that nobody will receive.
    pub(crate) fn finish_sends(&mut self, world: &World) -> bool {
        if self.outgoing.iter().flatten().all(|outgoing| outgoing.is_idle()) {
            return false;
        }
        self.advance(world);
        if let Err(error) = self.check(world) {
            self.end_all(world, &error);
        }
        for to in 0..world.world_size() {
            let is_pending = self.outgoing[to as usize].as_ref().is_some_and(|outgoing| !outgoing.is_idle());
            if is_pending && (to == self.own || world.lines[to as usize].departure.has_ended()) {
                self.close(world, |peer| peer == to);
                for PendingSend { transfer, buffer, .. } in
                    self.outgoing[to as usize].iter_mut().flat_map(|end| end.drain())
                {
                    let what = transfer.to_string();
                    transfer.end(Err(Error::NoPeer { rank: to, waiter: self.own, what }), buffer);
                }
            }
        }
        true
    }

    /// Ends the wait as [`Mailbox::look_at_limit`] does; finds out what the peers do if the time is up.
    fn look_at_time<'a>(
        &mut self,
        world: &'a World,
        transfers: &[Arc<MessageTransfer>],
        limit: &mut WaitLimit<'_>,
        posted: &mut Option<PostedNotice<'a>>,
    ) -> Result<()> {
        if limit.deadline.has_passed() {
            let notice = self.post(world, transfers, posted, true);
            self.doings = doings(world, world.ranks()[self.own as usize], &notice);
        }
        self.look_at_limit(world, transfers, limit, world.abort().cause())
    }

    /// Posts for whom the rank waits before it sleeps, or as its time is up.
    fn post<'a>(
        &self,
        world: &'a World,
        transfers: &[Arc<MessageTransfer>],
        posted: &mut Option<PostedNotice<'a>>,
        has_timed_out: bool,
    ) -> Notice {
        let pending = transfers.iter().filter(|transfer| transfer.outcome().is_none());
        let named = pending.filter_map(|transfer| match transfer.direction {
            Direction::To(rank) | Direction::From(Some(rank)) => Some(world.ranks()[rank as usize]),
            Direction::From(None) => None,
        });
        let (mut record, awaited) = ([0; WORDS], named.collect());
        let mut pending = transfers.iter().filter(|transfer| transfer.outcome().is_none());
        if let Some(first) = pending.next() {
            record = first.record(pending.count());
        }
        let notice = Notice { world: *world.name(), call: 0, record, awaited, since_ns: 0, until_ns: 0 };
        let posted = posted.get_or_insert_with(|| PostedNotice::new(world.board(), world.ranks()[self.own as usize]));
        posted.post(notice, has_timed_out)
    }

    /// Ends the wait if the world was aborted, the deadline has passed, or the user interrupts.
    #[inline]
    fn look_at_limit(
        &mut self,
        world: &World,
        transfers: &[Arc<MessageTransfer>],
        limit: &mut WaitLimit<'_>,
        cause: Option<Cause>,
    ) -> Result<()> {
        let raise = |cause| Some(world.abort().raise(cause));
        let cause = match cause {
            None if limit.deadline.has_passed() => raise(Cause::TimedOut(self.own)),
            None if (limit.is_interrupted)() => raise(Cause::Interrupted(self.own)),
            cause => cause,
        };
        match cause {
            None => Ok(()),
            Some(cause) => Err(self.fail(world, transfers, limit, cause)),
        }
    }

    /// Ends the wait if a peer that it needs is no longer there.
    fn look_who_left(
        &mut self,
        world: &World,
        transfers: &[Arc<MessageTransfer>],
        limit: &mut WaitLimit<'_>,
    ) -> Result<()> {
        if let Some(death) = world.first_death() {
            let cause = world.abort().raise(death);
            return Err(self.fail(world, transfers, limit, cause));
        }
        let pending = || transfers.iter().filter(|transfer| transfer.outcome().is_none());
        if let Some(transfer) =
            pending().next().filter(|_| pending().all(|one| one.direction == Direction::To(self.own)))
        {
            let advice = "begin the receive before, by irecv or sendrecv, or in a group";
            let error =
                Error::Invalid(format!("rank {} waits for itself to receive its {transfer}: {advice}", self.own));
            world.abort().raise(Cause::Failed(self.own));
            self.end_all(world, &error);
            return Err(error);
        }
        if pending().any(|transfer| self.who_left(world, transfer).is_some()) {
            self.advance(world); // it may have sent before it left
            if let Some(error) = pending().find_map(|transfer| self.who_left(world, transfer)) {
                world.abort().raise(Cause::Failed(self.own));
                self.end_all(world, &error);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns the error of a transfer whose peer has returned; of a receive from any, whose peers have all.
    fn who_left(&self, world: &World, transfer: &MessageTransfer) -> Option<Error> {
        let departure = |rank: u32| &world.lines[rank as usize].departure;
        let has_left = |rank| departure(rank).last().is_some();
        let left = match transfer.direction {
            // A rank whose program has ended begins no receive any more.
            Direction::To(rank) => (has_left(rank) || departure(rank).has_ended()).then_some(rank),
            Direction::From(Some(rank)) => has_left(rank).then_some(rank),
            Direction::From(None) => {
                let mut others = (0..world.world_size()).filter(|&rank| rank != self.own).peekable();
                let last = others.peek().copied();
                last.filter(|_| others.all(has_left))
            }
        };
        left.map(|rank| Error::NoPeer { rank, waiter: self.own, what: transfer.to_string() })
    }

    /// Refuses a new transfer in a world that was aborted, or whose ranks have died.
    #[inline]
    fn check(&self, world: &World) -> Result<()> {
        let cause = world.abort().cause().or_else(|| world.first_death().map(|death| world.abort().raise(death)));
        cause.map_or(Ok(()), |cause| Err(self.error(world, cause, || timed_out_before(self.own))))
    }

    /// Notes what went wrong with a stream, and tells every rank.
    #[inline]
    fn note(&self, world: &World, outcome: std::result::Result<(), StreamFailure>) {
        let cause = match outcome {
            Ok(()) => return,
            Err(StreamFailure::Unreadable(source)) => Cause::Failed(source),
            Err(StreamFailure::Unlike(Envelope { source, tag, .. })) => {
                Cause::UnlikeMessage(Pair { ranks: [source, self.own], call: tag })
            }
        };
        world.abort().raise(cause);
        ring_everybody(world);
    }

    fn error(&self, world: &World, cause: Cause, late: impl FnOnce() -> Error) -> Error {
        error_of(world, &(self.own..self.own + 1), cause, |_, _| None, late)
    }

    #[cold]
    fn fail(
        &mut self,
        world: &World,
        transfers: &[Arc<MessageTransfer>],
        limit: &WaitLimit<'_>,
        cause: Cause,
    ) -> Error {
        let late = || {
            let pending: Vec<_> = transfers.iter().filter(|transfer| transfer.outcome().is_none()).collect();
            let missing: Vec<_> = pending.iter().map(|transfer| self.missing(transfer)).collect();
            let what = pending.first().map_or_else(String::new, |transfer| transfer.to_string());
            limit.deadline.overdue(what, missing.join("; ") + &self.doings)
        };
        let error = self.error(world, cause, late);
        // What a rank has refused itself, it says in full.
        let own = transfers.iter().find_map(|transfer| transfer.outcome()?.clone().err());
        self.end_all(world, &error);
        own.unwrap_or(error)
    }

    /// Says what a transfer waits for.
    fn missing(&self, transfer: &MessageTransfer) -> String {
        let tag = transfer.tag.map_or_else(|| "a message".to_owned(), |tag| format!("a message with tag {tag}"));
        let mut waiting: Vec<String> = Vec::new();
        for UnmatchedMessage { envelope: Envelope { source, tag, .. }, .. } in &self.matching.unmatched {
            let words = match transfer.direction {
                Direction::From(Some(rank)) if rank != *source => continue,
                Direction::From(Some(_)) => format!("{tag}"),
                _ => format!("{tag} (from rank {source})"),
            };
            if !waiting.contains(&words) {
                waiting.push(words);
            }
        }
        waiting.truncate(16);
        let beside = match waiting.len() {
            0 => String::new(),
            1 => format!("; a message with tag {} waits to be received", waiting[0]),
            _ => format!("; messages with tags {} wait to be received", waiting.join(", ")),
        };
        match transfer.direction {
            Direction::To(rank) => format!("rank {rank} has not received {tag}"),
            Direction::From(Some(rank)) => format!("rank {rank} has not sent {tag}{beside}"),
            Direction::From(None) => format!("no rank has sent {tag}{beside}"),
        }
    }

    /// Closes the streams, and ends every transfer with an error.
    pub(crate) fn end_all(&mut self, world: &World, error: &Error) {
        ring_everybody(world);
        self.close(world, |_| true);
        let end = |transfer: &MessageTransfer, buffer| transfer.end(Err(error.clone()), buffer);
        for PostedReceive { transfer, buffer } in self.matching.posted.drain(..) {
            end(&transfer, buffer);
        }
        for incoming in self.incoming.iter_mut().flatten() {
            incoming.drain().for_each(|receive| end(&receive.transfer, receive.buffer));
        }
        for outgoing in self.outgoing.iter_mut().flatten() {
            outgoing.drain().for_each(|send| end(&send.transfer, send.buffer));
        }
    }

    /// Closes the streams with some peers that are in use, and returns when these touch no array of this rank any more.
    fn close(&mut self, world: &World, is_meant: impl Fn(u32) -> bool) {
        let streams = |mailbox: &Self| {
            let outgoing =
                mailbox.outgoing.iter().map(|end| end.as_ref().filter(|end| !end.is_idle()).map(|end| end.stream()));
            let incoming =
                mailbox.incoming.iter().map(|end| end.as_ref().filter(|end| !end.is_idle()).map(|end| end.stream()));
            let both = (0..).zip(outgoing).chain((0..).zip(incoming));
            let both = both.filter(|(peer, _)| is_meant(*peer));
            both.filter_map(|(peer, stream)| Some((peer, stream?))).collect::<Vec<(u32, MessageStream)>>()
        };
        let closed = streams(self).into_iter().map(|(peer, stream)| (peer, stream, stream.words().claims.close()));
        let closed: Vec<_> = closed.collect();
        let is_quiet = || {
            let is_quiet = |&(peer, stream, (acceptance, claimed)): &(u32, MessageStream, (u64, u32))| {
                stream.words().claims.are_done(acceptance, claimed)
                    || world.deaths.is_over(world.ranks()[peer as usize])
            };
            closed.iter().all(is_quiet)
        };
        sleep_until_quiet(world, world.lines[self.own as usize].message_bell(), is_quiet);
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

/// Makes the stream to a rank.
fn open(world: &World, own: u32, to: u32) -> Result<MessageStream> {
    let start = world.make_stream(to, MessageStream::bytes(world.world_size()))?;
    // SAFETY: the block is as long as a stream, and begins on a line; the world keeps it, and nobody else knows it yet.
    let stream = unsafe {
        start.write_bytes(0, size_of::<StreamWords>());
        MessageStream::at(start, world.world_size())
    };
    world.lines[own as usize].outbox.publish(to, world.addresses.word_of(own, start));
    Ok(stream)
}

/// Finds the stream from a rank, once it has made one.
#[inline]
fn find(world: &World, from: u32, own: u32) -> Option<MessageStream> {
    let place = world.lines[from as usize].outbox.read(own);
    if place == 0 {
        return None;
    }
    let bytes = MessageStream::bytes(world.world_size());
    let start = super::reachable(world, from, place, bytes).filter(|start| start.cast::<StreamWords>().is_aligned())?;
    // SAFETY: the sender published a stream there, which began as zeros, and keeps it until both ranks have left; a sender that
    // lies about it harms what lies in its own memory.
    Some(unsafe { MessageStream::at(start, world.world_size()) })
}

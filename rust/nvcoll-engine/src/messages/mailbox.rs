//! The mailbox of a rank: its streams and its transfers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::incoming::{deliver_whole, Incoming, OfferedReceive, StreamFailure};
use super::matching::{Matching, MessageContent, PostedReceive, UnmatchedMessage};
use super::outgoing::{Outgoing, PendingSend};
use super::stream::{MessageStream, StreamWords};
use super::transfer::{Direction, Envelope, MessageBuffer, MessageTransfer};
use crate::deadline::{Deadline, WaitLimit};
use crate::error::{Error, LateRanks, Result};
use crate::memory::world::addresses::Unreached;
use crate::memory::world::World;
use crate::run::fault::{Fault, Moment};
use crate::run::quiesce::{ring_everybody, sleep_until_quiet};
use crate::run::report::{ended_before, error_of};
use crate::run::wait_graph::WaitGraph;
use crate::sync::{Cause, Doorbell, Pair};

/// The messages of one rank. One thread at a time uses it.
#[derive(Debug)]
pub(crate) struct Mailbox {
    own: u32,
    outgoing: Vec<Option<Box<Outgoing>>>,
    incoming: Vec<Option<Box<Incoming>>>,
    /// When each peer may be asked for its stream again, if it has not answered, as a stopped one.
    ask_again: Vec<Option<Instant>>,
    matching: Matching,
    /// The number of sends and receives that it has begun.
    begun: u32,
    /// The transfers whose calls have returned, each with its deadline, until their end is told.
    issued: Vec<(Arc<MessageTransfer>, Deadline)>,
    /// What a test has asked to happen. A step is a move of any transfer.
    fault: Option<Box<Fault>>,
}

impl Mailbox {
    /// Makes the mailbox of a rank that has sent nothing yet.
    pub(crate) fn new(world_size: u32, own: u32) -> Self {
        Self {
            own,
            outgoing: (0..world_size).map(|_| None).collect(),
            incoming: (0..world_size).map(|_| None).collect(),
            ask_again: vec![None; world_size as usize],
            matching: Matching::default(),
            begun: 0,
            issued: Vec::new(),
            fault: None,
        }
    }

    /// Has a fault strike in a send or receive, `calls` after the next.
    pub(crate) fn arm(&mut self, calls: u32, fault: impl FnOnce(u32) -> Fault) {
        self.fault = Some(Box::new(fault(self.begun.wrapping_add(1).wrapping_add(calls))));
    }

    /// Has a fault strike, if a test has asked for one at this moment.
    #[inline]
    pub(super) fn strike_at(&mut self, world: &World, moment: Moment) {
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
        self.strike_at(world, Moment::Before);
        self.check(world)?;
        let transfer = Arc::new(MessageTransfer::new(Direction::To(to), Some(tag), &buffer));
        if let Some(error) = self.peer_left(world, &transfer) {
            return Err(error);
        }
        if self.outgoing[to as usize].is_none() {
            self.outgoing[to as usize] = Some(Box::new(Outgoing::new(open(world, self.own, to)?, to)));
        }
        let envelope = Envelope { source: self.own, tag, dtype: buffer.dtype, bytes: buffer.bytes };
        let sending = PendingSend { transfer: transfer.clone(), envelope, buffer };
        let outgoing = self.outgoing[to as usize].as_mut().expect("it was just made");
        if outgoing.begin(world, self.own, sending) {
            Doorbell::ring_all([world.lines[to as usize].message_bell()]);
        }
        self.strike_at(world, Moment::After(0));
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
        self.strike_at(world, Moment::Before);
        self.check(world)?;
        let transfer = Arc::new(MessageTransfer::new(Direction::From(from), tag, &buffer));
        let Some(UnmatchedMessage { envelope, content }) = self.matching.message_for(&transfer) else {
            self.matching.posted.push_back(PostedReceive { transfer: transfer.clone(), buffer });
            self.strike_at(world, Moment::After(0));
            return Ok(transfer);
        };
        let incoming = self.incoming.get_mut(envelope.source as usize).and_then(Option::as_mut);
        let outcome = match (content, incoming) {
            (MessageContent::Kept(kept), Some(incoming)) => {
                incoming.deliver_kept(self.own, envelope, &kept, &transfer, buffer)
            }
            (MessageContent::Kept(kept), None) => deliver_whole(self.own, envelope, &kept, &transfer, buffer),
            (MessageContent::Offered(offer), incoming) => {
                let receive = OfferedReceive { transfer: transfer.clone(), buffer, envelope, offer };
                incoming.expect("the offer came from it").begin(self.own, receive)
            }
        };
        self.note(world, outcome);
        self.strike_at(world, Moment::After(0));
        Ok(transfer)
    }

    /// Takes a message of a rank of another host, which another carrier has brought: see [`Member::deliver`].
    ///
    /// [`Member::deliver`]: crate::ranks::member::Member::deliver
    ///
    /// # Errors
    /// The cause of an abort.
    pub(crate) fn deliver(&mut self, world: &World, envelope: Envelope, data: &[u8]) -> Result<()> {
        self.check(world)?;
        match self.matching.receive_for(envelope.source, envelope.tag) {
            Some(PostedReceive { transfer, buffer }) => {
                let outcome = deliver_whole(self.own, envelope, data, &transfer, buffer);
                self.note(world, outcome);
            }
            None => {
                let content = MessageContent::Kept(data.into());
                self.matching.unmatched.push_back(UnmatchedMessage { envelope, content });
            }
        }
        Doorbell::ring_all([world.lines[self.own as usize].message_bell()]);
        Ok(())
    }

    /// Says whether a receive waits for a message that this rank may send.
    pub(crate) fn awaits(&self, source: u32) -> bool {
        self.matching.posted.iter().any(|posted| posted.transfer.may_come_from(source))
    }

    /// Keeps a transfer whose call returns, until its end is told.
    pub(super) fn keep(&mut self, transfer: Arc<MessageTransfer>, deadline: Deadline) {
        self.issued.push((transfer, deadline));
    }

    /// Returns the transfers whose calls have returned, and the first deadline among them.
    pub(super) fn issued(&self) -> (Vec<Arc<MessageTransfer>>, Deadline) {
        let first = self.issued.iter().map(|(_, deadline)| *deadline).min_by_key(|one| (one.at().is_none(), one.at()));
        (self.issued.iter().map(|(transfer, _)| transfer.clone()).collect(), first.unwrap_or_default())
    }

    /// Says whether transfers are left whose calls have returned.
    pub(super) fn has_issued(&self) -> bool {
        !self.issued.is_empty()
    }

    /// Takes the transfers out whose end is to be told.
    #[inline]
    pub(super) fn take_ended(&mut self) -> Vec<Arc<MessageTransfer>> {
        let mut ended = Vec::new();
        self.issued.retain(|(transfer, _)| {
            let is_pending = transfer.outcome().is_none();
            ended.extend((!is_pending).then(|| transfer.clone()));
            is_pending
        });
        ended
    }

    /// Moves every transfer as far as it goes; says whether something moved.
    pub(crate) fn advance(&mut self, world: &World) -> bool {
        let mut has_moved = false;
        for peer in 0..world.world_size() {
            let mut moved = false;
            self.find_stream(world, peer);
            if let Some(incoming) = &mut self.incoming[peer as usize] {
                let outcome = incoming.advance(world, self.own, &mut self.matching);
                moved = matches!(outcome, Ok(true));
                self.note(world, outcome.map(drop));
            }
            if let Some(outgoing) = self.outgoing[peer as usize].as_mut().filter(|outgoing| !outgoing.is_idle()) {
                moved |= outgoing.advance(world, self.own);
            }
            if moved {
                // Other threads of this rank may wait for what has ended here.
                let own = world.lines[self.own as usize].message_bell();
                Doorbell::ring_all([world.lines[peer as usize].message_bell(), own]);
            }
            has_moved |= moved;
        }
        if has_moved {
            self.strike_at(world, Moment::After(1));
        }
        has_moved
    }

    /// Finds the stream from a peer, once that has made one.
    #[inline]
    fn find_stream(&mut self, world: &World, peer: u32) {
        let (incoming, ask_again) = (&mut self.incoming[peer as usize], &mut self.ask_again[peer as usize]);
        let has_left = || world.lines[peer as usize].departure.last().is_some();
        if incoming.is_some() || ask_again.is_some_and(|at| Instant::now() < at && !has_left()) {
            return;
        }
        match find(world, peer, self.own) {
            Ok(stream) => *incoming = stream.map(|stream| Box::new(Incoming::new(stream, peer))),
            Err(Unanswered) => *ask_again = Some(Instant::now() + ASK_AGAIN),
        }
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

    /// Looks whether the peers that some transfers need are there. If not, all transfers end with the reason; returns the cause.
    pub(super) fn look_who_left(&mut self, world: &World, transfers: &[Arc<MessageTransfer>]) -> Option<Cause> {
        if let Some(death) = world.first_death() {
            return Some(death);
        }
        let pending = || transfers.iter().filter(|transfer| transfer.outcome().is_none());
        let to_itself = pending().next().filter(|_| pending().all(|one| one.direction == Direction::To(self.own)));
        let mut error = to_itself.map(|transfer| {
            let advice = "begin the receive before, by irecv or sendrecv, or in a group";
            Error::Invalid(format!("rank {} waits for itself to receive its {transfer}: {advice}", self.own))
        });
        if error.is_none() && pending().any(|transfer| self.peer_left(world, transfer).is_some()) {
            self.advance(world); // it may have sent before it left
            error = pending().find_map(|transfer| self.peer_left(world, transfer));
        }
        let error = error?;
        world.abort().raise(Cause::Failed(self.own));
        self.end_all(world, &error);
        Some(Cause::Failed(self.own))
    }

    /// Returns the error of a transfer whose peer has returned; of a receive from any, whose peers have all.
    fn peer_left(&self, world: &World, transfer: &MessageTransfer) -> Option<Error> {
        let departure = |rank: u32| &world.lines[rank as usize].departure;
        let has_left = |rank| departure(rank).last().is_some();
        let left = match transfer.direction {
            // Of a rank on another host its carrier knows more.
            Direction::To(rank) | Direction::From(Some(rank)) if rank >= world.world_size() => None,
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
        cause.map_or(Ok(()), |cause| Err(self.error(world, cause, || ended_before(self.own, cause))))
    }

    /// Notes what went wrong with a stream, and tells every rank.
    #[inline]
    fn note(&self, world: &World, outcome: std::result::Result<(), StreamFailure>) {
        let cause = match outcome {
            Ok(()) => return,
            Err(StreamFailure::Unreadable(source)) => Cause::Failed(source),
            // The abort word names ranks of this world only.
            Err(StreamFailure::Unlike(envelope)) if envelope.source >= world.world_size() => Cause::Failed(self.own),
            Err(StreamFailure::Unlike(Envelope { source, tag, .. })) => {
                Cause::UnlikeMessage(Pair { ranks: [source, self.own], call: tag })
            }
        };
        world.abort().raise(cause);
        ring_everybody(world);
    }

    fn error(&self, world: &World, cause: Cause, own_end: impl FnOnce() -> Error) -> Error {
        error_of(world, &(self.own..self.own + 1), cause, |_, _| None, own_end)
    }

    /// Ends every transfer because of an abort, and returns the error of a wait for some of them.
    #[cold]
    pub(super) fn fail(
        &mut self,
        world: &World,
        transfers: &[Arc<MessageTransfer>],
        limit: &mut WaitLimit<'_>,
        wait_graph: &WaitGraph,
        cause: Cause,
    ) -> Error {
        let own_end = || {
            if let Cause::Interrupted(_) = cause {
                let is_own = limit.is_interrupted();
                return if is_own { Error::Interrupted } else { ended_before(self.own, cause) };
            }
            let pending: Vec<_> = transfers.iter().filter(|transfer| transfer.outcome().is_none()).collect();
            let words: Vec<_> = pending.iter().map(|transfer| self.missing(transfer)).collect();
            let what = pending.first().map_or_else(String::new, |transfer| transfer.to_string());
            let mut late: Vec<u32> = pending.iter().filter_map(|transfer| transfer.direction.peer()).collect();
            late.sort_unstable();
            late.dedup();
            limit.deadline.overdue(what, wait_graph.added_to(LateRanks { late, ..words.join("; ").into() }))
        };
        let error = self.error(world, cause, own_end);
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

/// Makes the stream to a rank.
fn open(world: &World, own: u32, to: u32) -> Result<MessageStream> {
    let start = world.make_stream(to, MessageStream::bytes(world))?;
    // SAFETY: the block is as long as a stream, and begins on a line; the world keeps it, and nobody else knows it yet.
    let stream = unsafe {
        start.write_bytes(0, size_of::<StreamWords>());
        MessageStream::at(start, world)
    };
    world.lines[own as usize].outbox.publish(to, world.addresses.word_of(own, start));
    Ok(stream)
}

/// How often a rank asks for the stream of a peer that has left and does not answer. Chosen: together seconds.
const LAST_LOOKS: usize = 50;

/// The time until a peer that has not answered is asked again. Asking takes a part of a second, in which this rank hears nothing. Chosen.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// The peer has not passed the memory of its stream.
struct Unanswered;

/// Finds the stream from a rank; `None` if it has made none.
#[inline]
fn find(world: &World, from: u32, own: u32) -> std::result::Result<Option<MessageStream>, Unanswered> {
    let place = world.lines[from as usize].outbox.read(own);
    if place == 0 {
        return Ok(None);
    }
    let bytes = MessageStream::bytes(world);
    let has_left = || world.lines[from as usize].departure.last().is_some();
    let found = || world.addresses.address_of(from, place);
    let mut unreached = found().err();
    // This is the last look at the stream of a rank that has left.
    for _ in 0..LAST_LOOKS {
        if unreached == Some(Unreached::Unanswered) && has_left() {
            unreached = found().err();
        }
    }
    match unreached {
        Some(Unreached::Unanswered) => return Err(Unanswered),
        Some(Unreached::Refused) => {
            world.abort().raise(Cause::NoMemory(own)); // the sender waits, and nobody else knows why
            return Ok(None);
        }
        None => {}
    }
    let start = super::reachable(world, from, place, bytes).filter(|start| start.cast::<StreamWords>().is_aligned());
    // SAFETY: the sender published a stream there, which began as zeros, and keeps it until both ranks have left; a sender that
    // lies about it harms what lies in its own memory.
    Ok(start.map(|start| unsafe { MessageStream::at(start, world) }))
}

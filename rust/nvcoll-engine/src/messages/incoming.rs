//! The receiver's end of a stream. Every word that it reads comes from memory that another process may have scribbled on: it is copied
//! once, checked, and then used.

use std::collections::VecDeque;
use std::sync::Arc;

use super::matching::{Matching, MessageContent, MessageOffer, PostedReceive, UnmatchedMessage};
use super::stream::{MessageStream, PIECE_BYTES, SHORT_BYTES};
use super::transfer::{Envelope, MessageBuffer, MessageTransfer};
use super::{
    envelope_of, FrameKind, CHUNKS_AT_ONCE, CHUNK_BYTES, INLINE_BYTES, INLINE_WORD, OVERHEAD_BYTES, SMALL_BYTES,
};
use crate::error::Error;
use crate::memory::world::World;
use crate::sync::frames::FRAME_WORDS;
use crate::sync::offers::Side;

/// What went wrong with a stream.
#[derive(Debug)]
pub(super) enum StreamFailure {
    /// The words of this sender make no sense.
    Unreadable(u32),
    /// A message does not fit the receive that takes it.
    Unlike(Envelope),
}

/// The receiver's end of the stream from one rank.
#[derive(Debug)]
pub(super) struct Incoming {
    stream: MessageStream,
    source: u32,
    /// The number of the next frame, and where the data of the last one end.
    next: u64,
    position: u64,
    /// The credit that was given back.
    matched: u64,
    /// The acceptances so far, and the offers that wait for theirs.
    acceptances: u64,
    waiting: VecDeque<OfferedReceive>,
    accepted: Option<AcceptedReceive>,
}

/// A receive whose message was offered.
#[derive(Debug)]
pub(super) struct OfferedReceive {
    pub(super) transfer: Arc<MessageTransfer>,
    pub(super) buffer: MessageBuffer,
    pub(super) envelope: Envelope,
    pub(super) offer: MessageOffer,
}

#[derive(Debug)]
struct AcceptedReceive {
    receive: OfferedReceive,
    manner: ReceiveManner,
}

#[derive(Debug)]
enum ReceiveManner {
    /// Chunks are claimed; the receiver has copied `done` of them from this address, if it reaches it.
    Chunks { from: Option<*mut u8>, done: u32 },
    /// Pieces come through the stream; so many bytes have come.
    Pieces { read: usize },
}

// SAFETY: the address is followed under the promise of the sender, for chunks that were claimed.
unsafe impl Send for ReceiveManner {}

impl Incoming {
    pub(super) fn new(stream: MessageStream, source: u32) -> Self {
        Self {
            stream,
            source,
            next: 0,
            position: 0,
            matched: 0,
            acceptances: 0,
            waiting: VecDeque::new(),
            accepted: None,
        }
    }

    pub(super) fn stream(&self) -> MessageStream {
        self.stream
    }

    /// Says whether no receive has begun here.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.accepted.is_none()
    }

    /// Moves whatever can be moved; says whether something did.
    #[inline]
    pub(super) fn advance(&mut self, world: &World, own: u32, matching: &mut Matching) -> Result<bool, StreamFailure> {
        let mut has_moved = false;
        for _ in 0..CHUNKS_AT_ONCE * CHUNK_BYTES / PIECE_BYTES {
            if !self.stream.words().frames.is_there(self.next) {
                break;
            }
            let outcome = self.read_frame(own, matching);
            self.next += 1;
            self.stream.words().frames.take(self.next);
            outcome?;
            has_moved = true;
        }
        if !self.waiting.is_empty() && self.accepted.is_none() {
            has_moved |= self.accept(world, own);
        }
        if self.accepted.is_some() {
            has_moved |= self.copy_chunks();
        }
        Ok(has_moved)
    }

    fn read_frame(&mut self, own: u32, matching: &mut Matching) -> Result<(), StreamFailure> {
        let frames = &self.stream.words().frames;
        let [head, bytes] = [0, 1].map(|at| frames.word(self.next, at));
        let (kind, envelope) = envelope_of(self.source, head, bytes).ok_or(StreamFailure::Unreadable(self.source))?;
        match kind {
            FrameKind::Small if envelope.bytes <= INLINE_BYTES => {
                let mut words = [0u64; FRAME_WORDS - INLINE_WORD];
                let used = words.iter_mut().take(envelope.bytes.div_ceil(8));
                used.enumerate().for_each(|(at, word)| *word = frames.word(self.next, INLINE_WORD + at));
                self.arrived(own, envelope, words.as_ptr().cast(), matching)
            }
            FrameKind::Small if envelope.bytes <= SHORT_BYTES => {
                self.arrived(own, envelope, self.stream.short(self.next), matching)
            }
            FrameKind::Small if envelope.bytes <= SMALL_BYTES => {
                let (first, end) = self.stream.place(self.position, envelope.bytes);
                self.position = end;
                self.arrived(own, envelope, self.stream.data(first), matching)
            }
            FrameKind::Offer => {
                let offer = MessageOffer { number: self.next, address: frames.word(self.next, INLINE_WORD) };
                match matching.receive_for(self.source, envelope.tag) {
                    Some(PostedReceive { transfer, buffer }) => {
                        return self.begin(own, OfferedReceive { transfer, buffer, envelope, offer })
                    }
                    None => {
                        let content = MessageContent::Offered(offer);
                        matching.unmatched.push_back(UnmatchedMessage { envelope, content });
                    }
                }
                Ok(())
            }
            FrameKind::Piece => self.read_piece(envelope.bytes),
            FrameKind::Small => Err(StreamFailure::Unreadable(self.source)),
        }
    }

    /// Passes a small message on, whose bytes lie at `from`.
    fn arrived(
        &mut self,
        own: u32,
        envelope: Envelope,
        from: *const u8,
        matching: &mut Matching,
    ) -> Result<(), StreamFailure> {
        let Some(PostedReceive { transfer, buffer }) = matching.receive_for(self.source, envelope.tag) else {
            let mut kept = vec![0; envelope.bytes].into_boxed_slice();
            // SAFETY: the caller found so many bytes at `from`: in words of its own, or in the ring, by `MessageStream::place`. A peer that
            // writes there meanwhile breaks the protocol, and its bytes are not looked at.
            unsafe { std::ptr::copy_nonoverlapping(from, kept.as_mut_ptr(), envelope.bytes) };
            let content = MessageContent::Kept(kept);
            matching.unmatched.push_back(UnmatchedMessage { envelope, content });
            return Ok(());
        };
        self.give_back(envelope.bytes);
        // SAFETY: as above.
        unsafe { deliver(own, envelope, from, &transfer, buffer) }
    }

    /// Delivers a small message that was kept.
    pub(super) fn deliver_kept(
        &mut self,
        own: u32,
        envelope: Envelope,
        kept: &[u8],
        transfer: &MessageTransfer,
        buffer: MessageBuffer,
    ) -> Result<(), StreamFailure> {
        self.give_back(envelope.bytes);
        deliver_whole(own, envelope, kept, transfer, buffer)
    }

    fn give_back(&mut self, bytes: usize) {
        self.matched += (bytes + OVERHEAD_BYTES) as u64;
        self.stream.words().matched.publish(self.matched);
    }

    /// Begins a receive whose message was offered.
    pub(super) fn begin(&mut self, own: u32, receive: OfferedReceive) -> Result<(), StreamFailure> {
        if let Err(error) = receive.transfer.check(own, receive.envelope) {
            receive.transfer.end(Err(error), receive.buffer);
            return Err(StreamFailure::Unlike(receive.envelope));
        }
        self.waiting.push_back(receive);
        Ok(())
    }

    /// Accepts the next offer, if the sender is through with the one before.
    fn accept(&mut self, world: &World, own: u32) -> bool {
        let words = self.stream.words();
        if !words.acceptance.is_free(self.acceptances) {
            return false;
        }
        let Some(receive) = self.waiting.front() else { return false };
        let (offer, bytes) = (receive.offer, receive.envelope.bytes);
        let from = super::reachable(world, self.source, offer.address, bytes);
        let to = match world.addresses.is_reachable(own, receive.buffer.address, bytes) {
            true => world.addresses.word_of(own, receive.buffer.address),
            false => 0,
        };
        let is_by_chunks = from.is_some() || to != 0;
        // A stream that was closed stays so: the rank at its other end fails or has returned.
        if is_by_chunks && !words.claims.open(self.acceptances + 1) {
            return false;
        }
        self.acceptances += 1;
        words.acceptance.publish(self.acceptances, [offer.number << 1 | u64::from(is_by_chunks), to]);
        let manner =
            if is_by_chunks { ReceiveManner::Chunks { from, done: 0 } } else { ReceiveManner::Pieces { read: 0 } };
        self.accepted = self.waiting.pop_front().map(|receive| AcceptedReceive { receive, manner });
        true
    }

    fn copy_chunks(&mut self) -> bool {
        let Some(accepted) = &mut self.accepted else { return false };
        let ReceiveManner::Chunks { from, done } = &mut accepted.manner else { return false };
        let (claims, buffer) = (&self.stream.words().claims, &accepted.receive.buffer);
        let moved = from.is_some_and(|from| {
            // SAFETY: the sender's array has as many bytes (`reachable`, and the envelope, which `begin` compared with the buffer) and
            // is readable while its offer stands; the buffer is writable.
            unsafe {
                let to = buffer.address;
                super::copy_claimed(claims, Side::Receiver, self.acceptances, from, to, buffer.bytes, done)
            }
        });
        let is_done = claims.are_done(self.acceptances, super::chunks(buffer.bytes));
        if is_done {
            self.end_accepted();
        }
        moved || is_done
    }

    fn read_piece(&mut self, bytes: usize) -> Result<(), StreamFailure> {
        let (first, end) = self.stream.place(self.position, bytes.min(PIECE_BYTES));
        self.position = end;
        let Some(AcceptedReceive { receive, manner: ReceiveManner::Pieces { read } }) = &mut self.accepted else {
            return Err(StreamFailure::Unreadable(self.source));
        };
        let buffer = &receive.buffer;
        if bytes > PIECE_BYTES || bytes > buffer.bytes - *read {
            return Err(StreamFailure::Unreadable(self.source));
        }
        // SAFETY: the piece lies in the ring; the buffer has room for it, as was just checked, and is writable.
        unsafe { std::ptr::copy_nonoverlapping(self.stream.data(first), buffer.address.wrapping_add(*read), bytes) };
        *read += bytes;
        if *read == buffer.bytes {
            self.end_accepted();
        }
        Ok(())
    }

    fn end_accepted(&mut self) {
        if let Some(AcceptedReceive { receive, .. }) = self.accepted.take() {
            receive.transfer.end(Ok(receive.envelope), receive.buffer);
        }
    }

    /// Returns every receive that has begun here and is not done, after the stream was closed.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = OfferedReceive> + '_ {
        let accepted = self.accepted.take().map(|accepted| accepted.receive);
        accepted.into_iter().chain(self.waiting.drain(..))
    }
}

/// Passes a message that is here to its receive.
pub(super) fn deliver_whole(
    own: u32,
    envelope: Envelope,
    data: &[u8],
    transfer: &MessageTransfer,
    buffer: MessageBuffer,
) -> Result<(), StreamFailure> {
    assert_eq!(data.len(), envelope.bytes, "a message is as long as its envelope says");
    // SAFETY: `data` has the bytes of the envelope.
    unsafe { deliver(own, envelope, data.as_ptr(), transfer, buffer) }
}

/// Copies a small message to the array of its receive, and ends that.
///
/// # Safety
/// The bytes of the envelope lie at `from`.
unsafe fn deliver(
    own: u32,
    envelope: Envelope,
    from: *const u8,
    transfer: &MessageTransfer,
    buffer: MessageBuffer,
) -> Result<(), StreamFailure> {
    if let Err(error) = transfer.check(own, envelope) {
        transfer.end(Err::<Envelope, Error>(error), buffer);
        return Err(StreamFailure::Unlike(envelope));
    }
    // SAFETY: the buffer has as many bytes as the envelope, as was just compared, and is writable, promised who posted it.
    unsafe { std::ptr::copy_nonoverlapping(from, buffer.address, envelope.bytes) };
    transfer.end(Ok(envelope), buffer);
    Ok(())
}

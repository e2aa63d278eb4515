//! The sender's end of a stream.
//!
//! ```text
//! small, and credit is left     a frame with the message, or a frame and its data       done when it is copied
//! else                          a frame that offers the message                         done when the receiver has it
//!   accepted                    both ends copy chunks, or the sender writes pieces
//! ```
//!
//! **The bound.** Small messages that match no receive lie with the receiver. The sender may be ahead by half the data of the stream:
//! 256 KiB, in worlds of more than 32 ranks less. Beyond it offers even the smallest message and keeps it. An offer takes some words.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::stream::{MessageStream, PIECE_BYTES, SHORT_BYTES};
use super::transfer::{Envelope, MessageBuffer, MessageTransfer};
use super::{
    kind_word, FrameKind, CHUNKS_AT_ONCE, CHUNK_BYTES, INLINE_BYTES, INLINE_WORD, OVERHEAD_BYTES, SMALL_BYTES,
};
use crate::kernel::stream_bytes;
use crate::memory::world::World;
use crate::program::store_choice::{StoreChoice, Streaming};
use crate::sync::atomic::pause;
use crate::sync::frames::{FRAMES, FRAME_WORDS};
use crate::sync::offers::Side;

/// A trial of stores is over when so many times its stores' time have passed. Chosen: loads from memory took twice the time of streaming
/// stores, in the study of `program/store_choice.rs`.
const TRIAL_TIMES: u32 = 5;

/// The sender's end of the stream to one rank.
#[derive(Debug)]
pub(super) struct Outgoing {
    stream: MessageStream,
    to: u32,
    /// The number of the next frame.
    next: u64,
    /// The frames that are known to be taken.
    taken: u64,
    /// Where the data of the last frame end, and those of each of the last frames.
    position: u64,
    ends: [u64; FRAMES],
    /// Whether data in the ring are stored plain or streaming.
    stores: StoreChoice,
    /// The credit that was used, and the part that is known to be given back.
    used: u64,
    matched: u64,
    /// Sends that have no frame yet.
    waiting: VecDeque<PendingSend>,
    /// Sends that were offered, by the number of the frame.
    offered: Vec<(u64, PendingSend)>,
    /// The acceptances that were seen.
    acceptances: u64,
    accepted: Option<AcceptedSend>,
}

/// A send that is not done.
#[derive(Debug)]
pub(super) struct PendingSend {
    pub(super) transfer: Arc<MessageTransfer>,
    pub(super) envelope: Envelope,
    pub(super) buffer: MessageBuffer,
}

/// A send that the receiver has accepted.
#[derive(Debug)]
struct AcceptedSend {
    sending: PendingSend,
    manner: SendManner,
}

#[derive(Debug)]
enum SendManner {
    /// Chunks are claimed; the sender has copied `done` of them to this address, if it reaches it.
    Chunks { to: Option<*mut u8>, done: u32 },
    /// The sender writes pieces, and has written so many bytes.
    Pieces { written: usize },
}

// SAFETY: the address is followed under the promise of the receiver, for chunks that were claimed.
unsafe impl Send for SendManner {}

impl Outgoing {
    pub(super) fn new(stream: MessageStream, to: u32) -> Self {
        Self {
            stream,
            to,
            next: 0,
            taken: 0,
            position: 0,
            ends: [0; FRAMES],
            stores: StoreChoice::of([Streaming::Staging]),
            used: 0,
            matched: 0,
            waiting: VecDeque::new(),
            offered: Vec::new(),
            acceptances: 0,
            accepted: None,
        }
    }

    pub(super) fn stream(&self) -> MessageStream {
        self.stream
    }

    /// Says whether nothing waits for the receiver.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.offered.is_empty() && self.accepted.is_none()
    }

    /// Begins a send; says whether it wrote something.
    #[inline]
    pub(super) fn begin(&mut self, world: &World, own: u32, sending: PendingSend) -> bool {
        if !self.waiting.is_empty() {
            self.waiting.push_back(sending);
            return false;
        }
        match self.write(world, own, sending) {
            None => true,
            Some(sending) => {
                self.waiting.push_back(sending);
                false
            }
        }
    }

    /// Moves whatever can be moved; says whether something did.
    pub(super) fn advance(&mut self, world: &World, own: u32) -> bool {
        let mut has_moved = false;
        while let Some(sending) = self.waiting.pop_front() {
            if let Some(sending) = self.write(world, own, sending) {
                self.waiting.push_front(sending);
                break;
            }
            has_moved = true;
        }
        if self.accepted.is_none() && !self.offered.is_empty() {
            has_moved |= self.see_acceptance(world);
        }
        if let Some(mut accepted) = self.accepted.take() {
            let (moved, is_done) = match &mut accepted.manner {
                SendManner::Chunks { to, done } => self.copy_chunks(&accepted.sending.buffer, *to, done),
                SendManner::Pieces { written } => self.write_pieces(&accepted.sending.buffer, written),
            };
            has_moved |= moved || is_done;
            if is_done {
                let PendingSend { transfer, envelope, buffer } = accepted.sending;
                transfer.end(Ok(envelope), buffer);
                self.stream.words().acceptance.acknowledge(self.acceptances);
            } else {
                self.accepted = Some(accepted);
            }
        }
        has_moved
    }

    /// Writes the frame of a send; gives it back if there is no room.
    fn write(&mut self, world: &World, own: u32, sending: PendingSend) -> Option<PendingSend> {
        if !self.has_place() {
            return Some(sending);
        }
        let PendingSend { envelope, buffer, .. } = &sending;
        let cost = (envelope.bytes + OVERHEAD_BYTES) as u64;
        let (kind, mut words) = match envelope.bytes <= SMALL_BYTES && self.has_credit(cost) {
            true => (FrameKind::Small, [0; FRAME_WORDS]),
            false => (FrameKind::Offer, [0; FRAME_WORDS]),
        };
        (words[0], words[1]) = (kind_word(kind, envelope.dtype, envelope.tag), envelope.bytes as u64);
        let (mut length, mut end) = (INLINE_WORD, self.position);
        match kind {
            FrameKind::Small if envelope.bytes <= INLINE_BYTES => {
                length += envelope.bytes.div_ceil(8);
                let to = words[INLINE_WORD..].as_mut_ptr().cast();
                // SAFETY: the buffer is readable, promised who began the send; the words have room for `INLINE_BYTES`.
                unsafe { std::ptr::copy_nonoverlapping(buffer.address, to, envelope.bytes) };
            }
            FrameKind::Small if envelope.bytes <= SHORT_BYTES => {
                // SAFETY: the buffer is readable, as above; the receiver has taken the frame that was here before, with its message.
                unsafe {
                    std::ptr::copy_nonoverlapping(buffer.address, self.stream.short(self.next), envelope.bytes);
                }
            }
            FrameKind::Small => match self.copy_in(buffer.address, envelope.bytes, self.stores.fastest()) {
                Some(found) => end = found,
                None => return Some(sending),
            },
            _ => {
                words[INLINE_WORD] = match world.addresses.is_reachable(own, buffer.address, envelope.bytes) {
                    true => world.addresses.word_of(own, buffer.address),
                    false => 0,
                };
                length += 1;
            }
        }
        let number = self.publish(words.into_iter().take(length), end);
        match kind {
            FrameKind::Small => {
                self.used += cost;
                let PendingSend { transfer, envelope, buffer } = sending;
                transfer.end(Ok(envelope), buffer);
            }
            _ => self.offered.push((number, sending)),
        }
        None
    }

    /// Says whether there is a place for one more frame.
    fn has_place(&mut self) -> bool {
        let is_free = |taken: u64| self.next.wrapping_sub(taken) < FRAMES as u64;
        if !is_free(self.taken) {
            let taken = self.stream.words().frames.taken();
            if !is_free(taken) {
                return false;
            }
            self.taken = taken;
        }
        true
    }

    fn has_credit(&mut self, cost: u64) -> bool {
        let is_left = |matched: u64| self.used.saturating_sub(matched) + cost <= self.stream.credit();
        if !is_left(self.matched) {
            self.matched = self.stream.words().matched.read().min(self.used);
        }
        is_left(self.matched)
    }

    /// Copies data to the ring, if there is room; returns where they end.
    fn copy_in(&mut self, from: *const u8, bytes: usize, kind: Streaming) -> Option<u64> {
        let (first, end) = self.stream.place(self.position, bytes);
        let freed = |taken: u64| if taken == 0 { 0 } else { self.ends[(taken - 1) as usize % FRAMES] };
        if !self.stream.has_room(freed(self.taken), end) {
            let taken = self.stream.words().frames.taken();
            if self.next.wrapping_sub(taken) > FRAMES as u64 || !self.stream.has_room(freed(taken), end) {
                return None;
            }
            self.taken = taken;
        }
        // SAFETY: `place` keeps the piece inside the ring; the receiver has taken the frames whose data lay there. The buffer is
        // readable, promised who began the send.
        unsafe {
            match kind {
                Streaming::Nothing => std::ptr::copy_nonoverlapping(from, self.stream.data(first), bytes),
                _ => stream_bytes(from, self.stream.data(first), bytes),
            }
        }
        Some(end)
    }

    /// Waits until the receiver has taken a frame, whose data were a trial that began then, and learns how long that took. A receiver that
    /// is busy with other things says nothing.
    fn learn(&mut self, number: u64, kind: Streaming, began: Instant) {
        let most = TRIAL_TIMES * began.elapsed();
        while self.stream.words().frames.taken().wrapping_sub(number) as i64 <= 0 {
            if began.elapsed() > most {
                return;
            }
            pause();
        }
        self.stores.learn(kind, began.elapsed());
    }

    /// Publishes the next frame, whose data end at `end`; returns its number.
    fn publish(&mut self, words: impl IntoIterator<Item = u64>, end: u64) -> u64 {
        let number = self.next;
        (self.position, self.ends[number as usize % FRAMES]) = (end, end);
        self.stream.words().frames.publish(number, words);
        self.next += 1;
        number
    }

    /// Looks whether the receiver has accepted an offer.
    fn see_acceptance(&mut self, world: &World) -> bool {
        let Some([offer, address]) = self.stream.words().acceptance.read(self.acceptances + 1) else { return false };
        let Some(at) = self.offered.iter().position(|(number, _)| *number == offer >> 1) else { return false };
        self.acceptances += 1;
        let (_, sending) = self.offered.remove(at);
        let manner = match offer & 1 {
            1 => SendManner::Chunks { to: super::reachable(world, self.to, address, sending.envelope.bytes), done: 0 },
            _ => SendManner::Pieces { written: 0 },
        };
        self.accepted = Some(AcceptedSend { sending, manner });
        true
    }

    fn copy_chunks(&self, buffer: &MessageBuffer, to: Option<*mut u8>, done: &mut u32) -> (bool, bool) {
        let claims = &self.stream.words().claims;
        let moved = to.is_some_and(|to| {
            // SAFETY: the receiver's array has as many bytes (`reachable`), and it may be written since the acceptance; the send's
            // buffer is readable.
            unsafe {
                super::copy_claimed(claims, Side::Sender, self.acceptances, buffer.address, to, buffer.bytes, done)
            }
        });
        (moved, claims.are_done(self.acceptances, super::chunks(buffer.bytes)))
    }

    fn write_pieces(&mut self, buffer: &MessageBuffer, written: &mut usize) -> (bool, bool) {
        let mut has_moved = false;
        for _ in 0..CHUNKS_AT_ONCE * CHUNK_BYTES / PIECE_BYTES {
            let length = PIECE_BYTES.min(buffer.bytes - *written);
            if length == 0 || !self.has_place() {
                break;
            }
            // Pieces of one length are compared.
            let (kind, is_trial) = match length {
                PIECE_BYTES => self.stores.next(self.stream.pieces()),
                _ => (self.stores.fastest(), false),
            };
            let began = is_trial.then(Instant::now);
            let Some(end) = self.copy_in(buffer.address.wrapping_add(*written), length, kind) else { break };
            let number = self.publish([kind_word(FrameKind::Piece, buffer.dtype, 0), length as u64], end);
            if let Some(began) = began {
                self.learn(number, kind, began);
            }
            (*written, has_moved) = (*written + length, true);
        }
        (has_moved, *written == buffer.bytes)
    }

    /// Returns every send that is not done, after the stream was closed.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = PendingSend> + '_ {
        let accepted = self.accepted.take().map(|accepted| accepted.sending);
        accepted.into_iter().chain(self.waiting.drain(..)).chain(self.offered.drain(..).map(|(_, sending)| sending))
    }
}

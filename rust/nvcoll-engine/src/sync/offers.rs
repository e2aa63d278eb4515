//! Offers: how two ranks move a large message. The sender offers it in a frame, and the receiver accepts one offer at a time.
//!
//! ```text
//! receiver   ChunkClaims::open, then Acceptance::publish           accepts offer n; where to, if the sender can reach it
//! both       ChunkClaims::claim ─▶ copy a chunk ─▶ finish          whoever reaches both arrays copies: neither waits for the other
//! sender     Acceptance::acknowledge                          has seen that the offer is done; the next may be accepted
//! either     ChunkClaims::close                                    it fails: no chunk can be claimed any more, and it waits for those that were
//! ```
//!
//! Where no rank reaches both arrays, the chunks go through the data of the stream, and nothing is claimed.

use super::atomic::{AtomicU64, Ordering};
use super::frames::Counter;

/// The offer that is accepted. A channel of one place: the receiver writes it again when the sender has acknowledged.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Acceptance {
    accepted: AcceptedOffer,
    acknowledged: Counter,
}

#[derive(Debug, Default)]
#[repr(C, align(128))]
struct AcceptedOffer {
    /// How many were accepted.
    count: AtomicU64,
    words: [AtomicU64; 2],
}

impl Acceptance {
    /// Says whether the receiver may accept one more after `count`.
    pub fn is_free(&self, count: u64) -> bool {
        self.acknowledged.read() == count
    }

    /// Accepts; it is the `count`-th acceptance.
    pub fn publish(&self, count: u64, words: [u64; 2]) {
        for (word, value) in self.accepted.words.iter().zip(words) {
            // Relaxed: ordered by the Release below.
            word.store(value, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `read`; the receiver's array may be written from here on.
        self.accepted.count.store(count, Ordering::Release);
    }

    /// Reads the `count`-th acceptance, if it is there.
    #[inline]
    pub fn read(&self, count: u64) -> Option<[u64; 2]> {
        // Acquire: pairs with the Release in `publish`.
        if self.accepted.count.load(Ordering::Acquire) != count {
            return None;
        }
        // Relaxed: ordered by the Acquire above.
        Some(std::array::from_fn(|at| self.accepted.words[at].load(Ordering::Relaxed)))
    }

    /// Says that the sender is through with the `count`-th acceptance.
    pub fn acknowledge(&self, count: u64) {
        self.acknowledged.publish(count);
    }
}

/// Nobody can claim a chunk any more.
const CLOSED: u64 = 1 << 63;

/// The chunks of the accepted offer: which are claimed, and how many each side has copied.
#[derive(Debug, Default)]
#[repr(C)]
pub struct ChunkClaims {
    /// The acceptance (31 bits), then how many chunks are claimed (32); the highest bit closes.
    claimed: Counter,
    /// Of the sender, then of the receiver: the acceptance, then how many chunks it has copied. Each has one writer.
    done: [Counter; 2],
}

/// A side of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The sender.
    Sender,
    /// The receiver.
    Receiver,
}

fn word(acceptance: u64, chunks: u32) -> u64 {
    (acceptance & 0x7fff_ffff) << 32 | u64::from(chunks)
}

impl ChunkClaims {
    /// Begins a transfer; says whether nobody has closed. The transfer before it is done.
    pub fn open(&self, acceptance: u64) -> bool {
        let claimed = &self.claimed.0;
        // Relaxed: the receiver alone stores another acceptance here, and the exchange decides.
        let before = claimed.load(Ordering::Relaxed);
        // Relaxed: `Acceptance::publish` follows.
        before & CLOSED == 0
            && claimed.compare_exchange(before, word(acceptance, 0), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// ChunkClaims the next of `chunks` chunks.
    pub fn claim(&self, acceptance: u64, chunks: u32) -> Option<u32> {
        let claimed = &self.claimed.0;
        // Relaxed: the exchange decides.
        let mut found = claimed.load(Ordering::Relaxed);
        loop {
            let next = found as u32;
            if found >> 32 != word(acceptance, 0) >> 32 || next >= chunks {
                return None;
            }
            // AcqRel: pairs with `close`, in either order: a chunk that was claimed is waited for.
            match claimed.compare_exchange(found, found + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(next),
                Err(other) => found = other,
            }
        }
    }

    /// Says that this side has copied `done` chunks.
    pub fn finish(&self, side: Side, acceptance: u64, done: u32) {
        // Release, in `publish`: pairs with the Acquire in `are_done`; the copies come before it.
        self.done[side as usize].publish(word(acceptance, done));
    }

    /// Says whether both sides together have copied `chunks` chunks.
    pub fn are_done(&self, acceptance: u64, chunks: u32) -> bool {
        let of = |counter: &Counter| {
            let found = counter.read();
            if found >> 32 == word(acceptance, 0) >> 32 {
                found as u32
            } else {
                0
            }
        };
        of(&self.done[0]).wrapping_add(of(&self.done[1])) == chunks
    }

    /// Closes for good; returns the acceptance and how many of its chunks are claimed. Nobody touches an array of the stream any more
    /// when those are done.
    pub fn close(&self) -> (u64, u32) {
        // AcqRel: pairs with `claim`.
        let found = self.claimed.0.fetch_or(CLOSED, Ordering::AcqRel) & !CLOSED;
        (found >> 32, found as u32)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_claimed_once_and_none_after_the_close() {
        let claims = ChunkClaims::default();
        assert!(claims.open(5));
        assert_eq!(
            (claims.claim(5, 2), claims.claim(4, 2), claims.claim(5, 2), claims.claim(5, 2)),
            (Some(0), None, Some(1), None)
        );
        claims.finish(Side::Sender, 5, 1);
        assert!(!claims.are_done(5, 2));
        claims.finish(Side::Receiver, 5, 1);
        assert!(claims.are_done(5, 2) && !claims.are_done(6, 2));
        assert!(claims.open(6) && claims.claim(6, 3) == Some(0));
        assert_eq!(claims.close(), (6, 1));
        assert!(claims.claim(6, 3).is_none() && !claims.open(7));
        assert_eq!(claims.close(), (6, 1));
    }

    #[test]
    fn an_acceptance_is_read_once_it_is_there_and_free_once_it_is_acknowledged() {
        let acceptance = Acceptance::default();
        assert!(acceptance.is_free(0) && acceptance.read(1).is_none());
        acceptance.publish(1, [7, 8]);
        assert_eq!(acceptance.read(1), Some([7, 8]));
        assert!(!acceptance.is_free(1));
        acceptance.acknowledge(1);
        assert!(acceptance.is_free(1) && acceptance.read(2).is_none());
    }
}

//! The memory of a stream: its words, then the data that frames name.
//!
//! ```text
//! | frames | matched | acceptance | claims | short | data, a ring of bytes ........................ |
//!                                                   |piece 4 |piece 5    |  too short |   piece 3  |
//! ```
//!
//! A short message lies beside its frame: its lines stay in the caches of both ranks, which is fastest for a few of them. Longer ones
//! go round a ring that is larger than a second-level cache (`program/staging_ring.rs`).
//!
//! A piece of data has no address on its way: it begins where the one before ended, or at the front of the ring if it would not fit
//! behind. Sender and receiver count alike. So the receiver reads lengths from shared memory, and checks them; it follows no place
//! that another process could have changed.

use crate::memory::world::World;
use crate::sync::frames::{Counter, Frames, FRAMES};
use crate::sync::offers::{Acceptance, ChunkClaims};

/// Pieces begin at multiples of this many bytes: a cache line.
const ALIGNMENT_BYTES: u64 = 64;

/// The rings of a rank to all its peers take this much together, or two thirds of its staging if each can be longer than [`LEAST_SHARE`],
/// but each has room for two pieces. Chosen.
const DATA_BYTES_OF_RANK: usize = 16 << 20;

/// The bytes of the ring of a stream, if there is no reason for more or less. Chosen. More goes through second-level caches, as the
/// staging of collectives does (`program/staging_ring.rs`). Two thirds of that are enough: those who answer each other read a ring and
/// write one. Measured, near, between calls of others: against as much, 64 KiB to 1 MiB take 0.7 to 0.9 of the time.
const LEAST_SHARE: usize = 512 << 10;

/// The most bytes of a message that lies beside its frame. Measured: 1 KiB takes half the time that it takes in the ring, 4 KiB as much;
/// and the first round of the ring touches new pages.
pub(super) const SHORT_BYTES: usize = 4 << 10;

/// The most bytes of a piece. Measured, near: of 8, 16, 32 and 64 KiB, 32 are fastest on the whole; a message of 64 KiB takes 4.8 us
/// instead of 5.7, since the receiver reads one piece while the sender writes the next.
pub(super) const PIECE_BYTES: usize = 32 << 10;

/// Where the ring begins.
const RING_OFFSET: usize = size_of::<StreamWords>() + FRAMES * SHORT_BYTES;

/// The words of a stream.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct StreamWords {
    pub(super) frames: Frames,
    /// How much of the credit for small messages the receiver has given back: see `outgoing.rs`.
    pub(super) matched: Counter,
    pub(super) acceptance: Acceptance,
    pub(super) claims: ChunkClaims,
}

/// A stream, in memory that the ranks of a world share.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessageStream {
    start: *mut u8,
    data_bytes: u64,
}

// SAFETY: a stream is an address; its words are atomics, and the frames say who may touch which data.
unsafe impl Send for MessageStream {}

impl MessageStream {
    /// Returns the bytes of a stream in a world.
    pub(super) fn bytes(world: &World) -> usize {
        RING_OFFSET + Self::data_bytes(world.world_size(), world.staging_bytes())
    }

    /// Returns the bytes of the ring of a stream, where ranks have `staging` bytes of staging.
    fn data_bytes(world_size: u32, staging: usize) -> usize {
        let (ranks, peers) = (world_size as usize, (world_size as usize - 1).max(1));
        let most = (staging * 2 / 3 / peers).max(LEAST_SHARE);
        (DATA_BYTES_OF_RANK / ranks).clamp(2 * PIECE_BYTES, most) / PIECE_BYTES * PIECE_BYTES
    }

    /// Returns the stream at an address.
    ///
    /// # Safety
    /// There are [`MessageStream::bytes`] bytes, aligned for [`StreamWords`], which begin as zeros and serve as nothing else while the result
    /// is used.
    pub(super) unsafe fn at(start: *mut u8, world: &World) -> Self {
        Self { start, data_bytes: Self::data_bytes(world.world_size(), world.staging_bytes()) as u64 }
    }

    #[inline]
    pub(super) fn words(&self) -> &StreamWords {
        // SAFETY: `at` was promised that the words are there, and zeros are a value; they are atomics.
        unsafe { &*self.start.cast::<StreamWords>() }
    }

    /// Returns the address of the data at a position.
    pub(super) fn data(&self, position: u64) -> *mut u8 {
        self.start.wrapping_add(RING_OFFSET + (position % self.data_bytes) as usize)
    }

    /// Returns the address of the short message of a frame, free as long as the frame is.
    pub(super) fn short(&self, frame: u64) -> *mut u8 {
        self.start.wrapping_add(size_of::<StreamWords>() + frame as usize % FRAMES * SHORT_BYTES)
    }

    /// Returns where a piece lies, at most [`PIECE_BYTES`] long, if the one before ended at `position`: its first position, and the
    /// position behind it.
    pub(super) fn place(&self, position: u64, bytes: usize) -> (u64, u64) {
        let bytes = (bytes as u64).next_multiple_of(ALIGNMENT_BYTES);
        let is_too_short = position % self.data_bytes + bytes > self.data_bytes;
        let first = if is_too_short { position.next_multiple_of(self.data_bytes) } else { position };
        (first, first + bytes)
    }

    /// Returns how many whole pieces go round the ring.
    pub(super) fn pieces(&self) -> usize {
        self.data_bytes as usize / PIECE_BYTES
    }

    /// Says whether the data up to `end` can be written while those from `freed` on may still be read.
    pub(super) fn has_room(&self, freed: u64, end: u64) -> bool {
        end.wrapping_sub(freed) <= self.data_bytes
    }

    /// Returns how many bytes of small messages that match no receive may be on their way: see `outgoing.rs`.
    pub(super) fn credit(&self) -> u64 {
        self.data_bytes.min(LEAST_SHARE as u64) / 2
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_one_behind_the_other_and_never_over_the_end_of_the_ring() {
        let data_bytes = |ranks, staging| MessageStream::data_bytes(ranks, staging) / PIECE_BYTES;
        assert_eq!([1, 2, 3, 8, 1024].map(|ranks| data_bytes(ranks, 3 << 20)), [64, 64, 32, 16, 2]);
        assert_eq!([1, 2, 3, 8, 1024].map(|ranks| data_bytes(ranks, 1 << 20)), [21, 21, 16, 16, 2]);
        let stream = MessageStream { start: std::ptr::null_mut(), data_bytes: 2 * PIECE_BYTES as u64 };
        let mut position = 0;
        for bytes in [1, 64, 65, 60_000, PIECE_BYTES, 7, PIECE_BYTES, PIECE_BYTES].repeat(5) {
            let (first, end) = stream.place(position, bytes);
            assert!(first >= position && end - first >= bytes as u64);
            assert!(first % stream.data_bytes + bytes as u64 <= stream.data_bytes, "over the end");
            assert!(stream.has_room(first, end) && !stream.has_room(first, first + stream.data_bytes + 1));
            position = end;
        }
    }
}

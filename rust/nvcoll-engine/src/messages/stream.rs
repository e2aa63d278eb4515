//! The memory of a stream: its words, then the data that frames name.
//!
//! ```text
//! | frames | matched | acceptance | claims | data, a ring of bytes ........................ |
//!                                            |piece 4 |piece 5    |  too short |   piece 3  |
//! ```
//!
//! A piece of data has no address on its way: it begins where the one before ended, or at the front of the ring if it would not fit
//! behind. Sender and receiver count alike. So the receiver reads lengths from shared memory, and checks them; it follows no place
//! that another process could have changed.

use crate::sync::frames::{Counter, Frames};
use crate::sync::offers::{Acceptance, ChunkClaims};

/// Pieces begin at multiples of this many bytes: a cache line.
const ALIGNMENT_BYTES: u64 = 64;

/// The most bytes of the ring of one stream. Measured: see `PIECE_BYTES`.
const MOST_DATA_BYTES: usize = 512 << 10;

/// The rings of a rank to all its peers take this much together, but each has room for two pieces. Chosen.
const DATA_BYTES_OF_RANK: usize = 16 << 20;

/// The most bytes of a piece. Chosen.
pub(super) const PIECE_BYTES: usize = 64 << 10;

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
    /// Returns the bytes of a stream in a world of so many ranks.
    pub(super) fn bytes(world_size: u32) -> usize {
        size_of::<StreamWords>() + Self::data_bytes(world_size)
    }

    fn data_bytes(world_size: u32) -> usize {
        (DATA_BYTES_OF_RANK / world_size as usize).clamp(2 * PIECE_BYTES, MOST_DATA_BYTES) / PIECE_BYTES * PIECE_BYTES
    }

    /// Returns the stream at an address.
    ///
    /// # Safety
    /// There are [`MessageStream::bytes`] bytes, aligned for [`StreamWords`], which begin as zeros and serve as nothing else while the result
    /// is used.
    pub(super) unsafe fn at(start: *mut u8, world_size: u32) -> Self {
        Self { start, data_bytes: Self::data_bytes(world_size) as u64 }
    }

    #[inline]
    pub(super) fn words(&self) -> &StreamWords {
        // SAFETY: `at` was promised that the words are there, and zeros are a value; they are atomics.
        unsafe { &*self.start.cast::<StreamWords>() }
    }

    /// Returns the address of the data at a position.
    pub(super) fn data(&self, position: u64) -> *mut u8 {
        self.start.wrapping_add(size_of::<StreamWords>() + (position % self.data_bytes) as usize)
    }

    /// Returns where a piece lies, at most [`PIECE_BYTES`] long, if the one before ended at `position`: its first position, and the
    /// position behind it.
    pub(super) fn place(&self, position: u64, bytes: usize) -> (u64, u64) {
        let bytes = (bytes as u64).next_multiple_of(ALIGNMENT_BYTES);
        let is_too_short = position % self.data_bytes + bytes > self.data_bytes;
        let first = if is_too_short { position.next_multiple_of(self.data_bytes) } else { position };
        (first, first + bytes)
    }

    /// Says whether the data up to `end` can be written while those from `freed` on may still be read.
    pub(super) fn has_room(&self, freed: u64, end: u64) -> bool {
        end.wrapping_sub(freed) <= self.data_bytes
    }

    /// Returns how many bytes of small messages that match no receive may be on their way: see `outgoing.rs`.
    pub(super) fn credit(&self) -> u64 {
        self.data_bytes / 2
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_one_behind_the_other_and_never_over_the_end_of_the_ring() {
        // SAFETY: nothing is read or written.
        let stream = unsafe { MessageStream::at(std::ptr::null_mut(), 1024) };
        assert_eq!(stream.data_bytes, 2 * PIECE_BYTES as u64);
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

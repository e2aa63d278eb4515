//! The outbox: where the streams of a rank to its peers lie. A rank makes a stream when it first sends to a peer.

use nvcoll_core::limits::MAX_RUNNING_RANKS;

use super::atomic::{AtomicU64, Ordering};

/// The places of the streams of one rank, by receiver. It has one writer; 0 says that there is no stream.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Outbox([AtomicU64; MAX_RUNNING_RANKS as usize]);

impl Outbox {
    /// Publishes the stream to a rank, which begins as zeros.
    pub fn publish(&self, to: u32, place: u64) {
        // Release: pairs with the Acquire in `read`.
        self.0[to as usize].store(place, Ordering::Release);
    }

    /// Reads the place of the stream to a rank.
    #[inline]
    pub fn read(&self, to: u32) -> u64 {
        // Acquire: pairs with the Release in `publish`.
        self.0[to as usize].load(Ordering::Acquire)
    }
}

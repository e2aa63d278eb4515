//! Stamps: a rank says that it has entered a call, in a line that has room for what a small call brings.
//!
//! ```text
//! line      stamp | digest of the call | 48 bytes of data        one per parity of the call; 64 bytes, which one transfer brings
//! ```
//!
//! The stamp grows, modulo its width, and is compared by wrapping difference. A stamp of c says that the rank has finished c-1. So a rank
//! that sees it may overwrite what the other read in call c-2: this is the stamp rule, and the line of call c-2 is under it too.
//!
//! The digest is equal where the calls are. Ranks that need to know no more of a peer's call leave its record unread, and a record that
//! nobody reads costs its writer nothing. The data are a copy of the staging, if they fit.
//!
//! Source: the flag and payload lines of NCCL's LL protocol, which also carry data beside a flag.

use super::atomic::{AtomicU64, Ordering};
use super::progress::{is_at_least, word};
use std::cell::UnsafeCell;

/// The bytes of data in a line.
pub const INLINE_BYTES: usize = 48;

/// The stamps of one rank. They have one writer.
#[derive(Debug, Default)]
pub struct Stamp([StampLine; 2]);

#[derive(Debug, Default)]
#[repr(C, align(128))]
struct StampLine {
    entered: AtomicU64,
    digest: AtomicU64,
    data: UnsafeCell<[u64; INLINE_BYTES / 8]>,
}

// SAFETY: the data are reached by the address that `Stamp::data` gives away; who may use it when is what the proof of the call says.
unsafe impl Sync for StampLine {}

impl Stamp {
    /// Enters a call. Its digest and data, its record, and the buffers that it names are visible to every rank that sees the stamp.
    #[inline]
    pub fn enter(&self, call: u32, digest: u64) {
        let line = self.line(call);
        // Relaxed: ordered by the Release below.
        line.digest.store(digest, Ordering::Relaxed);
        // Release: pairs with the Acquire in `has_entered`.
        line.entered.store(word(call, 0), Ordering::Release);
    }

    /// Says whether the rank has entered `call` or a later one.
    #[inline]
    pub fn has_entered(&self, call: u32) -> bool {
        // Acquire: pairs with the Release in `enter`.
        is_at_least(self.line(call).entered.load(Ordering::Acquire), word(call, 0))
    }

    /// Returns the last call that the rank has entered; 0 before the first.
    pub fn last(&self) -> u32 {
        // Acquire: pairs with the Release in `enter`.
        let [even, odd] = self.0.each_ref().map(|line| line.entered.load(Ordering::Acquire));
        (if is_at_least(even, odd) { even } else { odd } >> 32) as u32
    }

    /// Returns the digest of `call`, which must have been stamped.
    #[inline]
    pub fn digest(&self, call: u32) -> u64 {
        // Relaxed: ordered by the Acquire of `has_entered`.
        self.line(call).digest.load(Ordering::Relaxed)
    }

    /// Returns the address of the data of `call`.
    #[inline]
    pub fn data(&self, call: u32) -> *mut u8 {
        self.line(call).data.get().cast()
    }

    fn line(&self, call: u32) -> &StampLine {
        &self.0[call as usize % 2]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_says_that_earlier_calls_were_entered() {
        let stamp = Stamp::default();
        for call in 1..=7 {
            stamp.enter(call, u64::from(call) + 100);
        }
        assert!(stamp.has_entered(6) && stamp.has_entered(7) && !stamp.has_entered(8) && !stamp.has_entered(9));
        assert_eq!((stamp.digest(6), stamp.digest(7)), (106, 107));
    }

    #[test]
    fn stamp_digest_and_data_are_one_cache_line() {
        assert_eq!(std::mem::offset_of!(StampLine, data) + INLINE_BYTES, 64);
        assert!((Stamp::default().data(1).addr()) % 16 == 0);
    }
}

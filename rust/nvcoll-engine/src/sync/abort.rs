//! Ending a call that cannot be finished: the abort word, and who may still be touching whose buffers.
//!
//! ```text
//! rank   idle ──begin──▶ active ──finish──▶ idle            begin: store active, fence, look at the abort word
//!                          └─abort seen─▶ acknowledged      acknowledged: touches nobody's buffers from here on
//! ```
//!
//! Whoever raises an abort returns only when every other rank is idle or has acknowledged. A rank that begins after the
//! word was raised sees it (the fences pair) and acknowledges before it touches anything.

use super::atomic::{fence, AtomicU32, AtomicU64, Ordering};

/// Why a call was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Code of this rank failed between calls.
    Failed(u32),
    /// This rank's deadline passed.
    TimedOut(u32),
    /// These two ranks called different things.
    Mismatch(u32, u32),
    /// The user interrupted the program.
    Interrupted,
}

/// The abort word. The first cause stays.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Abort(AtomicU64);

impl Abort {
    /// Raises the abort; returns the cause that counts: the first.
    pub fn raise(&self, cause: Cause) -> Cause {
        // AcqRel: Release publishes what the raiser did before, Acquire pairs with an earlier raiser's Release.
        let first = self.0.compare_exchange(0, encode(cause), Ordering::AcqRel, Ordering::Acquire);
        fence(Ordering::SeqCst);
        first.err().and_then(decode).unwrap_or(cause)
    }

    /// Returns the cause, if the abort was raised.
    #[inline]
    pub fn cause(&self) -> Option<Cause> {
        // Acquire: pairs with the Release in `raise`.
        decode(self.0.load(Ordering::Acquire))
    }
}

fn encode(cause: Cause) -> u64 {
    let (kind, a, b) = match cause {
        Cause::Failed(rank) => (1, rank, 0),
        Cause::TimedOut(rank) => (2, rank, 0),
        Cause::Mismatch(a, b) => (3, a, b),
        Cause::Interrupted => (4, 0, 0),
    };
    kind | u64::from(a) << 8 | u64::from(b) << 32
}

fn decode(word: u64) -> Option<Cause> {
    let (a, b) = ((word >> 8) as u32 & 0xff_ffff, (word >> 32) as u32);
    match word & 0xff {
        1 => Some(Cause::Failed(a)),
        2 => Some(Cause::TimedOut(a)),
        3 => Some(Cause::Mismatch(a, b)),
        4 => Some(Cause::Interrupted),
        _ => None,
    }
}

const IDLE: u32 = 0;
const ACTIVE: u32 = 1;
const ACKNOWLEDGED: u32 = 2;

/// Whether a rank may be touching the buffers of others. One writer.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Activity(AtomicU32);

impl Activity {
    /// Begins a call; the caller looks at the abort word next.
    pub fn begin(&self) {
        self.0.store(ACTIVE, Ordering::Relaxed);
        // SeqCst: pairs with the fence in `Abort::raise`: either this rank sees the abort or the raiser sees it active.
        fence(Ordering::SeqCst);
    }

    /// Ends a call in which everything was done.
    pub fn finish(&self) {
        // Release: pairs with the Acquire in `is_quiet`; the rank's accesses come before it.
        self.0.store(IDLE, Ordering::Release);
    }

    /// Promises to touch nobody's buffers any more.
    pub fn acknowledge(&self) {
        // Release: pairs with the Acquire in `is_quiet`.
        self.0.store(ACKNOWLEDGED, Ordering::Release);
    }

    /// Says whether the rank touches nobody's buffers.
    pub fn is_quiet(&self) -> bool {
        // Acquire: pairs with the Releases above.
        self.0.load(Ordering::Acquire) != ACTIVE
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_cause_stays() {
        let abort = Abort::default();
        assert_eq!(abort.cause(), None);
        assert_eq!(abort.raise(Cause::Mismatch(3, 1023)), Cause::Mismatch(3, 1023));
        assert_eq!(abort.raise(Cause::Failed(1)), Cause::Mismatch(3, 1023));
        assert_eq!(abort.cause(), Some(Cause::Mismatch(3, 1023)));
    }
}

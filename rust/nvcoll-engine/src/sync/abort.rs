//! The abort of a call that cannot be finished: the abort word, and the activity of ranks.
//!
//! ```text
//! rank   idle ──begin──▶ active ──finish──▶ idle            begin: store active, fence, look at the abort word
//!                          └─abort seen─▶ acknowledged      acknowledged: touches nobody's buffers from here on
//! ```
//!
//! A rank that raises or sees an abort returns only when every other rank is idle or has acknowledged. A rank that begins after the
//! abort was raised sees it, and acknowledges before it touches anything: `begin` fences between its store and its look at the word.
//! Every other rank fences between the word and its look at the activities, in `raise` or in [`Doorbell::ring_all`]. Seeing the word is
//! not enough: without its own fence, a rank could still read an old *idle*.
//!
//! [`Doorbell::ring_all`]: super::Doorbell::ring_all

use super::atomic::{fence, AtomicU64, Ordering};
use super::life::WaitStatus;

/// The cause of an abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Code of this rank failed between calls.
    Failed(u32),
    /// The process of this rank ended with this status, which is not 0.
    Exited(u32, u8),
    /// This rank's deadline passed.
    TimedOut(u32),
    /// The user, or a signal handler of the program, interrupted this rank; of several ranks in one program: the program.
    Interrupted(u32),
    /// This rank called abort.
    CalledAbort(u32),
    /// The process of this rank ended without a word, with this status if the system reported it.
    Gone(u32, Option<WaitStatus>),
    /// This rank had no memory to map that of a peer.
    NoMemory(u32),
    /// The two ranks called different things.
    Mismatch(Pair),
    /// The memory of the two ranks overlaps, and one of them writes it.
    Overlap(Pair),
    /// The first rank's program returned, and the second makes a call that needs it.
    Returned(Pair),
    /// The first rank sent a message that does not fit the array into which the second receives it. The call is its tag.
    UnlikeMessage(Pair),
}

/// Two ranks, and the call in which one of them saw the problem. Other ranks may be a call behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// The ranks, each less than 4096.
    pub ranks: [u32; 2],
    /// The number of the call.
    pub call: u32,
}

/// The abort word. The first cause stays.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Abort(AtomicU64);

impl Abort {
    /// Raises the abort, and returns the first cause, which counts.
    pub fn raise(&self, cause: Cause) -> Cause {
        // Release: pairs with the Acquire in `cause`; what the raiser wrote and compared comes before it. Relaxed: who is
        // second acquires by the fence.
        let first = self.0.compare_exchange(0, encode(cause), Ordering::Release, Ordering::Relaxed);
        // SeqCst: pairs with the fence in `begin`: either that rank sees the abort or this one sees it active.
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

/// In the place of a wait status that the system did not tell.
const UNKNOWN: u32 = u32::MAX;

/// Packs a cause into a word: from the lowest bit, the kind (8 bits), two ranks (12 each), the call (32).
fn encode(cause: Cause) -> u64 {
    let one = |rank| Pair { ranks: [rank, 0], call: 0 };
    let (kind, Pair { ranks: [a, b], call }) = match cause {
        Cause::Failed(rank) => (1, one(rank)),
        Cause::TimedOut(rank) => (2, one(rank)),
        Cause::Interrupted(rank) => (3, one(rank)),
        Cause::Mismatch(pair) => (4, pair),
        Cause::Overlap(pair) => (5, pair),
        Cause::Returned(pair) => (6, pair),
        Cause::CalledAbort(rank) => (7, one(rank)),
        Cause::Gone(rank, status) => {
            (8, Pair { ranks: [rank, 0], call: status.map_or(UNKNOWN, |WaitStatus(status)| status.into()) })
        }
        Cause::NoMemory(rank) => (9, one(rank)),
        Cause::UnlikeMessage(pair) => (32, pair),
        Cause::Exited(rank, status) => (10, Pair { ranks: [rank, status.into()], call: 0 }),
    };
    debug_assert!(a < 1 << 12 && b < 1 << 12, "ranks have twelve bits");
    kind | u64::from(a) << 8 | u64::from(b) << 20 | u64::from(call) << 32
}

fn decode(word: u64) -> Option<Cause> {
    let rank = |shift: u32| (word >> shift) as u32 & 0xfff;
    let pair = Pair { ranks: [rank(8), rank(20)], call: (word >> 32) as u32 };
    match word & 0xff {
        1 => Some(Cause::Failed(rank(8))),
        2 => Some(Cause::TimedOut(rank(8))),
        3 => Some(Cause::Interrupted(rank(8))),
        4 => Some(Cause::Mismatch(pair)),
        5 => Some(Cause::Overlap(pair)),
        6 => Some(Cause::Returned(pair)),
        7 => Some(Cause::CalledAbort(rank(8))),
        8 => Some(Cause::Gone(rank(8), u16::try_from(pair.call).ok().map(WaitStatus))),
        9 => Some(Cause::NoMemory(rank(8))),
        10 => Some(Cause::Exited(rank(8), rank(20) as u8)),
        32 => Some(Cause::UnlikeMessage(pair)),
        _ => None,
    }
}

const IDLE: u64 = 0;
const ACTIVE: u64 = 1;
const ACKNOWLEDGED: u64 = 2;

/// The bits of the state in the word of an activity.
const STATE: u64 = 3;

/// The activity of a rank, which says whether it may touch other ranks' buffers, and the number of its last call. It has one writer.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Activity(AtomicU64);

impl Activity {
    /// Begins a call; the caller looks at the abort word next.
    pub fn begin(&self, call: u32) {
        // Relaxed: the fence orders it before the look at the abort word.
        self.0.store(u64::from(call) << 32 | ACTIVE, Ordering::Relaxed);
        // SeqCst: pairs with the fence of whoever looks at who is active after an abort, in `Abort::raise` or
        // `Doorbell::ring_all`: either this rank sees the abort or that one sees it active.
        fence(Ordering::SeqCst);
    }

    /// Ends a call that was completed.
    pub fn finish(&self) {
        self.leave(IDLE);
    }

    /// Acknowledges an abort: the rank touches no other rank's buffers any more.
    pub fn acknowledge(&self) {
        self.leave(ACKNOWLEDGED);
    }

    fn leave(&self, state: u64) {
        // Relaxed: the rank alone writes the word.
        let call = self.0.load(Ordering::Relaxed) & !STATE;
        // Release: pairs with the Acquire in `is_quiet`; the rank's accesses come before it.
        self.0.store(call | state, Ordering::Release);
    }

    /// Says whether the rank touches no other rank's buffers. A caller asks after an abort and a fence, or after it
    /// saw the stamp of a call, which follows [`Activity::begin`].
    pub fn is_quiet(&self) -> bool {
        // Acquire: pairs with the Release in `leave`.
        self.0.load(Ordering::Acquire) & STATE != ACTIVE
    }

    /// Returns the number of the rank's last call, and whether it completed it.
    pub fn last_call(&self) -> (u32, bool) {
        // Acquire: as in `is_quiet`.
        let word = self.0.load(Ordering::Acquire);
        ((word >> 32) as u32, word & STATE == IDLE)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_cause_stays() {
        let abort = Abort::default();
        assert_eq!(abort.cause(), None);
        let first = Cause::Mismatch(Pair { ranks: [3, 1023], call: u32::MAX });
        assert_eq!(abort.raise(first), first);
        assert_eq!(abort.raise(Cause::Failed(1)), first);
        assert_eq!(abort.cause(), Some(first));
    }

    #[test]
    fn a_word_gives_back_every_cause() {
        let pair = Pair { ranks: [1023, 7], call: 0x8765_4321 };
        let causes = [
            Cause::Failed(1023),
            Cause::TimedOut(0),
            Cause::Interrupted(6),
            Cause::CalledAbort(5),
            Cause::Gone(9, None),
            Cause::Gone(1023, Some(WaitStatus(0xffff))),
            Cause::Gone(3, Some(WaitStatus(0))),
            Cause::NoMemory(2),
            Cause::Exited(3, 255),
        ];
        for cause in causes.into_iter().chain([
            Cause::Mismatch(pair),
            Cause::Overlap(pair),
            Cause::Returned(pair),
            Cause::UnlikeMessage(pair),
        ]) {
            assert_eq!(decode(encode(cause)), Some(cause));
        }
        assert_eq!(decode(0), None);
    }
}

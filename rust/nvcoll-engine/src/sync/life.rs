//! The life of ranks that are processes: the word by which the kernel tells that one has ended, and what its peers note then.
//!
//! ```text
//! nobody ──hold──▶ held by a thread of the rank ──leave──▶ left        its program has left the job, and it may go on
//!                              └── the process ends, however ──▶ ended     the kernel writes that, and wakes one who waits
//! ```
//!
//! The thread names the word in its list of robust futexes. The kernel goes through that list when the thread ends, before it frees the
//! memory of the process: with 1 GiB of memory, that is tens of milliseconds before a socket or a descriptor of the process tells the
//! same. Robust futexes are made for locks whose owner may die; here nobody locks, and the only entry of the list is the life word. It lies
//! in the words of the rank, which its peers cannot write.
//!
//! Each peer notes in its own [`Deaths`] who has ended, and how: its calls look there (`processes/guard.rs`).
//!
//! Source: robust futexes, I. Molnar and T. Gleixner (2006), Documentation/locking/robust-futex-ABI.rst; their use without a lock is ours.

use super::atomic::{AtomicBool, AtomicU32, Ordering};

/// The bit by which the kernel says that the thread has ended. Cited: `FUTEX_OWNER_DIED`, linux/futex.h.
const ENDED: u32 = 0x4000_0000;

/// The bit that asks the kernel to wake somebody then. Cited: `FUTEX_WAITERS`, linux/futex.h.
const WAITERS: u32 = 0x8000_0000;

/// In the place of the thread: the rank has left the job. No thread has this number. Cited: `FUTEX_TID_MASK`, linux/futex.h.
const LEFT: u32 = 0x3fff_ffff;

/// The life word of one rank.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Life(AtomicU32);

/// What a life word says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifeState {
    /// No thread holds it: not yet, or the system has no such list.
    Nobody,
    /// The process lives.
    Held,
    /// The process has ended.
    Ended,
    /// The rank has left the job.
    Left,
}

impl Life {
    /// Says that the thread with this number holds the word. It is in the thread's list already.
    pub fn hold(&self, thread: u32) {
        // Relaxed: it says nothing about other words.
        self.0.store(thread | WAITERS, Ordering::Relaxed);
    }

    /// Says that the rank has left the job.
    pub fn leave(&self) {
        // Release: pairs with the Acquire in `state`; the departure of the rank comes before it.
        self.0.store(LEFT, Ordering::Release);
    }

    /// Does what the kernel does when the thread ends.
    #[cfg(any(test, loom))]
    pub fn end(&self) {
        // Release: the kernel's exchange is a full barrier.
        self.0.store(ENDED | WAITERS, Ordering::Release);
    }

    /// Returns the state, and the value that says it.
    pub fn state(&self) -> (LifeState, u32) {
        // Acquire: pairs with the Release in `leave`, and with the kernel's exchange: what the process did comes before it.
        let word = self.0.load(Ordering::Acquire);
        let state = match word {
            0 => LifeState::Nobody,
            LEFT => LifeState::Left,
            word if word & ENDED != 0 => LifeState::Ended,
            _ => LifeState::Held,
        };
        (state, word)
    }

    /// Returns the word, to sleep on it.
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.0
    }
}

/// How a process ended: the status that its parent would see (wait(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitStatus(pub u16);

impl WaitStatus {
    /// Returns the signal that ended the process.
    pub fn signal(self) -> Option<u32> {
        Some(u32::from(self.0 & 0x7f)).filter(|&signal| signal != 0)
    }

    /// Returns the exit status, if no signal ended the process.
    pub fn exit_status(self) -> Option<u32> {
        self.signal().is_none().then_some(u32::from(self.0 >> 8))
    }
}

const DEAD: u32 = 1 << 31;
const OVER: u32 = 1 << 30;
const HAS_STATUS: u32 = 1 << 16;

/// What a process knows of the ends of its peers. The guard writes it, and calls of any thread read it.
#[derive(Debug, Default)]
pub struct Deaths {
    /// Whether one ended that had not left the job.
    is_any: AtomicBool,
    ends: Vec<AtomicU32>,
}

impl Deaths {
    /// Makes the notes of a run whose ranks all live.
    pub fn of_ranks(ranks: u32) -> Self {
        Self { is_any: AtomicBool::new(false), ends: (0..ranks).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Notes that the process of a rank has ended. The caller rings afterwards.
    pub fn note(&self, rank: u32, status: Option<WaitStatus>, has_departed: bool) {
        let status = status.map_or(0, |WaitStatus(status)| HAS_STATUS | u32::from(status));
        // Release: pairs with the Acquire in `end_of`; the end that the guard saw comes before it.
        self.ends[rank as usize].store(DEAD | status, Ordering::Release);
        if !has_departed {
            // Release: pairs with the Acquire in `is_any`; the note comes before it.
            self.is_any.store(true, Ordering::Release);
        }
    }

    /// Notes that no thread of the rank runs any more.
    pub fn note_over(&self, rank: u32) {
        // Release: pairs with the Acquire in `is_over`; the guard has seen the last thread end.
        self.ends[rank as usize].fetch_or(OVER, Ordering::Release);
    }

    /// Says whether a process ended whose rank had not left the job.
    #[inline]
    pub fn is_any(&self) -> bool {
        // Acquire: pairs with the Release in `note`.
        self.is_any.load(Ordering::Acquire)
    }

    /// Returns how the process of a rank ended, if it did; the inner value is `None` if nobody could tell.
    pub fn end_of(&self, rank: u32) -> Option<Option<WaitStatus>> {
        // Acquire: pairs with the Release in `note`.
        let word = self.ends.get(rank as usize)?.load(Ordering::Acquire);
        (word & DEAD != 0).then(|| (word & HAS_STATUS != 0).then_some(WaitStatus(word as u16)))
    }

    /// Says whether no thread of the rank's process runs any more.
    pub fn is_over(&self, rank: u32) -> bool {
        // Acquire: pairs with the Release in `note_over`.
        self.ends.get(rank as usize).is_some_and(|word| word.load(Ordering::Acquire) & OVER != 0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_life_word_says_who_lives() {
        let life = Life::default();
        assert_eq!(life.state().0, LifeState::Nobody);
        life.hold(0x1234);
        assert_eq!(life.state(), (LifeState::Held, 0x8000_1234));
        life.end();
        assert_eq!(life.state().0, LifeState::Ended);
        life.leave();
        assert_eq!(life.state().0, LifeState::Left);
    }

    #[test]
    fn an_end_is_noted_with_its_status() {
        let deaths = Deaths::of_ranks(3);
        assert!(!deaths.is_any() && deaths.end_of(1).is_none());
        deaths.note(0, None, true);
        assert!(!deaths.is_any() && deaths.end_of(0) == Some(None));
        deaths.note(1, Some(WaitStatus(9)), false);
        let status = deaths.end_of(1).unwrap().unwrap();
        assert_eq!((status.signal(), status.exit_status()), (Some(9), None));
        assert!(deaths.is_any() && !deaths.is_over(1));
        deaths.note_over(1);
        assert!(deaths.is_over(1) && !deaths.is_over(0) && deaths.end_of(1) == Some(Some(status)));
        assert_eq!(WaitStatus(7 << 8).exit_status(), Some(7));
    }
}

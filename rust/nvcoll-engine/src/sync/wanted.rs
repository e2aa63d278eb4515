//! The question of a rank for a region of a peer's memory, and the bell that wakes the guard of the peer.
//!
//! ```text
//! rank that asks                       guard of the peer
//!   wanted = question    (Release)       heard = bell                  (Acquire)
//!   bell += 1, wake      (Release)       reads what its peers want, answers over the sockets
//!                                        sleeps while bell == heard
//! ```
//!
//! A guard that heard the bell sees the question. A bell that rings after `heard` was read ends the sleep at once.

use super::atomic::{AtomicU32, AtomicU64, Ordering};
use super::futex::wake;

/// A question for a region. Peers may have scribbled on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionQuestion(u64);

impl RegionQuestion {
    /// The rank of the run that is asked.
    pub fn owner(self) -> u32 {
        (self.0 >> 8 & 0xffff) as u32
    }

    /// The number of the region.
    pub fn region(self) -> usize {
        (self.0 & 0xff) as usize
    }

    /// The word, which no other question of the same rank has.
    pub fn word(self) -> u64 {
        self.0
    }
}

/// What a rank wants of a peer: one thing at a time. It has one writer.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Wanted {
    question: AtomicU64,
    /// The number of questions so far; it is read by the writer only.
    asked: AtomicU32,
}

impl Wanted {
    /// Asks for a region of a rank.
    pub fn ask(&self, owner: u32, region: usize) -> RegionQuestion {
        // Relaxed: the writer's own.
        let number = self.asked.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let question = u64::from(number) << 32 | 1 << 31 | u64::from(owner) << 8 | region as u64;
        // Release: pairs with the Acquire in `read`; what was received for earlier questions comes before.
        self.question.store(question, Ordering::Release);
        RegionQuestion(question)
    }

    /// Takes the question back.
    pub fn withdraw(&self) {
        // Relaxed: an answer that comes nevertheless is dropped.
        self.question.store(0, Ordering::Relaxed);
    }

    /// Returns the question, if there is one.
    pub fn read(&self) -> Option<RegionQuestion> {
        // Acquire: pairs with the Release in `ask`.
        Some(self.question.load(Ordering::Acquire)).filter(|&word| word != 0).map(RegionQuestion)
    }
}

/// The bell of a guard. Every rank rings it.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct GuardBell(AtomicU32);

impl GuardBell {
    /// Wakes the guard.
    pub fn ring(&self) {
        // Release: pairs with the Acquire in `heard`: the question comes before.
        self.0.fetch_add(1, Ordering::Release);
        wake(&self.0);
    }

    /// Returns the number of rings; the guard sleeps while it stays.
    pub fn heard(&self) -> u32 {
        // Acquire: pairs with the Release in `ring`.
        self.0.load(Ordering::Acquire)
    }

    /// Returns the word on which the guard sleeps.
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_as_it_was_asked_until_it_is_withdrawn() {
        let wanted = Wanted::default();
        assert_eq!(wanted.read(), None);
        let questions = [(0, 0), (1023, 47), (1023, 47)].map(|(owner, region)| {
            let asked = wanted.ask(owner, region);
            assert_eq!((wanted.read(), asked.owner(), asked.region()), (Some(asked), owner, region));
            asked
        });
        assert_ne!(questions[1], questions[2]);
        wanted.withdraw();
        assert_eq!(wanted.read(), None);
    }
}

//! The rendezvous of ranks that shrink a communicator: all of them are there, for the same list of ranks, and give it one number.
//!
//! ```text
//! idle ──▶ ready ──all are ready──▶ committed ──all are committed──▶ done       tag: the list of ranks; attempt: the number
//!            └──── gives up ─────────────┴─────▶ idle
//! ```
//!
//! A rank publishes its tag and an attempt that it has never used, and takes over a higher one of a peer with the same tag. When all ranks
//! publish the same, the attempt names what they make together. No barrier of the communicator can do this: ranks that died are in it. A
//! rank that finds everybody ready commits, and one that finds everybody committed is done. A rank that commits last is
//! overtaken when another begins its next rendezvous; the word therefore also has the last attempts that are done.
//!
//! Whoever gives up is at `idle` again. If it gives up between the commitment of others and its own, or is stopped there, its peers give up
//! at their deadlines, or find it dead.
//!
//! Cost: two words per rank; a rank looks at the words of all. Source: two-phase commit, J. Gray (1978), with every rank as coordinator.

use super::atomic::{fence, AtomicU64, Ordering};

/// The words of one rank, which it alone writes.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Rendezvous {
    tag: AtomicU64,
    /// The phase (2 bits), the attempt (31 bits), the attempts that are done (31 bits).
    word: AtomicU64,
}

/// The phase of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RendezvousPhase {
    /// It is in no rendezvous.
    Idle,
    /// It is there.
    Ready,
    /// It has seen that everybody is there.
    Committed,
}

/// The state of a rank in its rendezvous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RendezvousState {
    /// The list of ranks.
    pub tag: u64,
    /// Its phase.
    pub phase: RendezvousPhase,
    /// The attempt in which it is, or was last.
    pub attempt: u32,
    /// Bit k says that attempt number `attempt - k` is done.
    pub done: u32,
}

const HIGHEST: u64 = (1 << 31) - 1;

impl RendezvousState {
    /// Says whether the rank gave up its last attempt.
    pub fn has_given_up(self) -> bool {
        self.phase == RendezvousPhase::Idle && self.attempt != 0 && !self.has_done(self.attempt)
    }

    fn has_done(self, attempt: u32) -> bool {
        let ago = self.attempt.checked_sub(attempt);
        ago.is_some_and(|ago| ago < 31 && self.done >> ago & 1 == 1)
    }

    fn ready(self, tag: u64, attempt: u32) -> Self {
        let done = self.done.checked_shl(attempt - self.attempt).unwrap_or(0) & HIGHEST as u32;
        Self { tag, phase: RendezvousPhase::Ready, attempt, done }
    }

    fn finished(self) -> Self {
        Self { phase: RendezvousPhase::Idle, done: self.done | 1, ..self }
    }
}

impl Rendezvous {
    /// Publishes the state of the rank.
    pub fn publish(&self, state: RendezvousState) {
        // Relaxed, both: the fence and the Release order them; a reader that sees the new tag sees another word, or looks again.
        self.word.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        self.tag.store(state.tag, Ordering::Relaxed);
        let word = state.phase as u64 | u64::from(state.attempt) << 2 | u64::from(state.done) << 33;
        // Release: pairs with the Acquire in `read`.
        self.word.store(word, Ordering::Release);
    }

    /// Returns the state of the rank; idle while the rank changes it.
    pub fn read(&self) -> RendezvousState {
        // Acquire: pairs with the Release in `publish`.
        let word = self.word.load(Ordering::Acquire);
        // Relaxed: ordered by the Acquire above and the fence below.
        let tag = self.tag.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let is_whole = self.word.load(Ordering::Relaxed) == word;
        let phase = match word & 3 {
            1 if is_whole => RendezvousPhase::Ready,
            2 if is_whole => RendezvousPhase::Committed,
            _ => RendezvousPhase::Idle,
        };
        RendezvousState { tag, phase, attempt: (word >> 2 & HIGHEST) as u32, done: (word >> 33) as u32 }
    }
}

/// Takes the next step of rank `own`, given the state of every rank of the list; returns the attempt when it is done.
pub fn meet(ranks: &[&Rendezvous], own: usize, tag: u64) -> Option<u32> {
    use RendezvousPhase::{Committed, Idle, Ready};
    let mine = ranks[own].read();
    let others = || ranks.iter().enumerate().filter(|&(rank, _)| rank != own).map(|(_, peer)| peer.read());
    let is_here = |state: &RendezvousState| state.phase != Idle && state.tag == tag;
    let highest = others().filter(is_here).map(|state| state.attempt).max().unwrap_or(0);
    if mine.phase == Idle {
        ranks[own].publish(mine.ready(tag, highest.max(mine.attempt + 1)));
        return None;
    }
    if mine.phase == Committed && others().any(|state| state.has_done(mine.attempt)) {
        ranks[own].publish(mine.finished());
        return Some(mine.attempt);
    }
    if highest > mine.attempt {
        ranks[own].publish(mine.ready(tag, highest));
        return None;
    }
    let least =
        others().map(|state| if is_here(&state) && state.attempt == mine.attempt { state.phase } else { Idle }).min();
    match (mine.phase, least.unwrap_or(Committed)) {
        (Ready, Ready | Committed) => ranks[own].publish(RendezvousState { phase: Committed, ..mine }),
        (Committed, Committed) => {
            ranks[own].publish(mine.finished());
            return Some(mine.attempt);
        }
        _ => (),
    }
    None
}

/// Gives up the rendezvous of a rank.
pub fn give_up(own: &Rendezvous) {
    let mine = own.read();
    own.publish(RendezvousState { phase: RendezvousPhase::Idle, ..mine });
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Ranks take steps in any order; each is done once, and all at the same attempt, whatever they had tried before.
        #[test]
        fn ranks_meet_at_one_attempt_whoever_steps_when(steps in proptest::collection::vec(0usize..4, 0..60), tried in [0u32..5, 0..5, 0..5, 0..5]) {
            let ranks: [Rendezvous; 4] = Default::default();
            for (rank, attempt) in ranks.iter().zip(tried) {
                rank.publish(RendezvousState { tag: 9, phase: RendezvousPhase::Idle, attempt, done: 0 });
            }
            let (ranks, mut done) = (ranks.each_ref(), [None; 4]);
            for own in steps.into_iter().chain((0..40).map(|step| step % 4)) {
                if done[own].is_none() {
                    done[own] = meet(&ranks, own, 7);
                }
            }
            prop_assert_eq!(done, [Some(tried.into_iter().max().unwrap() + 1); 4]);
        }

        /// Nobody is done while a rank is missing, or says another list.
        #[test]
        fn nobody_is_done_without_everybody(steps in proptest::collection::vec(0usize..3, 0..60), other in any::<bool>()) {
            let ranks: [Rendezvous; 4] = Default::default();
            if other {
                ranks[3].publish(RendezvousState { tag: 8, phase: RendezvousPhase::Ready, attempt: 1, done: 0 });
            }
            let ranks = ranks.each_ref();
            for own in steps {
                prop_assert_eq!(meet(&ranks, own, 7), None);
            }
        }
    }
}

//! The communicators of one rank. The end of the rank reaches all of them.
//!
//! ```text
//! its program returns       it departs from each
//! its program fails         the abort is raised in each, then each is closed
//! the user interrupts       the abort is raised in each of every rank
//! ```
//!
//! Another thread of the rank may make a communicator meanwhile. It learns of the end when it is added, since both take one lock.
//! Dropped communicators are removed from the list now and then, so a rank may split forever.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::run::progress_thread::ProgressThread;

/// The way in which a rank ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RankEnd {
    /// Its program returned.
    Returned,
    /// Its program failed.
    Failed,
    /// Its process ended with this status, which is not 0.
    Exited(u8),
    /// The user interrupted the program.
    Interrupted,
}

/// The communicators of one rank, each as a `Member`, and the end of the rank.
#[derive(Debug)]
pub(crate) struct Memberships<Member> {
    state: Mutex<RankState<Member>>,
    shrinking: Mutex<()>,
    /// Advances what is in flight in all of them.
    pub(crate) progress: Arc<ProgressThread>,
}

#[derive(Debug)]
struct RankState<Member> {
    end: Option<RankEnd>,
    members: Vec<Weak<Member>>,
}

impl<Member> Default for Memberships<Member> {
    fn default() -> Self {
        let state = Mutex::new(RankState { end: None, members: Vec::new() });
        Self { state, shrinking: Mutex::new(()), progress: Arc::default() }
    }
}

impl<Member> Memberships<Member> {
    /// Adds a communicator, and returns the end of the rank if that was before.
    pub(crate) fn add(&self, member: &Arc<Member>) -> Option<RankEnd> {
        let mut state = self.lock();
        let members = &mut state.members;
        if members.len() == members.capacity() {
            members.retain(|member| member.strong_count() > 0);
            // Twice the room: each is looked at twice, on the average.
            members.reserve(members.len() + 1);
        }
        members.push(Arc::downgrade(member));
        state.end
    }

    /// Returns the communicators.
    pub(crate) fn all(&self) -> Vec<Arc<Member>> {
        self.lock().members.iter().filter_map(Weak::upgrade).collect()
    }

    /// Records the end of the rank, and returns the communicators that must learn of it.
    pub(crate) fn end(&self, end: RankEnd) -> Vec<Arc<Member>> {
        let mut state = self.lock();
        state.end = Some(end);
        state.members.iter().filter_map(Weak::upgrade).collect()
    }

    /// Waits until no other thread of the rank shrinks a communicator: its peers see one at a time.
    pub(crate) fn begin_to_shrink(&self) -> MutexGuard<'_, ()> {
        self.shrinking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of listed communicators, dropped ones included.
    #[cfg(test)]
    pub(crate) fn listed(&self) -> usize {
        self.lock().members.len()
    }

    fn lock(&self) -> MutexGuard<'_, RankState<Member>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

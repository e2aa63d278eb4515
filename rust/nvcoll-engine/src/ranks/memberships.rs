//! The communicators of one rank, so that what happens to the rank happens in all of them.
//!
//! ```text
//! its program returns       it departs from each
//! its program fails         the abort is raised in each, then each is closed
//! the user interrupts       the abort is raised in each of every rank
//! ```
//!
//! A communicator that is made while that happens, by another thread of the rank, learns of it when it is added: there is no
//! moment between the two. Those that were dropped are forgotten now and then, so that a rank may split for ever.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// How a rank came to make no more calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RankEnd {
    /// Its program returned.
    Returned,
    /// Its program failed.
    Failed,
    /// The user interrupted the program.
    Interrupted,
}

/// The communicators of one rank, each as a `Member`, and whether its program goes on.
#[derive(Debug)]
pub(crate) struct Memberships<Member>(Mutex<RankState<Member>>);

#[derive(Debug)]
struct RankState<Member> {
    end: Option<RankEnd>,
    members: Vec<Weak<Member>>,
}

impl<Member> Default for Memberships<Member> {
    fn default() -> Self {
        Self(Mutex::new(RankState { end: None, members: Vec::new() }))
    }
}

impl<Member> Memberships<Member> {
    /// Adds a communicator; says what it has missed.
    pub(crate) fn add(&self, member: &Arc<Member>) -> Option<RankEnd> {
        let mut state = self.lock();
        let members = &mut state.members;
        if members.len() == members.capacity() {
            members.retain(|member| member.strong_count() > 0);
            // Room for as many again: each is looked at twice, on the average.
            members.reserve(members.len() + 1);
        }
        members.push(Arc::downgrade(member));
        state.end
    }

    /// Notes how the rank ended; returns the communicators that are to learn of it.
    pub(crate) fn end(&self, end: RankEnd) -> Vec<Arc<Member>> {
        let mut state = self.lock();
        state.end = Some(end);
        state.members.iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns how many communicators are listed, dropped ones included.
    #[cfg(test)]
    pub(crate) fn listed(&self) -> usize {
        self.lock().members.len()
    }

    fn lock(&self) -> MutexGuard<'_, RankState<Member>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

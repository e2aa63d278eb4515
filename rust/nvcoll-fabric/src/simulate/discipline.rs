//! What a way of sharing links must say to the loop of a run (`run.rs`), and the events that both put on the agenda.

use super::agenda::Agenda;
use crate::units::Ps;

/// The event that a queue's step begins to move; other numbers are the discipline's.
pub(super) const BEGINS: u32 = 0;
/// The event that a transfer ends.
pub(super) const ENDS: u32 = u32::MAX;

pub(super) const fn event(queue: u32, what: u32) -> u64 {
    (queue as u64) << 32 | what as u64
}

/// What held a transfer back while most others did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limit {
    /// The link; none if that is not known.
    pub(super) link: u32,
    /// How many transfers were on it then.
    pub(super) users: u32,
}

impl Default for Limit {
    fn default() -> Self {
        Self { link: u32::MAX, users: 0 }
    }
}

/// How transfers get their links.
pub(super) trait Discipline {
    /// Whether a transfer has its links only after the latency of all of them; else each link adds its own.
    const WAITS_FOR_LATENCY: bool;

    /// Whether its state says when transfers end, so that the ends on the agenda say nothing more.
    const KNOWS_ENDS: bool;

    /// Returns how long a transfer takes that has its links to itself.
    fn alone(&mut self, path: u32, nbytes: u64) -> Ps;

    /// Such a transfer, of which that was asked just now, takes place.
    fn pass(&mut self, path: u32, takes: Ps) -> Limit;

    /// A transfer begins to move; returns when it ends if that is known now.
    fn begin(&mut self, queue: u32, path: u32, nbytes: u64, now: Ps, agenda: &mut Agenda) -> Option<Ps>;

    /// One of the discipline's events; returns when the queue's transfer ends if that is known now.
    fn happens(&mut self, happening: u64, now: Ps, agenda: &mut Agenda) -> Option<Ps>;

    /// The queue's transfer ends.
    fn end(&mut self, queue: u32, at: Ps) -> Limit;

    /// All events of `now` have happened; adds transfers that end now after all.
    fn settle(&mut self, now: Ps, ended: &mut Vec<u32>, agenda: &mut Agenda);

    /// Returns how long each link was in use, when nothing is any more.
    fn busy(&mut self) -> Vec<Ps>;

    /// Returns how long each link was in use until now.
    fn used(&self, now: Ps) -> Vec<Ps>;

    /// Tells all that decides what comes after `now`, times as distances from it, until `visit` says no; says whether it
    /// never did.
    fn state(&self, now: Ps, visit: &mut impl FnMut(u64) -> bool) -> bool;

    /// Goes on as it is, that much later, each link having been in use for so much more.
    fn postpone(&mut self, by: Ps, more: &[Ps]);
}

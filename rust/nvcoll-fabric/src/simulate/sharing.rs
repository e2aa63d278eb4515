//! The trait of models of link sharing, which the event loop (`run/`) calls, and the events that both put on the agenda.

use super::agenda::Agenda;
use crate::units::Ps;

/// The event at which a queue's step begins to move; other numbers belong to the sharing model.
pub(super) const BEGINS: u32 = 0;
/// The event at which a transfer ends.
pub(super) const ENDS: u32 = u32::MAX;

pub(super) const fn event(queue: u32, what: u32) -> u64 {
    (queue as u64) << 32 | what as u64
}

/// The link that limited a transfer while it had the most competitors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limit {
    /// The link; none if that is not known.
    pub(super) link: u32,
    /// The number of transfers on the link at that time.
    pub(super) users: u32,
}

impl Default for Limit {
    fn default() -> Self {
        Self { link: u32::MAX, users: 0 }
    }
}

/// A sharing model decides how transfers share links: max-min fair, or first in, first out.
pub(super) trait SharingModel {
    /// Whether a transfer has its links only after the latency of all of them; else each link adds its own.
    const WAITS_FOR_LATENCY: bool;

    /// Whether its state says when transfers end, so that the ends on the agenda say nothing more.
    const KNOWS_ENDS: bool;

    /// Returns the time of a transfer that has its links to itself.
    fn alone(&mut self, path: u32, nbytes: u64) -> Ps;

    /// Carries out a transfer that has its links to itself; the caller has just asked for its time.
    fn pass(&mut self, path: u32, takes: Ps) -> Limit;

    /// Begins to move a transfer; returns its end if that is known now.
    fn begin(&mut self, queue: u32, path: u32, nbytes: u64, now: Ps, agenda: &mut Agenda) -> Option<Ps>;

    /// Handles one of the model's own events; returns the end of the queue's transfer if that is known now.
    fn happens(&mut self, happening: u64, now: Ps, agenda: &mut Agenda) -> Option<Ps>;

    /// Ends the queue's transfer.
    fn end(&mut self, queue: u32, at: Ps) -> Limit;

    /// Settles rates after all events of `now`; adds the transfers that end now as a result.
    fn settle(&mut self, now: Ps, ended: &mut Vec<u32>, agenda: &mut Agenda);

    /// Returns the time that each link was in use, once no transfer is left.
    fn busy(&mut self) -> Vec<Ps>;

    /// Returns the time that each link was in use until now.
    fn used(&self, now: Ps) -> Vec<Ps>;

    /// Tells all that decides what comes after `now`, times as distances from it, until `visit` says no; says whether it
    /// never did.
    fn state(&self, now: Ps, visit: &mut impl FnMut(u64) -> bool) -> bool;

    /// Goes on as it is, that much later, each link having been in use for so much more.
    fn postpone(&mut self, by: Ps, more: &[Ps]);
}

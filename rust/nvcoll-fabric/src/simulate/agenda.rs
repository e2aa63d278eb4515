//! What happens when: transfers that begin and end, by time. What happens at one time is one batch: in a schedule whose
//! ranks go in step, most events share a time.

use std::collections::BTreeMap;

use crate::units::Ps;

/// What happens at one time: the queues whose transfers may end, and the queues whose transfers begin.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SimultaneousEvents {
    pub(super) ends: Vec<u32>,
    pub(super) begins: Vec<u32>,
}

/// Events by time.
#[derive(Default)]
pub(super) struct Agenda(BTreeMap<Ps, SimultaneousEvents>);

impl Agenda {
    /// Lets the transfer of a queue begin at a time.
    pub(super) fn begin(&mut self, at: Ps, queue: u32) {
        self.0.entry(at).or_default().begins.push(queue);
    }

    /// Has a transfer looked at when it may end.
    pub(super) fn end(&mut self, at: Ps, queue: u32) {
        self.0.entry(at).or_default().ends.push(queue);
    }

    pub(super) fn next_time(&self) -> Option<Ps> {
        self.0.first_key_value().map(|(&at, _)| at)
    }

    /// Takes everything that happens at a time.
    pub(super) fn take(&mut self, at: Ps) -> Option<SimultaneousEvents> {
        self.0.remove(&at)
    }
}

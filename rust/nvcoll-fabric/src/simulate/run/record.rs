//! What a run writes down of every step: when it was ready and done, and why not earlier.

use crate::simulate::sharing::Limit;
use crate::units::Ps;

/// Why a step was not ready earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepCause {
    /// Its rank had not entered.
    Own,
    /// Another rank had not entered, or its signal was on the way.
    Enter(u32),
    /// The step before it in its queue, or one it waits for, was not done: its number in the record.
    Step(u64),
}

impl StepCause {
    pub(super) const OWN: u64 = u64::MAX;
    pub(super) const ENTERS: u64 = 1 << 63;

    pub(super) fn read(packed: u64) -> Self {
        match packed {
            Self::OWN => StepCause::Own,
            _ if packed >= Self::ENTERS => StepCause::Enter((packed - Self::ENTERS) as u32),
            _ => StepCause::Step(packed),
        }
    }
}

/// What happened to every step in every tile, in queue order; then the leaves.
pub(crate) struct RunRecord {
    pub(crate) ready: Vec<Ps>,
    pub(crate) done: Vec<Ps>,
    pub(super) cause: Vec<u64>,
    pub(crate) limit: Vec<Limit>,
}

impl RunRecord {
    pub(crate) fn cause(&self, number: u64) -> StepCause {
        StepCause::read(self.cause[number as usize])
    }

    pub(super) fn new(entries: usize) -> Self {
        Self {
            ready: vec![0; entries],
            done: vec![0; entries],
            cause: vec![0; entries],
            limit: vec![Limit::default(); entries],
        }
    }
}

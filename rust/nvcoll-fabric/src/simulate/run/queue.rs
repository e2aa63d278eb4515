//! Where a queue is, and when its steps were done.

use super::{StepCause, NOBODY};
use crate::units::Ps;

/// A queue on its way.
#[derive(Clone)]
pub(super) struct QueueState {
    pub(super) step: u32,
    pub(super) tile: u32,
    /// How many waits of its step are over.
    pub(super) waits: u32,
    /// Which queue it waits for.
    pub(super) awaited: u32,
    /// Who waits for the same queue.
    pub(super) next_waiting: u32,
    /// At which progress of the queue that it waits for it goes on.
    pub(super) target: u64,
    pub(super) ready: Ps,
    /// When its last step was done.
    pub(super) last: Ps,
    pub(super) cause: u64,
    pub(super) nbytes: u64,
}

impl QueueState {
    /// Starts with a step in a tile, ready at a time.
    pub(super) fn new(step: u32, tile: u32, ready: Ps) -> Self {
        Self {
            step,
            tile,
            waits: 0,
            awaited: NOBODY,
            next_waiting: NOBODY,
            target: 0,
            ready,
            last: 0,
            cause: StepCause::OWN,
            nbytes: 0,
        }
    }
}

/// When the steps of a queue were done, those left out that everybody is past.
pub(super) struct Done {
    pub(super) forgotten: u64,
    pub(super) at: Vec<Ps>,
}

impl Done {
    pub(super) fn with_room(steps: usize) -> Self {
        Self { forgotten: 0, at: Vec::with_capacity(steps) }
    }

    /// Returns how many steps are done.
    #[inline]
    pub(super) fn steps(&self) -> u64 {
        self.forgotten + self.at.len() as u64
    }

    /// Returns when so many steps were done; none if they are not. What was forgotten was long ago.
    #[inline]
    pub(super) fn when(&self, steps: u64) -> Option<Ps> {
        if steps <= self.forgotten {
            return Some(0);
        }
        self.at.get((steps - self.forgotten - 1) as usize).copied()
    }

    /// Nobody asks for the first so many steps any more.
    pub(super) fn forget(&mut self, steps: u64) {
        let over = steps.saturating_sub(self.forgotten) as usize;
        if over > self.at.len() / 2 {
            self.at.drain(..over);
            self.forgotten = steps;
        }
    }
}

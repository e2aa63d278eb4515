//! The progress of a queue, and the times at which its steps were done.

use super::record::StepCause;
use crate::units::Ps;

/// No queue.
pub(super) const NOBODY: u32 = u32::MAX;

/// A queue on its way.
#[derive(Clone)]
pub(super) struct QueueState {
    pub(super) step: u32,
    pub(super) tile: u32,
    /// The number of waits of its step that are over.
    pub(super) waits: u32,
    /// The queue that it waits for.
    pub(super) awaited: u32,
    /// The next queue that waits for the same queue.
    pub(super) next_waiting: u32,
    /// At which progress of the queue that it waits for it goes on.
    pub(super) target: u64,
    pub(super) ready: Ps,
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

    /// Returns the number of steps that are done.
    #[inline]
    pub(super) fn steps(&self) -> u64 {
        self.forgotten + self.at.len() as u64
    }

    /// Returns the time at which the first `steps` steps were done; none if they are not. Forgotten times are 0.
    #[inline]
    pub(super) fn when(&self, steps: u64) -> Option<Ps> {
        if steps <= self.forgotten {
            return Some(0);
        }
        self.at.get((steps - self.forgotten - 1) as usize).copied()
    }

    /// Forgets the times of the first steps.
    pub(super) fn forget(&mut self, steps: u64) {
        let over = steps.saturating_sub(self.forgotten) as usize;
        if over > self.at.len() / 2 {
            self.at.drain(..over);
            self.forgotten = steps;
        }
    }
}

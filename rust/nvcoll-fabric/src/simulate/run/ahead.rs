//! A step begins: ahead of the clock if nobody can meet it on its links, else by the clock.
//!
//! ```text
//! each contender (`contenders.rs`)   moves something still, or may begin to before the step ends       the clock says when
//!                            waits for who waits for … this queue, or for steps that take long     go ahead
//! ```
//!
//! How far off a contender is: a queue waits for a step, so many steps of that queue are missing, and each takes its fixed
//! time; that one waits for a step in turn, and so on. Who comes back to the queue that asks begins after it. So queues
//! that take turns on a link need no clock, as long as they are few.

use super::{Execution, QueueState, NOBODY};
use crate::simulate::paths::NOTHING;
use crate::simulate::sharing::{event, Limit, SharingModel, BEGINS};
use crate::units::Ps;

/// How many queues are looked at, each of which waits for the next. Chosen: as many as may share a link.
const LONGEST_CHAIN: usize = 8;

impl<S: SharingModel> Execution<'_, S> {
    /// Begins a queue's step. Returns when it is done if nobody can meet it before `horizon`, which is looked for anew
    /// when it is too near; else the clock will say it.
    pub(super) fn begin(&mut self, number: u32, horizon: &mut Ps) -> Option<(Ps, Limit)> {
        let queue = &self.queues[number as usize];
        let flat = self.flat.step(queue.step);
        let nbytes = self.flat.nbytes(flat.size, queue.tile);
        let path = &self.paths.all[flat.path as usize];
        let begins = queue.ready + path.fixed;
        if nbytes == 0 || flat.path == NOTHING {
            return Some((begins, Limit::default()));
        }
        let begins = begins + if S::WAITS_FOR_LATENCY { path.latency } else { 0 };
        let contenders = self.contenders.of(number).filter(|_| !self.repeats.is_looking);
        if let Some(contenders) = contenders {
            let takes = self.sharing.alone(flat.path, nbytes);
            if begins + takes > *horizon {
                *horizon = self.horizon(number, contenders, begins, begins + takes);
            }
            if begins + takes <= *horizon {
                self.moved[flat.path as usize] += nbytes;
                return Some((begins + takes, self.sharing.pass(flat.path, takes)));
            }
        }
        self.queues[number as usize].nbytes = nbytes;
        self.agenda.push_in_order(begins, event(number, BEGINS));
        None
    }

    /// Returns until when nobody else moves anything over a queue's links from `begins` on, as far as is known, if its own
    /// transfer ends at `ends`; 0 if that is too early.
    fn horizon(&self, number: u32, contenders: &[u32], begins: Ps, ends: Ps) -> Ps {
        let mut horizon = Ps::MAX;
        for &contender in contenders {
            let queue = &self.queues[contender as usize];
            if queue.last > begins {
                return 0;
            }
            if queue.tile < self.flat.tiles {
                horizon = horizon.min(self.ready_at_least(contender, number, ends));
            }
            if horizon < ends {
                return 0;
            }
        }
        horizon
    }

    /// Returns before when a queue's step is not ready if that of `number` is not done before `ends`.
    fn ready_at_least(&self, mut queue: u32, number: u32, ends: Ps) -> Ps {
        let (mut least, mut then) = (0, 0);
        for _ in 0..LONGEST_CHAIN {
            let QueueState { ready, awaited, target, .. } = self.queues[queue as usize];
            least = least.max(ready + then);
            if awaited == NOBODY {
                break;
            }
            let missing = target.saturating_sub(self.done[awaited as usize].steps());
            if missing == 0 {
                // What it waits for is done; it has not been told yet.
                break;
            }
            if awaited == number {
                return least.max(ends + then);
            }
            then += missing * self.contenders.least[awaited as usize];
            queue = awaited;
        }
        least
    }
}

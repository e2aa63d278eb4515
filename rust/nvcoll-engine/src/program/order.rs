//! The order of a program's steps, as its proved schedule states it: the early steps and the queues of each rank, and what each step
//! and each leave waits for.
//!
//! An order is made of a [`Verified`] schedule alone and keeps it, so no step runs before what the proof has it wait for. Positions of steps and
//! waits are resolved to numbers that a worker compares with progress words; nothing is moved. Waits for the own enter are left out: a rank
//! looks at its queues when it has entered.

use nvcoll_core::schedule::{Dependency, Event, Step};
use nvcoll_core::verify::Verified;

/// A condition that a step waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The rank has entered the call.
    Enter { rank: u32 },
    /// A queue of the rank has done `done` steps of tile `tile - lag`; it has `length` steps per tile.
    Steps { rank: u32, queue: u32, length: u32, done: u32, lag: u32 },
}

impl Wait {
    /// Returns the rank that it waits for.
    pub(crate) fn rank(&self) -> u32 {
        let (Self::Enter { rank } | Self::Steps { rank, .. }) = *self;
        rank
    }
}

/// The order of the steps, by rank or by task.
#[derive(Debug)]
pub(crate) struct StepOrder {
    verified: Verified,
    /// The tasks that each rank runs before it stamps.
    pub(crate) early: Vec<Vec<u32>>,
    /// The tasks of each queue of each rank, in order; the early queue has none.
    pub(crate) queues: Vec<Vec<Vec<u32>>>,
    /// What each task waits for, and who waits for it.
    pub(crate) links: Vec<TaskLinks>,
    /// The waits of each rank before it leaves.
    pub(crate) leave: Vec<Vec<Wait>>,
}

/// The waits of one task, and the ranks that wait for it.
#[derive(Debug, Clone, Default)]
pub(crate) struct TaskLinks {
    pub(crate) waits: Vec<Wait>,
    /// The ranks that have a step which waits for this one.
    pub(crate) dependents: Vec<u32>,
    /// The ranks whose leave alone waits for it, in the last tile.
    pub(crate) leavers: Vec<u32>,
}

impl StepOrder {
    /// Returns the order of a proved schedule.
    pub(super) fn of(verified: &Verified) -> Self {
        let schedule = verified.schedule();
        let mut queues: Vec<Vec<Vec<u32>>> = schedule
            .queues()
            .iter()
            .map(|rank| rank.iter().map(|queue| queue.iter().map(|&step| step as u32).collect()).collect())
            .collect();
        let link = |step: &Step| TaskLinks { waits: resolve(step.rank, &step.after, &queues), ..TaskLinks::default() };
        let links = schedule.steps.iter().map(link).collect();
        let leave = (0..).zip(&schedule.leave).map(|(rank, after)| resolve(rank, after, &queues)).collect();
        let take_early = |(rank, of_rank): (u32, &mut Vec<Vec<u32>>)| {
            schedule.early_queue(rank).map_or_else(Vec::new, |queue| std::mem::take(&mut of_rank[queue as usize]))
        };
        let early = (0..).zip(&mut queues).map(take_early).collect();
        let mut order = Self { verified: verified.clone(), early, queues, links, leave };
        order.connect();
        order
    }

    /// Says whether comparing the order with its proof takes little time.
    pub(crate) fn is_small(&self) -> bool {
        self.links.len() <= 256
    }

    /// Says whether the order is the one that its proved schedule states: every step at its place, and every wait.
    ///
    /// The engine asserts it in builds with debug assertions, before each call of a small schedule.
    pub(crate) fn is_as_proved(&self) -> bool {
        let schedule = self.verified.schedule();
        let is_wait = |(wait, stated): (&Wait, &Dependency)| match (*wait, stated.event) {
            (Wait::Enter { rank }, Event::Enter) => rank == stated.rank,
            (Wait::Steps { rank, queue, length, done, lag }, Event::Step { queue: of, index }) => {
                let of_queue = schedule.steps.iter().filter(|step| (step.rank, step.queue) == (stated.rank, of));
                (rank, queue, done, lag) == (stated.rank, of, index + 1, stated.lag)
                    && length as usize == of_queue.count()
            }
            _ => false,
        };
        let are_waits = |own: u32, waits: &[Wait], stated: &[Dependency]| {
            let stated = || stated.iter().filter(|stated| !is_own_enter(own, stated));
            waits.len() == stated().count() && waits.iter().zip(stated()).all(is_wait)
        };
        let is_placed = |(task, step): (u32, &Step)| {
            let own = match schedule.early_queue(step.rank) == Some(step.queue) {
                true => &self.early[step.rank as usize],
                false => &self.queues[step.rank as usize][step.queue as usize],
            };
            own.get(step.index as usize) == Some(&task)
                && are_waits(step.rank, &self.links[task as usize].waits, &step.after)
        };
        let tasks = self.early.iter().chain(self.queues.iter().flatten()).map(Vec::len).sum::<usize>();
        tasks == schedule.steps.len()
            && (0..).zip(&schedule.steps).all(is_placed)
            && (0..)
                .zip(self.leave.iter().zip(&schedule.leave))
                .all(|(own, (waits, stated))| are_waits(own, waits, stated))
    }

    /// Returns the proof of the order.
    pub(crate) fn verified(&self) -> &Verified {
        &self.verified
    }

    /// Records at every task the ranks that wait for it.
    fn connect(&mut self) {
        let awaited = |own: usize, waits: &[Wait], queues: &[Vec<Vec<u32>>]| -> Vec<usize> {
            let of_others = waits.iter().filter_map(|wait| match *wait {
                Wait::Steps { rank, queue, done, .. } if rank as usize != own => {
                    Some(queues[rank as usize][queue as usize][done as usize - 1] as usize)
                }
                _ => None,
            });
            of_others.collect()
        };
        for (rank, queues) in self.queues.iter().enumerate() {
            for &task in queues.iter().flatten() {
                for awaited in awaited(rank, &self.links[task as usize].waits, &self.queues) {
                    self.links[awaited].dependents.push(rank as u32);
                }
            }
            for awaited in awaited(rank, &self.leave[rank], &self.queues) {
                self.links[awaited].leavers.push(rank as u32);
            }
        }
        for TaskLinks { dependents, leavers, .. } in &mut self.links {
            dependents.sort_unstable();
            dependents.dedup();
            leavers.retain(|rank| !dependents.contains(rank));
        }
    }
}

/// Says whether a wait of rank `own` is for its own enter.
fn is_own_enter(own: u32, wait: &Dependency) -> bool {
    wait.event == Event::Enter && wait.rank == own
}

fn resolve(own: u32, after: &[Dependency], queues: &[Vec<Vec<u32>>]) -> Vec<Wait> {
    let wait = |d: &Dependency| match d.event {
        Event::Enter => Wait::Enter { rank: d.rank },
        Event::Step { queue, index } => {
            let length = queues[d.rank as usize][queue as usize].len() as u32;
            Wait::Steps { rank: d.rank, queue, length, done: index + 1, lag: d.lag }
        }
    };
    after.iter().filter(|after| !is_own_enter(own, after)).map(wait).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use nvcoll_core::algorithm::{build, ALGORITHMS};
    use nvcoll_core::collective::{Roles, ALL_REDUCE};
    use nvcoll_core::lower::{lower, stage_early};
    use nvcoll_core::schedule::{Aliasing, Path};
    use nvcoll_core::verify::verify;

    #[test]
    fn every_order_is_as_proved() {
        for schedule in ALGORITHMS.iter().flat_map(|algorithm| algorithm.schedules(3)).map(Result::unwrap) {
            let title = schedule.title();
            assert!(StepOrder::of(&verify(schedule).unwrap()).is_as_proved(), "{title}");
        }
    }

    #[test]
    fn an_order_that_was_changed_after_the_proof_is_noticed() {
        let schedule = build(&ALL_REDUCE, "one_shot", Roles::of(3), Aliasing::InPlace).unwrap();
        let schedule = stage_early(&lower(&schedule, Path::Staged).unwrap()).unwrap();
        let verified = verify(schedule).unwrap();
        let changes: [fn(&mut StepOrder); 4] = [
            |order| order.early[0].clear(),
            |order| order.queues[1][0].clear(),
            |order| order.leave[2].push(Wait::Enter { rank: 2 }),
            |order| order.links.iter_mut().for_each(|link| link.waits.clear()),
        ];
        for change in changes {
            let mut order = StepOrder::of(&verified);
            change(&mut order);
            assert!(!order.is_as_proved());
        }
    }
}

//! The order of a program's steps: the queues of each rank, and what each step and each leave waits for.
//!
//! A small call that is alone and takes one tile has an order of its own. Steps that begin a queue and touch nothing but their rank's
//! own memory and staging run **before the rank stamps**, and the stamp says that they are done. A value that fits a few lines then
//! travels with the enter: its readers wait for one word instead of two, and its rank rings once instead of twice.
//!
//! ```text
//! any tiles   r0: enter ─▶ r1 entered? stage ─▶ publish     r1: r0 entered? r0 staged? fold
//! alone       r0: stage ─▶ enter                            r1: r0 entered? fold
//! ```
//!
//! Why this is the schedule that was proved: with one tile, the waits for earlier tiles hold. A rank waits for the enter of a peer,
//! which is its contact, before it touches the peer's memory or waits for its steps. A step on own memory needs no contact, so it
//! commutes with the enter. Staging is free from the enter on (the stamp rule, `verify/succession.rs`). Contacts of such steps move to
//! the leave of their rank. Peers that learned from such a step who has entered wait for these enters in their leave, if all leaves
//! come after all enters in the proof. The order is given up if a later step would lack a contact.

use nvcoll_core::schedule::{Dependency, Event, Path, Schedule};

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
#[derive(Debug, Default)]
pub(crate) struct StepOrder {
    /// The tasks that each rank runs before it stamps.
    pub(crate) early: Vec<Vec<u32>>,
    /// The tasks of each queue of each rank, in order.
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
    /// The ranks of which only the leave waits for it, in the last tile.
    pub(crate) leavers: Vec<u32>,
}

impl StepOrder {
    /// Returns the order of a schedule, for any number of tiles.
    pub(super) fn of(schedule: &Schedule) -> Self {
        let queues: Vec<Vec<Vec<u32>>> = schedule
            .queues()
            .iter()
            .map(|rank| rank.iter().map(|queue| queue.iter().map(|&step| step as u32).collect()).collect())
            .collect();
        let link = |after| TaskLinks { waits: resolve(after, &queues), ..TaskLinks::default() };
        let links = schedule.steps.iter().map(|step| link(&step.after)).collect();
        let leave = schedule.leave.iter().map(|after| resolve(after, &queues)).collect();
        let mut order = Self { early: vec![Vec::new(); queues.len()], queues, links, leave };
        order.connect();
        order
    }

    /// Returns the order of a call of one tile that is alone; `None` if nothing can run before the stamp.
    pub(super) fn alone(schedule: &Schedule, is_symmetric: bool) -> Option<Self> {
        if schedule.path != Path::Staged {
            return None;
        }
        let mut order = Self::of(schedule);
        for link in &mut order.links {
            link.waits.retain(|wait| !matches!(wait, Wait::Steps { lag, .. } if *lag > 0));
        }
        let early = order.find_early(schedule);
        if early.iter().flatten().all(|&length| length == 0) {
            return None;
        }
        order.move_before_stamps(&early);
        if is_symmetric {
            order.leave_after_all_enters(schedule);
        }
        order.connect();
        order.has_all_contacts(schedule).then_some(order)
    }

    /// Finds how many tasks at the front of each queue touch their own rank's memory alone, and wait for nothing but contact.
    fn find_early(&self, schedule: &Schedule) -> Vec<Vec<usize>> {
        let is_early = |task: &u32| {
            let step = &schedule.steps[*task as usize];
            let is_contact = |wait: &Wait| matches!(wait, Wait::Enter { .. });
            step.views().all(|view| view.rank == step.rank) && self.links[*task as usize].waits.iter().all(is_contact)
        };
        let length = |queue: &Vec<u32>| queue.iter().take_while(|task| is_early(task)).count();
        self.queues.iter().map(|queues| queues.iter().map(length).collect()).collect()
    }

    /// Moves `early` tasks of each queue before the stamp of their rank, and their contacts to its leave.
    fn move_before_stamps(&mut self, early: &[Vec<usize>]) {
        for (rank, lengths) in early.iter().enumerate() {
            for (queue, &length) in self.queues[rank].iter_mut().zip(lengths) {
                self.early[rank].extend(queue.drain(..length));
            }
            self.early[rank].sort_unstable();
            for &task in &self.early[rank] {
                self.leave[rank].append(&mut self.links[task as usize].waits);
            }
        }
        let later = |own: usize, wait: Wait| match wait {
            Wait::Enter { .. } => Some(wait),
            Wait::Steps { rank, queue, length, done, lag } => {
                let moved = early[rank as usize][queue as usize] as u32;
                match done.checked_sub(moved) {
                    None | Some(0) if rank as usize == own => None,
                    None | Some(0) => Some(Wait::Enter { rank }),
                    Some(done) => Some(Wait::Steps { rank, queue, length: length - moved, done, lag }),
                }
            }
        };
        let rewrite = |own: usize, waits: &mut Vec<Wait>| {
            let mut rewritten: Vec<Wait> = Vec::with_capacity(waits.len());
            for wait in waits.iter().filter_map(|&wait| later(own, wait)) {
                if !rewritten.contains(&wait) {
                    rewritten.push(wait);
                }
            }
            *waits = rewritten;
        };
        for (rank, queues) in self.queues.iter().enumerate() {
            queues.iter().flatten().for_each(|&task| rewrite(rank, &mut self.links[task as usize].waits));
            rewrite(rank, &mut self.leave[rank]);
        }
    }

    /// Lets every leave come after all enters again: steps that run before stamps tell nobody whom their rank has seen enter.
    fn leave_after_all_enters(&mut self, schedule: &Schedule) {
        let ranks = self.queues.len();
        let mut before: Vec<Option<u32>> = vec![None; schedule.steps.len()];
        for queue in self.queues.iter().flatten() {
            queue.windows(2).for_each(|pair| before[pair[1] as usize] = Some(pair[0]));
        }
        // The ranks that have entered when a step is done. Steps learn of each other until nothing is new.
        let mut seen = vec![vec![false; ranks]; schedule.steps.len()];
        let mut has_news = true;
        while std::mem::take(&mut has_news) {
            for (step, &before) in before.iter().enumerate() {
                let known = self.seen_at(&self.links[step].waits, before, &seen);
                has_news |= known != seen[step];
                seen[step] = known;
            }
        }
        for own in 0..ranks {
            let mut known = self.seen_at(&self.leave[own], None, &seen);
            for last in self.queues[own].iter().filter_map(|queue| queue.last()) {
                add(&mut known, &seen[*last as usize]);
            }
            let missing = (0..ranks).filter(|&rank| rank != own && !known[rank]);
            self.leave[own].extend(missing.map(|rank| Wait::Enter { rank: rank as u32 }));
        }
    }

    /// Returns which ranks have entered when some waits, and the task `before`, are over.
    fn seen_at(&self, waits: &[Wait], before: Option<u32>, seen: &[Vec<bool>]) -> Vec<bool> {
        let mut known = vec![false; self.queues.len()];
        before.into_iter().for_each(|before| add(&mut known, &seen[before as usize]));
        for wait in waits {
            match *wait {
                Wait::Enter { rank } => known[rank as usize] = true,
                Wait::Steps { rank, queue, done, .. } => {
                    add(&mut known, &seen[self.queues[rank as usize][queue as usize][done as usize - 1] as usize]);
                }
            }
        }
        known
    }

    /// Says whether every step has waited in its own queue for the enter of each rank that it touches or waits for.
    fn has_all_contacts(&self, schedule: &Schedule) -> bool {
        let is_met = |own: usize, queue: &Vec<u32>| {
            let mut met = vec![own as u32];
            queue.iter().all(|&task| {
                let waits = &self.links[task as usize].waits;
                met.extend(waits.iter().filter_map(|wait| match wait {
                    Wait::Enter { rank } => Some(*rank),
                    Wait::Steps { .. } => None,
                }));
                let awaited = waits.iter().map(Wait::rank);
                let touched = schedule.steps[task as usize].views().map(|view| view.rank);
                awaited.chain(touched).all(|rank| met.contains(&rank))
            })
        };
        self.queues.iter().enumerate().all(|(own, queues)| queues.iter().all(|queue| is_met(own, queue)))
    }

    /// Records at every task the ranks that wait for it.
    fn connect(&mut self) {
        self.links.iter_mut().for_each(|link| (link.dependents, link.leavers) = Default::default());
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

fn add(known: &mut [bool], others: &[bool]) {
    known.iter_mut().zip(others).for_each(|(known, other)| *known |= other);
}

fn resolve(after: &[Dependency], queues: &[Vec<Vec<u32>>]) -> Vec<Wait> {
    let wait = |d: &Dependency| match d.event {
        Event::Enter => Wait::Enter { rank: d.rank },
        Event::Step { queue, index } => {
            let length = queues[d.rank as usize][queue as usize].len() as u32;
            Wait::Steps { rank: d.rank, queue, length, done: index + 1, lag: d.lag }
        }
    };
    after.iter().map(wait).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use nvcoll_core::algorithm::{self, build};
    use nvcoll_core::collective::{Roles, ALL_REDUCE, BROADCAST, COLLECTIVES};
    use nvcoll_core::lower::lower;
    use nvcoll_core::schedule::Aliasing;
    use nvcoll_core::verify::verify;

    fn staged(name: &str, n: u32) -> Schedule {
        lower(&build(&ALL_REDUCE, name, Roles::of(n), Aliasing::InPlace).unwrap(), Path::Staged).unwrap()
    }

    #[test]
    fn in_a_one_shot_every_rank_stages_before_it_stamps_and_waits_for_stamps_alone() {
        let order = StepOrder::alone(&staged("one_shot", 3), true).unwrap();
        assert!(order.early.iter().all(|early| early.len() == 1));
        for waits in order.queues.iter().flatten().flatten().map(|&task| &order.links[task as usize].waits) {
            assert!(waits.iter().all(|wait| matches!(wait, Wait::Enter { .. }) || is_own_fold(wait)), "{waits:?}");
        }
    }

    /// The copy to the output waits for the fold of its own rank.
    fn is_own_fold(wait: &Wait) -> bool {
        matches!(wait, Wait::Steps { lag: 0, .. })
    }

    #[test]
    fn a_root_that_stages_before_it_stamps_still_leaves_after_its_peers_have_entered() {
        let schedule = build(&BROADCAST, "direct", Roles::of(2), Aliasing::InPlace).unwrap();
        let order = StepOrder::alone(&lower(&schedule, Path::Staged).unwrap(), false).unwrap();
        assert_eq!((order.early[0].len(), order.queues[0][0].len()), (1, 0));
        assert_eq!(order.leave[0], [Wait::Enter { rank: 1 }]);
    }

    /// Runs an order in a world where every wait that can be over is, and says that all steps come by, each after what it reads.
    #[test]
    fn every_registered_algorithm_keeps_all_its_steps_and_finishes() {
        for &collective in COLLECTIVES {
            for algorithm in algorithm::of(collective) {
                for n in 1..=5 {
                    let Ok(schedule) = build(collective, algorithm.name, Roles::of(n), Aliasing::Disjoint) else {
                        continue;
                    };
                    let verified = verify(lower(&schedule, Path::Staged).unwrap()).unwrap();
                    let (schedule, is_symmetric) = (verified.schedule(), verified.is_symmetric());
                    let Some(order) = StepOrder::alone(schedule, is_symmetric) else { continue };
                    let mut done: Vec<Vec<usize>> = order.queues.iter().map(|queues| vec![0; queues.len()]).collect();
                    let mut finished: usize = order.early.iter().map(Vec::len).sum();
                    loop {
                        let before = finished;
                        for (rank, queues) in order.queues.iter().enumerate() {
                            for (number, queue) in queues.iter().enumerate() {
                                let Some(&task) = queue.get(done[rank][number]) else { continue };
                                let is_over = |wait: &Wait| match *wait {
                                    Wait::Enter { .. } => true,
                                    Wait::Steps { rank, queue, done: wanted, .. } => {
                                        done[rank as usize][queue as usize] >= wanted as usize
                                    }
                                };
                                if order.links[task as usize].waits.iter().all(is_over) {
                                    done[rank][number] += 1;
                                    finished += 1;
                                }
                            }
                        }
                        if finished == before {
                            break;
                        }
                    }
                    assert_eq!(finished, schedule.steps.len(), "{} {} of {n}", collective.name, algorithm.name);
                    if is_symmetric {
                        (0..n).for_each(|late| {
                            assert_nobody_leaves_without(&order, late, collective.name, algorithm.name)
                        });
                    }
                }
            }
        }
    }

    /// Runs all that can run while one rank does not enter: its peers must not leave.
    fn assert_nobody_leaves_without(order: &StepOrder, late: u32, collective: &str, algorithm: &str) {
        let mut done: Vec<Vec<usize>> = order.queues.iter().map(|queues| vec![0; queues.len()]).collect();
        let is_over = |wait: &Wait, done: &[Vec<usize>]| match *wait {
            Wait::Enter { rank } => rank != late,
            Wait::Steps { rank, queue, done: wanted, .. } => done[rank as usize][queue as usize] >= wanted as usize,
        };
        let mut has_moved = true;
        while std::mem::take(&mut has_moved) {
            for (rank, queues) in order.queues.iter().enumerate().filter(|(rank, _)| *rank as u32 != late) {
                for (number, queue) in queues.iter().enumerate() {
                    let next = queue.get(done[rank][number]);
                    if next
                        .is_some_and(|&task| order.links[task as usize].waits.iter().all(|wait| is_over(wait, &done)))
                    {
                        done[rank][number] += 1;
                        has_moved = true;
                    }
                }
            }
        }
        for (rank, queues) in order.queues.iter().enumerate().filter(|(rank, _)| *rank as u32 != late) {
            let are_done = queues.iter().zip(&done[rank]).all(|(queue, &done)| queue.len() == done);
            let may_leave = are_done && order.leave[rank].iter().all(|wait| is_over(wait, &done));
            assert!(!may_leave, "{collective} {algorithm}: rank {rank} leaves before rank {late} has entered");
        }
    }
}

//! Early steps: the form of a staged schedule for calls of one tile, in which ranks stage before they enter.
//!
//! Steps at the front of a queue that touch their rank's own memory alone move to the **early queue** of the rank, which is
//! done before the rank enters. A value that fits a few lines then travels with the enter: its readers wait for one event instead of two,
//! and its rank rings once instead of twice. MPI calls such a message eager.
//!
//! ```text
//! any tiles   r0: enter ─▶ r1 entered? stage ─▶ done        r1: r0 entered? r0 staged? fold
//! one tile    r0: stage ─▶ enter                            r1: r0 entered? fold
//! ```
//!
//! What changes, besides the places of steps:
//! 1. Waits for earlier tiles go: there is one tile.
//! 2. An early step waits for nothing. A wait for an early step becomes a wait for the enter of its rank.
//! 3. A queue that lost its first steps waits for its rank's own enter, and for the enters that those steps waited for, if it needs
//!    these contacts.
//! 4. A leave waits for the enters that its rank's early steps waited for, and for the enters that early steps implied, so that
//!    it comes after the same enters as before.
//!
//! The steps keep their positions in [`Schedule::steps`], their views and their marks. Cost: linear in steps and waits, and one bit for
//! each step and rank. The staging of the call is free before the enter: a rank waits for stamps before its early steps
//! ([`crate::verify`]). Source: ours.

use crate::schedule::{Dependency, Event, Path, Schedule};

/// Moves steps of a staged schedule before the enters of their ranks; `None` if no step can move.
pub fn stage_early(schedule: &Schedule) -> Option<Schedule> {
    if schedule.path != Path::Staged || schedule.has_early_steps() {
        return None;
    }
    let queues = schedule.queues();
    let early = queues.iter().map(|of_rank| of_rank.iter().map(|queue| early_steps(schedule, queue)).collect());
    let early: Vec<Vec<usize>> = early.collect();
    if early.iter().flatten().all(|&length| length == 0) {
        return None;
    }
    let mut lowered = schedule.clone();
    lowered.early = vec![None; queues.len()];
    for rank in 0..queues.len() {
        move_steps(&mut lowered, rank as u32, &queues[rank], &early[rank]);
    }
    rewrite_waits(&mut lowered, schedule, &queues);
    for (of_rank, lengths) in queues.iter().zip(&early) {
        for (queue, &length) in of_rank.iter().zip(lengths) {
            restore_contacts(&mut lowered, &queue[length..], length > 0);
        }
    }
    let (before, after) = (enters_before_leaves(schedule), enters_before_leaves(&lowered));
    for (leave, (before, after)) in lowered.leave.iter_mut().zip(before.iter().zip(&after)) {
        leave.extend(
            (0..).zip(before.iter().zip(after)).filter(|(_, (was, is))| **was && !**is).map(|(rank, _)| enter(rank)),
        );
    }
    Some(lowered)
}

/// Returns the number of steps at the front of a queue that touch own memory alone, and wait for nothing of the same tile but enters.
fn early_steps(schedule: &Schedule, queue: &[usize]) -> usize {
    let is_early = |position: &&usize| {
        let step = &schedule.steps[**position];
        let waits_for_enters = step.after.iter().all(|wait| wait.event == Event::Enter || wait.lag > 0);
        waits_for_enters && step.views().all(|view| view.rank == step.rank)
    };
    queue.iter().take_while(is_early).count()
}

/// Gives the steps of a rank their new places: the first `early` of each queue go to the early queue, which is the last.
fn move_steps(lowered: &mut Schedule, rank: u32, queues: &[Vec<usize>], early: &[usize]) {
    let fronts: Vec<usize> = queues.iter().zip(early).flat_map(|(queue, &length)| &queue[..length]).copied().collect();
    let rests = queues.iter().zip(early).map(|(queue, &length)| &queue[length..]).filter(|rest| !rest.is_empty());
    let mut all: Vec<&[usize]> = rests.collect();
    if !fronts.is_empty() {
        lowered.early[rank as usize] = Some(all.len() as u32);
        all.push(&fronts);
    }
    for (queue, steps) in (0..).zip(all) {
        for (index, &position) in (0..).zip(steps) {
            (lowered.steps[position].queue, lowered.steps[position].index) = (queue, index);
        }
    }
}

/// Drops the waits of early steps and those for earlier tiles, and names the other awaited events by their new places.
fn rewrite_waits(lowered: &mut Schedule, schedule: &Schedule, queues: &[Vec<Vec<usize>>]) {
    let early = lowered.early.clone();
    let places: Vec<(u32, u32)> = lowered.steps.iter().map(|step| (step.queue, step.index)).collect();
    let renamed = |wait: &Dependency| match wait.event {
        Event::Enter => *wait,
        Event::Step { queue, index } => {
            let (queue, index) = places[queues[wait.rank as usize][queue as usize][index as usize]];
            let is_early = early[wait.rank as usize] == Some(queue);
            let event = if is_early { Event::Enter } else { Event::Step { queue, index } };
            Dependency { event, ..*wait }
        }
    };
    let rewritten = |waits: &[Dependency]| {
        let mut after: Vec<Dependency> = Vec::with_capacity(waits.len());
        for wait in waits.iter().filter(|wait| wait.lag == 0).map(renamed) {
            if !after.contains(&wait) {
                after.push(wait);
            }
        }
        after
    };
    for (step, original) in lowered.steps.iter_mut().zip(&schedule.steps) {
        let is_early = early[step.rank as usize] == Some(step.queue);
        step.after = if is_early { Vec::new() } else { rewritten(&original.after) };
    }
    for (rank, leave) in (0..).zip(&mut lowered.leave) {
        let moved = schedule
            .steps
            .iter()
            .zip(&places)
            .filter(|(step, (queue, _))| step.rank == rank && early[rank as usize] == Some(*queue));
        let contacts = moved.flat_map(|(step, _)| &step.after).copied();
        *leave = rewritten(&leave.iter().copied().chain(contacts).collect::<Vec<_>>());
    }
}

/// Lets each step of a queue wait for the enters of the ranks that it touches or waits for, unless an earlier step has; and the first
/// for its own rank's enter, if the steps before it are early now.
fn restore_contacts(lowered: &mut Schedule, queue: &[usize], lost_steps: bool) {
    let mut met: Vec<u32> = Vec::new();
    for (nth, &position) in queue.iter().enumerate() {
        let step = &lowered.steps[position];
        let own = (nth == 0 && lost_steps).then_some(step.rank);
        let others = step.views().map(|view| view.rank).chain(step.after.iter().map(|wait| wait.rank));
        let others = others.filter(|&rank| rank != step.rank && !met.contains(&rank));
        let mut missing: Vec<Dependency> = own.into_iter().chain(others).map(enter).collect();
        missing.sort_unstable();
        missing.dedup();
        met.extend(missing.iter().map(|wait| wait.rank));
        missing.extend(step.after.iter().filter(|wait| !missing.contains(wait)).copied().collect::<Vec<_>>());
        lowered.steps[position].after = missing;
    }
}

fn enter(rank: u32) -> Dependency {
    Dependency { rank, event: Event::Enter, lag: 0 }
}

/// Returns, for each rank, the ranks that have entered when it leaves.
fn enters_before_leaves(schedule: &Schedule) -> Vec<Vec<bool>> {
    let queues = schedule.queues();
    let none = || vec![false; queues.len()];
    let mut known = vec![none(); schedule.steps.len()];
    let of_waits = |rank: u32, after: &[Dependency], known: &[Vec<bool>]| {
        let mut all = none();
        all[rank as usize] = true;
        for wait in after.iter().filter(|wait| wait.lag == 0) {
            match wait.event {
                Event::Enter => all[wait.rank as usize] = true,
                Event::Step { queue, index } => {
                    add(&mut all, &known[queues[wait.rank as usize][queue as usize][index as usize]])
                }
            }
        }
        all
    };
    // Steps may be listed in any order, so they learn of each other until nothing is new.
    let mut has_news = true;
    while std::mem::take(&mut has_news) {
        for (position, step) in schedule.steps.iter().enumerate() {
            let mut all = of_waits(step.rank, &step.after, &known);
            if let Some(before) = step.index.checked_sub(1) {
                add(&mut all, &known[queues[step.rank as usize][step.queue as usize][before as usize]]);
            }
            has_news |= all != known[position];
            known[position] = all;
        }
    }
    let leave = |(rank, after): (u32, &Vec<Dependency>)| {
        let mut all = of_waits(rank, after, &known);
        let ends = queues[rank as usize].iter().filter_map(|queue| queue.last());
        ends.for_each(|&end| add(&mut all, &known[end]));
        all
    };
    (0..).zip(&schedule.leave).map(leave).collect()
}

fn add(known: &mut [bool], others: &[bool]) {
    known.iter_mut().zip(others).for_each(|(known, other)| *known |= other);
}

//! Contact: a rank is touched, or waited for, only after its enter was seen, and its buffers only before its leave.

use std::collections::{HashMap, HashSet};

use super::order::HappensBefore;
use super::violation::{StepName, Violation};
use crate::collective::Promise;
use crate::schedule::{Event, Schedule, Step};

pub(super) fn check(schedule: &Schedule, order: &mut HappensBefore) -> Result<(), Violation> {
    let entries = Entries::of(schedule);
    for (position, step) in schedule.steps.iter().enumerate() {
        let met = step.after.iter().map(|d| d.rank).chain(step.views().map(|v| v.rank));
        for other in met.filter(|&other| other != step.rank) {
            if !entries.are_seen(order, step, position as u32, other) {
                return Err(Violation::NotEntered { step: StepName::of(step).to_string(), other });
            }
        }
    }
    for rank in 0..schedule.world_size {
        check_leave(schedule, order, &entries, rank)?;
    }
    if schedule.collective.synchronises && !is_symmetric(schedule) {
        let rank = (0..schedule.world_size).find(|&rank| !waits_for_all(schedule, rank)).unwrap_or(0);
        return Err(Violation::NotSynchronising { rank, collective: schedule.collective.name });
    }
    Ok(())
}

/// Where ranks wait for the enter of which others.
struct Entries {
    /// (rank, other) to the steps of rank that wait for other's enter.
    steps: HashMap<(u32, u32), Vec<(u32, u32, u32)>>,
}

impl Entries {
    fn of(schedule: &Schedule) -> Self {
        let mut steps: HashMap<(u32, u32), Vec<(u32, u32, u32)>> = HashMap::new();
        for (position, step) in schedule.steps.iter().enumerate() {
            for wait in step.after.iter().filter(|d| d.event == Event::Enter) {
                steps.entry((step.rank, wait.rank)).or_default().push((step.queue, step.index, position as u32));
            }
        }
        Self { steps }
    }

    fn are_seen(&self, order: &mut HappensBefore, step: &Step, position: u32, other: u32) -> bool {
        let Some(places) = self.steps.get(&(step.rank, other)) else { return false };
        let is_earlier_in_queue = |&(queue, index, _): &(u32, u32, u32)| queue == step.queue && index <= step.index;
        places.iter().any(is_earlier_in_queue)
            || places.iter().any(|place| order.is_before(place.2 as usize, position as usize))
    }

    fn are_seen_by_rank(&self, rank: u32, other: u32) -> bool {
        self.steps.contains_key(&(rank, other))
    }
}

fn check_leave(schedule: &Schedule, order: &mut HappensBefore, entries: &Entries, rank: u32) -> Result<(), Violation> {
    let leave = &schedule.leave[rank as usize];
    let entered: HashSet<u32> = leave.iter().filter(|d| d.event == Event::Enter).map(|d| d.rank).collect();
    let mut reached: HashMap<(u32, u32), u32> = HashMap::new();
    let mut ends: Vec<u32> = order.ends_of(rank).collect();
    for wait in leave {
        if wait.rank != rank && !entered.contains(&wait.rank) && !entries.are_seen_by_rank(rank, wait.rank) {
            return Err(Violation::NotEntered { step: format!("the leave of rank {rank}"), other: wait.rank });
        }
        if let Event::Step { queue, index } = wait.event {
            let furthest = reached.entry((wait.rank, queue)).or_default();
            *furthest = (*furthest).max(index + 1);
            ends.push(order.position(wait.rank, queue, index));
        }
    }
    let last_tile = order.tiles - 1;
    let touches = |step: &&Step| step.rank != rank && step.views().any(|v| v.rank == rank && !v.buffer.is_staging());
    for step in visitors(schedule, rank).filter(touches) {
        let is_waited_for = reached.get(&(step.rank, step.queue)).is_some_and(|&furthest| step.index < furthest);
        let node = order.node(last_tile, order.position(step.rank, step.queue, step.index));
        let is_past = is_waited_for || ends.iter().any(|&end| order.is_before(node, order.node(last_tile, end)));
        if !is_past {
            return Err(Violation::LeavesEarly { step: StepName::of(step), other: rank });
        }
    }
    Ok(())
}

fn visitors(schedule: &Schedule, _rank: u32) -> impl Iterator<Item = &Step> {
    schedule.steps.iter()
}

/// Says whether no rank leaves before every rank has entered.
///
/// A rank whose promised result draws on every rank's contribution has waited for all of them to enter: whoever read a
/// contribution was its owner, or had waited for the owner's enter, and the result came after. Otherwise leave must say so.
pub(super) fn is_symmetric(schedule: &Schedule) -> bool {
    (0..schedule.world_size).all(|rank| waits_for_all(schedule, rank))
}

fn waits_for_all(schedule: &Schedule, rank: u32) -> bool {
    let n = schedule.world_size;
    let mut known: HashSet<u32> = HashSet::from([rank]);
    for part in schedule.collective.output(n, rank) {
        match schedule.collective.promise(part) {
            Promise::FoldOfAll => return true,
            Promise::CopyOf { from } => known.insert(from),
        };
    }
    let enters = schedule.leave[rank as usize].iter().filter(|d| d.event == Event::Enter);
    known.extend(enters.map(|d| d.rank));
    known.len() == n as usize
}

//! The schedule as a graph of direct predecessors, and a topological order of one tile.
//!
//! ```text
//! node   (step, tile)
//! edges  the step before it in its queue          (the first step of a tile follows the last step of the tile before)
//!        every step it waits for, `lag` tiles back (before the first tile there is nothing to wait for)
//!        if it waits for an enter, the last early step of that rank
//! ```
//!
//! No edge leads from a later tile to an earlier tile, and every tile has the same inner edges. So the topological order of one tile,
//! repeated, is a topological order of any number of tiles. **A schedule is free of deadlock if and only if queue order and lag-0
//! waits form no cycle inside one tile.** The order is breadth-first (Kahn 1962), which keeps the number of steps with open waits
//! small; [`super::clocks`] keeps a clock for each of them.

use std::ops::Range;

use super::location::StepName;
use super::report::Violation;
use crate::schedule::{Dependency, Event, Schedule, Step};

/// The end of a list.
const NONE: u32 = u32::MAX;

/// The queues of all ranks, numbered consecutively, and a topological order of one tile.
pub(super) struct Graph<'a> {
    pub(super) schedule: &'a Schedule,
    /// The steps of each queue, as positions in the schedule.
    queues: Vec<Vec<u32>>,
    /// The waits of each queue, each with the index of its step; a walk reads them consecutively.
    waits: Vec<Vec<(u32, Dependency)>>,
    /// The first queue of each rank, and the number of queues at the end.
    first_queue: Vec<u32>,
    /// The steps as positions in the schedule, in topological order.
    order: Vec<u32>,
}

impl<'a> Graph<'a> {
    /// Numbers the queues of a well-formed schedule, and finds a topological order.
    pub(super) fn of(schedule: &'a Schedule) -> Result<Self, Violation> {
        let (queues, first_queue) = number_queues(schedule);
        let waits_of = |&step: &u32| {
            let Step { index, after, .. } = &schedule.steps[step as usize];
            after.iter().map(|wait| (*index, *wait))
        };
        let waits = queues.iter().map(|queue| queue.iter().flat_map(waits_of).collect()).collect();
        let mut graph = Self { schedule, queues, waits, first_queue, order: Vec::new() };
        graph.order = graph.topological_order()?;
        Ok(graph)
    }

    pub(super) fn order(&self) -> &[u32] {
        &self.order
    }

    pub(super) fn step(&self, step: u32) -> &'a Step {
        &self.schedule.steps[step as usize]
    }

    pub(super) fn name(&self, step: u32) -> StepName {
        name_of(self.step(step))
    }

    pub(super) fn queue_count(&self) -> usize {
        self.queues.len()
    }

    /// Returns the rank of a queue.
    pub(super) fn rank_of(&self, number: usize) -> u32 {
        self.step(self.queues[number][0]).rank
    }

    /// Returns the numbers of the queues of a rank.
    pub(super) fn queues_of(&self, rank: u32) -> std::ops::Range<usize> {
        self.first_queue[rank as usize] as usize..self.first_queue[rank as usize + 1] as usize
    }

    pub(super) fn queue_number(&self, step: u32) -> usize {
        let step = self.step(step);
        (self.first_queue[step.rank as usize] + step.queue) as usize
    }

    pub(super) fn queue(&self, number: usize) -> &[u32] {
        &self.queues[number]
    }

    /// Returns the last step of a queue.
    pub(super) fn end_of(&self, number: usize) -> u32 {
        *self.queues[number].last().expect("a queue has a step")
    }

    /// Yields the waits of a range of steps of a queue, each with the tile of its step. The range counts steps since the first tile.
    pub(super) fn waits_within(&self, number: usize, done: Range<u32>) -> impl Iterator<Item = (u32, Dependency)> + '_ {
        let (waits, length) = (&self.waits[number], self.queues[number].len() as u32);
        (done.start / length..done.end.div_ceil(length)).flat_map(move |tile| {
            let place_of = |done: u32| waits.partition_point(|(index, _)| *index < done.saturating_sub(tile * length));
            waits[place_of(done.start)..place_of(done.end)].iter().map(move |(_, wait)| (tile, *wait))
        })
    }

    /// Returns the queue of an awaited step, and the number of its steps that are then done, unless the step lies before tile 0.
    pub(super) fn done_with_awaited(&self, wait: Dependency, tile: u32) -> Option<(usize, u32)> {
        let step = self.awaited_step(&wait)?;
        Some((self.queue_number(step), self.done_with(step, tile.checked_sub(wait.lag)?)))
    }

    /// Returns the step for which a wait waits; for an enter, the last early step of the rank, if it has one.
    fn awaited_step(&self, wait: &Dependency) -> Option<u32> {
        let number = |queue: u32| (self.first_queue[wait.rank as usize] + queue) as usize;
        match wait.event {
            Event::Enter => self.schedule.early_queue(wait.rank).map(|queue| self.end_of(number(queue))),
            Event::Step { queue, index } => Some(self.queues[number(queue)][index as usize]),
        }
    }

    /// Returns the number of steps of its queue that are done once `step` is done, since the first tile.
    pub(super) fn done_with(&self, step: u32, tile: u32) -> u32 {
        tile * self.queues[self.queue_number(step)].len() as u32 + self.step(step).index + 1
    }

    /// Returns the step before `step` in its queue and tile.
    pub(super) fn predecessor(&self, step: u32) -> Option<u32> {
        let before = self.step(step).index.checked_sub(1)?;
        Some(self.queues[self.queue_number(step)][before as usize])
    }

    /// Yields the awaited steps, each with its lag; early steps among them.
    pub(super) fn awaited(&self, after: &'a [Dependency]) -> impl Iterator<Item = (u32, u32)> + use<'_, 'a> {
        after.iter().filter_map(|wait| Some((self.awaited_step(wait)?, wait.lag)))
    }

    /// Yields the direct predecessors of a step in its tile.
    fn before_in_tile(&self, step: u32) -> impl Iterator<Item = u32> + use<'_, 'a> {
        let waits = self.awaited(&self.step(step).after).filter(|(_, lag)| *lag == 0).map(|(awaited, _)| awaited);
        self.predecessor(step).into_iter().chain(waits)
    }

    fn topological_order(&self) -> Result<Vec<u32>, Violation> {
        let count = self.schedule.steps.len();
        let mut missing = vec![0u32; count];
        // For each step, its first dependent in `dependents`; each of these has the place of the next.
        let (mut first, mut dependents) = (vec![NONE; count], Vec::new());
        for step in (0..count as u32).rev() {
            for before in self.before_in_tile(step) {
                missing[step as usize] += 1;
                dependents.push((step, first[before as usize]));
                first[before as usize] = dependents.len() as u32 - 1;
            }
        }
        let mut order: Vec<u32> = (0..count as u32).filter(|&step| missing[step as usize] == 0).collect();
        let mut turn = 0;
        while let Some(&step) = order.get(turn) {
            turn += 1;
            let mut at = first[step as usize];
            while let Some(&(dependent, next)) = dependents.get(at as usize) {
                missing[dependent as usize] -= 1;
                if missing[dependent as usize] == 0 {
                    order.push(dependent);
                }
                at = next;
            }
        }
        if order.len() == count {
            Ok(order)
        } else {
            Err(self.circle(&missing))
        }
    }

    /// Finds a cycle by a backward walk among steps that never become ready.
    fn circle(&self, missing: &[u32]) -> Violation {
        let mut walk: Vec<u32> = Vec::new();
        let mut met_at = vec![usize::MAX; missing.len()];
        let mut step = missing.iter().position(|&count| count > 0).expect("some step is not ready") as u32;
        while met_at[step as usize] == usize::MAX {
            met_at[step as usize] = walk.len();
            walk.push(step);
            let stuck = self.before_in_tile(step).find(|&before| missing[before as usize] > 0);
            step = stuck.expect("a step that is not ready waits for one that is not ready");
        }
        let steps = walk[met_at[step as usize]..].iter().map(|&step| self.name(step)).collect();
        Violation::Deadlock { steps }
    }
}

/// Returns the name of a step.
pub(super) fn name_of(step: &Step) -> StepName {
    StepName { rank: step.rank, queue: step.queue, index: step.index }
}

fn number_queues(schedule: &Schedule) -> (Vec<Vec<u32>>, Vec<u32>) {
    let mut per_rank = vec![0; schedule.world_size as usize];
    for step in &schedule.steps {
        let count = &mut per_rank[step.rank as usize];
        *count = (step.queue + 1).max(*count);
    }
    let mut first_queue = vec![0];
    for count in per_rank {
        first_queue.push(first_queue[first_queue.len() - 1] + count);
    }
    let mut queues = vec![Vec::new(); first_queue[schedule.world_size as usize] as usize];
    for (position, step) in schedule.steps.iter().enumerate() {
        let queue: &mut Vec<u32> = &mut queues[(first_queue[step.rank as usize] + step.queue) as usize];
        queue.resize(queue.len().max(step.index as usize + 1), 0);
        queue[step.index as usize] = position as u32;
    }
    (queues, first_queue)
}

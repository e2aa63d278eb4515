//! Happens-before: the steps that are certainly done once a step is done.
//!
//! ```text
//! clock of a step:  for every queue of every rank, the number of its steps before it       q0: 7  q1: 3  q2: 0 …
//!                   for every rank, whether its enter does                                r0: yes  r1: no …
//! clock(step) = max(clock of the step before it in its queue, clocks of the steps it waits for), and itself
//! a happens before the current step  ⇔  clock[queue of a] ≥ place of a
//! ```
//!
//! These are vector clocks (Fidge 1988, Mattern 1989) over queues instead of processes. The clocks of all steps would not fit into
//! memory for 1024 ranks, so only a front is kept. A clock is kept until all steps that wait for its step have been passed, and
//! at most [`KEPT_PER_QUEUE`] clocks per queue are kept. A clock may be gone, because it was the oldest or because a wait reaches
//! back to an earlier tile. Then the current clock **learns** the awaited step and its past by a backward walk, which stops at
//! known steps. A queue learns each step at most once, so all walks together cost no more than the clocks: steps x queues. Memory:
//! a few clocks per queue, queues^2.

use std::collections::VecDeque;

use super::graph::Graph;
use super::memory::MOST_BYTES;
use super::report::Violation;
use crate::schedule::{Dependency, Event};

/// The average number of kept clocks per queue. Chosen: a ring in breadth-first order needs two.
const KEPT_PER_QUEUE: usize = 4;

/// The number of clocks that are always kept, so that small schedules keep all clocks. Chosen.
const KEPT_AT_LEAST: usize = 4096;

/// A clock: the number of done steps of each queue since the first tile, then a bit per rank for its enter. A clock that contains a
/// step contains everything that happens before the step.
pub(super) type Clock = Box<[u32]>;

/// Checks that the clocks of a proof fit into memory.
pub(super) fn check_room(graph: &Graph<'_>) -> Result<(), Violation> {
    let [queues, ranks, steps] =
        [graph.queue_count(), graph.schedule.world_size as usize, graph.order().len()].map(|count| count as u128);
    let front = (KEPT_PER_QUEUE as u128 * queues).max(KEPT_AT_LEAST as u128).min(steps);
    let clocks = (front + queues + ranks) * (queues + ranks.div_ceil(32)) * size_of::<u32>() as u128;
    // `Contacts` keeps one number per queue and rank.
    let bytes = clocks + queues * ranks * size_of::<u32>() as u128;
    match bytes > MOST_BYTES {
        true => Err(Violation::TooLarge { what: "bytes of clocks", found: bytes, most: MOST_BYTES }),
        false => Ok(()),
    }
}

/// A front of clocks that moves through the tiles.
pub(super) struct Clocks<'g, 'a> {
    graph: &'g Graph<'a>,
    tile: u32,
    /// The current step.
    now: u32,
    /// The clock of each step of this tile; empty unless it is kept.
    of_step: Vec<Clock>,
    /// The number of further uses of each clock in this tile.
    needed: Vec<u32>,
    /// The steps with kept clocks, and some steps without, oldest first.
    kept: VecDeque<u32>,
    /// The largest length of `kept`.
    most: usize,
    /// The last step of each queue that was passed.
    latest: Vec<u32>,
    /// The clock of each queue at the end of the previous tile.
    of_tile_before: Vec<Clock>,
    free: Vec<Clock>,
}

impl<'g, 'a> Clocks<'g, 'a> {
    /// Starts before the first step of the first tile.
    pub(super) fn new(graph: &'g Graph<'a>) -> Self {
        Self::keeping(graph, (KEPT_PER_QUEUE * graph.queue_count()).max(KEPT_AT_LEAST))
    }

    /// Starts with a front of at most `most` clocks and at least one for each queue.
    fn keeping(graph: &'g Graph<'a>, most: usize) -> Self {
        let mut clocks = Self {
            graph,
            tile: 0,
            now: 0,
            of_step: vec![Clock::default(); graph.order().len()],
            needed: Vec::new(),
            kept: VecDeque::new(),
            most: most.max(graph.queue_count()),
            latest: vec![0; graph.queue_count()],
            of_tile_before: vec![Clock::default(); graph.queue_count()],
            free: Vec::new(),
        };
        clocks.needed = clocks.needed_per_step();
        clocks
    }

    /// Moves to `step`; all steps before it must have been passed.
    pub(super) fn advance(&mut self, step: u32) {
        let graph = self.graph;
        self.now = step;
        let mut clock = match graph.predecessor(step) {
            Some(before) => self.take_over(before),
            None if self.tile > 0 => std::mem::take(&mut self.of_tile_before[graph.queue_number(step)]),
            None => self.fresh_of(graph.step(step).rank),
        };
        let after = &graph.step(step).after;
        self.admit(&mut clock, after);
        graph.awaited(after).filter(|(_, lag)| *lag == 0).for_each(|(awaited, _)| self.release(awaited));
        clock[graph.queue_number(step)] = graph.done_with(step, self.tile);
        self.of_step[step as usize] = clock;
        self.latest[graph.queue_number(step)] = step;
        self.kept.push_back(step);
        self.forget_oldest();
    }

    /// Says whether a step in a tile is the current step or happens before it.
    pub(super) fn knows(&self, step: u32, tile: u32) -> bool {
        self.of_step[self.now as usize][self.graph.queue_number(step)] >= self.graph.done_with(step, tile)
    }

    /// Returns the clock of a rank's leave, if the current tile is the last.
    pub(super) fn leave(&mut self, rank: u32) -> Clock {
        let graph = self.graph;
        let mut clock = self.fresh_of(rank);
        for queue in graph.queues_of(rank) {
            merge(&mut clock, &self.of_step[graph.end_of(queue) as usize], graph.queue_count());
        }
        self.admit(&mut clock, &graph.schedule.leave[rank as usize]);
        clock
    }

    /// Moves to the next tile; all steps of this tile must have been passed.
    pub(super) fn next_tile(&mut self) {
        for queue in 0..self.graph.queue_count() {
            self.of_tile_before[queue] = std::mem::take(&mut self.of_step[self.graph.end_of(queue) as usize]);
        }
        self.tile += 1;
        self.kept.clear();
        self.needed = self.needed_per_step();
    }

    /// Returns the number of uses of each clock in a tile: one for each waiting step, and one for the end of the tile.
    fn needed_per_step(&self) -> Vec<u32> {
        let mut needed = vec![1; self.graph.order().len()];
        for step in &self.graph.schedule.steps {
            for (awaited, _) in self.graph.awaited(&step.after).filter(|(_, lag)| *lag == 0) {
                needed[awaited as usize] += 1;
            }
        }
        needed
    }

    /// Returns the clock of a step with which the next step of its queue begins; it reuses the memory if no other step needs it.
    fn take_over(&mut self, step: u32) -> Clock {
        self.needed[step as usize] -= 1;
        if self.needed[step as usize] == 0 {
            return std::mem::take(&mut self.of_step[step as usize]);
        }
        let mut clock = self.blank();
        clock.copy_from_slice(&self.of_step[step as usize]);
        clock
    }

    /// Adds awaited events and their past to a clock.
    fn admit(&self, clock: &mut Clock, after: &'a [Dependency]) {
        let graph = self.graph;
        admit_enters(graph, clock, after);
        for (awaited, lag) in graph.awaited(after) {
            let Some(tile) = self.tile.checked_sub(lag) else { continue };
            let is_known = clock[graph.queue_number(awaited)] >= graph.done_with(awaited, tile);
            let kept = &self.of_step[awaited as usize];
            if is_known {
                continue;
            } else if lag == 0 && !kept.is_empty() {
                merge(clock, kept, graph.queue_count());
            } else {
                learn(graph, clock, (awaited, tile));
            }
        }
    }

    fn release(&mut self, step: u32) {
        self.needed[step as usize] -= 1;
        if self.needed[step as usize] == 0 {
            self.drop_clock(step);
        }
    }

    fn drop_clock(&mut self, step: u32) {
        let clock = std::mem::take(&mut self.of_step[step as usize]);
        if !clock.is_empty() {
            self.free.push(clock);
        }
    }

    /// Drops clocks, oldest first, but never the latest of a queue.
    fn forget_oldest(&mut self) {
        while self.kept.len() > self.most {
            let step = self.kept.pop_front().expect("it is longer than the front");
            if self.latest[self.graph.queue_number(step)] == step {
                self.kept.push_back(step);
            } else {
                self.drop_clock(step);
            }
        }
    }

    fn fresh_of(&mut self, rank: u32) -> Clock {
        let mut clock = self.blank();
        clock.fill(0);
        set_entered(self.graph, &mut clock, rank);
        clock
    }

    fn blank(&mut self) -> Clock {
        let width = self.graph.queue_count() + (self.graph.schedule.world_size as usize).div_ceil(32);
        self.free.pop().unwrap_or_else(|| vec![0; width].into())
    }
}

/// Says whether a clock contains a step of the first tile.
pub(super) fn is_past(graph: &Graph<'_>, clock: &Clock, step: u32) -> bool {
    clock[graph.queue_number(step)] >= graph.done_with(step, 0)
}

/// Says whether a clock contains a rank's enter.
pub(super) fn has_entered(graph: &Graph<'_>, clock: &Clock, rank: u32) -> bool {
    clock[graph.queue_count() + rank as usize / 32] >> (rank % 32) & 1 == 1
}

fn set_entered(graph: &Graph<'_>, clock: &mut Clock, rank: u32) {
    clock[graph.queue_count() + rank as usize / 32] |= 1 << (rank % 32);
}

fn admit_enters(graph: &Graph<'_>, clock: &mut Clock, after: &[Dependency]) {
    for wait in after.iter().filter(|wait| wait.event == Event::Enter) {
        set_entered(graph, clock, wait.rank);
    }
}

/// Adds another clock of the same tile to a clock.
fn merge(clock: &mut [u32], other: &[u32], queues: usize) {
    let ((done, entered), (other_done, other_entered)) = (clock.split_at_mut(queues), other.split_at(queues));
    done.iter_mut().zip(other_done).for_each(|(mine, &theirs)| *mine = theirs.max(*mine));
    entered.iter_mut().zip(other_entered).for_each(|(mine, &theirs)| *mine |= theirs);
}

/// Adds a step in a tile and its past by a backward walk that stops at known steps, one stretch of a queue at a time.
fn learn(graph: &Graph<'_>, clock: &mut Clock, (step, tile): (u32, u32)) {
    let mut stack = vec![(graph.queue_number(step), graph.done_with(step, tile))];
    while let Some((queue, done)) = stack.pop() {
        let known = clock[queue];
        if done <= known {
            continue;
        }
        clock[queue] = done;
        set_entered(graph, clock, graph.rank_of(queue));
        for (tile, wait) in graph.waits_within(queue, known..done) {
            if wait.event == Event::Enter {
                set_entered(graph, clock, wait.rank);
            }
            stack.extend(graph.done_with_awaited(wait, tile));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::ALGORITHMS;

    /// Returns every clock of three tiles and of every leave, in the order of the proof.
    fn all_clocks(graph: &Graph<'_>, mut clocks: Clocks<'_, '_>) -> Vec<Clock> {
        let mut all = Vec::new();
        for tile in 0..3 {
            if tile > 0 {
                clocks.next_tile();
            }
            for &step in graph.order() {
                clocks.advance(step);
                all.push(clocks.of_step[step as usize].clone());
            }
            all.extend((0..graph.schedule.world_size).map(|rank| clocks.leave(rank)));
        }
        all
    }

    #[test]
    fn a_clock_that_is_learnt_is_the_clock_that_is_kept() {
        for algorithm in ALGORITHMS {
            for schedule in [1, 2, 3, 7].into_iter().flat_map(|n| algorithm.schedules(n)).map(Result::unwrap) {
                let graph = Graph::of(&schedule).unwrap();
                let kept = all_clocks(&graph, Clocks::new(&graph));
                let learnt = all_clocks(&graph, Clocks::keeping(&graph, 0));
                assert!(kept == learnt, "{}", schedule.title());
            }
        }
    }
}

//! Happens-before: what is certainly done once a step is.
//!
//! ```text
//! clock of a step:  for every queue of every rank, how many of its steps happen before    q0: 7  q1: 3  q2: 0 …
//!                   for every rank, whether its enter does                                r0: yes  r1: no …
//! clock(step) = max(clock of the step before it in its queue, clocks of the steps it waits for), and itself
//! a happens before the step at hand  ⇔  clock[queue of a] ≥ place of a
//! ```
//!
//! These are vector clocks (Fidge 1988, Mattern 1989) over queues instead of processes. A clock is as wide as there are
//! queues, so one per step does not fit for 1024 ranks; but a clock is only needed until the steps that wait for its step
//! have been passed, and in breadth-first order that is a front as wide as the machine: a ring of 1024 ranks keeps some
//! thousand clocks for its two million steps. Cost: steps x queues in time, queues^2 or so in memory.
//!
//! Departure, for the sake of that front: **a wait `lag` tiles back adds the awaited step alone, not that step's own past.**
//! Clocks of later tiles may therefore know too little, never too much. Where such a clock says no, [`Graph::precedes`]
//! searches, and its answer is exact. Clocks of the first tile are exact as they stand.

use super::graph::Graph;
use crate::schedule::{Dependency, Event};

/// One clock: steps done per queue, then a bit per rank for its enter.
pub(super) type Clock = Box<[u32]>;

/// A front of clocks that moves through the tiles.
pub(super) struct Clocks<'g, 'a> {
    graph: &'g Graph<'a>,
    tile: u32,
    /// The step at hand.
    now: u32,
    /// For each step of this tile its clock, while someone needs it.
    of_step: Vec<Clock>,
    /// For each step of this tile, how many will still ask for its clock.
    needed: Vec<u32>,
    /// For each queue, its clock at the end of the tile before.
    of_tile_before: Vec<Clock>,
    free: Vec<Clock>,
}

impl<'g, 'a> Clocks<'g, 'a> {
    /// Starts before the first step of the first tile.
    pub(super) fn new(graph: &'g Graph<'a>) -> Self {
        let steps = graph.order().len();
        let mut clocks = Self {
            graph,
            tile: 0,
            now: 0,
            of_step: vec![Clock::default(); steps],
            needed: Vec::new(),
            of_tile_before: vec![Clock::default(); graph.queue_count()],
            free: Vec::new(),
        };
        clocks.needed = clocks.needed_per_step();
        for step in graph.schedule.leave.iter().flat_map(|after| graph.awaited(after)).map(|(step, _)| step) {
            clocks.needed[step as usize] += 1;
        }
        clocks
    }

    /// Moves to `step`, whose past has been passed.
    pub(super) fn advance(&mut self, step: u32) {
        let graph = self.graph;
        self.now = step;
        let mut clock = match graph.predecessor(step) {
            Some(before) => self.take_over(before),
            None if self.tile > 0 => std::mem::take(&mut self.of_tile_before[graph.queue_number(step)]),
            None => self.fresh_of(graph.step(step).rank),
        };
        self.admit_enters(&mut clock, &graph.step(step).after);
        for (awaited, lag) in graph.awaited(&graph.step(step).after) {
            if lag == 0 {
                self.merge(&mut clock, awaited);
            } else if lag <= self.tile {
                let queue = &mut clock[graph.queue_number(awaited)];
                *queue = graph.done_with(awaited, self.tile - lag).max(*queue);
            }
        }
        clock[graph.queue_number(step)] = graph.done_with(step, self.tile);
        self.of_step[step as usize] = clock;
    }

    /// Says whether a step in a tile happens before the step at hand, or is it.
    pub(super) fn knows(&self, step: u32, tile: u32) -> bool {
        let done = self.of_step[self.now as usize][self.graph.queue_number(step)];
        done >= self.graph.done_with(step, tile)
            || (self.tile > 0 && self.graph.precedes((step, tile), (self.now, self.tile)))
    }

    /// Returns the clock of a rank's leave, when the first tile is the last.
    pub(super) fn leave(&mut self, rank: u32) -> Clock {
        let graph = self.graph;
        let after = &graph.schedule.leave[rank as usize];
        let mut clock = self.fresh_of(rank);
        for queue in graph.queues_of(rank) {
            let last = *graph.queue(queue).last().expect("no queue is empty");
            merge_into(&mut clock, &self.of_step[last as usize], graph.queue_count());
        }
        self.admit_enters(&mut clock, after);
        for (awaited, _) in graph.awaited(after) {
            self.merge(&mut clock, awaited);
        }
        clock
    }

    /// Moves on to the next tile, once all steps of this one have been passed.
    pub(super) fn next_tile(&mut self) {
        for queue in 0..self.graph.queue_count() {
            let last = *self.graph.queue(queue).last().expect("no queue is empty");
            self.of_tile_before[queue] = std::mem::take(&mut self.of_step[last as usize]);
        }
        self.tile += 1;
        self.needed = self.needed_per_step();
    }

    /// Counts, for every step, the steps of its tile that will ask for its clock, and the end of the tile.
    fn needed_per_step(&self) -> Vec<u32> {
        let mut needed = vec![1; self.graph.order().len()];
        for step in &self.graph.schedule.steps {
            for (awaited, _) in self.graph.awaited(&step.after).filter(|(_, lag)| *lag == 0) {
                needed[awaited as usize] += 1;
            }
        }
        needed
    }

    /// Returns the clock of a step that the next in its queue begins with: the same memory, if no one else needs it.
    fn take_over(&mut self, step: u32) -> Clock {
        self.needed[step as usize] -= 1;
        if self.needed[step as usize] == 0 {
            return std::mem::take(&mut self.of_step[step as usize]);
        }
        let mut clock = self.blank();
        clock.copy_from_slice(&self.of_step[step as usize]);
        clock
    }

    /// Adds the past of an awaited step of this tile.
    fn merge(&mut self, clock: &mut Clock, awaited: u32) {
        let queue = self.graph.queue_number(awaited);
        if clock[queue] < self.graph.done_with(awaited, self.tile) {
            merge_into(clock, &self.of_step[awaited as usize], self.graph.queue_count());
        }
        self.needed[awaited as usize] -= 1;
        if self.needed[awaited as usize] == 0 {
            self.free.push(std::mem::take(&mut self.of_step[awaited as usize]));
        }
    }

    fn admit_enters(&self, clock: &mut Clock, after: &[Dependency]) {
        for wait in after.iter().filter(|wait| wait.event == Event::Enter) {
            set_entered(clock, self.graph, wait.rank);
        }
    }

    fn fresh_of(&mut self, rank: u32) -> Clock {
        let mut clock = self.blank();
        clock.fill(0);
        set_entered(&mut clock, self.graph, rank);
        clock
    }

    fn blank(&mut self) -> Clock {
        let width = self.graph.queue_count() + (self.graph.schedule.world_size as usize).div_ceil(32);
        self.free.pop().unwrap_or_else(|| vec![0; width].into())
    }
}

/// Says whether a rank's enter is in a clock.
pub(super) fn has_entered(clock: &Clock, graph: &Graph<'_>, rank: u32) -> bool {
    clock[graph.queue_count() + rank as usize / 32] >> (rank % 32) & 1 == 1
}

fn set_entered(clock: &mut Clock, graph: &Graph<'_>, rank: u32) {
    clock[graph.queue_count() + rank as usize / 32] |= 1 << (rank % 32);
}

fn merge_into(clock: &mut [u32], other: &[u32], queues: usize) {
    let ((done, entered), (other_done, other_entered)) = (clock.split_at_mut(queues), other.split_at(queues));
    done.iter_mut().zip(other_done).for_each(|(mine, &theirs)| *mine = theirs.max(*mine));
    entered.iter_mut().zip(other_entered).for_each(|(mine, &theirs)| *mine |= theirs);
}

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
//! memory for 1024 ranks, so each queue keeps the clocks of its last [`KEPT_PER_QUEUE`] steps. If the clock of an awaited step is gone, the
//! current clock **learns** the step and its past by a backward walk, which stops at known steps. A queue learns each step at most once,
//! so all walks together cost no more than the clocks: steps x queues. Memory: a few clocks per queue, queues^2.

use super::graph::Graph;
use super::memory::MOST_BYTES;
use super::report::Violation;
use crate::schedule::{Dependency, Event};

/// The number of clocks that are kept for each queue. Chosen: a ring in breadth-first order needs two.
const KEPT_PER_QUEUE: u32 = 4;

/// A clock: the number of done steps of each queue since the first tile, then a bit per rank for its enter. A clock that contains a
/// step contains everything that happens before the step.
pub(super) type Clock = Box<[u32]>;

/// Checks that the clocks of a proof fit into memory.
pub(super) fn check_room(graph: &Graph<'_>) -> Result<(), Violation> {
    let [queues, ranks] = [graph.queue_count(), graph.schedule.world_size as usize].map(|count| count as u128);
    let kept = (u128::from(KEPT_PER_QUEUE) * queues).min(graph.order().len() as u128);
    let clocks = (kept + ranks) * (queues + ranks.div_ceil(32)) * size_of::<u32>() as u128;
    // `Contacts` keeps one number per queue and rank.
    let bytes = clocks + queues * ranks * size_of::<u32>() as u128;
    match bytes > MOST_BYTES {
        true => Err(Violation::TooLarge { what: "bytes of clocks", found: bytes, most: MOST_BYTES }),
        false => Ok(()),
    }
}

/// The latest clocks of every queue, which move through the tiles.
pub(super) struct Clocks<'g, 'a> {
    graph: &'g Graph<'a>,
    tile: u32,
    per_queue: u32,
    /// The clocks of each queue: that of its n-th step since the first tile lies at n mod `per_queue`.
    kept: Vec<Clock>,
    /// The place of the current step's clock.
    now: usize,
}

impl<'g, 'a> Clocks<'g, 'a> {
    /// Starts before the first step of the first tile.
    pub(super) fn new(graph: &'g Graph<'a>) -> Self {
        Self::keeping(graph, KEPT_PER_QUEUE)
    }

    /// Keeps the clocks of the last `per_queue` steps of each queue, at least two.
    fn keeping(graph: &'g Graph<'a>, per_queue: u32) -> Self {
        let kept = vec![Clock::default(); graph.queue_count() * per_queue as usize];
        Self { graph, tile: 0, per_queue, kept, now: 0 }
    }

    /// Moves to `step`; all steps before it must have been passed.
    pub(super) fn advance(&mut self, step: u32) {
        let graph = self.graph;
        let (queue, done) = (graph.queue_number(step), graph.done_with(step, self.tile));
        self.now = self.place(queue, done);
        let mut clock = std::mem::take(&mut self.kept[self.now]);
        if clock.is_empty() {
            clock = self.blank();
        }
        if done == 1 {
            clock.fill(0);
            set_entered(graph, &mut clock, graph.step(step).rank);
        } else {
            clock.copy_from_slice(&self.kept[self.place(queue, done - 1)]);
        }
        self.admit(&mut clock, &graph.step(step).after);
        clock[queue] = done;
        self.kept[self.now] = clock;
    }

    /// Says whether a step in a tile is the current step or happens before it.
    pub(super) fn knows(&self, step: u32, tile: u32) -> bool {
        self.kept[self.now][self.graph.queue_number(step)] >= self.graph.done_with(step, tile)
    }

    /// Returns the clock of a rank's leave, if the current tile is the last.
    pub(super) fn leave(&mut self, rank: u32) -> Clock {
        let graph = self.graph;
        let mut clock = self.blank();
        set_entered(graph, &mut clock, rank);
        for queue in graph.queues_of(rank) {
            let end = self.place(queue, graph.done_with(graph.end_of(queue), self.tile));
            merge(&mut clock, &self.kept[end], graph.queue_count());
        }
        self.admit(&mut clock, &graph.schedule.leave[rank as usize]);
        clock
    }

    /// Moves to the next tile; all steps of this tile must have been passed.
    pub(super) fn next_tile(&mut self) {
        self.tile += 1;
    }

    /// Adds awaited events and their past to a clock.
    fn admit(&self, clock: &mut Clock, after: &'a [Dependency]) {
        let graph = self.graph;
        for wait in after.iter().filter(|wait| wait.event == Event::Enter) {
            set_entered(graph, clock, wait.rank);
        }
        for (awaited, lag) in graph.awaited(after) {
            let Some(tile) = self.tile.checked_sub(lag) else { continue };
            let (queue, done) = (graph.queue_number(awaited), graph.done_with(awaited, tile));
            let kept = &self.kept[self.place(queue, done)];
            if clock[queue] >= done {
                continue;
            } else if kept.get(queue) == Some(&done) {
                merge(clock, kept, graph.queue_count());
            } else {
                learn(graph, clock, (queue, done));
            }
        }
    }

    fn place(&self, queue: usize, done: u32) -> usize {
        queue * self.per_queue as usize + (done % self.per_queue) as usize
    }

    fn blank(&self) -> Clock {
        vec![0; self.graph.queue_count() + (self.graph.schedule.world_size as usize).div_ceil(32)].into()
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

/// Adds another clock of the same tile to a clock.
fn merge(clock: &mut [u32], other: &[u32], queues: usize) {
    let ((done, entered), (other_done, other_entered)) = (clock.split_at_mut(queues), other.split_at(queues));
    done.iter_mut().zip(other_done).for_each(|(mine, &theirs)| *mine = theirs.max(*mine));
    entered.iter_mut().zip(other_entered).for_each(|(mine, &theirs)| *mine |= theirs);
}

/// Adds the first `done` steps of a queue and their past by a backward walk that stops at known steps, one stretch of a queue at a time.
fn learn(graph: &Graph<'_>, clock: &mut Clock, (queue, done): (usize, u32)) {
    let mut stack = vec![(queue, done)];
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
                all.push(clocks.kept[clocks.now].clone());
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
                let kept = all_clocks(&graph, Clocks::keeping(&graph, 3 * schedule.steps.len().max(1) as u32));
                for few in [2, KEPT_PER_QUEUE] {
                    assert!(kept == all_clocks(&graph, Clocks::keeping(&graph, few)), "{}", schedule.title());
                }
            }
        }
    }
}

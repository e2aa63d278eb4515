//! From "must happen before" to the waits that are written into the schedule: as few as a short search can prove enough.

use std::collections::{BTreeMap, BTreeSet};

use super::places::{Order, QueueId};
use super::Frame;
use crate::schedule::{Dependency, Event, Step};

/// How many steps the search for implied dependencies visits before it gives up. Chosen: twice round a ring of 128 ranks.
const SEARCH_BUDGET: usize = 256;

pub(super) struct Waits {
    world_size: u32,
    slots: u32,
    synchronises: bool,
    order: Order,
    /// For each queue of each rank the positions settled so far, and the ranks whose enter it has waited for.
    queues: Vec<Vec<Queue>>,
    /// Marks of the search: the number of the search that last visited a position.
    visited: Vec<u32>,
    searches: u32,
}

#[derive(Clone, Default)]
struct Queue {
    positions: Vec<u32>,
    entered: BTreeSet<u32>,
}

impl Waits {
    pub(super) fn new(frame: &Frame, order: Order, steps: &[Step]) -> Self {
        let mut queues = vec![Vec::new(); frame.world_size as usize];
        for step in steps {
            let of_rank: &mut Vec<Queue> = &mut queues[step.rank as usize];
            of_rank.resize(of_rank.len().max(step.queue as usize + 1), Queue::default());
        }
        Self {
            world_size: frame.world_size,
            slots: frame.path.slots(),
            synchronises: frame.collective.synchronises,
            order,
            queues,
            visited: vec![0; steps.len()],
            searches: 0,
        }
    }

    /// Writes the waits of the step whose turn it is.
    pub(super) fn settle_step(&mut self, steps: &mut [Step], turn: usize, needs: &[Vec<u32>], reuse: &[(u32, u32)]) {
        let position = self.order.positions[turn];
        let step = &steps[position as usize];
        let (rank, own) = (step.rank, (step.rank, step.queue));
        let same_tile = latest_per_queue(steps, &needs[position as usize], own);
        let before = self.queue(own).positions.last().copied();
        let mut after = self.irredundant(steps, same_tile.values().copied().collect(), before.as_slice());

        let from = reuse.partition_point(|pair| pair.0 < position);
        let last_users: Vec<u32> = reuse[from..].iter().take_while(|pair| pair.0 == position).map(|p| p.1).collect();
        let earlier_tiles = latest_per_queue(steps, &last_users, own);
        let lagging = earlier_tiles.into_iter().filter(|(queue, _)| !same_tile.contains_key(queue));
        after.extend(lagging.map(|(_, p)| wait_for(&steps[p as usize], self.slots)));

        let touched = step.views().map(|v| v.rank).chain(after.iter().map(|d| d.rank));
        let contacts: BTreeSet<u32> = touched.filter(|&other| other != rank).collect();
        let queue = &mut self.queues[own.0 as usize][own.1 as usize];
        let mut waits: Vec<Dependency> = contacts.into_iter().filter(|&r| queue.entered.insert(r)).map(enter).collect();
        waits.append(&mut after);
        queue.positions.push(position);
        steps[position as usize].after = waits;
    }

    /// Returns what a rank waits for before it leaves, besides its own queues.
    pub(super) fn before_leave(&mut self, steps: &[Step], rank: u32, visitors: &[u32]) -> Vec<Dependency> {
        let own = &self.queues[rank as usize];
        let own_ends: Vec<u32> = own.iter().filter_map(|queue| queue.positions.last().copied()).collect();
        let met: BTreeSet<u32> = own.iter().flat_map(|queue| queue.entered.iter().copied()).collect();
        let latest = latest_per_queue(steps, visitors, (rank, u32::MAX));
        let mut last = self.irredundant(steps, latest.into_values().collect(), &own_ends);
        let everyone = 0..if self.synchronises && steps.is_empty() { self.world_size } else { 0 };
        let contacts: BTreeSet<u32> = last.iter().map(|d| d.rank).chain(everyone).filter(|r| *r != rank).collect();
        let mut leave: Vec<Dependency> = contacts.difference(&met).copied().map(enter).collect();
        leave.append(&mut last);
        leave
    }

    fn queue(&self, (rank, queue): QueueId) -> &Queue {
        &self.queues[rank as usize][queue as usize]
    }

    /// Turns candidates into waits, without those that lie in the past of other candidates or of `given`.
    ///
    /// One backward search from all of them together, which visits [`SEARCH_BUDGET`] steps at most and never goes to turns
    /// before the earliest candidate's.
    fn irredundant(&mut self, steps: &[Step], candidates: Vec<u32>, given: &[u32]) -> Vec<Dependency> {
        self.searches += 1;
        let earliest = candidates.iter().map(|&p| self.order.turns[p as usize]).min().unwrap_or(u32::MAX);
        let mut frontier = Vec::new();
        for &position in &candidates {
            self.push_past(steps, position, &mut frontier);
        }
        frontier.extend(given);
        for _ in 0..SEARCH_BUDGET {
            let Some(position) = frontier.pop() else { break };
            let is_new = std::mem::replace(&mut self.visited[position as usize], self.searches) != self.searches;
            if is_new && self.order.turns[position as usize] > earliest {
                self.push_past(steps, position, &mut frontier);
            }
        }
        let is_implied = |position: u32| self.visited[position as usize] == self.searches;
        candidates.into_iter().filter(|&p| !is_implied(p)).map(|p| wait_for(&steps[p as usize], 0)).collect()
    }

    /// Pushes the steps that come directly before a step: in its queue, and by its waits.
    fn push_past(&self, steps: &[Step], position: u32, frontier: &mut Vec<u32>) {
        let step = &steps[position as usize];
        if step.index > 0 {
            frontier.push(self.queue((step.rank, step.queue)).positions[step.index as usize - 1]);
        }
        for dependency in step.after.iter().filter(|d| d.lag == 0) {
            if let Event::Step { queue, index } = dependency.event {
                frontier.push(self.queue((dependency.rank, queue)).positions[index as usize]);
            }
        }
    }
}

/// The last of `positions` in every queue but `own`, whose order speaks for itself.
fn latest_per_queue(steps: &[Step], positions: &[u32], own: QueueId) -> BTreeMap<QueueId, u32> {
    let mut latest = BTreeMap::new();
    for &position in positions {
        let step = &steps[position as usize];
        let queue = (step.rank, step.queue);
        if queue != own {
            let entry = latest.entry(queue).or_insert(position);
            if steps[*entry as usize].index < step.index {
                *entry = position;
            }
        }
    }
    latest
}

fn wait_for(step: &Step, lag: u32) -> Dependency {
    Dependency { rank: step.rank, event: Event::Step { queue: step.queue, index: step.index }, lag }
}

fn enter(rank: u32) -> Dependency {
    Dependency { rank, event: Event::Enter, lag: 0 }
}

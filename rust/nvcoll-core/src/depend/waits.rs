//! From "must happen before" to the waits that are written into the schedule: as few as a short search can prove enough.

use std::collections::{BTreeMap, BTreeSet};

use super::places::Order;
use super::Frame;
use crate::schedule::{Dependency, Event, Step};

/// How many steps the search for an implied dependency visits before it gives up. Chosen: twice round a ring of 128 ranks.
const SEARCH_BUDGET: usize = 256;

/// A queue of a rank.
type QueueId = (u32, u32);

pub(super) struct Waits {
    world_size: u32,
    slots: u32,
    synchronises: bool,
    order: Order,
    /// For each queue the positions settled so far.
    queues: BTreeMap<QueueId, Vec<u32>>,
    /// For each queue the ranks whose enter it has waited for.
    entered: BTreeMap<QueueId, BTreeSet<u32>>,
    /// Marks of the search: the number of the search that last visited a position.
    visited: Vec<u32>,
    searches: u32,
}

impl Waits {
    pub(super) fn new(frame: &Frame, order: Order) -> Self {
        let visited = vec![0; order.positions.len()];
        Self {
            world_size: frame.world_size,
            slots: frame.path.slots(),
            synchronises: frame.collective.synchronises,
            order,
            queues: BTreeMap::new(),
            entered: BTreeMap::new(),
            visited,
            searches: 0,
        }
    }

    /// Writes the waits of the step whose turn it is.
    pub(super) fn settle_step(&mut self, steps: &mut [Step], turn: usize, needs: &[Vec<u32>], reuse: &[(u32, u32)]) {
        let position = self.order.positions[turn];
        let step = &steps[position as usize];
        let own = (step.rank, step.queue);
        let same_tile = self.latest_per_queue(steps, &needs[position as usize], own);
        let before = self.queues.get(&own).and_then(|q| q.last()).copied();
        let mut after: Vec<Dependency> = self
            .irredundant(steps, same_tile.values().copied().collect(), before.as_slice())
            .into_iter()
            .map(|p| wait_for(&steps[p as usize], 0))
            .collect();

        let from = reuse.partition_point(|pair| pair.0 < position);
        let last_users: Vec<u32> = reuse[from..].iter().take_while(|pair| pair.0 == position).map(|p| p.1).collect();
        let earlier_tiles = self.latest_per_queue(steps, &last_users, own);
        let implied = |queue: &QueueId| same_tile.contains_key(queue);
        let lagging = earlier_tiles.iter().filter(|(queue, _)| !implied(queue));
        after.extend(lagging.map(|(_, &p)| wait_for(&steps[p as usize], self.slots)));

        let touched = step.views().map(|v| v.rank).chain(after.iter().map(|d| d.rank));
        let contacts: BTreeSet<u32> = touched.filter(|&rank| rank != step.rank).collect();
        let entered = self.entered.entry(own).or_default();
        let mut enters: Vec<Dependency> = contacts.into_iter().filter(|&rank| entered.insert(rank)).map(enter).collect();
        enters.append(&mut after);
        self.queues.entry(own).or_default().push(position);
        steps[position as usize].after = enters;
    }

    /// Returns what a rank waits for before it leaves, besides its own queues.
    pub(super) fn before_leave(&mut self, steps: &[Step], rank: u32, visitors: &[u32]) -> Vec<Dependency> {
        let own_ends: Vec<u32> = self.queues.range((rank, 0)..(rank + 1, 0)).filter_map(|(_, q)| q.last().copied()).collect();
        let latest = self.latest_per_queue(steps, visitors, (rank, u32::MAX));
        let last = self.irredundant(steps, latest.into_values().collect(), &own_ends);
        let mut leave: Vec<Dependency> = last.into_iter().map(|p| wait_for(&steps[p as usize], 0)).collect();
        let met: BTreeSet<u32> = self.entered.range((rank, 0)..(rank + 1, 0)).flat_map(|(_, ranks)| ranks).copied().collect();
        let everyone = 0..if self.synchronises && steps.is_empty() { self.world_size } else { 0 };
        let contacts: BTreeSet<u32> = leave.iter().map(|d| d.rank).chain(everyone).filter(|r| *r != rank).collect();
        let mut enters: Vec<Dependency> = contacts.difference(&met).copied().map(enter).collect();
        enters.append(&mut leave);
        enters
    }

    /// The last of `positions` in every queue but `own`, whose order speaks for itself.
    fn latest_per_queue(&self, steps: &[Step], positions: &[u32], own: QueueId) -> BTreeMap<QueueId, u32> {
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

    /// Drops candidates that other candidates, or `given`, are known to imply.
    fn irredundant(&mut self, steps: &[Step], candidates: Vec<u32>, given: &[u32]) -> Vec<u32> {
        let keep = |waits: &mut Self, position: u32| {
            let others = candidates.iter().chain(given).copied().filter(|&p| p != position).collect();
            !waits.is_reachable(steps, position, others)
        };
        candidates.iter().copied().filter(|&position| keep(self, position)).collect()
    }

    /// Searches backwards from `from` for `target`, for at most [`SEARCH_BUDGET`] steps; earlier turns cannot lead to it.
    fn is_reachable(&mut self, steps: &[Step], target: u32, mut from: Vec<u32>) -> bool {
        self.searches += 1;
        let target_turn = self.order.turns[target as usize];
        for _ in 0..SEARCH_BUDGET {
            let Some(position) = from.pop() else { return false };
            if position == target {
                return true;
            }
            let seen = std::mem::replace(&mut self.visited[position as usize], self.searches) == self.searches;
            if seen || self.order.turns[position as usize] < target_turn {
                continue;
            }
            let step = &steps[position as usize];
            let queue = &self.queues[&(step.rank, step.queue)];
            if step.index > 0 {
                from.push(queue[step.index as usize - 1]);
            }
            for dependency in step.after.iter().filter(|d| d.lag == 0) {
                if let Event::Step { queue, index } = dependency.event {
                    from.push(self.queues[&(dependency.rank, queue)][index as usize]);
                }
            }
        }
        false
    }
}

fn wait_for(step: &Step, lag: u32) -> Dependency {
    Dependency { rank: step.rank, event: Event::Step { queue: step.queue, index: step.index }, lag }
}

fn enter(rank: u32) -> Dependency {
    Dependency { rank, event: Event::Enter, lag: 0 }
}

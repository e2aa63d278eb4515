//! The waits of a schedule: the needs of each step that neither its other waits nor its queue imply.
//!
//! A wait is implied if its step happens before another awaited step, or before the predecessor in the queue. A backward search
//! decides this. It ends when every candidate that can be implied is found. It visits the ranks of the candidates first, and waits
//! before queues. It stops where no successor of a candidate can lie:
//!
//! ```text
//! depth of a step = 1 + the highest depth among its waits and the step before it in its queue
//! a is in the past of b  ⇒  depth of the shallowest step directly after a  <=  depth of b
//! ```
//!
//! [`super::reduction`] has already dropped the needs that the program implies, so most searches are short. [`MOST_VISITS`] bounds the
//! work for other programs.

use std::collections::HashSet;

use super::queues::QueueId;
use crate::schedule::{Dependency, Event, Schedule, Step};

/// The largest number of steps that all searches of one schedule visit. Beyond it, implied waits stay: each costs one load, and the
/// schedule stays correct. Chosen: some seconds.
const MOST_VISITS: u64 = 1 << 26;

/// The largest number of candidates for which a search visits their ranks first. Chosen: more ranks give no direction.
const FEW: usize = 4;

pub(super) struct Waits {
    world_size: u32,
    slots: u32,
    synchronises: bool,
    /// The queues of each rank, as far as their steps are settled.
    queues: Vec<Vec<Queue>>,
    /// The depth of every settled step.
    depths: Vec<u32>,
    /// For each step, the depth of the shallowest step directly after it; the highest number if none is settled.
    depths_after: Vec<u32>,
    /// The rank of each step. A search reads these numbers instead of steps, which are far apart in memory.
    ranks: Vec<u32>,
    past: Past,
    search: Search,
}

/// The steps directly before each settled step: the step before it in its queue, then the steps for which it waits.
#[derive(Default)]
struct Past {
    /// The bounds of each step's list.
    lists: Vec<(u32, u32)>,
    all: Vec<u32>,
}

#[derive(Clone, Default)]
struct Queue {
    positions: Vec<u32>,
    /// The ranks for whose enters its steps have waited.
    entered: HashSet<u32>,
}

/// The marks and the stack of a search, which the next search reuses.
#[derive(Default)]
struct Search {
    number: u32,
    /// For each step, the last search that visited it, and the last search for which it was a candidate.
    visited: Vec<u32>,
    wanted: Vec<u32>,
    frontier: Vec<u32>,
    visits_left: u64,
}

impl Waits {
    pub(super) fn new(schedule: &Schedule, steps: &[Step]) -> Self {
        let mut queues = vec![Vec::new(); schedule.world_size as usize];
        for step in steps {
            let of_rank: &mut Vec<Queue> = &mut queues[step.rank as usize];
            of_rank.resize(of_rank.len().max(step.queue as usize + 1), Queue::default());
        }
        let count = steps.len();
        let (visited, wanted) = (vec![0; count], vec![0; count]);
        Self {
            world_size: schedule.world_size,
            slots: schedule.slots,
            synchronises: schedule.collective.synchronises,
            queues,
            depths: vec![0; count],
            depths_after: vec![u32::MAX; count],
            ranks: steps.iter().map(|step| step.rank).collect(),
            past: Past { lists: vec![(0, 0); count], all: Vec::new() },
            search: Search { number: 0, visited, wanted, frontier: Vec::new(), visits_left: MOST_VISITS },
        }
    }

    /// Writes the waits of the next step.
    pub(super) fn settle_step(&mut self, steps: &mut [Step], position: u32, needs: &[Vec<u32>], reuse: &[(u32, u32)]) {
        let step = &steps[position as usize];
        let (rank, own) = (step.rank, (step.rank, step.queue));
        let same_tile = latest_per_queue(steps, &needs[position as usize], own);
        let before = self.queue(own).positions.last().copied();
        let needed = self.irredundant(&same_tile, before.as_slice());
        self.place(position, before.into_iter().chain(needed.iter().copied()));

        let from = reuse.partition_point(|pair| pair.0 < position);
        let last_users: Vec<u32> = reuse[from..].iter().take_while(|pair| pair.0 == position).map(|p| p.1).collect();
        let queue_of = |p: &u32| (steps[*p as usize].rank, steps[*p as usize].queue);
        let is_same_tile = |p: &u32| same_tile.binary_search_by_key(&queue_of(p), queue_of).is_ok();
        let lagging = latest_per_queue(steps, &last_users, own).into_iter().filter(|p| !is_same_tile(p));
        let mut after: Vec<Dependency> = needed.iter().map(|&p| wait_for(&steps[p as usize], 0)).collect();
        after.extend(lagging.map(|p| wait_for(&steps[p as usize], self.slots)));

        let contacts = others(rank, step.views().map(|v| v.rank).chain(after.iter().map(|d| d.rank)));
        let queue = &mut self.queues[own.0 as usize][own.1 as usize];
        let mut waits: Vec<Dependency> = contacts.into_iter().filter(|&r| queue.entered.insert(r)).map(enter).collect();
        waits.append(&mut after);
        queue.positions.push(position);
        steps[position as usize].after = waits;
    }

    /// Returns the waits of a rank's leave, besides the ends of its own queues.
    pub(super) fn before_leave(&mut self, steps: &[Step], rank: u32, visitors: &[u32]) -> Vec<Dependency> {
        let own_ends: Vec<u32> =
            self.queues[rank as usize].iter().filter_map(|queue| queue.positions.last().copied()).collect();
        let latest = latest_per_queue(steps, visitors, (rank, u32::MAX));
        let last = self.irredundant(&latest, &own_ends);
        let last = last.into_iter().map(|p| wait_for(&steps[p as usize], 0));
        let everyone = 0..if self.synchronises && steps.is_empty() { self.world_size } else { 0 };
        let contacts = others(rank, last.clone().map(|d| d.rank).chain(everyone));
        let is_met = |other: &u32| self.queues[rank as usize].iter().any(|queue| queue.entered.contains(other));
        contacts.into_iter().filter(|other| !is_met(other)).map(enter).chain(last).collect()
    }

    fn queue(&self, (rank, queue): QueueId) -> &Queue {
        &self.queues[rank as usize][queue as usize]
    }

    /// Records the past and the depth of a step, from the steps directly before it.
    fn place(&mut self, position: u32, before: impl Iterator<Item = u32> + Clone) {
        let first = self.past.all.len() as u32;
        self.past.all.extend(before.clone());
        self.past.lists[position as usize] = (first, self.past.all.len() as u32);
        let depth = before.clone().map(|p| self.depths[p as usize] + 1).max().unwrap_or(0);
        self.depths[position as usize] = depth;
        before.for_each(|p| self.depths_after[p as usize] = self.depths_after[p as usize].min(depth));
    }

    /// Returns the candidates that do not happen before other candidates or before `given`.
    fn irredundant(&mut self, candidates: &[u32], given: &[u32]) -> Vec<u32> {
        let depth_of = |p: u32| self.depths[p as usize];
        let deepest = candidates.iter().chain(given).map(|&p| depth_of(p)).max().unwrap_or(0);
        let after = candidates.iter().map(|&p| self.depths_after[p as usize]).filter(|&depth| depth <= deepest);
        let (mut open, lowest) = (after.clone().count(), after.min().unwrap_or(u32::MAX));
        if open == 0 {
            return candidates.to_vec();
        }
        let mut search = std::mem::take(&mut self.search);
        search.begin(candidates);
        candidates
            .iter()
            .filter(|&&p| depth_of(p) >= lowest)
            .for_each(|&p| self.push_past(p, candidates, &mut search.frontier));
        search.frontier.extend(given);
        while open > 0 && search.visits_left > 0 {
            let Some(position) = search.frontier.pop() else { break };
            if search.visit(position) {
                open -= usize::from(search.wanted[position as usize] == search.number);
                if depth_of(position) >= lowest {
                    self.push_past(position, candidates, &mut search.frontier);
                }
            }
        }
        let left = candidates.iter().copied().filter(|&p| search.visited[p as usize] != search.number).collect();
        self.search = search;
        left
    }

    /// Pushes the steps directly before a step. Steps of the candidates' ranks come last, so that they are visited first.
    fn push_past(&self, position: u32, candidates: &[u32], frontier: &mut Vec<u32>) {
        let (first, end) = self.past.lists[position as usize];
        let before = &self.past.all[first as usize..end as usize];
        let rank_of = |p: u32| self.ranks[p as usize];
        let is_near = |p: u32| candidates.len() <= FEW && candidates.iter().any(|&c| rank_of(c) == rank_of(p));
        frontier.extend(before.iter().filter(|&&p| !is_near(p)));
        frontier.extend(before.iter().filter(|&&p| is_near(p)));
    }
}

impl Search {
    fn begin(&mut self, candidates: &[u32]) {
        self.number += 1;
        candidates.iter().for_each(|&p| self.wanted[p as usize] = self.number);
        self.frontier.clear();
    }

    /// Marks a step, and says whether this search visits it for the first time.
    fn visit(&mut self, position: u32) -> bool {
        self.visits_left -= 1;
        std::mem::replace(&mut self.visited[position as usize], self.number) != self.number
    }
}

/// Returns the last of `positions` in every queue, sorted by queue. It leaves out `own`, whose order is implied.
fn latest_per_queue(steps: &[Step], positions: &[u32], own: QueueId) -> Vec<u32> {
    let queue_of = |p: u32| (steps[p as usize].rank, steps[p as usize].queue);
    let mut latest: Vec<u32> = positions.iter().copied().filter(|&p| queue_of(p) != own).collect();
    latest.sort_unstable_by_key(|&p| (queue_of(p), std::cmp::Reverse(steps[p as usize].index)));
    latest.dedup_by_key(|p| queue_of(*p));
    latest
}

/// Returns all ranks except `rank`, sorted, each once.
fn others(rank: u32, ranks: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut others: Vec<u32> = ranks.filter(|&other| other != rank).collect();
    others.sort_unstable();
    others.dedup();
    others
}

fn wait_for(step: &Step, lag: u32) -> Dependency {
    Dependency { rank: step.rank, event: Event::Step { queue: step.queue, index: step.index }, lag }
}

fn enter(rank: u32) -> Dependency {
    Dependency { rank, event: Event::Enter, lag: 0 }
}

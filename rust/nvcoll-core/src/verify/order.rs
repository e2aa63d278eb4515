//! What happens before what: queue order and waits, over several tiles.

use super::violation::{StepName, Violation};
use crate::schedule::{Event, Schedule};

/// The steps of `tiles` tiles as a graph: node = tile x steps + position.
pub(super) struct HappensBefore {
    pub(super) steps: usize,
    pub(super) tiles: u32,
    /// Positions of one tile in an order in which they can run.
    pub(super) topological: Vec<u32>,
    queues: Vec<Vec<Vec<usize>>>,
    /// For each position, the step before it in its queue, or the queue's last.
    before_in_queue: Vec<(u32, bool)>,
    /// For each position, its waits: (position, lag).
    waits: Vec<Vec<(u32, u32)>>,
    levels: Vec<u32>,
    /// For each position: rank, queue, index.
    places: Vec<(u32, u32, u32)>,
    visited: Vec<u32>,
    searches: u32,
}

impl HappensBefore {
    pub(super) fn of(schedule: &Schedule, tiles: u32) -> Result<Self, Violation> {
        let queues = schedule.queues();
        let position = |rank: u32, queue: u32, index: u32| queues[rank as usize][queue as usize][index as usize] as u32;
        let waits = schedule.steps.iter().map(|step| {
            let waits = step.after.iter().filter_map(|d| match d.event {
                Event::Step { queue, index } => Some((position(d.rank, queue, index), d.lag)),
                Event::Enter => None,
            });
            waits.collect::<Vec<_>>()
        });
        let before = schedule.steps.iter().map(|step| match step.index {
            0 => (*queues[step.rank as usize][step.queue as usize].last().expect("the step is in it") as u32, true),
            index => (position(step.rank, step.queue, index - 1), false),
        });
        let mut graph = Self {
            steps: schedule.steps.len(),
            tiles,
            topological: Vec::new(),
            before_in_queue: before.collect(),
            waits: waits.collect(),
            levels: Vec::new(),
            places: schedule.steps.iter().map(|s| (s.rank, s.queue, s.index)).collect(),
            visited: vec![0; schedule.steps.len() * tiles as usize],
            searches: 0,
            queues,
        };
        graph.sort(schedule)?;
        graph.level();
        Ok(graph)
    }

    /// Orders one tile (Kahn 1962); what is left over waits for itself.
    fn sort(&mut self, schedule: &Schedule) -> Result<(), Violation> {
        let mut open = vec![0u32; self.steps];
        let mut successors = vec![Vec::new(); self.steps];
        for position in 0..self.steps {
            for earlier in self.same_tile(position) {
                open[position] += 1;
                successors[earlier as usize].push(position as u32);
            }
        }
        let mut ready: std::collections::VecDeque<u32> =
            (0..self.steps as u32).filter(|&p| open[p as usize] == 0).collect();
        while let Some(position) = ready.pop_front() {
            self.topological.push(position);
            for &later in &successors[position as usize] {
                open[later as usize] -= 1;
                if open[later as usize] == 0 {
                    ready.push_back(later);
                }
            }
        }
        match open.iter().position(|&left| left > 0) {
            Some(stuck) => Err(Violation::Deadlock { step: StepName::of(&schedule.steps[stuck]) }),
            None => Ok(()),
        }
    }

    fn same_tile(&self, position: usize) -> Vec<u32> {
        let (before, is_previous_tile) = self.before_in_queue[position];
        let waits = self.waits[position].iter().filter(|(_, lag)| *lag == 0).map(|(earlier, _)| *earlier);
        waits.chain((!is_previous_tile).then_some(before)).collect()
    }

    fn level(&mut self) {
        self.levels = vec![0; self.steps * self.tiles as usize];
        for tile in 0..self.tiles {
            for at in 0..self.steps {
                let node = self.node(tile, self.topological[at]);
                let mut past = Vec::new();
                self.push_past(node, &mut past);
                self.levels[node] = past.iter().map(|&earlier| self.levels[earlier] + 1).max().unwrap_or(0);
            }
        }
    }

    pub(super) fn node(&self, tile: u32, position: u32) -> usize {
        tile as usize * self.steps + position as usize
    }

    pub(super) fn tile_and_position(&self, node: usize) -> (u32, u32) {
        ((node / self.steps) as u32, (node % self.steps) as u32)
    }

    fn push_past(&self, node: usize, past: &mut Vec<usize>) {
        let (tile, position) = self.tile_and_position(node);
        let (before, is_previous_tile) = self.before_in_queue[position as usize];
        if !is_previous_tile {
            past.push(self.node(tile, before));
        } else if tile > 0 {
            past.push(self.node(tile - 1, before));
        }
        let waits = self.waits[position as usize].iter().filter(|(_, lag)| *lag <= tile);
        past.extend(waits.map(|(earlier, lag)| self.node(tile - lag, *earlier)));
    }

    /// Says whether `earlier` is done before `later` begins: a search backwards that never goes below `earlier`'s level,
    /// after a look at the queue and at the waits of `later` itself.
    pub(super) fn is_before(&mut self, earlier: usize, later: usize) -> bool {
        if self.levels[earlier] >= self.levels[later] {
            return false;
        }
        let ((tile_a, a), (tile_b, b)) = (self.tile_and_position(earlier), self.tile_and_position(later));
        let (place_a, place_b) = (self.places[a as usize], self.places[b as usize]);
        if (place_a.0, place_a.1) == (place_b.0, place_b.1) {
            return (tile_a, place_a.2) < (tile_b, place_b.2);
        }
        self.searches += 1;
        let mut frontier = Vec::new();
        self.push_past(later, &mut frontier);
        if frontier.contains(&earlier) {
            return true;
        }
        while let Some(node) = frontier.pop() {
            if node == earlier {
                return true;
            }
            let is_seen = std::mem::replace(&mut self.visited[node], self.searches) == self.searches;
            if !is_seen && self.levels[node] > self.levels[earlier] {
                self.push_past(node, &mut frontier);
            }
        }
        false
    }

    /// Returns the positions of the last steps of a rank's queues.
    pub(super) fn ends_of(&self, rank: u32) -> impl Iterator<Item = u32> + '_ {
        self.queues.get(rank as usize).into_iter().flatten().filter_map(|queue| queue.last().map(|&p| p as u32))
    }

    /// Returns the position of a step.
    pub(super) fn position(&self, rank: u32, queue: u32, index: u32) -> u32 {
        self.queues[rank as usize][queue as usize][index as usize] as u32
    }
}

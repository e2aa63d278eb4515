//! The longest chain of handoffs between ranks from an enter to a leave, by Kahn's topological order of one tile.

use std::collections::HashMap;

use crate::schedule::{Dependency, Event, Schedule, Step};

/// Returns the largest number of edges between ranks on any path to a leave.
pub(super) fn longest_chain(schedule: &Schedule) -> u32 {
    let graph = TileGraph::of(schedule);
    let handoffs = graph.handoffs_before();
    let of_leave = schedule.leave.iter().enumerate().flat_map(|(rank, after)| {
        let (graph, handoffs) = (&graph, &handoffs);
        after.iter().filter(|wait| wait.lag == 0).map(move |wait| {
            let before = match wait.event {
                Event::Enter => 0,
                Event::Step { .. } => graph.position_of(wait).map_or(0, |position| handoffs[position]),
            };
            before + u32::from(wait.rank != rank as u32)
        })
    });
    handoffs.iter().copied().chain(of_leave).max().unwrap_or(0)
}

/// The graph of the steps of one tile.
struct TileGraph<'a> {
    steps: &'a [Step],
    positions: HashMap<(u32, u32, u32), usize>,
    /// For each step, the steps directly after it.
    next: Vec<Vec<usize>>,
    /// For each step, the number of edges that lead to it.
    edges_in: Vec<usize>,
}

impl<'a> TileGraph<'a> {
    fn of(schedule: &'a Schedule) -> Self {
        let steps = &schedule.steps;
        let positions = steps.iter().enumerate().map(|(i, s)| ((s.rank, s.queue, s.index), i)).collect();
        let (next, edges_in) = (vec![Vec::new(); steps.len()], vec![0; steps.len()]);
        let mut graph = Self { steps, positions, next, edges_in };
        for (position, step) in steps.iter().enumerate() {
            let ahead =
                step.index.checked_sub(1).and_then(|i| graph.positions.get(&(step.rank, step.queue, i)).copied());
            let waits = step.after.iter().filter(|wait| wait.lag == 0).filter_map(|wait| graph.position_of(wait));
            let before: Vec<usize> = ahead.into_iter().chain(waits).collect();
            graph.edges_in[position] = before.len();
            for from in before {
                graph.next[from].push(position);
            }
        }
        graph
    }

    fn position_of(&self, wait: &Dependency) -> Option<usize> {
        match wait.event {
            Event::Enter => None,
            Event::Step { queue, index } => self.positions.get(&(wait.rank, queue, index)).copied(),
        }
    }

    /// Returns, for each step, the largest number of edges between ranks on a path to it.
    fn handoffs_before(&self) -> Vec<u32> {
        let enters = |step: &Step| step.after.iter().any(|w| w.event == Event::Enter && w.rank != step.rank);
        let mut handoffs: Vec<u32> = self.steps.iter().map(|step| u32::from(enters(step))).collect();
        let mut edges_in = self.edges_in.clone();
        let mut ready: Vec<usize> = (0..self.steps.len()).filter(|&position| edges_in[position] == 0).collect();
        while let Some(from) = ready.pop() {
            for &to in &self.next[from] {
                let crosses = u32::from(self.steps[from].rank != self.steps[to].rank);
                handoffs[to] = handoffs[to].max(handoffs[from] + crosses);
                edges_in[to] -= 1;
                if edges_in[to] == 0 {
                    ready.push(to);
                }
            }
        }
        handoffs
    }
}

//! The speeds of tasks that run at the same time: shares of resources, and the loss of computing and collectives beside each other.
//!
//! ```text
//! speed = share (max-min fair, `share`) x 1 / (1 + contention x nearness)
//! nearness: seconds of the collective inside a node over its seconds, at most 1: only at the speed of NVLink it takes SMs and memory
//! ```
//!
//! The second factor is the factor of planned steps, to which `contention` was fitted: computing and collective lose contention x the time in
//! which both run (arXiv 2507.03114). A task of several ranks connects their shares, so each connected component is computed together.

use nvcoll_fabric::units::Ps;

use super::{RunEvent, StreamsSimulation};
use crate::pricing::streams::program::{StreamTask, RESOURCES};
use crate::pricing::streams::share::{fair, Need};

impl<'p> StreamsSimulation<'p> {
    /// Gives new speeds to all tasks of ranks where a task began or ended, and of ranks that share a task with them.
    pub(super) fn share(&mut self) {
        if self.changed.is_empty() {
            return;
        }
        let (ranks, tasks) = self.component();
        let place = |rank: usize| ranks.iter().position(|&one| one == rank).expect("ranks of tasks were added");
        let needs: Vec<Vec<Need>> = tasks.iter().map(|&task| self.needs(task, place)).collect();
        let needs: Vec<&[Need]> = needs.iter().map(Vec::as_slice).collect();
        let speeds = fair(&needs, ranks.len() * RESOURCES);
        let loads: Vec<RankLoad> = ranks.iter().map(|&rank| self.load(rank)).collect();
        let slows: Vec<f64> = tasks.iter().map(|&task| self.slowed(task, |rank| loads[place(rank)])).collect();
        for ((number, speed), slow) in tasks.into_iter().zip(speeds).zip(slows) {
            self.set_speed(number, speed * slow);
        }
        for (rank, load) in ranks.into_iter().zip(loads) {
            self.ranks[rank].account.set_slow(load.slow);
        }
    }

    /// Returns the connected components of ranks whose tasks changed, joined by shared tasks; and all their tasks.
    fn component(&mut self) -> (Vec<usize>, Vec<usize>) {
        let mut ranks = std::mem::take(&mut self.changed);
        ranks.sort_unstable();
        ranks.dedup();
        let mut tasks = Vec::new();
        let mut at = 0;
        while at < ranks.len() {
            for &number in &self.ranks[ranks[at]].active {
                let members = &self.tasks[number].members;
                // A task of several ranks comes with the first of them in this order.
                let is_new = members.iter().all(|(rank, _)| !ranks[..at].contains(rank));
                if is_new {
                    tasks.push(number);
                    let new: Vec<usize> =
                        members.iter().map(|&(rank, _)| rank).filter(|rank| !ranks.contains(rank)).collect();
                    ranks.extend(new);
                }
            }
            at += 1;
        }
        (ranks, tasks)
    }

    fn needs(&self, task: usize, place: impl Fn(usize) -> usize) -> Vec<Need> {
        let of_member = |&(rank, op): &(usize, usize)| {
            let first = place(rank) * RESOURCES;
            self.program.task(rank, op).needs.iter().map(move |&(of, part)| (first + of, part))
        };
        self.tasks[task].members.iter().flat_map(of_member).collect()
    }

    fn set_speed(&mut self, number: usize, speed: f64) {
        let (now, task) = (self.now, &mut self.tasks[number]);
        if task.speed == speed {
            return;
        }
        task.remaining = (task.remaining - (now - task.since) as f64 * task.speed).max(0.0);
        (task.speed, task.since, task.version) = (speed, now, task.version + 1);
        let (end, version) = (now.saturating_add((task.remaining / speed).ceil() as Ps), task.version);
        self.push(end, RunEvent::End { task: number, version });
    }

    /// Returns the speed of a task beside work of the other kind, on the rank where it is least.
    fn slowed(&self, number: usize, load: impl Fn(usize) -> RankLoad) -> f64 {
        let of_member = |&(rank, op): &(usize, usize)| {
            let (task, load) = (self.program.task(rank, op), load(rank));
            match (task.computes, load.computes) {
                _ if task.is_measured => 1.0,
                (true, _) => load.slow,
                (false, true) => 1.0 / (1.0 + self.contention * task.nearby),
                (false, false) => 1.0,
            }
        };
        self.tasks[number].members.iter().map(of_member).fold(1.0, f64::min)
    }

    fn load(&self, rank: usize) -> RankLoad {
        let tasks = || self.tasks_of(rank);
        let nearby = tasks().map(|task| task.nearby).fold(0.0, f64::max);
        RankLoad { slow: 1.0 / (1.0 + self.contention * nearby), computes: tasks().any(|task| task.computes) }
    }

    fn tasks_of(&self, rank: usize) -> impl Iterator<Item = &'p StreamTask> + '_ {
        let members = self.ranks[rank].active.iter().flat_map(|&number| &self.tasks[number].members);
        members.filter(move |(of, _)| *of == rank).map(|&(rank, op)| self.program.task(rank, op))
    }
}

/// The work on a rank: the speed of computing beside its collectives, and whether it computes.
#[derive(Debug, Clone, Copy)]
struct RankLoad {
    slow: f64,
    computes: bool,
}

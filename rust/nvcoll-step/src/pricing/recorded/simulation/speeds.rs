//! The speeds of tasks that run at once: shares of what they need, and what computing and collectives lose beside each other.
//!
//! ```text
//! speed = share (max-min fair, `share`) x 1 / (1 + contention x nearness)
//! nearness: seconds of the collective inside a node over its seconds, at most 1: only at the speed of NVLink it takes SMs and memory
//! ```
//!
//! The second factor is that of planned steps, for which `contention` was fitted: what both lose together is contention x the time in
//! which both run (arXiv 2507.03114). Tasks of several ranks tie the shares of these ranks, so all of them are computed together.

use nvcoll_fabric::units::Ps;

use super::{Event, Simulation};
use crate::pricing::recorded::program::{Task, RESOURCES};
use crate::pricing::recorded::share::{fair, Need};

impl<'p> Simulation<'p> {
    /// Gives new speeds to all tasks of ranks where a task began or ended, and of ranks that share a task with them.
    pub(super) fn share(&mut self) {
        let mut ranks = std::mem::take(&mut self.changed);
        if ranks.is_empty() {
            return;
        }
        let mut tasks: Vec<usize> = Vec::new();
        let mut at = 0;
        ranks.sort_unstable();
        ranks.dedup();
        while at < ranks.len() {
            for &number in &self.ranks[ranks[at]].active {
                if !tasks.contains(&number) {
                    tasks.push(number);
                    let others = self.tasks[number].members.iter().map(|&(rank, _)| rank);
                    let new: Vec<usize> = others.filter(|rank| !ranks.contains(rank)).collect();
                    ranks.extend(new);
                }
            }
            at += 1;
        }
        let place = |rank: usize| ranks.iter().position(|&one| one == rank).expect("ranks of tasks were added");
        let needs: Vec<Vec<Need>> = tasks.iter().map(|&task| self.needs(task, place)).collect();
        let needs: Vec<&[Need]> = needs.iter().map(Vec::as_slice).collect();
        let speeds = fair(&needs, ranks.len() * RESOURCES);
        let slows: Vec<f64> = tasks.iter().map(|&task| self.slowed(task)).collect();
        for ((number, speed), slow) in tasks.into_iter().zip(speeds).zip(slows) {
            self.set_speed(number, speed * slow);
        }
        for rank in ranks {
            let slow = self.slow_of(rank);
            self.ranks[rank].account.set_slow(slow);
        }
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
        let (end, version) = (now + (task.remaining / speed).ceil() as Ps, task.version);
        self.push(end, Event::End { task: number, version });
    }

    /// The speed of a task beside work of the other kind, on the rank where it is least.
    fn slowed(&self, number: usize) -> f64 {
        let of_member = |&(rank, op): &(usize, usize)| {
            let task = self.program.task(rank, op);
            if task.is_measured {
                1.0
            } else if task.computes {
                self.slow_of(rank)
            } else if self.computes(rank) {
                1.0 / (1.0 + self.contention * task.nearby)
            } else {
                1.0
            }
        };
        self.tasks[number].members.iter().map(of_member).fold(1.0, f64::min)
    }

    /// The speed of computing on a rank beside its collectives.
    fn slow_of(&self, rank: usize) -> f64 {
        let nearby = self.tasks_of(rank).map(|task| task.nearby).fold(0.0, f64::max);
        1.0 / (1.0 + self.contention * nearby)
    }

    fn computes(&self, rank: usize) -> bool {
        self.tasks_of(rank).any(|task| task.computes)
    }

    fn tasks_of(&self, rank: usize) -> impl Iterator<Item = &'p Task> + '_ {
        let members = self.ranks[rank].active.iter().flat_map(|&number| &self.tasks[number].members);
        members.filter(move |(of, _)| *of == rank).map(|&(rank, op)| self.program.task(rank, op))
    }
}

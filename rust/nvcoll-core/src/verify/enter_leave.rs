//! Enter and leave: no rank accesses another rank's buffers before its enter or after its leave.
//!
//! A rank has **contact** with another rank once it has waited for that rank's enter itself. There it compares the two calls, so an
//! indirect wait through a third rank is not enough. A rank needs contact before it accesses the other rank's memory or waits for
//! its steps. A **leave** must come after every access to the rank's user buffers and scratch; staging outlives the call, see
//! [`super`]. If the collective synchronises, a leave must also come after the enters of all ranks.
//!
//! A queue waits for an enter once. So one table is enough: for each queue and each other rank, the first step of the queue that
//! waits for the enter of that rank.

use super::clocks::{has_entered, is_past, Clock, Clocks};
use super::graph::Graph;
use super::location::{Access, BufferChunk, Waiter};
use super::report::Violation;
use crate::schedule::{Dependency, Event, Step, View};

const NEVER: u32 = u32::MAX;

/// The first wait of each queue for the enter of each rank.
pub(super) struct Contacts<'g, 'a> {
    graph: &'g Graph<'a>,
    /// The first step that waits for the enter of a rank, indexed by (queue, rank).
    first: Vec<u32>,
}

impl<'g, 'a> Contacts<'g, 'a> {
    pub(super) fn new(graph: &'g Graph<'a>) -> Self {
        let ranks = graph.schedule.world_size as usize;
        let mut first = vec![NEVER; graph.queue_count() * ranks];
        for queue in 0..graph.queue_count() {
            for &step in graph.queue(queue).iter().rev() {
                for wait in graph.step(step).after.iter().filter(|wait| wait.event == Event::Enter) {
                    first[queue * ranks + wait.rank as usize] = step;
                }
            }
        }
        Self { graph, first }
    }

    /// Checks that the current step has contact with all ranks whose memory it accesses or for whose steps it waits.
    pub(super) fn check_step(&self, clocks: &Clocks<'_, '_>, step: u32) -> Result<(), Violation> {
        let touched = self.graph.step(step).views().map(|view| view.rank);
        let awaited = self.awaited_ranks(step, 0);
        touched.chain(awaited).try_for_each(|rank| self.check(clocks, step, rank))
    }

    /// Checks that the current step has contact with the ranks for whose steps it waits in this tile for the first time.
    pub(super) fn check_lagging(&self, clocks: &Clocks<'_, '_>, step: u32, tile: u32) -> Result<(), Violation> {
        self.awaited_ranks(step, tile).try_for_each(|rank| self.check(clocks, step, rank))
    }

    fn awaited_ranks(&self, step: u32, lag: u32) -> impl Iterator<Item = u32> + use<'a> {
        let is_step = move |wait: &&Dependency| wait.lag == lag && wait.event != Event::Enter;
        self.graph.step(step).after.iter().filter(is_step).map(|wait| wait.rank)
    }

    fn check(&self, clocks: &Clocks<'_, '_>, step: u32, other: u32) -> Result<(), Violation> {
        let rank = self.graph.step(step).rank;
        let knows = |queue: usize| self.first_of(queue, other).is_some_and(|first| clocks.knows(first, 0));
        let own = self.graph.queue_number(step);
        if rank == other || knows(own) || self.graph.queues_of(rank).any(|queue| queue != own && knows(queue)) {
            Ok(())
        } else {
            Err(Violation::NoContact { place: Waiter::Step(self.graph.name(step)), rank: other })
        }
    }

    /// Checks that a leave has contact with the ranks for whose steps it waits; the queues of its own rank end before it.
    pub(super) fn check_leave(&self, rank: u32) -> Result<(), Violation> {
        let after = &self.graph.schedule.leave[rank as usize];
        for other in after.iter().filter(|wait| wait.event != Event::Enter).map(|wait| wait.rank) {
            let enters = after.contains(&Dependency { rank: other, event: Event::Enter, lag: 0 });
            let met = || self.graph.queues_of(rank).any(|queue| self.first_of(queue, other).is_some());
            if other != rank && !enters && !met() {
                return Err(Violation::NoContact { place: Waiter::Leave(rank), rank: other });
            }
        }
        Ok(())
    }

    fn first_of(&self, queue: usize, other: u32) -> Option<u32> {
        let first = self.first[queue * self.graph.schedule.world_size as usize + other as usize];
        (first != NEVER).then_some(first)
    }
}

/// Checks that leaves come late enough; returns whether every leave comes after every enter.
pub(super) fn check_leaves(graph: &Graph<'_>, leaves: &[Clock]) -> Result<bool, Violation> {
    for step in 0..graph.order().len() as u32 {
        let late = |view: &&View| view.buffer.is_staging() || is_past(graph, &leaves[view.rank as usize], step);
        if let Some(early) = graph.step(step).views().find(|view| !late(view)) {
            return Err(leaves_early(graph, step, early));
        }
    }
    let everyone = 0..graph.schedule.world_size;
    let stranger = everyone.clone().zip(leaves).find_map(|(rank, leave)| {
        everyone.clone().find(|&other| !has_entered(graph, leave, other)).map(|other| (rank, other))
    });
    match stranger {
        Some((rank, other)) if graph.schedule.collective.synchronises => {
            Err(Violation::NotSynchronised { rank, other, collective: graph.schedule.collective.name })
        }
        found => Ok(found.is_none()),
    }
}

fn leaves_early(graph: &Graph<'_>, step: u32, view: &View) -> Violation {
    let is_written = |step: &Step| step.dst.contains(view);
    let access = if is_written(graph.step(step)) { Access::Writes } else { Access::Reads };
    let cell = BufferChunk::of(view, view.chunks.start);
    Violation::LeavesEarly { rank: view.rank, step: graph.name(step), access, cell }
}

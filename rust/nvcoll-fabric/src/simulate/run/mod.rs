//! The loop: queues in order, waits, tiles.
//!
//! ```text
//! a queue   ─waits are over─▶ ready ─fixed, latency─▶ begins to move ─▶ has moved: done ─▶ its next step; those who wait for it
//! ```
//!
//! When a step is ready, and why, is the latest of what it waits for: that needs no clock, only when those were done,
//! which the record has. Links that are shared need one. All events of one time are one
//! batch: transfers that end, then transfers that begin, then links are shared anew. So nothing depends on an order
//! among equal times.

mod record;

use std::collections::VecDeque;

use super::agenda::{Agenda, SimultaneousEvents};
use super::flat::{Flat, FlatWait, ENTER};
use super::paths::{TransferPaths, NOTHING};
use super::sharing::{Limit, SharedLinks};
use crate::units::Ps;
pub(super) use record::{StepCause, StepRecord};

/// How many steps and events pass between two looks at whether to go on. Chosen: some milliseconds.
const LOOK: usize = 1 << 15;

/// Why a run did not come to its end.
pub(super) enum Stopped {
    /// A queue, and the place in it of a step that never becomes ready.
    Stuck(u32, u32),
    /// The caller asked for it.
    Interrupted,
}

/// A queue on its way.
#[derive(Default)]
struct QueueState {
    step: u32,
    tile: u32,
    /// The number of waits of its step that are over.
    waits: u32,
    ready: Ps,
    cause: StepCause,
    nbytes: u64,
    /// The queues that wait for it, each with the number of steps that must be done.
    waiting: Vec<(u64, u32)>,
}

/// A run on its way.
pub(super) struct Execution<'a> {
    flat: &'a Flat,
    paths: &'a TransferPaths,
    starts: &'a [Ps],
    links: SharedLinks<'a>,
    agenda: Agenda,
    queues: Vec<QueueState>,
    /// Queues that may go on.
    going: VecDeque<u32>,
    /// How many steps and events passed since the last look at whether to go on.
    passed: usize,
    /// For each path, the bytes that it moved.
    moved: Vec<u64>,
    /// What happened to every step in every tile, in queue order; then the leaves.
    record: Vec<StepRecord>,
}

/// What a run leaves.
pub(super) struct RunOutcome {
    /// For each rank, when it left.
    pub(super) ends: Vec<Ps>,
    pub(super) busy: Vec<Ps>,
    pub(super) moved: Vec<u64>,
    pub(super) record: Vec<StepRecord>,
}

impl<'a> Execution<'a> {
    /// Runs a flat schedule over paths, with the starts of ranks, to the end, unless `is_interrupted` says to stop.
    pub(super) fn run(
        (flat, paths, starts): (&'a Flat, &'a TransferPaths, &'a [Ps]),
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<RunOutcome, Stopped> {
        let mut run = Self::new(flat, paths, starts);
        run.pass(is_interrupted)?;
        run.outcome()
    }

    fn new(flat: &'a Flat, paths: &'a TransferPaths, starts: &'a [Ps]) -> Self {
        let (queues, working) = (flat.queues() as u32, flat.working_queues() as u32);
        let queue = |number: u32| {
            let tile = if number < working { 0 } else { flat.tiles - 1 };
            let ready = starts[flat.ranks[number as usize] as usize];
            QueueState { step: flat.first(number), tile, ready, ..QueueState::default() }
        };
        Self {
            flat,
            paths,
            starts,
            links: SharedLinks::new(paths, queues as usize),
            agenda: Agenda::default(),
            queues: (0..queues).map(queue).collect(),
            going: (0..queues).collect(),
            passed: 0,
            moved: vec![0; paths.all.len()],
            record: vec![StepRecord::default(); flat.number(queues, 0) as usize],
        }
    }

    fn pass(&mut self, is_interrupted: &mut dyn FnMut() -> bool) -> Result<(), Stopped> {
        let mut ended = Vec::new();
        self.go_on(is_interrupted)?;
        while let Some(now) = self.agenda.next_time() {
            loop {
                if let Some(batch) = self.agenda.take(now) {
                    self.happen(&batch, now);
                    self.go_on(is_interrupted)?;
                    continue;
                }
                self.links.settle(now, &mut ended, &mut self.agenda);
                if ended.is_empty() && self.agenda.next_time() != Some(now) {
                    break;
                }
                for queue in ended.drain(..) {
                    self.end(queue, now);
                }
                self.go_on(is_interrupted)?;
            }
        }
        Ok(())
    }

    /// Lets all queues go on that can.
    fn go_on(&mut self, is_interrupted: &mut dyn FnMut() -> bool) -> Result<(), Stopped> {
        while let Some(queue) = self.going.pop_front() {
            self.advance(queue);
            if self.passed >= LOOK {
                self.passed = 0;
                if is_interrupted() {
                    return Err(Stopped::Interrupted);
                }
            }
        }
        Ok(())
    }

    /// Lets happen what happens at one time: transfers end, then transfers begin.
    fn happen(&mut self, batch: &SimultaneousEvents, now: Ps) {
        self.passed += batch.ends.len() + batch.begins.len();
        for &queue in &batch.ends {
            if self.links.ends(queue, now) {
                self.end(queue, now);
            }
        }
        for &queue in &batch.begins {
            let &QueueState { step, nbytes, .. } = &self.queues[queue as usize];
            let path = self.flat.step(step).path;
            self.moved[path as usize] += nbytes;
            self.links.begin(queue, path, nbytes, now, &mut self.agenda);
        }
    }

    fn end(&mut self, queue: u32, at: Ps) {
        let limit = self.links.end(queue, at);
        self.done(queue, at, limit);
        self.going.push_back(queue);
    }

    /// Takes a queue to a step that waits for an unfinished step, or for the clock; then wakes the queues that wait for it.
    fn advance(&mut self, number: u32) {
        for _ in 0..LOOK {
            let is_over = self.queues[number as usize].tile == self.flat.tiles;
            if is_over || !self.waits_are_over(number) {
                return self.wake(number);
            }
            let Some(at) = self.begin(number) else { return self.wake(number) };
            self.done(number, at, Limit::default());
            self.passed += 1;
        }
        self.going.push_back(number);
    }

    /// Begins a queue's step. Returns when it is done if it moves nothing; else the clock will say it.
    fn begin(&mut self, number: u32) -> Option<Ps> {
        let queue = &mut self.queues[number as usize];
        let flat = self.flat.step(queue.step);
        queue.nbytes = self.flat.nbytes(flat, queue.tile);
        let path = &self.paths.all[flat.path as usize];
        let begins = queue.ready + path.fixed;
        if queue.nbytes == 0 || flat.path == NOTHING {
            return Some(begins);
        }
        self.agenda.begin(begins + path.latency, number);
        None
    }

    /// Looks at the waits of a queue's step, from the first that was not over.
    fn waits_are_over(&mut self, number: u32) -> bool {
        let queue = &self.queues[number as usize];
        let (step, tile, mut ready, mut cause) = (queue.step, queue.tile, queue.ready, queue.cause);
        let waits = self.flat.waits(step);
        for (nth, wait) in (0..).zip(waits).skip(queue.waits as usize) {
            let signal = self.flat.signals[wait.signal as usize];
            let (at, by) = if wait.queue & ENTER != 0 {
                let rank = wait.queue & !ENTER;
                (self.starts[rank as usize] + signal, StepCause::Enter(rank))
            } else {
                let Some(target) = self.target(wait, tile) else { continue };
                if self.steps(wait.queue) < target {
                    let queue = &mut self.queues[number as usize];
                    (queue.waits, queue.ready, queue.cause) = (nth, ready, cause);
                    self.queues[wait.queue as usize].waiting.push((target, number));
                    return false;
                }
                let step = self.flat.number(wait.queue, target - 1);
                (self.record[step as usize].done + signal, StepCause::Step(step as u32))
            };
            if at > ready {
                (ready, cause) = (at, by);
            }
        }
        let queue = &mut self.queues[number as usize];
        (queue.ready, queue.cause) = (ready, cause);
        true
    }

    /// A queue's step is done.
    fn done(&mut self, number: u32, at: Ps, limit: Limit) {
        let step = self.flat.number(number, self.steps(number));
        let queue = &mut self.queues[number as usize];
        self.record[step as usize] = StepRecord { ready: queue.ready, done: at, cause: queue.cause, limit };
        queue.step += 1;
        queue.waits = 0;
        (queue.ready, queue.cause) = (at, StepCause::Step(step as u32));
        if queue.step == self.flat.first(number + 1) {
            queue.step = self.flat.first(number);
            queue.tile += 1;
        }
    }

    /// Those who wait for a queue that is far enough now may go on.
    fn wake(&mut self, number: u32) {
        let steps = self.steps(number);
        let going = &mut self.going;
        self.queues[number as usize].waiting.retain(|&(target, queue)| {
            let is_over = target <= steps;
            going.extend(is_over.then_some(queue));
            !is_over
        });
    }

    /// Returns the number of steps that a queue has done.
    #[inline]
    fn steps(&self, number: u32) -> u64 {
        let &QueueState { step, tile, .. } = &self.queues[number as usize];
        u64::from(tile) * u64::from(self.flat.len(number)) + u64::from(step - self.flat.first(number))
    }

    /// Returns the number of steps that the awaited queue must have done; none if that was before the first tile.
    #[inline]
    fn target(&self, wait: &FlatWait, tile: u32) -> Option<u64> {
        let tile = tile.checked_sub(wait.lag)?;
        Some(u64::from(tile) * u64::from(self.flat.len(wait.queue)) + u64::from(wait.index) + 1)
    }

    fn outcome(self) -> Result<RunOutcome, Stopped> {
        let flat = self.flat;
        let stuck = (0..flat.queues() as u32).find(|&queue| self.queues[queue as usize].tile < flat.tiles);
        if let Some(queue) = stuck {
            return Err(Stopped::Stuck(queue, self.queues[queue as usize].step - flat.first(queue)));
        }
        let leaves = flat.working_queues()..flat.queues();
        Ok(RunOutcome {
            ends: leaves.map(|queue| self.queues[queue].ready).collect(),
            busy: self.links.busy(),
            moved: self.moved,
            record: self.record,
        })
    }
}

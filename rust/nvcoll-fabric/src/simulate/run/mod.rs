//! The loop: queues in order, waits, tiles.
//!
//! ```text
//! a queue   ─waits are over─▶ ready ─fixed, latency─▶ begins to move ─▶ has moved: done ─▶ its next step; those who wait for it
//! ```
//!
//! When a step is ready, and why, is the latest of what it waits for: that needs no clock, only when those were done,
//! which is kept until nobody can ask for it any more. Links that are shared need one. All events of one time are one
//! batch: transfers that end, then transfers that begin, then links are shared anew. So nothing depends on an order
//! among equal times.

mod queue;
mod record;

use std::collections::VecDeque;

use super::agenda::{Agenda, SimultaneousEvents};
use super::flat::{Flat, FlatWait, ENTER};
use super::paths::{TransferPaths, NOTHING};
use super::sharing::{Limit, SharedLinks};
use crate::units::Ps;
use queue::{Done, QueueState, NOBODY};
pub(super) use record::{RunRecord, StepCause};

/// How many steps and events pass between two looks at whether to go on. Chosen: some milliseconds; in tests so few
/// that everything is forgotten as soon as it may be.
const LOOK: usize = if cfg!(test) { 16 } else { 1 << 15 };

/// Why a run did not come to its end.
pub(super) enum Stopped {
    /// A queue, and the place in it of a step that never becomes ready.
    Stuck(u32, u32),
    /// Somebody said so.
    Interrupted,
}

/// A run on its way.
pub(super) struct Execution<'a> {
    flat: &'a Flat,
    paths: &'a TransferPaths,
    starts: &'a [Ps],
    links: SharedLinks<'a>,
    agenda: Agenda,
    queues: Vec<QueueState>,
    done: Vec<Done>,
    /// For each queue, the head of the list of queues that wait for it.
    waiting: Vec<u32>,
    /// Queues that may go on.
    going: VecDeque<u32>,
    /// How many steps and events passed since the last look at whether to go on.
    passed: usize,
    /// For each path, the bytes that it moved.
    moved: Vec<u64>,
    record: Option<RunRecord>,
}

/// What a run leaves.
pub(super) struct RunOutcome {
    /// For each rank, when it left.
    pub(super) ends: Vec<Ps>,
    pub(super) busy: Vec<Ps>,
    pub(super) moved: Vec<u64>,
    pub(super) record: Option<RunRecord>,
}

impl<'a> Execution<'a> {
    /// Runs a flat schedule over paths, with the starts of ranks, to the end, unless `is_interrupted` says to stop.
    pub(super) fn run(
        (flat, paths, starts): (&'a Flat, &'a TransferPaths, &'a [Ps]),
        records: bool,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<RunOutcome, Stopped> {
        let mut run = Self::new(flat, paths, starts, records);
        run.pass(is_interrupted)?;
        run.outcome()
    }

    fn new(flat: &'a Flat, paths: &'a TransferPaths, starts: &'a [Ps], records: bool) -> Self {
        let (queues, working) = (flat.queues() as u32, flat.working_queues() as u32);
        let queue = |number: u32| {
            let tile = if number < working { 0 } else { flat.tiles - 1 };
            QueueState::new(flat.first(number), tile, starts[flat.ranks[number as usize] as usize])
        };
        let room = |queue| (u64::from(flat.len(queue)) * u64::from(flat.tiles)).min(LOOK as u64) as usize;
        Self {
            flat,
            paths,
            starts,
            links: SharedLinks::new(paths, queues as usize),
            agenda: Agenda::default(),
            queues: (0..queues).map(queue).collect(),
            done: (0..queues).map(|queue| Done::with_room(room(queue))).collect(),
            waiting: vec![NOBODY; queues as usize],
            going: (0..queues).collect(),
            passed: 0,
            moved: vec![0; paths.all.len()],
            record: records.then(|| RunRecord::new(flat.number(queues, 0) as usize)),
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
                self.forget();
                if is_interrupted() {
                    return Err(Stopped::Interrupted);
                }
            }
        }
        Ok(())
    }

    /// Forgets the times of steps that no queue will ask for any more.
    fn forget(&mut self) {
        let Some(tile) = self.queues.iter().map(|queue| queue.tile).min() else { return };
        let tile = u64::from(tile.saturating_sub(self.flat.longest_lag));
        if tile > 0 {
            for (queue, done) in (0..).zip(&mut self.done[..self.flat.working_queues()]) {
                done.forget(tile * u64::from(self.flat.len(queue)));
            }
        }
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
            let QueueState { step, nbytes, .. } = self.queues[queue as usize];
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

    /// Takes a queue to a step that waits for what is not done, or for the clock; then tells those who wait for it.
    fn advance(&mut self, number: u32) {
        for _ in 0..LOOK {
            let is_over = self.queues[number as usize].tile == self.flat.tiles;
            if is_over || !self.waits_are_over(number) {
                return self.tell(number);
            }
            let Some(at) = self.begin(number) else { return self.tell(number) };
            self.done(number, at, Limit::default());
            self.passed += 1;
        }
        self.going.push_back(number);
    }

    /// Begins a queue's step. Returns when it is done if it moves nothing; else the clock will say it.
    fn begin(&mut self, number: u32) -> Option<Ps> {
        let queue = &mut self.queues[number as usize];
        let flat = self.flat.step(queue.step);
        queue.nbytes = self.flat.nbytes(flat.size, queue.tile);
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
                (self.starts[rank as usize] + signal, StepCause::ENTERS + u64::from(rank))
            } else {
                let Some(target) = self.target(wait, tile) else { continue };
                let Some(done) = self.done[wait.queue as usize].when(target) else {
                    let queue = &mut self.queues[number as usize];
                    (queue.waits, queue.ready, queue.cause) = (nth, ready, cause);
                    (queue.awaited, queue.target) = (wait.queue, target);
                    queue.next_waiting = std::mem::replace(&mut self.waiting[wait.queue as usize], number);
                    return false;
                };
                (done + signal, self.flat.number(wait.queue, target - 1))
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
        let done = &mut self.done[number as usize];
        let step = self.flat.number(number, done.steps());
        done.at.push(at);
        let queue = &mut self.queues[number as usize];
        if let Some(record) = &mut self.record {
            let step = step as usize;
            (record.ready[step], record.done[step]) = (queue.ready, at);
            (record.cause[step], record.limit[step]) = (queue.cause, limit);
        }
        queue.step += 1;
        queue.waits = 0;
        (queue.ready, queue.cause) = (at, step);
        if queue.step == self.flat.first(number + 1) {
            queue.step = self.flat.first(number);
            queue.tile += 1;
        }
    }

    /// Those who wait for a queue that is far enough now may go on.
    fn tell(&mut self, number: u32) {
        let steps = self.done[number as usize].steps();
        let mut waiting = std::mem::replace(&mut self.waiting[number as usize], NOBODY);
        while waiting != NOBODY {
            let queue = &mut self.queues[waiting as usize];
            let next = queue.next_waiting;
            if queue.target <= steps {
                queue.awaited = NOBODY;
                self.going.push_back(waiting);
            } else {
                queue.next_waiting = std::mem::replace(&mut self.waiting[number as usize], waiting);
            }
            waiting = next;
        }
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

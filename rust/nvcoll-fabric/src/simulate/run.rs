//! The loop: queues in order, waits, tiles.
//!
//! ```text
//! a queue   ─waits are over─▶ ready ─fixed, latency─▶ begins to move ─▶ has moved: done ─▶ its next step; those who wait for it
//!                                              └─ who may be met on its links (`rivals.rs`) begins by the clock, others at once
//! ```
//!
//! When a step is ready, and why, is the latest of what it waits for: that needs no clock, only when those were done,
//! which is kept until nobody can ask for it any more. Links that are shared need one. All events of one time are one
//! batch: transfers that end, then transfers that begin, then links are shared anew. So nothing depends on an order
//! among equal times, except who is first on a link that serves one after the other: there it is the order of ranks,
//! queues and legs.

mod repeat;

use std::collections::VecDeque;

use super::agenda::Agenda;
use super::flat::{Flat, Wait, ENTER};
use super::moves::{Moves, NOTHING};
use super::rivals::{Rivals, MANY, NOBODY};
use crate::units::Ps;
use repeat::Repeats;

/// The event that a queue's step begins to move; other numbers are the discipline's.
const BEGINS: u32 = 0;
/// The event that a transfer ends.
pub(super) const ENDS: u32 = u32::MAX;

pub(super) const fn event(queue: u32, what: u32) -> u64 {
    (queue as u64) << 32 | what as u64
}

/// What held a transfer back while most others did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limit {
    /// The link; none if that is not known.
    pub(super) link: u32,
    /// How many transfers were on it then.
    pub(super) users: u32,
}

impl Default for Limit {
    fn default() -> Self {
        Self { link: u32::MAX, users: 0 }
    }
}

/// How transfers get their links.
pub(super) trait Discipline {
    /// Whether a transfer has its links only after the latency of all of them; else each link adds its own.
    const WAITS_FOR_LATENCY: bool;

    /// Whether its state says when transfers end, so that the ends on the agenda say nothing more.
    const KNOWS_ENDS: bool;

    /// Returns how long a transfer takes that has its links to itself.
    fn alone(&mut self, path: u32, nbytes: u64) -> Ps;

    /// Such a transfer, of which that was asked just now, takes place.
    fn pass(&mut self, path: u32, takes: Ps) -> Limit;

    /// A transfer begins to move; returns when it ends if that is known now.
    fn begin(&mut self, queue: u32, path: u32, nbytes: u64, now: Ps, agenda: &mut Agenda) -> Option<Ps>;

    /// One of the discipline's events; returns when the queue's transfer ends if that is known now.
    fn happens(&mut self, happening: u64, now: Ps, agenda: &mut Agenda) -> Option<Ps>;

    /// The queue's transfer ends.
    fn end(&mut self, queue: u32, at: Ps) -> Limit;

    /// All events of `now` have happened; adds transfers that end now after all.
    fn settle(&mut self, now: Ps, ended: &mut Vec<u32>, agenda: &mut Agenda);

    /// Returns how long each link was in use, when nothing is any more.
    fn busy(&mut self) -> Vec<Ps>;

    /// Returns how long each link was in use until now.
    fn used(&self, now: Ps) -> Vec<Ps>;

    /// Tells all that decides what comes after `now`, times as distances from it, until `visit` says no; says whether it
    /// never did.
    fn state(&self, now: Ps, visit: &mut impl FnMut(u64) -> bool) -> bool;

    /// Goes on as it is, that much later, each link having been in use for so much more.
    fn postpone(&mut self, by: Ps, more: &[Ps]);
}

/// Why a step was not ready earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Its rank had not entered.
    Own,
    /// Another rank had not entered, or its signal was on the way.
    Enter(u32),
    /// The step before it in its queue, or one it waits for, was not done: its number in the record.
    Step(u64),
}

impl Cause {
    const OWN: u64 = u64::MAX;
    const ENTERS: u64 = 1 << 63;

    fn read(packed: u64) -> Self {
        match packed {
            Self::OWN => Cause::Own,
            _ if packed >= Self::ENTERS => Cause::Enter((packed - Self::ENTERS) as u32),
            _ => Cause::Step(packed),
        }
    }
}

/// What happened to every step in every tile, in queue order; then the leaves.
#[derive(Default)]
pub(super) struct Record {
    pub(super) ready: Vec<Ps>,
    pub(super) done: Vec<Ps>,
    cause: Vec<u64>,
    pub(super) limit: Vec<Limit>,
}

impl Record {
    pub(super) fn cause(&self, number: u64) -> Cause {
        Cause::read(self.cause[number as usize])
    }

    fn resize(&mut self, entries: usize) {
        self.ready.resize(entries, 0);
        self.done.resize(entries, 0);
        self.cause.resize(entries, 0);
        self.limit.resize(entries, Limit::default());
    }
}

#[derive(Clone)]
struct Queue {
    step: u32,
    tile: u32,
    /// How many waits of its step are over.
    waits: u32,
    /// Which queue it waits for.
    awaited: u32,
    /// Who waits for the same queue.
    next_waiting: u32,
    /// At which progress of the queue that it waits for it goes on.
    target: u64,
    ready: Ps,
    cause: u64,
    nbytes: u64,
}

/// When the steps of a queue were done, those left out that everybody is past.
#[derive(Clone, Default)]
struct Done {
    forgotten: u64,
    at: Vec<Ps>,
}

impl Done {
    /// Returns how many steps are done.
    #[inline]
    fn steps(&self) -> u64 {
        self.forgotten + self.at.len() as u64
    }

    /// Returns when so many steps were done; none if they are not. What was forgotten was long ago.
    #[inline]
    fn when(&self, steps: u64) -> Option<Ps> {
        if steps <= self.forgotten {
            return Some(0);
        }
        self.at.get((steps - self.forgotten - 1) as usize).copied()
    }

    /// Nobody asks for the first so many steps any more.
    fn forget(&mut self, steps: u64) {
        let over = steps.saturating_sub(self.forgotten) as usize;
        if over > self.at.len() / 2 {
            self.at.drain(..over);
            self.forgotten = steps;
        }
    }
}

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
pub(super) struct Run<'a, D> {
    flat: &'a Flat,
    moves: &'a Moves,
    rivals: &'a Rivals,
    starts: &'a [Ps],
    discipline: D,
    agenda: Agenda,
    queues: Vec<Queue>,
    done: Vec<Done>,
    /// For each queue, the first of those who wait for it.
    waiting: Vec<u32>,
    /// Queues that may go on.
    going: VecDeque<u32>,
    /// How many steps and events passed since the last look at whether to go on.
    passed: usize,
    /// For each path, the bytes that it moved.
    moved: Vec<u64>,
    record: Option<Record>,
    repeats: Repeats,
}

/// What a run leaves.
pub(super) struct Outcome {
    /// For each rank, when it left.
    pub(super) ends: Vec<Ps>,
    pub(super) busy: Vec<Ps>,
    pub(super) moved: Vec<u64>,
    pub(super) record: Option<Record>,
}

impl<'a, D: Discipline> Run<'a, D> {
    /// Runs to the end, unless `is_interrupted` says to stop; with `repeats`, tiles that repeat are passed over. Where they
    /// may, no queue goes ahead of the clock: what repeats is all that there is at one time.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn run(
        flat: &'a Flat,
        moves: &'a Moves,
        rivals: &'a Rivals,
        starts: &'a [Ps],
        discipline: D,
        records: bool,
        repeats: bool,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Outcome, Stopped> {
        let queues = flat.queues();
        let working = flat.working_queues();
        let queue = |number: usize| Queue {
            step: flat.first(number as u32),
            tile: if number < working { 0 } else { flat.tiles - 1 },
            waits: 0,
            awaited: NOBODY,
            next_waiting: NOBODY,
            target: 0,
            ready: starts[flat.ranks[number] as usize],
            cause: Cause::OWN,
            nbytes: 0,
        };
        let room = |queue| (u64::from(flat.len(queue)) * u64::from(flat.tiles)).min(LOOK as u64) as usize;
        let mut run = Self {
            flat,
            moves,
            rivals,
            starts,
            discipline,
            agenda: Agenda::new(),
            queues: (0..queues).map(queue).collect(),
            done: (0..queues as u32).map(|queue| Done { forgotten: 0, at: Vec::with_capacity(room(queue)) }).collect(),
            waiting: vec![NOBODY; queues],
            going: (0..queues as u32).collect(),
            passed: 0,
            moved: vec![0; moves.paths.len()],
            record: records.then(Record::default),
            repeats: Repeats::new(flat, starts, repeats),
        };
        if let Some(record) = &mut run.record {
            record.resize(flat.number(queues as u32, 0) as usize);
        }
        run.pass(is_interrupted)?;
        run.outcome()
    }

    fn pass(&mut self, is_interrupted: &mut dyn FnMut() -> bool) -> Result<(), Stopped> {
        let (mut batch, mut ended) = (Vec::new(), Vec::new());
        self.go_on(is_interrupted)?;
        while let Some(now) = self.agenda.next_time() {
            loop {
                self.agenda.take(now, &mut batch);
                if !batch.is_empty() {
                    self.passed += batch.len();
                    self.happen(&mut batch, now);
                    self.go_on(is_interrupted)?;
                    continue;
                }
                self.discipline.settle(now, &mut ended, &mut self.agenda);
                if ended.is_empty() && self.agenda.next_time() != Some(now) {
                    break;
                }
                for queue in ended.drain(..) {
                    self.end(queue, now);
                }
                self.go_on(is_interrupted)?;
            }
            if self.repeats.is_due {
                self.look_for_repeats(now);
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

    /// Forgets when steps were done of which no queue will hear any more.
    fn forget(&mut self) {
        let Some(tile) = self.queues.iter().map(|queue| queue.tile).min() else { return };
        let tile = u64::from(tile.saturating_sub(self.flat.longest_lag));
        if tile > 0 {
            for (queue, done) in (0..).zip(&mut self.done[..self.flat.working_queues()]) {
                done.forget(tile * u64::from(self.flat.len(queue)));
            }
        }
    }

    /// What happens at one time: first the discipline's events, then transfers begin; where links serve one after the
    /// other all of it by queue.
    fn happen(&mut self, batch: &mut Vec<u64>, now: Ps) {
        if !D::WAITS_FOR_LATENCY {
            if !batch.is_sorted() {
                batch.sort_unstable();
            }
            for happening in batch.drain(..) {
                self.happens(happening, now);
            }
            return;
        }
        let mut begins = 0;
        for at in 0..batch.len() {
            let happening = batch[at];
            if happening as u32 == BEGINS {
                batch[begins] = happening;
                begins += 1;
            } else {
                self.happens(happening, now);
            }
        }
        for &happening in &batch[..begins] {
            self.happens(happening, now);
        }
        batch.clear();
    }

    #[inline]
    fn happens(&mut self, happening: u64, now: Ps) {
        let queue = (happening >> 32) as u32;
        if happening as u32 == BEGINS {
            let Queue { step, nbytes, .. } = self.queues[queue as usize];
            let path = self.flat.step(step).path;
            self.moved[path as usize] += nbytes;
            if let Some(at) = self.discipline.begin(queue, path, nbytes, now, &mut self.agenda) {
                self.end(queue, at);
            }
        } else if let Some(at) = self.discipline.happens(happening, now, &mut self.agenda) {
            self.end(queue, at);
        }
    }

    fn end(&mut self, queue: u32, at: Ps) {
        let limit = self.discipline.end(queue, at);
        self.done(queue, at, limit);
        self.going.push_back(queue);
    }

    /// Takes a queue to a step that waits for what is not done, or for the clock; then tells those who wait for it.
    fn advance(&mut self, number: u32) {
        let mut horizon = 0;
        for _ in 0..LOOK {
            let is_over = self.queues[number as usize].tile == self.flat.tiles;
            if is_over || !self.waits_are_over(number) {
                return self.tell(number);
            }
            let Some((at, limit)) = self.begin(number, &mut horizon) else { return self.tell(number) };
            self.done(number, at, limit);
            self.passed += 1;
        }
        self.going.push_back(number);
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
                (self.starts[rank as usize] + signal, Cause::ENTERS + u64::from(rank))
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

    /// Begins a queue's step. Returns when it is done if nobody can meet it before `horizon`, which is looked for anew
    /// when it is too near; else the clock will say it.
    fn begin(&mut self, number: u32, horizon: &mut Ps) -> Option<(Ps, Limit)> {
        let queue = &self.queues[number as usize];
        let flat = self.flat.step(queue.step);
        let nbytes = self.flat.nbytes(flat.size, queue.tile);
        let path = &self.moves.paths[flat.path as usize];
        let begins = queue.ready + path.fixed;
        if nbytes == 0 || flat.path == NOTHING {
            return Some((begins, Limit::default()));
        }
        let begins = begins + if D::WAITS_FOR_LATENCY { path.latency } else { 0 };
        if !self.repeats.is_looking && self.rivals.rivals[number as usize] != MANY {
            let takes = self.discipline.alone(flat.path, nbytes);
            if begins + takes > *horizon {
                *horizon = self.horizon(number, begins);
            }
            if begins + takes <= *horizon {
                self.moved[flat.path as usize] += nbytes;
                return Some((begins + takes, self.discipline.pass(flat.path, takes)));
            }
        }
        self.queues[number as usize].nbytes = nbytes;
        self.agenda.push_in_order(begins, event(number, BEGINS));
        None
    }

    /// Returns until when nobody else moves anything over a queue's links from `begins` on, as far as is known.
    fn horizon(&self, number: u32, begins: Ps) -> Ps {
        let number = match self.rivals.rivals[number as usize] {
            NOBODY => return Ps::MAX,
            MANY => return 0,
            rival => rival as usize,
        };
        let rival = &self.queues[number];
        if *self.done[number].at.last().unwrap_or(&rival.ready) > begins {
            return 0;
        }
        if rival.tile == self.flat.tiles {
            return Ps::MAX;
        }
        if rival.awaited == NOBODY {
            return rival.ready;
        }
        let awaited = rival.awaited as usize;
        match rival.target.saturating_sub(self.done[awaited].steps()) {
            0 => rival.ready,
            missing => rival.ready.max(self.queues[awaited].ready + missing * self.rivals.least[awaited]),
        }
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
            self.repeats.is_due |= number == self.repeats.marker;
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

    /// Returns how many steps the awaited queue must have done; none if that was before the first tile.
    #[inline]
    fn target(&self, wait: &Wait, tile: u32) -> Option<u64> {
        let tile = tile.checked_sub(wait.lag)?;
        Some(u64::from(tile) * u64::from(self.flat.len(wait.queue)) + u64::from(wait.index) + 1)
    }

    fn outcome(mut self) -> Result<Outcome, Stopped> {
        let flat = self.flat;
        let stuck = (0..flat.queues() as u32).find(|&queue| self.queues[queue as usize].tile < flat.tiles);
        if let Some(queue) = stuck {
            return Err(Stopped::Stuck(queue, self.queues[queue as usize].step - flat.first(queue)));
        }
        let leaves = flat.working_queues()..flat.queues();
        Ok(Outcome {
            ends: leaves.map(|queue| self.queues[queue].ready).collect(),
            busy: self.discipline.busy(),
            moved: self.moved,
            record: self.record,
        })
    }
}

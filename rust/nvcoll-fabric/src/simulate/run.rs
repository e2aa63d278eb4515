//! The loop: queues in order, waits, tiles.
//!
//! ```text
//! a queue   ─waits are over─▶ ready ─fixed, latency─▶ begins to move ─▶ has moved: done ─▶ its next step; those who wait for it
//! ```
//!
//! All events of one time are one batch: transfers that end, then transfers that begin, then links are shared anew.
//! So nothing depends on an order among equal times, except who is first on a link that serves one after the other:
//! there it is the order of ranks, queues and legs.

mod repeat;

use std::collections::VecDeque;

use super::agenda::Agenda;
use super::flat::{Flat, Wait, ENTER};
use super::moves::{Moves, NOTHING};
use crate::units::Ps;
use repeat::Repeats;

/// The event that a queue's step begins to move; other numbers are the discipline's.
const BEGINS: u32 = 0;
/// The event that a transfer ends.
pub(super) const ENDS: u32 = u32::MAX;

const NOBODY: u32 = u32::MAX;

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

    /// A transfer begins to move.
    fn begin(&mut self, queue: u32, path: u32, nbytes: u64, now: Ps, agenda: &mut Agenda);

    /// One of the discipline's events; says whether the queue's transfer has ended.
    fn happens(&mut self, happening: u64, now: Ps, agenda: &mut Agenda) -> bool;

    /// The queue's transfer is over.
    fn end(&mut self, queue: u32, now: Ps) -> Limit;

    /// All events of `now` have happened; adds transfers that end now after all.
    fn settle(&mut self, now: Ps, ended: &mut Vec<u32>, agenda: &mut Agenda);

    /// Returns how long each link was in use, when nothing is any more.
    fn busy(&self) -> Vec<Ps>;

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
    /// Who waits for the same queue.
    next_waiting: u32,
    /// At which progress of the queue that it waits for it goes on.
    target: u64,
    ready: Ps,
    cause: u64,
    nbytes: u64,
}

/// How many events pass between two looks at whether to go on. Chosen: some milliseconds.
const LOOK: usize = 1 << 15;

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
    starts: &'a [Ps],
    discipline: D,
    agenda: Agenda,
    queues: Vec<Queue>,
    /// For each queue, how many steps it has done.
    progress: Vec<u64>,
    /// For each queue, the first of those who wait for it.
    waiting: Vec<u32>,
    /// For each queue, when its last steps were done, as long as somebody has still to hear of it.
    heard: Vec<VecDeque<Ps>>,
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
    /// Runs to the end, unless `is_interrupted` says to stop; with `repeats`, tiles that repeat are passed over.
    pub(super) fn run(
        flat: &'a Flat,
        moves: &'a Moves,
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
            next_waiting: NOBODY,
            target: 0,
            ready: starts[flat.ranks[number] as usize],
            cause: Cause::OWN,
            nbytes: 0,
        };
        let mut run = Self {
            flat,
            moves,
            starts,
            discipline,
            agenda: Agenda::new(),
            queues: (0..queues).map(queue).collect(),
            progress: vec![0; queues],
            waiting: vec![NOBODY; queues],
            heard: vec![VecDeque::new(); queues],
            moved: vec![0; moves.paths.len()],
            record: records.then(Record::default),
            repeats: Repeats::new(flat, starts, repeats),
        };
        if let Some(record) = &mut run.record {
            record.resize(flat.number(queues as u32, 0) as usize);
        }
        for queue in 0..queues as u32 {
            run.go_on(queue, None);
        }
        run.pass(is_interrupted)?;
        run.outcome()
    }

    fn pass(&mut self, is_interrupted: &mut dyn FnMut() -> bool) -> Result<(), Stopped> {
        let (mut batch, mut ended) = (Vec::new(), Vec::new());
        let mut passed = 0;
        while let Some(now) = self.agenda.next_time() {
            if passed >= LOOK {
                passed = 0;
                if is_interrupted() {
                    return Err(Stopped::Interrupted);
                }
            }
            loop {
                self.agenda.take(now, &mut batch);
                if !batch.is_empty() {
                    passed += batch.len();
                    self.happen(&mut batch, now);
                    continue;
                }
                self.discipline.settle(now, &mut ended, &mut self.agenda);
                if ended.is_empty() && self.agenda.next_time() != Some(now) {
                    break;
                }
                for queue in ended.drain(..) {
                    self.end(queue, now);
                }
            }
            if self.repeats.is_due {
                self.look_for_repeats(now);
            }
        }
        Ok(())
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
            if path == NOTHING || nbytes == 0 {
                return self.done(queue, now, Limit::default());
            }
            self.moved[path as usize] += nbytes;
            self.discipline.begin(queue, path, nbytes, now, &mut self.agenda);
        } else if self.discipline.happens(happening, now, &mut self.agenda) {
            self.end(queue, now);
        }
    }

    fn end(&mut self, queue: u32, now: Ps) {
        let limit = self.discipline.end(queue, now);
        self.done(queue, now, limit);
    }

    /// A queue's step is done: tells those who wait, and goes on with the next.
    fn done(&mut self, number: u32, now: Ps, limit: Limit) {
        let progress = self.progress[number as usize];
        self.progress[number as usize] = progress + 1;
        let queue = &mut self.queues[number as usize];
        let at = self.flat.number(number, progress);
        if let Some(record) = &mut self.record {
            let at = at as usize;
            (record.ready[at], record.done[at]) = (queue.ready, now);
            (record.cause[at], record.limit[at]) = (queue.cause, limit);
        }
        queue.step += 1;
        queue.waits = 0;
        (queue.ready, queue.cause) = (now, at);
        if queue.step == self.flat.first(number + 1) {
            queue.step = self.flat.first(number);
            queue.tile += 1;
            self.repeats.is_due |= number == self.repeats.marker;
        }
        let is_over = queue.tile == self.flat.tiles;
        self.remember(number, now);
        self.tell(number, now);
        if !is_over {
            self.go_on(number, None);
        }
    }

    fn remember(&mut self, queue: u32, now: Ps) {
        let farthest = self.flat.farthest[queue as usize];
        if farthest == 0 {
            return;
        }
        let heard = &mut self.heard[queue as usize];
        while heard.front().is_some_and(|&done| done + farthest <= now) {
            heard.pop_front();
        }
        heard.push_back(now);
    }

    fn tell(&mut self, number: u32, now: Ps) {
        let progress = self.progress[number as usize];
        let mut waiting = std::mem::replace(&mut self.waiting[number as usize], NOBODY);
        while waiting != NOBODY {
            let queue = &mut self.queues[waiting as usize];
            let next = queue.next_waiting;
            if queue.target <= progress {
                self.go_on(waiting, Some(now));
            } else {
                queue.next_waiting = std::mem::replace(&mut self.waiting[number as usize], waiting);
            }
            waiting = next;
        }
    }

    /// Looks at the waits of a queue's step, from the first that was not over; it is over now if `told` says when.
    fn go_on(&mut self, number: u32, mut told: Option<Ps>) {
        let queue = &self.queues[number as usize];
        let (step, tile, mut ready, mut cause) = (queue.step, queue.tile, queue.ready, queue.cause);
        let waits = self.flat.waits(step);
        for (nth, wait) in waits.iter().enumerate().skip(queue.waits as usize) {
            let signal = self.flat.signals[wait.signal as usize];
            let (at, by) = if wait.queue & ENTER != 0 {
                let rank = wait.queue & !ENTER;
                (self.starts[rank as usize] + signal, Cause::ENTERS + u64::from(rank))
            } else {
                let Some(target) = self.target(wait, tile) else { continue };
                let by = self.flat.number(wait.queue, target - 1);
                match told.take() {
                    Some(now) => (now + signal, by),
                    None if self.progress[wait.queue as usize] < target => {
                        let queue = &mut self.queues[number as usize];
                        (queue.waits, queue.target, queue.ready, queue.cause) = (nth as u32, target, ready, cause);
                        queue.next_waiting = std::mem::replace(&mut self.waiting[wait.queue as usize], number);
                        return;
                    }
                    None if signal == 0 => continue,
                    None => match self.when_done(wait.queue, target) {
                        Some(done) => (done + signal, by),
                        None => continue,
                    },
                }
            };
            if at > ready {
                (ready, cause) = (at, by);
            }
        }
        let queue = &mut self.queues[number as usize];
        (queue.ready, queue.cause) = (ready, cause);
        let flat = self.flat.step(step);
        queue.nbytes = self.flat.nbytes(flat.size, tile);
        let path = &self.moves.paths[flat.path as usize];
        let moves = D::WAITS_FOR_LATENCY && queue.nbytes > 0;
        let begins = ready + path.fixed + if moves { path.latency } else { 0 };
        self.agenda.push_in_order(begins, event(number, BEGINS));
    }

    /// Returns how many steps the awaited queue must have done; none if that was before the first tile.
    fn target(&self, wait: &Wait, tile: u32) -> Option<u64> {
        let tile = tile.checked_sub(wait.lag)?;
        Some(u64::from(tile) * u64::from(self.flat.len(wait.queue)) + u64::from(wait.index) + 1)
    }

    /// Returns when a queue had done so many steps; none if everybody has heard of it.
    fn when_done(&self, queue: u32, steps: u64) -> Option<Ps> {
        let heard = &self.heard[queue as usize];
        let back = (self.progress[queue as usize] - steps) as usize;
        heard.len().checked_sub(back + 1).map(|at| heard[at])
    }

    fn outcome(self) -> Result<Outcome, Stopped> {
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

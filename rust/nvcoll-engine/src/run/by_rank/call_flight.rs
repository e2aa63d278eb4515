//! A call of the ranks of a worker, from its enter to its end.
//!
//! ```text
//! Enter ─▶ AgreePath ─▶ Work ─▶ Leave ─▶ over          each waits for peers in its own way; an abort ends all of them:
//!                                                     acknowledge, then return when nobody can touch the buffers (`run/quiesce.rs`)
//! ```

use std::ops::Range;

use super::worker::{is_over, RankWorker};
use crate::call::PositionedCall;
use crate::deadline::WaitLimit;
use crate::error::Error;
use crate::memory::buffers::Buffers;
use crate::memory::world::notice::{Notice, RankList};
use crate::memory::world::World;
use crate::program::batch::Pass;
use crate::program::order::Wait;
use crate::program::store_choice::TimedStores;
use crate::program::StagingRing;
use crate::run::fault::Moment;
use crate::run::quiesce::{ring_everybody, until_quiet};
use crate::run::report::{ended_before, error_of, missing, place_of_trouble};
use crate::run::wait::{fly, wait, Advance, Flight};
use crate::run::wait_graph::WaitGraph;
use crate::sync::{Cause, Doorbell, Pair};

/// Where a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallStage {
    /// It waits until every rank has entered the call before; then its ranks enter.
    Enter,
    /// It waits for the record of this rank, to see whether all ranks offer to run it mapped.
    AgreePath(u32),
    /// It runs steps.
    Work,
    /// It waits until its ranks may leave.
    Leave,
}

/// A call of the ranks of a worker.
struct CallFlight<'worker, 'a> {
    worker: &'worker mut RankWorker,
    world: &'a World,
    pass: Pass<'a>,
    /// The same on the mapped path, until the ranks have agreed on one.
    mapped: Option<Pass<'a>>,
    number: u32,
    buffers: &'a [Buffers],
    stage: CallStage,
    tiles: u32,
    stores: Option<TimedStores<'a>>,
}

impl<'a> Flight<'a> for CallFlight<'_, 'a> {
    #[inline]
    fn advance(&mut self) -> Result<Advance, Cause> {
        let (world, number) = (self.world, self.number);
        loop {
            match self.stage {
                CallStage::Enter if self.worker.may_enter(world, number) => {
                    self.worker.enter(world, self.pass, self.mapped.is_some(), number, self.buffers)?;
                    match self.mapped {
                        None => self.begin_work()?,
                        Some(_) => self.stage = CallStage::AgreePath(0),
                    }
                }
                CallStage::AgreePath(rank) if world.lines[rank as usize].stamp.has_entered(number) => {
                    self.hear_offer(rank)?
                }
                CallStage::Work => {
                    // SAFETY: `RankWorker::run`, which makes a flight, demands the same; `begin_work` fitted the worker to the pass,
                    // and the ranks have entered.
                    let has_moved = unsafe { self.worker.run_ready_steps(world, self.pass, self.tiles, number) }?;
                    self.stores.iter_mut().for_each(|stores| stores.note(has_moved));
                    if !self.worker.cursors.is_empty() {
                        return Ok(if has_moved { Advance::Moved } else { Advance::Waits });
                    }
                    self.stage = CallStage::Leave;
                }
                CallStage::Leave => {
                    if !self.may_leave()? {
                        return Ok(Advance::Waits);
                    }
                    self.worker.strike_at(world, number, Moment::Leave)?;
                    return Ok(Advance::Over);
                }
                CallStage::Enter | CallStage::AgreePath(_) => return Ok(Advance::Waits),
            }
        }
    }

    fn world(&self) -> &'a World {
        self.world
    }

    fn bell(&self) -> &'a Doorbell {
        self.world.lines[self.worker.rank() as usize].doorbell()
    }

    fn rank(&self) -> u32 {
        self.worker.rank()
    }

    /// Finds a peer whose program has returned before it made the call, or whose process is gone.
    fn look_who_left(&mut self) -> Option<Cause> {
        let (world, call) = (self.world, self.awaited_call());
        let cause = |rank: u32| {
            let departure = &world.lines[rank as usize].departure;
            if departure.is_before(call) {
                return Some(Cause::Returned(Pair { ranks: [rank, self.worker.rank()], call }));
            }
            world.death_of(rank)
        };
        (0..world.world_size()).filter(|_| self.worker.is_member).find_map(cause)
    }

    fn notice(&self) -> Option<Notice> {
        let new = || self.world.notice_of_call(self.worker.rank(), self.awaited_call(), self.awaited());
        self.worker.is_member.then(new)
    }

    fn keep_wait_graph(&mut self, found: WaitGraph) {
        self.worker.wait_graph = found;
    }
}

impl CallFlight<'_, '_> {
    fn begin_work(&mut self) -> Result<(), Cause> {
        // Peers may store otherwise: the bits are the same.
        let calls = || StagingRing::calls(self.pass, self.world.staging_bytes());
        self.stores = self.pass.stores().map(|choice| TimedStores::begin(choice, calls()));
        if let Some(stores) = &self.stores {
            self.worker.workspace.fit(self.pass.first(), stores.kind);
        }
        (self.stage, self.tiles) = (CallStage::Work, self.pass.tiles());
        self.worker.strike_at(self.world, self.number, Moment::After(0))
    }

    /// Hears from a rank that has entered whether it offers to run the call mapped. The ranks do if all offer it.
    fn hear_offer(&mut self, rank: u32) -> Result<(), Cause> {
        if !self.worker.meet_reachable(self.world, self.pass, rank, self.number)? {
            self.mapped = None;
        }
        self.stage = CallStage::AgreePath(rank + 1);
        if rank + 1 < self.world.world_size() {
            return Ok(());
        }
        if let Some(mapped) = self.mapped.take() {
            self.pass = mapped;
            self.worker.fit(mapped);
        }
        self.begin_work()
    }

    /// Says whether the ranks may leave, and meets the peers that they have waited for.
    fn may_leave(&mut self) -> Result<bool, Cause> {
        let (world, pass, number) = (self.world, self.pass, self.number);
        for rank in self.worker.ranks.clone() {
            for wait in &pass.order().leave[rank as usize] {
                if !is_over(world, wait, number, self.tiles - 1) {
                    return Ok(false);
                }
                if let Wait::Enter { rank: peer } = *wait {
                    self.worker.compare_and_meet(world, pass, peer, number, rank)?;
                }
            }
        }
        Ok(true)
    }

    /// Returns the number of the call that peers must reach.
    fn awaited_call(&self) -> u32 {
        match self.stage {
            CallStage::Enter => self.number.wrapping_sub(1),
            _ => self.number,
        }
    }

    /// Returns the ranks of the run for which the call waits.
    fn awaited(&self) -> RankList {
        let (world, order, number) = (self.world, self.pass.order(), self.number);
        let of_run = |rank: u32| world.ranks()[rank as usize];
        match self.stage {
            CallStage::Enter | CallStage::AgreePath(_) => {
                let ranks = world.lines.iter().zip(world.ranks());
                let absent = ranks.filter(|(lines, _)| !lines.stamp.has_entered(self.awaited_call()));
                absent.map(|(_, &rank)| rank).collect()
            }
            CallStage::Work => {
                let waits = self.worker.cursors.iter().flat_map(|cursor| {
                    let task = order.queues[cursor.rank as usize][cursor.queue as usize][cursor.index as usize];
                    let waits = &order.links[task as usize].waits[cursor.over..];
                    waits.iter().filter(|wait| !is_over(world, wait, number, cursor.tile)).map(Wait::rank)
                });
                waits.filter(|rank| !self.worker.ranks.contains(rank)).map(of_run).collect()
            }
            CallStage::Leave => {
                let waits = self.worker.ranks.clone().flat_map(|rank| &order.leave[rank as usize]);
                waits.filter(|wait| !is_over(world, wait, number, self.tiles - 1)).map(Wait::rank).map(of_run).collect()
            }
        }
    }
}

impl RankWorker {
    /// Runs call number `number` for the worker's ranks, whose buffers are given for each call of the pass: buffers of
    /// all ranks if one caller drives them, else of this member.
    ///
    /// A rank whose buffers every rank can reach may offer to run the call `mapped`, by a program of the same call on the mapped
    /// path. The ranks do so if all offer it.
    ///
    /// # Safety
    /// Every program of the pass has the ranks of the world. The buffers, with their scratch, are as long as the
    /// programs' calls say, and nobody but the workers of this call touches them until `run` returns. The staging of the
    /// world was made if a program uses it.
    pub(crate) async unsafe fn run<'a>(
        &mut self,
        world: &'a World,
        pass: Pass<'a>,
        mapped: Option<Pass<'a>>,
        number: u32,
        buffers: &'a [Buffers],
        limit: &mut WaitLimit<'_>,
    ) -> Result<(), Error> {
        debug_assert!(!pass.order().is_small() || pass.order().is_as_proved(), "an order runs that was not proved");
        self.prepare(world, pass, number);
        self.deadline = limit.deadline;
        let panicking = EndOnPanic { world, ranks: self.ranks.clone() };
        let mut outcome = self.strike_at(world, number, Moment::Before);
        let (stage, tiles, stores) = (CallStage::Enter, 0, None);
        let mut flight = CallFlight { worker: &mut *self, world, pass, mapped, number, buffers, stage, tiles, stores };
        if outcome.is_ok() {
            // A small call would feel one more layer of futures.
            outcome = if limit.is_of_issued() { fly(&mut flight, limit).await } else { wait(&mut flight, limit) };
        }
        let (pass, tiles, stores) = (flight.pass, flight.tiles, flight.stores);
        std::mem::forget(panicking);
        if let (true, Err(cause)) = (self.is_member, outcome) {
            // Peers may have to name a call of a batch.
            self.describe_call(world, pass, number, place_of_trouble(world, cause, number));
        }
        for rank in self.ranks.clone() {
            let activity = &world.lines[rank as usize].activity;
            if outcome.is_ok() {
                activity.finish()
            } else {
                activity.acknowledge()
            }
        }
        if outcome.is_ok() {
            stores.into_iter().for_each(|stores| stores.learn(|| are_all_done(world, pass, number, tiles)));
        }
        self.has_seen_all = outcome.is_ok() && pass.is_symmetric();
        let Err(cause) = outcome else { return Ok(()) };
        until_quiet(world, &self.ranks, limit.is_of_issued()).await;
        Err(self.report(world, pass, number, cause, limit))
    }

    /// Returns the error of this worker in call `number`.
    #[cold]
    fn report(&self, world: &World, pass: Pass<'_>, number: u32, cause: Cause, limit: &mut WaitLimit<'_>) -> Error {
        let own_call = |call: u32, nth: usize| (call == number).then(|| call_in(pass, nth));
        let own_end = || match cause {
            _ if self.has_ended_before => ended_before(self.rank(), cause),
            Cause::Interrupted(_) if limit.is_interrupted() => Error::Interrupted,
            Cause::Interrupted(_) => ended_before(self.rank(), cause),
            _ => limit.deadline.error(call_in(pass, 0), self.wait_graph.added_to(missing(world, number, &self.ranks))),
        };
        error_of(world, &self.ranks, cause, own_call, own_end)
    }
}

/// Says whether every rank has run all its steps of call `number`.
fn are_all_done(world: &World, pass: Pass<'_>, number: u32, tiles: u32) -> bool {
    let is_done = |(rank, (queue, tasks)): (u32, (u32, &Vec<u32>))| {
        let length = tasks.len() as u32;
        length == 0 || is_over(world, &Wait::Steps { rank, queue, length, done: length, lag: 0 }, number, tiles - 1)
    };
    let queues =
        (0..).zip(&pass.order().queues).flat_map(|(rank, of_rank)| (0..).zip(of_rank).map(move |of| (rank, of)));
    tiles == 0 || queues.into_iter().all(is_done)
}

/// Returns a call of a pass, or its last if it has fewer.
fn call_in(pass: Pass<'_>, nth: usize) -> PositionedCall {
    let nth = nth.min(pass.programs().len() - 1);
    PositionedCall { call: pass.programs()[nth].call().clone().into(), place: pass.place(nth) }
}

/// Ends the calls of the world if the worker panics, since its peers and their callers would wait for it.
struct EndOnPanic<'a> {
    world: &'a World,
    ranks: Range<u32>,
}

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        self.world.abort().raise(Cause::Failed(self.ranks.start));
        // The worker has left its steps: it touches nobody's buffers any more.
        self.ranks.clone().for_each(|rank| self.world.lines[rank as usize].activity.acknowledge());
        ring_everybody(self.world);
    }
}

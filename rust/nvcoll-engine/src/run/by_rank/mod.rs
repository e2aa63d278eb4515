//! Running by rank: a worker runs the queues of its ranks and waits on progress words.
//!
//! ```text
//! enter       activity, record, stamp                                   (the stamp rule first)
//! loop        for every queue of my ranks: while its next step need not wait: run it, publish, ring the ranks that wait for it
//!             nothing moved?  pause, yield, at last sleep on the doorbell
//! leave       when all queues are done and the waits of `leave` are over
//! ```
//!
//! Ranks that call for themselves always run so, with one rank per worker. A caller that drives all ranks uses it for staged and pushed
//! programs, with several ranks per worker, which share the doorbell of the first. A worker learns a rank's buffers when it first sees
//! that rank enter. There it compares the two calls, before data move between the two. Every wait ends by progress, by the abort or by
//! the deadline. It also ends by the user's interrupt where one caller drives all ranks, and by the return of a peer's program where
//! ranks call for themselves. A failing rank returns when no peer can still touch its buffers (`run/quiesce.rs`).

mod meeting;
mod waiting;

use std::ops::Range;
use std::sync::OnceLock;

use crate::call::PositionedCall;
use crate::deadline::{Deadline, WaitLimit};
use crate::error::{Error, Result};
use crate::memory::buffers::Buffers;
use crate::memory::world::World;
use crate::program::batch::Pass;
use crate::program::order::Wait;
use crate::program::store_choice::TimedStores;
use crate::program::Workspace;
use crate::run::fault::{Fault, Moment};
use crate::run::quiesce::{ring_everybody, wait_until_quiet};
use crate::run::report::{error_of, missing, place_of_trouble, stopped_words, timed_out_before};
use crate::sync::{Cause, Doorbell};
use meeting::{digest, ID};
use waiting::not_entered;

/// The distance of calls at which a rank updates the progress words of queues that it does not use. A word that
/// stayed 2^31 calls behind would look as if it were ahead. Chosen: half of that.
const REFRESH_CALLS: u32 = 1 << 30;

/// The number of passes for which a worker remembers its peers' buffers. Chosen: more groups than a training step
/// has.
const REMEMBERED: usize = 16;

#[derive(Debug, Clone, Copy)]
struct QueueCursor {
    rank: u32,
    queue: u32,
    /// The tile, counted over all calls of the pass.
    tile: u32,
    /// The call of the tile; `tile_of_call` is the tile's number in it.
    call: u32,
    tile_of_call: u32,
    index: u32,
    /// The number of waits of the next step that are over.
    over: usize,
}

/// The buffers of peers in one pass. They are used only after the peer's record said that it runs this pass again.
#[derive(Debug)]
struct KnownPeers {
    /// The number of the pass of its own ranks; 0 for all single calls.
    id: u64,
    /// The number of each peer's pass, once it was compared.
    peers: Vec<u64>,
    /// The buffers of every rank that was met, for each call of the pass.
    buffers: Vec<Buffers>,
}

impl KnownPeers {
    fn nothing(id: u64, world_size: usize) -> Self {
        Self { id, peers: vec![0; world_size], buffers: Vec::new() }
    }
}

/// A worker and the ranks whose queues it runs. It is reused from call to call.
#[derive(Debug)]
pub(crate) struct RankWorker {
    ranks: Range<u32>,
    /// The number of ranks per worker. The ranks of a worker share the doorbell of the first.
    block: u32,
    /// Whether this is a rank that calls for itself. It must learn its peers' buffers, and a peer's program may
    /// return.
    is_member: bool,
    /// The buffers of peers in this pass; `remembered` has those of earlier passes.
    known: KnownPeers,
    remembered: Vec<KnownPeers>,
    /// The fingerprint of this call, on which all ranks must agree.
    fingerprint: [u64; 3],
    /// One number of it for the line of the stamp.
    digest: u64,
    /// Whether each rank was seen to enter this call.
    met: Vec<bool>,
    /// Whether each rank had completed this call before this worker entered it.
    gone: Vec<bool>,
    cursors: Vec<QueueCursor>,
    workspace: Workspace,
    /// Whether everybody is known to have entered the previous call, by its proof.
    has_seen_all: bool,
    /// What its peers did when its time was up.
    doings: OnceLock<String>,
    /// What a test has asked to happen.
    pub(crate) fault: Option<Box<Fault>>,
    /// Whether an earlier call ended the communicator.
    has_ended_before: bool,
}

impl RankWorker {
    /// Makes the worker of some ranks of a world that one caller drives.
    pub(crate) fn new(world_size: u32, ranks: Range<u32>, block: u32) -> Self {
        let n = world_size as usize;
        Self {
            ranks,
            block,
            is_member: false,
            known: KnownPeers::nothing(0, n),
            remembered: Vec::new(),
            fingerprint: [0; 3],
            digest: 0,
            met: vec![false; n],
            gone: vec![false; n],
            cursors: Vec::new(),
            workspace: Workspace::default(),
            has_seen_all: true,
            doings: OnceLock::new(),
            fault: None,
            has_ended_before: false,
        }
    }

    /// Makes the worker of one rank that calls for itself.
    pub(crate) fn of_member(world_size: u32, rank: u32) -> Self {
        Self { is_member: true, ..Self::new(world_size, rank..rank + 1, 1) }
    }

    /// Returns the first of its ranks.
    pub(crate) fn rank(&self) -> u32 {
        self.ranks.start
    }

    /// Runs call number `number` for the worker's ranks, whose buffers are given for each call of the pass: those of
    /// all ranks if one caller drives them, else those of this member.
    ///
    /// A rank whose buffers every rank can reach may offer to run the call `mapped`, by a program of the same call on the mapped
    /// path. The ranks do so if all offer it.
    ///
    /// # Safety
    /// Every program of the pass is of as many ranks as the world has. The buffers, with their scratch, are as long as the
    /// programs' calls say, and nobody but the workers of this call touches them until `run` returns. The staging of the
    /// world was made if a program uses it.
    pub(crate) unsafe fn run<'a>(
        &mut self,
        world: &World,
        mut pass: Pass<'a>,
        mapped: Option<Pass<'a>>,
        number: u32,
        buffers: &[Buffers],
        patience: &mut WaitLimit<'_>,
    ) -> Result<()> {
        debug_assert!(!pass.order().is_small() || pass.order().is_as_proved(), "an order runs that was not proved");
        self.prepare(world, pass);
        let panicking = EndOnPanic { world, ranks: self.ranks.clone() };
        let mut outcome = self.come_to(world, number, Moment::Before);
        outcome = outcome.and_then(|()| self.enter(world, pass, mapped.is_some(), number, buffers, patience));
        if let (Ok(()), Some(mapped)) = (outcome, mapped) {
            outcome = self.all_are_reachable(world, pass, number, patience).map(|is_mapped| {
                if is_mapped {
                    pass = mapped;
                    self.fit(pass);
                }
            });
        }
        // Peers may store otherwise: the bits are the same.
        let stores = pass.stores().map(TimedStores::begin);
        stores.iter().for_each(|stores| self.workspace.fit(pass.first(), stores.is_streamed));
        // SAFETY: what `work` demands is what this function's caller promised; `prepare` or `fit` fitted workspace and cursors to
        // the pass, `prepare` the known buffers.
        let outcome = outcome.and_then(|()| unsafe { self.work(world, pass, number, patience) });
        stores.into_iter().filter(|_| outcome.is_ok()).for_each(TimedStores::learn);
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
        self.has_seen_all = outcome.is_ok() && pass.is_symmetric();
        outcome.map_err(|cause| {
            wait_until_quiet(world, &self.ranks);
            self.report(world, pass, number, cause, &patience.deadline)
        })
    }

    /// Returns the error of this worker in call `number`.
    #[cold]
    fn report(&self, world: &World, pass: Pass<'_>, number: u32, cause: Cause, deadline: &Deadline) -> Error {
        let own_call = |call: u32, nth: usize| (call == number).then(|| call_in(pass, nth));
        let doings = self.doings.get().map_or("", |doings| doings);
        let late = || {
            if self.has_ended_before {
                return timed_out_before(self.rank());
            }
            let (ranks, words) = missing(world, number, &self.ranks);
            deadline.error(call_in(pass, 0), words + doings + &stopped_words(world, &ranks))
        };
        error_of(world, &self.ranks, cause, own_call, late)
    }

    fn prepare(&mut self, world: &World, pass: Pass<'_>) {
        self.has_ended_before = false;
        self.fit(pass);
        if self.known.id != pass.id() {
            self.recall(pass.id());
        }
        self.known.buffers.resize(world.lines.len() * pass.programs().len(), Buffers::unknown());
        self.met.fill(false);
    }

    /// Fits the workspace to the pass, and begins its queues.
    fn fit(&mut self, pass: Pass<'_>) {
        pass.programs().iter().for_each(|program| self.workspace.fit(program, false));
        self.cursors.clear();
        for rank in self.ranks.clone() {
            let queues = (0..).zip(&pass.order().queues[rank as usize]);
            for (queue, _) in queues.filter(|(_, tasks)| !tasks.is_empty()) {
                self.cursors.push(QueueCursor { rank, queue, tile: 0, call: 0, tile_of_call: 0, index: 0, over: 0 });
            }
        }
    }

    /// Makes what is known of the pass with this number the known one; forgets the oldest if there are too many.
    #[cold]
    fn recall(&mut self, id: u64) {
        let at = self.remembered.iter().position(|known| known.id == id);
        let known = at.map(|at| self.remembered.remove(at)).unwrap_or_else(|| KnownPeers::nothing(id, self.met.len()));
        self.remembered.push(std::mem::replace(&mut self.known, known));
        if self.remembered.len() > REMEMBERED {
            self.remembered.remove(0);
        }
    }

    /// Enters the call; `is_reachable` says that every rank can reach the buffers.
    fn enter(
        &mut self,
        world: &World,
        pass: Pass<'_>,
        is_reachable: bool,
        number: u32,
        buffers: &[Buffers],
        patience: &mut WaitLimit<'_>,
    ) -> std::result::Result<(), Cause> {
        if !self.has_seen_all {
            let before = number.wrapping_sub(1);
            let is_over = |_: &Self| world.lines.iter().all(|lines| lines.stamp.has_entered(before));
            self.wait(world, before, patience, is_over, |_| not_entered(world, before))?;
        }
        self.fingerprint = pass.fingerprint();
        self.digest = digest(self.fingerprint, pass);
        self.see_who_is_gone(world, pass, number);
        let given = buffers.len() / pass.programs().len();
        for rank in self.ranks.clone() {
            let at = if self.is_member { 0 } else { rank as usize };
            let lines = &world.lines[rank as usize];
            lines.activity.begin(number);
            if let Some(cause) = world.abort().cause() {
                self.has_ended_before = true;
                return Err(cause);
            }
            if let Some(cause) = world.first_death() {
                return Err(world.abort().raise(cause));
            }
            let own = buffers.iter().skip(at).step_by(given);
            let record = self.describe(world, pass, rank, is_reachable, number, own.clone());
            lines.record.write(number, &record);
            self.describe_call(world, pass, number, 0);
            if number.is_multiple_of(REFRESH_CALLS) {
                // Nothing of this call is done, and everything of the earlier ones.
                lines.progress.iter().for_each(|progress| progress.publish(number, 0));
            }
            self.know_own(world, pass, rank, number, own);
            self.known.peers[rank as usize] = record[ID];
            // SAFETY: `Verified` says that early tasks read own memory and write own staging, which is known now. Their slot of staging
            // is free: this rank has waited for stamps, or the call before was symmetric (`verify::succession`).
            unsafe { self.run_early_tasks(world, pass, rank, number) };
            lines.stamp.enter(number, self.digest);
        }
        Doorbell::ring_all(
            (0..world.world_size()).step_by(self.block as usize).map(|r| world.lines[r as usize].doorbell()),
        );
        if self.is_member {
            self.meet_early_comers(world, pass, number)?;
        }
        Ok(())
    }

    /// Runs the tasks of a rank that come before its stamp.
    ///
    /// # Safety
    /// What [`RankWorker::run`] demands; the buffers of the rank are known, and the workspace fits the pass.
    unsafe fn run_early_tasks(&mut self, world: &World, pass: Pass<'_>, rank: u32, number: u32) {
        let program = pass.first();
        let slot = pass.slot(number, 0);
        for &task in &pass.order().early[rank as usize] {
            // SAFETY: an early task waits for nothing, says `Verified`; the caller promised the rest.
            unsafe { program.run_task(task, 0, slot, &self.known.buffers[..world.lines.len()], &mut self.workspace) };
        }
    }

    /// Runs the steps of the worker's ranks and leaves.
    ///
    /// # Safety
    /// As [`RankWorker::run`], after [`RankWorker::fit`] for the same pass and [`RankWorker::enter`].
    unsafe fn work(
        &mut self,
        world: &World,
        pass: Pass<'_>,
        number: u32,
        patience: &mut WaitLimit<'_>,
    ) -> std::result::Result<(), Cause> {
        let tiles = pass.tiles();
        self.come_to(world, number, Moment::After(0))?;
        loop {
            // SAFETY: own buffers were noted by `meet` above, those of peers are when their enter is seen.
            let has_moved = unsafe { self.advance(world, pass, tiles, number) }?;
            if self.cursors.is_empty() {
                break;
            }
            match has_moved {
                true => self.go_on(world, patience, || {})?,
                false => self.wait(
                    world,
                    number,
                    patience,
                    |rank_worker| rank_worker.can_move(world, pass, number),
                    |rank_worker| rank_worker.awaited(world, pass, number),
                )?,
            }
        }
        for rank in self.ranks.clone() {
            for wait in &pass.order().leave[rank as usize] {
                let is_over = |wait: &Wait| is_over(world, wait, number, tiles - 1);
                let awaited = || pass.order().leave[rank as usize].iter().filter(|wait| !is_over(wait)).map(Wait::rank);
                let of_run = |_: &Self| awaited().map(|rank| world.ranks()[rank as usize]).collect();
                self.wait(world, number, patience, |_| is_over(wait), of_run)?;
                if let Wait::Enter { rank: peer } = *wait {
                    self.compare_and_meet(world, pass, peer, number, rank)?;
                }
            }
        }
        self.come_to(world, number, Moment::Leave)
    }

    /// Has a fault strike, if a test has asked for one at this moment.
    #[inline]
    fn come_to(&mut self, world: &World, number: u32, moment: Moment) -> std::result::Result<(), Cause> {
        let fails = self.fault.as_mut().is_some_and(|fault| fault.reach(number, moment));
        match fails {
            true => Err(world.abort().raise(Cause::Failed(self.ranks.start))),
            false => Ok(()),
        }
    }

    /// Runs every step that need not wait; says whether there was one.
    ///
    /// # Safety
    /// As [`RankWorker::step`], for the cursors of this worker, but that their waits are over: that is looked at here.
    unsafe fn advance(
        &mut self,
        world: &World,
        pass: Pass<'_>,
        tiles: u32,
        number: u32,
    ) -> std::result::Result<bool, Cause> {
        let mut has_moved = false;
        let mut at = 0;
        while at < self.cursors.len() {
            let mut cursor = self.cursors[at];
            while cursor.tile < tiles && self.is_ready(world, pass, &mut cursor, number)? {
                // SAFETY: the step's waits are over, says `is_ready`, which met every rank whose enter is among them.
                unsafe { self.step(world, pass, tiles, &mut cursor, number) };
                has_moved = true;
                self.come_to(world, number, Moment::After(1))?;
                if let Some(cause) = world.abort().cause() {
                    return Err(cause);
                }
            }
            if cursor.tile == tiles {
                self.cursors.swap_remove(at);
            } else {
                self.cursors[at] = cursor;
                at += 1;
            }
        }
        Ok(has_moved)
    }

    fn is_ready(
        &mut self,
        world: &World,
        pass: Pass<'_>,
        cursor: &mut QueueCursor,
        number: u32,
    ) -> std::result::Result<bool, Cause> {
        let order = pass.order();
        let task = order.queues[cursor.rank as usize][cursor.queue as usize][cursor.index as usize];
        for wait in &order.links[task as usize].waits[cursor.over..] {
            if !is_over(world, wait, number, cursor.tile) {
                return Ok(false);
            }
            if let Wait::Enter { rank } = *wait {
                self.compare_and_meet(world, pass, rank, number, cursor.rank)?;
            }
            cursor.over += 1;
        }
        Ok(true)
    }

    fn can_move(&self, world: &World, pass: Pass<'_>, number: u32) -> bool {
        let order = pass.order();
        self.cursors.iter().any(|cursor| {
            let task = order.queues[cursor.rank as usize][cursor.queue as usize][cursor.index as usize];
            let waits = &order.links[task as usize].waits[cursor.over..];
            waits.iter().all(|wait| is_over(world, wait, number, cursor.tile))
        })
    }

    /// Runs the step at a cursor, publishes it, wakes the ranks that wait for it, and moves the cursor on.
    ///
    /// # Safety
    /// What [`RankWorker::run`] demands; the step's waits are over; and the worker has met its own ranks and every peer whose
    /// enter the step waits for, directly or through earlier steps, so that their buffers are known.
    unsafe fn step(&mut self, world: &World, pass: Pass<'_>, tiles: u32, cursor: &mut QueueCursor, number: u32) {
        let (program, order) = (pass.first(), pass.order());
        let slot = pass.slot(number, cursor.tile);
        let queue = &order.queues[cursor.rank as usize][cursor.queue as usize];
        let task = queue[cursor.index as usize];
        let ranks = world.lines.len();
        let buffers_of = |call: u32| &self.known.buffers[call as usize * ranks..][..ranks];
        // SAFETY: the step's waits are over, so `Verified` says that no other step touches what this one writes; every rank
        // that it has contact with was met, which the proof demands too (a step waits for the enter of whom it touches).
        // `prepare` fitted the workspace. Pieces of a chunk and tile share no byte of its home: `Coalesced` lays them apart.
        unsafe {
            if let Some(laid) = pass.coalesced() {
                for chunk in program.tasks[task as usize].chunks.clone() {
                    for piece in laid.pieces(cursor.tile, chunk) {
                        let program = &pass.programs()[piece.call as usize];
                        let buffers = buffers_of(piece.call);
                        program.run_piece(task, chunk, piece, slot, buffers, &mut self.workspace);
                    }
                }
            } else {
                let program = &pass.programs()[cursor.call as usize];
                program.run_task(task, cursor.tile_of_call, slot, buffers_of(cursor.call), &mut self.workspace);
            }
        }
        let done = cursor.tile * queue.len() as u32 + cursor.index + 1;
        world.lines[cursor.rank as usize].progress[cursor.queue as usize].publish(number, done);
        let link = &order.links[task as usize];
        let leavers = if cursor.tile + 1 == tiles { &link.leavers[..] } else { &[] };
        let others = link.dependents.iter().chain(leavers).filter(|rank| !self.ranks.contains(rank));
        if others.clone().next().is_some() {
            Doorbell::ring_all(others.map(|rank| world.lines[(rank / self.block * self.block) as usize].doorbell()));
        }
        (cursor.index, cursor.over) = (cursor.index + 1, 0);
        if cursor.index as usize == queue.len() {
            (cursor.tile, cursor.tile_of_call, cursor.index) = (cursor.tile + 1, cursor.tile_of_call + 1, 0);
            // Coalesced calls do not use these two.
            if pass.programs().get(cursor.call as usize).is_some_and(|call| call.tiles == cursor.tile_of_call) {
                (cursor.call, cursor.tile_of_call) = (cursor.call + 1, 0);
            }
        }
    }
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

fn is_over(world: &World, wait: &Wait, number: u32, tile: u32) -> bool {
    match *wait {
        Wait::Enter { rank } => world.lines[rank as usize].stamp.has_entered(number),
        Wait::Steps { rank, queue, length, done, lag } => {
            tile < lag || {
                let progress = &world.lines[rank as usize].progress[queue as usize];
                progress.has_reached(number, (tile - lag) * length + done)
            }
        }
    }
}

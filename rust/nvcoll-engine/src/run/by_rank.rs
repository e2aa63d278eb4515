//! Sharing a program out by rank: a worker runs the queues of its ranks, waiting on progress words.
//!
//! ```text
//! enter       activity, record, stamp                                   (the stamp rule first)
//! loop        for every queue of my ranks: while its next step need not wait: run it, publish, ring who waits for it
//!             nothing moved?  pause, give way, at last sleep on the doorbell
//! leave       when all queues are through and what `leave` names has happened
//! ```
//!
//! It is the only way for SPMD ranks, where a worker has one rank; and it serves a caller that drives all ranks, where a
//! worker has several and shows up at their first rank's doorbell. A rank's buffers become known to a worker when it first
//! sees that rank enter: there it compares the two calls, before a byte moves. Every wait ends by progress, abort or
//! deadline, by the user's interrupt where the caller drives all ranks, and in SPMD also when the program of a peer has
//! returned; a failing rank returns when no peer can still touch its buffers (`failing`).
//!
//! **SPMD ranks check each other's buffers.** After a rank has stamped its line and rung, it meets every peer that has
//! entered already. Of two ranks at least one finds the other there, because each stamps, fences and then looks; so every
//! pair is compared, though no rank waits for it, and a schedule need not bring all pairs together. Cost: one load per peer,
//! and for those that came earlier the record, which most algorithms need anyway. Where a rank may be through before another
//! enters, as in a broadcast, it has its memory back, and the other may pass it anew: ranks that were through before this one
//! stamped are not compared with it.

use std::ops::Range;
use std::time::Instant;

use crate::call::PositionedCall;
use crate::error::Result;
use crate::memory::buffers::Buffers;
use crate::memory::footprint::{arrays_overlap, overlap, packed_arrays};
use crate::memory::world::World;
use crate::program::batch::Pass;
use crate::program::{Slot, Wait, Workspace};
use crate::run::deadline::WaitLimit;
use crate::run::quiesce::{quiesce_and_report, ring_everybody};
use crate::sync::atomic::{give_way, pause};
use crate::sync::backoff::{Backoff, Next};
use crate::sync::record::{CALLS, COPIES, PLACE};
use crate::sync::{Cause, Doorbell, Pair, Record};

/// Pauses before giving way. Measured: where ranks exceed processors, or share one for a while, 100 of them (5 us) cost small
/// calls a tenth to a half of their time; fewer than 10 gain nothing more.
pub(crate) const PAUSES: u32 = 10;

/// Turns given away before sleeping, unless one comes back late. Chosen: a wake-up costs tens of microseconds, a turn less than
/// one.
pub(crate) const TURNS: u32 = 100;

/// So often a rank brings the progress words of queues that it does not use up to date: a word that was left 2^31 calls
/// behind would look as if it were ahead. Chosen: half of that.
const REFRESH_CALLS: u32 = 1 << 30;

/// The word of a record that says which pass of which batch it is, in the place of addresses.
const ID: usize = 3;

/// Of so many passes a worker remembers what its peers brought. Chosen: more groups than a training step has.
const REMEMBERED: usize = 16;

#[derive(Debug, Clone, Copy)]
struct QueueCursor {
    rank: u32,
    queue: u32,
    /// Of all tiles of the pass.
    tile: u32,
    /// The call that the tile is of, and how many tiles of it came before.
    call: u32,
    tile_of_call: u32,
    index: u32,
    /// Waits of the next step that are known to be over.
    over: usize,
}

/// What a worker knows of a pass. Memory of a peer is looked at only after its record said that it is in this pass again.
#[derive(Debug)]
struct KnownPeers {
    /// The number of the pass of its own ranks; 0 for all single calls.
    id: u64,
    /// The number of each peer's, after it was compared.
    peers: Vec<u64>,
    /// For each call of the pass, of every rank that was met.
    buffers: Vec<Buffers>,
}

impl KnownPeers {
    fn nothing(id: u64, world_size: usize) -> Self {
        Self { id, peers: vec![0; world_size], buffers: Vec::new() }
    }
}

/// A worker and the ranks whose queues it runs. Reused from call to call.
#[derive(Debug)]
pub(crate) struct RankWorker {
    ranks: Range<u32>,
    /// Ranks per worker of this world: the doorbell of a rank is that of its worker's first.
    block: u32,
    /// Whether this is a rank that calls for itself: it knows no peer's buffers, and a peer may return from its program.
    is_member: bool,
    /// What is known of the pass, and of those before it.
    known: KnownPeers,
    remembered: Vec<KnownPeers>,
    /// What all ranks must agree on in this call.
    fingerprint: [u64; 3],
    /// Whose enter has been seen in this call.
    met: Vec<bool>,
    /// Who was through with this call before this worker entered it.
    gone: Vec<bool>,
    cursors: Vec<QueueCursor>,
    workspace: Workspace,
    /// Whether everybody has entered the previous call, as its proof says.
    has_seen_all: bool,
}

impl RankWorker {
    /// Makes the rank_worker of some ranks of a world that one caller drives.
    pub(crate) fn new(world_size: u32, ranks: Range<u32>, block: u32) -> Self {
        let n = world_size as usize;
        Self {
            ranks,
            block,
            is_member: false,
            known: KnownPeers::nothing(0, n),
            remembered: Vec::new(),
            fingerprint: [0; 3],
            met: vec![false; n],
            gone: vec![false; n],
            cursors: Vec::new(),
            workspace: Workspace::default(),
            has_seen_all: true,
        }
    }

    /// Makes the worker of one rank that calls for itself.
    pub(crate) fn of_member(world_size: u32, rank: u32) -> Self {
        Self { is_member: true, ..Self::new(world_size, rank..rank + 1, 1) }
    }

    /// Runs call number `number` for the worker's ranks, whose buffers are given for each call of the pass: those of
    /// all ranks if one caller drives them, else those of this member.
    ///
    /// # Safety
    /// Every program of the pass is of as many ranks as the world has. The buffers, with their scratch, are as long as the
    /// programs' calls say, and nobody but the workers of this call touches them until `run` returns. The staging of the
    /// world was made if a program uses it.
    pub(crate) unsafe fn run(
        &mut self,
        world: &World,
        pass: Pass<'_>,
        number: u32,
        buffers: &[Buffers],
        patience: &mut WaitLimit<'_>,
    ) -> Result<()> {
        self.prepare(world, pass);
        let panicking = EndOnPanic { world, ranks: self.ranks.clone() };
        // SAFETY: what `enter_and_work` demands is what this function's caller promised; `prepare` fitted workspace, cursors
        // and known buffers to the pass.
        let outcome = unsafe { self.enter_and_work(world, pass, number, buffers, patience) };
        std::mem::forget(panicking);
        if self.is_member && outcome.is_err() {
            let called = |nth: usize| PositionedCall {
                call: pass.programs()[nth].call().clone().into(),
                place: pass.place(nth),
            };
            let called = (0..pass.programs().len()).map(called).collect();
            // The first failure stays: later calls of an aborted world never begin.
            let _ = world.lines[self.ranks.start as usize].failed_in.set((number, called));
        }
        for rank in self.ranks.clone() {
            let activity = &world.lines[rank as usize].activity;
            if outcome.is_ok() {
                activity.finish()
            } else {
                activity.acknowledge()
            }
        }
        self.has_seen_all = outcome.is_ok() && pass.first().verified().is_symmetric();
        outcome.map_err(|cause| quiesce_and_report(world, pass, number, &self.ranks, cause, &patience.deadline))
    }

    fn prepare(&mut self, world: &World, pass: Pass<'_>) {
        pass.programs().iter().for_each(|program| self.workspace.fit(program, false));
        if self.known.id != pass.id() {
            self.recall(pass.id());
        }
        self.known.buffers.resize(world.lines.len() * pass.programs().len(), Buffers::unknown());
        self.met.fill(false);
        self.cursors.clear();
        for rank in self.ranks.clone() {
            for queue in 0..pass.first().queues[rank as usize].len() as u32 {
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

    /// Enters the call, runs the steps of the worker's ranks and leaves.
    ///
    /// # Safety
    /// As [`RankWorker::run`], after [`RankWorker::prepare`] for the same pass.
    unsafe fn enter_and_work(
        &mut self,
        world: &World,
        pass: Pass<'_>,
        number: u32,
        buffers: &[Buffers],
        patience: &mut WaitLimit<'_>,
    ) -> std::result::Result<(), Cause> {
        if !self.has_seen_all {
            let before = number.wrapping_sub(1);
            self.wait(world, before, patience, |_| world.lines.iter().all(|lines| lines.stamp.has_entered(before)))?;
        }
        self.fingerprint = pass.fingerprint();
        self.see_who_is_gone(world, pass, number);
        let given = buffers.len() / pass.programs().len();
        for rank in self.ranks.clone() {
            let at = if self.is_member { 0 } else { rank as usize };
            let lines = &world.lines[rank as usize];
            lines.activity.begin();
            if let Some(cause) = world.abort.cause() {
                return Err(cause);
            }
            let record = match (pass.footprint(), pass.split_key()) {
                (None, None) => {
                    let mut record = record_of(self.fingerprint, &buffers[at]);
                    if !pass.originals().is_empty() {
                        lines.originals.write(number, pass.originals());
                        record[CALLS] |= COPIES;
                    }
                    record
                }
                (None, Some(key)) => {
                    let [fingerprint, small, count] = self.fingerprint;
                    let [color, key] = key.words();
                    [fingerprint, small, count, color, key, 0, 0, 1]
                }
                (Some(footprint), _) => {
                    let own = buffers.iter().skip(at).step_by(given);
                    lines.batch.write(number, pass.id(), footprint, records_of(pass, own));
                    record_of_pass(self.fingerprint, pass)
                }
            };
            lines.record.write(number, &record);
            if number.is_multiple_of(REFRESH_CALLS) {
                // Nothing of this call is done, and everything of the earlier ones.
                lines.progress.iter().for_each(|progress| progress.publish(number, 0));
            }
            lines.stamp.enter(number);
            self.meet(world, pass, rank, number, &record);
            self.known.peers[rank as usize] = record[ID];
        }
        Doorbell::ring_all(
            (0..world.world_size()).step_by(self.block as usize).map(|r| &world.lines[r as usize].doorbell),
        );
        if self.is_member {
            self.meet_early_comers(world, pass, number)?;
        }
        let tiles = pass.tiles();
        loop {
            // SAFETY: own buffers were noted by `meet` above, those of peers are when their enter is seen.
            let has_moved = unsafe { self.advance(world, pass, tiles, number) }?;
            if self.cursors.is_empty() {
                break;
            }
            self.go_on(world, patience)?;
            if !has_moved {
                self.wait(world, number, patience, |rank_worker| rank_worker.can_move(world, pass, number))?;
            }
        }
        for rank in self.ranks.clone() {
            for wait in &pass.first().leave[rank as usize] {
                self.wait(world, number, patience, |_| is_over(world, wait, number, tiles - 1))?;
                if let Wait::Enter { rank: peer } = *wait {
                    self.compare_and_meet(world, pass, peer, number, rank)?;
                }
            }
        }
        Ok(())
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
            let queue = &pass.first().queues[cursor.rank as usize][cursor.queue as usize];
            while cursor.tile < tiles && self.is_ready(world, pass, &mut cursor, number)? {
                // SAFETY: the step's waits are over, says `is_ready`, which met every rank whose enter is among them.
                unsafe { self.step(world, pass, tiles, &mut cursor, number) };
                has_moved = true;
                if let Some(cause) = world.abort.cause() {
                    return Err(cause);
                }
            }
            if cursor.tile == tiles || queue.is_empty() {
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
        let program = pass.first();
        let task = program.queues[cursor.rank as usize][cursor.queue as usize][cursor.index as usize];
        for wait in &program.tasks[task as usize].waits[cursor.over..] {
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
        let program = pass.first();
        self.cursors.iter().any(|cursor| {
            let task = program.queues[cursor.rank as usize][cursor.queue as usize][cursor.index as usize];
            let waits = &program.tasks[task as usize].waits[cursor.over..];
            waits.iter().all(|wait| is_over(world, wait, number, cursor.tile))
        })
    }

    /// Runs the step at a cursor, publishes it, wakes who waits for it, and moves the cursor on.
    ///
    /// # Safety
    /// What [`RankWorker::run`] demands; the step's waits are over; and the worker has met its own ranks and every peer whose
    /// enter the step waits for, directly or through earlier steps, so that their buffers are known.
    unsafe fn step(&mut self, world: &World, pass: Pass<'_>, tiles: u32, cursor: &mut QueueCursor, number: u32) {
        let program = pass.first();
        let slot = Slot::of(number, cursor.tile, program.slots);
        let queue = &program.queues[cursor.rank as usize][cursor.queue as usize];
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
        let task = &program.tasks[task as usize];
        let leavers = if cursor.tile + 1 == tiles { &task.leavers[..] } else { &[] };
        let others = task.dependents.iter().chain(leavers).filter(|rank| !self.ranks.contains(rank));
        if others.clone().next().is_some() {
            Doorbell::ring_all(others.map(|rank| &world.lines[(rank / self.block * self.block) as usize].doorbell));
        }
        (cursor.index, cursor.over) = (cursor.index + 1, 0);
        if cursor.index as usize == queue.len() {
            (cursor.tile, cursor.tile_of_call, cursor.index) = (cursor.tile + 1, cursor.tile_of_call + 1, 0);
            // Nobody looks at these two where calls are laid end to end.
            if pass.programs().get(cursor.call as usize).is_some_and(|call| call.tiles == cursor.tile_of_call) {
                (cursor.call, cursor.tile_of_call) = (cursor.call + 1, 0);
            }
        }
    }

    /// Notes which members are through with a call that this one has yet to enter.
    fn see_who_is_gone(&mut self, world: &World, pass: Pass<'_>, number: u32) {
        if !self.is_member || pass.first().verified().is_symmetric() {
            self.gone.fill(false);
            return;
        }
        // Who has entered the call and is quiet has finished it: it begins the next when this rank has entered this one.
        for (gone, lines) in self.gone.iter_mut().zip(&world.lines) {
            *gone = lines.stamp.has_entered(number) && lines.activity.is_quiet();
        }
    }

    /// Meets every rank that has entered the call before this one looked.
    fn meet_early_comers(&mut self, world: &World, pass: Pass<'_>, number: u32) -> std::result::Result<(), Cause> {
        let own = self.ranks.start;
        for rank in 0..world.world_size() {
            // The fence of the doorbells lies between this worker's stamp and this look.
            if world.lines[rank as usize].stamp.has_entered(number) {
                self.compare_and_meet(world, pass, rank, number, own)?;
            }
        }
        Ok(())
    }

    /// Compares the call of a rank that has entered with that of this worker's rank `own`, and learns its buffers.
    fn compare_and_meet(
        &mut self,
        world: &World,
        pass: Pass<'_>,
        rank: u32,
        number: u32,
        own: u32,
    ) -> std::result::Result<(), Cause> {
        if self.met[rank as usize] {
            return Ok(());
        }
        let record = world.lines[rank as usize].record.read(number);
        // Whichever of the two finds the other, they are named in one order.
        let pair = Pair { ranks: [own.min(rank), own.max(rank)], call: number };
        if record[..3] != self.fingerprint || record[CALLS] & !COPIES != calls_word(pass) {
            return Err(world.abort.raise(Cause::Mismatch(pair)));
        }
        if pass.id() != 0 && self.known.peers[rank as usize] == record[ID] {
            self.met[rank as usize] = true;
            return Ok(());
        }
        self.meet(world, pass, rank, number, &record);
        let is_gone = self.gone[rank as usize];
        // A rank that works on copies writes them back after it was through: it is compared even so.
        let has_memory_back = |world: &World| is_gone && !self.has_copies(world, pass, rank, number, &record);
        if self.is_member && !has_memory_back(world) && self.overlaps(world, pass, own, rank, number, &record) {
            return Err(world.abort.raise(Cause::Overlap(pair)));
        }
        // Who was gone is compared when it is met again.
        self.known.peers[rank as usize] = if is_gone { 0 } else { record[ID] };
        Ok(())
    }

    /// Says whether what a peer brought overlaps what this worker's rank `own` brought.
    fn overlaps(&self, world: &World, pass: Pass<'_>, own: u32, rank: u32, number: u32, record: &Record) -> bool {
        match pass.footprint() {
            None if pass.originals().is_empty() && record[CALLS] & COPIES == 0 => {
                overlap(&pass.first().user_bytes, &self.known.buffers, own, rank)
            }
            None => self.originals_overlap(world, pass, own, rank, number, record),
            Some(footprint) => {
                world.lines[rank as usize].batch.read(number, |entry| entry.footprint.overlaps(footprint))
            }
        }
    }

    /// Says whether what a peer brought to a single call overlaps what rank `own` brought, if one of the two works on copies.
    #[cold]
    fn originals_overlap(
        &self,
        world: &World,
        pass: Pass<'_>,
        own: u32,
        rank: u32,
        number: u32,
        record: &Record,
    ) -> bool {
        if own == rank {
            return false;
        }
        let packed =
            |rank: u32| packed_arrays(pass.first().user_bytes[rank as usize], &self.known.buffers[rank as usize]);
        let own_packed = packed(own);
        let own = if pass.originals().is_empty() { &own_packed[..] } else { pass.originals() };
        match record[CALLS] & COPIES {
            0 => arrays_overlap(own, &packed(rank)),
            _ => world.lines[rank as usize].originals.read(number, |others| arrays_overlap(own, others)),
        }
    }

    /// Says whether a peer works on copies of its arrays.
    fn has_copies(&self, world: &World, pass: Pass<'_>, rank: u32, number: u32, record: &Record) -> bool {
        match pass.footprint() {
            None => record[CALLS] & COPIES != 0,
            Some(_) => world.lines[rank as usize].batch.read(number, |entry| entry.footprint.has_originals()),
        }
    }

    fn meet(&mut self, world: &World, pass: Pass<'_>, rank: u32, number: u32, record: &Record) {
        if pass.split_key().is_some() {
            self.met[rank as usize] = true; // a split has no buffers
            return;
        }
        let staging = match pass.first().staging_bytes() {
            0 => std::ptr::null_mut(),
            _ => world.staging(rank),
        };
        let places = self.known.buffers.iter_mut().skip(rank as usize).step_by(world.lines.len());
        if pass.footprint().is_none() {
            places.zip([record]).for_each(|(place, record)| *place = buffers_in(record, staging));
        } else {
            world.lines[rank as usize].batch.read(number, |entry| {
                places.zip(&entry.records).for_each(|(place, record)| *place = buffers_in(record, staging));
            });
        }
        self.met[rank as usize] = true;
    }

    /// Waits until `is_over`, patiently: pauses, turns, sleep. Needs peers to come as far as `call`.
    fn wait(
        &self,
        world: &World,
        call: u32,
        patience: &mut WaitLimit<'_>,
        is_over: impl Fn(&Self) -> bool,
    ) -> std::result::Result<(), Cause> {
        let mut backoff = Backoff::new(PAUSES, TURNS);
        while !is_over(self) {
            if let Some(cause) = world.abort.cause() {
                return Err(cause);
            }
            let next = backoff.next(Instant::now);
            if next == Next::Pause {
                pause();
                continue;
            }
            self.go_on(world, patience)?;
            if next == Next::GiveWay {
                give_way();
                continue;
            }
            if let Some(rank) = self.who_left(world, call) {
                return Err(world.abort.raise(Cause::Returned(Pair { ranks: [rank, self.ranks.start], call })));
            }
            let doorbell = &world.lines[self.ranks.start as usize].doorbell;
            let has_news = || is_over(self) || world.abort.cause().is_some() || self.who_left(world, call).is_some();
            doorbell.sleep(has_news, patience.deadline.at());
        }
        Ok(())
    }

    /// Raises the abort if this worker has waited long enough, or if its caller was interrupted.
    fn go_on(&self, world: &World, patience: &mut WaitLimit<'_>) -> std::result::Result<(), Cause> {
        if patience.deadline.has_passed() {
            return Err(world.abort.raise(Cause::TimedOut(self.ranks.start)));
        }
        if (patience.is_interrupted)() {
            return Err(world.abort.raise(Cause::Interrupted));
        }
        Ok(())
    }

    /// Finds a peer whose program has returned before it made `call`.
    fn who_left(&self, world: &World, call: u32) -> Option<u32> {
        let has_left = |rank: &u32| world.lines[*rank as usize].departure.is_before(call);
        (0..world.world_size()).filter(|_| self.is_member).find(has_left)
    }
}

/// Ends the calls of the world if the worker panics: its peers would wait for it, and whoever waits for them too.
struct EndOnPanic<'a> {
    world: &'a World,
    ranks: Range<u32>,
}

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        self.world.abort.raise(Cause::Failed(self.ranks.start));
        // The worker has left its steps: it touches nobody's buffers any more.
        self.ranks.clone().for_each(|rank| self.world.lines[rank as usize].activity.acknowledge());
        ring_everybody(self.world);
    }
}

fn record_of([fingerprint, small, count]: [u64; 3], own: &Buffers) -> Record {
    let [input, output, scratch] = [own.input, own.output, own.scratch].map(|p| p as usize as u64);
    [fingerprint, small, count, input, output, scratch, own.scalar.to_bits(), 1]
}

/// Returns the record of a pass of a batch.
fn record_of_pass([fingerprint, small, count]: [u64; 3], pass: Pass<'_>) -> Record {
    let mut record = [fingerprint, small, count, 0, 0, 0, 0, 0];
    (record[ID], record[CALLS]) = (pass.id(), calls_word(pass));
    record
}

/// Returns the records of the calls of a pass, given the rank's own buffers in each.
fn records_of<'a, I: Iterator<Item = &'a Buffers>>(
    pass: Pass<'a>,
    own: I,
) -> impl Iterator<Item = Record> + use<'a, I> {
    pass.programs().iter().zip(own).enumerate().map(move |(nth, (program, own))| {
        let (place, of) = pass.place(nth);
        let mut record = record_of(program.fingerprint, own);
        record[PLACE] = place as u64 | (of as u64) << 32;
        record
    })
}

fn calls_word(pass: Pass<'_>) -> u64 {
    match pass.place(0) {
        (_, 1) => 1,
        (_, of) => pass.programs().len() as u64 | (of as u64) << 32,
    }
}

fn buffers_in(record: &Record, staging: *mut u8) -> Buffers {
    let [input, output, scratch] = [record[3], record[4], record[5]].map(|address| address as usize as *mut u8);
    Buffers { input, output, scratch, staging, scalar: f64::from_bits(record[6]) }
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

//! The worker of some ranks: it runs every step of their queues that need not wait.

use std::ops::Range;

use crate::deadline::Deadline;
use crate::memory::buffers::Buffers;
use crate::memory::world::World;
use crate::program::batch::Pass;
use crate::program::order::Wait;
use crate::program::store_choice::Streaming;
use crate::program::{StagingRing, Workspace};
use crate::run::fault::{Fault, Moment};
use crate::run::wait_graph::WaitGraph;
use crate::sync::{Cause, Doorbell};

/// The index of the record word that identifies the pass of a batch; single calls have an address there.
pub(super) const ID: usize = 3;

/// The distance of calls at which a rank updates the progress words of queues that it does not use. A word that
/// stayed 2^31 calls behind would look as if it were ahead. Chosen: half of that.
const REFRESH_CALLS: u32 = 1 << 30;

/// The number of passes for which a worker remembers its peers' buffers. Chosen: more groups than a training step
/// has.
const REMEMBERED: usize = 16;

#[derive(Debug, Clone, Copy)]
pub(super) struct QueueCursor {
    pub(super) rank: u32,
    pub(super) queue: u32,
    /// The tile, counted over all calls of the pass.
    pub(super) tile: u32,
    /// The call of the tile; `tile_of_call` is the tile's number in it.
    pub(super) call: u32,
    pub(super) tile_of_call: u32,
    pub(super) index: u32,
    /// The number of waits of the next step that are over.
    pub(super) over: usize,
}

/// The buffers of peers in one pass. They are used only if the peer's record says that it runs this pass again.
#[derive(Debug)]
pub(super) struct KnownPeers {
    /// The number of the pass of its own ranks; 0 for all single calls.
    pub(super) id: u64,
    /// The number of each peer's pass, once it was compared.
    pub(super) peers: Vec<u64>,
    /// The buffers of every rank that was met, for each call of the pass.
    pub(super) buffers: Vec<Buffers>,
}

impl KnownPeers {
    fn nothing(id: u64, world_size: usize) -> Self {
        Self { id, peers: vec![0; world_size], buffers: Vec::new() }
    }
}

/// A worker and the ranks whose queues it runs. It is reused from call to call.
#[derive(Debug)]
pub(crate) struct RankWorker {
    pub(super) ranks: Range<u32>,
    /// The number of ranks per worker. The ranks of a worker share the doorbell of the first.
    pub(super) block: u32,
    /// Whether this is a rank that calls for itself. It must learn its peers' buffers, and a peer's program may
    /// return.
    pub(super) is_member: bool,
    /// The buffers of peers in this pass; `remembered` has the buffers of earlier passes.
    pub(super) known: KnownPeers,
    pub(super) remembered: Vec<KnownPeers>,
    /// The fingerprint of this call, on which all ranks must agree.
    pub(super) fingerprint: [u64; 3],
    /// One number of it for the line of the stamp.
    pub(super) digest: u64,
    /// Whether each rank was seen to enter this call.
    pub(super) met: Vec<bool>,
    /// Whether each rank had completed this call before this worker entered it.
    pub(super) gone: Vec<bool>,
    pub(super) cursors: Vec<QueueCursor>,
    pub(super) workspace: Workspace,
    /// Where this call stages.
    ring: StagingRing,
    /// Whether everybody is known to have entered the previous call, by its proof.
    pub(super) has_seen_all: bool,
    /// What its peers did when its time was up.
    pub(super) wait_graph: WaitGraph,
    /// What a test has asked to happen.
    pub(crate) fault: Option<Box<Fault>>,
    /// Whether an earlier call ended the communicator.
    pub(super) has_ended_before: bool,
    /// That of this call.
    pub(super) deadline: Deadline,
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
            ring: StagingRing::default(),
            has_seen_all: true,
            wait_graph: WaitGraph::default(),
            fault: None,
            has_ended_before: false,
            deadline: Deadline::default(),
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

    /// Prepares call `number`, of the pass.
    pub(super) fn prepare(&mut self, world: &World, pass: Pass<'_>, number: u32) {
        self.has_ended_before = false;
        self.wait_graph = WaitGraph::default();
        self.fit(pass);
        self.ring = StagingRing::of(pass, number, world.staging_bytes());
        if self.known.id != pass.id() {
            self.recall(pass.id());
        }
        self.known.buffers.resize(world.lines.len() * pass.programs().len(), Buffers::unknown());
        self.met.fill(false);
    }

    /// Fits the workspace to the pass, and begins its queues.
    pub(super) fn fit(&mut self, pass: Pass<'_>) {
        pass.programs().iter().for_each(|program| self.workspace.fit(program, Streaming::Nothing));
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

    /// Says whether all ranks are known to have entered the call before this one, as the stamp rule demands.
    #[inline]
    pub(super) fn may_enter(&self, world: &World, number: u32) -> bool {
        self.has_seen_all || world.lines.iter().all(|lines| lines.stamp.has_entered(number.wrapping_sub(1)))
    }

    /// Enters the call, once it may; `is_reachable` says that every rank can reach the buffers.
    pub(super) fn enter(
        &mut self,
        world: &World,
        pass: Pass<'_>,
        is_reachable: bool,
        number: u32,
        buffers: &[Buffers],
    ) -> Result<(), Cause> {
        self.note_call(pass);
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
            // SAFETY: `Verified` says that early tasks touch own memory alone, which is known now. Their slot of staging is
            // free: this rank has waited for stamps, or the call before was symmetric (successive calls, in `verify`).
            unsafe { self.run_early_tasks(world, pass, rank) };
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
    unsafe fn run_early_tasks(&mut self, world: &World, pass: Pass<'_>, rank: u32) {
        let (program, slot) = (pass.first(), self.ring.slot(0));
        for &task in &pass.order().early[rank as usize] {
            // SAFETY: an early task waits for nothing, says `Verified`; the caller promised the rest.
            unsafe { program.run_task(task, 0, slot, &self.known.buffers[..world.lines.len()], &mut self.workspace) };
        }
    }

    /// Has a fault strike, if a test has asked for one at this moment.
    #[inline]
    pub(super) fn strike_at(&mut self, world: &World, number: u32, moment: Moment) -> Result<(), Cause> {
        let fails = self.fault.as_mut().is_some_and(|fault| fault.reach(number, moment));
        match fails {
            true => Err(world.abort().raise(Cause::Failed(self.ranks.start))),
            false => Ok(()),
        }
    }

    /// Runs every step that need not wait; says whether there was one. All steps are run when no cursor is left.
    ///
    /// # Safety
    /// As [`RankWorker::step`], for the cursors of this worker, but that their waits are over: that is looked at here.
    pub(super) unsafe fn run_ready_steps(
        &mut self,
        world: &World,
        pass: Pass<'_>,
        tiles: u32,
        number: u32,
    ) -> Result<bool, Cause> {
        let mut has_moved = false;
        let mut at = 0;
        while at < self.cursors.len() {
            let mut cursor = self.cursors[at];
            while cursor.tile < tiles && self.is_ready(world, pass, &mut cursor, number)? {
                // SAFETY: the step's waits are over, says `is_ready`, which met every rank whose enter is among them.
                unsafe { self.step(world, pass, tiles, &mut cursor, number) };
                has_moved = true;
                self.strike_at(world, number, Moment::After(1))?;
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
    ) -> Result<bool, Cause> {
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

    /// Runs the step at a cursor, publishes it, wakes the ranks that wait for it, and moves the cursor on.
    ///
    /// # Safety
    /// What [`RankWorker::run`] demands; the step's waits are over; and the worker has met its own ranks and every peer whose
    /// enter the step waits for, directly or through earlier steps, so that their buffers are known.
    unsafe fn step(&mut self, world: &World, pass: Pass<'_>, tiles: u32, cursor: &mut QueueCursor, number: u32) {
        let (program, order) = (pass.first(), pass.order());
        let slot = self.ring.slot(cursor.tile);
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

/// Says whether a wait of a step is over.
pub(super) fn is_over(world: &World, wait: &Wait, number: u32, tile: u32) -> bool {
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

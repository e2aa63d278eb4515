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
//! deadline; a failing rank returns when no peer can still touch its buffers.

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::call::Call;
use crate::error::{Error, Result};
use crate::program::{Program, Wait, Workspace, BASES};
use crate::sync::atomic::{give_way, pause};
use crate::sync::{Cause, Doorbell, Record};
use crate::world::World;

/// Pauses before giving way. Cited: 20 to 200 are best when ranks exceed CPUs; more costs 3 to 20 times.
const PAUSES: u32 = 100;

/// Turns given away before sleeping. Chosen: a wake-up costs tens of microseconds, a turn less than one.
const TURNS: u32 = 50;

/// The buffers and the scalar that one rank brings to a call.
#[derive(Debug, Clone, Copy)]
pub struct Buffers {
    /// Where the input begins.
    pub input: *mut u8,
    /// Where the output begins: the same in place.
    pub output: *mut u8,
    /// Where scratch begins.
    pub scratch: *mut u8,
    /// The rank's scalar in premul_sum, else 1.
    pub scalar: f64,
}

/// When to give up.
#[derive(Debug, Clone, Copy, Default)]
pub struct Deadline {
    at: Option<Instant>,
    seconds: f64,
}

impl Deadline {
    /// A deadline `seconds` from now; `None` is never.
    pub fn after(seconds: Option<f64>) -> Self {
        let at = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()).and_then(|d| Instant::now().checked_add(d));
        Self { at, seconds: seconds.unwrap_or(f64::INFINITY) }
    }

    pub(crate) fn has_passed(&self) -> bool {
        self.at.is_some_and(|at| Instant::now() >= at)
    }

    pub(crate) fn error(&self, what: Call, missing: String) -> Error {
        Error::Timeout { what, seconds: self.seconds, missing }
    }
}

#[derive(Debug, Clone, Copy)]
struct Cursor {
    rank: u32,
    queue: u32,
    tile: u32,
    index: u32,
    /// Waits of the next step that are known to be over.
    over: usize,
}

/// A worker and the ranks whose queues it runs. Reused from call to call.
#[derive(Debug)]
pub(crate) struct Crew {
    ranks: Range<u32>,
    /// Ranks per crew of this world: the doorbell of a rank is that of its crew's first.
    block: u32,
    bases: Vec<*mut u8>,
    scalars: Vec<f64>,
    /// Whose enter has been seen in this call.
    met: Vec<bool>,
    cursors: Vec<Cursor>,
    workspace: Workspace,
    /// Whether everybody has entered the previous call, as its proof says.
    has_seen_all: bool,
}

// SAFETY: the base pointers are used only inside `run`, whose caller vouches for them.
unsafe impl Send for Crew {}

impl Crew {
    pub(crate) fn new(world_size: u32, ranks: Range<u32>, block: u32) -> Self {
        let n = world_size as usize;
        Self {
            ranks,
            block,
            bases: vec![std::ptr::null_mut(); n * BASES],
            scalars: vec![1.0; n],
            met: vec![false; n],
            cursors: Vec::new(),
            workspace: Workspace::default(),
            has_seen_all: true,
        }
    }

    pub(crate) fn ranks(&self) -> Range<u32> {
        self.ranks.clone()
    }

    /// Runs call number `number` for the crew's ranks, whose buffers are given in rank order.
    ///
    /// # Safety
    /// The buffers are as long as the program's call says, and are touched by nobody else until `run` returns.
    pub(crate) unsafe fn run(
        &mut self,
        world: &World,
        program: &Program,
        number: u32,
        buffers: &[Buffers],
        deadline: &Deadline,
    ) -> Result<()> {
        self.workspace.fit(program, false);
        self.prepare(program);
        // SAFETY: the caller's; ranks meet by the rules of the schedule, which was proved.
        let outcome = unsafe { self.enter_and_work(world, program, number, buffers, deadline) };
        for rank in self.ranks.clone() {
            let activity = &world.lines[rank as usize].activity;
            if outcome.is_ok() {
                activity.finish()
            } else {
                activity.acknowledge()
            }
        }
        self.has_seen_all = outcome.is_ok() && program.verified().is_symmetric();
        outcome.map_err(|cause| self.explain(world, program, number, cause, deadline))
    }

    fn prepare(&mut self, program: &Program) {
        self.met.fill(false);
        self.cursors.clear();
        for rank in self.ranks.clone() {
            let queues = (0..program.queues[rank as usize].len() as u32).map(|queue| (rank, queue));
            self.cursors.extend(queues.map(|(rank, queue)| Cursor { rank, queue, tile: 0, index: 0, over: 0 }));
        }
    }

    unsafe fn enter_and_work(
        &mut self,
        world: &World,
        program: &Program,
        number: u32,
        buffers: &[Buffers],
        deadline: &Deadline,
    ) -> std::result::Result<(), Cause> {
        if !self.has_seen_all {
            let before = number.wrapping_sub(1);
            self.wait(world, deadline, |_| world.lines.iter().all(|lines| lines.stamp.has_entered(before)))?;
        }
        let [fingerprint, small, count] = program.call().fingerprint();
        for (rank, own) in self.ranks.clone().zip(buffers) {
            let lines = &world.lines[rank as usize];
            lines.activity.begin();
            if let Some(cause) = world.abort.cause() {
                return Err(cause);
            }
            let [input, output, scratch] = [own.input, own.output, own.scratch].map(|p| p as usize as u64);
            let record: Record = [fingerprint, small, count, input, output, scratch, own.scalar.to_bits(), 0];
            lines.record.write(number, &record);
            lines.stamp.enter(number);
            self.meet(world, program, rank, &record);
        }
        Doorbell::ring_all(
            (0..world.world_size()).step_by(self.block as usize).map(|r| &world.lines[r as usize].doorbell),
        );
        loop {
            let has_moved = self.pass(world, program, number)?;
            if self.cursors.is_empty() {
                break;
            }
            if !has_moved {
                self.wait(world, deadline, |crew| crew.can_move(world, program, number))?;
            }
        }
        for rank in self.ranks.clone() {
            for wait in &program.leave[rank as usize] {
                self.wait(world, deadline, |_| is_over(world, wait, number, program.tiles - 1))?;
                self.meet_if_entered(world, program, wait, number, rank)?;
            }
        }
        Ok(())
    }

    /// Runs every step that need not wait; says whether there was one.
    fn pass(&mut self, world: &World, program: &Program, number: u32) -> std::result::Result<bool, Cause> {
        let mut has_moved = false;
        let mut at = 0;
        while at < self.cursors.len() {
            let mut cursor = self.cursors[at];
            let queue = &program.queues[cursor.rank as usize][cursor.queue as usize];
            while cursor.tile < program.tiles && self.is_ready(world, program, &mut cursor, number)? {
                self.step(world, program, &mut cursor, number);
                has_moved = true;
                if let Some(cause) = world.abort.cause() {
                    return Err(cause);
                }
            }
            if cursor.tile == program.tiles || queue.is_empty() {
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
        program: &Program,
        cursor: &mut Cursor,
        number: u32,
    ) -> std::result::Result<bool, Cause> {
        let task = program.queues[cursor.rank as usize][cursor.queue as usize][cursor.index as usize];
        for wait in &program.tasks[task as usize].waits[cursor.over..] {
            if !is_over(world, wait, number, cursor.tile) {
                return Ok(false);
            }
            self.meet_if_entered(world, program, wait, number, cursor.rank)?;
            cursor.over += 1;
        }
        Ok(true)
    }

    fn can_move(&self, world: &World, program: &Program, number: u32) -> bool {
        self.cursors.iter().any(|cursor| {
            let task = program.queues[cursor.rank as usize][cursor.queue as usize][cursor.index as usize];
            let waits = &program.tasks[task as usize].waits[cursor.over..];
            waits.iter().all(|wait| is_over(world, wait, number, cursor.tile))
        })
    }

    fn step(&mut self, world: &World, program: &Program, cursor: &mut Cursor, number: u32) {
        let queue = &program.queues[cursor.rank as usize][cursor.queue as usize];
        let task = queue[cursor.index as usize];
        // SAFETY: the step's waits are over, so the proof says who may touch what; bases of all ranks it has contact with
        // were filled when their enter was seen.
        unsafe {
            program.run_task(task, cursor.tile, number, &self.bases, &self.scalars, &mut self.workspace);
        }
        let done = cursor.tile * queue.len() as u32 + cursor.index + 1;
        world.lines[cursor.rank as usize].progress[cursor.queue as usize].publish(number, done);
        let others = program.tasks[task as usize].dependents.iter().filter(|rank| !self.ranks.contains(rank));
        if others.clone().next().is_some() {
            Doorbell::ring_all(others.map(|rank| &world.lines[(rank / self.block * self.block) as usize].doorbell));
        }
        (cursor.index, cursor.over) = (cursor.index + 1, 0);
        if cursor.index as usize == queue.len() {
            (cursor.tile, cursor.index) = (cursor.tile + 1, 0);
        }
    }

    /// After the wait for an enter: compares the calls and learns the rank's buffers.
    fn meet_if_entered(
        &mut self,
        world: &World,
        program: &Program,
        wait: &Wait,
        number: u32,
        own: u32,
    ) -> std::result::Result<(), Cause> {
        if let Wait::Enter { rank } = *wait {
            if !self.met[rank as usize] {
                let record = world.lines[rank as usize].record.read(number);
                if record[..3] != program.call().fingerprint() {
                    return Err(world.abort.raise(Cause::Mismatch(own, rank)));
                }
                self.meet(world, program, rank, &record);
            }
        }
        Ok(())
    }

    fn meet(&mut self, world: &World, program: &Program, rank: u32, record: &Record) {
        let staging = match program.staging_bytes() {
            0 => std::ptr::null_mut(),
            _ => world.staging(rank),
        };
        let [input, output, scratch] = [record[3], record[4], record[5]].map(|address| address as usize as *mut u8);
        let first = rank as usize * BASES;
        self.bases[first..first + BASES].copy_from_slice(&[input, output, scratch, staging]);
        self.scalars[rank as usize] = f64::from_bits(record[6]);
        self.met[rank as usize] = true;
    }

    /// Waits until `is_over`, patiently: pauses, turns, sleep.
    fn wait(
        &self,
        world: &World,
        deadline: &Deadline,
        is_over: impl Fn(&Self) -> bool,
    ) -> std::result::Result<(), Cause> {
        let mut tries = 0;
        while !is_over(self) {
            if let Some(cause) = world.abort.cause() {
                return Err(cause);
            }
            tries += 1;
            if tries < PAUSES {
                pause();
                continue;
            }
            if deadline.has_passed() {
                return Err(world.abort.raise(Cause::TimedOut(self.ranks.start)));
            }
            if tries < PAUSES + TURNS {
                give_way();
                continue;
            }
            let doorbell = &world.lines[self.ranks.start as usize].doorbell;
            doorbell.sleep(|| is_over(self) || world.abort.cause().is_some(), deadline.at);
        }
        Ok(())
    }

    /// Waits until no peer can touch this crew's buffers, and turns the cause into this crew's error.
    fn explain(&self, world: &World, program: &Program, number: u32, cause: Cause, deadline: &Deadline) -> Error {
        ring_everybody(world);
        while !world.lines.iter().all(|lines| lines.activity.is_quiet()) {
            give_way();
        }
        let call_of = |rank: u32| {
            if self.ranks.contains(&rank) {
                return program.call().clone();
            }
            Call::from_record(&world.lines[rank as usize].record.read(number))
        };
        match cause {
            Cause::Failed(rank) => Error::Aborted { rank, cause: "failed" },
            Cause::TimedOut(rank) if rank == self.ranks.start => {
                deadline.error(program.call().clone(), missing(world, number))
            }
            Cause::TimedOut(rank) => Error::Aborted { rank, cause: "timed out" },
            Cause::Mismatch(rank_a, rank_b) => {
                Error::Mismatch { rank_a, call_a: call_of(rank_a), rank_b, call_b: call_of(rank_b) }
            }
            Cause::Interrupted => Error::Interrupted,
        }
    }
}

/// Wakes all ranks, so that they see the abort.
pub(crate) fn ring_everybody(world: &World) {
    Doorbell::ring_all(world.lines.iter().map(|lines| &lines.doorbell));
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

fn missing(world: &World, number: u32) -> String {
    let ranks = |entered: bool| -> Vec<String> {
        let has_entered = |rank: &u32| world.lines[*rank as usize].stamp.has_entered(number) == entered;
        (0..world.world_size()).filter(has_entered).map(|rank| rank.to_string()).collect()
    };
    match ranks(false)[..] {
        [] => "every rank has entered the call, but they were not done".to_owned(),
        [ref one] => format!("rank {one} has not entered the call"),
        ref several => format!("ranks {} have not entered the call", several.join(", ")),
    }
}

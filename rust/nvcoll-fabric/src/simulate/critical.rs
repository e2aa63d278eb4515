//! The critical path: from the last leave backwards, at each step to what it waited for last.
//!
//! ```text
//! r3 leaves ◀─ r3.q0.7 ◀─signal─ r2.q0.6 ◀─ r2.q0.5 (before it in the queue) ◀─ … ◀─ r0 enters
//!                 each step: fixed │ latency │ moving alone │ and what sharing added
//! ```
//!
//! Its pieces follow each other without gap from the moment a rank entered to the end. What a link is charged with is
//! the time that the transfer would have taken on its narrowest link alone, and, apart, what sharing added on the
//! link that held it back when that was most shared.

use std::collections::BTreeMap;

use super::flat::Flat;
use super::paths::{TransferPaths, NOTHING};
use super::run::{StepCause, StepRecord};
use crate::hardware::Fabric;
use crate::units::Ps;

/// The shares of the time that are named. Chosen: what one reads at a glance.
const MOST_SHARES: usize = 2;

/// The critical path, in order of time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Critical {
    /// The pieces, none of them empty; each begins where the one before ends.
    pub pieces: Vec<CriticalPiece>,
}

/// A piece of the critical path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CriticalPiece {
    /// The rank that waits or works.
    pub rank: u32,
    /// Its queue; for a leave, the number of its queues.
    pub queue: u32,
    /// Whether it is the leave of the rank, which is no step.
    pub is_leave: bool,
    /// The step in that queue.
    pub step: u32,
    /// The tile.
    pub tile: u32,
    /// When it begins.
    pub start_ps: Ps,
    /// When it ends.
    pub end_ps: Ps,
    /// The reason for the time.
    pub reason: DelayReason,
}

/// The reason for the time of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DelayReason {
    /// The fitted time of a call before ranks enter.
    Starting,
    /// A rank has not entered yet.
    Entering(u32),
    /// The signal of another rank is on the way.
    Signal(u32),
    /// The fixed cost of a step.
    Fixed,
    /// The first byte is on its way.
    Latency,
    /// Bytes, as fast as the narrowest link of the way allows: a position in the fabric's links.
    Link(usize),
    /// Bytes, because transfers share a link.
    Shared(usize, u32),
    /// Bytes, as fast as the memory of a rank allows.
    Memory(u32),
    /// Bytes, because transfers share the memory of a rank.
    SharedMemory(u32, u32),
}

pub(super) fn trace(
    flat: &Flat,
    paths: &TransferPaths,
    record: &[StepRecord],
    enters: Enters<'_>,
    links: usize,
) -> Critical {
    let last = (0..flat.world_size)
        .map(|rank| flat.number((flat.working_queues() as u32) + rank, 0))
        .max_by_key(|&number| (record[number as usize].done, std::cmp::Reverse(number)));
    let mut tracing = Tracing { flat, paths, record, enters, links, pieces: Vec::new() };
    let mut next = last;
    while let Some(number) = next {
        next = tracing.step(number);
    }
    tracing.pieces.reverse();
    Critical { pieces: tracing.pieces }
}

/// When ranks enter.
#[derive(Clone, Copy)]
pub(super) struct Enters<'a> {
    /// For each rank.
    pub(super) at: &'a [Ps],
    /// What the call takes before.
    pub(super) after: Ps,
}

struct Tracing<'a> {
    flat: &'a Flat,
    paths: &'a TransferPaths,
    record: &'a [StepRecord],
    enters: Enters<'a>,
    links: usize,
    /// The last first.
    pieces: Vec<CriticalPiece>,
}

impl Tracing<'_> {
    /// Adds the pieces of a step and of its wait; returns the step that it waited for.
    fn step(&mut self, number: u64) -> Option<u64> {
        let (queue, step, tile) = self.flat.of_number(number);
        let rank = self.flat.ranks[queue as usize];
        let record = self.record[number as usize];
        let is_leave = queue as usize >= self.flat.working_queues();
        let name = CriticalPiece {
            rank,
            queue: if is_leave { self.queues_of(rank) } else { self.flat.queue_of_rank(queue) },
            is_leave,
            step,
            tile,
            start_ps: 0,
            end_ps: 0,
            reason: DelayReason::Fixed,
        };
        self.add_work(&name, self.flat.first(queue) + step, record);
        match record.cause {
            StepCause::Own => {
                self.add_entering(&name, rank, record.ready);
                None
            }
            StepCause::Enter(other) => {
                let entered = self.enters.at[other as usize];
                self.add(&name, entered, record.ready, DelayReason::Signal(other));
                self.add_entering(&name, other, entered);
                None
            }
            StepCause::Step(before) => {
                let (other, _, _) = self.flat.of_number(before.into());
                let over = self.record[before as usize].done;
                self.add(&name, over, record.ready, DelayReason::Signal(self.flat.ranks[other as usize]));
                Some(before.into())
            }
        }
    }

    fn add_entering(&mut self, name: &CriticalPiece, rank: u32, entered: Ps) {
        let after = self.enters.after.min(entered);
        self.add(name, after, entered, DelayReason::Entering(rank));
        self.add(name, 0, after, DelayReason::Starting);
    }

    /// What a step did between being ready and being done, the last first.
    fn add_work(&mut self, name: &CriticalPiece, step: u32, record: StepRecord) {
        let StepRecord { ready, done, limit, .. } = record;
        let flat = self.flat.step(step);
        let path = &self.paths.all[flat.path as usize];
        let nbytes = self.flat.nbytes(flat, name.tile);
        let begins = ready + path.fixed;
        if flat.path != NOTHING && nbytes > 0 {
            let moving = begins + path.latency;
            let alone = moving + path.alone.time(nbytes);
            self.add(name, alone.min(done), done, self.shared_by(limit.link, limit.users));
            self.add(name, moving, alone.min(done), self.moved_by(path.narrowest));
            self.add(name, begins, moving, DelayReason::Latency);
        }
        self.add(name, ready, begins, DelayReason::Fixed);
    }

    fn add(&mut self, name: &CriticalPiece, start_ps: Ps, end_ps: Ps, reason: DelayReason) {
        if end_ps > start_ps {
            self.pieces.push(CriticalPiece { start_ps, end_ps, reason, ..*name });
        }
    }

    fn queues_of(&self, rank: u32) -> u32 {
        self.flat.ranks[..self.flat.working_queues()].iter().filter(|&&other| other == rank).count() as u32
    }

    fn moved_by(&self, link: u32) -> DelayReason {
        match (link as usize).checked_sub(self.links) {
            None => DelayReason::Link(link as usize),
            Some(rank) => DelayReason::Memory(rank as u32),
        }
    }

    fn shared_by(&self, link: u32, users: u32) -> DelayReason {
        match (link as usize).checked_sub(self.links) {
            None => DelayReason::Shared(link as usize, users),
            Some(rank) => DelayReason::SharedMemory(rank as u32, users),
        }
    }
}

impl Critical {
    /// Describes the shares of the time, the largest first: `62 % of the time is gpu3 -> nvswitch, 21 % latency`. Of links, a transfer alone and what sharing adds are one; what is below one percent is left out, and so is all
    /// but the [`MOST_SHARES`] largest: the critical path itself has the rest.
    pub fn words(&self, fabric: &Fabric) -> String {
        let mut by_reason: BTreeMap<DelayReason, Ps> = BTreeMap::new();
        for piece in &self.pieces {
            *by_reason.entry(piece.reason).or_default() += piece.end_ps - piece.start_ps;
        }
        let mut spent: BTreeMap<String, Ps> = BTreeMap::new();
        for (reason, time) in by_reason {
            *spent.entry(reason.words(fabric)).or_default() += time;
        }
        let total: Ps = spent.values().sum();
        let mut spent: Vec<(String, Ps)> = spent.into_iter().collect();
        spent.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        let percent = |time: Ps| (u128::from(time) * 100 + u128::from(total) / 2) / u128::from(total);
        let in_words = |(nth, (what, time)): (usize, &(String, Ps))| {
            let percent = percent(*time);
            let of = if nth == 0 { " of the time is" } else { "" };
            (percent > 0).then(|| format!("{percent} %{of} {what}"))
        };
        let parts: Vec<String> = spent.iter().enumerate().take(MOST_SHARES).filter_map(in_words).collect();
        if parts.is_empty() {
            "it takes no time".to_owned()
        } else {
            parts.join(", ")
        }
    }
}

impl CriticalPiece {
    /// Describes a piece, and the reason for its time: `r3.q0.7, tile 2: bytes over gpu3 -> nvswitch`. `link` names
    /// a link by its position in the fabric.
    pub fn words(&self, link: impl Fn(usize) -> String) -> String {
        let Self { rank, queue, step, tile, .. } = self;
        let what = match self.reason {
            DelayReason::Starting => "the call starts".to_owned(),
            DelayReason::Entering(other) => format!("rank {other} has not entered"),
            DelayReason::Signal(other) => format!("the signal of rank {other} is on the way"),
            DelayReason::Fixed => "what every step costs".to_owned(),
            DelayReason::Latency => "the first byte is on its way".to_owned(),
            DelayReason::Link(at) => format!("bytes over {}", link(at)),
            DelayReason::Shared(at, users) => format!("bytes over {}, which {users} transfers share", link(at)),
            DelayReason::Memory(of) => format!("bytes of the memory of rank {of}"),
            DelayReason::SharedMemory(of, users) => {
                format!("bytes of the memory of rank {of}, which {users} transfers share")
            }
        };
        match self.is_leave {
            true => format!("rank {rank} leaves: {what}"),
            false => format!("r{rank}.q{queue}.{step}, tile {tile}: {what}"),
        }
    }
}

impl DelayReason {
    /// Returns its name, without what it speaks of.
    pub const fn name(self) -> &'static str {
        match self {
            DelayReason::Starting => "starting",
            DelayReason::Entering(_) => "entering",
            DelayReason::Signal(_) => "signal",
            DelayReason::Fixed => "fixed",
            DelayReason::Latency => "latency",
            DelayReason::Link(_) => "link",
            DelayReason::Shared(..) => "shared_link",
            DelayReason::Memory(_) => "memory",
            DelayReason::SharedMemory(..) => "shared_memory",
        }
    }

    fn words(self, fabric: &Fabric) -> String {
        match self {
            DelayReason::Starting => "starting".to_owned(),
            DelayReason::Entering(rank) => format!("rank {rank} entering late"),
            DelayReason::Signal(_) => "signals".to_owned(),
            DelayReason::Fixed => "steps".to_owned(),
            DelayReason::Latency => "latency".to_owned(),
            DelayReason::Link(link) | DelayReason::Shared(link, _) => {
                let link = &fabric.links[link];
                format!("{} -> {}", fabric.devices[link.from].name, fabric.devices[link.to].name)
            }
            DelayReason::Memory(rank) | DelayReason::SharedMemory(rank, _) => format!("the memory of rank {rank}"),
        }
    }
}

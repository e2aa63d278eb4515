//! How often a node was asked for what: a count for each kind of call.
//!
//! ```text
//! call             ─▶ program, found or bound ─▶ its tally      a call that succeeded adds one to a number
//! calls of a group ─▶ batch                   ─▶ its tallies    calls that differ in their counts only are one, of all elements
//! ```
//!
//! A kind is what a machine elsewhere would know of a call: path, aliasing and tiles are this machine's. Its tally outlives
//! programs, which make room for each other. Where ranks call for themselves, the first rank of the communicator counts.
//!
//! Cost: a call that is made again adds to a number that its program points to; a group of ranks looks its tally up
//! when it meets a program for the first time. A kind takes some hundred bytes; [`MOST_KINDS`] bounds them.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nvcoll_core::dtype::DType;
use nvcoll_core::op::Op;
use nvcoll_core::schedule::Schedule;

use crate::program::tally::Tally;
use crate::program::Program;

/// So many kinds a node tells apart; calls of later ones are counted together. Chosen: far more than a training step
/// has, and some megabytes for a service whose counts never repeat.
pub const MOST_KINDS: usize = 1 << 14;

/// What calls have in common that are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TalliedCall {
    /// The name of the collective.
    pub collective: &'static str,
    /// From or to which rank; 0 if the collective has no root.
    pub root: u32,
    /// By which algorithm, as the caller named it.
    pub algorithm: String,
    /// Of what elements.
    pub dtype: DType,
    /// Folded how, if the collective folds.
    pub op: Op,
    /// Elements of the longest buffer that a rank brings; in a group, of all its calls of the kind.
    pub count: usize,
    /// How many calls of a group it was; 1 outside.
    pub calls: usize,
    /// The ranks of the run that take part, by rank in the call.
    pub ranks: Arc<[u32]>,
}

impl TalliedCall {
    fn of(program: &Program, ranks: Arc<[u32]>) -> Self {
        let call = program.call();
        let most_bytes = program.user_bytes.iter().flatten().max().copied().unwrap_or(0);
        Self {
            collective: call.collective.name,
            root: call.root,
            algorithm: call.algorithm.clone(),
            dtype: call.dtype,
            op: call.op,
            count: most_bytes / call.dtype.bytes(),
            calls: 1,
            ranks,
        }
    }

    /// Says whether two kinds differ in their counts only.
    fn is_like(&self, other: &Self) -> bool {
        let what = |kind: &Self| (kind.collective, kind.root, kind.dtype, kind.op);
        what(self) == what(other) && self.algorithm == other.algorithm
    }
}

/// Calls of one kind.
#[derive(Debug, Clone)]
pub struct CallCount {
    /// What they have in common.
    pub kind: TalliedCall,
    /// What the first of them ran.
    pub schedule: Arc<Schedule>,
    /// How many there were.
    pub times: u64,
}

#[derive(Debug)]
pub(crate) struct TallyEntry {
    schedule: Arc<Schedule>,
    tally: Arc<Tally>,
}

/// The tallies of a node.
#[derive(Debug)]
pub struct Tallies {
    ranks: Arc<[u32]>,
    rows: Mutex<HashMap<TalliedCall, TallyEntry>>,
    others: Arc<Tally>,
    begun: Arc<AtomicU64>,
}

impl Tallies {
    /// Makes the tallies of a node of `world_size` ranks, which was asked for nothing yet.
    pub fn new(world_size: u32) -> Self {
        let begun = Arc::default();
        Self { ranks: (0..world_size).collect(), rows: Mutex::default(), others: Tally::new(&begun), begun }
    }

    /// Returns the number of ranks of the node.
    pub fn world_size(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Returns the ranks of the node.
    pub(crate) fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// Returns the tally of a program that all ranks of the node run.
    pub(crate) fn of_all(&self, program: &Program) -> Arc<Tally> {
        self.find_or_make(TalliedCall::of(program, self.ranks.clone()), program)
    }

    /// Returns the tally of a program that some ranks of the run run.
    pub fn among(&self, program: &Program, ranks: &[u32]) -> Arc<Tally> {
        self.find_or_make(TalliedCall::of(program, ranks.into()), program)
    }

    /// Returns the tallies of programs that some ranks launch as one.
    pub(crate) fn of_group(&self, programs: &[Arc<Program>], ranks: &[u32]) -> Vec<Arc<Tally>> {
        let ranks: Arc<[u32]> = ranks.into();
        let mut kinds: Vec<(TalliedCall, &Program)> = Vec::new();
        for program in programs {
            let kind = TalliedCall::of(program, ranks.clone());
            match kinds.iter_mut().find(|(one, _)| one.is_like(&kind)) {
                Some((one, _)) => (one.count, one.calls) = (one.count.saturating_add(kind.count), one.calls + 1),
                None => kinds.push((kind, program)),
            }
        }
        kinds.into_iter().map(|(kind, program)| self.find_or_make(kind, program)).collect()
    }

    fn find_or_make(&self, kind: TalliedCall, program: &Program) -> Arc<Tally> {
        let mut rows = self.lock();
        if let Some(row) = rows.get(&kind) {
            return row.tally.clone();
        }
        if rows.len() == MOST_KINDS {
            return self.others.clone();
        }
        let row = TallyEntry { schedule: program.verified().schedule().clone(), tally: Tally::new(&self.begun) };
        let tally = row.tally.clone();
        rows.insert(kind, row);
        tally
    }

    /// Returns what was called at least once, in the order of the first calls.
    pub fn counted(&self) -> Vec<CallCount> {
        let rows = self.lock();
        let mut in_order: Vec<_> = rows.iter().filter(|(_, row)| row.tally.times() > 0).collect();
        in_order.sort_unstable_by_key(|(_, row)| row.tally.nth());
        let counted = |(kind, row): (&TalliedCall, &TallyEntry)| {
            let (kind, schedule, times) = (kind.clone(), row.schedule.clone(), row.tally.times());
            CallCount { kind, schedule, times }
        };
        in_order.into_iter().map(counted).collect()
    }

    /// Returns how many calls were of kinds that are not told apart any more.
    pub fn others(&self) -> u64 {
        self.others.times()
    }

    /// Locks the table of counts, which a test holds as a thread does that forks.
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<TalliedCall, TallyEntry>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

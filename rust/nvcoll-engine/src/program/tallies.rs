//! Counts of the calls of a node: one count per kind of call.
//!
//! ```text
//! call             ─▶ program, found or bound ─▶ its tally      a call that succeeded adds one
//! calls of a group ─▶ batch                   ─▶ its tallies    calls that differ only in their counts are one, of all elements
//! ```
//!
//! A kind has what another machine would know of a call; path, aliasing and tiles belong to this machine and are left out. A tally
//! outlives its programs. Where ranks call for themselves, the first rank of the communicator counts.
//!
//! Cost: one addition per call to a number that the program points to. Ranks of a group look their tally up at the first call of a
//! program. A kind takes some hundred bytes; [`MOST_KINDS`] bounds them.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nvcoll_core::dtype::DType;
use nvcoll_core::op::Op;
use nvcoll_core::schedule::Schedule;

use crate::program::tally::Tally;
use crate::program::Program;

/// The number of kinds that are counted apart. Calls of further kinds are counted together. Chosen: far more than a
/// training step has, and some megabytes for a service whose counts never repeat.
pub const MOST_KINDS: usize = 1 << 14;

/// The properties that calls share if they are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TalliedCall {
    /// The name of the collective.
    pub collective: &'static str,
    /// The root; 0 if the collective has none.
    pub root: u32,
    /// The algorithm, as the caller named it.
    pub algorithm: String,
    /// The dtype of the elements.
    pub dtype: DType,
    /// The op, if the collective reduces.
    pub op: Op,
    /// Elements of the longest buffer of a rank; in a group, of all its calls of the kind.
    pub count: usize,
    /// The number of calls of a group; 1 outside of groups.
    pub calls: usize,
    /// The ranks of the run that take part, in the order of ranks of the call.
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

    /// Says whether two kinds differ only in their counts.
    fn is_like(&self, other: &Self) -> bool {
        let what = |kind: &Self| (kind.collective, kind.root, kind.dtype, kind.op);
        what(self) == what(other) && self.algorithm == other.algorithm
    }
}

/// A kind of call and its count.
#[derive(Debug, Clone)]
pub struct CallCount {
    /// The properties that the calls share.
    pub kind: TalliedCall,
    /// The schedule that the first call ran.
    pub schedule: Arc<Schedule>,
    /// The number of calls.
    pub times: u64,
}

#[derive(Debug)]
pub(crate) struct TallyEntry {
    schedule: Arc<Schedule>,
    tally: Arc<Tally>,
}

/// The counts of a node.
#[derive(Debug)]
pub struct Tallies {
    ranks: Arc<[u32]>,
    rows: Mutex<HashMap<TalliedCall, TallyEntry>>,
    others: Arc<Tally>,
    begun: Arc<AtomicU64>,
}

impl Tallies {
    /// Makes the counts of a node of `world_size` ranks, all 0.
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

    /// Returns the tally of a program that some ranks of a run share.
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

    /// Returns the kinds that were called, in the order of their first calls.
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

    /// Returns the number of calls of further kinds, which are not counted apart.
    pub fn others(&self) -> u64 {
        self.others.times()
    }

    /// Locks the table of counts, which a test holds as a thread does that forks.
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<TalliedCall, TallyEntry>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

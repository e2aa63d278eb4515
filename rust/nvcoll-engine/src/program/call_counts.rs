//! Counts of the calls of a node: one count per kind of call.
//!
//! ```text
//! call             ─▶ program, found or bound ─▶ its counter     a call that succeeded adds one
//! calls of a group ─▶ batch                   ─▶ its counters    calls that differ only in element counts are one call of all elements
//! ```
//!
//! A kind has the properties of a call that do not depend on this machine, so it leaves out path, aliasing and tiles. A counter
//! outlives its programs. Where ranks call for themselves, the first rank of the communicator counts.
//!
//! Cost: one addition per call to a number that the program points to. Ranks of a group look up their counter at the first call of a
//! program. A kind takes some hundred bytes; [`MOST_KINDS`] bounds them.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nvcoll_core::dtype::DType;
use nvcoll_core::op::Op;
use nvcoll_core::schedule::Schedule;

use crate::program::call_counter::CallCounter;
use crate::program::Program;

/// The number of kinds that are counted apart. Calls of further kinds are counted together. Chosen: far more than a
/// training step has, and some megabytes for a service whose counts never repeat.
pub const MOST_KINDS: usize = 1 << 14;

/// The name under which messages are counted: predictions and nccl-tests call it so.
pub const MESSAGE: &str = "sendrecv";

/// The properties that calls share if they are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallKind {
    /// The name of the collective, or [`MESSAGE`].
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

impl CallKind {
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

    /// Says whether two kinds differ only in element counts.
    fn is_like(&self, other: &Self) -> bool {
        let rest = |kind: &Self| (kind.collective, kind.root, kind.dtype, kind.op);
        rest(self) == rest(other) && self.algorithm == other.algorithm
    }
}

/// A kind of call and its count.
#[derive(Debug, Clone)]
pub struct CountedCall {
    /// The properties that the calls share.
    pub kind: CallKind,
    /// The schedule that the first call ran; none of messages.
    pub schedule: Option<Arc<Schedule>>,
    /// The number of calls.
    pub times: u64,
}

#[derive(Debug)]
pub(crate) struct CountRow {
    schedule: Option<Arc<Schedule>>,
    counter: Arc<CallCounter>,
}

/// The counts of a node.
#[derive(Debug)]
pub struct CallCounts {
    ranks: Arc<[u32]>,
    rows: Mutex<HashMap<CallKind, CountRow>>,
    others: Arc<CallCounter>,
    begun: Arc<AtomicU64>,
}

impl CallCounts {
    /// Makes the counts of a node of `world_size` ranks, all 0.
    pub fn new(world_size: u32) -> Self {
        let begun = Arc::default();
        Self { ranks: (0..world_size).collect(), rows: Mutex::default(), others: CallCounter::new(&begun), begun }
    }

    /// Returns the number of ranks of the node.
    pub fn world_size(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Returns the ranks of the node.
    pub(crate) fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// Returns the counter of a program that all ranks of the node run.
    pub(crate) fn of_all(&self, program: &Program) -> Arc<CallCounter> {
        self.find_or_make(CallKind::of(program, self.ranks.clone()), program)
    }

    /// Returns the counter of a program that some ranks of a run share.
    pub fn among(&self, program: &Program, ranks: &[u32]) -> Arc<CallCounter> {
        self.find_or_make(CallKind::of(program, ranks.into()), program)
    }

    /// Returns the counters of programs that some ranks launch as one.
    pub(crate) fn of_group(&self, programs: &[Arc<Program>], ranks: &[u32]) -> Vec<Arc<CallCounter>> {
        let ranks: Arc<[u32]> = ranks.into();
        let mut kinds: Vec<(CallKind, &Program)> = Vec::new();
        for program in programs {
            let kind = CallKind::of(program, ranks.clone());
            match kinds.iter_mut().find(|(one, _)| one.is_like(&kind)) {
                Some((one, _)) => (one.count, one.calls) = (one.count.saturating_add(kind.count), one.calls + 1),
                None => kinds.push((kind, program)),
            }
        }
        kinds.into_iter().map(|(kind, program)| self.find_or_make(kind, program)).collect()
    }

    /// Returns the counter of messages of some elements from one rank of a run to another. The sender counts them.
    pub fn of_message(&self, dtype: DType, count: usize, ranks: [u32; 2]) -> Arc<CallCounter> {
        let [from, to] = ranks;
        let ranks = if from == to { Arc::from([from]) } else { Arc::from(ranks) };
        let (algorithm, op) = ("auto".into(), Op::Sum);
        self.find_or_insert(
            CallKind { collective: MESSAGE, root: 0, algorithm, dtype, op, count, calls: 1, ranks },
            None,
        )
    }

    fn find_or_make(&self, kind: CallKind, program: &Program) -> Arc<CallCounter> {
        self.find_or_insert(kind, Some(program))
    }

    fn find_or_insert(&self, kind: CallKind, program: Option<&Program>) -> Arc<CallCounter> {
        let mut rows = self.lock();
        if let Some(row) = rows.get(&kind) {
            return row.counter.clone();
        }
        if rows.len() == MOST_KINDS {
            return self.others.clone();
        }
        let schedule = program.map(|program| program.verified().schedule().clone());
        let row = CountRow { schedule, counter: CallCounter::new(&self.begun) };
        let counter = row.counter.clone();
        rows.insert(kind, row);
        counter
    }

    /// Returns the kinds that were called, in the order of their first calls.
    pub fn counted(&self) -> Vec<CountedCall> {
        let rows = self.lock();
        let mut in_order: Vec<_> = rows.iter().filter(|(_, row)| row.counter.times() > 0).collect();
        in_order.sort_unstable_by_key(|(_, row)| row.counter.nth());
        let counted = |(kind, row): (&CallKind, &CountRow)| {
            let (kind, schedule, times) = (kind.clone(), row.schedule.clone(), row.counter.times());
            CountedCall { kind, schedule, times }
        };
        in_order.into_iter().map(counted).collect()
    }

    /// Returns the number of calls of further kinds, which are not counted apart.
    pub fn others(&self) -> u64 {
        self.others.times()
    }

    /// Locks the table of counts. Tests hold it, as a thread that forks does.
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<CallKind, CountRow>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Batches: many small collectives that are launched as one, at little more than the cost of one.
//!
//! ```text
//! batch   all_reduce a, all_gather b, all_reduce c
//! passes  [all_reduce a, all_reduce c]  [all_gather b]           calls of one schedule, in one call number each
//! tiles    a.0 a.1      c.0              b.0 b.1 b.2
//! ```
//!
//! A **pass** runs a schedule once through the tiles of several calls, one call after the other: one enter, one leave, one set of
//! waits. The proof holds for any number of tiles. It depends on the steps and the slot of a tile, not on the arrays, the dtype or the
//! count of its call. To keep slots as proved, all calls of a pass have one distance between chunks in staging
//! (`program/staging_ring.rs`), and every call has its own scratch. Calls of a batch have no order among each other and
//! share no byte that one of them writes.
//!
//! If the bits of an element do not depend on its chunk, the calls of a pass are **coalesced** (`batch/coalesced.rs`): they are cut as
//! one array. A caller that drives all ranks by tile does not coalesce; it fuses the folds of each call and never waits.
//!
//! Source: NCCL's group calls, which aggregate operations into one launch; a pass as more tiles of one schedule is ours.

mod coalesced;

pub(crate) use coalesced::Coalesced;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use nvcoll_core::schedule::Path;

use crate::memory::buffers::Buffers;
use crate::memory::footprint::Footprint;
use crate::memory::originals::OriginalArray;
use crate::program::call_counter::CallCounter;
use crate::program::call_counts::CallCounts;
use crate::program::order::StepOrder;
use crate::program::store_choice::StoreChoice;
use crate::program::Program;
use crate::sync::batch_records::MOST_CALLS;

/// Queues count their steps in 31 bits. Cited: [`crate::sync::Progress`].
const MOST_STEPS: u64 = 1 << 31;

/// Scratch of a call begins at a multiple of this many bytes. Chosen: a cache line pair.
const SCRATCH_ALIGNMENT: usize = 128;

/// Calls of one schedule, in the order of their tiles.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pass<'a> {
    programs: &'a [Arc<Program>],
    origin: PassOrigin<'a>,
}

/// What a pass is made of.
#[derive(Debug, Clone, Copy)]
enum PassOrigin<'a> {
    /// One call, and the rank's arrays if its buffers are copies of some.
    Call(&'a [OriginalArray]),
    /// A call without data, and the two words that the rank says in it.
    Words([u64; 2]),
    /// A batch of several calls, and which of its passes this is.
    Batch(&'a BatchShape, usize),
}

impl<'a> Pass<'a> {
    /// Makes a pass of one call.
    pub(crate) fn of_one(program: &'a Arc<Program>) -> Self {
        Self::of_copies(program, &[])
    }

    /// Makes a pass of one call, in which the buffers of the rank are copies of some of these arrays; none if all are packed.
    pub(crate) fn of_copies(program: &'a Arc<Program>, originals: &'a [OriginalArray]) -> Self {
        Self { programs: std::slice::from_ref(program), origin: PassOrigin::Call(originals) }
    }

    /// Makes the pass of a call without data in which a rank says two words.
    pub(crate) fn of_words(program: &'a Arc<Program>, words: [u64; 2]) -> Self {
        Self { programs: std::slice::from_ref(program), origin: PassOrigin::Words(words) }
    }

    #[inline]
    fn batch(&self) -> Option<(&'a BatchShape, usize)> {
        match self.origin {
            PassOrigin::Batch(batch, pass) => Some((batch, pass)),
            PassOrigin::Call(_) | PassOrigin::Words(_) => None,
        }
    }

    /// Returns the arrays that the buffers of a single call are copies of.
    #[inline]
    pub(crate) fn originals(&self) -> &'a [OriginalArray] {
        match self.origin {
            PassOrigin::Call(originals) => originals,
            PassOrigin::Words(_) | PassOrigin::Batch(..) => &[],
        }
    }

    /// Returns the words that the rank says, if the pass is of such a call.
    #[inline]
    pub(crate) fn words(&self) -> Option<[u64; 2]> {
        match self.origin {
            PassOrigin::Words(words) => Some(words),
            PassOrigin::Call(_) | PassOrigin::Batch(..) => None,
        }
    }

    /// Returns the program whose queues and waits serve all calls of the pass.
    #[inline]
    pub(crate) fn first(&self) -> &'a Program {
        &self.programs[0]
    }

    /// Returns the order of its steps.
    #[inline]
    pub(crate) fn order(&self) -> &'a StepOrder {
        let first = self.first();
        match self.origin {
            PassOrigin::Call(_) => first.early_order.as_ref().unwrap_or(&first.order),
            PassOrigin::Words(_) | PassOrigin::Batch(..) => &first.order,
        }
    }

    /// Says whether no rank can leave the pass before every rank has entered it.
    #[inline]
    pub(crate) fn is_symmetric(&self) -> bool {
        self.order().verified().is_symmetric()
    }

    /// Says whether what its only call stages lies in the stamp lines.
    #[inline]
    pub(crate) fn is_inline(&self) -> bool {
        matches!(self.origin, PassOrigin::Call(_)) && self.first().is_inline
    }

    /// Says whether a rank that reads no memory of a peer but staging needs nothing of the peer's record but its digest.
    #[inline]
    pub(crate) fn needs_no_records(&self) -> bool {
        let first = self.first();
        matches!(self.origin, PassOrigin::Call(_)) && first.early_order.is_some() && !first.is_scaled
    }

    /// Returns the distance between two chunks of a tile in staging, in bytes: that of the longest tile.
    pub(crate) fn spacing_bytes(&self) -> usize {
        let longest = || self.programs.iter().map(|program| program.spacing_bytes).max().unwrap_or(0);
        self.coalesced().map_or_else(longest, |laid| laid.spacing_bytes().min(self.first().most_spacing_bytes))
    }

    /// Returns the programs.
    #[inline]
    pub(crate) fn programs(&self) -> &'a [Arc<Program>] {
        self.programs
    }

    /// Returns the index of the `nth` call of the pass in its batch, and the number of calls of the batch.
    pub(crate) fn place(&self, nth: usize) -> (usize, usize) {
        self.batch()
            .map_or((0, 1), |(batch, pass)| (batch.places[batch.passes[pass].start + nth], batch.programs.len()))
    }

    /// Returns the number that identifies the pass and its addresses to peers; 0 for a single call.
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.batch().map_or(0, |(batch, pass)| batch.id + pass as u64)
    }

    /// Returns the memory that all calls of the batch touch; `None` for a single call.
    pub(crate) fn footprint(&self) -> Option<&'a Footprint> {
        self.batch().map(|(batch, _)| &batch.footprint)
    }

    /// Returns the cut of its calls, if they are coalesced.
    #[inline]
    pub(crate) fn coalesced(&self) -> Option<&'a Coalesced> {
        self.batch().and_then(|(batch, pass)| batch.layouts[pass].as_ref())
    }

    /// Returns the store choice of a single call; `None` for several calls, which store plainly.
    pub(crate) fn stores(&self) -> Option<&'a Mutex<StoreChoice>> {
        self.programs[0].stores.as_ref().filter(|_| self.programs.len() == 1)
    }

    /// Returns the number of tiles of all its calls.
    pub(crate) fn tiles(&self) -> u32 {
        self.coalesced().map_or_else(|| self.programs.iter().map(|program| program.tiles).sum(), Coalesced::tiles)
    }

    /// Returns the words on which all ranks must agree: the fingerprint of a single call, or a hash over all calls.
    pub(crate) fn fingerprint(&self) -> [u64; 3] {
        self.batch().map_or(self.first().fingerprint, |(batch, pass)| batch.fingerprints[pass])
    }
}

fn fingerprint(programs: &[Arc<Program>]) -> [u64; 3] {
    use std::hash::{Hash, Hasher};
    let mut hasher = std::collections::hash_map::DefaultHasher::new();
    programs.iter().for_each(|program| program.fingerprint.hash(&mut hasher));
    let [_, small, count] = programs[0].fingerprint;
    [hasher.finish(), small, count]
}

/// Returns the first of `passes` numbers that no pass had before.
fn new_ids(passes: usize) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: peers get a number with the record that it is in.
    NEXT.fetch_add(passes as u64, Ordering::Relaxed)
}

/// A batch without its addresses.
#[derive(Debug, Default)]
struct BatchShape {
    programs: Vec<Arc<Program>>,
    /// The index of each program among the calls, in the order in which they were given.
    places: Vec<usize>,
    passes: Vec<Range<usize>>,
    /// The fingerprint of each pass; `layouts` has its cut, if it is coalesced.
    fingerprints: Vec<[u64; 3]>,
    layouts: Vec<Option<Coalesced>>,
    /// The number of the first pass. It changes when an address changes.
    id: u64,
    /// The memory that the calls touch, for a rank that calls for itself.
    footprint: Footprint,
    /// For each program, the arrays that the rank's buffers are copies of.
    originals: Vec<Vec<OriginalArray>>,
}

/// Calls that are launched as one, with the buffers of all ranks that call.
#[derive(Debug)]
pub struct Batch {
    shape: BatchShape,
    /// The buffers of each rank, program by program.
    pub(crate) buffers: Vec<Buffers>,
    /// The offset of each program's scratch; the last entry is the total.
    scratch: Vec<usize>,
    /// The counts of its launches; empty before the first launch.
    counters: Vec<Arc<CallCounter>>,
}

impl Batch {
    /// Makes a batch of calls. Each has the buffers of the same ranks: all of a node, or one of a team.
    pub fn new(calls: Vec<(Arc<Program>, Vec<Buffers>)>) -> Self {
        let mut batch =
            Self { shape: BatchShape::default(), buffers: Vec::new(), scratch: vec![0], counters: Vec::new() };
        let mut left: Vec<_> = calls.into_iter().enumerate().collect();
        while let Some((_, (first, _))) = left.first() {
            let first = first.clone();
            let is_same = |(_, (one, _)): &(usize, (Arc<Program>, Vec<Buffers>))| is_same_schedule(&first, one);
            let (same, others): (Vec<_>, Vec<_>) = left.into_iter().partition(is_same);
            for (place, (program, buffers)) in same {
                batch.append(program, buffers);
                batch.shape.places.push(place);
            }
            left = others;
        }
        let calls_of = |pass: &Range<usize>| &batch.shape.programs[pass.clone()];
        let fingerprints = batch.shape.passes.iter().map(|pass| fingerprint(calls_of(pass))).collect();
        let layouts = batch.shape.passes.iter().map(|pass| batch.coalesce(calls_of(pass))).collect();
        (batch.shape.fingerprints, batch.shape.layouts) = (fingerprints, layouts);
        batch.shape.id = new_ids(batch.passes());
        batch
    }

    /// Coalesces the calls of a pass, if the schedule allows it and the pass runs by rank.
    fn coalesce(&self, programs: &[Arc<Program>]) -> Option<Coalesced> {
        let schedule = programs[0].verified().schedule();
        let is_of_one_rank = self.buffers.len() == self.shape.programs.len();
        let is_by_rank = schedule.path != Path::Mapped || is_of_one_rank;
        let laid = is_by_rank.then(|| Coalesced::of(programs)).flatten()?;
        let longest_queue = programs[0].steps_of_longest_queue() / u64::from(programs[0].tiles);
        (longest_queue * u64::from(laid.tiles()) < MOST_STEPS).then_some(laid)
    }

    /// Adds a call to the last pass, or begins another.
    fn append(&mut self, program: Arc<Program>, buffers: Vec<Buffers>) {
        let at = self.shape.programs.len();
        let steps = |programs: &[Arc<Program>]| programs.iter().map(|one| one.steps_of_longest_queue()).sum::<u64>();
        match self.shape.passes.last_mut() {
            Some(pass)
                if pass.len() < MOST_CALLS
                    && is_same_schedule(&self.shape.programs[pass.start], &program)
                    && steps(&self.shape.programs[pass.clone()]) + program.steps_of_longest_queue() < MOST_STEPS =>
            {
                pass.end += 1
            }
            _ => self.shape.passes.push(at..at + 1),
        }
        let scratch = self.scratch[at] + program.scratch_bytes().next_multiple_of(SCRATCH_ALIGNMENT);
        self.scratch.push(scratch);
        self.shape.programs.push(program);
        self.shape.originals.push(Vec::new());
        self.buffers.extend(buffers);
    }

    /// Says where the arrays of call `place`, as given to [`Batch::new`], lie if the buffers of its rank are copies of some.
    pub fn set_originals(&mut self, place: usize, arrays: Vec<OriginalArray>) {
        let at = self.shape.places.iter().position(|&one| one == place).expect("a call of the batch");
        self.shape.originals[at] = arrays;
        self.shape.footprint = Footprint::default();
    }

    /// Returns the programs of its calls, pass by pass.
    pub(crate) fn programs(&self) -> &[Arc<Program>] {
        &self.shape.programs
    }

    /// Returns the number of calls.
    pub fn len(&self) -> usize {
        self.shape.programs.len()
    }

    /// Says whether there is no call.
    pub fn is_empty(&self) -> bool {
        self.shape.programs.is_empty()
    }

    /// Returns the number of passes: ranks enter and leave once for each.
    pub fn passes(&self) -> usize {
        self.shape.passes.len()
    }

    /// Returns each pass with the buffers of its calls; each call has buffers of `ranks` ranks.
    pub(crate) fn in_passes(&self, ranks: usize) -> impl Iterator<Item = (Pass<'_>, &[Buffers])> {
        self.shape.passes.iter().enumerate().map(move |(nth, pass)| {
            let origin = match self.len() {
                1 => PassOrigin::Call(&self.shape.originals[0]),
                _ => PassOrigin::Batch(&self.shape, nth),
            };
            let programs = &self.shape.programs[pass.clone()];
            (Pass { programs, origin }, &self.buffers[pass.start * ranks..pass.end * ranks])
        })
    }

    /// Returns the bytes of scratch that a rank needs.
    pub(crate) fn scratch_bytes(&self) -> usize {
        self.scratch[self.shape.programs.len()]
    }

    /// Returns the bytes of staging that a rank needs: the whole staging, or 0.
    pub(crate) fn staging_bytes(&self) -> usize {
        self.shape.programs.iter().map(|program| program.staging_bytes()).max().unwrap_or(0)
    }

    /// Sets the scratch of every call; `starts` has the address of each rank's scratch.
    pub(crate) fn place_scratch(&mut self, starts: impl Iterator<Item = *mut u8>, ranks: usize) {
        if self.scratch_bytes() == 0 {
            return;
        }
        let mut is_new = false;
        for (rank, start) in starts.enumerate() {
            let of_rank = self.buffers.iter_mut().skip(rank).step_by(ranks);
            for (own, &offset) in of_rank.zip(&self.scratch) {
                is_new |= own.scratch != start.wrapping_add(offset);
                own.scratch = start.wrapping_add(offset);
            }
        }
        if is_new {
            self.shape.id = new_ids(self.shape.passes.len());
        }
    }

    /// Counts a launch by `ranks`, which are the same at every launch.
    pub fn count(&mut self, call_counts: &CallCounts, ranks: &[u32]) {
        if self.counters.is_empty() {
            self.counters = call_counts.of_group(&self.shape.programs, ranks);
        }
        self.counters.iter().for_each(|counter| counter.count());
    }

    /// Records the memory that the calls of `rank` touch, given its buffers.
    pub(crate) fn survey(&mut self, rank: u32) {
        if self.len() > 1 && !self.shape.footprint.is_of(rank) {
            self.shape.footprint = {
                let bytes = self.shape.programs.iter().map(|program| program.user_bytes[rank as usize]);
                let calls = bytes.zip(&self.buffers).zip(&self.shape.originals);
                Footprint::of(calls.map(|((bytes, own), originals)| (bytes, own, &originals[..])), rank)
            };
            self.shape.id = new_ids(self.shape.passes.len());
        }
    }
}

fn is_same_schedule(a: &Program, b: &Program) -> bool {
    let (a, b) = (a.verified().schedule(), b.verified().schedule());
    Arc::ptr_eq(a, b) || a == b
}

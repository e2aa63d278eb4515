//! Calls that are launched as one: many small collectives for little more than one.
//!
//! ```text
//! batch   all_reduce a, all_gather b, all_reduce c
//! passes  [all_reduce a, all_reduce c]  [all_gather b]           calls of one schedule, in one call number each
//! tiles    a.0 a.1      c.0              b.0 b.1 b.2
//! ```
//!
//! A **pass** runs a schedule once through the tiles of several calls, one call after the other: one enter, one leave, one
//! set of waits. The proof speaks of any number of tiles, and asks nothing of a tile but its steps and its slot; which
//! arrays, dtype and count a tile is of is nobody's business but the kernels'. So that slots stay as proved, a chunk has its
//! home in staging by the schedule alone (`program/homes.rs`), and every call of a pass has scratch of its own. Calls of a
//! batch have no order among each other and share no byte that one of them writes.
//!
//! Source: the group calls of NCCL, which aggregates operations into one launch; that a pass is only more tiles is ours.

mod table;

pub(crate) use table::Table;

use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::buffers::Buffers;
use crate::program::Program;
use crate::stores::Stores;

/// Queues count their steps in 31 bits. Cited: [`crate::sync::Progress`].
const MOST_STEPS: u64 = 1 << 31;

/// Scratch of a call begins at a multiple of this many bytes. Chosen: a cache line pair.
const SCRATCH_ALIGNMENT: usize = 128;

/// Calls of one schedule, in the order of their tiles.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pass<'a> {
    programs: &'a [Arc<Program>],
    /// For each of them, which call of its batch it is, from 0.
    places: &'a [usize],
    /// How many calls the batch has.
    of: usize,
}

impl<'a> Pass<'a> {
    /// Makes a pass of one call.
    pub(crate) fn of_one(program: &'a Arc<Program>) -> Self {
        Self { programs: std::slice::from_ref(program), places: &[0], of: 1 }
    }

    /// Returns the program that says what all of them have in common: queues, waits, what leaves wait for.
    #[inline]
    pub(crate) fn first(&self) -> &'a Program {
        &self.programs[0]
    }

    /// Returns the programs.
    #[inline]
    pub(crate) fn programs(&self) -> &'a [Arc<Program>] {
        self.programs
    }

    /// Returns which call of its batch the `nth` of the pass is, from 0, and how many the batch has.
    pub(crate) fn place(&self, nth: usize) -> (usize, usize) {
        (self.places[nth], self.of)
    }

    /// Returns how its call stores; calls that are made as one store plainly.
    pub(crate) fn stores(&self) -> Option<&'a Mutex<Stores>> {
        self.programs[0].stores.as_ref().filter(|_| self.programs.len() == 1)
    }

    /// Returns how many tiles there are in all.
    pub(crate) fn tiles(&self) -> u32 {
        self.programs.iter().map(|program| program.tiles).sum()
    }

    /// Returns the words that all ranks must agree on: those of a single call, or a hash over all and what the first is.
    pub(crate) fn fingerprint(&self) -> [u64; 3] {
        let [hash, small, count] = self.first().fingerprint;
        if self.programs.len() == 1 {
            return [hash, small, count];
        }
        use std::hash::{Hash, Hasher};
        let mut hasher = std::collections::hash_map::DefaultHasher::new();
        self.programs.iter().for_each(|program| program.fingerprint.hash(&mut hasher));
        [hasher.finish(), small, count]
    }
}

/// Calls that are launched as one, with the buffers of all ranks that call.
#[derive(Debug)]
pub struct Batch {
    programs: Vec<Arc<Program>>,
    /// For each program, which of the calls it is, in the order in which they were given.
    places: Vec<usize>,
    /// For each program, one after the other, the buffers of each rank.
    pub(crate) buffers: Vec<Buffers>,
    passes: Vec<Range<usize>>,
    /// Where the scratch of each program begins, and at last how much there is.
    scratch: Vec<usize>,
}

impl Batch {
    /// Puts calls together, each with the buffers of the same ranks: all of a node, or one of a team.
    pub fn new(calls: Vec<(Arc<Program>, Vec<Buffers>)>) -> Self {
        let (programs, places, buffers, passes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut batch = Self { programs, places, buffers, passes, scratch: vec![0] };
        let mut left: Vec<_> = calls.into_iter().enumerate().collect();
        while let Some((_, (first, _))) = left.first() {
            let first = first.clone();
            let is_same = |(_, (one, _)): &(usize, (Arc<Program>, Vec<Buffers>))| is_same_schedule(&first, one);
            let (same, others): (Vec<_>, Vec<_>) = left.into_iter().partition(is_same);
            for (place, (program, buffers)) in same {
                batch.append(program, buffers);
                batch.places.push(place);
            }
            left = others;
        }
        batch
    }

    /// Adds a call to the last pass, or begins another.
    fn append(&mut self, program: Arc<Program>, buffers: Vec<Buffers>) {
        let at = self.programs.len();
        let steps = |programs: &[Arc<Program>]| programs.iter().map(|one| one.steps_of_longest_queue()).sum::<u64>();
        match self.passes.last_mut() {
            Some(pass)
                if is_same_schedule(&self.programs[pass.start], &program)
                    && steps(&self.programs[pass.clone()]) + program.steps_of_longest_queue() < MOST_STEPS =>
            {
                pass.end += 1
            }
            _ => self.passes.push(at..at + 1),
        }
        let scratch = self.scratch[at] + program.scratch_bytes().next_multiple_of(SCRATCH_ALIGNMENT);
        self.scratch.push(scratch);
        self.programs.push(program);
        self.buffers.extend(buffers);
    }

    /// Returns how many calls there are.
    pub fn len(&self) -> usize {
        self.programs.len()
    }

    /// Says whether there is no call.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty()
    }

    /// Returns how often ranks enter and leave.
    pub fn passes(&self) -> usize {
        self.passes.len()
    }

    /// Returns each pass with the buffers of its calls; `ranks` is for how many ranks each call has buffers.
    pub(crate) fn in_passes(&self, ranks: usize) -> impl Iterator<Item = (Pass<'_>, &[Buffers])> {
        self.passes.iter().map(move |pass| {
            let (programs, places) = (&self.programs[pass.clone()], &self.places[pass.clone()]);
            (Pass { programs, places, of: self.len() }, &self.buffers[pass.start * ranks..pass.end * ranks])
        })
    }

    /// Returns the bytes of scratch that a rank needs.
    pub(crate) fn scratch_bytes(&self) -> usize {
        self.scratch[self.programs.len()]
    }

    /// Returns the bytes of staging that a rank needs: all there is, or none.
    pub(crate) fn staging_bytes(&self) -> usize {
        self.programs.iter().map(|program| program.staging_bytes()).max().unwrap_or(0)
    }

    /// Tells every call where its scratch is; `starts` has where that of each of `ranks` begins, if there is any.
    pub(crate) fn place_scratch(&mut self, starts: impl Iterator<Item = *mut u8>, ranks: usize) {
        if self.scratch_bytes() == 0 {
            return;
        }
        for (rank, start) in starts.enumerate() {
            let of_rank = self.buffers.iter_mut().skip(rank).step_by(ranks);
            of_rank.zip(&self.scratch).for_each(|(own, &offset)| own.scratch = start.wrapping_add(offset));
        }
    }
}

fn is_same_schedule(a: &Program, b: &Program) -> bool {
    let (a, b) = (a.verified().schedule(), b.verified().schedule());
    Arc::ptr_eq(a, b) || a == b
}

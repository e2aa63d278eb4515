//! The cost of a schedule: bytes, waits, steps and staging, counted from its steps and from nothing else.
//!
//! Two schedules that do the same differ in how often they touch memory and how often one rank waits for another. Both are
//! properties of the list of steps, known before anything runs, so that a benchmark can be compared with what its algorithm
//! implies, and so that a user can be told why one algorithm wins.
//!
//! **Bytes.** N is the longer buffer of a rank; B, the number of chunks in it. A rank moves
//!
//! ```text
//! moved = sum over its steps of (number of src chunks + number of dst chunks) / B        in units of N
//! ```
//!
//! where a copy onto itself (the same memory under the schedule's aliasing) moves nothing. On n ranks this gives
//!
//! | all_reduce | steps of a rank, in chunks of N/n | moved |
//! |---|---|---|
//! | nvswitch, mapped | 1 fold of n chunks into n chunks | 2N |
//! | ring, mapped | n-1 folds of 2 chunks into 1, n-1 copies of 1 into 1 | 5N (n-1)/n |
//! | nvswitch, staged | n-1 copies to staging, 1 fold of n into 2, n-1 copies from staging | N (5n-2)/n |
//!
//! The least possible: every element of every input is read once and every element of every output written once, except
//! those that in place are there already.
//!
//! **Waits.** The events of one tile are a graph: enters, steps, leaves; edges go from each enter to the queues of its rank,
//! along queues, along waits of lag 0, and from queues to the leave of their rank. An edge between two ranks is one handoff
//! from core to core (30 to 250 ns). `waits` is the largest number of such edges on any path to a leave:
//!
//! ```text
//! nvswitch, mapped   enter of another ─1─▶ fold ─2─▶ leave
//! nvswitch, staged   enter of another ─1─▶ publish ─2─▶ fold ─3─▶ fetch                             (no leave: staging)
//! ring, mapped       enter of another ─1─▶ fold ─▶ … (n-2 more) ─▶ copy ─▶ … (n-1) ─▶ leave        2(n-1) + 1
//! ```
//!
//! **Departures from hardware.** Counted are loads and stores of the program, not cache lines: a store that first reads its
//! line, a source that is still in cache, an empty chunk and the flags are not. `premul_sum` must touch even a copy onto itself.
//! Steps in a cycle of waits have no place in a path and are not counted as waits; the verifier refuses such a schedule.
//!
//! Cost: linear in steps and waits. Source: ours; counting loads and stores per rank is how STREAM counts (McCalpin, 1995).

mod critical_path;

use std::collections::HashSet;
use std::ops::Range;

use crate::cells::Cells;
use crate::collective::{Parts, Promise};
use crate::dtype::DType;
use crate::interrupt::{Interrupt, Interrupted};
use crate::partition::Partition;
use crate::schedule::{Aliasing, Schedule, Step, View};

/// What one rank does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RankCost {
    /// The chunks that its steps read.
    pub read_chunks: u64,
    /// The chunks that its steps write.
    pub written_chunks: u64,
    /// The number of its steps.
    pub steps: u64,
    /// The folds that these are: a step of w chunks is w folds.
    pub folds: u64,
    /// Of the chunks that it moves, those of its user's or scratch memory that no step before it read, or wrote: they come
    /// from wherever the buffers lie and go back there. The others were in a cache a moment ago.
    pub first_chunks: u64,
    /// The chunks that its copies store to other destinations than their first.
    pub spread_chunks: u64,
    /// The chunks of user's or scratch memory that it stores before anything read them, and that other steps touch too. Stores
    /// to chunks that no other step touches may go past the caches; these cannot, so they fetch the lines that they overwrite.
    pub fetched_chunks: u64,
    /// The chunks of its own staging that any rank's step touches, layers counted apart.
    pub staging_chunks: u64,
}

/// What a schedule does, in chunks.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    /// The name of the algorithm.
    pub algorithm: String,
    /// What each rank does.
    pub ranks: Vec<RankCost>,
    /// The number of handoffs between ranks on the longest chain from an enter to a leave, in one tile.
    pub waits: u32,
    /// How many slots every chunk of staging has.
    pub slots: u32,
    /// The chunks in the longer buffer of a rank: N, for [`Cost::moved`]. Zero if the collective has no data.
    pub buffer_chunks: u64,
    /// The least that a rank can move, in units of N, as a mean over ranks.
    pub least: f64,
}

impl Cost {
    /// Counts.
    ///
    /// # Panics
    /// If a step is executed by a rank that does not exist, or reads or writes the memory of one.
    pub fn of(schedule: &Schedule) -> Self {
        Self::of_interruptible(schedule, &Interrupt::never()).expect("this interrupt never comes")
    }

    /// Counts, as [`Cost::of`] does, until it is interrupted.
    ///
    /// # Errors
    /// The caller stopped the count.
    ///
    /// # Panics
    /// Where [`Cost::of`] does.
    pub fn of_interruptible(schedule: &Schedule, interrupt: &Interrupt) -> Result<Self, Interrupted> {
        let mut ranks = vec![RankCost::default(); schedule.world_size as usize];
        let mut touched = Touched::of(schedule);
        for step in &schedule.steps {
            interrupt.check(1 + step.src.len() + step.dst.len())?;
            let traffic = Traffic::of(step, schedule);
            let rank = &mut ranks[step.rank as usize];
            let (first, fetched) = touched.add(&traffic);
            rank.first_chunks += first;
            rank.fetched_chunks += fetched;
            if !step.is_fold() {
                rank.spread_chunks += chunks_of(traffic.written.get(1..).unwrap_or_default());
            }
            rank.folds += step.dst[0].chunks.len() as u64;
            rank.read_chunks += chunks_of(&traffic.read);
            rank.written_chunks += chunks_of(&traffic.written);
            rank.steps += 1;
            for view in step.views().filter(|v| v.buffer.is_staging()) {
                ranks[view.rank as usize].staging_chunks += touched.stage(view);
            }
        }
        Ok(Self {
            algorithm: schedule.algorithm.clone(),
            ranks,
            waits: critical_path::longest_chain(schedule),
            slots: schedule.slots,
            buffer_chunks: buffer_chunks(schedule),
            least: least(schedule),
        })
    }

    /// Returns what a rank reads and writes, in units of N, as a mean over ranks.
    pub fn moved(&self) -> f64 {
        self.in_n(self.total(RankCost::moved_chunks)) / self.ranks.len().max(1) as f64
    }

    /// Returns what the busiest rank reads and writes, in units of N.
    pub fn moved_by_busiest(&self) -> f64 {
        self.in_n(self.most(RankCost::moved_chunks))
    }

    /// Returns the number of steps of all ranks.
    pub fn steps(&self) -> u64 {
        self.total(|rank| rank.steps)
    }

    /// Returns what the ranks count together.
    pub fn total(&self, count: impl Fn(&RankCost) -> u64) -> u64 {
        self.ranks.iter().map(count).sum()
    }

    /// Returns what the rank with the most counts.
    pub fn most(&self, count: impl Fn(&RankCost) -> u64) -> u64 {
        self.ranks.iter().map(count).max().unwrap_or(0)
    }

    /// Returns the bytes of staging that a rank needs when a tile of a chunk has at most `tile_count` elements.
    pub fn staging_bytes(&self, rank: u32, tile_count: usize, dtype: DType) -> usize {
        self.ranks[rank as usize].staging_chunks as usize * self.slots as usize * tile_count * dtype.bytes()
    }

    fn in_n(&self, chunks: u64) -> f64 {
        if self.buffer_chunks == 0 {
            0.0
        } else {
            chunks as f64 / self.buffer_chunks as f64
        }
    }
}

impl RankCost {
    /// Returns the chunks read and written.
    pub fn moved_chunks(&self) -> u64 {
        self.read_chunks + self.written_chunks
    }
}

/// One cost as `ring 4.4 N`; with the busiest rank where the mean hides it.
impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (mean, most) = (format!("{:.1}", self.moved()), format!("{:.1}", self.moved_by_busiest()));
        write!(f, "{} {mean} N", self.algorithm)?;
        if most != mean {
            write!(f, " (busiest rank {most} N)")?;
        }
        if self.buffer_chunks > 0 && (self.moved() - self.least).abs() < 1e-9 {
            write!(f, " (the least possible)")?;
        }
        Ok(())
    }
}

/// Explains a comparison in one line: `a rank moves  ring 4.4 N, nvswitch 2.0 N (the least possible);  waits 15, 2`.
pub fn why(costs: &[Cost]) -> String {
    let moved = costs.iter().map(Cost::to_string).collect::<Vec<_>>().join(", ");
    let waits = costs.iter().map(|cost| cost.waits.to_string()).collect::<Vec<_>>().join(", ");
    format!("a rank moves  {moved};  waits {waits}")
}

/// Returns the bytes that each rank reads and writes for a call with these element counts.
///
/// # Panics
/// If `partition` has fewer chunks than the schedule names, or as [`Cost::of`].
pub fn moved_bytes(schedule: &Schedule, partition: &Partition, dtype: DType) -> Vec<u64> {
    let mut before = vec![0u64];
    for chunk in 0..partition.chunks() {
        before.push(before[chunk as usize] + partition.chunk_count(chunk) as u64);
    }
    let count = |view: &View| before[view.chunks.end as usize] - before[view.chunks.start as usize];
    let mut bytes = vec![0; schedule.world_size as usize];
    for step in &schedule.steps {
        let traffic = Traffic::of(step, schedule);
        let elements: u64 = traffic.read.iter().chain(&traffic.written).map(|view| count(view)).sum();
        bytes[step.rank as usize] += elements * dtype.bytes() as u64;
    }
    bytes
}

/// The views of a step that cause traffic.
struct Traffic<'a> {
    read: Vec<&'a View>,
    written: Vec<&'a View>,
}

impl<'a> Traffic<'a> {
    fn of(step: &'a Step, schedule: &Schedule) -> Self {
        let read: Vec<_> = step.src.iter().map(|source| &source.view).collect();
        let stays = |dst: &&View| read.len() == 1 && is_same_memory(read[0], dst, schedule);
        let written: Vec<_> = step.dst.iter().filter(|dst| !stays(dst)).collect();
        if written.is_empty() {
            Self { read: Vec::new(), written }
        } else {
            Self { read, written }
        }
    }
}

/// The chunks of memory that steps have read and written so far, as [`Cells`].
struct Touched {
    cells: Cells,
    is_read: Vec<bool>,
    is_written: Vec<bool>,
    /// How many views of all steps each cell is part of.
    views: Vec<u32>,
}

impl Touched {
    fn of(schedule: &Schedule) -> Self {
        let views = || schedule.steps.iter().flat_map(Step::views);
        let named = views().map(|view| (view.rank, view.buffer, view.chunks.clone()));
        let cells = Cells::of(schedule.world_size, schedule.aliasing, named);
        let count = cells.len();
        let mut touched =
            Self { cells, is_read: vec![false; count], is_written: vec![false; count], views: vec![0; count] };
        for view in views() {
            for cell in touched.cells.range(view.rank, view.buffer, &view.chunks) {
                touched.views[cell] += 1;
            }
        }
        touched
    }

    /// Adds the traffic of a step. Returns the chunks that are read before anything touched them or written for the first
    /// time; and those of the latter that nothing read before, and that are not stored past the caches: that is done where
    /// no other step touches any destination. Staging is written again and again, tile by tile, and counts as touched.
    fn add(&mut self, traffic: &Traffic<'_>) -> (u64, u64) {
        let (mut first, mut fetched) = (0, 0);
        for view in traffic.read.iter().filter(|view| !view.buffer.is_staging()) {
            for (cell, chunks) in self.cells.of_range(view.rank, view.buffer, &view.chunks) {
                let is_first = !std::mem::replace(&mut self.is_read[cell], true) && !self.is_written[cell];
                first += if is_first { chunks.len() as u64 } else { 0 };
            }
        }
        let others = self.touched_by_others(&traffic.written);
        for view in traffic.written.iter().filter(|view| !view.buffer.is_staging()) {
            for (cell, chunks) in self.cells.of_range(view.rank, view.buffer, &view.chunks) {
                if !std::mem::replace(&mut self.is_written[cell], true) {
                    first += chunks.len() as u64;
                    fetched += if self.is_read[cell] { 0 } else { common(&chunks, &others) };
                }
            }
        }
        (first, fetched)
    }

    /// Returns the chunks of which one of these destinations is touched by other views too, in order.
    fn touched_by_others(&self, written: &[&View]) -> Vec<Range<u32>> {
        let cells = written.iter().flat_map(|view| self.cells.of_range(view.rank, view.buffer, &view.chunks));
        let mut all: Vec<Range<u32>> =
            cells.filter(|(cell, _)| self.views[*cell] > 1).map(|(_, chunks)| chunks).collect();
        all.sort_unstable_by_key(|chunks| chunks.start);
        all.dedup_by(|next, before| {
            let continues = next.start <= before.end;
            before.end = if continues { before.end.max(next.end) } else { before.end };
            continues
        });
        all
    }

    /// Returns the chunks of a view of staging that none before had.
    fn stage(&mut self, view: &View) -> u64 {
        let cells = self.cells.of_range(view.rank, view.buffer, &view.chunks);
        let new = cells.filter(|&(cell, _)| !std::mem::replace(&mut self.is_read[cell], true));
        new.map(|(_, chunks)| chunks.len() as u64).sum()
    }
}

/// Returns how many chunks are in one of some ranges too, which are apart and in order.
fn common(chunks: &Range<u32>, ranges: &[Range<u32>]) -> u64 {
    let both = |range: &Range<u32>| range.end.min(chunks.end).saturating_sub(range.start.max(chunks.start));
    ranges.iter().map(|range| u64::from(both(range))).sum()
}

fn is_same_memory(a: &View, b: &View, schedule: &Schedule) -> bool {
    let is_like = a.rank == b.rank && a.chunks == b.chunks;
    is_like && (a.buffer == b.buffer || (a.buffer.is_user() && b.buffer.is_user() && is_shared(a, schedule)))
}

/// Says whether the input and the output of a rank hold these chunks in the same memory.
fn is_shared(view: &View, schedule: &Schedule) -> bool {
    let is_in_both = |chunk| schedule.input_holds(view.rank, chunk) && schedule.output_holds(view.rank, chunk);
    schedule.aliasing == Aliasing::InPlace && view.chunks.clone().all(is_in_both)
}

fn chunks_of(views: &[&View]) -> u64 {
    views.iter().map(|view| view.chunks.len() as u64).sum()
}

fn buffer_chunks(schedule: &Schedule) -> u64 {
    let longer = |rank| user_parts(schedule, rank).map(Parts::len).into_iter().max();
    let longest = (0..schedule.world_size).filter_map(longer).max().unwrap_or(0);
    u64::from(longest) * u64::from(schedule.chunks_per_part)
}

/// Parts that must be read plus parts that must be written, as a mean over ranks, over the parts in the longer buffer.
fn least(schedule: &Schedule) -> f64 {
    let (collective, roles, n) = (schedule.collective, schedule.roles(), schedule.world_size);
    // Of each part, the first rank from which it is copied; and who else has a part of that number.
    let (mut copied, mut copied_too) = (vec![None; collective.parts(roles) as usize], HashSet::new());
    // Folds are of the ranks from 0 on: of each part, how many ranks' contributions somebody needs.
    let mut folded = vec![0; if collective.folds() { collective.parts(roles) as usize } else { 0 }];
    let (mut written, mut longer) = (0, 1);
    for rank in 0..n {
        let [input, output] = user_parts(schedule, rank);
        longer = longer.max(input.len()).max(output.len());
        for part in output.iter() {
            let promise = collective.promise(roles, rank, part);
            if schedule.aliasing == Aliasing::InPlace && input.contains(part) && is_its_own(&promise, rank) {
                continue;
            }
            written += 1;
            match promise {
                Promise::CopyOf { from } if *copied[part as usize].get_or_insert(from) == from => {}
                Promise::CopyOf { from } => _ = copied_too.insert((from, part)),
                Promise::FoldOf(ranks) => folded[part as usize] = ranks.end.max(folded[part as usize]),
            }
        }
    }
    let read = copied.iter().flatten().count() as u32 + copied_too.len() as u32 + folded.iter().sum::<u32>();
    f64::from(read + written) / f64::from(longer) / f64::from(n)
}

/// What the input and the output of a rank hold.
fn user_parts(schedule: &Schedule, rank: u32) -> [Parts; 2] {
    let (collective, roles) = (schedule.collective, schedule.roles());
    [collective.input(roles, rank), collective.output(roles, rank)]
}

/// Says whether what a rank is promised is what it brings.
fn is_its_own(promise: &Promise, rank: u32) -> bool {
    match promise {
        Promise::CopyOf { from } => *from == rank,
        Promise::FoldOf(ranks) => *ranks == (rank..rank + 1),
    }
}

//! The cost of a schedule: bytes, waits, steps and staging, counted from its steps only.
//!
//! Two schedules for the same collective differ in their memory accesses and in their waits between ranks. The list of steps
//! determines both before anything runs. So a benchmark can be compared with the cost of its algorithm, and a user can see why
//! one algorithm is faster.
//!
//! **Bytes.** N is the size of the longer buffer of a rank, and B is the number of chunks in it. A rank moves
//!
//! ```text
//! moved = sum over its steps of (number of src chunks + number of dst chunks) / B        in units of N
//! ```
//!
//! A copy onto the same memory (under the schedule's aliasing) moves nothing. On n ranks this gives
//!
//! | all_reduce | steps of a rank, in chunks of N/n | moved |
//! |---|---|---|
//! | nvswitch, mapped | 1 fold of n chunks into n chunks | 2N |
//! | ring, mapped | n-1 folds of 2 chunks into 1, n-1 copies of 1 into 1 | 5N (n-1)/n |
//! | nvswitch, staged | n-1 copies to staging, 1 fold of n into 2, n-1 copies from staging | N (5n-2)/n |
//!
//! The lower bound: every element of every input is read once and every element of every output is written once. In place,
//! elements that are in their place already do not count.
//!
//! **Waits.** The enters, steps and leaves of one tile are the nodes of a graph. Edges go from each enter to the queues of its
//! rank, along queues, along waits of lag 0, and from queues to the leave of their rank. An edge between two ranks is one handoff
//! from core to core (30 to 250 ns). `waits` is the largest number of such edges on a path to a leave:
//!
//! ```text
//! nvswitch, mapped   enter of another ─1─▶ fold ─2─▶ leave
//! nvswitch, staged   enter of another ─1─▶ publish ─2─▶ fold ─3─▶ fetch                             (no leave: staging)
//! ring, mapped       enter of another ─1─▶ fold ─▶ … (n-2 more) ─▶ copy ─▶ … (n-1) ─▶ leave        2(n-1) + 1
//! ```
//!
//! **Departures from hardware.** The count has loads and stores of the program and no cache lines. It ignores lines that a store
//! reads first, sources that are still in a cache, empty chunks and flags. It ignores that `premul_sum` works even on a copy onto
//! the same memory. Steps in a cycle of waits do not count as waits; the verifier refuses such a schedule.
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

/// The counts of one rank, in chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RankCost {
    /// The chunks that its steps read.
    pub read_chunks: u64,
    /// The chunks that its steps write.
    pub written_chunks: u64,
    /// The number of its steps.
    pub steps: u64,
    /// The number of folds; a step of w chunks is w folds.
    pub folds: u64,
    /// The moved chunks of user buffers and scratch that no earlier step read or wrote. They come from memory and return to
    /// memory, while the other chunks were in a cache recently.
    pub first_chunks: u64,
    /// The chunks that copies store to their second and later destinations.
    pub spread_chunks: u64,
    /// The chunks of user buffers and scratch that are stored before any step reads them, and that other steps access too. Such
    /// stores fetch the cache lines that they overwrite. Stores to chunks without other accesses can bypass the caches.
    pub fetched_chunks: u64,
    /// The chunks of the rank's staging that steps of any rank access, counted once per layer.
    pub staging_chunks: u64,
}

/// The cost of a schedule, in chunks.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    /// The name of the algorithm.
    pub algorithm: String,
    /// The counts of each rank.
    pub ranks: Vec<RankCost>,
    /// The number of handoffs between ranks on the longest chain from an enter to a leave, in one tile.
    pub waits: u32,
    /// The number of slots of every chunk of staging.
    pub slots: u32,
    /// The number of chunks in the longer buffer of a rank, which is N in [`Cost::moved`]; 0 if the collective has no data.
    pub buffer_chunks: u64,
    /// The lower bound of the data that a rank moves, in units of N, as a mean over ranks.
    pub least: f64,
}

impl Cost {
    /// Counts the cost of a schedule.
    ///
    /// # Panics
    /// If a step is executed by a rank that does not exist, or reads or writes the memory of one.
    pub fn of(schedule: &Schedule) -> Self {
        Self::of_interruptible(schedule, &Interrupt::never()).expect("this interrupt never comes")
    }

    /// Counts the cost of a schedule, as [`Cost::of`] does, until it is interrupted.
    ///
    /// # Errors
    /// The caller stopped the count.
    ///
    /// # Panics
    /// As [`Cost::of`].
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

    /// Returns the data that a rank reads and writes, in units of N, as a mean over ranks.
    pub fn moved(&self) -> f64 {
        self.in_n(self.total(RankCost::moved_chunks)) / self.ranks.len().max(1) as f64
    }

    /// Returns the data that the busiest rank reads and writes, in units of N.
    pub fn moved_by_busiest(&self) -> f64 {
        self.in_n(self.most(RankCost::moved_chunks))
    }

    /// Returns the number of steps of all ranks.
    pub fn steps(&self) -> u64 {
        self.total(|rank| rank.steps)
    }

    /// Returns the sum of a count over all ranks.
    pub fn total(&self, count: impl Fn(&RankCost) -> u64) -> u64 {
        self.ranks.iter().map(count).sum()
    }

    /// Returns the largest value of a count over all ranks.
    pub fn most(&self, count: impl Fn(&RankCost) -> u64) -> u64 {
        self.ranks.iter().map(count).max().unwrap_or(0)
    }

    /// Returns the bytes of staging that a rank needs if a tile of a chunk has at most `tile_count` elements.
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
    /// Returns the number of chunks read and written.
    pub fn moved_chunks(&self) -> u64 {
        self.read_chunks + self.written_chunks
    }
}

/// Prints a cost as `ring 4.4 N`, with the busiest rank if it differs from the mean.
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

/// The memory that steps have read and written so far, by [`Cells`].
struct Touched {
    cells: Cells,
    is_read: Vec<bool>,
    is_written: Vec<bool>,
    /// The number of views that contain each cell.
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

    /// Adds the traffic of a step, and returns its [`RankCost::first_chunks`] and [`RankCost::fetched_chunks`]. Staging is written again for every
    /// tile, so its chunks are in a cache and count for neither.
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

    /// Returns the chunks of these destinations that other views contain too, as sorted ranges.
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

    /// Returns the number of chunks in a view of staging that no earlier view contained.
    fn stage(&mut self, view: &View) -> u64 {
        let cells = self.cells.of_range(view.rank, view.buffer, &view.chunks);
        let new = cells.filter(|&(cell, _)| !std::mem::replace(&mut self.is_read[cell], true));
        new.map(|(_, chunks)| chunks.len() as u64).sum()
    }
}

/// Returns the number of chunks in a range that sorted, disjoint ranges contain too.
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

/// Returns the lower bound in units of N: parts that must be read and written, per rank and per part of the longer buffer.
fn least(schedule: &Schedule) -> f64 {
    let (collective, roles, n) = (schedule.collective, schedule.roles(), schedule.world_size);
    // For each part, the first rank from which it is copied; then all other ranks from which it is copied.
    let (mut copied, mut copied_too) = (vec![None; collective.parts(roles) as usize], HashSet::new());
    // Folds cover ranks 0..k. For each part, the largest k that some rank needs.
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

/// Returns the parts of the input and of the output of a rank.
fn user_parts(schedule: &Schedule, rank: u32) -> [Parts; 2] {
    let (collective, roles) = (schedule.collective, schedule.roles());
    [collective.input(roles, rank), collective.output(roles, rank)]
}

/// Says whether the promise to a rank is the rank's own input.
fn is_its_own(promise: &Promise, rank: u32) -> bool {
    match promise {
        Promise::CopyOf { from } => *from == rank,
        Promise::FoldOf(ranks) => *ranks == (rank..rank + 1),
    }
}

//! A schedule as plain arrays: what the loop of a run reads, in the order in which queues read it.
//!
//! ```text
//! queue   0 .. of rank 0, then of rank 1, …; then one per rank for its leave, whose only step passes in the last tile
//! steps   all of queue 0, all of queue 1, …         16 bytes each: path, chunks, where its waits begin
//! waits   in the same order                         16 bytes each: queue, place in it, lag, latency of the signal
//! ```

use std::collections::HashMap;

use nvcoll_core::dtype::DType;
use nvcoll_core::partition::Partition;
use nvcoll_core::schedule::{Dependency, Event, Schedule, Step};

use super::link_table::{Delay, LinkTable};
use super::paths::{TransferPaths, NOTHING};
use super::ratio::Ratio;
use super::settings::AtSwitch;
use crate::error::{Error, Result};
use crate::units::Ps;

/// A step.
#[derive(Clone, Copy)]
pub(super) struct FlatStep {
    pub(super) path: u32,
    /// The chunks of each of its views: the first, and the end.
    chunks: (u32, u32),
    first_wait: u32,
}

/// An event that a step waits for.
#[derive(Clone, Copy)]
pub(super) struct FlatWait {
    /// The queue; or, with [`ENTER`], the rank whose enter it is.
    pub(super) queue: u32,
    pub(super) index: u32,
    pub(super) lag: u32,
    /// The delay of the signal: a position in `signals`.
    pub(super) signal: u32,
}

/// The bit of [`FlatWait::queue`] that says enter.
pub(super) const ENTER: u32 = 1 << 31;

/// A schedule, flat.
pub(super) struct Flat {
    pub(super) world_size: u32,
    pub(super) tiles: u32,
    slice_bytes: u64,
    /// For each queue its rank.
    pub(super) ranks: Vec<u32>,
    /// For each queue its first step; one more at the end.
    first_step: Vec<u32>,
    steps: Vec<FlatStep>,
    waits: Vec<FlatWait>,
    /// The bytes of each chunk.
    lengths: Vec<u64>,
    /// The end of the last chunk that a step has.
    last_chunk: u32,
    /// Delays of signals, one for each pair of ranks; the first is none at all.
    delays: Vec<Delay>,
    /// For each delay, how long a signal takes.
    pub(super) signals: Vec<Ps>,
}

impl Flat {
    /// Flattens a schedule for calls whose sizes [`Flat::resize`] says.
    ///
    /// # Errors
    /// [`Error::Schedule`] for what cannot be numbered, and whatever [`TransferPaths::path_of`] says.
    pub(super) fn of(
        schedule: &Schedule,
        links: &mut LinkTable,
        paths: &mut TransferPaths,
        at_switch: AtSwitch,
    ) -> Result<Self> {
        let (flat, first_queue, order) = numbered(schedule)?;
        let mut flattening = Flattening { schedule, first_queue, flat, signals: HashMap::new() };
        flattening.run(&order, links, paths, at_switch)?;
        Ok(flattening.flat)
    }

    /// Gives signals their latencies: each that part of the latency of its route.
    pub(super) fn price(&mut self, links: &LinkTable, signal: Ratio) {
        self.signals = self.delays.iter().map(|&delay| signal.of(links.latency(delay))).collect();
    }

    /// Makes it one for calls with the element counts of `partition`.
    ///
    /// # Errors
    /// [`Error::Schedule`] if there are too many tiles, or steps name chunks that `partition` has not.
    pub(super) fn resize(
        &mut self,
        schedule: &str,
        partition: &Partition,
        dtype: DType,
        slice_bytes: u64,
    ) -> Result<()> {
        let wrong = |message: String| Error::Schedule { schedule: schedule.to_owned(), message };
        let element = dtype.bytes() as u64;
        if self.last_chunk > partition.chunks() {
            return Err(wrong(format!("chunk {} is not among {}", self.last_chunk - 1, partition.chunks())));
        }
        self.lengths = (0..partition.chunks()).map(|chunk| partition.chunk_count(chunk) as u64 * element).collect();
        self.slice_bytes = (slice_bytes / element).max(1) * element;
        let longest = self.lengths.iter().copied().max().unwrap_or(0);
        let tiles = longest.div_ceil(self.slice_bytes).max(1);
        self.tiles = u32::try_from(tiles).map_err(|_| wrong(format!("{tiles} tiles are too many")))?;
        Ok(())
    }

    /// Returns the number of queues, with the queues of leaves.
    pub(super) fn queues(&self) -> usize {
        self.ranks.len()
    }

    /// Returns the number of queues that are not a leave.
    #[inline]
    pub(super) fn working_queues(&self) -> usize {
        self.ranks.len() - self.world_size as usize
    }

    #[inline]
    pub(super) fn first(&self, queue: u32) -> u32 {
        self.first_step[queue as usize]
    }

    #[inline]
    pub(super) fn len(&self, queue: u32) -> u32 {
        self.first_step[queue as usize + 1] - self.first_step[queue as usize]
    }

    /// Returns the number that a step has in a record: the so-many-eth that its queue does, from 0.
    #[inline]
    pub(super) fn number(&self, queue: u32, done: u64) -> u64 {
        let working = self.working_queues() as u32;
        let tiles = u64::from(self.tiles);
        if queue < working {
            u64::from(self.first(queue)) * tiles + done
        } else {
            u64::from(self.first(working)) * tiles + u64::from(queue - working)
        }
    }

    /// Returns the queue, the place in it and the tile of a number in a record.
    pub(super) fn of_number(&self, number: u64) -> (u32, u32, u32) {
        let (working, tiles) = (self.working_queues() as u32, u64::from(self.tiles));
        let leaves = u64::from(self.first(working)) * tiles;
        if number >= leaves {
            return (working + (number - leaves) as u32, 0, self.tiles - 1);
        }
        let queue = self.first_step.partition_point(|&first| u64::from(first) * tiles <= number) as u32 - 1;
        let done = number - u64::from(self.first(queue)) * tiles;
        let len = u64::from(self.len(queue));
        (queue, (done % len) as u32, (done / len) as u32)
    }

    /// Returns the number of a queue among the queues of its rank.
    pub(super) fn queue_of_rank(&self, queue: u32) -> u32 {
        let rank = self.ranks[queue as usize];
        queue - self.ranks[..queue as usize].partition_point(|&other| other < rank) as u32
    }

    #[inline]
    pub(super) fn step(&self, step: u32) -> FlatStep {
        self.steps[step as usize]
    }

    #[inline]
    pub(super) fn waits(&self, step: u32) -> &[FlatWait] {
        let end = self.steps.get(step as usize + 1).map_or(self.waits.len(), |next| next.first_wait as usize);
        &self.waits[self.steps[step as usize].first_wait as usize..end]
    }

    /// Returns the bytes of each view of a step in a tile.
    #[inline]
    pub(super) fn nbytes(&self, step: FlatStep, tile: u32) -> u64 {
        let before = u64::from(tile) * self.slice_bytes;
        let slice = |&length: &u64| length.saturating_sub(before).min(self.slice_bytes);
        self.lengths[step.chunks.0 as usize..step.chunks.1 as usize].iter().map(slice).sum()
    }
}

/// A schedule while it is flattened.
struct Flattening<'a> {
    schedule: &'a Schedule,
    /// For each rank its first queue; one more at the end.
    first_queue: Vec<u32>,
    flat: Flat,
    /// Delays by pair of ranks, and their positions.
    signals: HashMap<(u32, u32), u32>,
}

impl Flattening<'_> {
    fn run(
        &mut self,
        order: &[usize],
        links: &mut LinkTable,
        paths: &mut TransferPaths,
        at_switch: AtSwitch,
    ) -> Result<()> {
        let schedule = self.schedule;
        for &nth in order {
            let step = &schedule.steps[nth];
            let (path, chunks) = (paths.path_of(step, schedule, links, at_switch)?, &step.dst[0].chunks);
            let chunks = (chunks.start, chunks.end.max(chunks.start));
            self.flat.last_chunk = self.flat.last_chunk.max(chunks.1);
            let first_wait = self.flat.waits.len() as u32;
            self.flat.steps.push(FlatStep { path, chunks, first_wait });
            for dependency in &step.after {
                let wait = self.wait(step.rank, dependency, links)?;
                self.flat.waits.push(wait);
            }
        }
        for rank in 0..schedule.world_size {
            let first_wait = self.flat.waits.len() as u32;
            self.flat.steps.push(FlatStep { path: NOTHING, chunks: (0, 0), first_wait });
            for queue in self.first_queue[rank as usize]..self.first_queue[rank as usize + 1] {
                let index = self.flat.len(queue) - 1;
                self.flat.waits.push(FlatWait { queue, index, lag: 0, signal: 0 });
            }
            for dependency in schedule.leave.get(rank as usize).map_or(&[][..], Vec::as_slice) {
                let wait = self.wait(rank, dependency, links)?;
                self.flat.waits.push(wait);
            }
            self.flat.ranks.push(rank);
            self.flat.first_step.push(self.flat.steps.len() as u32);
        }
        Ok(())
    }

    fn wait(&mut self, rank: u32, on: &Dependency, links: &mut LinkTable) -> Result<FlatWait> {
        let signal = self.signal(on.rank, rank, links)?;
        let (queue, index) = match (on.event, self.schedule.early_queue(on.rank)) {
            (Event::Step { queue, index }, _) => (queue, index),
            (Event::Enter, None) => return Ok(FlatWait { queue: ENTER | on.rank, index: 0, lag: 0, signal }),
            // A rank enters after its early steps.
            (Event::Enter, Some(queue)) => {
                let number = self.first_queue[on.rank as usize].saturating_add(queue);
                (queue, self.flat.len(number).saturating_sub(1))
            }
        };
        let number = self.first_queue[on.rank as usize].saturating_add(queue);
        if number >= self.first_queue[on.rank as usize + 1] || index >= self.flat.len(number) {
            let name = format!("r{}.q{queue}.{index}", on.rank);
            return Err(wrong(self.schedule, format!("rank {rank} waits for {name}, which is not there")));
        }
        Ok(FlatWait { queue: number, index, lag: on.lag, signal })
    }

    fn signal(&mut self, from: u32, to: u32, links: &mut LinkTable) -> Result<u32> {
        if from >= self.schedule.world_size {
            return Err(wrong(self.schedule, format!("rank {to} waits for rank {from}, which is not there")));
        }
        if from == to {
            return Ok(0);
        }
        if let Some(&known) = self.signals.get(&(from, to)) {
            return Ok(known);
        }
        let number = self.flat.delays.len() as u32;
        self.flat.delays.push(links.delay(from, to)?);
        self.signals.insert((from, to), number);
        Ok(number)
    }
}

/// Numbers queues and steps. Returns the queues without steps; for each rank its first queue, and one more; and the positions of
/// the steps in the schedule, queue after queue.
fn numbered(schedule: &Schedule) -> Result<(Flat, Vec<u32>, Vec<usize>)> {
    let queues = lengths(schedule)?;
    let (mut first_queue, mut first_step, mut ranks) = (vec![0], vec![0], Vec::new());
    for (rank, lengths) in (0..).zip(&queues) {
        if lengths.contains(&0) {
            return Err(wrong(schedule, "a queue has no step".to_owned()));
        }
        first_queue.push(first_queue[first_queue.len() - 1] + lengths.len() as u32);
        for &len in lengths {
            first_step.push(first_step[first_step.len() - 1] + len);
            ranks.push(rank);
        }
    }
    let mut order = vec![usize::MAX; schedule.steps.len()];
    for (nth, step) in schedule.steps.iter().enumerate() {
        let queue = (first_queue[step.rank as usize] + step.queue) as usize;
        let places = &mut order[first_step[queue] as usize..first_step[queue + 1] as usize];
        match places.get_mut(step.index as usize) {
            Some(place) if *place == usize::MAX => *place = nth,
            _ => return Err(wrong(schedule, format!("{} leaves a gap in its queue", name_of(step)))),
        }
    }
    let flat = Flat {
        world_size: schedule.world_size,
        tiles: 1,
        slice_bytes: 1,
        ranks,
        first_step,
        steps: Vec::with_capacity(schedule.steps.len() + schedule.world_size as usize),
        waits: Vec::new(),
        lengths: Vec::new(),
        last_chunk: 0,
        delays: vec![Delay::default()],
        signals: Vec::new(),
    };
    Ok((flat, first_queue, order))
}

/// Returns the number of steps of each queue of each rank.
fn lengths(schedule: &Schedule) -> Result<Vec<Vec<u32>>> {
    let n = schedule.world_size as usize;
    let mut lengths: Vec<Vec<u32>> = vec![Vec::new(); n];
    for step in &schedule.steps {
        if step.src.is_empty() || step.dst.is_empty() || step.views().any(|view| view.rank as usize >= n) {
            return Err(wrong(schedule, format!("{} has no source, no destination or no rank", name_of(step))));
        }
        let chunks = step.dst[0].chunks.len();
        if step.rank as usize >= n || step.views().any(|view| view.chunks.len() != chunks) {
            return Err(wrong(schedule, format!("{} has views of different lengths", name_of(step))));
        }
        let queues = &mut lengths[step.rank as usize];
        queues.resize(queues.len().max(step.queue as usize + 1), 0);
        queues[step.queue as usize] += 1;
    }
    Ok(lengths)
}

fn name_of(step: &Step) -> String {
    format!("r{}.q{}.{}", step.rank, step.queue, step.index)
}

pub(super) fn wrong(schedule: &Schedule, message: String) -> Error {
    Error::Schedule { schedule: schedule.title(), message }
}

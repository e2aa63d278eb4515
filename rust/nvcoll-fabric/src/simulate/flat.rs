//! A schedule as plain arrays: what the loop of a run reads, in the order in which queues read it.
//!
//! ```text
//! queue   0 .. of rank 0, then of rank 1, …; then one per rank for its leave, whose only step passes in the last tile
//! steps   all of queue 0, all of queue 1, …         12 bytes each: path, size, where its waits begin
//! waits   in the same order                         16 bytes each: queue, place in it, lag, latency of the signal
//! ```

use std::collections::HashMap;

use nvcoll_core::dtype::DType;
use nvcoll_core::partition::Partition;
use nvcoll_core::schedule::{Dependency, Event, Schedule, Step};

use super::ground::Ground;
use super::moves::{Moves, NOTHING};
use super::settings::Settings;
use crate::error::{Error, Result};
use crate::units::Ps;

/// A step.
#[derive(Clone, Copy)]
pub(super) struct FlatStep {
    pub(super) path: u32,
    pub(super) size: u32,
    first_wait: u32,
}

/// An event that a step waits for.
#[derive(Clone, Copy)]
pub(super) struct Wait {
    /// The queue; or, with [`ENTER`], the rank whose enter it is.
    pub(super) queue: u32,
    pub(super) index: u32,
    pub(super) lag: u32,
    /// Of which latency the signal is: a position in `signals`.
    pub(super) signal: u32,
}

/// The bit of [`Wait::queue`] that says enter.
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
    waits: Vec<Wait>,
    /// For each size, where its lengths begin and end.
    sizes: Vec<(u32, u32)>,
    /// Lengths of chunks in bytes, with how many are so long.
    lengths: Vec<(u64, u32)>,
    pub(super) signals: Vec<Ps>,
    /// For each queue, the longest signal by which another rank hears of its steps.
    pub(super) farthest: Vec<Ps>,
}

impl Flat {
    /// Flattens a schedule for one call.
    ///
    /// # Errors
    /// [`Error::Schedule`] for what cannot be numbered, and whatever [`Moves::path_of`] says.
    pub(super) fn of(
        schedule: &Schedule,
        partition: &Partition,
        dtype: DType,
        ground: &mut Ground,
        moves: &mut Moves,
        settings: &Settings,
    ) -> Result<Self> {
        let element = dtype.bytes() as u64;
        let slice_bytes = (settings.slice_bytes / element).max(1) * element;
        let lengths: Vec<u64> =
            (0..partition.chunks()).map(|chunk| partition.chunk_count(chunk) as u64 * element).collect();
        let tiles = lengths.iter().max().map_or(1, |longest| longest.div_ceil(slice_bytes).max(1));
        let tiles = u32::try_from(tiles).map_err(|_| wrong(schedule, format!("{tiles} tiles are too many")))?;
        let mut making = Making {
            schedule,
            lengths,
            queues: number(schedule)?,
            flat: Flat {
                world_size: schedule.world_size,
                tiles,
                slice_bytes,
                ranks: Vec::new(),
                first_step: vec![0],
                steps: Vec::with_capacity(schedule.steps.len() + schedule.world_size as usize),
                waits: Vec::new(),
                sizes: vec![(0, 0)],
                lengths: Vec::new(),
                signals: vec![0],
                farthest: Vec::new(),
            },
            sizes: HashMap::from([((0, 0), 0)]),
            alike: HashMap::from([(Vec::new(), 0)]),
            signals: HashMap::new(),
            classes: HashMap::from([(0, 0)]),
        };
        making.run(ground, moves, settings)?;
        Ok(making.flat)
    }

    /// Returns the number of queues, those of leaves too.
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

    /// Returns the number of a queue among those of its rank.
    pub(super) fn queue_of_rank(&self, queue: u32) -> u32 {
        let rank = self.ranks[queue as usize];
        queue - self.ranks[..queue as usize].partition_point(|&other| other < rank) as u32
    }

    #[inline]
    pub(super) fn step(&self, step: u32) -> FlatStep {
        self.steps[step as usize]
    }

    #[inline]
    pub(super) fn waits(&self, step: u32) -> &[Wait] {
        let end = self.steps.get(step as usize + 1).map_or(self.waits.len(), |next| next.first_wait as usize);
        &self.waits[self.steps[step as usize].first_wait as usize..end]
    }

    /// Returns the bytes of each view of a step in a tile.
    #[inline]
    pub(super) fn nbytes(&self, size: u32, tile: u32) -> u64 {
        let before = u64::from(tile) * self.slice_bytes;
        let slice =
            |&(length, count): &(u64, u32)| length.saturating_sub(before).min(self.slice_bytes) * u64::from(count);
        let (first, end) = self.sizes[size as usize];
        self.lengths[first as usize..end as usize].iter().map(slice).sum()
    }
}

/// The queues of a schedule: which are whose, and what is in them.
struct Numbered {
    /// For each rank its first queue; one more at the end.
    first_queue: Vec<u32>,
    /// For each queue, its steps as positions in the schedule.
    steps: Vec<Vec<u32>>,
}

struct Making<'a> {
    schedule: &'a Schedule,
    lengths: Vec<u64>,
    queues: Numbered,
    flat: Flat,
    /// Sizes by range of chunks, and by what they are made of.
    sizes: HashMap<(u32, u32), u32>,
    alike: HashMap<Vec<(u64, u32)>, u32>,
    /// Signals by pair of ranks, and by latency.
    signals: HashMap<(u32, u32), u32>,
    classes: HashMap<Ps, u32>,
}

impl Making<'_> {
    fn run(&mut self, ground: &mut Ground, moves: &mut Moves, settings: &Settings) -> Result<()> {
        let schedule = self.schedule;
        self.flat.farthest = vec![0; self.queues.steps.len() + schedule.world_size as usize];
        for rank in 0..schedule.world_size {
            for queue in self.queues.first_queue[rank as usize]..self.queues.first_queue[rank as usize + 1] {
                for at in 0..self.queues.steps[queue as usize].len() {
                    let step = &schedule.steps[self.queues.steps[queue as usize][at] as usize];
                    let path = moves.path_of(step, schedule, ground)?;
                    let size = self.size_of(step)?;
                    self.begin(path, size);
                    self.add_waits(rank, &step.after, ground, settings)?;
                }
                self.end_queue(rank);
            }
        }
        for rank in 0..schedule.world_size {
            self.begin(NOTHING, 0);
            for queue in self.queues.first_queue[rank as usize]..self.queues.first_queue[rank as usize + 1] {
                let index = self.queues.steps[queue as usize].len() as u32 - 1;
                self.flat.waits.push(Wait { queue, index, lag: 0, signal: 0 });
            }
            let leave = schedule.leave.get(rank as usize).map_or(&[][..], Vec::as_slice);
            self.add_waits(rank, leave, ground, settings)?;
            self.end_queue(rank);
        }
        Ok(())
    }

    fn begin(&mut self, path: u32, size: u32) {
        self.flat.steps.push(FlatStep { path, size, first_wait: self.flat.waits.len() as u32 });
    }

    fn end_queue(&mut self, rank: u32) {
        self.flat.ranks.push(rank);
        self.flat.first_step.push(self.flat.steps.len() as u32);
    }

    fn size_of(&mut self, step: &Step) -> Result<u32> {
        let chunks = &step.dst[0].chunks;
        if let Some(&size) = self.sizes.get(&(chunks.start, chunks.end)) {
            return Ok(size);
        }
        let lengths = self.lengths.get(chunks.start as usize..chunks.end as usize);
        let mut lengths = lengths
            .ok_or_else(|| wrong(self.schedule, format!("chunks {chunks:?} are not among {}", self.lengths.len())))?
            .to_vec();
        lengths.sort_unstable();
        let mut counted: Vec<(u64, u32)> = Vec::new();
        for length in lengths {
            match counted.last_mut() {
                Some((known, count)) if *known == length => *count += 1,
                _ => counted.push((length, 1)),
            }
        }
        let next = self.flat.sizes.len() as u32;
        let size = *self.alike.entry(counted.clone()).or_insert(next);
        if size == next {
            let first = self.flat.lengths.len() as u32;
            self.flat.lengths.extend(counted);
            self.flat.sizes.push((first, self.flat.lengths.len() as u32));
        }
        self.sizes.insert((chunks.start, chunks.end), size);
        Ok(size)
    }

    fn add_waits(&mut self, rank: u32, after: &[Dependency], ground: &mut Ground, settings: &Settings) -> Result<()> {
        for dependency in after {
            let signal = self.signal(dependency.rank, rank, ground, settings)?;
            let wait = match dependency.event {
                Event::Enter => Wait { queue: ENTER | dependency.rank, index: 0, lag: 0, signal },
                Event::Step { queue, index } => {
                    let number = self.queues.first_queue[dependency.rank as usize] + queue;
                    let is_there = number < self.queues.first_queue[dependency.rank as usize + 1]
                        && (index as usize) < self.queues.steps[number as usize].len();
                    if !is_there {
                        let name = format!("r{}.q{queue}.{index}", dependency.rank);
                        return Err(wrong(self.schedule, format!("rank {rank} waits for {name}, which is not there")));
                    }
                    let farthest = &mut self.flat.farthest[number as usize];
                    *farthest = self.flat.signals[signal as usize].max(*farthest);
                    Wait { queue: number, index, lag: dependency.lag, signal }
                }
            };
            self.flat.waits.push(wait);
        }
        Ok(())
    }

    fn signal(&mut self, from: u32, to: u32, ground: &mut Ground, settings: &Settings) -> Result<u32> {
        if from == to {
            return Ok(0);
        }
        if from >= self.schedule.world_size {
            return Err(wrong(self.schedule, format!("rank {to} waits for rank {from}, which is not there")));
        }
        if let Some(&class) = self.signals.get(&(from, to)) {
            return Ok(class);
        }
        let latency = settings.protocol.signal.of(ground.latency(from, to)?);
        let next = self.flat.signals.len() as u32;
        let class = *self.classes.entry(latency).or_insert(next);
        if class == next {
            self.flat.signals.push(latency);
        }
        self.signals.insert((from, to), class);
        Ok(class)
    }
}

fn number(schedule: &Schedule) -> Result<Numbered> {
    let n = schedule.world_size as usize;
    let mut lengths: Vec<Vec<u32>> = vec![Vec::new(); n];
    for step in &schedule.steps {
        if step.src.is_empty()
            || step.dst.is_empty()
            || step.views().chain([&step.dst[0]]).any(|v| v.rank as usize >= n)
        {
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
    let mut first_queue = vec![0];
    for queues in &lengths {
        first_queue.push(first_queue[first_queue.len() - 1] + queues.len() as u32);
    }
    let mut steps: Vec<Vec<u32>> = lengths.iter().flatten().map(|&len| vec![u32::MAX; len as usize]).collect();
    for (position, step) in schedule.steps.iter().enumerate() {
        let queue = &mut steps[(first_queue[step.rank as usize] + step.queue) as usize];
        match queue.get_mut(step.index as usize) {
            Some(place) if *place == u32::MAX => *place = position as u32,
            _ => return Err(wrong(schedule, format!("{} leaves a gap in its queue", name_of(step)))),
        }
    }
    if steps.iter().any(Vec::is_empty) {
        return Err(wrong(schedule, "a queue has no step".to_owned()));
    }
    Ok(Numbered { first_queue, steps })
}

fn name_of(step: &Step) -> String {
    format!("r{}.q{}.{}", step.rank, step.queue, step.index)
}

pub(super) fn wrong(schedule: &Schedule, message: String) -> Error {
    Error::Schedule { schedule: schedule.title(), message }
}

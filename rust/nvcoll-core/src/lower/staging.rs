//! The staged and the pushed path: values pass between ranks through staging, one chunk at a time.
//!
//! | path | a rank accesses | a value for another rank lies |
//! |---|---|---|
//! | staged | its own buffers, and every rank's staging | in the staging of the rank that has it, once for all readers |
//! | pushed | its own buffers and staging; it stores to every rank's staging and reads none of another | in the staging of each reader |
//!
//! ```text
//! output[r1].0 = input[r0].0 + input[r1].0                 r1 cannot read input[r0], so r0 stages it:
//! ──────────────────────────────────────────               staging0[r0].0 = input[r0].0                         pushed: staging0[r1].0
//!                                                          output[r1].0   = staging0[r0].0 + input[r1].0
//! output[r1].0, output[r0].0 = fold(…)                     r1 cannot write output[r0], so r0 fetches it:
//! ──────────────────────────────────────────               output[r1].0, staging0[r1].0 = fold(…)               pushed: staging0[r0].0
//!                                                          output[r0].0   = staging0[r1].0
//! ```
//!
//! Four rules apply in program order:
//! 1. A fold stays with its rank; the destination's rank executes a copy.
//! 2. A value that another rank reads is stored into staging, once for each place in the table. The step that writes the value does it;
//!    one separate step stages an input, just before its first reader.
//! 3. A fold for another rank alone stores to staging, and that rank copies the result from there.
//! 4. A destination that is overwritten before it is read is left out; on the pushed path so is scratch without readers.
//!
//! Each value crosses between ranks as often as in the mapped schedule, in the same direction. Staging has layers: layer k of chunk c
//! holds the k-th value of chunk c that the rank stages in one tile. Cost: linear in the chunks of all views, times channels.
//!
//! **Staged.** Bytes per rank for nvswitch: 4 N (n-1)/n to publish and to fetch, (1 + 2/n) N to fold, 4 to 5 N in total. Source: the
//! movement-avoiding two-shot of shared-memory MPI libraries (Peng et al., "Optimizing MPI collectives on shared memory multi-cores",
//! 2023), derived here for any program.
//!
//! **Pushed.** NCCL runs in this way (protocol Simple over peer-to-peer memory). Each step becomes one of its primitives:
//!
//! | NCCL | step |
//! |---|---|
//! | send | own memory into staging of another rank |
//! | recv | own staging into own memory |
//! | recvReduceSend, recvReduceCopy, recvReduceCopySend | a fold of own staging with own memory: into staging of another rank, into own memory, into both |
//! | recvCopySend | own staging into own memory and staging of another rank |
//!
//! *FIFO.* The number of slots of staging is the depth of the FIFO. A step that stores into a slot waits for the readers of that
//! slot `depth` tiles ago. These waits with a lag are NCCL's head and tail counters. NCCL's depth is 8 (`NCCL_STEPS`).
//!
//! *Channels.* Every chunk is divided into one slice per channel. The algorithm runs once on each slice, in separate queues.
//! Chunk boundaries stay the same, so results are bitwise identical for any number of channels.
//!
//! The schedule does not contain NCCL's slice, the unit of bytes that NCCL sends and signals. Here the unit is the tile, which a run
//! chooses.
//!
//! *Departures from NCCL.* NCCL has a FIFO per connection, and values pass through it one after another. Here every value has slots
//! of its own. A sender can therefore be further ahead, and staging is larger: the depth times the values that a rank receives in
//! one tile. A channel has up to three queues (send, fold, copy) instead of one block. A rank waits for the *enter* of its
//! receivers. All channels use the same ring or tree, while NCCL rotates it. Source: NCCL, `src/device/prims_simple.h` and
//! `src/include/device.h`; derived here for any program.

use std::collections::HashMap;

use crate::builder::MAX_CHANNELS;
use crate::depend::{derive, Draft};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::limits::most_chunks;
use crate::schedule::{Buffer, Path, Schedule, View, MAX_SLOTS};
use crate::size::Size;

/// The FIFOs through which ranks push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fifo {
    /// The number of channels: independent slices of every chunk, each with its own queues.
    pub channels: u32,
    /// The number of slots of staging, from 1 to [`MAX_SLOTS`]: the largest number of tiles in transit between two ranks.
    pub slots: u32,
}

/// One chunk of one buffer of one rank.
type SingleChunk = (u32, Buffer, u32);

/// The value of a chunk during lowering.
#[derive(Default)]
struct LoweredValue {
    /// The draft that wrote the chunk, if a draft did.
    writer: Option<usize>,
    /// The draft that stores the value into staging: its writer, or a step that sends it.
    sender: Option<usize>,
    /// Whether a step has read the chunk since.
    is_read: bool,
    /// The copies of the value in staging.
    copies: Vec<SingleChunk>,
}

struct Lowering<'a> {
    schedule: &'a Schedule,
    path: Path,
    drafts: Vec<Draft<View>>,
    values: HashMap<SingleChunk, LoweredValue>,
    /// The number of staging layers in use, for each rank and chunk.
    layers: HashMap<(u32, u32), u16>,
}

/// Rewrites a mapped schedule for the staged or the pushed path.
pub(super) fn lower(schedule: &Schedule, path: Path, fifo: Fifo, interrupt: &Interrupt) -> Result<Schedule> {
    check_fifo(schedule, fifo)?;
    check_size(schedule, path, fifo.channels)?;
    let (values, layers) = (HashMap::new(), HashMap::new());
    let mut lowering = Lowering { schedule, path, drafts: Vec::new(), values, layers };
    for step in &schedule.steps {
        let views = step.src.len() + step.dst.len();
        interrupt.check(1 + views * step.dst[0].chunks.len())?;
        for (nth, slice) in
            (0..step.dst[0].chunks.len() as u32).flat_map(|nth| (0..fifo.channels).map(move |s| (nth, s)))
        {
            let chunk = |view: &View| (view.chunks.start + nth) * fifo.channels + slice;
            let one = |view: &View| -> SingleChunk { (view.rank, view.buffer, chunk(view)) };
            let src: Vec<SingleChunk> = step.src.iter().map(|s| one(&s.view)).collect();
            let dst: Vec<SingleChunk> = step.dst.iter().map(one).collect();
            let channel = step.queue * fifo.channels + slice;
            if step.is_fold() {
                lowering.fold(step.rank, channel, &src, &dst);
            } else {
                lowering.copy(channel, src[0], &dst);
            }
        }
    }
    let mut lowered = schedule.without_steps();
    (lowered.path, lowered.slots) = (path, fifo.slots);
    lowered.chunks_per_part *= fifo.channels;
    derive(lowered, lowering.finish(), interrupt)
}

/// Checks the bounds of a FIFO.
fn check_fifo(schedule: &Schedule, Fifo { channels, slots }: Fifo) -> Result<()> {
    if !(1..=MAX_SLOTS).contains(&slots) {
        return Err(Error::Build(format!("a FIFO of {slots} slots: from 1 to {MAX_SLOTS} are possible")));
    }
    let queues = schedule.steps.iter().map(|step| step.queue + 1).max().unwrap_or(1);
    let most = (MAX_CHANNELS / queues).max(1);
    if !(1..=most).contains(&channels) {
        return Err(Error::Build(format!("{channels} channels: from 1 to {most} are possible on {queues} queues")));
    }
    let most = most_chunks(schedule.collective.parts(schedule.roles()));
    match u64::from(schedule.chunks()) * u64::from(channels) <= most {
        true => Ok(()),
        false => Err(Error::Build(format!(
            "{channels} channels cut {} chunks: use fewer, all may be {most}",
            schedule.chunks()
        ))),
    }
}

/// Checks the least size of the result: at least one step for each chunk of each step, in each channel.
fn check_size(schedule: &Schedule, path: Path, channels: u32) -> Result<()> {
    let mut size = Size::default();
    for step in &schedule.steps {
        let times = step.dst[0].chunks.len() as u64 * u64::from(channels);
        size.steps += times;
        size.views += times * (step.src.len() + step.dst.len()) as u64;
    }
    size.check(|| format!("{}, lowered to {} one chunk at a time,", schedule.title(), path.name()))
}

impl Lowering<'_> {
    /// Rule 1: one copy per receiving rank.
    fn copy(&mut self, channel: u32, src: SingleChunk, dst: &[SingleChunk]) {
        for (rank, own) in by_rank(dst) {
            let from = self.delivered(rank, channel, src);
            self.emit(rank, channel, &[from], &own);
        }
    }

    /// Rules 1 and 3: the fold stores to its own rank or to staging, and other ranks copy the result from staging.
    fn fold(&mut self, rank: u32, channel: u32, src: &[SingleChunk], dst: &[SingleChunk]) {
        let from: Vec<SingleChunk> = src.iter().map(|&place| self.delivered(rank, channel, place)).collect();
        let (own, others): (Vec<SingleChunk>, Vec<SingleChunk>) = dst.iter().partition(|place| place.0 == rank);
        let fold = self.emit(rank, channel, &from, &own);
        if let Some(&kept) = own.first() {
            return self.copy(channel, kept, &others);
        }
        let mut copies: Vec<SingleChunk> = Vec::new();
        for (other, its) in by_rank(&others) {
            let home = self.home(rank, other);
            let known = copies.iter().copied().find(|copy| copy.0 == home);
            let staging = known.unwrap_or_else(|| self.stage(fold, home, its[0].2));
            copies.push(staging);
            self.emit(other, channel, &[staging], &its);
        }
    }

    /// Rule 2: returns the chunk in which `rank` can read a value.
    fn delivered(&mut self, rank: u32, channel: u32, place: SingleChunk) -> SingleChunk {
        if place.0 == rank {
            return place;
        }
        let (key, home) = (self.memory(place), self.home(place.0, rank));
        let value = self.values.entry(key).or_default();
        if let Some(&copy) = value.copies.iter().find(|copy| copy.0 == home) {
            return copy;
        }
        let sender = value.sender.unwrap_or_else(|| self.emit(place.0, channel, &[place], &[]));
        let staging = self.stage(sender, home, place.2);
        let value = self.values.entry(key).or_default();
        value.sender = Some(sender);
        value.copies.push(staging);
        staging
    }

    /// Returns the rank in whose staging a value of `owner` lies for `reader`.
    fn home(&self, owner: u32, reader: u32) -> u32 {
        if self.path == Path::Staged {
            owner
        } else {
            reader
        }
    }

    /// Lets a draft store its value into the next layer of a chunk in the staging of a rank.
    fn stage(&mut self, draft: usize, home: u32, chunk: u32) -> SingleChunk {
        let layers = self.layers.entry((home, chunk)).or_default();
        *layers += 1;
        let staging = (home, Buffer::Staging(*layers - 1), chunk);
        self.drafts[draft].dst.push(view_of(staging));
        staging
    }

    /// Appends a step with destinations on its own rank, drops destinations that it overwrites unread, and returns its position.
    fn emit(&mut self, rank: u32, channel: u32, src: &[SingleChunk], own: &[SingleChunk]) -> usize {
        for &place in src.iter().filter(|place| !place.1.is_staging()) {
            self.values.entry(self.memory(place)).or_default().is_read = true;
        }
        let position = self.drafts.len();
        for &place in own {
            let key = self.memory(place);
            let fresh = LoweredValue { writer: Some(position), sender: Some(position), ..LoweredValue::default() };
            if let Some(before) = self.values.insert(key, fresh) {
                self.drop_unread(key, &before);
            }
        }
        let (src, dst) = (src.iter().copied().map(view_of).collect(), own.iter().copied().map(view_of).collect());
        self.drafts.push(Draft { rank, channel, src, dst, at_switch: false });
        position
    }

    /// Rule 4: drops a destination that no step reads.
    fn drop_unread(&mut self, key: SingleChunk, value: &LoweredValue) {
        if let LoweredValue { writer: Some(writer), is_read: false, .. } = *value {
            let mut views = std::mem::take(&mut self.drafts[writer].dst);
            views.retain(|view| self.memory((view.rank, view.buffer, view.chunks.start)) != key);
            self.drafts[writer].dst = views;
        }
    }

    fn finish(mut self) -> Vec<Draft<View>> {
        if self.path == Path::Pushed {
            let values = std::mem::take(&mut self.values);
            for (&key, value) in values.iter().filter(|(key, _)| matches!(key.1, Buffer::Scratch(_))) {
                self.drop_unread(key, value);
            }
        }
        self.drafts.retain(|draft| !draft.dst.is_empty());
        self.drafts
    }

    /// Returns the chunk that stands for its memory: in place, the input and the output are the same memory.
    fn memory(&self, (rank, buffer, chunk): SingleChunk) -> SingleChunk {
        (rank, buffer.memory(self.schedule.aliasing), chunk)
    }
}

fn view_of((rank, buffer, chunk): SingleChunk) -> View {
    View { rank, buffer, chunks: chunk..chunk + 1 }
}

/// Groups chunks by their rank, in the order in which the ranks first occur.
fn by_rank(places: &[SingleChunk]) -> Vec<(u32, Vec<SingleChunk>)> {
    let mut ranks: Vec<(u32, Vec<SingleChunk>)> = Vec::new();
    for &place in places {
        match ranks.iter_mut().find(|(rank, _)| *rank == place.0) {
            Some((_, own)) => own.push(place),
            None => ranks.push((place.0, vec![place])),
        }
    }
    ranks
}

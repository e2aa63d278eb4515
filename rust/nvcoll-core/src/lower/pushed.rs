//! The pushed path: a rank accesses its own memory and stores into every rank's staging. It never reads another rank's memory.
//!
//! ```text
//! output[r1].0 = input[r0].0 + input[r1].0                 r1 cannot read input[r0], so r0 sends it:
//! ──────────────────────────────────────────               staging0[r1].0 = input[r0].0
//!                                                          output[r1].0   = staging0[r1].0 + input[r1].0
//! output[r0].0 = output[r1].0                              r1 keeps what it folds and passes it on, in one step:
//! ──────────────────────────────────────────               output[r1].0, staging0[r0].0 = staging0[r1].0 + input[r1].0
//!                                                          output[r0].0   = staging0[r0].0
//! ```
//!
//! NCCL runs in this way (protocol Simple over peer-to-peer memory). Each step becomes one of its primitives:
//!
//! | NCCL | step |
//! |---|---|
//! | send | own memory into staging of another rank |
//! | recv | own staging into own memory |
//! | recvReduceSend, recvReduceCopy, recvReduceCopySend | a fold of own staging with own memory: into staging of another rank, into own memory, into both |
//! | recvCopySend | own staging into own memory and staging of another rank |
//!
//! Four rules apply in program order, one chunk at a time:
//! 1. A fold stays with its rank; the destination's rank executes a copy.
//! 2. A value that another rank reads is stored into the reader's staging, once for each reader. The step that writes the value
//!    does it; one separate step sends an input to all its readers.
//! 3. A fold stores a result for another rank into that rank's staging; that rank copies it from there.
//! 4. A destination that is overwritten before it is read is left out, and so is scratch without readers.
//!
//! **FIFO.** The number of slots of staging is the depth of the FIFO. A step that stores into a slot waits for the readers of that
//! slot `depth` tiles ago. These waits with a lag are NCCL's head and tail counters. NCCL's depth is 8 (`NCCL_STEPS`).
//!
//! **Channels.** Every chunk is divided into one slice per channel. The algorithm runs once on each slice, in separate queues.
//! Chunk boundaries stay the same, so results are bitwise identical for any number of channels.
//!
//! The schedule does not contain NCCL's slice, the unit of bytes that NCCL sends and signals. Here the unit is the tile, which a run
//! chooses.
//!
//! **Departures from NCCL.** NCCL has a FIFO per connection, and values pass through it one after another. Here every value has slots
//! of its own. A sender can therefore be further ahead, and staging is larger: the depth times the values that a rank receives in
//! one tile. A channel has up to three queues (send, fold, copy) instead of one block. A rank waits for the *enter* of its
//! receivers. All channels use the same ring or tree, while NCCL rotates it.
//!
//! Each value crosses between ranks as often as in the mapped schedule, in the same direction. Cost: linear in the chunks of all
//! views, times channels. Source: NCCL, `src/device/prims_simple.h` and `src/include/device.h`; derived here for any
//! program.

use std::collections::HashMap;

use super::single_chunk::{check_size, chunk_of, memory, view_of, Layers, SingleChunk};
use crate::builder::MAX_CHANNELS;
use crate::depend::{derive, Draft, Frame};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::limits::most_chunks;
use crate::schedule::{Buffer, Path, Schedule, View, MAX_SLOTS};

/// The FIFOs through which ranks push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fifo {
    /// The number of channels: independent slices of every chunk, each with its own queues.
    pub channels: u32,
    /// The number of slots of staging, from 1 to [`MAX_SLOTS`]: the largest number of tiles in transit between two ranks.
    pub slots: u32,
}

/// The state of a chunk during lowering.
#[derive(Default)]
struct PushedChunk {
    /// The draft that wrote the chunk, if a draft did.
    writer: Option<usize>,
    /// The draft that stores the value into staging: its writer, or a step that sends it.
    sender: Option<usize>,
    /// Whether its own rank has read the chunk since.
    is_read: bool,
    /// The copies of the value in staging of other ranks.
    copies: Vec<SingleChunk>,
}

struct PushedLowering<'a> {
    schedule: &'a Schedule,
    drafts: Vec<Draft>,
    contents: HashMap<SingleChunk, PushedChunk>,
    layers: Layers,
}

pub(super) fn lower(schedule: &Schedule, fifo: Fifo, interrupt: &Interrupt) -> Result<Schedule> {
    let chunks_per_part = check(schedule, fifo)?;
    check_size(schedule, Path::Pushed, fifo.channels)?;
    let mut lowering =
        PushedLowering { schedule, drafts: Vec::new(), contents: HashMap::new(), layers: Layers::default() };
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
    let frame = Frame {
        collective: schedule.collective,
        algorithm: schedule.algorithm.clone(),
        roles: schedule.roles(),
        chunks_per_part,
        path: Path::Pushed,
        slots: fifo.slots,
        aliasing: schedule.aliasing,
    };
    derive(frame, lowering.finish(), interrupt)
}

/// Checks the bounds of a FIFO, and returns the number of chunks per part of the result.
fn check(schedule: &Schedule, Fifo { channels, slots }: Fifo) -> Result<u32> {
    if !(1..=MAX_SLOTS).contains(&slots) {
        return Err(Error::Build(format!("a FIFO of {slots} slots: from 1 to {MAX_SLOTS} are possible")));
    }
    let queues = schedule.steps.iter().map(|step| step.queue + 1).max().unwrap_or(1);
    let most = (MAX_CHANNELS / queues).max(1);
    if !(1..=most).contains(&channels) {
        return Err(Error::Build(format!("{channels} channels: from 1 to {most} are possible on {queues} queues")));
    }
    let (per_part, most) = (schedule.chunks_per_part, most_chunks(schedule.collective.parts(schedule.roles())));
    match u64::from(schedule.chunks()) * u64::from(channels) <= most {
        true => Ok(per_part * channels),
        false => Err(Error::Build(format!(
            "{channels} channels cut {} chunks: use fewer, all may be {most}",
            schedule.chunks()
        ))),
    }
}

impl PushedLowering<'_> {
    /// Rule 1: one copy per receiving rank.
    fn copy(&mut self, channel: u32, src: SingleChunk, dst: &[SingleChunk]) {
        for (rank, own) in by_rank(dst) {
            let from = self.delivered(rank, channel, src);
            self.emit(rank, channel, &[from], &own);
        }
    }

    /// Rule 3: the fold stores to its own rank and to staging of other ranks, which copy the result from there.
    fn fold(&mut self, rank: u32, channel: u32, src: &[SingleChunk], dst: &[SingleChunk]) {
        let from: Vec<SingleChunk> = src.iter().map(|&place| self.delivered(rank, channel, place)).collect();
        let (own, others): (Vec<SingleChunk>, Vec<SingleChunk>) = dst.iter().partition(|place| place.0 == rank);
        let fold = self.emit(rank, channel, &from, &own);
        if let Some(&kept) = own.first() {
            return self.copy(channel, kept, &others);
        }
        for (other, its) in by_rank(&others) {
            let staging = self.layers.fresh(other, its[0].2);
            self.drafts[fold].dst.push(view_of(staging));
            self.emit(other, channel, &[staging], &its);
        }
    }

    /// Rule 2: returns the chunk in which `rank` has a value in its own memory.
    fn delivered(&mut self, rank: u32, channel: u32, place: SingleChunk) -> SingleChunk {
        if place.0 == rank {
            return place;
        }
        let key = memory(self.schedule, place);
        let content = self.contents.entry(key).or_default();
        if let Some(&copy) = content.copies.iter().find(|copy| copy.0 == rank) {
            return copy;
        }
        let staging = self.layers.fresh(rank, place.2);
        content.copies.push(staging);
        match content.sender {
            Some(sender) => self.drafts[sender].dst.push(view_of(staging)),
            None => {
                let sender = self.emit(place.0, channel, &[place], &[]);
                self.drafts[sender].dst.push(view_of(staging));
                self.contents.entry(key).or_default().sender = Some(sender);
            }
        }
        staging
    }

    /// Appends a step with destinations on its own rank, drops destinations that it overwrites unread, and returns its position.
    fn emit(&mut self, rank: u32, channel: u32, src: &[SingleChunk], own: &[SingleChunk]) -> usize {
        for &place in src.iter().filter(|place| !place.1.is_staging()) {
            self.contents.entry(memory(self.schedule, place)).or_default().is_read = true;
        }
        let position = self.drafts.len();
        for &place in own {
            let key = memory(self.schedule, place);
            let fresh = PushedChunk { writer: Some(position), sender: Some(position), ..PushedChunk::default() };
            if let Some(before) = self.contents.insert(key, fresh) {
                self.drop_unread(key, &before);
            }
        }
        let (src, dst) = (src.iter().copied().map(view_of).collect(), own.iter().copied().map(view_of).collect());
        self.drafts.push(Draft { rank, channel, src, dst, at_switch: false });
        position
    }

    /// Rule 4: drops a destination that no step reads.
    fn drop_unread(&mut self, key: SingleChunk, content: &PushedChunk) {
        if let PushedChunk { writer: Some(writer), is_read: false, .. } = *content {
            let schedule = self.schedule;
            self.drafts[writer].dst.retain(|view| memory(schedule, chunk_of(view)) != key);
        }
    }

    fn finish(mut self) -> Vec<Draft> {
        let contents = std::mem::take(&mut self.contents);
        for (&key, content) in contents.iter().filter(|(key, _)| matches!(key.1, Buffer::Scratch(_))) {
            self.drop_unread(key, content);
        }
        self.drafts.retain(|draft| !draft.dst.is_empty());
        self.drafts
    }
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

//! The pushed path: a rank touches its own memory, and stores into anybody's staging. It never reads another rank's.
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
//! This is how NCCL runs (protocol Simple over peer-to-peer memory): its primitives are what the steps become.
//!
//! | NCCL | step |
//! |---|---|
//! | send | own memory into staging of another |
//! | recv | own staging into own memory |
//! | recvReduceSend, recvReduceCopy, recvReduceCopySend | a fold of own staging with own memory: into staging of another, own memory, both |
//! | recvCopySend | own staging into own memory and staging of another |
//!
//! Four rules, applied in program order, one chunk at a time:
//! 1. A step is executed by the rank that was to execute it, a copy by the rank that receives it.
//! 2. A value that another rank reads is stored into that rank's staging by the step that made it, or, if it is an input, by a
//!    step of its own that sends it: one step for all ranks that read it. Once for each of these.
//! 3. What a fold stores to another rank goes into that rank's staging, from where that rank copies it.
//! 4. A destination that is overwritten before anyone reads it is left out, and so is scratch that nobody reads.
//!
//! **FIFO.** Staging has as many slots as the FIFO is deep. A step that stores into a slot waits for those who read it `depth`
//! tiles ago: NCCL's head and tail counters, as waits with a lag. A depth of 8 is NCCL's (`NCCL_STEPS`).
//!
//! **Channels.** Every chunk is cut into as many slices as there are channels, and the algorithm runs once on each, in queues
//! of its own. Chunks begin where they did, so channels change no bits.
//!
//! What is not in the schedule: NCCL's slice, the bytes that are sent and signalled at a time. Here that is the tile, which
//! belongs to a run and not to a schedule.
//!
//! **Departures from NCCL.** A FIFO of NCCL is of one connection and holds the values that pass over it one after the other;
//! here every value has slots of its own, so a sender can be further ahead and staging is larger: depth times the values that
//! a rank receives in one tile. A channel has up to three queues (send, fold, copy), where NCCL has one block. A rank waits for
//! the *enter* of those to whom it sends. All channels have the ring or tree of the algorithm, where NCCL turns it.
//!
//! Each value crosses from rank to rank as often as in the mapped schedule, in the same direction. Cost: linear in the chunks
//! of all views, times channels. Source: NCCL, `src/device/prims_simple.h` and `src/include/device.h`; derived here for any
//! program.

use std::collections::HashMap;

use super::check_size;
use super::single_chunk::{chunk_of, memory, view_of, Layers, SingleChunk};
use crate::builder::MAX_CHANNELS;
use crate::depend::{derive, Draft, Frame};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::limits::most_chunks;
use crate::schedule::{Buffer, Path, Schedule, View, MAX_SLOTS};

/// How ranks push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fifo {
    /// How many independent slices of every chunk there are, each with queues of its own.
    pub channels: u32,
    /// How many slots staging has, from 1 to [`MAX_SLOTS`]: tiles that can be under way from one rank to another.
    pub slots: u32,
}

/// What is known of a place while the program is rewritten.
#[derive(Default)]
struct PushedChunk {
    /// The draft that wrote it, if any did.
    writer: Option<usize>,
    /// The draft that stores the same value into staging: its writer, or a step that sends it.
    sender: Option<usize>,
    /// Whether its own rank has read it since.
    is_read: bool,
    /// Where other ranks have the same value.
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

/// Checks the bounds of a FIFO, and returns into how many chunks it has each part cut.
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

    /// Rule 3: the fold stores to itself and to staging of others, who copy it from there.
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

    /// Rule 2: where `rank` has the value of a place in memory of its own.
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

    /// Appends a step of a rank with its own destinations, drops what they overwrite unread, and returns its position.
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

    /// Rule 4: nobody has read what a draft wrote to a place, and nobody will.
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

/// Places by the rank whose they are, in the order in which ranks are first named.
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

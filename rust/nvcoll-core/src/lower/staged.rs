//! The staged path: a rank accesses its own buffers and every rank's staging.
//!
//! ```text
//! output[r1].0 = input[r0].0 + input[r1].0                 r1 cannot read input[r0], so r0 publishes it:
//! ──────────────────────────────────────────               staging0[r0].0 = input[r0].0
//!                                                          output[r1].0   = staging0[r0].0 + input[r1].0
//! output[r1].0, output[r0].0 = fold(…)                     r1 cannot write output[r0], so r0 fetches it:
//! ──────────────────────────────────────────               output[r1].0, staging0[r1].0 = fold(…)
//!                                                          output[r0].0   = staging0[r1].0
//! ```
//!
//! Four rules apply in program order, one chunk at a time:
//! 1. The destination's rank executes a copy.
//! 2. A fold into another rank's buffer stays with its rank, which keeps the result; the other rank copies it.
//! 3. The rank that has a value stages it for its readers, once per value. The step that writes the value stores it to staging as
//!    well; an input is published by a step of its own, just before the first read.
//! 4. A destination that is overwritten before it is read is left out.
//!
//! So a rank stages a chunk only if another rank reads it. Bytes per rank for nvswitch: 4 N (n-1)/n to publish and to fetch,
//! (1 + 2/n) N to fold, 4 to 5 N in total. Staging has layers: layer k of chunk c holds the k-th value of chunk c that the rank
//! stages in one tile. Source: the movement-avoiding two-shot of shared-memory MPI libraries
//! (Peng et al., "Optimizing MPI collectives on shared memory multi-cores", 2023), derived here for any program.

use std::collections::HashMap;

use super::single_chunk::{chunk_of, memory, view_of, Layers, SingleChunk};
use crate::depend::{derive, Draft, Frame};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::schedule::{Buffer, Path, Schedule, View};

/// The state of a chunk during lowering.
#[derive(Clone, Copy, Default)]
struct StagedChunk {
    /// The draft that wrote the chunk, if a draft did.
    writer: Option<usize>,
    /// Whether a step has read the chunk since.
    is_read: bool,
    /// The staging layer that holds the same value.
    layer: Option<u16>,
}

struct StagedLowering<'a> {
    schedule: &'a Schedule,
    drafts: Vec<Draft>,
    contents: HashMap<SingleChunk, StagedChunk>,
    layers: Layers,
}

pub(super) fn lower(schedule: &Schedule, interrupt: &Interrupt) -> Result<Schedule> {
    let mut lowering =
        StagedLowering { schedule, drafts: Vec::new(), contents: HashMap::new(), layers: Layers::default() };
    for step in &schedule.steps {
        let views = step.src.len() + step.dst.len();
        interrupt.check(1 + views * step.dst[0].chunks.len())?;
        for nth in 0..step.dst[0].chunks.len() as u32 {
            let one = |view: &View| -> SingleChunk { (view.rank, view.buffer, view.chunks.start + nth) };
            let src: Vec<SingleChunk> = step.src.iter().map(|s| one(&s.view)).collect();
            let dst: Vec<SingleChunk> = step.dst.iter().map(one).collect();
            if step.is_fold() {
                lowering.fold(step.rank, step.queue, &src, &dst);
            } else {
                lowering.copy(step.queue, src[0], &dst);
            }
        }
    }
    let mut drafts = lowering.drafts;
    drafts.retain(|draft| !draft.dst.is_empty());
    let frame = Frame {
        collective: schedule.collective,
        algorithm: schedule.algorithm.clone(),
        roles: schedule.roles(),
        chunks_per_part: schedule.chunks_per_part,
        path: Path::Staged,
        slots: Path::Staged.slots(),
        aliasing: schedule.aliasing,
    };
    derive(frame, drafts, interrupt)
}

impl StagedLowering<'_> {
    /// Rule 1: one copy per receiving rank.
    fn copy(&mut self, channel: u32, src: SingleChunk, dst: &[SingleChunk]) {
        let mut ranks: Vec<u32> = dst.iter().map(|place| place.0).collect();
        ranks.dedup();
        for rank in ranks {
            let own: Vec<SingleChunk> = dst.iter().copied().filter(|place| place.0 == rank).collect();
            let from = self.reachable(rank, channel, src);
            self.emit(rank, channel, &[from], &own);
        }
    }

    /// Rule 2: the fold on its own rank, then one copy per other rank.
    fn fold(&mut self, rank: u32, channel: u32, src: &[SingleChunk], dst: &[SingleChunk]) {
        let from: Vec<SingleChunk> = src.iter().map(|&place| self.reachable(rank, channel, place)).collect();
        let (own, others): (Vec<SingleChunk>, Vec<SingleChunk>) = dst.iter().partition(|place| place.0 == rank);
        let result = match own.first() {
            Some(&first) => first,
            None => self.layers.fresh(rank, dst[0].2),
        };
        self.emit(rank, channel, &from, if own.is_empty() { std::slice::from_ref(&result) } else { &own });
        self.copy(channel, result, &others);
    }

    /// Rule 3: returns the chunk in which `rank` can read a value.
    fn reachable(&mut self, rank: u32, channel: u32, place: SingleChunk) -> SingleChunk {
        let (owner, buffer, chunk) = place;
        if owner == rank || buffer.is_staging() {
            return place;
        }
        let key = self.memory_of(place);
        let content = self.contents.entry(key).or_default();
        if let Some(layer) = content.layer {
            return (owner, Buffer::Staging(layer), chunk);
        }
        let writer = content.writer.filter(|&writer| self.drafts[writer].rank == owner);
        let staging = self.layers.fresh(owner, chunk);
        match writer {
            Some(writer) => {
                self.drafts[writer].dst.push(view_of(staging));
                self.contents.insert(staging, StagedChunk { writer: Some(writer), is_read: true, layer: None });
            }
            None => self.emit(owner, channel, &[place], &[staging]),
        }
        if let Buffer::Staging(layer) = staging.1 {
            self.contents.entry(key).or_default().layer = Some(layer);
        }
        staging
    }

    /// Appends a step, and drops destinations that it overwrites unread (rule 4).
    fn emit(&mut self, rank: u32, channel: u32, src: &[SingleChunk], dst: &[SingleChunk]) {
        for &place in src {
            self.contents.entry(self.memory_of(place)).or_default().is_read = true;
        }
        let position = self.drafts.len();
        for &place in dst {
            let key = self.memory_of(place);
            let before = self.contents.insert(key, StagedChunk { writer: Some(position), is_read: false, layer: None });
            if let Some(StagedChunk { writer: Some(writer), is_read: false, .. }) = before {
                let schedule = self.schedule;
                self.drafts[writer].dst.retain(|view| memory(schedule, chunk_of(view)) != key);
            }
        }
        let (src, dst) = (src.iter().copied().map(view_of).collect(), dst.iter().copied().map(view_of).collect());
        self.drafts.push(Draft { rank, channel, src, dst, at_switch: false });
    }

    fn memory_of(&self, place: SingleChunk) -> SingleChunk {
        memory(self.schedule, place)
    }
}

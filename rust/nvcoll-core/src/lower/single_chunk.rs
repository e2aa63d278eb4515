//! Single chunks of buffers, which lowerings rewrite, and the free layers of staging.

use std::collections::HashMap;

use crate::error::Result;
use crate::schedule::{Buffer, Path, Schedule, View};
use crate::size::Size;

/// One chunk of one buffer of one rank.
pub(super) type SingleChunk = (u32, Buffer, u32);

/// Returns the chunk that stands for its memory: in place, the input and the output are the same memory.
pub(super) fn memory(schedule: &Schedule, (rank, buffer, chunk): SingleChunk) -> SingleChunk {
    (rank, buffer.memory(schedule.aliasing), chunk)
}

pub(super) fn view_of((rank, buffer, chunk): SingleChunk) -> View {
    View { rank, buffer, chunks: chunk..chunk + 1 }
}

pub(super) fn chunk_of(view: &View) -> SingleChunk {
    (view.rank, view.buffer, view.chunks.start)
}

/// The number of staging layers in use, for each rank and chunk.
#[derive(Default)]
pub(super) struct Layers(HashMap<(u32, u32), u16>);

impl Layers {
    /// Takes the next layer of a chunk in the staging of a rank.
    pub(super) fn fresh(&mut self, rank: u32, chunk: u32) -> SingleChunk {
        let layers = self.0.entry((rank, chunk)).or_default();
        *layers += 1;
        (rank, Buffer::Staging(*layers - 1), chunk)
    }
}

/// Checks the least size of the result: a lowering writes at least one step for each chunk of each step, in each channel.
pub(super) fn check_size(schedule: &Schedule, path: Path, channels: u32) -> Result<()> {
    let mut size = Size::default();
    for step in &schedule.steps {
        let times = step.dst[0].chunks.len() as u64 * u64::from(channels);
        size.steps += times;
        size.views += times * (step.src.len() + step.dst.len()) as u64;
    }
    size.check(|| format!("{}, lowered to {} one chunk at a time,", schedule.title(), path.name()))
}

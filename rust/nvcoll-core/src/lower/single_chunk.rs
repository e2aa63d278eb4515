//! Single chunks of buffers, which lowerings rewrite, and the free layers of staging.

use std::collections::HashMap;

use crate::schedule::{Buffer, Schedule, View};

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

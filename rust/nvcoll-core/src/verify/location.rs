//! What the verifier points at: steps, leaves, chunks of memory, and what is done to them.

use crate::schedule::{Buffer, View};

/// The name of a step: `r0.q1.3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepName {
    /// The rank that executes it.
    pub rank: u32,
    /// Its queue.
    pub queue: u32,
    /// Its place in the queue.
    pub index: u32,
}

impl std::fmt::Display for StepName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "r{}.q{}.{}", self.rank, self.queue, self.index)
    }
}

/// A place of a schedule that can wait: a step, or the leave of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Waiter {
    /// A step.
    Step(StepName),
    /// The leave of a rank.
    Leave(u32),
}

impl std::fmt::Display for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Waiter::Step(step) => step.fmt(f),
            Waiter::Leave(rank) => write!(f, "leave r{rank}"),
        }
    }
}

/// One chunk of one buffer of one rank: `input[r0].2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BufferChunk {
    /// Whose memory.
    pub rank: u32,
    /// Which buffer.
    pub buffer: Buffer,
    /// Which chunk.
    pub chunk: u32,
}

impl BufferChunk {
    pub(super) fn of(view: &View, chunk: u32) -> Self {
        Self { rank: view.rank, buffer: view.buffer, chunk }
    }
}

impl std::fmt::Display for BufferChunk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}[r{}].{}", self.buffer, self.rank, self.chunk)
    }
}

/// What a step does to a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// It folds or copies from it.
    Reads,
    /// It stores to it.
    Writes,
}

impl std::fmt::Display for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Access::Reads => "reads",
            Access::Writes => "writes",
        })
    }
}

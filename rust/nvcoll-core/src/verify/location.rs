//! The locations that a violation names: steps, leaves and chunks of memory, and the access to a chunk.

use crate::schedule::{Buffer, View};

/// The name of a step, printed as `r0.q1.3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepName {
    /// The rank that executes the step.
    pub rank: u32,
    /// The queue of the step.
    pub queue: u32,
    /// The position in the queue.
    pub index: u32,
}

impl std::fmt::Display for StepName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "r{}.q{}.{}", self.rank, self.queue, self.index)
    }
}

/// A waiter of a schedule: a step or the leave of a rank.
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

/// A chunk of a buffer of a rank, printed as `input[r0].2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BufferChunk {
    /// The rank that owns the buffer.
    pub rank: u32,
    /// The buffer.
    pub buffer: Buffer,
    /// The chunk.
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

/// The access of a step to a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// The step folds or copies the chunk.
    Reads,
    /// The step stores to the chunk.
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

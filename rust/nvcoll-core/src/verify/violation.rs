//! What a proof can find wrong.

use crate::schedule::{Buffer, Step, View};

/// A step by its place, as text shows it: `r0.q1.3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepName {
    /// The rank that executes it.
    pub rank: u32,
    /// Its queue.
    pub queue: u32,
    /// Its place in the queue.
    pub index: u32,
}

impl StepName {
    pub(super) fn of(step: &Step) -> Self {
        Self { rank: step.rank, queue: step.queue, index: step.index }
    }
}

impl std::fmt::Display for StepName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "r{}.q{}.{}", self.rank, self.queue, self.index)
    }
}

/// A chunk of memory, as text shows it: `output[r1].3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell(pub(super) View);

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let View { rank, buffer, chunks } = &self.0;
        match buffer {
            Buffer::Input => write!(f, "input[r{rank}].{}", chunks.start),
            Buffer::Output => write!(f, "output[r{rank}].{}", chunks.start),
            Buffer::Scratch(layer) => write!(f, "scratch{layer}[r{rank}].{}", chunks.start),
            Buffer::Staging(layer) => write!(f, "staging{layer}[r{rank}].{}", chunks.start),
        }
    }
}

/// Why a schedule was refuted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Violation {
    /// A step or a wait that cannot be.
    #[error("{at} is malformed: {what}")]
    Malformed {
        /// Where.
        at: String,
        /// What is wrong.
        what: String,
    },
    /// Steps that wait for each other.
    #[error("{step} can never run: it waits, through other steps, for itself")]
    Deadlock {
        /// One of them.
        step: StepName,
    },
    /// Two accesses that nothing orders.
    #[error("{earlier} (tile {earlier_tile}) and {later} (tile {later_tile}) both touch {cell}, and one writes it: {later} must wait for {earlier}")]
    Race {
        /// The step that comes first in the program.
        earlier: StepName,
        /// Its tile.
        earlier_tile: u32,
        /// The other.
        later: StepName,
        /// Its tile.
        later_tile: u32,
        /// The memory.
        cell: Cell,
    },
    /// Another rank's memory or steps, before its enter was seen.
    #[error("{step} has contact with rank {other} without having waited for r{other}.enter")]
    NotEntered {
        /// The step, or the last step before a leave.
        step: String,
        /// The rank.
        other: u32,
    },
    /// A rank's buffers, after it has left.
    #[error("{step} touches the buffers of rank {other}, but the leave of rank {other} does not wait for it")]
    LeavesEarly {
        /// The step.
        step: StepName,
        /// The rank that leaves.
        other: u32,
    },
    /// A rank may leave before another has entered.
    #[error("rank {rank} may leave before every rank has entered, which {collective} forbids")]
    NotSynchronising {
        /// The rank.
        rank: u32,
        /// The collective.
        collective: &'static str,
    },
    /// A read of memory that nothing wrote.
    #[error("{step} reads {cell}, which nothing has written")]
    Unwritten {
        /// The step.
        step: StepName,
        /// The memory.
        cell: Cell,
    },
    /// A mark on a step that its value does not bear out.
    #[error("{step}: {what}")]
    WrongMark {
        /// The step.
        step: StepName,
        /// Which mark, and why it is wrong.
        what: String,
    },
    /// An output that is not what the contract promises.
    #[error("{cell} ends as {found}, but must be {promised}")]
    WrongResult {
        /// The memory.
        cell: Cell,
        /// The value it has.
        found: String,
        /// The value it must have.
        promised: String,
    },
}

//! A recorded step: what the ranks of a real script did, operation by operation, on streams.
//!
//! ```text
//! Recorded ─── ranks      one for each kind of rank; ranks that do the same are one
//!               ├─ ops    in the order in which the processor issued them: on a stream, or of the processor itself
//!               └─ memory what the framework's allocator reserved
//! ```
//!
//! A stream is a queue: its operations run one after another. `record` and `wait` order streams, `host_waits` holds the processor up.
//! An event is waited for as it was recorded last before the wait: in this step, or else in the step before, for steps repeat.
//!
//! It does not know data: what was computed is not here, and control flow is that of the recording.

use serde::{Deserialize, Serialize};

use crate::attention::Attention;
use crate::layout::Dtype;
use crate::memory::Part;
use crate::training_step::{pattern, Work};
use nvcoll_fabric::predict::Pattern;

/// A step of a script, as it was recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// The model of GPU on which it was recorded, as `h100-sxm`: kernels are chosen for it.
    pub gpu: String,
    /// Lines of the script, as `train.py:42 forward`. Operations name them by their position.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// One rank of each kind.
    pub ranks: Vec<RecordedRank>,
}

/// What one rank did, and all that do the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedRank {
    /// The rank.
    pub rank: u32,
    /// The number of ranks that do the same, this one included.
    pub stands_for: u32,
    /// What they are, as `first stage`.
    pub name: String,
    /// The operations, in the order in which the processor issued them.
    pub ops: Vec<RecordedOp>,
    /// The operators that the processor dispatched, if known; else one for each operation of the GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operators: Option<f64>,
    /// What it kept in memory.
    pub memory: RecordedMemory,
}

/// One operation that was issued.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedOp {
    /// The stream; 0 is the default stream.
    #[serde(default)]
    pub stream: u32,
    /// Its name, as `aten::mm`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// How often it was launched in a row. The launches of a `kernel` share its bytes; others have all that is said, each.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: f64,
    /// The position of its line in [`Recorded::lines`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Whether a CUDA graph launched it: the processor did not issue it by itself.
    #[serde(default, skip_serializing_if = "is_false")]
    pub graph: bool,
    /// What it does.
    #[serde(flatten)]
    pub action: Action,
}

/// What an operation of a recorded step does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "work", rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Matrix products, each of (m, k) and (k, n), in one kernel.
    Gemm {
        /// Rows of the result.
        m: f64,
        /// Columns of the result.
        n: f64,
        /// Elements of each product.
        k: f64,
        /// The products of the kernel.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        batch: f64,
        /// The precision of the inputs.
        dtype: Dtype,
        /// Whether it is a grouped kernel of experts.
        #[serde(default, skip_serializing_if = "is_false")]
        grouped: bool,
    },
    /// Fused attention.
    Attention(Attention),
    /// A kernel that moves bytes.
    Kernel {
        /// The bytes that it reads and writes.
        bytes: f64,
    },
    /// A kernel, copy or collective whose time is known, as of a trace.
    Measured {
        /// Seconds.
        seconds: f64,
    },
    /// A copy.
    Copy {
        /// The bytes.
        bytes: f64,
        /// From where to where.
        direction: Direction,
    },
    /// A collective among the ranks of a group.
    Collective {
        /// Which.
        #[serde(with = "pattern")]
        pattern: Pattern,
        /// The bytes as nccl-tests counts them: those of all ranks together for all_gather and reduce_scatter.
        bytes: f64,
        /// The name of the group.
        group: String,
        /// The group call of which it is a part; operations of one group call and stream run together.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        together: Option<u64>,
    },
    /// A send to another rank.
    Send {
        /// The bytes.
        bytes: f64,
        /// The rank that receives.
        peer: u32,
        /// What tells it from other messages between the two; equal ones match in their order.
        #[serde(default, skip_serializing_if = "is_zero")]
        tag: u64,
        /// The group call of which it is a part.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        together: Option<u64>,
    },
    /// A receive from another rank.
    Recv {
        /// The bytes.
        bytes: f64,
        /// The rank that sends.
        peer: u32,
        /// As of a send.
        #[serde(default, skip_serializing_if = "is_zero")]
        tag: u64,
        /// The group call of which it is a part.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        together: Option<u64>,
    },
    /// An event is recorded on the stream.
    Record {
        /// The event.
        event: u64,
    },
    /// The stream waits for an event.
    Wait {
        /// The event.
        event: u64,
    },
    /// The processor waits.
    HostWaits {
        /// For what.
        #[serde(rename = "for")]
        target: Awaited,
    },
    /// The processor works by itself before it issues the next operation.
    Host {
        /// Seconds.
        seconds: f64,
    },
}

/// From where to where a copy goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the memory of the processor.
    H2d,
    /// To the memory of the processor.
    D2h,
    /// Within the GPU.
    D2d,
}

/// What the processor waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Awaited {
    /// All that it issued.
    Device,
    /// All that it issued to a stream.
    Stream(u32),
    /// An event.
    Event(u64),
}

/// What a rank kept in memory, as its allocator counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedMemory {
    /// The most bytes that were allocated at once.
    pub allocated: f64,
    /// The most bytes that the allocator had reserved.
    pub reserved: f64,
    /// What was allocated at the peak, by kind; what they leave of `allocated` is shown as `other`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// The script's lines of the peak, innermost last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<String>,
}

fn one() -> f64 {
    1.0
}

fn is_one(number: &f64) -> bool {
    *number == 1.0
}

const fn is_false(value: &bool) -> bool {
    !*value
}

const fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl Action {
    /// Returns a product or attention as work of a planned step.
    pub fn as_work(&self) -> Option<Work> {
        Some(match *self {
            Self::Gemm { m, n, k, batch, dtype, grouped } => {
                Work::Gemm { m, n, k, batch, dtype, grouped: grouped.then_some(1.0) }
            }
            Self::Attention(attention) => Work::Attention(attention),
            _ => return None,
        })
    }

    /// Says whether it is queued on a stream.
    pub const fn is_on_stream(&self) -> bool {
        !matches!(self, Self::HostWaits { .. } | Self::Host { .. })
    }

    /// Returns the group call of which it is a part.
    pub const fn together(&self) -> Option<u64> {
        match self {
            Self::Collective { together, .. } | Self::Send { together, .. } | Self::Recv { together, .. } => *together,
            _ => None,
        }
    }

    /// Returns its numbers, all of which are at least 0.
    pub(crate) fn numbers(&self) -> Vec<f64> {
        match *self {
            Self::Gemm { m, n, k, batch, .. } => vec![m, n, k, batch],
            Self::Attention(attention) => attention.numbers(),
            Self::Kernel { bytes }
            | Self::Copy { bytes, .. }
            | Self::Collective { bytes, .. }
            | Self::Send { bytes, .. }
            | Self::Recv { bytes, .. } => vec![bytes],
            Self::Measured { seconds } | Self::Host { seconds } => vec![seconds],
            Self::Record { .. } | Self::Wait { .. } | Self::HostWaits { .. } => Vec::new(),
        }
    }
}

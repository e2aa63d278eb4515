//! A recorded step: the operations of the ranks of a real script, on streams.
//!
//! ```text
//! Recorded ─── ranks      one of each kind of rank: ranks that do the same are one
//!               ├─ ops    in the order in which the processor issued them: on a stream, or of the processor itself
//!               └─ memory that the framework's allocator reserved
//! ```
//!
//! A stream is a queue: its operations run one after another. `record` and `wait` order streams, `host_waits` stops the processor.
//! A wait is for the last record of the event: earlier in this step, or else in the step before, as steps repeat.
//!
//! It contains no data: the values of tensors are not here, and control flow is that of the recording.

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

/// The operations and memory of one rank, which stands for all ranks that do the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedRank {
    /// The rank.
    pub rank: u32,
    /// The number of ranks that do the same, this one included.
    pub stands_for: u32,
    /// Their name, as `first stage`.
    pub name: String,
    /// The operations, in the order in which the processor issued them.
    pub ops: Vec<RecordedOp>,
    /// The number of operators that the processor dispatched. None: one for each operation of the GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operators: Option<f64>,
    /// Its memory.
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
    /// Launches in a row. Those of a `kernel` share its bytes; each launch of another operation does all of its work.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: f64,
    /// The position of its line in [`Recorded::lines`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Whether a CUDA graph launched it: the processor did not issue it by itself.
    #[serde(default, skip_serializing_if = "is_false")]
    pub graph: bool,
    /// Its kind of work.
    #[serde(flatten)]
    pub action: Action,
}

/// The work of an operation of a recorded step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "work", rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Matrix products, each of (m, k) and (k, n), in one kernel.
    Gemm {
        /// Rows of the result.
        m: f64,
        /// Columns of the result.
        n: f64,
        /// Columns of the left matrix.
        k: f64,
        /// The number of products in the kernel.
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
    /// A kernel, copy or collective of known time, as in a trace.
    Measured {
        /// Seconds.
        seconds: f64,
    },
    /// A copy.
    Copy {
        /// The bytes.
        bytes: f64,
        /// Its direction.
        direction: Direction,
    },
    /// A collective among the ranks of a group.
    Collective {
        /// The collective.
        #[serde(with = "pattern")]
        pattern: Pattern,
        /// The bytes as nccl-tests counts them: those of all ranks together for all_gather and reduce_scatter.
        bytes: f64,
        /// The name of the group.
        group: String,
        /// Its group call; operations of one group call and stream run together.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        together: Option<u64>,
    },
    /// A send to another rank.
    Send {
        /// The bytes.
        bytes: f64,
        /// The rank that receives.
        peer: u32,
        /// Messages between the two ranks with the same tag match in order.
        #[serde(default, skip_serializing_if = "is_zero")]
        tag: u64,
        /// Its group call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        together: Option<u64>,
    },
    /// A receive from another rank.
    Recv {
        /// The bytes.
        bytes: f64,
        /// The rank that sends.
        peer: u32,
        /// The tag of the send.
        #[serde(default, skip_serializing_if = "is_zero")]
        tag: u64,
        /// Its group call.
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
        /// The work for which it waits.
        #[serde(rename = "for")]
        target: Awaited,
    },
    /// The processor works by itself before it issues the next operation.
    Host {
        /// Seconds.
        seconds: f64,
    },
}

/// The direction of a copy.
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

/// The work for which the processor waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Awaited {
    /// All operations that it issued.
    Device,
    /// All operations that it issued to a stream.
    Stream(u32),
    /// An event.
    Event(u64),
}

/// The memory of a rank, as the framework's allocator counts it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedMemory {
    /// The most bytes that were allocated at once.
    pub allocated: f64,
    /// The most bytes that the allocator had reserved.
    pub reserved: f64,
    /// Allocations at the peak, by kind; the rest of `allocated` is shown as `other`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// Lines of the script at the peak, innermost last.
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

    /// Returns its group call.
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

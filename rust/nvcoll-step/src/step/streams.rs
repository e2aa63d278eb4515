//! What ranks of a real program did on streams: the form of recorded steps.
//!
//! ```text
//! Streams ─── ranks      one of each kind of rank: ranks that do the same are one
//!              ├─ issued   operations in the order in which the processor issued them: on a stream, or of the processor itself
//!              ├─ host     the time of the processor
//!              └─ memory   of the framework's allocator
//! ```
//!
//! A stream is a queue: its operations run one after another. `record` and `stream_wait` order streams, `host_wait` stops the processor.
//! A wait is for the last record of the event: earlier in this step, or else in the step before, as steps repeat.
//!
//! It contains no data: the values of tensors are not here, and control flow is as in the recording.

use serde::{Deserialize, Serialize};

use super::work::StepOp;
use crate::memory::RankMemory;

/// The operations of a step on streams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Streams {
    /// The model of GPU on which it was recorded, as `h100-sxm`: kernels are chosen for it.
    pub gpu: String,
    /// Lines of the script, as `train.py:42 forward`. Operations name them by their position.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// One rank of each kind.
    pub ranks: Vec<RankStreams>,
}

/// The operations and memory of one rank, which stands for all ranks that do the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankStreams {
    /// The rank.
    pub rank: u32,
    /// The number of ranks that do the same, this one included.
    pub stands_for: u32,
    /// Their name, as `first stage`.
    pub name: String,
    /// The time of the processor.
    #[serde(default)]
    pub host: HostClock,
    /// Its memory, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<RankMemory>,
    /// The operations, in the order in which the processor issued them.
    pub issued: Vec<Issued>,
}

/// How the time of the processor is known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostClock {
    /// Operations `host` have all of it: launches take none.
    Timed,
    /// Each launch and each operator takes a time.
    Launches {
        /// The number of operators that the processor dispatched. None: one for each operation of the GPU.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operators: Option<f64>,
        /// The factor by which another processor may be faster or slower, at least 1. None: that of processors which nobody measured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spread: Option<f64>,
    },
}

impl Default for HostClock {
    fn default() -> Self {
        Self::Launches { operators: None, spread: None }
    }
}

/// An operation, with where and when it was issued.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Issued {
    /// The stream; 0 is the default stream.
    #[serde(default)]
    pub stream: u32,
    /// The position of its line in [`Streams::lines`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Whether a CUDA graph launched it: the processor did not issue it by itself.
    #[serde(default, skip_serializing_if = "is_false")]
    pub by_graph: bool,
    /// Its group call: collectives and messages of one group call and stream run together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub together: Option<u64>,
    /// The operation.
    #[serde(flatten)]
    pub op: StepOp,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_false(value: &bool) -> bool {
    !*value
}

impl Streams {
    /// Returns FLOPs of products and attention of all ranks, recomputation included.
    pub fn flops(&self) -> f64 {
        let of_rank =
            |rank: &RankStreams| f64::from(rank.stands_for) * rank.issued.iter().map(|one| one.op.flops()).sum::<f64>();
        self.ranks.iter().map(of_rank).sum()
    }
}

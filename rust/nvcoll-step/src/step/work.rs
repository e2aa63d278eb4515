//! The operations of a step, in layers and on streams alike.
//!
//! | work | what takes time |
//! |---|---|
//! | `gemm`, `attention` | computing |
//! | `move`, `copy` | memory of the GPU; the link to the processor |
//! | `timed` | a kernel of known time |
//! | `collective`, `message` | links between GPUs |
//! | `host`, `stall` | the processor beside the GPU; the GPU stands still |
//! | `record`, `stream_wait`, `host_wait` | nothing: they order streams. Layers have none |

use nvcoll_fabric::predict::{Pattern, Server};
use serde::{Deserialize, Serialize};

use crate::attention::Attention;
use crate::layout::Dtype;
use crate::parts::TimePart;
use crate::recurrent::StateChunks;

/// An operation, some times in a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepOp {
    /// Its name, as `mlp up` or `aten::mm`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// How often it comes.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: f64,
    /// The part of the time to which it belongs, if its work does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<TimePart>,
    /// What it does.
    #[serde(flatten)]
    pub work: StepWork,
}

/// What an operation does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "work", rename_all = "snake_case", deny_unknown_fields)]
pub enum StepWork {
    /// Matrix products, each (m, k) times (k, n), in one kernel.
    Gemm {
        /// Rows of the result: tokens, in the forward pass.
        m: f64,
        /// Columns of the result.
        n: f64,
        /// Columns of the left matrix.
        k: f64,
        /// The products of the kernel.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        batch: f64,
        /// The precision of the inputs.
        dtype: Dtype,
        /// For the products of experts: the extra loss of K of each, as a multiple of the loss of a dense product times the constant `grouped`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        experts: Option<f64>,
        /// The bytes that the kernel reads and writes, where they are not those of its matrices: a convolution reads each pixel once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bytes: Option<f64>,
    },
    /// Attention of all heads of a rank.
    Attention(Attention),
    /// Kernels that move bytes of the GPU's memory.
    Move {
        /// The bytes that they read and write, all launches together.
        bytes: f64,
        /// The launches that share the bytes.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        launches: f64,
        /// Their rate.
        #[serde(default, skip_serializing_if = "is_counted")]
        rate: MoveRate,
        /// Their FLOPs of the model, which take less time than the bytes, as of a depthwise convolution.
        #[serde(default, skip_serializing_if = "is_none")]
        flops: f64,
    },
    /// A copy.
    Copy {
        /// The bytes.
        bytes: f64,
        /// Its direction.
        direction: Direction,
    },
    /// A kernel, copy or collective of known time, as in a trace.
    Timed {
        /// Seconds.
        seconds: f64,
    },
    /// A collective among the ranks of a group.
    Collective {
        /// Which.
        #[serde(with = "pattern")]
        pattern: Pattern,
        /// The bytes as nccl-tests counts them: for all_gather and reduce_scatter the bytes of all ranks together.
        bytes: f64,
        /// The name of the group.
        group: String,
        /// If a token goes to each node once: the experts of a token, by which the bytes shrink.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        once_per_node: Option<f64>,
        /// The model server that makes the all_reduce; none for a program that calls NCCL.
        #[serde(default, rename = "as", skip_serializing_if = "Option::is_none")]
        server: Option<Server>,
    },
    /// A message between two ranks.
    Message {
        /// Whether this rank sends or receives it.
        way: Way,
        /// The bytes.
        bytes: f64,
        /// The other rank.
        peer: u32,
        /// Messages between the two ranks with the same tag match in order.
        #[serde(default, skip_serializing_if = "is_zero")]
        tag: u64,
    },
    /// Time of the processor: in layers beside what it launched before, on streams before it issues the next operation.
    Host {
        /// Seconds.
        seconds: f64,
    },
    /// Time in which the GPU stands still.
    Stall {
        /// Seconds.
        seconds: f64,
    },
    /// An event is recorded on the stream.
    Record {
        /// The event.
        event: u64,
    },
    /// The stream waits for an event.
    StreamWait {
        /// The event.
        event: u64,
    },
    /// The processor waits.
    HostWait {
        /// The work for which it waits.
        #[serde(rename = "for")]
        target: Awaited,
    },
}

/// The rate at which kernels move bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveRate {
    /// Element-wise kernels; the bytes are the least that fused kernels move.
    Least,
    /// The rate of the memory: gradients that are accumulated, the optimizer.
    Stream,
    /// Element-wise kernels, with the bytes of each kernel.
    #[default]
    Counted,
    /// Kernels of which only the bytes of their arguments are known, at the rate of element-wise ones: the interval is wider.
    Bound,
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

nvcoll_core::names! {
    /// The end of a message at which a rank is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Way {
        /// It sends.
        Send = "send",
        /// It receives.
        Recv = "recv",
    }
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

impl StepOp {
    /// Returns an operation that comes once.
    pub fn once(name: impl Into<String>, work: StepWork) -> Self {
        Self { name: name.into(), count: 1.0, part: None, work }
    }

    /// Returns its FLOPs: products and attention have some.
    pub fn flops(&self) -> f64 {
        self.count * self.work.flops()
    }

    /// Returns the part of the time to which it belongs while it computes.
    pub(crate) fn computing_part(&self) -> TimePart {
        self.part.unwrap_or(match self.work {
            StepWork::Gemm { .. } => TimePart::Gemm,
            StepWork::Attention(_) => TimePart::Attention,
            _ => TimePart::Elementwise,
        })
    }
}

impl From<StateChunks> for StepWork {
    fn from(StateChunks { sizes: [m, n, k], batch, bytes }: StateChunks) -> Self {
        Self::Gemm { m, n, k, batch, dtype: Dtype::Bf16, experts: None, bytes: Some(bytes) }
    }
}

impl StepWork {
    /// Returns FLOPs that count for the model: of products, attention, and some kernels that move bytes.
    pub fn flops(&self) -> f64 {
        match *self {
            Self::Gemm { m, n, k, batch, .. } => 2.0 * m * n * k * batch,
            Self::Attention(attention) => attention.flops(),
            Self::Move { flops, .. } => flops,
            _ => 0.0,
        }
    }

    /// Says whether it orders streams, which only steps on streams have.
    pub(crate) const fn is_order(&self) -> bool {
        matches!(self, Self::Record { .. } | Self::StreamWait { .. } | Self::HostWait { .. })
    }

    /// Says whether it is queued on a stream.
    pub const fn is_on_stream(&self) -> bool {
        !matches!(self, Self::HostWait { .. } | Self::Host { .. } | Self::Stall { .. })
    }

    /// Says whether it is work of the GPU or of links.
    pub(crate) const fn is_task(&self) -> bool {
        self.is_on_stream() && !self.is_order()
    }

    /// Returns its numbers; all are at least 0.
    pub(crate) fn numbers(&self) -> Vec<f64> {
        match *self {
            Self::Gemm { m, n, k, batch, experts, bytes, .. } => {
                vec![m, n, k, batch, experts.unwrap_or(1.0), bytes.unwrap_or(0.0)]
            }
            Self::Attention(attention) => attention.numbers(),
            Self::Move { bytes, launches, flops, .. } => vec![bytes, launches, flops],
            Self::Collective { bytes, once_per_node, .. } => vec![bytes, once_per_node.unwrap_or(1.0)],
            Self::Copy { bytes, .. } | Self::Message { bytes, .. } => vec![bytes],
            Self::Timed { seconds } | Self::Host { seconds } | Self::Stall { seconds } => vec![seconds],
            Self::Record { .. } | Self::StreamWait { .. } | Self::HostWait { .. } => Vec::new(),
        }
    }
}

/// A pattern by its name.
mod pattern {
    use nvcoll_fabric::predict::Pattern;
    use serde::{de, Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(pattern: &Pattern, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(pattern.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Pattern, D::Error> {
        Pattern::named(&String::deserialize(from)?).map_err(de::Error::custom)
    }
}

const fn one() -> f64 {
    1.0
}

fn is_one(number: &f64) -> bool {
    *number == 1.0
}

fn is_none(number: &f64) -> bool {
    *number == 0.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_counted(rate: &MoveRate) -> bool {
    *rate == MoveRate::Counted
}

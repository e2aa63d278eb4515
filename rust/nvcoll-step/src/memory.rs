//! The memory of a rank, and whether it fits.
//!
//! | known of it | least that it may need | most that it may need |
//! |---|---|---|
//! | a sum: (standing + activations x micro-batches in flight + the larger of working and loss) x slack | the sum without slack | the sum / 0.9 |
//! | what the framework's allocator counted | allocated | reserved |
//!
//! Both with CUDA's context and, on more than one GPU, NCCL. A step fits if the most fits in what programs get of the GPU's memory, may fit if the least
//! does, and else does not. The lines of the table add up to the sum, or to what is reserved. GB are 2^30 bytes.
//!
//! What waits in RAM is judged in the same way against the RAM of a host, [`RAM_BUFFERS`] of it at most, and may fit where no RAM is known.
//!
//! Of published runs that ran, 99 % need at most all of the memory by the sum. What PyTorch and nvidia-smi printed of runs is 1.1 times
//! the sum (median), hence the 0.9: allocators fragment, and frameworks have buffers that no source code shows. No factor corrects that,
//! because runs whose memory was not printed ran with sums of 90 to 100 %. An allocator gives back what it reserved and tries again, so what
//! it allocated, or the sum without slack, is the least. `tools/training/steps.py` prints how many of the runs that failed are predicted to fail.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::memory_constants::{GIB, NCCL_BYTES};
use crate::pipeline::Schedule;

/// What the caching allocator of a framework reserves, in what is allocated. Chosen: 1.04 to 1.10 in published runs.
pub const ALLOCATOR: f64 = 1.06;

/// The part of the memory of a GPU up to which a sum fits: the inverse of measured memory over the sum, 1.1.
pub const FITS: f64 = 0.90;

/// The most RAM that a step takes, in what waits there. Cited: the estimator of DeepSpeed counts 24 bytes where 12 wait, as it adds gradients
/// and buffers. The pinned allocator of PyTorch rounds up to powers of two. What loading a checkpoint takes is not in it.
pub(crate) const RAM_BUFFERS: f64 = 2.0;

/// What the ranks of a role keep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RankMemory {
    /// The tensors of a plan.
    Sum {
        /// What stays through the step.
        standing: Vec<MemoryPart>,
        /// Bytes that one micro-batch keeps from forward to backward pass, in all chunks of the stage together.
        activations: f64,
        /// Micro-batches that are kept at once at most; a part, if only some chunks of one are.
        in_flight: f64,
        /// Bytes that a layer needs while it is computed again, and of what sequence parallelism gathers for it.
        #[serde(default)]
        working: f64,
        /// Bytes of the logits and their gradients.
        #[serde(default)]
        loss: f64,
        /// Bytes that wait in RAM.
        #[serde(default)]
        waiting: f64,
    },
    /// What the framework's allocator counted.
    Allocator {
        /// The most bytes that were allocated at once.
        allocated: f64,
        /// The most bytes that the allocator had reserved.
        reserved: f64,
        /// Allocations at the peak; the rest of `allocated` is shown as `other`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        parts: Vec<MemoryPart>,
        /// Lines of the script at the peak, innermost last.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        stack: Vec<String>,
    },
}

/// A part of the memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryPart {
    /// Its name.
    pub name: MemoryLine,
    /// Its bytes.
    pub bytes: f64,
}

nvcoll_core::names! {
    /// The lines of the table of memory, in their order.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum MemoryLine {
        /// Parameters.
        Parameters = "parameters",
        /// Parameters that are not trained: of a reference model, below adapters.
        Frozen = "frozen parameters",
        /// Gradients.
        Gradients = "gradients",
        /// The optimizer's state.
        Optimizer = "optimizer state",
        /// Buffers of communication: gathered layers, buckets.
        Buffers = "communication buffers",
        /// What the forward pass keeps for the backward pass.
        Activations = "activations",
        /// The layer at work.
        Temporary = "layer at work",
        /// Logits and what the loss makes of them.
        Loss = "logits and loss",
        /// A server's cache of keys and values.
        Cache = "KV cache",
        /// Pools of CUDA graphs.
        Graphs = "CUDA graphs",
        /// Tensors of no known kind.
        Other = "other",
        /// Memory that the allocator reserves beyond its allocations.
        Reserved = "reserved, not allocated",
        /// NCCL's buffers and channels.
        Nccl = "NCCL",
        /// CUDA's context.
        Context = "CUDA context",
    }
}

/// Whether a step fits in the memory of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fit {
    /// It fits.
    Fits,
    /// It may fit.
    Tight,
    /// It does not fit.
    TooLarge,
}

impl Fit {
    /// All answers, best first.
    pub const ALL: [Self; 3] = [Self::Fits, Self::Tight, Self::TooLarge];

    /// Judges the least and the most that is needed against the least and the most that there is.
    pub(crate) fn of(needed: [f64; 2], has: [f64; 2]) -> Self {
        match (needed[1] <= has[0], needed[0] <= has[1]) {
            (true, _) => Self::Fits,
            (false, true) => Self::Tight,
            (false, false) => Self::TooLarge,
        }
    }

    /// Returns it for people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Fits => "fits",
            Self::Tight => "may fit",
            Self::TooLarge => "does not fit",
        }
    }
}

/// The memory of the ranks of a role on a GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemoryTable {
    /// The name of the role.
    pub role: String,
    /// Bytes of its lines, without lines of 0 bytes.
    pub lines: BTreeMap<MemoryLine, f64>,
    /// The least bytes that it may need.
    pub least_bytes: f64,
    /// The most bytes that it may need.
    pub most_bytes: f64,
}

impl RankMemory {
    /// Returns the table of the memory of a rank among `gpus` GPUs, whose CUDA context takes `context` bytes.
    pub fn table(&self, role: &str, gpus: u32, context: f64) -> MemoryTable {
        let mut parts = self.tensors();
        let allocated: f64 = parts.iter().map(|one| one.bytes).sum();
        let reserved = match self {
            Self::Sum { .. } => allocated * (ALLOCATOR - 1.0),
            Self::Allocator { reserved, .. } => (reserved - allocated).max(0.0),
        };
        parts.push(MemoryPart { name: MemoryLine::Reserved, bytes: reserved });
        let nccl = if gpus > 1 { NCCL_BYTES } else { 0.0 };
        parts.push(MemoryPart { name: MemoryLine::Nccl, bytes: nccl });
        parts.push(MemoryPart { name: MemoryLine::Context, bytes: context });
        let mut lines = BTreeMap::new();
        for part in parts.iter().filter(|part| part.bytes > 0.0) {
            *lines.entry(part.name).or_insert(0.0) += part.bytes;
        }
        let sum: f64 = lines.values().sum();
        let [least_bytes, most_bytes] = match *self {
            Self::Sum { .. } => [sum - reserved, sum / FITS],
            Self::Allocator { allocated, reserved, .. } => [allocated, reserved].map(|bytes| bytes + nccl + context),
        };
        MemoryTable { role: role.to_owned(), lines, least_bytes, most_bytes }
    }

    /// Returns the framework's tensors. The loss has gone when the backward pass comes to a layer: the larger of the two is at the peak.
    fn tensors(&self) -> Vec<MemoryPart> {
        match self {
            Self::Sum { standing, activations, in_flight, working, loss, .. } => {
                let part = |name, bytes| MemoryPart { name, bytes };
                let mut parts = standing.clone();
                parts.push(part(MemoryLine::Activations, activations * in_flight));
                parts.push(match loss > working {
                    true => part(MemoryLine::Loss, *loss),
                    false => part(MemoryLine::Temporary, *working),
                });
                parts
            }
            Self::Allocator { allocated, parts, .. } => {
                let named: f64 = parts.iter().map(|one| one.bytes).sum();
                let other = MemoryPart { name: MemoryLine::Other, bytes: (allocated - named).max(0.0) };
                parts.iter().cloned().chain([other]).collect()
            }
        }
    }

    /// Returns its numbers; all are at least 0.
    pub(crate) fn numbers(&self) -> Vec<f64> {
        let (parts, numbers) = match self {
            Self::Sum { standing, activations, in_flight, working, loss, waiting } => {
                (standing, vec![*activations, *in_flight, *working, *loss, *waiting])
            }
            Self::Allocator { allocated, reserved, parts, .. } => (parts, vec![*allocated, *reserved]),
        };
        parts.iter().map(|part| part.bytes).chain(numbers).collect()
    }
}

impl MemoryTable {
    /// Returns the bytes of all lines together.
    pub fn bytes(&self) -> f64 {
        self.lines.values().sum()
    }

    /// Judges it against the bytes that programs get of a GPU.
    pub fn fit(&self, usable_bytes: f64) -> Fit {
        Fit::of([self.least_bytes, self.most_bytes], [usable_bytes; 2])
    }
}

/// Returns the micro-batches whose activations a stage keeps at once, at most.
///
/// GPipe keeps all; 1F1B one for each stage behind and itself (arXiv 2104.04473); interleaved pipelines a part more; the zero-bubble
/// schedules the number of stages, or twice that less one (arXiv 2401.10241); DualPipe one more than stages, on one of two chunks each
/// (arXiv 2412.19437).
pub fn in_flight(schedule: Schedule, stages: u32, chunks: u32, stage: u32, micro_batches: u32) -> f64 {
    let (all, stages, chunks, stage) =
        (f64::from(micro_batches), f64::from(stages), f64::from(chunks), f64::from(stage));
    let kept = match schedule {
        _ if stages == 1.0 => 1.0,
        Schedule::GPipe => all,
        Schedule::OneFOneB => stages - stage,
        Schedule::Interleaved => (2.0 * (stages - stage - 1.0) + (chunks - 1.0) * stages + 1.0) / chunks,
        Schedule::ZeroBubble1p => stages,
        Schedule::ZeroBubble2p => 2.0 * stages - 1.0,
        Schedule::DualPipe => (stages + 1.0) / 2.0,
    };
    kept.min(all)
}

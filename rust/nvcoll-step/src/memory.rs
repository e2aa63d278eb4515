//! The memory of a rank, and whether it fits.
//!
//! ```text
//! (standing + activations x micro-batches in flight + working + loss) x slack + context + NCCL
//! ```
//!
//! GB are 2^30 bytes. Three answers: it fits up to 90 % of what programs get of the GPU's memory, may fit up to all of it, does not fit
//! above. Of published runs that ran, 98 % need at most all of it by this sum. What PyTorch and nvidia-smi printed of runs is 1.1 times
//! the sum in the middle, hence the 90 %: allocators fragment, and frameworks have buffers that no text tells. No factor corrects that,
//! because runs whose memory was not printed ran with sums of 90 to 100 %. `tools/steps.py` prints both, and how many of the runs that
//! failed are said to fail.

use serde::{Deserialize, Serialize};

use crate::pipeline::Schedule;

/// Bytes of a GB of memory, as its makers, nvidia-smi and PyTorch count.
pub const GIB: f64 = (1u64 << 30) as f64;

/// Bytes of a CUDA context with loaded kernels: 1573 MiB, as the chronicle of BLOOM's training measured it.
pub const CONTEXT_BYTES: f64 = 1.65e9;

/// Bytes of NCCL's buffers and channels for the communicators of a step. Chosen; NCCL's defaults need 4 MiB a channel and peer.
pub const NCCL_BYTES: f64 = 1.2e9;

/// What the caching allocator of a framework reserves, in what is allocated. Chosen: 1.04 to 1.10 in published runs.
pub const ALLOCATOR: f64 = 1.06;

/// The part of the memory of a GPU up to which a step fits: the inverse of measured memory over the sum, 1.1.
pub const FITS: f64 = 0.90;

/// The part of the memory above which a step does not fit.
pub const TIGHT: f64 = 1.0;

/// What the ranks of a role keep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// What stays through the step.
    pub standing: Vec<Part>,
    /// Bytes that one micro-batch keeps from forward to backward pass, in all chunks of the stage together.
    pub activations: f64,
    /// Micro-batches that are kept at once at most; a part, if only some chunks of one are.
    pub in_flight: f64,
    /// Bytes that a layer needs while it is computed again, and of what sequence parallelism gathers for it.
    #[serde(default)]
    pub working: f64,
    /// Bytes of the logits and their gradients.
    #[serde(default)]
    pub loss: f64,
}

/// A part of the memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Its name, as `optimizer`.
    pub name: String,
    /// Its bytes.
    pub bytes: f64,
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

impl Memory {
    /// Returns every part with its bytes: what the framework allocates, the allocator's slack, NCCL and the context of CUDA.
    pub fn parts(&self) -> Vec<Part> {
        let part = |name: &str, bytes| Part { name: name.to_owned(), bytes };
        let mut parts = self.standing.clone();
        parts.push(part("activations", self.activations * self.in_flight));
        parts.push(part("layer at work", self.working));
        parts.push(part("logits and loss", self.loss));
        let allocated: f64 = parts.iter().map(|one| one.bytes).sum();
        parts.push(part("slack of the allocator", allocated * (ALLOCATOR - 1.0)));
        parts.push(part("NCCL", NCCL_BYTES));
        parts.push(part("CUDA context", CONTEXT_BYTES));
        parts.retain(|one| one.bytes > 0.0);
        parts
    }

    /// Returns the bytes of all parts together.
    pub fn bytes(&self) -> f64 {
        self.parts().iter().map(|one| one.bytes).sum()
    }
}

impl Fit {
    /// Judges bytes against the memory of a GPU.
    pub fn of(bytes: f64, memory: f64) -> Self {
        match bytes / memory {
            part if part <= FITS => Self::Fits,
            part if part <= TIGHT => Self::Tight,
            _ => Self::TooLarge,
        }
    }
}

/// Returns the micro-batches whose activations a stage keeps at once, at most.
///
/// GPipe keeps all; 1F1B one for each stage behind and itself (arXiv 2104.04473); interleaved pipelines a part more; the zero-bubble
/// schedules as many as stages, or twice that less one (arXiv 2401.10241).
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
    };
    kept.min(all)
}

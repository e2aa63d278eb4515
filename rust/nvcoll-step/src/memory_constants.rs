//! Memory of a GPU that no framework's allocator counts: one file for predictions and for the virtual GPU, which includes it by its path.

/// Bytes of a GB of memory, as its makers, nvidia-smi and PyTorch count.
pub const GIB: f64 = (1u64 << 30) as f64;

/// Bytes of a CUDA context with loaded kernels: 1573 MiB, as the chronicle of BLOOM's training measured it.
pub const CONTEXT_BYTES: f64 = 1.65e9;

/// Bytes of NCCL's buffers and channels for the communicators of a step. Chosen; NCCL's defaults need 4 MiB a channel and peer. A process
/// whose communicators have one rank each needs none.
pub const NCCL_BYTES: f64 = 1.2e9;

/// The part of a GPU's memory that programs get: the driver keeps 1 %. Source: what PyTorch prints when memory is out: 31.75 GiB of 32
/// (V100), 39.59 of 40 and 79.35 of 80 (A100), 79.1 of 80 (H100), 178.35 of 180 (B200). Boards whose GDDR holds the codes that
/// correct it have 7 % less.
pub const USABLE: f64 = 0.99;

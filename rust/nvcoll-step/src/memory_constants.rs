//! Memory of a GPU that no framework's allocator counts: one file for predictions and for the virtual GPU, which includes it by its path.

/// Bytes of a GB of memory, as its makers, nvidia-smi and PyTorch count.
pub const GIB: f64 = (1u64 << 30) as f64;

/// Bytes of a CUDA context with loaded kernels, for each streaming multiprocessor: a context keeps the local memory of all its threads.
/// Source: public logs of idle GPUs when vLLM starts (0.19 GiB of an L4, 0.41 of an A100, 0.5 of H100, H200, L40S and RTX 5090, 0.56 of an
/// RTX PRO 6000: 3 to 4 MiB each), and of PyTorch when memory is out ("Including non-PyTorch memory, this process has": 0.15 GiB of a T4,
/// 0.26 of an L4, 0.3 to 0.46 of RTX 3090 and 4090, 0.66 of an H200: 3.5 to 5 MiB each).
pub const CONTEXT_BYTES_PER_SM: f64 = (4u64 << 20) as f64;

/// Bytes that the driver takes for each node of a CUDA graph that can be launched. Chosen: what vLLM's logs print for the graphs of
/// models of 24 to 36 layers ("Graph capturing finished in 6 secs, took 0.56 GiB", 0.2 to 0.6 GiB), without the tensors of their pool, is
/// 7 to 12 KiB with vLLM 0.30 and 0.31, 13 to 27 KiB with 0.21 to 0.28; drivers of 2023 take 90.
pub const GRAPH_NODE_BYTES: f64 = 12288.0;

/// Bytes of NCCL's buffers and channels for the communicators of a step. Chosen; NCCL's defaults need 4 MiB a channel and peer. A process
/// whose communicators have one rank each needs none.
pub const NCCL_BYTES: f64 = 1.2e9;

//! all_reduce in the switch (NVLS): each GPU owns a part; the switch reduces it for its owner and multicasts the result.
//!
//! ```text
//! ops  = channels x n                 a loop gives every GPU one chunk on every channel
//! loop = ops chunk (1 + 1/n) / rate + n chunk_us          over the wire, then synchronisation, once for each of n owners
//! time = start + (S / (ops chunk) + fill) loop            gather up, reduce and multicast, gather down overlap
//! ```
//!
//! NCCL's rule selects the size of chunks (`nccl/nvls.rs`). The curve jumps where the size changes: with 128 KiB, 16 channels
//! and 8 GPUs at 8 MiB, 64 MiB and 1 GiB, as in `h100_8_dgxc`.

use super::breakdown::{us, Carrier, TimeBreakdown};
use super::params::NvlsParams;

impl NvlsParams {
    /// Returns the bytes of a chunk: by NCCL's rule, or fewer if a loop has fewer bytes.
    pub(super) fn chunk_of(&self, nbytes: f64) -> f64 {
        (self.chunks.chunk(nbytes) as f64).min((nbytes / self.chunks.operations() as f64).max(1.0))
    }

    /// Returns the time of a loop with chunks of `chunk` bytes.
    pub(super) fn loop_us(&self, gpus: f64, chunk: f64) -> f64 {
        us(self.chunks.operations() as f64 * chunk * (1.0 + 1.0 / gpus), self.gbps) + gpus * self.chunk_us
    }

    /// Returns the algbw in GB/s once the stages are full.
    pub(super) fn steady_gbps(&self, gpus: f64, chunk: f64) -> f64 {
        self.chunks.operations() as f64 * chunk / self.loop_us(gpus, chunk) / 1e3
    }
}

/// Returns the time of all_reduce among the GPUs of one switch.
pub(super) fn nvls(nvls: &NvlsParams, gpus: f64, nbytes: f64) -> TimeBreakdown {
    let ops = nvls.chunks.operations() as f64;
    let chunk = nvls.chunk_of(nbytes);
    let loop_us = nvls.loop_us(gpus, chunk);
    TimeBreakdown {
        start_up: nvls.start_us,
        fill: nvls.fill_loops * loop_us,
        bytes: nbytes / (ops * chunk) * loop_us,
        carrier: Carrier::FoldingSwitch,
        load: nbytes * (1.0 + 1.0 / gpus),
        ..TimeBreakdown::default()
    }
}

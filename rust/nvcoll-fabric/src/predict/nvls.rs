//! all_reduce in the switch (NVLS): each GPU owns a part; the switch reduces it for its owner and multicasts the result.
//!
//! ```text
//! ops  = channels x n                 a loop gives every GPU one chunk on every channel
//! loop = ops chunk (1 + 1/n) / rate + n chunk_us          over the wire, then synchronisation, once for each of n owners
//! time = start + (S / (ops chunk) + fill) loop            gather up, reduce and multicast, gather down overlap
//! ```
//!
//! NCCL's rule selects the size of chunks. The curve jumps where the size changes:
//!
//! | chunk | Hopper, 16 channels | Blackwell, 32 channels |
//! |---|---|---|
//! | largest | 128 KiB | 512 KiB |
//! | 64 KiB | below 64 ops x 128 KiB: 1 GiB with 8 GPUs | below 64 ops x 512 KiB: 8 GiB |
//! | 32 KiB | below 8 ops x 64 KiB: 64 MiB | |
//! | 16 KiB | below 2 ops x 32 KiB: 8 MiB | below 8 ops x 64 KiB: 128 MiB |
//!
//! Seen in `h100_8_dgxc` (64 MiB and 1 GiB), `b200_8_p6_mleng` and `b200_8_gke_a4` (128 MiB and 8 GiB); that it is 16 and not
//! 32 KiB below 128 MiB on Blackwell is inferred from the slope.

use super::breakdown::{us, Carrier, TimeBreakdown};
use super::params::NvlsParams;

const KIB: f64 = 1024.0;

impl NvlsParams {
    /// Returns the bytes of a chunk by NCCL's rule, if `gpus` share `nbytes`.
    pub(super) fn chunk(&self, gpus: f64, nbytes: f64) -> f64 {
        let ops = self.channels * gpus;
        let largest = if self.is_blackwell { 512.0 * KIB } else { 128.0 * KIB };
        if nbytes >= 64.0 * ops * largest {
            largest
        } else if nbytes >= 8.0 * ops * 64.0 * KIB {
            64.0 * KIB
        } else if self.is_blackwell || nbytes < 2.0 * ops * 32.0 * KIB {
            16.0 * KIB
        } else {
            32.0 * KIB
        }
    }

    /// Returns the bytes of a chunk; smaller than by the rule if a loop has fewer bytes.
    pub(super) fn chunk_of(&self, gpus: f64, nbytes: f64) -> f64 {
        self.chunk(gpus, nbytes).min((nbytes / (self.channels * gpus)).max(1.0))
    }

    /// Returns the time of a loop with chunks of `chunk` bytes.
    pub(super) fn loop_us(&self, gpus: f64, chunk: f64) -> f64 {
        us(self.channels * gpus * chunk * (1.0 + 1.0 / gpus), self.gbps) + gpus * self.chunk_us
    }

    /// Returns the algbw in GB/s once the stages are full.
    pub(super) fn steady_gbps(&self, gpus: f64, chunk: f64) -> f64 {
        self.channels * gpus * chunk / self.loop_us(gpus, chunk) / 1e3
    }
}

/// Returns the time of all_reduce among the GPUs of one switch.
pub(super) fn nvls(nvls: &NvlsParams, gpus: f64, nbytes: f64) -> TimeBreakdown {
    let ops = nvls.channels * gpus;
    let chunk = nvls.chunk_of(gpus, nbytes);
    let loop_us = nvls.loop_us(gpus, chunk);
    TimeBreakdown {
        start_up: nvls.start_us,
        network: 0.0,
        hops: 0.0,
        channels: 0.0,
        fill: nvls.fill_loops * loop_us,
        bytes: nbytes / (ops * chunk) * loop_us,
        carrier: Carrier::FoldingSwitch,
        load: nbytes * (1.0 + 1.0 / gpus),
        of_cards: 0.0,
    }
}

//! Attributes of a GPU by number: `cudaDeviceGetAttribute` and `cuDeviceGetAttribute`, which share their numbers.
use crate::gpu::{pci_bus, VirtualGpu};
use crate::launches::{BLOCK_THREADS, SHARED_BYTES};

/// The longest side of a grid along x.
pub const GRID_X: i32 = i32::MAX;
/// The longest side of a grid along y and z.
pub const GRID_YZ: i32 = 65535;
/// Registers of a block and of a multiprocessor.
pub const REGISTERS: i32 = 65536;
/// Clocks in kHz, of a H100 (cited: its datasheet). Programs derive peaks from them that nvcoll does not use.
pub const CLOCK_KHZ: i32 = 1_980_000;
const MEMORY_CLOCK_KHZ: i32 = 2_619_000;
/// Width of the memory's bus, of a H100 (cited: its datasheet).
pub const BUS_BITS: i32 = 5120;
/// Engines that copy.
pub const COPY_ENGINES: i32 = 3;

/// Texture memory, which programs of training do not use, and what a GPU in a server is not.
const ZERO: &[i32] = &[17, 18, 20, 34, 35, 50, 84, 85, 86, 88, 98, 100, 101, 113, 117, 118, 130, 133, 135, 138];

/// The attribute with a number. Attributes that no row names answer 1: most say that the GPU can do something.
pub fn attribute(gpu: &VirtualGpu, number: i32, device: u16) -> i32 {
    let limits = &gpu.limits;
    match number {
        1..=3 => BLOCK_THREADS as i32,
        4 => 64,
        5 => GRID_X,
        6 | 7 => GRID_YZ,
        8 => SHARED_BYTES as i32,
        9 => 64 << 10,
        10 => 32,
        11 => i32::MAX,
        12 | 82 => REGISTERS,
        13 => CLOCK_KHZ,
        14 => 512,
        16 => gpu.sms as i32,
        21..=29 | 42..=49 | 52..=73 | 77 => 16384,
        30 => 512,
        33 => pci_bus(device) as i32,
        36 => MEMORY_CLOCK_KHZ,
        37 => BUS_BITS,
        38 => limits.l2_bytes as i32,
        39 => limits.threads_per_sm as i32,
        40 => COPY_ENGINES,
        51 => 32,
        75 => (gpu.capability / 10) as i32,
        76 => (gpu.capability % 10) as i32,
        81 => limits.shared_per_sm_bytes as i32,
        87 => 2,
        97 => limits.shared_per_block_bytes as i32,
        106 => limits.blocks_per_sm as i32,
        108 => persisting_l2_bytes(gpu) as i32,
        109 => 128 << 20,
        111 => limits.reserved_per_block_bytes as i32,
        // Handles of memory that another process opens, and multicast: not answered here.
        103..=105 | 119 | 128 | 132 => i32::from(number == 103),
        120 => i32::from(gpu.capability >= 90),
        126 => 4,
        131 | 134 => -1,
        _ => i32::from(!ZERO.contains(&number)),
    }
}

/// Part of the level 2 cache that can be set aside (cited: three quarters, *CUDA C++ Programming Guide*).
pub fn persisting_l2_bytes(gpu: &VirtualGpu) -> u32 {
    if gpu.capability >= 80 {
        gpu.limits.l2_bytes / 4 * 3
    } else {
        0
    }
}

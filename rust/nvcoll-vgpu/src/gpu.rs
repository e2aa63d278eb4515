//! The GPU that is imitated: the environment variable `NVCOLL_VGPU`, and the limits of its compute capability.
//!
//! `NVCOLL_VGPU="name=NVIDIA H100 80GB HBM3;cc=90;sms=132;memory=85028110336;devices=8;cuda=13"`. What is left out keeps the
//! value of this example. `memory` counts the bytes that a program sees as the memory of the GPU, its context included.
//!
//! Limits per compute capability: NVIDIA, *CUDA C++ Programming Guide*, table "Technical Specifications per Compute
//! Capability"; L2 caches from the architecture papers (cited).
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::LazyLock;

use crate::memory_constants;

/// What a multiprocessor holds at most, by compute capability.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The compute capability times ten: 90.
    pub capability: u32,
    /// Shared memory of a multiprocessor.
    pub shared_per_sm_bytes: u32,
    /// Shared memory of a block that asks for it.
    pub shared_per_block_bytes: u32,
    /// Resident threads of a multiprocessor.
    pub threads_per_sm: u32,
    /// Resident blocks of a multiprocessor.
    pub blocks_per_sm: u32,
    /// Level 2 cache of the GPU.
    pub l2_bytes: u32,
    /// Shared memory that the system takes of each block.
    pub reserved_per_block_bytes: u32,
}

const fn limits(capability: u32, sm_kib: u32, threads: u32, blocks: u32, l2_mib: u32) -> Limits {
    let reserved_kib = if capability >= 80 { 1 } else { 0 };
    Limits {
        capability,
        shared_per_sm_bytes: sm_kib << 10,
        shared_per_block_bytes: (sm_kib - reserved_kib) << 10,
        threads_per_sm: threads,
        blocks_per_sm: blocks,
        l2_bytes: l2_mib << 20,
        reserved_per_block_bytes: reserved_kib << 10,
    }
}

/// Limits in rising order of compute capability.
pub const LIMITS: &[Limits] = &[
    Limits { shared_per_block_bytes: 48 << 10, ..limits(60, 64, 2048, 32, 4) },
    limits(70, 96, 2048, 32, 6),
    limits(75, 64, 1024, 16, 4),
    limits(80, 164, 2048, 32, 40),
    limits(86, 100, 1536, 16, 6),
    limits(89, 100, 1536, 24, 72),
    limits(90, 228, 2048, 32, 50),
    limits(100, 228, 2048, 32, 126),
    limits(103, 228, 2048, 32, 126),
    limits(120, 100, 1536, 24, 96),
    limits(121, 100, 1536, 24, 24),
];

/// The model of all `devices` visible GPUs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VirtualGpu {
    /// The name that `torch.cuda.get_device_name` gives.
    pub name: String,
    /// The compute capability times ten.
    pub capability: u32,
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Bytes of memory that a program sees.
    pub memory_bytes: u64,
    /// GPUs in the process.
    pub devices: u32,
    /// The major version of CUDA that the runtime says: 12 or 13.
    pub cuda: u32,
    /// The limits of the compute capability.
    pub limits: Limits,
}

impl Default for VirtualGpu {
    fn default() -> Self {
        VirtualGpu {
            name: "NVIDIA H100 80GB HBM3".into(),
            capability: 90,
            sms: 132,
            memory_bytes: 85_028_110_336,
            devices: 8,
            cuda: 13,
            limits: limits_of(90),
        }
    }
}

impl VirtualGpu {
    /// Reads the text of `NVCOLL_VGPU`.
    ///
    /// # Errors
    /// A sentence about the field that is unknown, or whose value is not in its range.
    pub fn parse(text: &str) -> Result<VirtualGpu, String> {
        let mut gpu = VirtualGpu::default();
        for field in text.split(';').filter(|field| !field.trim().is_empty()) {
            let (key, value) = field
                .split_once('=')
                .ok_or_else(|| format!("NVCOLL_VGPU has the field `{field}`, expected `name=value`"))?;
            gpu.take(key.trim(), value.trim())?;
        }
        gpu.limits = limits_of(gpu.capability);
        Ok(gpu)
    }

    fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        let number = |lowest: u64, highest: u64| match value.parse::<u64>() {
            Ok(number) if (lowest..=highest).contains(&number) => Ok(number),
            _ => Err(format!("NVCOLL_VGPU says {key}={value}, expected a whole number of {lowest} to {highest}")),
        };
        match key {
            "name" => self.name = value.replace('\0', ""),
            "cc" => self.capability = number(60, 199)? as u32,
            "sms" => self.sms = number(1, 4096)? as u32,
            "memory" => self.memory_bytes = number(1 << 30, 1 << 44)?,
            "devices" => self.devices = number(0, 64)? as u32,
            "cuda" => self.cuda = number(12, 13)? as u32,
            _ => {
                return Err(format!(
                    "NVCOLL_VGPU has the field `{key}`, which is none of name, cc, sms, memory, devices, cuda"
                ))
            }
        }
        Ok(())
    }

    /// The version that the runtime and the driver say: 1000 times the major version, and the newest minor version.
    pub fn version(&self) -> i32 {
        if self.cuda == 12 {
            12_090
        } else {
            13_020
        }
    }

    /// Bytes that a process can get of one GPU: all but its context.
    pub fn available_bytes(&self) -> u64 {
        let context = f64::from(self.sms) * memory_constants::CONTEXT_BYTES_PER_SM;
        self.memory_bytes.saturating_sub(context as u64)
    }
}

/// GPUs that a program has used, a bit each: the others have no context yet. Relaxed: bits are only set, and order nothing.
static USED: AtomicU64 = AtomicU64::new(0);

/// Notes that a program uses a GPU.
pub fn use_device(device: u16) {
    USED.fetch_or(1 << (device % 64), Ordering::Relaxed); // see USED
}

/// Whether a program has used a GPU.
pub fn is_used(device: u16) -> bool {
    USED.load(Ordering::Relaxed) >> (device % 64) & 1 == 1 // see USED
}

/// The PCI bus of a GPU: all are in domain 0, device 0 (chosen).
pub fn pci_bus(device: u16) -> u32 {
    16 + 3 * u32::from(device)
}

/// The PCI address of a GPU as the runtime and NVML write it.
pub fn pci_address(device: u16) -> String {
    format!("0000:{:02x}:00.0", pci_bus(device))
}

/// The universally unique identifier of a GPU.
pub fn uuid(device: u16) -> [u8; 16] {
    let mut uuid = *b"nvcoll virtual \0";
    uuid[15] = device as u8 + 1;
    uuid
}

/// The limits of a compute capability, or of the nearest older one.
fn limits_of(capability: u32) -> Limits {
    let older = LIMITS.iter().rev().find(|row| row.capability <= capability);
    *older.unwrap_or(&LIMITS[0])
}

static GPU: LazyLock<VirtualGpu> = LazyLock::new(|| {
    let text = std::env::var("NVCOLL_VGPU").unwrap_or_default();
    VirtualGpu::parse(&text).unwrap_or_else(|problem| {
        eprintln!("nvcoll, virtual GPU: {problem}");
        std::process::exit(2)
    })
});

/// The GPU of this process.
pub fn gpu() -> &'static VirtualGpu {
    &GPU
}

//! `cudaDeviceProp`, the properties of a GPU, whose layout differs between CUDA 12 and 13.
//!
//! A layout is the list of the record's fields in order, with their types; the rules of C give the offsets. Both records
//! have what [`value`] names, and zero elsewhere.
//!
//! Source: the documentation of the CUDA runtime, `cudaDeviceProp` of versions 12 and 13; sizes 1032 and 1008 bytes.
use crate::attributes as of;
use crate::gpu::{self, VirtualGpu};
use crate::launches::{BLOCK_THREADS, SHARED_BYTES};

/// Fields before the ones that differ; a type is the bytes of an element, then `*` and their count.
const START: &str =
    "name:1*256 uuid:1*16 luid:1*8 node:4 memory:8 shared:8 block_registers:4 warp:4 pitch:8 threads:4 \
                     block:4*3 grid:4*3";
const TEXTURES: &str = "t2:4*2 t2m:4*2 t2l:4*3 t2g:4*2 t3:4*3 t3a:4*3 tc:4 t1y:4*2 t2y:4*3 tcy:4*2 s1:4 s2:4*2 s3:4*3 \
                        s1y:4*2 s2y:4*3 sc:4 scy:4*2 surface_alignment:8 concurrent:4 ecc:4 bus:4 pci_device:4 pci_domain:4 \
                        tcc:4 engines:4 unified:4";
const MIDDLE: &str = "bus_bits:4 l2:4 persisting_l2:4 sm_threads:4 priorities:4 global_l1:4 local_l1:4 sm_shared:8 \
                      sm_registers:4 managed:4 multi:4 multi_group:4 atomics:4";
const END: &str = "optin:8 tables:4 direct:4 sm_blocks:4 window:4 reserved_shared:8 host_register:4 sparse:4 \
                   register_read_only:4 semaphores:4 pools:4 rdma:4 rdma_flush:4 rdma_order:4 pool_handles:4 deferred:4 ipc:4 \
                   cluster:4 function_pointers:4";

/// The fields of the record of CUDA 12.
pub fn layout_12() -> String {
    format!(
        "{START} clock:4 constant:8 major:4 minor:4 alignment:8 pitch_alignment:8 overlap:4 sms:4 timeout:4 integrated:4 \
         map_host:4 mode:4 t1:4 t1m:4 t1l:4 {TEXTURES} memory_clock:4 {MIDDLE} doubles:4 pageable:4 concurrent_managed:4 \
         preemption:4 host_pointer:4 cooperative:4 cooperative_multi:4 {END} reserved:4*63"
    )
}

/// The fields of the record of CUDA 13.
pub fn layout_13() -> String {
    format!(
        "{START} constant:8 major:4 minor:4 alignment:8 pitch_alignment:8 sms:4 integrated:4 map_host:4 t1:4 t1m:4 \
         {TEXTURES} {MIDDLE} pageable:4 concurrent_managed:4 preemption:4 host_pointer:4 cooperative:4 {END} numa:4*7 \
         reserved:4*56"
    )
}

/// The values of a field; none where the record has zeros.
fn value(gpu: &VirtualGpu, field: &str) -> &'static [u64] {
    let limits = &gpu.limits;
    let one = |value: u64| -> &'static [u64] { Box::leak(Box::new([value])) };
    match field {
        "memory" => one(gpu.memory_bytes),
        "shared" => one(SHARED_BYTES.into()),
        "block_registers" | "sm_registers" => one(of::REGISTERS as u64),
        "warp" | "pitch_alignment" => &[32],
        "pitch" => one(i32::MAX as u64),
        "threads" => one(BLOCK_THREADS.into()),
        "block" => &[BLOCK_THREADS as u64, BLOCK_THREADS as u64, 64],
        "grid" => &[of::GRID_X as u64, of::GRID_YZ as u64, of::GRID_YZ as u64],
        "constant" => &[64 << 10],
        "major" => one((gpu.capability / 10).into()),
        "minor" => one((gpu.capability % 10).into()),
        "alignment" | "surface_alignment" => &[512],
        "sms" => one(gpu.sms.into()),
        "clock" => &[of::CLOCK_KHZ as u64],
        "engines" => &[of::COPY_ENGINES as u64],
        "bus_bits" => &[of::BUS_BITS as u64],
        "l2" => one(limits.l2_bytes.into()),
        "persisting_l2" => one(of::persisting_l2_bytes(gpu).into()),
        "sm_threads" => one(limits.threads_per_sm.into()),
        "sm_shared" => one(limits.shared_per_sm_bytes.into()),
        "optin" => one(limits.shared_per_block_bytes.into()),
        "sm_blocks" => one(limits.blocks_per_sm.into()),
        "window" => &[128 << 20],
        "reserved_shared" => one(limits.reserved_per_block_bytes.into()),
        "cluster" => one(u64::from(gpu.capability >= 90)),
        "map_host" | "concurrent" | "ecc" | "unified" | "priorities" | "global_l1" | "local_l1" | "managed"
        | "concurrent_managed" | "preemption" | "host_pointer" | "cooperative" | "host_register" | "pools"
        | "overlap" | "function_pointers" => &[1],
        _ => &[],
    }
}

/// The record of a GPU in one of the layouts.
pub fn record(gpu: &VirtualGpu, layout: &str, device: u16) -> Vec<u8> {
    let mut record = Vec::new();
    for field in layout.split_whitespace() {
        let (name, kind) = field.split_once(':').unwrap_or((field, "4"));
        let (size, count) = kind.split_once('*').unwrap_or((kind, "1"));
        let (size, count): (usize, usize) = (size.parse().unwrap_or(4), count.parse().unwrap_or(1));
        record.resize(record.len().next_multiple_of(size), 0);
        let at = record.len();
        record.resize(at + size * count, 0);
        for (place, value) in record[at..].chunks_mut(size).zip(value(gpu, name)) {
            place.copy_from_slice(&value.to_le_bytes()[..size]);
        }
        match name {
            "name" => {
                let text = &gpu.name.as_bytes()[..gpu.name.len().min(255)];
                record[at..at + text.len()].copy_from_slice(text);
            }
            "uuid" => record[at..at + 16].copy_from_slice(&gpu::uuid(device)),
            "bus" => record[at..at + 4].copy_from_slice(&gpu::pci_bus(device).to_le_bytes()),
            _ => {}
        }
    }
    record.resize(record.len().next_multiple_of(8), 0);
    record
}

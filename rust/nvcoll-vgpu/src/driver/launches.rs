//! Launches, attributes of functions, occupancy.
#![allow(non_snake_case)] // the names of a public interface

use super::call;
use crate::errors::{Failure, Status};
use crate::gpu::gpu;
use crate::launches::{self, resident_blocks, Dim3, Launch};
use crate::runtime::{accept, DYNAMIC_SHARED};
use crate::{set, Handle, Out};

#[no_mangle]
extern "C" fn cuLaunchKernel(
    function: Handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: Handle,
    _arguments: usize,
    _extra: usize,
) -> Status {
    let (grid, block) = (Dim3 { x: grid_x, y: grid_y, z: grid_z }, Dim3 { x: block_x, y: block_y, z: block_z });
    let shared_bytes = shared_bytes as usize;
    call(|| Launch { function, grid, block, shared_bytes, stream, is_cooperative: false }.run())
}

#[no_mangle]
extern "C" fn cuLaunchCooperativeKernel(
    function: Handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: Handle,
    _arguments: usize,
) -> Status {
    let (grid, block) = (Dim3 { x: grid_x, y: grid_y, z: grid_z }, Dim3 { x: block_x, y: block_y, z: block_z });
    let shared_bytes = shared_bytes as usize;
    call(|| Launch { function, grid, block, shared_bytes, stream, is_cooperative: true }.run())
}

/// `CUlaunchConfig`.
#[repr(C)]
struct LaunchConfiguration {
    grid: Dim3,
    block: Dim3,
    shared_bytes: u32,
    stream: Handle,
    attributes: usize,
    attribute_count: u32,
}

#[no_mangle]
extern "C" fn cuLaunchKernelEx(
    configuration: Option<&LaunchConfiguration>,
    function: Handle,
    _arguments: usize,
    _extra: usize,
) -> Status {
    call(|| {
        let LaunchConfiguration { grid, block, shared_bytes, stream, .. } =
            *configuration.ok_or(Failure::INVALID_VALUE)?;
        let shared_bytes = shared_bytes as usize;
        Launch { function, grid, block, shared_bytes, stream, is_cooperative: false }.run()
    })
}

#[no_mangle]
extern "C" fn cuFuncGetAttribute(value: Out<i32>, attribute: i32, function: Handle) -> Status {
    call(|| {
        let known = launches::function(function)?;
        set(
            value,
            match attribute {
                0 => launches::BLOCK_THREADS as i32,
                4 => launches::REGISTERS as i32,
                5 | 6 => gpu().capability as i32,
                DYNAMIC_SHARED => known.shared_bytes as i32,
                9 => -1,
                _ => 0,
            },
        )
    })
}

#[no_mangle]
extern "C" fn cuKernelGetAttribute(value: Out<i32>, attribute: i32, kernel: Handle, _device: i32) -> Status {
    cuFuncGetAttribute(value, attribute, kernel)
}

#[no_mangle]
extern "C" fn cuFuncSetAttribute(function: Handle, attribute: i32, value: i32) -> Status {
    call(|| match attribute {
        DYNAMIC_SHARED => launches::allow_shared(function, value),
        _ => launches::function(function).map(drop),
    })
}

#[no_mangle]
extern "C" fn cuKernelSetAttribute(attribute: i32, value: i32, kernel: Handle, _device: i32) -> Status {
    cuFuncSetAttribute(kernel, attribute, value)
}

#[no_mangle]
extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: Out<i32>,
    function: Handle,
    threads: i32,
    shared_bytes: usize,
) -> Status {
    call(|| {
        launches::function(function)?;
        let threads = u32::try_from(threads).map_err(|_| Failure::INVALID_VALUE)?;
        set(blocks, resident_blocks(gpu(), threads, shared_bytes) as i32)
    })
}

#[no_mangle]
extern "C" fn cuOccupancyMaxActiveClusters(
    clusters: Out<i32>,
    function: Handle,
    configuration: Option<&LaunchConfiguration>,
) -> Status {
    call(|| {
        launches::function(function)?;
        configuration.ok_or(Failure::INVALID_VALUE)?;
        set(clusters, launches::resident_clusters(gpu()) as i32)
    })
}

/// Descriptors of tensors for the copy engine of a multiprocessor: 128 bytes that only kernels read.
#[no_mangle]
extern "C" fn cuTensorMapEncodeTiled(map: Out<[u64; 16]>) -> Status {
    call(|| set(map, [0; 16]))
}

#[no_mangle]
extern "C" fn cuTensorMapEncodeIm2col(map: Out<[u64; 16]>) -> Status {
    call(|| set(map, [0; 16]))
}

accept! { cuFuncSetCacheConfig cuFuncSetSharedMemConfig }

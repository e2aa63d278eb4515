//! Launches, attributes of functions, occupancy.
#![allow(non_snake_case)] // the names of a public interface

use super::call;
use crate::entry_points::driver;
use crate::errors::{Failure, Status};
use crate::gpu::gpu;
use crate::launches::DYNAMIC_SHARED;
use crate::launches::{self, Dim3, Launch};
use crate::runtime::accept;
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

driver! {
    cuLaunchKernelEx(
        configuration: Option<&LaunchConfiguration>,
        function: Handle,
        _arguments: usize,
        _extra: usize,
    ) => {
        let LaunchConfiguration { grid, block, shared_bytes, stream, .. } =
            *configuration.ok_or(Failure::INVALID_VALUE)?;
        let shared_bytes = shared_bytes as usize;
        Launch { function, grid, block, shared_bytes, stream, is_cooperative: false }.run()
    };
    cuFuncGetAttribute(value: Out<i32>, attribute: i32, function: Handle) => {
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
    };
}

#[no_mangle]
extern "C" fn cuKernelGetAttribute(value: Out<i32>, attribute: i32, kernel: Handle, _device: i32) -> Status {
    cuFuncGetAttribute(value, attribute, kernel)
}

driver! {
    cuKernelSetAttribute(attribute: i32, value: i32, kernel: Handle, _device: i32) =>
        launches::set_attribute(kernel, attribute, value);
    /// Descriptors of tensors for the copy engine of a multiprocessor: 128 bytes that only kernels read.
    cuTensorMapEncodeTiled(map: Out<[u64; 16]>) => set(map, [0; 16]);
    cuTensorMapEncodeIm2col(map: Out<[u64; 16]>) => set(map, [0; 16]);
}

accept! { cuFuncSetCacheConfig cuFuncSetSharedMemConfig }

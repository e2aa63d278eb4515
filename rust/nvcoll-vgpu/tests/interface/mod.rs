//! The functions of the C interface that tests call, as a program in C declares them.
#![allow(dead_code)] // each test uses some

use std::ffi::{c_char, c_void};

use nvcoll_vgpu::launches::Dim3;
use nvcoll_vgpu::Handle;

extern "C" {
    pub(crate) fn cudaGetDeviceCount(count: *mut i32) -> i32;
    pub(crate) fn cudaSetDevice(device: i32) -> i32;
    pub(crate) fn cudaGetDevice(device: *mut i32) -> i32;
    pub(crate) fn cudaGetLastError() -> i32;
    pub(crate) fn cudaPeekAtLastError() -> i32;
    pub(crate) fn cudaGetErrorName(error: i32) -> *const c_char;
    pub(crate) fn cudaMemGetInfo(free: *mut usize, total: *mut usize) -> i32;
    pub(crate) fn cudaMalloc(out: *mut usize, bytes: usize) -> i32;
    pub(crate) fn cudaFree(address: usize) -> i32;
    pub(crate) fn cudaHostAlloc(out: *mut usize, bytes: usize, flags: u32) -> i32;
    pub(crate) fn cudaFreeHost(address: usize) -> i32;
    pub(crate) fn cudaHostRegister(address: usize, bytes: usize, flags: u32) -> i32;
    pub(crate) fn cudaHostUnregister(address: usize) -> i32;
    pub(crate) fn cudaPointerGetAttributes(attributes: *mut c_void, address: usize) -> i32;
    pub(crate) fn cudaMemcpy(to: usize, from: usize, bytes: usize, kind: i32) -> i32;
    pub(crate) fn cudaMemcpyAsync(to: usize, from: usize, bytes: usize, kind: i32, stream: Handle) -> i32;
    pub(crate) fn cudaMemsetAsync(address: usize, value: i32, bytes: usize, stream: Handle) -> i32;
    pub(crate) fn cudaMemset2DAsync(
        address: usize,
        pitch: usize,
        value: i32,
        width: usize,
        rows: usize,
        stream: Handle,
    ) -> i32;
    pub(crate) fn cudaStreamCreateWithPriority(out: *mut Handle, flags: u32, priority: i32) -> i32;
    pub(crate) fn cudaStreamDestroy(stream: Handle) -> i32;
    pub(crate) fn cudaStreamQuery(stream: Handle) -> i32;
    pub(crate) fn cudaStreamSynchronize(stream: Handle) -> i32;
    pub(crate) fn cudaDeviceSynchronize() -> i32;
    pub(crate) fn cudaStreamWaitEvent(stream: Handle, event: Handle, flags: u32) -> i32;
    pub(crate) fn cudaEventCreateWithFlags(out: *mut Handle, flags: u32) -> i32;
    pub(crate) fn cudaEventDestroy(event: Handle) -> i32;
    pub(crate) fn cudaEventRecord(event: Handle, stream: Handle) -> i32;
    pub(crate) fn cudaEventQuery(event: Handle) -> i32;
    pub(crate) fn cudaEventSynchronize(event: Handle) -> i32;
    pub(crate) fn cudaEventElapsedTime(milliseconds: *mut f32, start: Handle, end: Handle) -> i32;
    pub(crate) fn cudaStreamBeginCapture(stream: Handle, mode: i32) -> i32;
    pub(crate) fn cudaStreamEndCapture(stream: Handle, graph: *mut Handle) -> i32;
    pub(crate) fn cudaStreamIsCapturing(stream: Handle, status: *mut i32) -> i32;
    pub(crate) fn cudaGraphInstantiate(executable: *mut Handle, graph: Handle, flags: u64) -> i32;
    pub(crate) fn cudaGraphGetNodes(graph: Handle, nodes: *mut Handle, count: *mut usize) -> i32;
    pub(crate) fn cudaGraphLaunch(executable: Handle, stream: Handle) -> i32;
    pub(crate) fn cudaGraphDestroy(graph: Handle) -> i32;
    pub(crate) fn cudaGraphExecDestroy(executable: Handle) -> i32;
    pub(crate) fn cudaLaunchHostFunc(stream: Handle, function: Option<extern "C" fn(usize)>, argument: usize) -> i32;
    pub(crate) fn __cudaRegisterFatBinary(binary: usize) -> Handle;
    pub(crate) fn __cudaUnregisterFatBinary(owner: Handle);
    pub(crate) fn __cudaRegisterFunction(owner: Handle, host: Handle, device: usize, name: *const c_char);
    pub(crate) fn __cudaPushCallConfiguration(grid: Dim3, block: Dim3, shared: usize, stream: Handle) -> u32;
    pub(crate) fn __cudaPopCallConfiguration(
        grid: *mut Dim3,
        block: *mut Dim3,
        shared: *mut usize,
        stream: *mut Handle,
    ) -> i32;
    pub(crate) fn cudaLaunchKernel(
        function: Handle,
        grid: Dim3,
        block: Dim3,
        arguments: usize,
        shared: usize,
        stream: Handle,
    ) -> i32;
    pub(crate) fn cudaLaunchCooperativeKernel(
        function: Handle,
        grid: Dim3,
        block: Dim3,
        arguments: usize,
        shared: usize,
        stream: Handle,
    ) -> i32;
    pub(crate) fn cudaFuncSetAttribute(function: Handle, attribute: i32, value: i32) -> i32;
    pub(crate) fn cuMemAddressReserve(out: *mut usize, bytes: usize, alignment: usize, wish: usize, flags: u64) -> i32;
    pub(crate) fn cuMemAddressFree(address: usize, bytes: usize) -> i32;
    pub(crate) fn cuMemCreate(out: *mut Handle, bytes: usize, properties: *const c_void, flags: u64) -> i32;
    pub(crate) fn cuMemRelease(handle: Handle) -> i32;
    pub(crate) fn cuMemMap(address: usize, bytes: usize, offset: usize, handle: Handle, flags: u64) -> i32;
    pub(crate) fn cuMemUnmap(address: usize, bytes: usize) -> i32;
    pub(crate) fn cuMemGetAddressRange_v2(start: *mut usize, bytes: *mut usize, address: usize) -> i32;
    pub(crate) fn cuGreenCtxCreate(out: *mut Handle) -> i32;
    pub(crate) fn cudaGetErrorString(error: i32) -> *const c_char;
    pub(crate) fn cudaIpcGetMemHandle(out: *mut [u64; 8], address: usize) -> i32;
    pub(crate) fn cudaIpcOpenMemHandle(out: *mut usize, handle: Words, flags: u32) -> i32;
    pub(crate) fn cudaIpcCloseMemHandle(address: usize) -> i32;
    pub(crate) fn cuPointerGetAttribute(out: *mut c_void, number: i32, address: usize) -> i32;
    pub(crate) fn nvcoll_vgpu_used(device: i32) -> u64;
}

/// Success.
pub(crate) const OK: i32 = 0;
/// `cudaErrorInvalidValue`.
pub(crate) const INVALID_VALUE: i32 = 1;
/// `cudaErrorMemoryAllocation`.
pub(crate) const OUT_OF_MEMORY: i32 = 2;
/// `cudaErrorInvalidResourceHandle`.
pub(crate) const INVALID_HANDLE: i32 = 400;
/// `cudaErrorNotReady`.
pub(crate) const NOT_READY: i32 = 600;

/// `cudaIpcMemHandle_t`, which C passes by value.
#[repr(C)]
pub(crate) struct Words(pub(crate) [u64; 8]);

/// A grid or a block along x.
pub(crate) fn line(x: u32) -> Dim3 {
    Dim3 { x, y: 1, z: 1 }
}

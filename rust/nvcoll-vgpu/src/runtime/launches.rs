//! Kernels: fat binaries, launches, attributes of functions, occupancy, libraries that are loaded while a program runs.
#![allow(non_snake_case)] // the names of a public interface

use std::cell::RefCell;
use std::ffi::{c_char, c_void};

use super::{accept, call, text_of};
use crate::entry_points::runtime;
use crate::errors::{Failure, Status};
use crate::gpu::gpu;
use crate::launches::{self, resident_blocks, Dim3, Launch};
use crate::{log, set, Handle, Out};

/// The handle of a fat binary is a pointer that the caller keeps and never follows.
#[no_mangle]
extern "C" fn __cudaRegisterFatBinary(_binary: usize) -> Handle {
    launches::create_owner()
}

#[no_mangle]
extern "C" fn __cudaUnregisterFatBinary(owner: Handle) {
    launches::unload(owner);
}

accept! { __cudaRegisterFatBinaryEnd __cudaRegisterManagedVar __cudaRegisterTexture __cudaRegisterSurface }

#[no_mangle]
extern "C" fn __cudaInitModule(_owner: Handle) -> u8 {
    1
}

#[no_mangle]
unsafe extern "C" fn __cudaRegisterFunction(owner: Handle, host: Handle, _device: usize, name: *const c_char) {
    // SAFETY: the contract of the compiler's call: `name` is a C string. Its other arguments are not read.
    if let Ok(name) = unsafe { text_of(name) } {
        launches::register(owner, host, name);
    }
}

/// Grid, block, shared memory and stream of a launch in the form `kernel<<<...>>>`.
type Configuration = (Dim3, Dim3, usize, Handle);

thread_local! {
    static CONFIGURATIONS: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

#[no_mangle]
extern "C" fn __cudaPushCallConfiguration(grid: Dim3, block: Dim3, shared_bytes: usize, stream: Handle) -> u32 {
    CONFIGURATIONS.with_borrow_mut(|all| all.push((grid, block, shared_bytes, stream)));
    0
}

runtime! {
    __cudaPopCallConfiguration(grid: Out<Dim3>, block: Out<Dim3>, shared_bytes: Out<usize>, stream: Out<Handle>) => {
        let last = CONFIGURATIONS.with_borrow_mut(Vec::pop).ok_or(Failure::MISSING_CONFIGURATION)?;
        set(grid, last.0)?;
        set(block, last.1)?;
        set(shared_bytes, last.2)?;
        set(stream, last.3)
    };
}

#[no_mangle]
extern "C" fn __cudaGetKernel(kernel: Out<Handle>, host: Handle) -> Status {
    cudaGetFuncBySymbol(kernel, host)
}

#[no_mangle]
extern "C" fn cudaGetKernel(kernel: Out<Handle>, host: Handle) -> Status {
    cudaGetFuncBySymbol(kernel, host)
}

runtime! {
    /// A kernel's handle is its key: the address of the host's function.
    cudaGetFuncBySymbol(function: Out<Handle>, host: Handle) => {
        launches::function(host)?;
        set(function, host)
    };
    cudaLaunchKernel(
        function: Handle,
        grid: Dim3,
        block: Dim3,
        _arguments: usize,
        shared_bytes: usize,
        stream: Handle,
    ) => Launch { function, grid, block, shared_bytes, stream, is_cooperative: false }.run();
}

#[no_mangle]
extern "C" fn __cudaLaunchKernel(
    function: Handle,
    grid: Dim3,
    block: Dim3,
    arguments: usize,
    shared_bytes: usize,
    stream: Handle,
) -> Status {
    cudaLaunchKernel(function, grid, block, arguments, shared_bytes, stream)
}

runtime! {
    cudaLaunchCooperativeKernel(
        function: Handle,
        grid: Dim3,
        block: Dim3,
        _arguments: usize,
        shared_bytes: usize,
        stream: Handle,
    ) => Launch { function, grid, block, shared_bytes, stream, is_cooperative: true }.run();
}

/// `cudaLaunchConfig_t`.
#[repr(C)]
struct LaunchConfiguration {
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: Handle,
    attributes: usize,
    attribute_count: u32,
}

runtime! {
    cudaLaunchKernelExC(configuration: Option<&LaunchConfiguration>, function: Handle, _arguments: usize) => {
        let LaunchConfiguration { grid, block, shared_bytes, stream, .. } =
            *configuration.ok_or(Failure::INVALID_VALUE)?;
        Launch { function, grid, block, shared_bytes, stream, is_cooperative: false }.run()
    };
}

/// `cudaFuncAttributes`: its fields, and what is reserved.
#[repr(C)]
struct FunctionAttributes {
    static_shared_bytes: usize,
    constant_bytes: usize,
    local_bytes: usize,
    threads: i32,
    registers: i32,
    ptx: i32,
    binary: i32,
    caches: i32,
    dynamic_shared_bytes: i32,
    carveout: i32,
    cluster: [i32; 6],
    reserved: [i32; 16],
}

runtime! {
    cudaFuncGetAttributes(attributes: Out<FunctionAttributes>, function: Handle) => {
        let known = launches::function(function)?;
        let capability = gpu().capability as i32;
        set(
            attributes,
            FunctionAttributes {
                static_shared_bytes: 0,
                constant_bytes: 0,
                local_bytes: 0,
                threads: launches::BLOCK_THREADS as i32,
                registers: launches::REGISTERS as i32,
                ptx: capability,
                binary: capability,
                caches: 0,
                dynamic_shared_bytes: known.shared_bytes as i32,
                carveout: -1,
                cluster: [0; 6],
                reserved: [0; 16],
            },
        )
    };
    cudaFuncSetAttribute(function: Handle, attribute: i32, value: i32), cuFuncSetAttribute =>
        launches::set_attribute(function, attribute, value);
    cudaKernelSetAttributeForDevice(kernel: Handle, attribute: i32, value: i32, _device: i32) =>
        launches::set_attribute(kernel, attribute, value);
    cudaFuncGetName(name: Out<*const c_char>, function: Handle), cuFuncGetName => {
        let known = launches::function(function)?;
        set(name, log::text(known.name).ok_or(Failure::UNKNOWN)?.as_ptr())
    };
}

accept! { cudaFuncSetCacheConfig cudaFuncSetSharedMemConfig }

runtime! {
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Out<i32>,
        function: Handle,
        threads: i32,
        shared_bytes: usize,
    ), cuOccupancyMaxActiveBlocksPerMultiprocessor => {
        launches::function(function)?;
        let threads = u32::try_from(threads).map_err(|_| Failure::INVALID_VALUE)?;
        set(blocks, resident_blocks(gpu(), threads, shared_bytes) as i32)
    };
}

#[no_mangle]
extern "C" fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: Out<i32>,
    function: Handle,
    threads: i32,
    shared_bytes: usize,
    _flags: u32,
) -> Status {
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared_bytes)
}

runtime! {
    cudaOccupancyMaxActiveClusters(
        clusters: Out<i32>,
        function: Handle,
        configuration: Option<&LaunchConfiguration>,
    ), cuOccupancyMaxActiveClusters => {
        launches::function(function)?;
        configuration.ok_or(Failure::INVALID_VALUE)?;
        set(clusters, launches::resident_clusters(gpu()) as i32)
    };
    cudaLibraryLoadData(library: Out<Handle>) => set(library, launches::create_owner());
    cudaLibraryLoadFromFile(library: Out<Handle>) => set(library, launches::create_owner());
}

#[no_mangle]
extern "C" fn cudaLibraryUnload(library: Handle) -> Status {
    launches::unload(library);
    0
}

#[no_mangle]
unsafe extern "C" fn cudaLibraryGetKernel(kernel: Out<Handle>, library: Handle, name: *const c_char) -> Status {
    // SAFETY: the contract of the C function: `name` is a C string.
    call(|| set(kernel, launches::function_of(library, unsafe { text_of(name)? })))
}

runtime! {
    /// Variables of a library are in its code, which is not read.
    cudaLibraryGetGlobal(_address: *mut c_void, _bytes: *mut usize) => Err(Failure::INVALID_SYMBOL);
}

#[no_mangle]
extern "C" fn cudaLibraryGetManaged(address: *mut c_void, bytes: *mut usize) -> Status {
    cudaLibraryGetGlobal(address, bytes)
}

#[no_mangle]
extern "C" fn cudaLibraryGetUnifiedFunction(address: *mut c_void, bytes: *mut usize) -> Status {
    cudaLibraryGetGlobal(address, bytes)
}

runtime! {
    cudaLibraryGetKernelCount(count: Out<u32>, _library: Handle) => set(count, 0);
}

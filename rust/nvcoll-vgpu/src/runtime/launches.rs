//! Kernels: fat binaries, launches, attributes of functions, occupancy, modules and libraries that are loaded while a program
//! runs. Code is not read: a function of a module exists when it is asked for by its name, and modules are made for this GPU.
#![allow(non_snake_case)] // the names of a public interface

use std::cell::RefCell;
use std::ffi::c_char;

use crate::arguments::Text;
use crate::entry_points::{functions, refused, runtime, values};
use crate::errors::{self, Failure};
use crate::gpu::gpu;
use crate::images::{Binary, Wrapper};
use crate::launches::{self, resident_blocks, Dim3, KernelLaunch, DYNAMIC_SHARED};
use crate::{log, set, Answer, Handle, Out};

values! {
    // The handle of a fat binary is a pointer that the caller keeps and never follows.
    __cudaUnregisterFatBinary(owner: Handle) -> () => launches::unload(owner);
    __cudaInitModule() -> u8 => 1;
}

/// Registers a fat binary.
///
/// # Safety
/// The contract of the C function: `wrapper` is the compiler's, and its binary lives until it is unregistered.
#[no_mangle]
pub(crate) unsafe extern "C" fn __cudaRegisterFatBinary(wrapper: *const Wrapper) -> Handle {
    // SAFETY: the contract of this function.
    launches::create_owner(unsafe { Binary::of(wrapper) })
}

/// Grid, block, shared memory and stream of a launch in the form `kernel<<<...>>>`.
type Configuration = (Dim3, Dim3, usize, Handle);

thread_local! {
    static CONFIGURATIONS: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

/// `cudaLaunchConfig_t` and `CUlaunchConfig`, which has the lower half of the bytes of shared memory.
#[repr(C)]
pub(crate) struct LaunchConfiguration {
    grid: Dim3,
    block: Dim3,
    shared_bytes: u32,
    stream: Handle,
}

fn launch_configured(configuration: Option<&LaunchConfiguration>, function: Handle) -> Answer {
    let LaunchConfiguration { grid, block, shared_bytes, stream } = *configuration.ok_or(Failure::INVALID_VALUE)?;
    KernelLaunch { function, grid, block, shared_bytes: shared_bytes as usize, stream }.run(false)
}

/// `cudaFuncAttributes`: its fields, and what is reserved.
#[repr(C)]
pub(crate) struct FunctionAttributes {
    static_constant_local_bytes: [usize; 3],
    threads: i32,
    registers: i32,
    ptx: i32,
    binary: i32,
    caches: i32,
    dynamic_shared_bytes: i32,
    carveout: i32,
    reserved: [i32; 22],
}

fn attributes(function: Handle) -> Result<FunctionAttributes, Failure> {
    let (function, version) = launches::function(function)?;
    Ok(FunctionAttributes {
        static_constant_local_bytes: [0; 3],
        threads: launches::BLOCK_THREADS as i32,
        registers: launches::REGISTERS as i32,
        ptx: version.ptx as i32,
        binary: version.binary as i32,
        caches: 0,
        dynamic_shared_bytes: function.shared_bytes as i32,
        carveout: -1,
        reserved: [0; 22],
    })
}

/// `CUfunction_attribute`.
fn attribute(number: i32, function: Handle) -> Result<i32, Failure> {
    let known = attributes(function)?;
    Ok(match number {
        0 => known.threads,
        4 => known.registers,
        5 => known.ptx,
        6 => known.binary,
        DYNAMIC_SHARED => known.dynamic_shared_bytes,
        9 => known.carveout,
        _ => 0,
    })
}

runtime! {
    // Other arguments of the compiler's call are not read.
    __cudaRegisterFunction(owner: Handle, host: Handle, _device: usize, name: Text) =>
        name.read().map(|name| launches::register(owner, host, name));
    __cudaPushCallConfiguration(grid: Dim3, block: Dim3, shared_bytes: usize, stream: Handle) =>
        { CONFIGURATIONS.with_borrow_mut(|all| all.push((grid, block, shared_bytes, stream))); Ok(()) };
    __cudaPopCallConfiguration(grid: Out<Dim3>, block: Out<Dim3>, shared_bytes: Out<usize>, stream: Out<Handle>) => {
        let last = CONFIGURATIONS.with_borrow_mut(Vec::pop).ok_or(Failure::MISSING_CONFIGURATION)?;
        set(grid, last.0)?;
        set(block, last.1)?;
        set(shared_bytes, last.2)?;
        set(stream, last.3)
    };
    // A kernel's handle is its key: the address of the host's function.
    __cudaGetKernel cudaGetKernel cudaGetFuncBySymbol(kernel: Out<Handle>, host: Handle), cuKernelGetFunction =>
        launches::registered(host).and_then(|_| set(kernel, host));
    __cudaLaunchKernel cudaLaunchKernel(function: Handle, grid: Dim3, block: Dim3, _arguments: usize, shared_bytes: usize,
        stream: Handle) => KernelLaunch { function, grid, block, shared_bytes, stream }.run(false);
    cudaLaunchCooperativeKernel(function: Handle, grid: Dim3, block: Dim3, _arguments: usize, shared_bytes: usize,
        stream: Handle) => KernelLaunch { function, grid, block, shared_bytes, stream }.run(true);
    cudaLaunchKernelExC(configuration: Option<&LaunchConfiguration>, function: Handle), cuLaunchKernelEx =>
        launch_configured(configuration, function);
    cudaFuncGetName(out: Out<*const c_char>, function: Handle), cuFuncGetName cuKernelGetName =>
        set(out, log::text(launches::registered(function)?.name).ok_or(Failure::NOT_FOUND)?.as_ptr());
    cudaFuncGetAttributes(out: Out<FunctionAttributes>, function: Handle) => set(out, attributes(function)?);
    cudaFuncSetAttribute cudaKernelSetAttributeForDevice(function: Handle, attribute: i32, value: i32), cuFuncSetAttribute =>
        launches::set_attribute(function, attribute, value);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: Out<i32>,
        function: Handle, threads: i32, shared_bytes: usize), cuOccupancyMaxActiveBlocksPerMultiprocessor
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags => {
        launches::function(function)?;
        let threads = u32::try_from(threads).map_err(|_| Failure::INVALID_VALUE)?;
        set(blocks, resident_blocks(gpu(), threads, shared_bytes) as i32)
    };
    cudaOccupancyMaxActiveClusters(clusters: Out<i32>, function: Handle, configuration: Option<&LaunchConfiguration>),
        cuOccupancyMaxActiveClusters => {
        launches::function(function)?;
        configuration.ok_or(Failure::INVALID_VALUE)?;
        set(clusters, launches::resident_clusters(gpu()) as i32)
    };
    cudaLibraryLoadData cudaLibraryLoadFromFile(library: Out<Handle>), cuModuleLoad cuModuleLoadData cuModuleLoadDataEx
        cuModuleLoadFatBinary cuLibraryLoadData cuLibraryLoadFromFile => set(library, launches::create_module());
    cudaLibraryUnload(library: Handle), cuModuleUnload cuLibraryUnload => { launches::unload(library); Ok(()) };
    cudaLibraryGetKernel(kernel: Out<Handle>, library: Handle, name: Text), cuModuleGetFunction cuLibraryGetKernel =>
        set(kernel, launches::function_of(library, name.read()?));
    // Variables of a module or library are in its code, which is not read.
    cudaLibraryGetGlobal cudaLibraryGetManaged cudaLibraryGetUnifiedFunction() => Err(Failure::INVALID_SYMBOL);
    cudaLibraryGetKernelCount(count: Out<u32>) => set(count, 0);
    __cudaRegisterFatBinaryEnd __cudaRegisterManagedVar __cudaRegisterTexture __cudaRegisterSurface cudaFuncSetCacheConfig
        cudaFuncSetSharedMemConfig(), cuFuncSetCacheConfig cuFuncSetSharedMemConfig cuKernelSetCacheConfig => Ok(());
}

functions! { errors::driver:
    cuLaunchKernel(function: Handle, x: u32, y: u32, z: u32, block_x: u32, block_y: u32, block_z: u32, shared_bytes: u32,
        stream: Handle) => {
        let (grid, block) = (Dim3 { x, y, z }, Dim3 { x: block_x, y: block_y, z: block_z });
        KernelLaunch { function, grid, block, shared_bytes: shared_bytes as usize, stream }.run(false)
    };
    cuLaunchCooperativeKernel(function: Handle, x: u32, y: u32, z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared_bytes: u32, stream: Handle) => {
        let (grid, block) = (Dim3 { x, y, z }, Dim3 { x: block_x, y: block_y, z: block_z });
        KernelLaunch { function, grid, block, shared_bytes: shared_bytes as usize, stream }.run(true)
    };
    cuFuncGetAttribute cuKernelGetAttribute(value: Out<i32>, number: i32, function: Handle) =>
        set(value, attribute(number, function)?);
    cuKernelSetAttribute(attribute: i32, value: i32, kernel: Handle) => launches::set_attribute(kernel, attribute, value);
    // Descriptors of tensors for the copy engine of a multiprocessor: 128 bytes that only kernels read.
    cuTensorMapEncodeTiled cuTensorMapEncodeIm2col(map: Out<[u64; 16]>) => set(map, [0; 16]);
    // A library's handle is also its module's.
    cuLibraryGetModule(module: Out<Handle>, library: Handle) => set(module, library);
    cuModuleGetGlobal_v2 cuLibraryGetGlobal cuLibraryGetManaged cuLibraryGetUnifiedFunction() => Err(Failure::NOT_FOUND);
}

refused! { errors::driver:
    cuLinkCreate_v2 cuLinkAddData_v2 cuLinkAddFile_v2 cuLinkComplete cuLinkDestroy
    // Kernels of a library are in its code, which is not read.
    cuLibraryGetKernelCount cuLibraryEnumerateKernels
}
refused! { errors::runtime: cudaLibraryEnumerateKernels }

//! The runtime of kernels that are written in CuTe's DSL: functions of CUDA behind an underscore, and the loading of a kernel's code.
//!
//! Compiled kernels take these functions from a library, `libcute_dsl_runtime.so`. NVIDIA's has a CUDA runtime of its own inside,
//! which runs on NVIDIA's driver alone. Python's side of a dry run names this library first.
//!
//! The calls of this interface are as the symbols of version 4.8 say.
use std::ffi::{c_char, CString};
use std::sync::Mutex;

use crate::entry_points::values;
use crate::errors::{text, ErrorText};
use crate::gpu::gpu;
use crate::lock::lock;
use crate::{launches, Handle, Status};

/// Functions that are others under another name.
macro_rules! same {
    ($($name:ident $same:literal)*) => { $(
        #[no_mangle]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            // The arguments are where the other function expects them.
            std::arch::naked_asm!(concat!("jmp ", $same, "@PLT"))
        }
    )* };
}

same! {
    _cuDeviceGet "cuDeviceGet" _cuKernelGetAttribute "cuKernelGetAttribute" _cuLibraryGetGlobal "cuLibraryGetGlobal"
    _cuLibraryGetKernel "cuLibraryGetKernel" _cuLibraryGetKernelCount "cuLibraryGetKernelCount"
    _cuLibraryGetManaged "cuLibraryGetManaged" _cuLibraryGetModule "cuLibraryGetModule"
    _cuLibraryGetUnifiedFunction "cuLibraryGetUnifiedFunction" _cuLibraryLoadData "cuLibraryLoadData"
    _cuLibraryLoadFromFile "cuLibraryLoadFromFile" _cuLibraryUnload "cuLibraryUnload"
    _cuTensorMapEncodeTiled "cuTensorMapEncodeTiled" _cudaDeviceGetAttribute "cudaDeviceGetAttribute"
    _cudaDeviceSynchronize "cudaDeviceSynchronize" _cudaEventCreate "cudaEventCreate"
    _cudaEventDestroy "cudaEventDestroy" _cudaEventElapsedTime "cudaEventElapsedTime"
    _cudaEventRecord "cudaEventRecord" _cudaFree "cudaFree" _cudaFreeAsync "cudaFreeAsync"
    _cudaFreeHost "cudaFreeHost" _cudaFuncSetAttribute "cudaFuncSetAttribute" _cudaGetDevice "cudaGetDevice"
    _cudaGetDeviceCount "cudaGetDeviceCount" _cudaGetDeviceProperties "cudaGetDeviceProperties"
    _cudaGraphDestroy "cudaGraphDestroy" _cudaGraphExecDestroy "cudaGraphExecDestroy"
    _cudaGraphInstantiate "cudaGraphInstantiate" _cudaGraphLaunch "cudaGraphLaunch"
    _cudaKernelSetAttributeForDevice "cudaKernelSetAttributeForDevice" _cudaLaunchKernel "cudaLaunchKernel"
    _cudaLaunchKernelEx "cudaLaunchKernelExC" _cudaLibraryGetGlobal "cudaLibraryGetGlobal"
    _cudaLibraryGetKernel "cudaLibraryGetKernel" _cudaLibraryGetKernelCount "cudaLibraryGetKernelCount"
    _cudaLibraryGetManaged "cudaLibraryGetManaged" _cudaLibraryGetUnifiedFunction "cudaLibraryGetUnifiedFunction"
    _cudaLibraryLoadData "cudaLibraryLoadData" _cudaLibraryLoadFromFile "cudaLibraryLoadFromFile"
    _cudaLibraryUnload "cudaLibraryUnload" _cudaMalloc "cudaMalloc" _cudaMallocAsync "cudaMallocAsync"
    _cudaMallocHost "cudaMallocHost" _cudaMallocManaged "cudaMallocManaged" _cudaMemcpy "cudaMemcpy"
    _cudaMemcpyAsync "cudaMemcpyAsync" _cudaMemset "cudaMemset" _cudaMemsetAsync "cudaMemsetAsync"
    _cudaOccupancyMaxActiveBlocksPerMultiprocessor "cudaOccupancyMaxActiveBlocksPerMultiprocessor"
    _cudaProfilerStart "cudaProfilerStart" _cudaProfilerStop "cudaProfilerStop" _cudaSetDevice "cudaSetDevice"
    _cudaStreamAddCallback "cudaStreamAddCallback" _cudaStreamBeginCapture "cudaStreamBeginCapture"
    _cudaStreamCreate "cudaStreamCreate" _cudaStreamDestroy "cudaStreamDestroy"
    _cudaStreamEndCapture "cudaStreamEndCapture" _cudaStreamSynchronize "cudaStreamSynchronize"
    _cudaStreamWaitEvent "cudaStreamWaitEvent" cuda_dialect_get_error_name "cudaGetErrorName"
}

/// Held while a kernel's code is loaded: several threads may call the same kernel first.
static LOADING: Mutex<()> = Mutex::new(());

/// Loads the code of a compiled kernel at its first call: `load` writes its library, `prepare` sets its attributes for a GPU.
///
/// Returns 0, or -1 after it told `report` the kind and the text of an error.
#[no_mangle]
extern "C" fn cuda_dialect_init_library_once(
    library: &mut Handle,
    load: extern "C" fn(&mut Handle) -> Status,
    prepare: Option<extern "C" fn(&mut Handle, i32) -> Status>,
    report: extern "C" fn(*const c_char, *const c_char),
) -> i32 {
    let _loading = lock(&LOADING);
    if *library != 0 {
        return 0;
    }
    let mut loaded = 0;
    let mut status = load(&mut loaded);
    if let (0, Some(prepare)) = (status, prepare) {
        let failed: Vec<_> = (0..gpu().devices as i32).map(|device| prepare(&mut loaded, device)).collect();
        status = if failed.contains(&0) { 0 } else { failed[0] };
    }
    if status != 0 {
        report(c"RuntimeError".as_ptr(), sentence(status).as_ptr());
        return -1;
    }
    *library = loaded;
    0
}

fn sentence(status: Status) -> CString {
    let known = |which| text(status, which).unwrap_or(c"unknown").to_string_lossy();
    let words = format!("{}: {}", known(ErrorText::RuntimeName), known(ErrorText::Sentence));
    CString::new(words).unwrap_or_default()
}

values! {
    cuda_dialect_unload_library_once(library: &mut Handle) -> () => launches::unload(std::mem::take(library));
    cuda_dialect_print_on_error(status: Status) -> () => if status != 0 { eprintln!("{}", sentence(status).to_string_lossy()) };
    cuda_dialect_assert_success(status: Status) -> () =>
        if status != 0 { eprintln!("{}", sentence(status).to_string_lossy()); std::process::abort() };
}

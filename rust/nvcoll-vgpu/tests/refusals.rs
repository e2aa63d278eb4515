//! What a GPU would refuse, and what no program should pass: an error each, never a crash.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod interface;

use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use interface::*;
use nvcoll_vgpu::launches::Dim3;
use nvcoll_vgpu::log;

/// Tests of one process share its memory: what one has released, another may be given, and a released address is refused
/// only while nobody has it. So those that allocate run one after the other.
fn alone() -> MutexGuard<'static, ()> {
    static MEMORY: Mutex<()> = Mutex::new(());
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn null_is_an_invalid_value() {
    // SAFETY: null is allowed everywhere, and must be refused.
    unsafe {
        let answers = [
            cudaGetDeviceCount(null_mut()),
            cudaGetDevice(null_mut()),
            cudaMalloc(null_mut(), 64),
            cudaHostAlloc(null_mut(), 64, 0),
            cudaPointerGetAttributes(null_mut(), 0),
            cudaMemcpy(0, 0, 64, 4),
            cudaMemsetAsync(0, 0, 64, 0),
            cudaStreamCreateWithPriority(null_mut(), 0, 0),
            cudaEventCreateWithFlags(null_mut(), 0),
            cudaStreamEndCapture(0, null_mut()),
            cudaStreamIsCapturing(0, null_mut()),
            cudaGraphInstantiate(null_mut(), 0, 0),
            cudaGraphGetNodes(0, null_mut(), null_mut()),
            cudaLaunchHostFunc(0, None, 0),
            cuMemAddressReserve(null_mut(), 1 << 21, 0, 0, 0),
            cuMemCreate(null_mut(), 1 << 21, null_mut(), 0),
            cudaHostRegister(0, 64, 0),
        ];
        assert_eq!(answers, [INVALID_VALUE; 17]);
        assert_eq!(cudaMemGetInfo(null_mut(), null_mut()), OK, "both are optional");
    }
}

#[test]
fn rows_are_filled_and_what_is_between_them_is_not() {
    let _alone = alone();
    let (mut address, mut host) = (0, [0u8; 12]);
    // SAFETY: the place is valid, and the host has the bytes of the copy.
    unsafe {
        assert_eq!(cudaMalloc(&mut address, 4096), OK);
        assert_eq!(cudaMemsetAsync(address, 1, 12, 0), OK);
        assert_eq!(cudaMemset2DAsync(address, 4, 7, 2, 3, 0), OK);
        assert_eq!(cudaMemcpy(host.as_mut_ptr() as usize, address, 12, 2), OK);
        assert_eq!(cudaFree(address), OK);
    }
    assert_eq!(host, [7, 7, 1, 1, 7, 7, 1, 1, 7, 7, 1, 1]);
}

#[test]
fn ranges_that_pass_the_end_are_refused() {
    let _alone = alone();
    let mut address = 0;
    let host = [0u8; 64];
    // SAFETY: the place is valid; refused copies touch nothing.
    unsafe {
        assert_eq!(cudaMalloc(&mut address, 4096), OK);
        let from = host.as_ptr() as usize;
        assert_eq!(cudaMemcpy(address + 4095, from, 2, 1), INVALID_VALUE);
        assert_eq!(cudaMemcpy(address, from, usize::MAX, 1), INVALID_VALUE);
        assert_eq!(cudaMemcpy(usize::MAX - 8, from, 64, 1), INVALID_VALUE);
        assert_eq!(cudaMemsetAsync(address, 0, usize::MAX, 0), INVALID_VALUE);
        assert_eq!(cudaMemset2DAsync(address, 1024, 0, 1025, 2, 0), INVALID_VALUE, "rows overlap");
        assert_eq!(cudaMemset2DAsync(address, 1024, 0, 1024, 5, 0), INVALID_VALUE);
        assert_eq!(cudaMemset2DAsync(address, usize::MAX, 0, 8, 3, 0), INVALID_VALUE);
        assert_eq!(cudaFree(address + 1), INVALID_VALUE);
        assert_eq!(cudaFree(address), OK);
        assert_eq!(cudaMemcpy(address, from, 64, 1), INVALID_VALUE, "it was released");
        assert_eq!(
            [-1, 5, 9].map(|direction| cudaMemcpy(from, from, 4, direction)),
            [21; 3],
            "there is no such direction"
        );
    }
}

#[test]
fn launches_that_a_gpu_refuses_are_refused() {
    static FUNCTION: u8 = 0;
    let function = &raw const FUNCTION as usize;
    // SAFETY: the name is a C string.
    unsafe {
        let owner = __cudaRegisterFatBinary(0);
        __cudaRegisterFunction(owner, function, 0, c"_Z6kernelv".as_ptr());
        let launch = |grid, block, shared| cudaLaunchKernel(function, grid, block, 0, shared, 0);
        assert_eq!(launch(line(1), line(1025), 0), 9);
        assert_eq!(launch(line(0), line(1), 0), 9);
        assert_eq!(launch(Dim3 { x: 1, y: 65536, z: 1 }, line(1), 0), 9);
        assert_eq!(launch(Dim3 { x: u32::MAX, y: u32::MAX, z: u32::MAX }, line(1), 0), 9);
        assert_eq!(launch(line(1), Dim3 { x: 1, y: 1, z: 65 }, 0), 9);
        assert_eq!(launch(line(1), line(1), 49 << 10), INVALID_VALUE, "the function did not ask for more");
        assert_eq!(cudaFuncSetAttribute(function, 8, 228 << 10), INVALID_VALUE);
        assert_eq!(cudaFuncSetAttribute(function, 8, -1), INVALID_VALUE);
        assert_eq!(cudaFuncSetAttribute(function, 17, 3), INVALID_VALUE, "CUDA 13.2 does not have it");
        assert_eq!(cudaFuncSetAttribute(function, 8, 227 << 10), OK);
        assert_eq!(launch(line(1), line(1), 227 << 10), OK);
        assert_eq!(cudaLaunchCooperativeKernel(function, line(132 * 2), line(1024), 0, 0, 0), OK);
        assert_eq!(cudaLaunchCooperativeKernel(function, line(132 * 2 + 1), line(1024), 0, 0, 0), 720);
        assert_eq!(cudaLaunchKernel(function + 1, line(1), line(1), 0, 0, 0), 98);
        __cudaUnregisterFatBinary(owner);
        assert_eq!(launch(line(1), line(1), 0), 98, "its library is gone");
    }
}

#[test]
fn a_configuration_is_popped_as_it_was_pushed() {
    let (mut grid, mut block, mut shared, mut stream) = (line(0), line(0), 0, 0);
    // SAFETY: the places are valid.
    unsafe {
        assert_eq!(__cudaPopCallConfiguration(&mut grid, &mut block, &mut shared, &mut stream), 52);
        __cudaPushCallConfiguration(line(3), line(5), 7, 0);
        __cudaPushCallConfiguration(Dim3 { x: 1, y: 2, z: 3 }, line(6), 8, 2);
        assert_eq!(__cudaPopCallConfiguration(&mut grid, &mut block, &mut shared, &mut stream), OK);
        assert_eq!((grid, block, shared, stream), (Dim3 { x: 1, y: 2, z: 3 }, line(6), 8, 2));
        assert_eq!(__cudaPopCallConfiguration(&mut grid, &mut block, &mut shared, &mut stream), OK);
        assert_eq!((grid, block, shared, stream), (line(3), line(5), 7, 0));
    }
}

#[test]
fn mapped_memory_counts_from_its_creation_to_its_last_hold() {
    let _alone = alone();
    const DEVICE: i32 = 5;
    let properties: [i32; 8] = [1, 0, 1, DEVICE, 0, 0, 0, 0];
    let of = properties.as_ptr().cast();
    let (mut address, mut handle) = (0, 0);
    // SAFETY: any number may be passed.
    let used = || unsafe { nvcoll_vgpu_used(DEVICE) };
    let two = 2 << 20;
    // SAFETY: the places are valid, and the properties have their 32 bytes.
    unsafe {
        assert_eq!(cuMemCreate(&mut handle, 1 << 20, of, 0), INVALID_VALUE, "not a multiple of 2 MiB");
        assert_eq!(cuMemCreate(&mut handle, 1 << 40, of, 0), OUT_OF_MEMORY);
        assert_eq!(cuMemCreate(&mut handle, two, of, 0), OK);
        assert_eq!(cuMemAddressReserve(&mut address, 10 * two, 0, 0, 0), OK);
        assert_eq!((used(), address % two), (two as u64, 0));
        assert_eq!(cuMemMap(address + 9 * two, 2 * two, 0, handle, 0), INVALID_VALUE);
        assert_eq!(cuMemMap(address + two, two, 0, handle + 64, 0), INVALID_VALUE);
        assert_eq!(cuMemMap(address + two, two, 0, handle, 0), OK);
        assert_eq!(cuMemMap(address + two, two, 0, handle, 0), INVALID_VALUE, "something is mapped there");
        let (mut start, mut bytes) = (0, 0);
        assert_eq!(cuMemGetAddressRange_v2(&mut start, &mut bytes, address + two + 5), OK);
        assert_eq!((start, bytes), (address + two, two));
        assert_eq!(cudaFree(address + two), INVALID_VALUE, "it was not allocated");
        assert_eq!(cuMemAddressFree(address, 10 * two), INVALID_VALUE, "something is mapped there");
        assert_eq!((cuMemRelease(handle), cuMemRelease(handle)), (OK, INVALID_VALUE));
        assert_eq!(used(), two as u64, "it is still mapped");
        assert_eq!(cuMemUnmap(address, two), INVALID_VALUE);
        assert_eq!(cuMemUnmap(address + two, two), OK);
        assert_eq!(used(), 0);
        assert_eq!((cuMemAddressFree(address, 10 * two), cuMemAddressFree(address, 10 * two)), (OK, INVALID_VALUE));
    }
}

#[test]
fn page_locked_memory_is_known_by_its_address() {
    let _alone = alone();
    let own = vec![0u8; 8192];
    let own = own.as_ptr() as usize;
    let mut pinned = 0;
    let kind = |address: usize| {
        let mut attributes = [-1i32; 6];
        // SAFETY: the record has 24 bytes.
        assert_eq!(unsafe { cudaPointerGetAttributes(attributes.as_mut_ptr().cast(), address) }, OK);
        attributes[0]
    };
    // SAFETY: the place is valid.
    unsafe {
        assert_eq!(cudaHostAlloc(&mut pinned, 100, 0), OK);
        assert_eq!((kind(pinned), kind(pinned + 99), kind(own)), (1, 1, 0));
        assert_eq!(cudaHostRegister(own, 4096, 0), OK);
        assert_eq!(cudaHostRegister(own + 4095, 10, 0), 712);
        assert_eq!((kind(own), kind(own + 4095), kind(own + 4096)), (1, 1, 0));
        assert_eq!((cudaHostUnregister(own), cudaHostUnregister(own)), (OK, 713));
        assert_eq!((cudaFreeHost(pinned), cudaFreeHost(pinned)), (OK, INVALID_VALUE));
    }
}

#[test]
fn functions_of_the_host_run_now_or_at_each_launch_of_their_graph() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn run(argument: usize) {
        RUNS.fetch_add(argument, Ordering::Relaxed); // one thread
    }
    let runs = || RUNS.load(Ordering::Relaxed); // one thread
    let (mut stream, mut graph, mut executable) = (0, 0, 0);
    // SAFETY: the places are valid, and the function lives as long as the process.
    unsafe {
        assert_eq!(cudaStreamCreateWithPriority(&mut stream, 1, 0), OK);
        assert_eq!((cudaLaunchHostFunc(stream, Some(run), 1), runs()), (OK, 1));
        assert_eq!(cudaStreamBeginCapture(stream, 0), OK);
        assert_eq!((cudaLaunchHostFunc(stream, Some(run), 10), runs()), (OK, 1));
        assert_eq!(cudaStreamEndCapture(stream, &mut graph), OK);
        assert_eq!(cudaGraphInstantiate(&mut executable, graph, 0), OK);
        assert_eq!((cudaGraphLaunch(executable, stream), runs()), (OK, 11));
        assert_eq!((cudaGraphLaunch(executable, stream), runs()), (OK, 21));
    }
}

#[test]
fn views_of_page_locked_memory_are_of_its_range() {
    let _alone = alone();
    let own = vec![0u8; 8192];
    let own = own.as_ptr() as usize;
    let mut pinned = 0;
    let range = |address: usize| {
        let mut range = [0usize; 2];
        // SAFETY: the places have the 64 bits of these attributes: the first address, the bytes.
        unsafe {
            let [start, bytes] = &mut range;
            assert_eq!(cuPointerGetAttribute((&raw mut *start).cast(), 11, address), OK);
            assert_eq!(cuPointerGetAttribute((&raw mut *bytes).cast(), 12, address), OK);
        }
        (range[0], range[1])
    };
    // SAFETY: the places are valid.
    unsafe {
        assert_eq!(cudaHostAlloc(&mut pinned, 100_000, 0), OK);
        assert_eq!(cudaHostRegister(own, 4096, 0), OK);
        assert_eq!((range(own + 7), range(pinned + 50_000).0), ((own, 4096), pinned));
        assert_eq!(cudaHostRegister(pinned + 4096, 10, 0), 712, "it is page-locked");
        assert_eq!((cudaHostUnregister(own), cudaFreeHost(pinned)), (OK, OK));
        let mut word = 0i32;
        assert_eq!(cuPointerGetAttribute((&raw mut word).cast(), 2, pinned), INVALID_VALUE, "it was released");
        assert_eq!(cudaMemcpy(0, 0, 0, 4), OK, "a view without elements");
    }
}

#[test]
fn shared_memory_is_that_of_this_rank_for_all_ranks_hold_the_same() {
    let _alone = alone();
    let (mut memory, mut opened, mut handle) = (0, 0, [0; 8]);
    // SAFETY: the places are valid.
    unsafe {
        assert_eq!(cudaMalloc(&mut memory, 4096), OK);
        assert_eq!(cudaIpcGetMemHandle(&mut handle, memory + 100), OK, "of all of the allocation");
        assert_eq!((cudaIpcOpenMemHandle(&mut opened, Words(handle), 1), opened), (OK, memory));
        assert_eq!(cudaIpcCloseMemHandle(opened), OK);
        let mut foreign = handle;
        foreign[2] ^= 1; // the process
        assert_eq!(cudaIpcOpenMemHandle(&mut opened, Words(foreign), 1), 205);
        assert_eq!(cudaFree(memory), OK);
        assert_eq!(cudaIpcOpenMemHandle(&mut opened, Words(handle), 1), 205, "it was released");
        assert_eq!(cudaIpcGetMemHandle(&mut handle, memory), INVALID_VALUE);
    }
}

#[test]
fn a_function_that_is_refused_is_named() {
    // SAFETY: any number may be passed, and the result is a C string.
    let sentence = || unsafe { CStr::from_ptr(cudaGetErrorString(801)) }.to_str().expect("it is ASCII");
    // SAFETY: the place is not written.
    unsafe {
        assert_eq!(cuGreenCtxCreate(std::ptr::null_mut()), 801);
        assert_eq!(sentence(), "operation not supported by the virtual GPU: cuGreenCtxCreate");
        assert_eq!(cudaFree(5), INVALID_VALUE);
        assert_eq!(sentence(), "operation not supported by the virtual GPU");
    }
}

#[test]
fn errors_have_their_names() {
    // SAFETY: any number may be passed, and the result is a C string.
    let name = |error| unsafe { CStr::from_ptr(cudaGetErrorName(error)) }.to_str().expect("it is ASCII");
    assert_eq!([name(0), name(2), name(600)], ["cudaSuccess", "cudaErrorMemoryAllocation", "cudaErrorNotReady"]);
    assert_eq!(name(123_456), "unrecognized error code");
}

#[test]
fn times_need_events_that_keep_time_and_are_complete() {
    let (mut timed, mut other, mut silent, mut milliseconds) = (0, 0, 0, 0.0);
    // SAFETY: the places are valid.
    unsafe {
        cudaEventCreateWithFlags(&mut timed, 0);
        cudaEventCreateWithFlags(&mut other, 0);
        cudaEventCreateWithFlags(&mut silent, 2);
        assert_eq!(cudaEventElapsedTime(&mut milliseconds, timed, other), INVALID_HANDLE, "never recorded");
        for event in [timed, other, silent] {
            assert_eq!(cudaEventRecord(event, 0), OK);
        }
        assert_eq!(cudaEventElapsedTime(&mut milliseconds, timed, silent), INVALID_HANDLE, "it keeps no time");
        assert_eq!(cudaEventSynchronize(other), OK);
        assert_eq!(cudaEventElapsedTime(&mut milliseconds, timed, other), OK);
    }
    assert!(log::count() > 0);
}

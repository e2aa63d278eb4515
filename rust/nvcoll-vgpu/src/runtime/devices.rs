//! Devices: their number, properties and attributes; errors; the profiler's switches.
#![allow(non_snake_case)] // the names of a public interface

use std::ffi::{c_char, c_void};

use crate::arguments::Room;
use crate::entry_points::{functions, runtime, values};
use crate::errors::{self, ErrorText, Failure, Status};
use crate::gpu::{gpu, pci_address, uuid};
use crate::properties::{layout_12, layout_13, record};
use crate::streams::{wait_for, HostWait};
use crate::{attributes, log, set, Answer, Out};

/// The number of a GPU, if there is one.
pub(crate) fn device_of(device: i32) -> Result<u16, Failure> {
    let number = u16::try_from(device).ok().filter(|number| u32::from(*number) < gpu().devices);
    number.ok_or(Failure::INVALID_DEVICE)
}

fn some_device() -> Answer {
    device_of(0).map(drop).map_err(|_| Failure::NO_DEVICE)
}

/// Writes the record of a GPU.
///
/// # Safety
/// `properties` is null, or writable for the record of the layout.
unsafe fn write_properties(properties: *mut c_void, layout: &str, device: i32) -> Answer {
    let record = record(gpu(), layout, device_of(device)?);
    if properties.is_null() {
        return Err(Failure::INVALID_VALUE);
    }
    // SAFETY: the caller's contract.
    unsafe { std::ptr::copy_nonoverlapping(record.as_ptr(), properties.cast(), record.len()) };
    Ok(())
}

runtime! { unsafe:
    // CUDA 13, and CUDA 12.
    cudaGetDeviceProperties(properties: *mut c_void, device: i32) => write_properties(properties, &layout_13(), device);
    cudaGetDeviceProperties_v2(properties: *mut c_void, device: i32) => write_properties(properties, &layout_12(), device);
}

runtime! {
    cudaGetDeviceCount(count: Out<i32>) => set(count, gpu().devices as i32).and_then(|()| some_device());
    cudaGetDevice(device: Out<i32>), cuCtxGetDevice => set(device, log::device().into());
    cudaSetDevice(device: i32) => device_of(device).map(log::set_device);
    cudaInitDevice cudaDeviceEnablePeerAccess cudaDeviceDisablePeerAccess(device: i32) => device_of(device).map(drop);
    cudaDriverGetVersion cudaRuntimeGetVersion(version: Out<i32>), cuDriverGetVersion => set(version, gpu().version());
    cudaDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32), cuDeviceGetAttribute =>
        set(value, attributes::attribute(gpu(), attribute, device_of(device)?));
    cudaDeviceGetPCIBusId(buffer: Room<u8>, length: i32, device: i32), cuDeviceGetPCIBusId =>
        buffer.write_text(length, &pci_address(device_of(device)?));
    // Both are optional.
    cudaDeviceGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>), cuCtxGetStreamPriorityRange => {
        let _ = (set(least, 0), set(greatest, -5));
        Ok(())
    };
    cudaDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32), cuDeviceCanAccessPeer =>
        set(can, (device_of(device)? != device_of(peer)?).into());
    cudaDeviceSynchronize(), cuCtxSynchronize => wait_for(HostWait::Device);
    cudaGetDeviceFlags(flags: Out<u32>) => set(flags, 0);
    cudaDeviceGetLimit(value: Out<usize>, _limit: i32), cuCtxGetLimit => set(value, 0);
    cudaDeviceSetLimit cudaDeviceSetCacheConfig cudaDeviceSetSharedMemConfig cudaSetDeviceFlags cudaProfilerStart
        cudaProfilerStop cudaDeviceReset cudaThreadSynchronize cudaThreadExit cudaCtxResetPersistingL2Cache(),
        cuCtxSetLimit cuCtxSetCacheConfig cuCtxEnablePeerAccess cuCtxDisablePeerAccess cuProfilerStart cuProfilerStop =>
        Ok(());
}

functions! { errors::driver:
    cuInit() => some_device();
    cuDeviceGet(device: Out<i32>, ordinal: i32) => set(device, device_of(ordinal)?.into());
    cuDeviceGetCount(count: Out<i32>) => set(count, gpu().devices as i32);
    cuDeviceGetName(buffer: Room<u8>, length: i32, device: i32) =>
        device_of(device).and_then(|_| buffer.write_text(length, &gpu().name));
    cuDeviceGetUuid cuDeviceGetUuid_v2(out: Out<[u8; 16]>, device: i32) => set(out, uuid(device_of(device)?));
    cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) =>
        device_of(device).and_then(|_| set(bytes, gpu().memory_bytes as usize));
    cuGetErrorString(error: Status, out: Out<*const c_char>) =>
        set(out, errors::text(error, ErrorText::Sentence).ok_or(Failure::INVALID_VALUE)?.as_ptr());
    cuGetErrorName(error: Status, out: Out<*const c_char>) =>
        set(out, errors::text(error, ErrorText::DriverName).ok_or(Failure::INVALID_VALUE)?.as_ptr());
}

values! {
    cudaGetLastError() -> Status => errors::last(true);
    cudaPeekAtLastError() -> Status => errors::last(false);
    cudaGetErrorName(error: Status) -> *const c_char =>
        errors::text(error, ErrorText::RuntimeName).unwrap_or(c"unrecognized error code").as_ptr();
    cudaGetErrorString(error: Status) -> *const c_char =>
        errors::text(error, ErrorText::Sentence).unwrap_or(c"unrecognized error code").as_ptr();
}

//! Devices: their number, properties and attributes; errors; the profiler's switches.
#![allow(non_snake_case)] // the names of a public interface

use std::ffi::{c_char, c_void};

use super::{accept, call, write_text};
use crate::entry_points::runtime;
use crate::errors::{self, Failure, Status, Text};
use crate::gpu::{gpu, pci_address};
use crate::properties::{layout_12, layout_13, record};
use crate::streams::{wait_for, HostWait};
use crate::{attributes, log, set, Out};

/// The number of a GPU, if there is one.
pub(crate) fn device_of(device: i32) -> Result<u16, Failure> {
    match u16::try_from(device) {
        Ok(number) if u32::from(number) < gpu().devices => Ok(number),
        _ => Err(Failure::INVALID_DEVICE),
    }
}

runtime! {
    cudaGetDeviceCount(count: Out<i32>) => {
        set(count, gpu().devices as i32)?;
        if gpu().devices > 0 {
            Ok(())
        } else {
            Err(Failure::NO_DEVICE)
        }
    };
    cudaGetDevice(device: Out<i32>), cuCtxGetDevice => set(device, log::device().into());
    cudaSetDevice(device: i32) => {
        log::set_device(device_of(device)?);
        Ok(())
    };
    cudaInitDevice(device: i32, _device_flags: u32, _flags: u32) => device_of(device).map(drop);
    cudaDriverGetVersion(version: Out<i32>), cuDriverGetVersion => set(version, gpu().version());
    cudaRuntimeGetVersion(version: Out<i32>) => set(version, gpu().version());
}

/// Writes the record of a GPU.
///
/// # Safety
/// `properties` is null, or writable for the record of the layout.
unsafe fn write_properties(properties: *mut c_void, layout: &str, device: i32) -> Result<(), Failure> {
    let record = record(gpu(), layout, device_of(device)?);
    if properties.is_null() {
        return Err(Failure::INVALID_VALUE);
    }
    // SAFETY: the caller's contract.
    unsafe { std::ptr::copy_nonoverlapping(record.as_ptr(), properties.cast(), record.len()) };
    Ok(())
}

/// CUDA 13.
#[no_mangle]
unsafe extern "C" fn cudaGetDeviceProperties(properties: *mut c_void, device: i32) -> Status {
    // SAFETY: the contract of the C function: `properties` is a `cudaDeviceProp` of CUDA 13.
    call(|| unsafe { write_properties(properties, &layout_13(), device) })
}

/// CUDA 12.
#[no_mangle]
unsafe extern "C" fn cudaGetDeviceProperties_v2(properties: *mut c_void, device: i32) -> Status {
    // SAFETY: the contract of the C function: `properties` is a `cudaDeviceProp` of CUDA 12.
    call(|| unsafe { write_properties(properties, &layout_12(), device) })
}

runtime! {
    cudaDeviceGetAttribute(
        value: Out<i32>,
        attribute: i32,
        device: i32,
    ), cuDeviceGetAttribute => set(value, attributes::attribute(gpu(), attribute, device_of(device)?));
}

#[no_mangle]
unsafe extern "C" fn cudaDeviceGetPCIBusId(buffer: *mut c_char, length: i32, device: i32) -> Status {
    // SAFETY: the contract of the C function: `buffer` has `length` bytes.
    call(|| unsafe { write_text(buffer, length, &pci_address(device_of(device)?)) })
}

#[no_mangle]
unsafe extern "C" fn cudaDeviceGetByPCIBusId(device: Out<i32>, address: *const c_char) -> Status {
    call(|| {
        // SAFETY: the contract of the C function: `address` is a C string.
        let address = unsafe { super::text_of(address)? }.to_string_lossy().to_lowercase();
        let found = (0..gpu().devices).find(|device| address.ends_with(&pci_address(*device as u16)[5..]));
        set(device, found.ok_or(Failure::INVALID_DEVICE)? as i32)
    })
}

#[no_mangle]
extern "C" fn cudaDeviceGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) -> Status {
    // Both are optional.
    let _ = set(least, 0);
    let _ = set(greatest, -5);
    0
}

runtime! {
    cudaDeviceCanAccessPeer(
        can: Out<i32>,
        device: i32,
        peer: i32,
    ), cuDeviceCanAccessPeer => set(can, (device_of(device)? != device_of(peer)?).into());
    cudaDeviceEnablePeerAccess(peer: i32, _flags: u32) => device_of(peer).map(drop);
    cudaDeviceDisablePeerAccess(peer: i32) => device_of(peer).map(drop);
    cudaDeviceGetP2PAttribute(value: Out<i32>, attribute: i32, device: i32, peer: i32) => {
        let is_peer = device_of(device)? != device_of(peer)?;
        // 1: the rank of the path, best is 0. Others: access, atomics, arrays.
        set(value, (is_peer && attribute != 1).into())
    };
    cudaDeviceSynchronize(), cuCtxSynchronize => wait_for(HostWait::Device);
    cudaGetDeviceFlags(flags: Out<u32>) => set(flags, 0);
    cudaDeviceGetLimit(value: Out<usize>, limit: i32) => {
        // Stack, output of kernels, heap: the defaults of the runtime (cited: its documentation).
        let default = match limit {
            0 => 1 << 10,
            1 => 1 << 20,
            2 => 8 << 20,
            _ => 0,
        };
        set(value, default)
    };
}

accept! { cudaDeviceSetLimit cudaDeviceSetCacheConfig cudaDeviceSetSharedMemConfig cudaSetDeviceFlags cudaProfilerStart cudaProfilerStop
cudaDeviceReset cudaThreadSynchronize cudaThreadExit cudaCtxResetPersistingL2Cache }

#[no_mangle]
extern "C" fn cudaGetLastError() -> Status {
    errors::last(true)
}

#[no_mangle]
extern "C" fn cudaPeekAtLastError() -> Status {
    errors::last(false)
}

#[no_mangle]
extern "C" fn cudaGetErrorName(error: Status) -> *const c_char {
    errors::text(error, Text::RuntimeName).unwrap_or(c"unrecognized error code").as_ptr()
}

#[no_mangle]
extern "C" fn cudaGetErrorString(error: Status) -> *const c_char {
    errors::text(error, Text::Sentence).unwrap_or(c"unrecognized error code").as_ptr()
}

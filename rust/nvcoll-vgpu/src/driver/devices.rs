//! Devices, versions, errors, and entry points by name.
#![allow(non_snake_case)] // the names of a public interface

use std::ffi::{c_char, c_void};

use super::{call, refuse};
use crate::entry_points::driver;
use crate::errors::{self, Failure, Status, Text};
use crate::gpu::{gpu, pci_address, uuid};
use crate::runtime::{device_of, find, write_text};
use crate::{set, Handle, Out};

#[no_mangle]
extern "C" fn cuInit(_flags: u32) -> Status {
    if gpu().devices > 0 {
        0
    } else {
        Failure::NO_DEVICE.0
    }
}

driver! {
    cuDeviceGet(device: Out<i32>, ordinal: i32) => set(device, device_of(ordinal)?.into());
    cuDeviceGetCount(count: Out<i32>) => set(count, gpu().devices as i32);
}

#[no_mangle]
unsafe extern "C" fn cuDeviceGetName(buffer: *mut c_char, length: i32, device: i32) -> Status {
    call(|| {
        device_of(device)?;
        // SAFETY: the contract of the C function: `buffer` has `length` bytes.
        unsafe { write_text(buffer, length, &gpu().name) }
    })
}

driver! {
    cuDeviceGetUuid_v2(out: Out<[u8; 16]>, device: i32) => set(out, uuid(device_of(device)?));
}

#[no_mangle]
extern "C" fn cuDeviceGetUuid(out: Out<[u8; 16]>, device: i32) -> Status {
    cuDeviceGetUuid_v2(out, device)
}

driver! {
    cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) => {
        device_of(device)?;
        set(bytes, gpu().memory_bytes as usize)
    };
}

#[no_mangle]
unsafe extern "C" fn cuDeviceGetPCIBusId(buffer: *mut c_char, length: i32, device: i32) -> Status {
    // SAFETY: the contract of the C function: `buffer` has `length` bytes.
    call(|| unsafe { write_text(buffer, length, &pci_address(device_of(device)?)) })
}

driver! {
    cuGetErrorString(
        error: Status,
        out: Out<*const c_char>,
    ) => set(out, errors::text(error, Text::Sentence).ok_or(Failure::INVALID_VALUE)?.as_ptr());
    cuGetErrorName(
        error: Status,
        out: Out<*const c_char>,
    ) => set(out, errors::text(error, Text::DriverName).ok_or(Failure::INVALID_VALUE)?.as_ptr());
}

#[no_mangle]
unsafe extern "C" fn cuGetProcAddress(
    name: *const c_char,
    out: Out<*mut c_void>,
    _version: i32,
    _flags: u64,
) -> Status {
    // SAFETY: the contract of the C function: `name` is a C string.
    call(|| unsafe { find(name, out, None) })
}

#[no_mangle]
unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    out: Out<*mut c_void>,
    _version: i32,
    _flags: u64,
    status: Out<i32>,
) -> Status {
    // SAFETY: the contract of the C function: `name` is a C string.
    call(|| unsafe { find(name, out, status) })
}

/// Tables of functions that no document describes.
#[no_mangle]
extern "C" fn cuGetExportTable(_table: usize, _identifier: Handle) -> Status {
    Failure::NOT_FOUND.0
}

refuse! { cuLogsRegisterCallback cuLogsUnregisterCallback cuDeviceGetDevResource cuDevSmResourceSplitByCount cuDevResourceGenerateDesc
cuGreenCtxCreate cuGreenCtxDestroy cuGreenCtxStreamCreate cuCtxFromGreenCtx }

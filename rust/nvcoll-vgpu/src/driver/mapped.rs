//! Memory that is created and mapped: torch's expandable segments and symmetric memory.
#![allow(non_snake_case)] // the names of a public interface

use super::{call, refuse};
use crate::errors::{Failure, Status};
use crate::memory::{self, mapped, GRANULARITY};
use crate::runtime::{accept, device_of};
use crate::{set, Handle, Out};

/// `CUmemAllocationProp`: where memory shall be.
#[derive(Clone, Copy)]
#[repr(C)]
struct AllocationProperties {
    /// 1: pinned.
    kind: i32,
    handle_types: i32,
    /// 1: a GPU.
    location: i32,
    device: i32,
    windows: usize,
    flags: [u8; 8],
}

#[no_mangle]
extern "C" fn cuMemGetAllocationGranularity(
    bytes: Out<usize>,
    properties: Option<&AllocationProperties>,
    _option: i32,
) -> Status {
    call(|| {
        properties.ok_or(Failure::INVALID_VALUE)?;
        set(bytes, GRANULARITY)
    })
}

#[no_mangle]
extern "C" fn cuMemCreate(
    handle: Out<Handle>,
    bytes: usize,
    properties: Option<&AllocationProperties>,
    _flags: u64,
) -> Status {
    call(|| {
        let handle = handle.ok_or(Failure::INVALID_VALUE)?;
        let properties = properties.ok_or(Failure::INVALID_VALUE)?;
        if properties.location != 1 {
            return Err(Failure::NOT_SUPPORTED);
        }
        handle.write(mapped::create(device_of(properties.device)?, bytes)?);
        Ok(())
    })
}

#[no_mangle]
extern "C" fn cuMemRelease(handle: Handle) -> Status {
    call(|| mapped::release(handle))
}

#[no_mangle]
extern "C" fn cuMemRetainAllocationHandle(handle: Out<Handle>, address: usize) -> Status {
    call(|| set(handle, mapped::retain(address)?))
}

#[no_mangle]
extern "C" fn cuMemGetAllocationPropertiesFromHandle(properties: Out<AllocationProperties>, handle: Handle) -> Status {
    call(|| {
        let device = mapped::device_of(handle)?.into();
        set(
            properties,
            AllocationProperties { kind: 1, handle_types: 0, location: 1, device, windows: 0, flags: [0; 8] },
        )
    })
}

/// The wish for an address and for an alignment are not followed: every address is a multiple of the granularity.
#[no_mangle]
extern "C" fn cuMemAddressReserve(
    address: Out<usize>,
    bytes: usize,
    _alignment: usize,
    _wish: usize,
    _flags: u64,
) -> Status {
    call(|| {
        let address = address.ok_or(Failure::INVALID_VALUE)?;
        address.write(memory::reserve(bytes)?);
        Ok(())
    })
}

#[no_mangle]
extern "C" fn cuMemAddressFree(address: usize, _bytes: usize) -> Status {
    call(|| memory::unreserve(address))
}

#[no_mangle]
extern "C" fn cuMemMap(address: usize, bytes: usize, offset: usize, handle: Handle, _flags: u64) -> Status {
    call(|| {
        if offset != 0 {
            return Err(Failure::NOT_SUPPORTED);
        }
        mapped::map(address, bytes, handle)
    })
}

#[no_mangle]
extern "C" fn cuMemUnmap(address: usize, bytes: usize) -> Status {
    call(|| mapped::unmap(address, bytes))
}

accept! { cuMemSetAccess }

refuse! { cuMemExportToShareableHandle cuMemImportFromShareableHandle cuMulticastCreate cuMulticastAddDevice cuMulticastBindMem
cuMulticastUnbind cuMulticastGetGranularity }

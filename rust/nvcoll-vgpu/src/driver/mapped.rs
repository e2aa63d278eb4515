//! Memory that is created and mapped: torch's expandable segments and symmetric memory.
#![allow(non_snake_case)] // the names of a public interface

use crate::entry_points::{functions, refused};
use crate::errors::{self, Failure};
use crate::memory::{self, mapped, GRANULARITY};
use crate::runtime::device_of;
use crate::{make, set, Handle, Out};

/// `CUmemAllocationProp`: where memory shall be.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct AllocationProperties {
    /// 1: pinned.
    kind: i32,
    handle_types: i32,
    /// 1: a GPU.
    location: i32,
    device: i32,
    windows: usize,
    flags: [u8; 8],
}

functions! { errors::driver:
    cuMemGetAllocationGranularity(bytes: Out<usize>, properties: Option<&AllocationProperties>, _option: i32) => {
        properties.ok_or(Failure::INVALID_VALUE)?;
        set(bytes, GRANULARITY)
    };
    cuMemCreate(handle: Out<Handle>, bytes: usize, properties: Option<&AllocationProperties>, _flags: u64) => {
        let handle = handle.ok_or(Failure::INVALID_VALUE)?;
        let properties = properties.ok_or(Failure::INVALID_VALUE)?;
        if properties.location != 1 {
            return Err(Failure::NOT_SUPPORTED);
        }
        handle.write(mapped::create(device_of(properties.device)?, bytes)?);
        Ok(())
    };
    cuMemRelease(handle: Handle) => mapped::release(handle);
    cuMemRetainAllocationHandle(handle: Out<Handle>, address: usize) => set(handle, mapped::retain(address)?);
    cuMemGetAllocationPropertiesFromHandle(properties: Out<AllocationProperties>, handle: Handle) => {
        let device = mapped::device_of(handle)?.into();
        set(
            properties,
            AllocationProperties { kind: 1, handle_types: 0, location: 1, device, windows: 0, flags: [0; 8] },
        )
    };
    // The wish for an address and for an alignment are not followed: every address is a multiple of the granularity.
    cuMemAddressReserve(address: Out<usize>, bytes: usize, _alignment: usize, _wish: usize, _flags: u64) =>
        make(address, || memory::reserve(bytes));
    cuMemAddressFree(address: usize, _bytes: usize) => memory::unreserve(address);
    cuMemMap(address: usize, bytes: usize, offset: usize, handle: Handle, _flags: u64) => {
        if offset != 0 {
            return Err(Failure::NOT_SUPPORTED);
        }
        mapped::map(address, bytes, handle)
    };
    cuMemUnmap(address: usize, bytes: usize) => mapped::unmap(address, bytes);
    cuMemSetAccess() => Ok(());
}

refused! { errors::driver:
    cuMemExportToShareableHandle cuMemImportFromShareableHandle cuMulticastCreate cuMulticastAddDevice cuMulticastBindMem
    cuMulticastUnbind cuMulticastGetGranularity
}

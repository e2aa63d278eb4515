//! Allocation in the order of a stream, and pools of memory: torch's backend `cudaMallocAsync`.
//!
//! A pool here keeps nothing: what is freed goes back to the GPU at once, so its "reserved" is its "used".
#![allow(non_snake_case)] // the names of a public interface

use std::ffi::c_void;

use super::{accept, call};
use crate::entry_points::runtime;
use crate::errors::{Failure, Status};
use crate::{log, memory, set, streams, Handle, Out};

/// The pool of a GPU.
fn pool_of(device: u16) -> Handle {
    0x5000 + 64 * usize::from(device)
}

runtime! {
    cudaMallocAsync(out: Out<usize>, bytes: usize, stream: Handle) => {
        let out = out.ok_or(Failure::INVALID_VALUE)?;
        streams::check(stream)?;
        out.write(memory::allocate(bytes)?);
        Ok(())
    };
}

#[no_mangle]
extern "C" fn cudaMallocFromPoolAsync(out: Out<usize>, bytes: usize, _pool: Handle, stream: Handle) -> Status {
    cudaMallocAsync(out, bytes, stream)
}

runtime! {
    cudaFreeAsync(address: usize, stream: Handle) => {
        streams::check(stream)?;
        memory::release(address)
    };
    cudaDeviceGetDefaultMemPool(
        pool: Out<Handle>,
        device: i32,
    ) => set(pool, pool_of(super::devices::device_of(device)?));
}

#[no_mangle]
extern "C" fn cudaDeviceGetMemPool(pool: Out<Handle>, device: i32) -> Status {
    cudaDeviceGetDefaultMemPool(pool, device)
}

runtime! {
    cudaMemPoolCreate(pool: Out<Handle>, _properties: usize) => set(pool, pool_of(log::device()));
}

/// Attributes 1 to 3 are switches, and `int`; from 4 on they are bytes, and 64 bits wide.
#[no_mangle]
unsafe extern "C" fn cudaMemPoolGetAttribute(pool: Handle, attribute: i32, value: *mut c_void) -> Status {
    call(|| {
        if value.is_null() || !(1..=8).contains(&attribute) {
            return Err(Failure::INVALID_VALUE);
        }
        let bytes = if attribute == 4 { 0 } else { memory::used((pool.saturating_sub(0x5000) / 64) as u16) };
        // SAFETY: the contract of the C function: `value` has the type of the attribute.
        unsafe {
            if attribute <= 3 {
                value.cast::<i32>().write(1);
            } else {
                value.cast::<u64>().write(bytes);
            }
        }
        Ok(())
    })
}

runtime! {
    cudaDeviceGetGraphMemAttribute(_device: i32, _attribute: i32, value: Out<u64>) => set(value, 0);
}

accept! { cudaMemPoolSetAttribute cudaMemPoolSetAccess cudaMemPoolTrimTo cudaMemPoolDestroy cudaDeviceSetMemPool
cudaDeviceSetGraphMemAttribute cudaDeviceGraphMemTrim }

//! Memory: allocation, page-locked memory, copies and fills.
#![allow(non_snake_case)] // the names of a public interface

use super::call;
use crate::errors::{Failure, Status};
use crate::gpu::gpu;
use crate::log::{self, Kind};
use crate::memory::data::{self, Copy};
use crate::memory::{self, pinned};
use crate::runtime::{copy, copy_and_wait, fill};
use crate::{graphs, set, streams, Handle, Out};

#[no_mangle]
extern "C" fn cuMemAlloc_v2(out: Out<usize>, bytes: usize) -> Status {
    call(|| {
        let out = out.filter(|_| bytes > 0).ok_or(Failure::INVALID_VALUE)?;
        out.write(memory::allocate(bytes)?);
        Ok(())
    })
}

#[no_mangle]
extern "C" fn cuMemFree_v2(address: usize) -> Status {
    call(|| memory::release(address))
}

#[no_mangle]
extern "C" fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) -> Status {
    let _ = set(free, memory::free(log::device()) as usize); // both are optional
    let _ = set(total, gpu().memory_bytes as usize);
    0
}

#[no_mangle]
extern "C" fn cuMemHostAlloc(out: Out<usize>, bytes: usize, _flags: u32) -> Status {
    call(|| {
        let out = out.ok_or(Failure::INVALID_VALUE)?;
        out.write(pinned::allocate(bytes)?);
        Ok(())
    })
}

#[no_mangle]
extern "C" fn cuMemAllocHost_v2(out: Out<usize>, bytes: usize) -> Status {
    cuMemHostAlloc(out, bytes, 0)
}

#[no_mangle]
extern "C" fn cuMemFreeHost(address: usize) -> Status {
    call(|| pinned::release(address))
}

#[no_mangle]
extern "C" fn cuMemHostRegister_v2(address: usize, bytes: usize, _flags: u32) -> Status {
    call(|| pinned::register(address, bytes))
}

#[no_mangle]
extern "C" fn cuMemHostUnregister(address: usize) -> Status {
    call(|| pinned::unregister(address))
}

#[no_mangle]
unsafe extern "C" fn cuMemcpyHtoD_v2(to: usize, from: usize, bytes: usize) -> Status {
    // SAFETY: the contract of the C function: both ranges have `bytes` bytes.
    call(|| unsafe { copy_and_wait(Copy::plain(to, from, bytes)) })
}

#[no_mangle]
unsafe extern "C" fn cuMemcpyDtoH_v2(to: usize, from: usize, bytes: usize) -> Status {
    // SAFETY: the contract of the C function: both ranges have `bytes` bytes.
    call(|| unsafe { copy_and_wait(Copy::plain(to, from, bytes)) })
}

#[no_mangle]
unsafe extern "C" fn cuMemcpyAsync(to: usize, from: usize, bytes: usize, stream: Handle) -> Status {
    // SAFETY: the contract of the C function: both ranges have `bytes` bytes.
    call(|| unsafe { copy(Copy::plain(to, from, bytes), stream) })
}

#[no_mangle]
unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: usize, from: usize, bytes: usize, stream: Handle) -> Status {
    // SAFETY: the contract of the C function: both ranges have `bytes` bytes.
    call(|| unsafe { copy(Copy::plain(to, from, bytes), stream) })
}

#[no_mangle]
unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: usize, from: usize, bytes: usize, stream: Handle) -> Status {
    // SAFETY: the contract of the C function: both ranges have `bytes` bytes.
    call(|| unsafe { copy(Copy::plain(to, from, bytes), stream) })
}

#[no_mangle]
unsafe extern "C" fn cuMemcpyDtoDAsync_v2(to: usize, from: usize, bytes: usize, stream: Handle) -> Status {
    // SAFETY: the contract of the C function: both ranges have `bytes` bytes.
    call(|| unsafe { copy(Copy::plain(to, from, bytes), stream) })
}

#[no_mangle]
extern "C" fn cuMemsetD8Async(address: usize, value: u8, count: usize, stream: Handle) -> Status {
    call(|| fill(address, value, count, stream))
}

#[no_mangle]
extern "C" fn cuMemsetD8_v2(address: usize, value: u8, count: usize) -> Status {
    call(|| fill(address, value, count, 0))
}

/// Fills memory with words, of which there are `count`.
fn fill_words(address: usize, value: u32, count: usize, stream: Handle) -> Result<(), Failure> {
    let bytes = count.checked_mul(4).ok_or(Failure::INVALID_VALUE)?;
    if value == 0 {
        return fill(address, 0, bytes, stream);
    }
    streams::check(stream)?;
    if !memory::is_live(address, bytes) {
        return Err(Failure::INVALID_VALUE);
    }
    log::push(Kind::Fill, stream, 0, [bytes as u64]);
    if graphs::capture_of(stream).is_none() {
        data::fill_words(address, value, count)?;
    }
    Ok(())
}

#[no_mangle]
extern "C" fn cuMemsetD32Async(address: usize, value: u32, count: usize, stream: Handle) -> Status {
    call(|| fill_words(address, value, count, stream))
}

#[no_mangle]
extern "C" fn cuMemsetD32_v2(address: usize, value: u32, count: usize) -> Status {
    call(|| fill_words(address, value, count, 0))
}

#[no_mangle]
extern "C" fn cuStreamWriteValue32_v2(stream: Handle, address: usize, value: u32, _flags: u32) -> Status {
    call(|| fill_words(address, value, 1, stream))
}

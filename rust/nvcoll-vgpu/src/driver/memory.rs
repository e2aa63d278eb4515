//! Memory: allocation, page-locked memory, copies and fills.
#![allow(non_snake_case)] // the names of a public interface

use super::call;
use crate::entry_points::driver;
use crate::errors::{Failure, Status};
use crate::log::{self, Kind};
use crate::memory;
use crate::memory::data::{self, Copy};
use crate::runtime::{copy, copy_and_wait, fill};
use crate::{graphs, streams, Handle, Out};

driver! {
    cuMemAlloc_v2(out: Out<usize>, bytes: usize) => {
        let out = out.filter(|_| bytes > 0).ok_or(Failure::INVALID_VALUE)?;
        out.write(memory::allocate(bytes)?);
        Ok(())
    };
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

driver! {
    cuMemsetD8Async(address: usize, value: u8, count: usize, stream: Handle) => fill(address, value, count, stream);
    cuMemsetD8_v2(address: usize, value: u8, count: usize) => fill(address, value, count, 0);
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

driver! {
    cuMemsetD32Async(
        address: usize,
        value: u32,
        count: usize,
        stream: Handle,
    ) => fill_words(address, value, count, stream);
    cuMemsetD32_v2(address: usize, value: u32, count: usize) => fill_words(address, value, count, 0);
    cuStreamWriteValue32_v2(
        stream: Handle,
        address: usize,
        value: u32,
        _flags: u32,
    ) => fill_words(address, value, 1, stream);
}

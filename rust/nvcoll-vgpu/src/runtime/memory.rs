//! Memory: allocation, page-locked memory, questions about pointers, copies and fills.
#![allow(non_snake_case)] // the names of a public interface

use super::{accept, call};
use crate::entry_points::runtime;
use crate::errors::{Failure, Status};
use crate::gpu::gpu;
use crate::log::{self, Kind};
use crate::memory::data::{self, Copy};
use crate::memory::{self, pinned};
use crate::streams::{self, HostWait};
use crate::{graphs, make, set, Handle, Out};

runtime! {
    cudaMalloc(out: Out<usize>, bytes: usize) => make(out, || memory::allocate(bytes));
    cudaMallocManaged(out: Out<usize>, bytes: usize, _flags: u32) => make(out, || memory::allocate(bytes));
    cudaMallocPitch(out: Out<usize>, pitch: Out<usize>, width: usize, height: usize) => {
        let (out, pitch) = (out.ok_or(Failure::INVALID_VALUE)?, pitch.ok_or(Failure::INVALID_VALUE)?);
        let row = width.checked_next_multiple_of(512).ok_or(Failure::INVALID_VALUE)?;
        out.write(memory::allocate(row.checked_mul(height).ok_or(Failure::OUT_OF_MEMORY)?)?);
        pitch.write(row);
        Ok(())
    };
    cudaFree(address: usize), cuMemFree_v2 => memory::release(address);
    cudaMemGetInfo(free: Out<usize>, total: Out<usize>), cuMemGetInfo_v2 => {
        let _ = set(free, memory::free(log::device()) as usize); // both are optional
        let _ = set(total, gpu().memory_bytes as usize);
        Ok(())
    };
    cudaHostAlloc(out: Out<usize>, bytes: usize, _flags: u32), cuMemHostAlloc => make(out, || pinned::allocate(bytes));
    cudaMallocHost(out: Out<usize>, bytes: usize), cuMemAllocHost_v2 => make(out, || pinned::allocate(bytes));
    cudaFreeHost(address: usize), cuMemFreeHost => pinned::release(address);
    cudaHostRegister(
        address: usize,
        bytes: usize,
        _flags: u32,
    ), cuMemHostRegister_v2 => pinned::register(address, bytes);
    cudaHostUnregister(address: usize), cuMemHostUnregister => pinned::unregister(address);
    cudaHostGetDevicePointer(
        out: Out<usize>,
        address: usize,
        _flags: u32,
    ) => if memory::is_pinned(address) { set(out, address) } else { Err(Failure::INVALID_VALUE) };
    cudaHostGetFlags(
        flags: Out<u32>,
        address: usize,
    ) => if memory::is_pinned(address) { set(flags, 0) } else { Err(Failure::INVALID_VALUE) };
}

/// What a pointer is: the part of `cudaPointerAttributes` that CUDA 12 and 13 share.
#[repr(C)]
struct PointerAttributes {
    /// 0 memory that CUDA does not know, 1 page-locked, 2 device.
    kind: i32,
    device: i32,
    on_device: usize,
    on_host: usize,
}

runtime! {
    cudaPointerGetAttributes(attributes: Out<PointerAttributes>, address: usize) => {
        let device = i32::from(log::device());
        let what = if let Some((_, block)) = memory::block_of(address) {
            PointerAttributes { kind: 2, device: block.device.into(), on_device: address, on_host: 0 }
        } else if memory::is_device(address) && memory::is_live(address, 1) {
            PointerAttributes { kind: 2, device, on_device: address, on_host: 0 }
        } else if memory::is_pinned(address) {
            PointerAttributes { kind: 1, device, on_device: address, on_host: address }
        } else {
            PointerAttributes { kind: 0, device: -2, on_device: 0, on_host: 0 }
        };
        set(attributes, what)
    };
}

/// Writes a copy down and does it; in a capture it is only written down.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] for ranges that a GPU could not copy, [`Failure::INVALID_HANDLE`].
///
/// # Safety
/// Ranges of the host are valid.
pub(crate) unsafe fn copy(copy: Copy, stream: Handle) -> Result<(), Failure> {
    streams::check(stream)?;
    let bytes = copy.bytes()?;
    if bytes == 0 {
        return Ok(());
    }
    log::push(Kind::Copy, stream, 0, [bytes as u64, copy.direction()]);
    if graphs::capture_of(stream).is_none() {
        // SAFETY: the caller's contract, and `Copy::bytes` accepted the copy.
        unsafe { copy.run(bytes) };
    }
    Ok(())
}

/// A copy for which the host waits.
///
/// # Safety
/// As for [`copy`].
pub(crate) unsafe fn copy_and_wait(what: Copy) -> Result<(), Failure> {
    // SAFETY: the caller's contract.
    unsafe { copy(what, 0)? };
    streams::wait_for(HostWait::Stream(0))
}

#[no_mangle]
unsafe extern "C" fn cudaMemcpy(to: usize, from: usize, bytes: usize, _kind: i32) -> Status {
    // SAFETY: the contract of the C function: both ranges have `bytes` bytes.
    call(|| unsafe { copy_and_wait(Copy::plain(to, from, bytes)) })
}

#[no_mangle]
unsafe extern "C" fn cudaMemcpyAsync(to: usize, from: usize, bytes: usize, _kind: i32, stream: Handle) -> Status {
    // SAFETY: the contract of the C function: both ranges have `bytes` bytes.
    call(|| unsafe { copy(Copy::plain(to, from, bytes), stream) })
}

#[no_mangle]
unsafe extern "C" fn cudaMemcpyPeer(
    to: usize,
    _to_device: i32,
    from: usize,
    _from_device: i32,
    bytes: usize,
) -> Status {
    // SAFETY: the contract of the C function: both ranges have `bytes` bytes.
    call(|| unsafe { copy_and_wait(Copy::plain(to, from, bytes)) })
}

#[no_mangle]
unsafe extern "C" fn cudaMemcpyPeerAsync(
    to: usize,
    _to_device: i32,
    from: usize,
    _from_device: i32,
    bytes: usize,
    stream: Handle,
) -> Status {
    // SAFETY: the contract of the C function: both ranges have `bytes` bytes.
    call(|| unsafe { copy(Copy::plain(to, from, bytes), stream) })
}

#[no_mangle]
unsafe extern "C" fn cudaMemcpy2D(
    to: usize,
    to_pitch: usize,
    from: usize,
    from_pitch: usize,
    width: usize,
    height: usize,
    _kind: i32,
) -> Status {
    // SAFETY: the contract of the C function: both ranges have `height` rows of `width` bytes.
    call(|| unsafe { copy_and_wait(Copy { to, to_pitch, from, from_pitch, width, height }) })
}

#[no_mangle]
unsafe extern "C" fn cudaMemcpy2DAsync(
    to: usize,
    to_pitch: usize,
    from: usize,
    from_pitch: usize,
    width: usize,
    height: usize,
    _kind: i32,
    stream: Handle,
) -> Status {
    // SAFETY: the contract of the C function: both ranges have `height` rows of `width` bytes.
    call(|| unsafe { copy(Copy { to, to_pitch, from, from_pitch, width, height }, stream) })
}

/// Writes a fill down and does it; in a capture it is only written down.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] for a range that is not device memory in use, [`Failure::INVALID_HANDLE`].
pub(crate) fn fill(address: usize, byte: u8, bytes: usize, stream: Handle) -> Result<(), Failure> {
    streams::check(stream)?;
    if bytes == 0 {
        return Ok(());
    }
    if !memory::is_live(address, bytes) {
        return Err(Failure::INVALID_VALUE);
    }
    log::push(Kind::Fill, stream, 0, [bytes as u64]);
    if graphs::capture_of(stream).is_none() {
        data::fill(address, byte, bytes)?;
    }
    Ok(())
}

runtime! {
    cudaMemset(address: usize, value: i32, bytes: usize) => fill(address, value as u8, bytes, 0);
    cudaMemsetAsync(
        address: usize,
        value: i32,
        bytes: usize,
        stream: Handle,
    ) => fill(address, value as u8, bytes, stream);
    cudaMemset2DAsync(address: usize, pitch: usize, value: i32, width: usize, height: usize, stream: Handle) => {
        for row in 0..height {
            let start = pitch.checked_mul(row).and_then(|offset| address.checked_add(offset));
            fill(start.ok_or(Failure::INVALID_VALUE)?, value as u8, width, stream)?;
        }
        Ok(())
    };
}

accept! { cudaMemPrefetchAsync cudaMemAdvise cudaStreamAttachMemAsync }

/// Memory is not shared with other processes: they would have other GPUs.
macro_rules! refuse {
    ($($name:ident)*) => { $(
        #[no_mangle]
        extern "C" fn $name() -> Status {
            call(|| Err(Failure::NOT_SUPPORTED))
        }
    )* };
}

refuse! { cudaIpcGetMemHandle cudaIpcOpenMemHandle cudaIpcCloseMemHandle cudaIpcGetEventHandle cudaIpcOpenEventHandle }

//! Memory: allocation, in the order of a stream too, page-locked memory, questions about pointers, copies and fills.
//!
//! A pool of memory (torch's backend `cudaMallocAsync`) keeps nothing: what is freed goes back to the GPU at once, so its
//! "reserved" is its "used".
#![allow(non_snake_case)] // the names of a public interface

use std::ffi::c_void;

use super::device_of;
use crate::entry_points::{functions, refused, runtime};
use crate::errors::{self, Failure};
use crate::gpu::gpu;
use crate::log::{self, RecordKind};
use crate::memory::data::{self, Copy};
use crate::memory::{self, pinned};
use crate::streams::{self, HostWait};
use crate::{captures, make, set, Answer, Handle, Out};

/// What a pointer is: the part of `cudaPointerAttributes` that CUDA 12 and 13 share.
#[repr(C)]
pub(crate) struct PointerAttributes {
    /// 0 memory that CUDA does not know, 1 page-locked, 2 device.
    kind: i32,
    device: i32,
    on_device: usize,
    on_host: usize,
}

fn attributes_of(address: usize) -> PointerAttributes {
    let device = memory::block_of(address).map_or(log::device(), |(_, block)| block.device).into();
    if memory::is_device(address) && memory::is_live(address, 1) {
        PointerAttributes { kind: 2, device, on_device: address, on_host: 0 }
    } else if memory::is_pinned(address) {
        PointerAttributes { kind: 1, device, on_device: address, on_host: address }
    } else {
        PointerAttributes { kind: 0, device: -2, on_device: 0, on_host: 0 }
    }
}

/// `cudaIpcMemHandle_t`: an allocation. All ranks hold the same, so what a rank got from another is its own handle, and it opens
/// its own memory. The memory of other processes is not here.
#[derive(Clone, Copy, PartialEq)]
#[repr(C)]
pub(crate) struct IpcMemory {
    address: usize,
    bytes: usize,
    process: u32,
    rest: [u32; 11],
}

impl IpcMemory {
    fn of(address: usize) -> Result<IpcMemory, Failure> {
        let (address, block) =
            memory::block_of(address).filter(|(_, block)| !block.is_mapped).ok_or(Failure::INVALID_VALUE)?;
        Ok(IpcMemory { address, bytes: block.bytes, process: std::process::id(), rest: [0; 11] })
    }

    /// The address of the memory, if it is of this process and not released.
    fn open(self) -> Result<usize, Failure> {
        let own = IpcMemory::of(self.address).is_ok_and(|own| own == self);
        own.then_some(self.address).ok_or(Failure::MAP_FAILED)
    }
}

/// Writes a copy down and does it; in a capture it is only written down.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] for ranges that a GPU could not copy, [`Failure::INVALID_HANDLE`].
///
/// # Safety
/// Ranges of the host are valid.
pub(crate) unsafe fn copy(copy: Copy, stream: Handle) -> Answer {
    streams::check(stream)?;
    let bytes = copy.bytes()?;
    if bytes == 0 {
        return Ok(());
    }
    log::push(RecordKind::Copy, stream, 0, [bytes as u64, copy.direction()]);
    if captures::capture_of(stream).is_none() {
        // SAFETY: the caller's contract, and `Copy::bytes` accepted the copy.
        unsafe { copy.run(bytes) };
    }
    Ok(())
}

/// Refuses a direction that is none (`cudaMemcpyKind`). The addresses say where a copy goes, as the default direction has it.
fn check_direction(direction: i32) -> Answer {
    (0..=4).contains(&direction).then_some(()).ok_or(Failure::INVALID_DIRECTION)
}

/// A copy for which the host waits.
///
/// # Safety
/// As for [`copy`].
pub(crate) unsafe fn copy_and_wait(what: Copy) -> Answer {
    // SAFETY: the caller's contract.
    unsafe { copy(what, 0)? };
    streams::wait_for(HostWait::Stream(0))
}

/// Writes a fill with a word down and does it; in a capture it is only written down.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] for a range that is not device memory in use, [`Failure::INVALID_HANDLE`].
fn fill(address: usize, word: u32, bytes: usize, stream: Handle) -> Answer {
    fill_rows(address, bytes, word, bytes, 1, stream)
}

/// The same for rows that begin `pitch` bytes apart.
fn fill_rows(address: usize, pitch: usize, word: u32, width: usize, rows: usize, stream: Handle) -> Answer {
    streams::check(stream)?;
    if width == 0 || rows == 0 {
        return Ok(());
    }
    let whole = pitch.checked_mul(rows - 1).and_then(|before| before.checked_add(width));
    if pitch < width || !whole.is_some_and(|bytes| memory::is_live(address, bytes)) {
        return Err(Failure::INVALID_VALUE);
    }
    log::push(RecordKind::Fill, stream, 0, [(width * rows) as u64]);
    if captures::capture_of(stream).is_none() {
        (0..rows).try_for_each(|row| data::fill(address + row * pitch, word, width))?;
    }
    Ok(())
}

/// A fill with a byte.
fn fill_bytes(address: usize, byte: u8, bytes: usize, stream: Handle) -> Answer {
    fill(address, u32::from_le_bytes([byte; 4]), bytes, stream)
}

/// A fill of `count` words.
fn fill_words(address: usize, word: u32, count: usize, stream: Handle) -> Answer {
    let bytes = count.checked_mul(4).filter(|_| address.is_multiple_of(4));
    fill(address, word, bytes.ok_or(Failure::INVALID_VALUE)?, stream)
}

/// The pool of a GPU.
fn pool_of(device: u16) -> Handle {
    0x5000 + 64 * usize::from(device)
}

/// Writes an attribute of a pool: 1 to 3 are switches, and `int`; from 4 on they are bytes, and 64 bits wide.
///
/// # Safety
/// `value` has the type of the attribute.
unsafe fn write_of_pool(pool: Handle, attribute: i32, value: *mut c_void) -> Answer {
    let bytes = if attribute == 4 { 0 } else { memory::used((pool.saturating_sub(0x5000) / 64) as u16) };
    match attribute {
        _ if value.is_null() => return Err(Failure::INVALID_VALUE),
        // SAFETY: the caller's contract.
        1..=3 => unsafe { value.cast::<i32>().write(1) },
        // SAFETY: the caller's contract.
        4..=8 => unsafe { value.cast::<u64>().write(bytes) },
        _ => return Err(Failure::INVALID_VALUE),
    }
    Ok(())
}

runtime! {
    cudaMalloc cudaMallocManaged(out: Out<usize>, bytes: usize), cuMemAllocManaged => make(out, || memory::allocate(bytes));
    cudaFree(address: usize), cuMemFree_v2 => memory::release(address);
    // Both are optional.
    cudaMemGetInfo(free: Out<usize>, total: Out<usize>), cuMemGetInfo_v2 => {
        let _ = (set(free, memory::free(log::device()) as usize), set(total, gpu().memory_bytes as usize));
        Ok(())
    };
    cudaMallocHost cudaHostAlloc(out: Out<usize>, bytes: usize), cuMemHostAlloc cuMemAllocHost_v2 =>
        make(out, || pinned::allocate(bytes));
    cudaFreeHost(address: usize), cuMemFreeHost => pinned::release(address);
    cudaHostRegister(address: usize, bytes: usize, _flags: u32), cuMemHostRegister_v2 => pinned::register(address, bytes);
    cudaHostUnregister(address: usize), cuMemHostUnregister => pinned::unregister(address);
    cudaHostGetDevicePointer(out: Out<usize>, address: usize, _flags: u32), cuMemHostGetDevicePointer_v2 =>
        set(out.filter(|_| memory::is_pinned(address)), address);
    cudaPointerGetAttributes(attributes: Out<PointerAttributes>, address: usize) => set(attributes, attributes_of(address));
    cudaMemset(address: usize, value: i32, bytes: usize) => fill_bytes(address, value as u8, bytes, 0);
    cudaMemsetAsync(address: usize, value: i32, bytes: usize, stream: Handle) => fill_bytes(address, value as u8, bytes, stream);
    cudaMemset2DAsync(address: usize, pitch: usize, value: i32, width: usize, rows: usize, stream: Handle) =>
        fill_rows(address, pitch, u32::from_le_bytes([value as u8; 4]), width, rows, stream);
    cudaMallocAsync(out: Out<usize>, bytes: usize, stream: Handle), cuMemAllocAsync =>
        streams::check(stream).and_then(|()| make(out, || memory::allocate(bytes)));
    cudaMallocFromPoolAsync(out: Out<usize>, bytes: usize, _pool: Handle, stream: Handle), cuMemAllocFromPoolAsync =>
        streams::check(stream).and_then(|()| make(out, || memory::allocate(bytes)));
    cudaFreeAsync(address: usize, stream: Handle), cuMemFreeAsync => streams::check(stream).and_then(|()| memory::release(address));
    cudaDeviceGetDefaultMemPool cudaDeviceGetMemPool(pool: Out<Handle>, device: i32), cuDeviceGetDefaultMemPool
        cuDeviceGetMemPool => set(pool, pool_of(device_of(device)?));
    cudaMemPoolCreate(pool: Out<Handle>) => set(pool, pool_of(log::device()));
    cudaDeviceGetGraphMemAttribute(_device: i32, _attribute: i32, value: Out<u64>) => set(value, 0);
    cudaMemPrefetchAsync cudaMemAdvise cudaStreamAttachMemAsync cudaMemPoolSetAttribute cudaMemPoolSetAccess cudaMemPoolTrimTo
        cudaMemPoolDestroy cudaDeviceSetMemPool cudaDeviceSetGraphMemAttribute cudaDeviceGraphMemTrim() => Ok(());
    cudaIpcGetMemHandle(out: Out<IpcMemory>, address: usize), cuIpcGetMemHandle => set(out, IpcMemory::of(address)?);
    cudaIpcOpenMemHandle(out: Out<usize>, shared: IpcMemory), cuIpcOpenMemHandle_v2 => make(out, || shared.open());
    cudaIpcCloseMemHandle(address: usize), cuIpcCloseMemHandle => IpcMemory::of(address).map(drop);
}

refused! { errors::runtime: cudaIpcGetEventHandle cudaIpcOpenEventHandle }
refused! { errors::driver: cuIpcGetEventHandle cuIpcOpenEventHandle }

runtime! { unsafe:
    cudaMemcpy(to: usize, from: usize, bytes: usize, direction: i32) => {
        check_direction(direction)?;
        copy_and_wait(Copy::plain(to, from, bytes))
    };
    cudaMemcpyAsync(to: usize, from: usize, bytes: usize, direction: i32, stream: Handle) => {
        check_direction(direction)?;
        copy(Copy::plain(to, from, bytes), stream)
    };
    cudaMemcpyPeerAsync(to: usize, _to_device: i32, from: usize, _from_device: i32, bytes: usize, stream: Handle) =>
        copy(Copy::plain(to, from, bytes), stream);
    cudaMemcpy2D(to: usize, to_pitch: usize, from: usize, from_pitch: usize, width: usize, height: usize, direction: i32) => {
        check_direction(direction)?;
        copy_and_wait(Copy { to, to_pitch, from, from_pitch, width, height })
    };
    cudaMemcpy2DAsync(to: usize, to_pitch: usize, from: usize, from_pitch: usize, width: usize, height: usize,
        direction: i32, stream: Handle) => {
        check_direction(direction)?;
        copy(Copy { to, to_pitch, from, from_pitch, width, height }, stream)
    };
    cudaMemPoolGetAttribute(pool: Handle, attribute: i32, value: *mut c_void) => write_of_pool(pool, attribute, value);
}

functions! { unsafe errors::driver:
    cuMemcpyHtoD_v2 cuMemcpyDtoH_v2 cuMemcpyDtoD_v2 cuMemcpy(to: usize, from: usize, bytes: usize) =>
        copy_and_wait(Copy::plain(to, from, bytes));
    cuMemcpyAsync cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoDAsync_v2(to: usize, from: usize, bytes: usize,
        stream: Handle) => copy(Copy::plain(to, from, bytes), stream);
}

functions! { errors::driver:
    cuMemAlloc_v2(out: Out<usize>, bytes: usize) => make(out.filter(|_| bytes > 0), || memory::allocate(bytes));
    cuMemsetD8_v2(address: usize, value: u8, count: usize) => fill_bytes(address, value, count, 0);
    cuMemsetD8Async(address: usize, value: u8, count: usize, stream: Handle) => fill_bytes(address, value, count, stream);
    cuMemsetD32_v2(address: usize, value: u32, count: usize) => fill_words(address, value, count, 0);
    cuMemsetD32Async(address: usize, value: u32, count: usize, stream: Handle) => fill_words(address, value, count, stream);
    cuStreamWriteValue32_v2(stream: Handle, address: usize, value: u32) => fill_words(address, value, 1, stream);
}

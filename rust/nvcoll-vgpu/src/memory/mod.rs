//! Device memory and page-locked memory: exact counts, addresses, and small data.
//!
//! Device memory is address space ([`arena`]): an allocation takes a range of it and counts against the capacity of its GPU,
//! and a page exists only where a small copy or the host wrote. What is released gives its pages back and its range is used
//! again. Page-locked memory is ordinary memory with addresses of its own, so that a pointer says what it is.
//!
//! Memory that is mapped (`cuMemMap`) is counted where it is created, and its addresses are reserved apart: see
//! [`mod@mapped`].
pub mod arena;
pub mod data;
pub mod mapped;
pub mod pinned;
pub mod ranges;

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, MutexGuard};

use arena::{Arena, PAGE_BYTES};
use ranges::Ranges;

use crate::gpu::gpu;
use crate::lock::lock;
use crate::log::{self, RecordKind};
use crate::{Answer, Failure};

/// Address space of the memory of all GPUs: 32 TiB from 32 TiB on (chosen; no common layout of x86-64 uses it).
static DEVICE: LazyLock<Arena> = LazyLock::new(|| Arena::reserve(1 << 45, 1 << 45));

/// The multiple at which large allocations start, and the granularity of mapped memory.
pub const GRANULARITY: usize = 2 << 20;

/// Memory that a program got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Bytes that were asked for.
    pub bytes: usize,
    /// The GPU.
    pub device: u16,
    /// Whether it was mapped, or else allocated.
    pub is_mapped: bool,
}

/// What is in use of device memory.
pub(crate) struct DeviceMemory {
    free: Ranges,
    /// By their first address.
    blocks: BTreeMap<usize, Block>,
    /// Ranges of addresses that were reserved without memory.
    reserved: BTreeMap<usize, usize>,
    /// Bytes in use, per GPU.
    used: Vec<u64>,
}

static MEMORY: LazyLock<Mutex<DeviceMemory>> = LazyLock::new(|| {
    let arena = *DEVICE;
    Mutex::new(DeviceMemory {
        free: Ranges::new(arena.start, arena.bytes),
        blocks: BTreeMap::new(),
        reserved: BTreeMap::new(),
        used: vec![0; gpu().devices as usize],
    })
});

fn memory() -> MutexGuard<'static, DeviceMemory> {
    lock(&MEMORY)
}

/// Bytes of address space that an allocation takes.
fn room(bytes: usize) -> Result<usize, Failure> {
    bytes.checked_next_multiple_of(PAGE_BYTES).ok_or(Failure::OUT_OF_MEMORY)
}

fn alignment(bytes: usize) -> usize {
    if bytes < GRANULARITY / 2 {
        PAGE_BYTES
    } else {
        GRANULARITY
    }
}

impl DeviceMemory {
    /// Counts bytes of a GPU.
    fn count(&mut self, device: u16, bytes: usize) -> Answer {
        let used = self.used.get_mut(device as usize).ok_or(Failure::INVALID_DEVICE)?;
        let more = used.checked_add(bytes as u64).ok_or(Failure::OUT_OF_MEMORY)?;
        if more > gpu().available_bytes() {
            return Err(Failure::OUT_OF_MEMORY);
        }
        *used = more;
        Ok(())
    }

    fn discount(&mut self, device: u16, bytes: usize) {
        let used = &mut self.used[device as usize];
        *used = used.saturating_sub(bytes as u64);
    }

    fn block_at(&self, address: usize) -> Option<(usize, Block)> {
        let (&start, &block) = self.blocks.range(..=address).next_back()?;
        (address - start < block.bytes).then_some((start, block))
    }
}

/// Allocates memory of this thread's GPU. No bytes have no address.
///
/// # Errors
/// [`Failure::OUT_OF_MEMORY`] beyond the capacity of the GPU.
pub fn allocate(bytes: usize) -> Result<usize, Failure> {
    if bytes == 0 {
        return Ok(0);
    }
    let device = log::device();
    crate::gpu::use_device(device);
    let room = room(bytes)?;
    let mut memory = memory();
    memory.count(device, bytes)?;
    let Some(address) = memory.free.take(room, alignment(bytes)) else {
        memory.discount(device, bytes);
        return Err(Failure::OUT_OF_MEMORY);
    };
    memory.blocks.insert(address, Block { bytes, device, is_mapped: false });
    log::push(RecordKind::Malloc, 0, 0, [bytes as u64, address as u64]);
    Ok(address)
}

/// Releases what [`allocate`] gave. Null is released at no cost.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] for any other address, one that was released before included.
pub fn release(address: usize) -> Answer {
    if address == 0 {
        return Ok(());
    }
    let mut memory = memory();
    let Some(&block) = memory.blocks.get(&address).filter(|block| !block.is_mapped) else {
        return Err(Failure::INVALID_VALUE);
    };
    let room = room(block.bytes)?;
    memory.blocks.remove(&address);
    memory.discount(block.device, block.bytes);
    DEVICE.forget(address, room);
    memory.free.give(address, room);
    log::push(RecordKind::Free, 0, 0, [block.bytes as u64, address as u64]);
    Ok(())
}

/// Takes addresses of device memory that count as no memory: symbols, ranges to map memory into.
///
/// # Errors
/// [`Failure::OUT_OF_MEMORY`] if the address space is used up, [`Failure::INVALID_VALUE`] for 0 bytes.
pub fn reserve(bytes: usize) -> Result<usize, Failure> {
    if bytes == 0 {
        return Err(Failure::INVALID_VALUE);
    }
    let room = room(bytes)?;
    let mut memory = memory();
    let address = memory.free.take(room, alignment(bytes)).ok_or(Failure::OUT_OF_MEMORY)?;
    memory.reserved.insert(address, room);
    Ok(address)
}

/// Gives back addresses that [`reserve`] gave.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] for an address that it did not give, or into which memory is mapped.
pub fn unreserve(address: usize) -> Answer {
    let mut memory = memory();
    let &room = memory.reserved.get(&address).ok_or(Failure::INVALID_VALUE)?;
    if memory.blocks.range(address..address + room).next().is_some() {
        return Err(Failure::INVALID_VALUE);
    }
    memory.reserved.remove(&address);
    DEVICE.forget(address, room);
    memory.free.give(address, room);
    Ok(())
}

/// Whether an address is one of device memory, in use or not.
pub fn is_device(address: usize) -> bool {
    DEVICE.has(address)
}

/// Whether an address is one of page-locked memory, allocated or registered.
pub fn is_pinned(address: usize) -> bool {
    pinned::block_of(address).is_some()
}

/// The first address of the memory in which an address lies, and that memory.
pub fn block_of(address: usize) -> Option<(usize, Block)> {
    memory().block_at(address)
}

/// Whether all of a range is memory that a program holds: allocated, mapped, or reserved for a symbol.
pub fn is_live(address: usize, bytes: usize) -> bool {
    let memory = memory();
    let Some(end) = address.checked_add(bytes) else { return false };
    if let Some((&start, &room)) = memory.reserved.range(..=address).next_back() {
        if end <= start + room {
            return true;
        }
    }
    let mut at = address;
    while at < end {
        let Some((start, block)) = memory.block_at(at) else { return false };
        at = start + block.bytes;
    }
    true
}

/// Bytes in use of a GPU.
pub fn used(device: u16) -> u64 {
    memory().used.get(device as usize).copied().unwrap_or(0)
}

/// Takes memory of a GPU that has no address, as buffers of a library.
///
/// # Errors
/// [`Failure::OUT_OF_MEMORY`].
pub(crate) fn hold(device: u16, bytes: usize) -> Answer {
    memory().count(device, bytes)
}

/// Gives memory back that was held.
pub(crate) fn let_go(device: u16, bytes: usize) {
    memory().discount(device, bytes);
}

/// Bytes of a GPU that are free.
pub fn free(device: u16) -> u64 {
    gpu().available_bytes() - used(device)
}

/// The first address and the length of the addresses of device memory.
pub fn address_range() -> (usize, usize) {
    (DEVICE.start, DEVICE.bytes)
}

//! Memory that is created, mapped at an address and released by handles (`cuMemCreate`): torch's expandable segments.
//!
//! A handle holds memory of a GPU, which counts from its creation on. It is released when its creator released it and the
//! last mapping of it is gone, as the driver does it.
use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex};

use super::{memory, Block, DEVICE, GRANULARITY};
use crate::lock::lock;
use crate::log::{self, RecordKind};
use crate::{Answer, Failure, Handle};

struct Created {
    bytes: usize,
    device: u16,
    /// Releases that are to come, and mappings.
    holds: usize,
    /// Releases that are to come.
    releases: usize,
}

#[derive(Default)]
struct MappedHandles {
    created: BTreeMap<Handle, Created>,
    /// By address: the handle that is mapped there.
    mapped: BTreeMap<usize, Handle>,
    next: Handle,
}

static HANDLES: LazyLock<Mutex<MappedHandles>> = LazyLock::new(Mutex::default);

/// Creates memory of a GPU.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] unless `bytes` is a multiple of [`GRANULARITY`], [`Failure::OUT_OF_MEMORY`] beyond the
/// capacity, [`Failure::INVALID_DEVICE`].
pub fn create(device: u16, bytes: usize) -> Result<Handle, Failure> {
    if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
        return Err(Failure::INVALID_VALUE);
    }
    let mut handles = lock(&HANDLES);
    memory().count(device, bytes)?;
    handles.next += 1;
    let handle = handles.next << 6;
    handles.created.insert(handle, Created { bytes, device, holds: 1, releases: 1 });
    log::push(RecordKind::Malloc, 0, 0, [bytes as u64, handle as u64]);
    Ok(handle)
}

impl MappedHandles {
    fn drop_hold(&mut self, handle: Handle) {
        let Some(created) = self.created.get_mut(&handle) else { return };
        created.holds -= 1;
        if created.holds == 0 {
            let (bytes, device) = (created.bytes, created.device);
            self.created.remove(&handle);
            memory().discount(device, bytes);
            log::push(RecordKind::Free, 0, 0, [bytes as u64, handle as u64]);
        }
    }
}

/// Drops the creator's hold of a handle.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] for an unknown handle, or one that was released before.
pub fn release(handle: Handle) -> Answer {
    let mut handles = lock(&HANDLES);
    let created = handles.created.get_mut(&handle).filter(|created| created.releases > 0);
    created.ok_or(Failure::INVALID_VALUE)?.releases -= 1;
    handles.drop_hold(handle);
    Ok(())
}

/// The handle that is mapped where an address lies. Its caller holds it too, and releases it.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] for an address into which nothing is mapped.
pub fn retain(address: usize) -> Result<Handle, Failure> {
    let mut handles = lock(&HANDLES);
    let start = super::block_of(address).ok_or(Failure::INVALID_VALUE)?.0;
    let handle = *handles.mapped.get(&start).ok_or(Failure::INVALID_VALUE)?;
    let created = handles.created.get_mut(&handle).ok_or(Failure::INVALID_VALUE)?;
    created.holds += 1;
    created.releases += 1;
    Ok(handle)
}

/// The GPU whose memory a handle holds.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] for an unknown handle.
pub fn device_of(handle: Handle) -> Result<u16, Failure> {
    let handles = lock(&HANDLES);
    handles.created.get(&handle).map(|created| created.device).ok_or(Failure::INVALID_VALUE)
}

/// Maps the memory of a handle at an address that was reserved.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] for an unknown handle, a size that is not the handle's, addresses that are not reserved or
/// into which memory is mapped.
pub fn map(address: usize, bytes: usize, handle: Handle) -> Answer {
    let mut handles = lock(&HANDLES);
    let created = handles.created.get_mut(&handle).ok_or(Failure::INVALID_VALUE)?;
    let mut memory = memory();
    let end = address.checked_add(bytes).ok_or(Failure::INVALID_VALUE)?;
    let reserved = memory.reserved.range(..=address).next_back();
    let is_reserved = reserved.is_some_and(|(start, room)| end <= start + room);
    let overlaps = memory.block_at(address).is_some() || memory.blocks.range(address..end).next().is_some();
    if bytes != created.bytes || !is_reserved || overlaps {
        return Err(Failure::INVALID_VALUE);
    }
    created.holds += 1;
    memory.blocks.insert(address, Block { bytes, device: created.device, is_mapped: true });
    handles.mapped.insert(address, handle);
    Ok(())
}

/// Unmaps all mappings of a range, which must begin and end at one's ends.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] if it does not, or if nothing is mapped there.
pub fn unmap(address: usize, bytes: usize) -> Answer {
    let mut handles = lock(&HANDLES);
    let end = address.checked_add(bytes).ok_or(Failure::INVALID_VALUE)?;
    let found: Vec<(usize, Handle)> = handles.mapped.range(address..end).map(|(at, handle)| (*at, *handle)).collect();
    let mut memory = memory();
    let lengths: usize = found.iter().map(|(at, _)| memory.blocks[at].bytes).sum();
    if found.is_empty() || lengths != bytes || found[0].0 != address {
        return Err(Failure::INVALID_VALUE);
    }
    for (at, _) in &found {
        memory.blocks.remove(at);
        handles.mapped.remove(at);
    }
    DEVICE.forget(address, bytes);
    drop(memory);
    for (_, handle) in found {
        handles.drop_hold(handle);
    }
    Ok(())
}

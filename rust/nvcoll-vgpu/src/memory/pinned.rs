//! Page-locked memory: ordinary memory of the host, at addresses that say what it is.
use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex};

use super::arena::{Arena, PAGE_BYTES};
use super::ranges::Ranges;
use crate::lock::lock;
use crate::{Answer, Failure};

/// Address space of page-locked memory: 4 TiB from 24 TiB on (chosen).
static PINNED: LazyLock<Arena> = LazyLock::new(|| Arena::reserve(24 << 40, 1 << 42));

struct Pinned {
    free: Ranges,
    blocks: BTreeMap<usize, usize>,
    /// Memory of the program that it registered as page-locked.
    registered: BTreeMap<usize, usize>,
}

static STATE: LazyLock<Mutex<Pinned>> = LazyLock::new(|| {
    let arena = *PINNED;
    let free = Ranges::new(arena.start, arena.bytes);
    Mutex::new(Pinned { free, blocks: BTreeMap::new(), registered: BTreeMap::new() })
});

/// Allocates page-locked memory.
///
/// # Errors
/// [`Failure::OUT_OF_MEMORY`] if no addresses are left.
pub fn allocate(bytes: usize) -> Result<usize, Failure> {
    if bytes == 0 {
        return Ok(0);
    }
    let room = bytes.checked_next_multiple_of(PAGE_BYTES).ok_or(Failure::OUT_OF_MEMORY)?;
    let mut state = lock(&STATE);
    let address = state.free.take(room, PAGE_BYTES).ok_or(Failure::OUT_OF_MEMORY)?;
    state.blocks.insert(address, room);
    Ok(address)
}

/// Releases what [`allocate`] gave.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] for any other address but null.
pub fn release(address: usize) -> Answer {
    if address == 0 {
        return Ok(());
    }
    let mut state = lock(&STATE);
    let room = state.blocks.remove(&address).ok_or(Failure::INVALID_VALUE)?;
    PINNED.forget(address, room);
    state.free.give(address, room);
    Ok(())
}

/// Remembers that memory of the program is page-locked.
///
/// # Errors
/// [`Failure::ALREADY_REGISTERED`] if part of it is, [`Failure::INVALID_VALUE`] for null or no bytes.
pub fn register(address: usize, bytes: usize) -> Answer {
    let end = address.checked_add(bytes).ok_or(Failure::INVALID_VALUE)?;
    if address == 0 || bytes == 0 {
        return Err(Failure::INVALID_VALUE);
    }
    let mut state = lock(&STATE);
    let before = [&state.registered, &state.blocks].map(|memory| memory.range(..end).next_back());
    if before.into_iter().flatten().any(|(start, length)| start + length > address) {
        return Err(Failure::ALREADY_REGISTERED);
    }
    state.registered.insert(address, bytes);
    Ok(())
}

/// Forgets what [`register`] remembered.
///
/// # Errors
/// [`Failure::NOT_REGISTERED`] for an address that was not registered.
pub fn unregister(address: usize) -> Answer {
    let removed = lock(&STATE).registered.remove(&address);
    removed.map(drop).ok_or(Failure::NOT_REGISTERED)
}

/// The first address and the bytes of the page-locked memory in which an address lies.
pub fn block_of(address: usize) -> Option<(usize, usize)> {
    let state = lock(&STATE);
    let memory = if PINNED.has(address) { &state.blocks } else { &state.registered };
    let (&start, &bytes) = memory.range(..=address).next_back()?;
    (address - start < bytes).then_some((start, bytes))
}

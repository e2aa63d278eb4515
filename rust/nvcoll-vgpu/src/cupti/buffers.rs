//! Buffers of the profiler: it hands one out when asked, and reads it record by record.
use std::sync::Mutex;

use super::records::size_of_kind;
use crate::lock::lock;
use crate::{Answer, Failure, Handle};

/// Asks for a buffer: writes its address, its bytes, and the largest number of its records (0: no limit).
pub(crate) type Ask = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// Gives a buffer back: context, stream, address, bytes, bytes that are filled.
pub(crate) type Give = extern "C" fn(Handle, u32, *mut u8, usize, usize);

/// Keeps the functions that hand out and take buffers.
pub(super) fn register(ask: Ask, give: Give) {
    *lock(&CALLBACKS) = Some((ask, give));
}

static CALLBACKS: Mutex<Option<(Ask, Give)>> = Mutex::new(None);

/// A buffer of the profiler that is not filled yet: address, bytes, most records.
static HELD: Mutex<Option<(Handle, usize, usize)>> = Mutex::new(None);

fn ask_for_one(ask: Ask) -> Option<(Handle, usize, usize)> {
    let (mut buffer, mut bytes, mut most) = (std::ptr::null_mut(), 0, 0);
    ask(&mut buffer, &mut bytes, &mut most);
    (!buffer.is_null()).then_some((buffer as Handle, bytes, most))
}

/// Asks for a buffer unless one is held: the profiler flushes only if it handed one out.
pub(super) fn prepare() {
    let callbacks = *lock(&CALLBACKS);
    let Some((ask, _)) = callbacks else { return };
    let mut held = lock(&HELD);
    if held.is_none() {
        *held = ask_for_one(ask);
    }
}

/// Fills buffers until all records are in one, and gives each back.
pub(super) fn deliver(activities: Vec<Vec<u8>>) {
    let callbacks = *lock(&CALLBACKS);
    let Some((ask, give)) = callbacks else { return };
    let mut rest = &activities[..];
    while !rest.is_empty() {
        let held = lock(&HELD).take();
        let Some((buffer, bytes, most)) = held.or_else(|| ask_for_one(ask)) else { return };
        let fits = count_that_fits(rest, bytes, most);
        let mut filled = 0;
        for activity in &rest[..fits] {
            // SAFETY: the profiler's buffer has `bytes` bytes, and the records that were counted fit in them.
            unsafe { activity.as_ptr().copy_to_nonoverlapping((buffer + filled) as *mut u8, activity.len()) };
            filled += activity.len();
        }
        give(0, 0, buffer as *mut u8, bytes, filled);
        if fits == 0 {
            return;
        }
        rest = &rest[fits..];
    }
}

fn count_that_fits(activities: &[Vec<u8>], bytes: usize, most: usize) -> usize {
    let most = if most == 0 { activities.len() } else { most };
    let mut end = 0;
    let fits = |activity: &&Vec<u8>| {
        end += activity.len();
        end <= bytes
    };
    activities.iter().take(most).take_while(fits).count()
}

/// Moves to the record behind `*record`, or to the first one from null.
pub(super) fn advance(buffer: Handle, filled: usize, record: &mut Handle) -> Answer {
    let mut next = buffer;
    if *record != 0 {
        let offset = record.checked_sub(buffer).filter(|offset| offset.saturating_add(4) <= filled);
        let at = buffer + offset.ok_or(Failure::INVALID_VALUE)?;
        // SAFETY: the record lies in the filled part of the buffer, as just checked, and starts with its kind.
        let kind = unsafe { (at as *const u32).read_unaligned() };
        next = at.saturating_add(size_of_kind(kind).ok_or(Failure::INVALID_VALUE)?);
    }
    if next >= buffer.saturating_add(filled) {
        return Err(Failure::NOT_FOUND);
    }
    *record = next;
    Ok(())
}

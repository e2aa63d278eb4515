//! The little data that device memory holds: copies and fills.
//!
//! | what | done |
//! |---|---|
//! | to the host | always: memory that was never written reads as zero |
//! | to a GPU, up to [`KEPT_BYTES`] | done; between GPUs only if the source has pages |
//! | to a GPU, larger | the destination reads as zero afterwards |
//!
//! So a program reads what it wrote itself if that is small, and never what lay there before.
use super::arena::PAGE_BYTES;
use super::{is_device, is_live, DEVICE};
use crate::{Answer, Failure};

/// Copies up to this size are done (chosen: tables of parameters and indices fit, weights do not).
pub const KEPT_BYTES: usize = 4 << 20;

/// A copy of `height` rows of `width` bytes, which lie `pitch` bytes apart; one row for a plain copy.
#[derive(Clone, Copy, Debug)]
pub struct Copy {
    /// The first address that is written.
    pub to: usize,
    /// Bytes from row to row there.
    pub to_pitch: usize,
    /// The first address that is read.
    pub from: usize,
    /// Bytes from row to row there.
    pub from_pitch: usize,
    /// Bytes of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl Copy {
    /// A copy of one row.
    pub fn plain(to: usize, from: usize, bytes: usize) -> Copy {
        Copy { to, to_pitch: bytes, from, from_pitch: bytes, width: bytes, height: 1 }
    }

    /// 0 host to host, 1 device to host, 2 host to device, 3 device to device.
    pub fn direction(&self) -> u64 {
        2 * u64::from(is_device(self.to)) + u64::from(is_device(self.from))
    }

    /// Bytes that the copy moves.
    ///
    /// # Errors
    /// [`Failure::INVALID_VALUE`] if rows overlap, a range passes the end of the address space, or one of device memory is
    /// not in use.
    pub fn bytes(&self) -> Result<usize, Failure> {
        let bytes = self.width.checked_mul(self.height).ok_or(Failure::INVALID_VALUE)?;
        if bytes == 0 {
            return Ok(0);
        }
        for (start, pitch) in [(self.to, self.to_pitch), (self.from, self.from_pitch)] {
            let span = pitch.checked_mul(self.height - 1).and_then(|rows| rows.checked_add(self.width));
            let span = span.ok_or(Failure::INVALID_VALUE)?;
            let is_inside = start != 0 && start.checked_add(span).is_some();
            let overlaps = self.height > 1 && pitch < self.width;
            if !is_inside || overlaps || (is_device(start) && !is_live(start, span)) {
                return Err(Failure::INVALID_VALUE);
            }
        }
        Ok(bytes)
    }

    /// Does what the table of this module says.
    ///
    /// # Safety
    /// Ranges of the host are valid: readable at `from`, writable at `to`. [`Copy::bytes`] accepted the copy.
    pub unsafe fn run(&self, bytes: usize) {
        for row in 0..self.height {
            let (to, from) = (self.to + row * self.to_pitch, self.from + row * self.from_pitch);
            // SAFETY: the caller vouches for ranges of the host; `Copy::bytes` checked ranges of device memory.
            unsafe { copy_row(to, from, self.width, bytes) };
        }
    }
}

/// # Safety
/// As for [`Copy::run`].
unsafe fn copy_row(to: usize, from: usize, width: usize, bytes: usize) {
    if is_device(to) && (bytes > KEPT_BYTES || (is_device(from) && !has_pages(from, width))) {
        return DEVICE.forget(to, width);
    }
    // SAFETY: the caller's contract: both ranges are valid; `copy` allows that they overlap.
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, width) };
}

/// Whether a range of device memory has a page at all; small ranges are not worth the question.
fn has_pages(address: usize, bytes: usize) -> bool {
    if bytes <= PAGE_BYTES {
        return true;
    }
    let first = address / PAGE_BYTES * PAGE_BYTES;
    let pages = (address + bytes - first).div_ceil(PAGE_BYTES);
    let mut resident = vec![0u8; pages];
    // SAFETY: the pages are of the arena's mapping, since the range is in it, and the vector has one byte for each.
    let answered = unsafe { libc::mincore(first as *mut libc::c_void, pages * PAGE_BYTES, resident.as_mut_ptr()) };
    answered != 0 || resident.iter().any(|page| page & 1 == 1)
}

/// Fills device memory with a word, again and again. More than [`KEPT_BYTES`] reads as zero afterwards.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] if the range is not device memory in use.
pub fn fill(address: usize, word: u32, bytes: usize) -> Answer {
    if !is_device(address) || !is_live(address, bytes) {
        return Err(Failure::INVALID_VALUE);
    }
    if word == 0 || bytes > KEPT_BYTES {
        return forget(address, bytes);
    }
    let pattern = word.to_le_bytes();
    // SAFETY: the range is in use, so it lies in the arena's mapping, which is writable; its bytes have no type here. The
    // program that uses it while a call fills it has a race of its own on a GPU, too.
    let range = unsafe { std::slice::from_raw_parts_mut(address as *mut u8, bytes) };
    range.chunks_mut(4).for_each(|chunk| chunk.copy_from_slice(&pattern[..chunk.len()]));
    Ok(())
}

/// Makes a range of device memory read as zero.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] if the range is not device memory.
pub fn forget(address: usize, bytes: usize) -> Answer {
    if !DEVICE.has_all(address, bytes) {
        return Err(Failure::INVALID_VALUE);
    }
    DEVICE.forget(address, bytes);
    Ok(())
}

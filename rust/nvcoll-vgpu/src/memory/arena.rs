//! Address space without pages: reserved once, and the kernel gives a page when one is written.
//!
//! Both arenas have addresses of their own choice, so that two runs of a program write the same log. If something lies there
//! already, the kernel chooses. Pages that are given back read as zero.
use std::ffi::c_void;

use rustix::mm::{madvise, mmap_anonymous, Advice, MapFlags, ProtFlags};

/// The page of x86-64.
pub const PAGE_BYTES: usize = 4096;

/// A mapping that lives as long as the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arena {
    /// The first address.
    pub start: usize,
    /// Bytes.
    pub bytes: usize,
}

impl Arena {
    /// Reserves `bytes` at `wish`, or less where the process may not have so much, but at least 1/32 of it.
    ///
    /// # Panics
    /// If the process may not reserve 1/32 of `bytes`.
    pub fn reserve(wish: usize, bytes: usize) -> Arena {
        (0..=5)
            .map(|shift| bytes >> shift)
            .find_map(|bytes| Arena::map(wish, bytes).or_else(|| Arena::map(0, bytes)))
            .expect("address space for the memory of virtual GPUs; raise `ulimit -v`")
    }

    fn map(wish: usize, bytes: usize) -> Option<Arena> {
        let fixed = if wish == 0 { MapFlags::empty() } else { MapFlags::FIXED_NOREPLACE };
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | fixed;
        // SAFETY: FIXED_NOREPLACE, or no wish: the mapping replaces nothing that is in use.
        let start = unsafe { mmap_anonymous(wish as *mut c_void, bytes, ProtFlags::READ | ProtFlags::WRITE, flags) };
        let start = start.ok()?;
        // SAFETY: the range is the mapping that was just made. A huge page would take 2 MiB for one written byte.
        let _ = unsafe { madvise(start, bytes, Advice::LinuxNoHugepage) };
        // SAFETY: as above. A core file of a crashed script need not hold it.
        let _ = unsafe { madvise(start, bytes, Advice::LinuxDontDump) };
        Some(Arena { start: start as usize, bytes })
    }

    /// Whether an address lies in the arena.
    pub fn has(&self, address: usize) -> bool {
        address.wrapping_sub(self.start) < self.bytes
    }

    /// Whether all of a range lies in the arena.
    pub fn has_all(&self, address: usize, bytes: usize) -> bool {
        let offset = address.wrapping_sub(self.start);
        offset <= self.bytes && bytes <= self.bytes - offset
    }

    /// Makes a range read as zero, and gives its whole pages back.
    ///
    /// # Panics
    /// If the range is not in the arena.
    pub fn forget(&self, address: usize, bytes: usize) {
        assert!(self.has_all(address, bytes), "a range outside the arena");
        let end = address + bytes;
        let (first, last) = (address.next_multiple_of(PAGE_BYTES), end / PAGE_BYTES * PAGE_BYTES);
        if first >= last {
            return zero(address, bytes);
        }
        zero(address, first - address);
        zero(last, end - last);
        // SAFETY: whole pages of this arena's private mapping, by the assertion above; afterwards they read as zero.
        let _ = unsafe { madvise(first as *mut c_void, last - first, Advice::LinuxDontNeed) };
    }
}

/// Writes zeros over part of a page, unless it already reads as zero: reading gives no page to the process.
fn zero(address: usize, bytes: usize) {
    if bytes == 0 {
        return;
    }
    // SAFETY: the caller asserts that the range lies in an arena, which is mapped for reading and writing. The program that
    // writes device memory while a call clears it has a race of its own on a GPU, too; the bytes have no type here.
    unsafe {
        let range = std::slice::from_raw_parts_mut(address as *mut u8, bytes);
        if range.iter().any(|byte| *byte != 0) {
            range.fill(0);
        }
    }
}

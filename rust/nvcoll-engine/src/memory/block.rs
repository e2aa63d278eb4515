//! Memory that the engine owns: aligned to a page, reached through raw pointers only, because ranks share it. A block lies on the heap of
//! this process, or it is a mapping of memory that several processes share (`shared.rs`).

use std::alloc::{alloc, alloc_zeroed, dealloc, Layout};

/// The size of a page. Cited: x86-64 and most arm64 Linux.
const PAGE_BYTES: usize = 4096;
/// The size of a huge page on the same machines. Cited.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// The least size for which huge pages are requested. The first access to new pages takes half of a strided call. Chosen: as in
/// numpy.
const HUGE_FROM_BYTES: usize = 2 * HUGE_PAGE_BYTES;
/// The least size of zeroed blocks that are mapped. The allocator maps such blocks too, until the first is freed: then it keeps a few
/// MiB of them, and writes the zeros of the next. Chosen: staging.
const MAPPED_FROM_BYTES: usize = 1 << 20;

/// A block of bytes. It is never a reference: many threads write it under the schedule's proof.
#[derive(Debug)]
pub struct MemoryBlock {
    start: *mut u8,
    bytes: usize,
    origin: BlockOrigin,
}

/// Where a block came from, and goes to.
#[derive(Debug)]
enum BlockOrigin {
    /// The allocator, which returned `base` for this layout.
    Heap { base: *mut u8, layout: Layout },
    /// A mapping.
    Mapping,
}

// SAFETY: a block is an address and a size; who may touch its bytes when is what the proof of a schedule says.
unsafe impl Send for MemoryBlock {}
// SAFETY: a shared block gives away its address and size; the block itself has no method that reads or writes its bytes.
unsafe impl Sync for MemoryBlock {}

impl MemoryBlock {
    /// Allocates `bytes` zeroed bytes (at least one); `None` if there is no memory. Pages that nobody touches take none.
    pub fn try_zeroed(bytes: usize) -> Option<Self> {
        if bytes >= MAPPED_FROM_BYTES {
            return Self::try_mapped(bytes);
        }
        // Not aligned by the allocator: that would write the zeros, where new pages of the system have them.
        let layout = Layout::from_size_align(bytes.max(1).checked_add(PAGE_BYTES)?, 1).ok()?;
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        let start = base.wrapping_add(base.align_offset(PAGE_BYTES));
        let origin = BlockOrigin::Heap { base, layout };
        (!base.is_null()).then_some(Self { start, bytes: bytes.max(1), origin })
    }

    /// Maps `bytes` zeroed bytes; `None` if there is no memory.
    fn try_mapped(bytes: usize) -> Option<Self> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the system chooses where, so nothing else is unmapped.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        // SAFETY: the mapping is new, and the block alone has it.
        (start != libc::MAP_FAILED).then(|| unsafe { Self::of_mapping(start.cast(), bytes) })
    }

    /// Takes over a mapping.
    ///
    /// # Safety
    /// `start` is the address of a mapping of `bytes` bytes that nobody else unmaps.
    pub(super) unsafe fn of_mapping(start: *mut u8, bytes: usize) -> Self {
        Self { start, bytes, origin: BlockOrigin::Mapping }
    }

    /// Allocates `bytes` bytes (at least one) that nobody reads before they are written; `None` if there is no memory.
    pub fn try_unset(bytes: usize) -> Option<Self> {
        let is_huge = bytes >= HUGE_FROM_BYTES;
        let alignment = if is_huge { HUGE_PAGE_BYTES } else { PAGE_BYTES };
        let layout = Layout::from_size_align(bytes.max(1), alignment).ok()?;
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc(layout) };
        if is_huge && !start.is_null() {
            // SAFETY: the pages are ours, and how large they are changes nothing that a program can read. Whether the advice
            // is followed does not matter.
            unsafe { libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        let origin = BlockOrigin::Heap { base: start, layout };
        (!start.is_null()).then_some(Self { start, bytes: layout.size(), origin })
    }

    /// Returns the address of the first byte.
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// Returns the size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for MemoryBlock {
    fn drop(&mut self) {
        match self.origin {
            BlockOrigin::Heap { base, layout } => {
                // SAFETY: `base` came from the allocator with this layout and is freed once.
                unsafe { dealloc(base, layout) };
            }
            BlockOrigin::Mapping => {
                // SAFETY: the block has the mapping for itself, says `of_mapping`, and unmaps it once.
                unsafe { libc::munmap(self.start.cast(), self.bytes) };
            }
        }
    }
}

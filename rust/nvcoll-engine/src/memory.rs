//! Memory that the engine owns: zeroed, aligned to a page, reached through raw pointers only, because ranks share it.

use std::alloc::{alloc_zeroed, dealloc, handle_alloc_error, Layout};

/// A page of the machines we know. Cited: x86-64 and most arm64 Linux.
const PAGE_BYTES: usize = 4096;

/// A block of bytes on the heap. Never a reference: many threads write it under the schedule's proof.
#[derive(Debug)]
pub struct Block {
    start: *mut u8,
    layout: Layout,
}

// SAFETY: a block is an address and a size; who may touch its bytes when is what the proof of a schedule says.
unsafe impl Send for Block {}
// SAFETY: as above; the block itself has no method that reads or writes its bytes.
unsafe impl Sync for Block {}

impl Block {
    /// Allocates `bytes` zeroed bytes (at least one).
    pub fn zeroed(bytes: usize) -> Self {
        let layout =
            Layout::from_size_align(bytes.max(1), PAGE_BYTES).expect("a block is smaller than the address space");
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        Self { start, layout }
    }

    /// Returns the address of the first byte.
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// Returns the size.
    pub fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc_zeroed` with this layout and is freed once.
        unsafe { dealloc(self.start, self.layout) };
    }
}

//! Bound folds: the kernel of a fold, and where its sources and destinations lie, without the base pointers of a call.

use super::store_choice::Streaming;
use crate::kernel::Kernel;

/// The address of a view, given the buffers of all ranks, the tile and the call.
#[derive(Debug, Clone, Copy)]
pub(super) struct ViewAddress {
    /// The place of the base pointer, by [`place`](crate::memory::buffers::Buffers::place).
    pub(super) base: u32,
    pub(super) is_staging: bool,
    /// In bytes; in staging the number of the chunk.
    pub(super) offset: usize,
}

/// A fold of one chunk: its kernel, and the addresses of its sources and destinations.
#[derive(Debug, Clone, Copy)]
pub(super) struct BoundFold {
    pub(super) kernel: Kernel,
    pub(super) first_address: u32,
    pub(super) n_src: u32,
    pub(super) n_dst: u32,
    pub(super) is_scaled: bool,
    /// The number of destinations in user memory that other steps touch; then come those in staging, then those that no other step
    /// touches. Stores to all but the first may bypass the caches.
    pub(super) n_plain: u32,
    pub(super) n_staging: u32,
    /// The chunk that the fold writes. If the program can be coalesced, it is the chunk of the sources too.
    pub(super) chunk: u32,
    pub(super) count: usize,
}

impl BoundFold {
    /// Returns the number of destinations that get plain stores in a call of this kind.
    #[inline]
    pub(super) fn n_kept(&self, kind: Streaming) -> usize {
        let kept = match kind {
            Streaming::Nothing => self.n_dst,
            Streaming::Outputs => self.n_plain + self.n_staging,
            Streaming::Staging => self.n_plain,
        };
        kept as usize
    }

    /// Returns the range of its sources and destinations in the list of addresses.
    pub(super) fn addresses(&self) -> std::ops::Range<usize> {
        let first = self.first_address as usize;
        first..first + (self.n_src + self.n_dst) as usize
    }
}

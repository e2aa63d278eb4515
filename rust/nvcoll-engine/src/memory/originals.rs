//! The user's arrays of one rank, where the engine works on packed copies.
//!
//! Copies overlap nothing, but the arrays behind them may. So a rank that passes a strided array says where the array itself lies, and
//! its peers compare that (`footprint.rs`). Ranks are threads, so the arrays lie behind a lock, which calls of packed arrays never take.
//! There are two places by the parity of the call, under the same stamp rule as records.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::memory::strided::{Layout, PlacedArray};

/// An array that a user passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginalArray {
    /// The address of the first element.
    pub address: usize,
    /// The layout of the elements from there.
    pub layout: Layout,
    /// Whether the call changes it.
    pub is_written: bool,
}

impl OriginalArray {
    /// Describes a packed range of bytes.
    pub(crate) fn packed(address: usize, bytes: usize, is_written: bool) -> Self {
        Self { address, layout: Layout::packed(bytes, 1), is_written }
    }

    /// Returns the array as one of the `side` of a comparison.
    pub(crate) fn placed(&self, side: usize) -> PlacedArray<'_> {
        PlacedArray::new(self.address, &self.layout, self.is_written, side)
    }
}

/// The arrays of one rank in its last two calls with copies.
#[derive(Debug, Default)]
pub(crate) struct OriginalArrays([Mutex<Vec<OriginalArray>>; 2]);

impl OriginalArrays {
    /// Writes the arrays of `call`; the stamp that follows publishes them.
    pub(crate) fn write(&self, call: u32, arrays: &[OriginalArray]) {
        let mut kept = self.lock(call);
        kept.clear();
        kept.extend_from_slice(arrays);
    }

    /// Passes the arrays of `call`, which was stamped, to the caller.
    pub(crate) fn read<T>(&self, call: u32, look: impl FnOnce(&[OriginalArray]) -> T) -> T {
        look(&self.lock(call))
    }

    fn lock(&self, call: u32) -> MutexGuard<'_, Vec<OriginalArray>> {
        self.0[call as usize % 2].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

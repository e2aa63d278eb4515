//! Pieces: what a chunk holds of each of several calls that are cut as one array (`batch/coalesced.rs`).

/// Elements of one call that follow each other in one chunk and tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The call, by its place in the pass.
    pub(crate) call: u32,
    /// The first element, by its place in the call, and how many there are.
    pub(crate) start: usize,
    pub(crate) count: usize,
    /// Where it lies in the chunk's home in staging.
    pub(crate) home_bytes: usize,
}

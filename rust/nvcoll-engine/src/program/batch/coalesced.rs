//! Coalesced calls: the calls of a pass are cut into chunks as if they were one array.
//!
//! ```text
//! 4 calls, 4 ranks    each by itself   |0 1 2 3|0 1 2 3|0 1 2 3|0 1 2 3|     a rank folds 4 pieces, in 4 tiles
//!                     coalesced        |0      |1      |2      |3      |     a rank folds one whole call, in one tile
//! ```
//!
//! This is allowed where every element is copied, or folded in the order of ranks: its bits do not depend on its chunk. The proof asks
//! only that all ranks mean the same elements by a chunk. They do, because the cut depends on counts and dtypes alone, and ranks
//! compare these before they touch a peer's memory. The gain: longer pieces, and one dispatch, wait and publication for all calls.
//! Calls may differ in dtype and op, since a piece is folded by the kernel of its own call.
//!
//! The pieces of a chunk follow each other in its tiles and in its part of staging. Each begins on a cache line. Contracts of several
//! parts, algorithms with an order of their own, and algorithms with scratch are not coalesced. Source: gradient bucketing in PyTorch's
//! DDP, without the copies into a bucket.

use std::sync::Arc;

use nvcoll_core::limits::packed_chunk_bytes;
use nvcoll_core::partition::GRAIN;

use crate::program::{Piece, Program};

/// Alignment of a piece within its chunk in staging, in bytes. Chosen: a cache line.
const LINE_BYTES: usize = 64;

/// The pieces of every chunk in every tile.
#[derive(Debug)]
pub(crate) struct Coalesced {
    tiles: u32,
    chunks: u32,
    /// The bytes of the longest chunk of a tile.
    longest: usize,
    pieces: Vec<Piece>,
    /// The first piece of each tile and chunk, tile by tile; the last entry is the number of pieces.
    starts: Vec<usize>,
}

/// The length of a call, as the cut needs it.
#[derive(Debug, Clone, Copy)]
struct CoalescedCall {
    count: usize,
    element: usize,
}

impl CoalescedCall {
    fn grains(self) -> usize {
        self.count.div_ceil(GRAIN)
    }

    fn grain_bytes(self) -> usize {
        GRAIN * self.element
    }
}

impl Coalesced {
    /// Cuts the calls of a pass; `None` for a single call, or if the schedule does not allow it.
    pub(super) fn of(programs: &[Arc<Program>]) -> Option<Self> {
        if programs.len() < 2 {
            return None;
        }
        let slice_bytes = programs.iter().map(|program| program.slice_bytes).min()??;
        let laid = |program: &Arc<Program>| {
            let call = program.call();
            let count = call.counts.of_parts(call.collective, program.verified().schedule().roles())[0];
            CoalescedCall { count, element: call.dtype.bytes() }
        };
        let calls: Vec<CoalescedCall> = programs.iter().map(laid).collect();
        Some(Self::lay(&calls, programs[0].verified().schedule().chunks_per_part, slice_bytes))
    }

    fn lay(calls: &[CoalescedCall], chunks: u32, slice_bytes: usize) -> Self {
        let total: usize = calls.iter().map(|call| call.grains() * call.grain_bytes()).sum();
        let end_of = |chunk: u32| (total as u128 * (u128::from(chunk) + 1) / u128::from(chunks)) as usize;
        let ends = vec![(0, 0); chunks as usize];
        let mut layout = ChunkFiller { slice_bytes, ends, longest: 0, pieces: Vec::new() };
        let (mut chunk, mut before) = (0, 0usize);
        for (nth, &call) in (0..).zip(calls) {
            let mut done = 0;
            while done < call.grains() {
                let until = (end_of(chunk).saturating_sub(before) / call.grain_bytes()).clamp(done, call.grains());
                layout.append(chunk, nth, call, done, until);
                // The last chunk ends where the last call does.
                chunk += u32::from(until < call.grains());
                done = until;
            }
            before += call.grains() * call.grain_bytes();
        }
        layout.finish()
    }

    /// Returns how many tiles there are.
    pub(crate) fn tiles(&self) -> u32 {
        self.tiles
    }

    /// Returns the distance between two chunks in staging that lie packed.
    pub(crate) fn spacing_bytes(&self) -> usize {
        packed_chunk_bytes(self.longest)
    }

    /// Returns the pieces of a chunk in a tile.
    #[inline]
    pub(crate) fn pieces(&self, tile: u32, chunk: u32) -> &[Piece] {
        let at = tile as usize * self.chunks as usize + chunk as usize;
        &self.pieces[self.starts[at]..self.starts[at + 1]]
    }
}

/// Chunks that are being filled, tile by tile.
struct ChunkFiller {
    slice_bytes: usize,
    /// The tile that each chunk has reached, and the bytes taken there.
    ends: Vec<(u32, usize)>,
    longest: usize,
    pieces: Vec<(u32, u32, Piece)>,
}

impl ChunkFiller {
    /// Adds some grains of a call to a chunk, in the tiles that they need.
    fn append(&mut self, chunk: u32, nth: u32, call: CoalescedCall, mut from: usize, until: usize) {
        let (tile, used) = &mut self.ends[chunk as usize];
        while from < until {
            let grains = ((self.slice_bytes - *used) / call.grain_bytes()).min(until - from);
            if grains == 0 {
                (*tile, *used) = (*tile + 1, 0);
                continue;
            }
            let start = from * GRAIN;
            let count = (grains * GRAIN).min(call.count - start);
            self.pieces.push((*tile, chunk, Piece { call: nth, start, count, offset_bytes: *used }));
            *used = (*used + count * call.element).next_multiple_of(LINE_BYTES).min(self.slice_bytes);
            self.longest = self.longest.max(*used);
            from += grains;
        }
    }

    fn finish(mut self) -> Coalesced {
        let chunks = self.ends.len();
        let tiles = self.ends.iter().map(|(tile, _)| tile + 1).max().unwrap_or(1);
        self.pieces.sort_by_key(|&(tile, chunk, _)| (tile, chunk));
        let mut starts = vec![0; tiles as usize * chunks + 1];
        for &(tile, chunk, _) in &self.pieces {
            starts[tile as usize * chunks + chunk as usize + 1] += 1;
        }
        (1..starts.len()).for_each(|at| starts[at] += starts[at - 1]);
        let pieces = self.pieces.into_iter().map(|(_, _, piece)| piece).collect();
        Coalesced { tiles, chunks: chunks as u32, longest: self.longest, pieces, starts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(laid: &Coalesced) -> Vec<(u32, u32, Piece)> {
        let places = (0..laid.tiles).flat_map(|tile| (0..laid.chunks).map(move |chunk| (tile, chunk)));
        places.flat_map(|(tile, chunk)| laid.pieces(tile, chunk).iter().map(move |&p| (tile, chunk, p))).collect()
    }

    #[test]
    fn sixty_four_small_calls_on_eight_ranks_are_eight_whole_calls_each() {
        let laid = Coalesced::lay(&[CoalescedCall { count: 256, element: 4 }; 64], 8, 1 << 18);
        assert_eq!(laid.tiles(), 1);
        for chunk in 0..8 {
            let expected =
                |nth| Piece { call: 8 * chunk + nth, start: 0, count: 256, offset_bytes: nth as usize * 1024 };
            assert_eq!(laid.pieces(0, chunk), (0..8).map(expected).collect::<Vec<_>>());
        }
    }

    proptest! {
        #[test]
        fn every_element_is_in_one_piece_and_pieces_share_no_byte_of_staging(
            calls in proptest::collection::vec((0usize..5000, 0u32..5), 1..20),
            chunks in 1u32..40,
            lines in 8usize..100,
        ) {
            let calls: Vec<CoalescedCall> = calls.iter().map(|&(count, log)| CoalescedCall { count, element: 1 << log }).collect();
            let laid = Coalesced::lay(&calls, chunks, lines * LINE_BYTES);
            let (mut next, mut used) = (vec![0; calls.len()], std::collections::HashMap::new());
            let mut in_order = all(&laid);
            for &(tile, chunk, piece) in &in_order {
                let end = used.entry((tile, chunk)).or_insert(0);
                prop_assert!(piece.offset_bytes >= *end && piece.offset_bytes.is_multiple_of(LINE_BYTES) && piece.count > 0);
                *end = piece.offset_bytes + piece.count * calls[piece.call as usize].element;
                prop_assert!(*end <= lines * LINE_BYTES);
            }
            in_order.sort_by_key(|&(_, _, piece)| (piece.call, piece.start));
            for (_, chunk, piece) in in_order {
                prop_assert_eq!(piece.start, next[piece.call as usize]);
                next[piece.call as usize] += piece.count;
                prop_assert!(chunk < chunks);
            }
            prop_assert_eq!(next, calls.iter().map(|call| call.count).collect::<Vec<_>>());
        }
    }
}

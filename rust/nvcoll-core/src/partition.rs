//! Parts, chunks and tiles as ranges of elements.
//!
//! A contract divides the data of a collective into **parts**: one for all_reduce, one per rank for reduce_scatter and
//! all_gather. An algorithm divides every part into the same number of **chunks**. A **tile** is a slice of every chunk. All
//! three depend on the counts and the world size only, so results do not depend on the execution of a call.
//!
//! ```text
//! part 0                     part 1
//! |chunk 0  |chunk 1  |chunk 2  |chunk 3  |        2 chunks per part
//! |t0|t1|t2||t0|t1|t2||t0|t1|t2||t0|t1|t2||        tile 1 = the slice t1 of every chunk
//! ```
//!
//! Chunk boundaries inside a part are multiples of [`GRAIN`] elements. Two ranks that write neighbouring chunks of an aligned
//! array therefore share no cache line. Source: ours.

use std::ops::Range;

/// Chunk boundaries are multiples of this many elements: 128 bytes of float32, 64 bytes of bfloat16. Chosen.
pub const GRAIN: usize = 32;

/// The element ranges of every chunk of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    counts: Vec<usize>,
    chunks_per_part: u32,
}

impl Partition {
    /// Divides parts with these element counts into `chunks_per_part` chunks each.
    pub fn new(counts: Vec<usize>, chunks_per_part: u32) -> Self {
        Self { counts, chunks_per_part }
    }

    /// Returns the number of elements of a part.
    pub fn part_count(&self, part: u32) -> usize {
        self.counts[part as usize]
    }

    /// Returns the number of chunks over all parts.
    pub fn chunks(&self) -> u32 {
        self.counts.len() as u32 * self.chunks_per_part
    }

    /// Returns the part to which a chunk belongs.
    pub fn part_of(&self, chunk: u32) -> u32 {
        chunk / self.chunks_per_part
    }

    /// Returns the elements of a chunk, counted from the start of its part.
    pub fn range_in_part(&self, chunk: u32) -> Range<usize> {
        let count = self.part_count(self.part_of(chunk));
        let index = (chunk % self.chunks_per_part) as u128;
        let grains = count.div_ceil(GRAIN) as u128;
        let boundary = |i: u128| ((i * grains / self.chunks_per_part as u128) as usize * GRAIN).min(count);
        boundary(index)..boundary(index + 1)
    }

    /// Returns the number of elements of a chunk.
    pub fn chunk_count(&self, chunk: u32) -> usize {
        self.range_in_part(chunk).len()
    }

    /// Returns the number of elements of the longest chunk.
    pub fn longest_chunk(&self) -> usize {
        (0..self.chunks()).map(|c| self.chunk_count(c)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn chunks_tile_their_part_in_order(count in 0usize..100_000, per_part in 1u32..1100) {
            let partition = Partition::new(vec![count, count / 2], per_part);
            for part in 0..2 {
                let mut next = 0;
                for chunk in part * per_part..(part + 1) * per_part {
                    let range = partition.range_in_part(chunk);
                    prop_assert_eq!(range.start, next);
                    prop_assert!(range.end == partition.part_count(part) || range.end.is_multiple_of(GRAIN));
                    next = range.end;
                }
                prop_assert_eq!(next, partition.part_count(part));
            }
        }
    }
}

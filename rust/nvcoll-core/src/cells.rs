//! The memory of a program as numbered cells. A cell is a range of chunks that every view contains whole or not at all.
//!
//! ```text
//! views of a buffer   0..4, 2..4, 2..8       bounds 0, 2, 4, 8       cells 0..2, 2..4, 4..8: three numbers in a row
//! ```
//!
//! Every step treats all chunks of a cell alike, so one record for each cell is enough. A world of 16,384 ranks with 16,384
//! chunks per part has 268 million chunks; in an algorithm that halves and doubles, each rank names some dozens of ranges. In
//! place, the output and the input are the same cells. Cost: n log n for n ranges. Source: ours.

use std::ops::Range;

use crate::schedule::{Aliasing, Buffer};

/// A range of chunks in a buffer of a rank.
pub(crate) type ChunkRange = (u32, Buffer, Range<u32>);

/// The cells of one buffer of one rank.
struct Row {
    /// The number of its first cell.
    first: usize,
    /// The first chunk of each cell, and the end of the last cell.
    bounds: Vec<u32>,
}

/// The numbers of all cells of a program.
pub(crate) struct Cells {
    aliasing: Aliasing,
    /// The buffers that the program names, sorted.
    buffers: Vec<Buffer>,
    /// The cells of each buffer of each rank.
    rows: Vec<Row>,
    len: usize,
}

impl Cells {
    /// Divides the memory at the bounds of the named ranges.
    ///
    /// # Panics
    /// If a range names a rank that does not exist.
    pub(crate) fn of(world_size: u32, aliasing: Aliasing, named: impl Iterator<Item = ChunkRange> + Clone) -> Self {
        let mut buffers = vec![Buffer::Input, Buffer::Output];
        for (_, buffer, _) in named.clone() {
            if let Err(at) = buffers.binary_search(&buffer) {
                buffers.insert(at, buffer);
            }
        }
        let rows = world_size as usize * buffers.len();
        let mut cells = Self { aliasing, buffers, rows: Vec::new(), len: 0 };
        let mut bounds: Vec<Vec<u32>> = vec![Vec::new(); rows];
        for (rank, buffer, chunks) in named {
            let of_row = &mut bounds[cells.row(rank, buffer)];
            // Most programs repeat a range several times in succession.
            if !of_row.ends_with(&[chunks.start, chunks.end]) {
                of_row.extend([chunks.start, chunks.end]);
            }
        }
        for mut bounds in bounds {
            bounds.sort_unstable();
            bounds.dedup();
            bounds.shrink_to_fit();
            let first = cells.len;
            cells.len += bounds.len().saturating_sub(1);
            cells.rows.push(Row { first, bounds });
        }
        cells
    }

    /// Returns the number of cells.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the numbers of the cells of a named range.
    pub(crate) fn range(&self, rank: u32, buffer: Buffer, chunks: &Range<u32>) -> Range<usize> {
        let Row { first, bounds } = &self.rows[self.row(rank, buffer)];
        // If every chunk is a cell, the bounds are 0, 1, 2, and so on.
        let is_counted = bounds.get(chunks.start as usize) == Some(&chunks.start);
        let search = || bounds.partition_point(|&bound| bound < chunks.start);
        let from = if is_counted { chunks.start as usize } else { search() };
        let count = bounds[from..].iter().take_while(|&&bound| bound < chunks.end).count();
        first + from..first + from + count
    }

    /// Yields the cells of a named range, each with its number and its chunks.
    pub(crate) fn of_range(
        &self,
        rank: u32,
        buffer: Buffer,
        chunks: &Range<u32>,
    ) -> impl Iterator<Item = (usize, Range<u32>)> + '_ {
        let Row { first, bounds } = &self.rows[self.row(rank, buffer)];
        let Range { start, end } = self.range(rank, buffer, chunks);
        (start..end).map(move |number| (number, bounds[number - first]..bounds[number - first + 1]))
    }

    /// Yields the numbers of all cells in staging, one range for each buffer.
    pub(crate) fn staging(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let rows = self.rows.iter().zip(self.buffers.iter().cycle());
        let staged = rows.filter(|(_, buffer)| buffer.is_staging());
        staged.map(|(row, _)| row.first..row.first + row.bounds.len().saturating_sub(1))
    }

    fn row(&self, rank: u32, buffer: Buffer) -> usize {
        let at = self.buffers.binary_search(&buffer.memory(self.aliasing)).expect("every named buffer has a row");
        rank as usize * self.buffers.len() + at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMED: [ChunkRange; 5] = [
        (0, Buffer::Input, 0..4),
        (0, Buffer::Output, 2..4),
        (1, Buffer::Input, 0..8),
        (0, Buffer::Input, 2..8),
        (1, Buffer::Staging(3), 6..7),
    ];

    fn cells(aliasing: Aliasing) -> Cells {
        Cells::of(2, aliasing, NAMED.into_iter())
    }

    #[test]
    fn a_range_is_the_cells_between_its_bounds() {
        let apart = cells(Aliasing::Disjoint);
        let of =
            |rank, buffer, chunks| apart.of_range(rank, buffer, &chunks).map(|(_, chunks)| chunks).collect::<Vec<_>>();
        assert_eq!(of(0, Buffer::Input, 0..4), [0..2, 2..4]);
        assert_eq!(of(0, Buffer::Input, 2..8), [2..4, 4..8]);
        assert_eq!(of(0, Buffer::Output, 2..4), [Range { start: 2, end: 4 }]);
        assert_eq!(of(1, Buffer::Input, 0..8), [Range { start: 0, end: 8 }]);
        assert_eq!(apart.len(), 3 + 1 + 1 + 1);
        let staged: Vec<usize> = apart.staging().flatten().collect();
        assert_eq!(staged, apart.range(1, Buffer::Staging(3), &(6..7)).collect::<Vec<_>>());
    }

    #[test]
    fn in_place_the_output_is_the_input() {
        let together = cells(Aliasing::InPlace);
        let [input, output] = [Buffer::Input, Buffer::Output].map(|buffer| together.range(0, buffer, &(2..4)));
        assert_eq!(input, output);
        assert_eq!(together.len(), 3 + 1 + 1);
    }

    #[test]
    fn numbers_are_given_once_and_none_is_left_out() {
        for aliasing in Aliasing::ALL {
            let all = cells(aliasing);
            let mut numbers: Vec<usize> =
                NAMED.iter().flat_map(|(rank, buffer, c)| all.range(*rank, *buffer, c)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers, (0..all.len()).collect::<Vec<_>>());
        }
    }
}

//! The check for overlap between ranks: memory that one rank writes in a call may share no byte with memory of another rank.
//!
//! Ranks compare the addresses in their records. If the binding packs a strided array, the engine works on a copy, which overlaps
//! nothing. The rank then says where the array itself lies (`originals.rs`), and ranks compare that element by element: columns of one
//! matrix share no byte.
//!
//! For a batch, each rank brings a **footprint**: the memory of all its calls, sorted once, so that two ranks compare in one walk along
//! both. It covers the calls of all passes.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::memory::buffers::Buffers;
use crate::memory::originals::OriginalArray;
use crate::memory::strided::{first_conflict, TryBudget};

/// The first byte and the end of a range.
type ByteSpan = (usize, usize);

/// The memory of one rank that the calls of a batch touch: spans from low to high addresses, with gaps between them.
#[derive(Debug, Default)]
pub(crate) struct Footprint {
    rank: Option<u32>,
    all: Vec<ByteSpan>,
    written: Vec<ByteSpan>,
    /// The arrays of calls that work on copies; their spans are not among the others.
    originals: Vec<OriginalArray>,
}

impl Clone for Footprint {
    fn clone(&self) -> Self {
        let mut clone = Self::default();
        clone.clone_from(self);
        clone
    }

    /// Clones into the allocated memory.
    fn clone_from(&mut self, other: &Self) {
        self.rank = other.rank;
        self.all.clone_from(&other.all);
        self.written.clone_from(&other.written);
        self.originals.clone_from(&other.originals);
    }
}

impl Footprint {
    /// Makes the footprint of a rank's calls from the bytes of its input and output in each, its buffers, and its
    /// arrays where the buffers are copies.
    pub(crate) fn of<'a>(
        calls: impl ExactSizeIterator<Item = ([usize; 2], &'a Buffers, &'a [OriginalArray])>,
        rank: u32,
    ) -> Self {
        let (mut all, mut written) = (Vec::with_capacity(2 * calls.len()), Vec::with_capacity(calls.len()));
        let mut originals = Vec::new();
        for (bytes, own, arrays) in calls {
            if !arrays.is_empty() {
                originals.extend_from_slice(arrays);
                continue;
            }
            let [input, output] = ranges(bytes, own).map(|(start, bytes)| (start, start.wrapping_add(bytes)));
            all.extend([input, output]);
            written.push(output);
        }
        Self { rank: Some(rank), all: merged(all), written: merged(written), originals }
    }

    /// Says whether it is the footprint of this rank.
    pub(crate) fn is_of(&self, rank: u32) -> bool {
        self.rank == Some(rank)
    }

    /// Says whether the memory that one of two ranks writes overlaps memory of the other.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        meet(&self.written, &other.all)
            || meet(&self.all, &other.written)
            || ((self.has_originals() || other.has_originals()) && self.originals_overlap(other))
    }

    /// Says whether some call works on copies.
    pub(crate) fn has_originals(&self) -> bool {
        !self.originals.is_empty()
    }

    #[cold]
    fn originals_overlap(&self, other: &Self) -> bool {
        let arrays = |of: &Self| -> Vec<OriginalArray> {
            let array = |&(start, end): &ByteSpan, is_written| OriginalArray::packed(start, end - start, is_written);
            let all = of.all.iter().map(|span| array(span, false));
            all.chain(of.written.iter().map(|span| array(span, true))).chain(of.originals.iter().cloned()).collect()
        };
        arrays_overlap(&arrays(self), &arrays(other))
    }
}

/// The footprints of one rank in its last two passes, for ranks of its process. There are two places by the parity of the call, under the
/// same stamp rule as records; a lock keeps a read consistent.
#[derive(Debug, Default)]
pub(crate) struct Footprints([Mutex<(u64, Footprint)>; 2]);

impl Footprints {
    /// Writes the footprint of the pass `id`, unless it is there already; the stamp that follows publishes it.
    pub(crate) fn write(&self, call: u32, id: u64, footprint: &Footprint) {
        let mut kept = self.lock(call);
        if kept.0 != id {
            kept.0 = id;
            kept.1.clone_from(footprint);
        }
    }

    /// Says whether the footprint of `call`, which was stamped, overlaps another rank's.
    pub(crate) fn overlap(&self, call: u32, other: &Footprint) -> bool {
        self.lock(call).1.overlaps(other)
    }

    fn lock(&self, call: u32) -> MutexGuard<'_, (u64, Footprint)> {
        self.0[call as usize % 2].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says whether two ranks passed arrays that share a byte, one of them written, or may do so.
#[cold]
pub(crate) fn arrays_overlap(one: &[OriginalArray], other: &[OriginalArray]) -> bool {
    let sides = [one, other].into_iter().enumerate();
    let mut all: Vec<_> = sides.flat_map(|(side, arrays)| arrays.iter().map(move |array| array.placed(side))).collect();
    first_conflict(&mut all, &mut TryBudget::of_a_call()).is_some()
}

/// Returns the packed arrays that a rank's buffers are.
#[cold]
pub(crate) fn packed_arrays(bytes: [usize; 2], own: &Buffers) -> [OriginalArray; 2] {
    let [(input, input_bytes), (output, output_bytes)] = ranges(bytes, own);
    [OriginalArray::packed(input, input_bytes, false), OriginalArray::packed(output, output_bytes, true)]
}

/// Sorts spans and merges those that touch; empty ones are dropped.
fn merged(mut spans: Vec<ByteSpan>) -> Vec<ByteSpan> {
    spans.retain(|(start, end)| start < end);
    spans.sort_unstable();
    spans.dedup_by(|next, last| {
        let is_one = next.0 <= last.1;
        if is_one {
            last.1 = last.1.max(next.1);
        }
        is_one
    });
    spans
}

/// Says whether two sorted lists of spans share a byte.
fn meet(mut a: &[ByteSpan], mut b: &[ByteSpan]) -> bool {
    while let ([(a_start, a_end), a_rest @ ..], [(b_start, b_end), b_rest @ ..]) = (a, b) {
        if a_end <= b_start {
            a = a_rest;
        } else if b_end <= a_start {
            b = b_rest;
        } else {
            return true;
        }
    }
    false
}

/// Says whether an output of one of two ranks overlaps an input or an output of the other in a call; `buffers` are the buffers of
/// all ranks, `user_bytes` the bytes of the input and the output of each.
pub(crate) fn overlap(user_bytes: &[[usize; 2]], buffers: &[Buffers], a: u32, b: u32) -> bool {
    if a == b {
        return false;
    }
    let [[a_in, a_out], [b_in, b_out]] = [a, b].map(|rank| ranges(user_bytes[rank as usize], &buffers[rank as usize]));
    is_shared(a_out, b_in) || is_shared(a_out, b_out) || is_shared(a_in, b_out)
}

/// Returns the address and the bytes of a rank's input and output.
fn ranges([input, output]: [usize; 2], own: &Buffers) -> [(usize, usize); 2] {
    [(own.input as usize, input), (own.output as usize, output)]
}

/// Says whether two ranges, an address and a number of bytes each, share a byte.
fn is_shared((a, a_bytes): (usize, usize), (b, b_bytes): (usize, usize)) -> bool {
    a_bytes != 0 && b_bytes != 0 && a < b.wrapping_add(b_bytes) && b < a.wrapping_add(a_bytes)
}

#[cfg(test)]
mod tests {
    use super::{is_shared, meet, merged, Footprint};

    /// Spans, and whether each is written.
    fn footprint(spans: &[(usize, usize, bool)]) -> Footprint {
        let all = spans.iter().map(|&(start, end, _)| (start, end));
        let written = spans.iter().filter(|span| span.2).map(|&(start, end, _)| (start, end));
        Footprint { all: merged(all.collect()), written: merged(written.collect()), ..Footprint::default() }
    }

    #[test]
    fn a_written_span_of_one_rank_meets_no_span_of_the_other() {
        let conflict = |a: &[_], b: &[_]| {
            let (a, b) = (footprint(a), footprint(b));
            assert_eq!(a.overlaps(&b), b.overlaps(&a));
            a.overlaps(&b)
        };
        assert!(!conflict(&[(0, 10, true), (20, 30, true), (0, 10, false)], &[(10, 20, true)]));
        assert!(conflict(&[(0, 10, true)], &[(9, 20, false)]));
        assert!(conflict(&[(0, 10, false)], &[(9, 20, true)]));
        assert!(conflict(&[(50, 51, false)], &[(5, 6, false), (0, 100, true)]), "inside one that began before");
        assert!(!conflict(&[(0, 10, false), (30, 40, true)], &[(0, 10, false), (40, 50, true)]), "both only read");
        assert!(!conflict(&[(5, 5, true)], &[(0, 10, true)]), "an empty one lies nowhere");
    }

    #[test]
    fn spans_that_touch_or_cover_each_other_become_one() {
        assert_eq!(merged(vec![(5, 9), (0, 4), (8, 8), (9, 12), (6, 7), (20, 21)]), [(0, 4), (5, 12), (20, 21)]);
        assert!(meet(&[(0, 4), (5, 12)], &[(4, 5), (11, 12)]) && !meet(&[(0, 4), (5, 12)], &[(4, 5), (12, 20)]));
    }

    #[test]
    fn ranges_that_touch_share_nothing_and_empty_ones_lie_nowhere() {
        assert!(is_shared((100, 10), (109, 1)) && is_shared((109, 1), (100, 10)) && is_shared((100, 10), (100, 10)));
        assert!(!is_shared((100, 10), (110, 10)) && !is_shared((110, 10), (100, 10)));
        assert!(!is_shared((100, 10), (105, 0)) && !is_shared((105, 0), (100, 10)));
    }
}

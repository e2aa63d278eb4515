//! Whether what two ranks brought to a call overlaps: a written range may share no byte with any other range of the call.
//!
//! What is compared are the addresses that ranks give each other. Where a caller packs a strided array first, that is the
//! packed copy, which overlaps nothing: the array itself is read before the rank enters and written after it has left.

use crate::batch::Pass;
use crate::buffers::Buffers;
use crate::program::Program;

/// A range of one of the two ranks: where it begins and ends, whether it is written, whose it is.
struct Span {
    start: usize,
    end: usize,
    is_written: bool,
    rank: u32,
}

/// Says whether an output of one of two ranks overlaps an input or an output of the other, in whatever calls of the pass.
/// `buffers` are those of all ranks, call by call.
pub(crate) fn overlap(pass: Pass<'_>, buffers: &[Buffers], a: u32, b: u32) -> bool {
    if a == b {
        return false;
    }
    let ranks = buffers.len() / pass.programs().len();
    if let [program] = pass.programs() {
        let ([a_in, a_out], [b_in, b_out]) = (ranges(program, buffers, a), ranges(program, buffers, b));
        return is_shared(a_out, b_in) || is_shared(a_out, b_out) || is_shared(a_in, b_out);
    }
    let mut spans = Vec::with_capacity(4 * pass.programs().len());
    for (program, buffers) in pass.programs().iter().zip(buffers.chunks(ranks)) {
        for rank in [a, b] {
            let [input, output] = ranges(program, buffers, rank);
            for ((start, bytes), is_written) in [(input, false), (output, true)] {
                spans.push(Span { start, end: start.wrapping_add(bytes), is_written, rank });
            }
        }
    }
    spans.retain(|span| span.start < span.end);
    has_conflict(&mut spans, a)
}

/// Says whether a written span of one rank overlaps any span of the other: a sweep from low to high addresses.
fn has_conflict(spans: &mut [Span], a: u32) -> bool {
    spans.sort_unstable_by_key(|span| span.start);
    // Of each rank, where the spans so far end at the latest: all, and the written ones.
    let (mut all, mut written) = ([0; 2], [0; 2]);
    for &Span { start, end, is_written, rank } in &*spans {
        let (own, other) = if rank == a { (0, 1) } else { (1, 0) };
        if start < written[other] || (is_written && start < all[other]) {
            return true;
        }
        all[own] = end.max(all[own]);
        if is_written {
            written[own] = end.max(written[own]);
        }
    }
    false
}

/// The input and the output of a rank: an address and a number of bytes each.
fn ranges(program: &Program, buffers: &[Buffers], rank: u32) -> [(usize, usize); 2] {
    let (own, [input, output]) = (&buffers[rank as usize], program.user_bytes[rank as usize]);
    [(own.input as usize, input), (own.output as usize, output)]
}

/// Says whether two ranges, an address and a number of bytes each, share a byte.
fn is_shared((a, a_bytes): (usize, usize), (b, b_bytes): (usize, usize)) -> bool {
    a_bytes != 0 && b_bytes != 0 && a < b.wrapping_add(b_bytes) && b < a.wrapping_add(a_bytes)
}

#[cfg(test)]
mod tests {
    use super::{has_conflict, is_shared, Span};

    #[test]
    fn a_written_span_of_one_rank_meets_no_span_of_the_other() {
        let conflict = |spans: &[(usize, usize, bool, u32)]| {
            let span = |&(start, end, is_written, rank): &_| Span { start, end, is_written, rank };
            has_conflict(&mut spans.iter().map(span).collect::<Vec<_>>(), 3)
        };
        assert!(!conflict(&[(0, 10, true, 3), (0, 10, false, 3), (10, 20, true, 5), (20, 30, true, 3)]));
        assert!(conflict(&[(0, 10, true, 3), (9, 20, false, 5)]));
        assert!(conflict(&[(9, 20, true, 5), (0, 10, false, 3)]));
        assert!(conflict(&[(0, 100, true, 5), (5, 6, false, 5), (50, 51, false, 3)]), "over one that ended before");
        assert!(!conflict(&[(0, 10, false, 3), (0, 10, false, 5)]), "both only read");
    }

    #[test]
    fn ranges_that_touch_share_nothing_and_empty_ones_lie_nowhere() {
        assert!(is_shared((100, 10), (109, 1)) && is_shared((109, 1), (100, 10)) && is_shared((100, 10), (100, 10)));
        assert!(!is_shared((100, 10), (110, 10)) && !is_shared((110, 10), (100, 10)));
        assert!(!is_shared((100, 10), (105, 0)) && !is_shared((105, 0), (100, 10)));
    }
}

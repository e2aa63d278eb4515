//! Whether what two ranks brought to a call overlaps: a written range may share no byte with any other range of the call.
//!
//! What is compared are the addresses that ranks give each other. Where a caller packs a strided array first, that is the
//! packed copy, which overlaps nothing: the array itself is read before the rank enters and written after it has left.

use crate::buffers::Buffers;
use crate::program::Program;

/// Says whether an output of one of two ranks overlaps the input or the output of the other. `buffers` are those of the call, by rank.
pub(crate) fn overlap(program: &Program, buffers: &[Buffers], a: u32, b: u32) -> bool {
    if a == b {
        return false;
    }
    let spans = |rank: u32| {
        let (own, [input, output]) = (&buffers[rank as usize], program.user_bytes[rank as usize]);
        [(own.input as usize, input), (own.output as usize, output)]
    };
    let ([a_in, a_out], [b_in, b_out]) = (spans(a), spans(b));
    is_shared(a_out, b_in) || is_shared(a_out, b_out) || is_shared(a_in, b_out)
}

/// Says whether two ranges, an address and a number of bytes each, share a byte.
fn is_shared((a, a_bytes): (usize, usize), (b, b_bytes): (usize, usize)) -> bool {
    a_bytes != 0 && b_bytes != 0 && a < b.wrapping_add(b_bytes) && b < a.wrapping_add(a_bytes)
}

#[cfg(test)]
mod tests {
    use super::is_shared;

    #[test]
    fn ranges_that_touch_share_nothing_and_empty_ones_lie_nowhere() {
        assert!(is_shared((100, 10), (109, 1)) && is_shared((109, 1), (100, 10)) && is_shared((100, 10), (100, 10)));
        assert!(!is_shared((100, 10), (110, 10)) && !is_shared((110, 10), (100, 10)));
        assert!(!is_shared((100, 10), (105, 0)) && !is_shared((105, 0), (100, 10)));
    }
}

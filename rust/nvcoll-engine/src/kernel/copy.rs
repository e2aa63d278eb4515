//! One source, nothing to compute: bytes go to every destination, a piece at a time so that the source is read once.

use super::{stream, Args};

/// Bytes read before the next destination has its turn: half of a first-level cache. Chosen.
const PIECE_BYTES: usize = 16 << 10;

/// What is stored non-temporally at a time.
type Line = [u64; 8];

/// Chooses the copy for elements of this width.
pub(super) fn select<E>() -> unsafe fn(&Args) {
    copy_all::<E>
}

unsafe fn copy_all<E>(args: &Args) {
    let bytes = args.count * size_of::<E>();
    let mut at = 0;
    while at < bytes {
        let piece = PIECE_BYTES.min(bytes - at);
        for d in 0..args.n_dst {
            // SAFETY: the piece lies below `count` elements, for which the caller vouches; a destination is exactly the
            // source (and left alone) or disjoint from it.
            unsafe {
                let (from, to) = ((*args.src).add(at), (*args.dst.add(d)).add(at));
                if std::ptr::eq(from, to) {
                    continue;
                } else if d >= args.plain && stream::is_aligned(to) {
                    copy_streaming(from, to, piece);
                } else {
                    std::ptr::copy_nonoverlapping(from, to, piece);
                }
            }
        }
        at += piece;
    }
    if args.plain < args.n_dst {
        stream::fence();
    }
}

unsafe fn copy_streaming(from: *const u8, to: *mut u8, bytes: usize) {
    let whole = bytes - bytes % size_of::<Line>();
    // SAFETY: offsets are below `bytes`; `to` is aligned to 16 and lines keep it so.
    unsafe {
        for at in (0..whole).step_by(size_of::<Line>()) {
            stream::store(to.add(at), &from.add(at).cast::<Line>().read_unaligned());
        }
        std::ptr::copy_nonoverlapping(from.add(whole), to.add(whole), bytes - whole);
    }
}

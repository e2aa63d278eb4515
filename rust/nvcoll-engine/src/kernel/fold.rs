//! The one routine: fold `n_src` sources into `n_dst` destinations, a block at a time.
//!
//! ```text
//! head       the few elements before the first destination's next line
//! blocks     L elements each, from then on whole lines of that destination
//! tail       what remains, in halves, quarters, … of a block, down to one element
//! ```
//!
//! Head and tail are the same code as the blocks, with smaller ones, so all elements see the same arithmetic. Buffers of
//! one call usually lie alike within a line (allocators align alike), so that aligning one aligns them all; measured, this
//! is worth a factor of two in the first-level cache and up to 20 % in the second.
//!
//! Non-temporal stores are for whole blocks only. A destination that lies differently within a line than the first
//! streaming one gets ordinary stores.
//!
//! The routine is inlined into one function per instruction set (see [`super::select`]), where the compiler turns its loops
//! over `L` into that set's vectors: the accumulated values stay in registers while the sources go by.

use super::arm::Fold;
use super::element::Element;
use super::half::Halves;
use super::number::Accumulator;
use super::run::Args;
use super::stream::{Stream, LINE_BYTES};

/// The least number of blocks for which aligning pays. Measured: about even at 4 to 16.
const BLOCKS_WORTH_ALIGNING: usize = 8;

/// Folds `count` elements.
///
/// # Safety
/// What [`super::Kernel::run`] demands, with `count` instead of the count in `args`.
#[inline(always)]
pub(super) unsafe fn fold<E: Element, F: Fold<E::Acc>, S: Stream + Halves, const L: usize>(args: &Args, count: usize) {
    let is_streaming = args.plain < args.n_dst;
    let mut at = 0;
    let mut odd = if count < BLOCKS_WORTH_ALIGNING * L {
        count % L
    } else {
        // SAFETY: `n_dst` is at least 1, and `plain` is a destination if it is below `n_dst`.
        elements_to_line::<E>(unsafe { *args.dst.add(if is_streaming { args.plain } else { 0 }) })
    };
    // SAFETY: blocks and powers lie between `at` and `count`, for which the caller vouches.
    unsafe {
        loop {
            at = powers::<E, F, S, L>(args, at, odd);
            while at + L <= count {
                block::<E, F, S, L>(args, at, is_streaming);
                at += L;
            }
            odd = count - at;
            if odd == 0 {
                break;
            }
        }
    }
    if is_streaming {
        S::fence();
    }
}

/// Returns the number of elements before the next line, if an element begins there.
#[inline(always)]
fn elements_to_line<E>(to: *const u8) -> usize {
    let bytes = to.addr().wrapping_neg() % LINE_BYTES;
    if bytes.is_multiple_of(size_of::<E>()) {
        bytes / size_of::<E>()
    } else {
        0
    }
}

/// Folds `odd` elements, fewer than 256, from element `at` on in blocks of powers of two; returns where it ended.
///
/// # Safety
/// What `fold` demands, for elements `at` to `at + odd`, all below the count.
#[inline(always)]
unsafe fn powers<E: Element, F: Fold<E::Acc>, S: Stream + Halves, const L: usize>(
    args: &Args,
    mut at: usize,
    odd: usize,
) -> usize {
    macro_rules! of {
        ($($power:literal)*) => {$(
            if $power < L && odd & $power != 0 {
                // SAFETY: the powers that are taken add up to `odd`.
                unsafe { block::<E, F, S, $power>(args, at, false) };
                at += $power;
            }
        )*};
    }
    of!(128 64 32 16 8 4 2 1);
    at
}

/// Folds `L` elements from element `at` on: reads all sources, then writes all destinations.
///
/// # Safety
/// What `fold` demands, for elements `at` to `at + L`, all below the count; streaming only if a block is whole lines.
#[inline(always)]
unsafe fn block<E: Element, F: Fold<E::Acc>, S: Stream + Halves, const L: usize>(
    args: &Args,
    at: usize,
    is_streaming: bool,
) {
    // SAFETY: sources are below `n_src`, destinations below `n_dst`, elements below the count.
    unsafe {
        let result = if E::ADDS_TWO && F::ADDS && args.n_src == 2 {
            E::add_two::<S, L>(source::<E, L>(args, 0, at), source::<E, L>(args, 1, at))
        } else {
            let mut acc = [E::Acc::ZERO; L];
            take::<E, F, S, L>(&mut acc, args, 0, at, |_, first| first);
            for s in 1..args.n_src {
                take::<E, F, S, L>(&mut acc, args, s, at, F::fold);
            }
            E::round::<S, L>(&acc, |value| F::finish(value, args.divisor))
        };
        for d in 0..args.n_dst {
            let to = *args.dst.add(d);
            if F::COPIES && std::ptr::eq(to, *args.src) {
                continue;
            }
            let to = to.cast::<E>().add(at);
            if is_streaming && d >= args.plain && S::is_possible_at(to.cast()) {
                stream::<S, _>(to.cast(), &result);
            } else {
                to.cast::<[E; L]>().write_unaligned(result);
            }
        }
    }
}

/// Returns the address of `L` elements of a source, and prefetches lines far ahead.
///
/// # Safety
/// `args` has more than `s` sources, and source `s` has elements `at` to `at + L`.
#[inline(always)]
unsafe fn source<E, const L: usize>(args: &Args, s: usize, at: usize) -> *const E {
    // SAFETY: the source is below `n_src`, the element below the count.
    let from = unsafe { (*args.src.add(s)).cast::<E>().add(at) };
    if args.is_far {
        super::prefetch::ahead_of::<[E; L]>(from.cast());
    }
    from
}

/// Folds the elements of one source onto `acc`, scaled if the arm scales.
///
/// # Safety
/// As `source`; the instruction set `S` is available; the source has a scalar if the arm scales.
#[inline(always)]
unsafe fn take<E: Element, F: Fold<E::Acc>, S: Halves, const L: usize>(
    acc: &mut [E::Acc; L],
    args: &Args,
    s: usize,
    at: usize,
    fold: impl Fn(E::Acc, E::Acc) -> E::Acc,
) {
    // SAFETY: the source is below `n_src`; there is a scalar for each if the arm scales.
    unsafe {
        let from = source::<E, L>(args, s, at);
        if F::SCALES {
            let scalar = *args.scalars.add(s);
            E::take::<S, L>(acc, from, |acc, next| fold(acc, F::scale(next, scalar)));
        } else {
            E::take::<S, L>(acc, from, fold);
        }
    }
}

/// Stores a block of whole lines with non-temporal stores.
///
/// # Safety
/// `to` is valid for writes of a `B`, whose size is whole lines, and is an address that `S` can stream to; the instruction
/// set `S` is available.
#[inline(always)]
unsafe fn stream<S: Stream, B>(to: *mut u8, result: &B) {
    for at in (0..size_of::<B>()).step_by(LINE_BYTES) {
        // SAFETY: `at` is inside the block, and so is the line, because blocks are whole lines; lines keep the alignment of
        // `to`.
        unsafe { S::store_line(to.add(at), std::ptr::from_ref(result).cast::<u8>().add(at)) };
    }
}

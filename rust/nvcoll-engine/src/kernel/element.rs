//! The dtypes as the kernels see them: what is stored, what it accumulates in, how to go there and back. **A dtype is one
//! row of `rows!`**, unless it needs a conversion of its own.
//!
//! Elements are converted a block at a time. The accumulated values of a block may stand in any order, as
//! long as loading and rounding agree, and bfloat16 makes use of that:
//!
//! ```text
//! memory       b1 b0 | b3 b2 | b5 b4 | …         words of 32 bits, each of two elements
//! low halves   b0 << 16     b2 << 16     …       the first half of the accumulated values
//! high halves  b1 & !0xffff b3 & !0xffff …       the second half
//! ```
//!
//! One shift or one mask per vector, and the same on the way back, instead of widening and narrowing across lanes.
//! Source: ours; the trick is folklore.
//!
//! Rounding to bfloat16 adds half a unit (and the tie's bit) to the bits and cuts. A NaN survives this if its lower 16 bits
//! are zero, for then nothing carries. Every NaN here is so: those loaded from bfloat16, those that arithmetic makes of
//! them (an operand or the default NaN, see `f32` in the standard library), and scalars, because `from_scalar` makes NaN
//! canonical. The AVX512-BF16 instruction is of no use: it flushes subnormals whatever the control word says.
//!
//! Minimum and maximum of bfloat16 need no f32 at all: see [`Ordered`].
//!
//! Loading, widening and folding are one loop over the block, and so are finishing and rounding: the compiler makes vectors
//! of such loops reliably, and of a chain of array operations only sometimes (measured, a factor of seven for minimum of
//! bfloat16).

use super::number::Number;

/// A stored element.
pub(super) trait Element: Copy {
    /// What a step accumulates in.
    type Acc: Number;
    /// The same element as minimum sees it.
    type ForMin: Element;
    /// The same element as maximum sees it.
    type ForMax: Element;

    /// Replaces every value of `acc` by `fold` of it and the widened element that belongs there, of the `L` elements from
    /// `from` on.
    ///
    /// # Safety
    /// `from` is valid for reads of `L` elements, at any alignment.
    unsafe fn take<const L: usize>(
        acc: &mut [Self::Acc; L],
        from: *const Self,
        fold: impl Fn(Self::Acc, Self::Acc) -> Self::Acc,
    );

    /// Finishes and rounds accumulated values, once, into the order of memory.
    fn round<const L: usize>(acc: &[Self::Acc; L], finish: impl Fn(Self::Acc) -> Self::Acc) -> [Self; L];
}

/// Elements that accumulate in themselves.
macro_rules! rows {
    ($($type:ty),*) => {$(
        impl Element for $type {
            type Acc = $type;
            type ForMin = $type;
            type ForMax = $type;

            #[inline(always)]
            unsafe fn take<const L: usize>(
                acc: &mut [$type; L],
                from: *const $type,
                fold: impl Fn($type, $type) -> $type,
            ) {
                for l in 0..L {
                    // SAFETY: element `l` is one of the caller's `L`.
                    acc[l] = fold(acc[l], unsafe { from.add(l).read_unaligned() });
                }
            }

            #[inline(always)]
            fn round<const L: usize>(acc: &[$type; L], finish: impl Fn($type) -> $type) -> [$type; L] {
                acc.map(finish)
            }
        }
    )*};
}

rows!(f32, f64, i32, u8);

/// bfloat16: the upper half of an f32.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Bf16(u16);

/// The half of a word that is a bfloat16 in place.
const HIGH_HALF: u32 = 0xffff_0000;

impl Element for Bf16 {
    type Acc = f32;
    type ForMin = Ordered<{ -NANS }>;
    type ForMax = Ordered<NANS>;

    #[inline(always)]
    unsafe fn take<const L: usize>(acc: &mut [f32; L], from: *const Bf16, fold: impl Fn(f32, f32) -> f32) {
        if L == 1 {
            // SAFETY: the caller's.
            let bits = unsafe { from.cast::<u16>().read_unaligned() };
            acc[0] = fold(acc[0], f32::from_bits(u32::from(bits) << 16));
        }
        for low in 0..L / 2 {
            // SAFETY: word `low` is elements `2 * low` and `2 * low + 1` of the caller's `L`.
            let word = unsafe { from.cast::<u32>().add(low).read_unaligned() };
            let high = L / 2 + low;
            acc[low] = fold(acc[low], f32::from_bits(word << 16));
            acc[high] = fold(acc[high], f32::from_bits(word & HIGH_HALF));
        }
    }

    #[inline(always)]
    fn round<const L: usize>(acc: &[f32; L], finish: impl Fn(f32) -> f32) -> [Bf16; L] {
        let round = |value| to_nearest_even(finish(value));
        let mut result = [Bf16(0); L];
        if L == 1 {
            result[0] = Bf16((round(acc[0]) >> 16) as u16);
        }
        let words = result.as_mut_ptr().cast::<u32>();
        for low in 0..L / 2 {
            let word = round(acc[low]) >> 16 | round(acc[L / 2 + low]) & HIGH_HALF;
            // SAFETY: word `low` is elements `2 * low` and `2 * low + 1` of the result's `L`, and any bits are an element.
            unsafe { words.add(low).write_unaligned(word) };
        }
        result
    }
}

/// Rounds to a bfloat16 in the upper half; the lower half is left over.
#[inline(always)]
fn to_nearest_even(acc: f32) -> u32 {
    let bits = acc.to_bits();
    bits.wrapping_add(0x7fff + (bits >> 16 & 1))
}

/// How many NaNs of one sign bfloat16 has.
const NANS: i16 = 0x7f;

/// bfloat16 as an integer of the same order.
///
/// Flipping the lower bits of negative numbers turns sign and magnitude into two's complement; -0 comes right below +0, and
/// NaNs are beyond both infinities. Moved by their number, the NaNs of one sign wrap round to those of the other: below
/// everything (for minimum) or above everything (for maximum). So NaN propagates by itself.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Ordered<const MOVED_DOWN: i16>(i16);

#[inline(always)]
fn flip_if_negative(bits: i16) -> i16 {
    bits ^ (bits >> 15 & i16::MAX)
}

impl<const MOVED_DOWN: i16> Element for Ordered<MOVED_DOWN> {
    type Acc = i16;
    type ForMin = Self;
    type ForMax = Self;

    #[inline(always)]
    unsafe fn take<const L: usize>(acc: &mut [i16; L], from: *const Self, fold: impl Fn(i16, i16) -> i16) {
        #[allow(clippy::needless_range_loop, reason = "indices keep the loads and the fold in one vectorised loop")]
        for l in 0..L {
            // SAFETY: element `l` is one of the caller's `L`.
            let bits = unsafe { from.cast::<i16>().add(l).read_unaligned() };
            acc[l] = fold(acc[l], flip_if_negative(bits).wrapping_sub(MOVED_DOWN));
        }
    }

    #[inline(always)]
    fn round<const L: usize>(acc: &[i16; L], finish: impl Fn(i16) -> i16) -> [Self; L] {
        acc.map(|place| Self(flip_if_negative(finish(place).wrapping_add(MOVED_DOWN))))
    }
}

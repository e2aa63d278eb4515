//! bfloat16: two elements to a word, widened by a shift or a mask.
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
//! Rounding adds half a unit (and the tie's bit) to the bits and cuts. A NaN survives this if its lower 16 bits
//! are zero, for then nothing carries. Every NaN here is so: those loaded from bfloat16, those that arithmetic makes of
//! them (an operand or the default NaN, see `f32` in the standard library), and scalars, because `from_scalar` makes NaN
//! canonical. The AVX512-BF16 instruction is of no use: it flushes subnormals whatever the control word says.

use super::element::Element;
use super::half::Halves;
use super::ordered::Ordered16;

/// bfloat16: the upper half of an f32.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Bf16(u16);

/// The number of NaNs of one sign.
const NANS: i16 = 0x7f;

/// Masks the upper half of a word, which holds a bfloat16 in f32 position.
const HIGH_HALF: u32 = 0xffff_0000;

impl Element for Bf16 {
    type Acc = f32;
    type ForMin = Ordered16<{ -NANS }>;
    type ForMax = Ordered16<NANS>;

    #[inline(always)]
    unsafe fn take<S: Halves, const L: usize>(acc: &mut [f32; L], from: *const Bf16, fold: impl Fn(f32, f32) -> f32) {
        if L == 1 {
            // SAFETY: `Element::take` demands that `from` is valid for reads of `L` elements, here one.
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
    unsafe fn round<S: Halves, const L: usize>(acc: &[f32; L], finish: impl Fn(f32) -> f32) -> [Bf16; L] {
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

/// Rounds to a bfloat16 in the upper half; the lower half is unspecified.
#[inline(always)]
fn to_nearest_even(acc: f32) -> u32 {
    let bits = acc.to_bits();
    bits.wrapping_add(0x7fff + (bits >> 16 & 1))
}

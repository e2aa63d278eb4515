//! Floats of eight bits: a byte becomes a half, and the half is widened; the same on the way back.
//!
//! ```text
//! e5m2     s eeeee mm    its byte is the upper one of a half
//! e4m3fn   s eeee mmm    s 0eeee mmm 0000000 is a half too, of 2^-8 the number, subnormals included
//! ```
//!
//! So e4m3fn accumulates 2^-8 of its numbers. That changes no bit: sums and their division by the number of ranks stay far
//! from the ends of f32's exponents, where scaling would round, and nothing else is defined. Its NaN is a number of that half
//! and gets its exponent bits by hand.
//!
//! As in `bfloat16`, two elements make a word, the lower ones first: shifts and masks take them apart and put them together,
//! and nothing crosses lanes.
//!
//! The way back must round once, so the bits that the byte lacks go before the value becomes a half:
//!
//! ```text
//! c = 1.5 * 2^(e + 23 - m)      e: the value's exponent, at least that of the least normal number; m: bits of mantissa
//! (value + c) - c               the adder rounds to a unit of 2^(e - m), ties to even
//! ```
//!
//! Sums of bytes are small enough for `c` to be finite. The exponent of infinity and NaN wraps round: `c` is next to nothing,
//! and they stay what they are. What rounds to zero gets its sign back. Then the half is exact or beyond the largest number:
//! infinity in e5m2, and whatever it is, NaN in e4m3fn.
//!
//! A sum of two sources, which is what a ring folds, may become a half first and lose the bits in integers then (measured with
//! AVX-512, on one core: 30 % less time for e4m3fn, 47 % for e5m2). If the exponents of both are at most 6 apart, a half has all bits of the sum. Else
//! the smaller one is less than 2^-6 of the larger one's power of two, which takes the sum, and the half that is nearest to it,
//! not even half of the way to a tie.
//!
//! Source: ours; the magic number is folklore.

use super::element::Element;
use super::half::{add_all, round_all, widen_all, Halves};
use super::ordered::Ordered8;
use std::marker::PhantomData;

/// A format of eight bits.
pub(super) trait ByteFormat: Copy {
    /// Bits of mantissa.
    const MANTISSA: u32;
    /// The accumulated value of 1.
    const ONE: f32 = 1.0;
    type ForMin: Element;
    type ForMax: Element;

    /// Returns the half of the upper byte of a word.
    fn half(word: u16) -> u16;

    /// Returns the byte of a half, as the upper one of a word whose lower one is left over. Bits that the format lacks go,
    /// and what lies beyond it becomes what the format has for that.
    fn byte(half: u16) -> u16;
}

/// The format that is the upper byte of binary16.
#[derive(Clone, Copy)]
pub(super) struct E5M2;

impl ByteFormat for E5M2 {
    const MANTISSA: u32 = 2;
    type ForMin = Ordered8<-3>;
    type ForMax = Ordered8<3>;

    #[inline(always)]
    fn half(word: u16) -> u16 {
        word & UPPER
    }

    #[inline(always)]
    fn byte(half: u16) -> u16 {
        half
    }
}

/// The format with no infinity and one NaN of each sign.
#[derive(Clone, Copy)]
pub(super) struct E4M3;

impl ByteFormat for E4M3 {
    const MANTISSA: u32 = 3;
    const ONE: f32 = 1.0 / 256.0;
    type ForMin = Ordered8<-1>;
    type ForMax = Ordered8<1>;

    /// The shift moves the sign to its position in a half, and into the exponent, where the mask removes it. A byte
    /// is a NaN if one more carries out of its magnitude; that carry is the missing bit of the exponent.
    #[inline(always)]
    fn half(word: u16) -> u16 {
        let half = (word as i16 >> 1) as u16 & 0xbf80;
        half | (half + 0x80) & 0x4000
    }

    #[inline(always)]
    fn byte(half: u16) -> u16 {
        (half << 1).min(0x7fff) | half & 0x8000
    }
}

/// The upper byte of a word.
const UPPER: u16 = 0xff00;

/// A float of eight bits.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct F8<B>(u8, PhantomData<B>);

impl<B: ByteFormat> Element for F8<B> {
    type Acc = f32;
    type ForMin = B::ForMin;
    type ForMax = B::ForMax;

    const ADDS_TWO: bool = true;

    #[inline(always)]
    unsafe fn take<S: Halves, const L: usize>(acc: &mut [f32; L], from: *const Self, fold: impl Fn(f32, f32) -> f32) {
        // SAFETY: the trait demands `L` readable elements, of a byte each, and the instruction set.
        let wide = unsafe { widen_all::<S, L>(&halves::<B, L>(from.cast())) };
        for l in 0..L {
            acc[l] = fold(acc[l], wide[l]);
        }
    }

    #[inline(always)]
    unsafe fn round<S: Halves, const L: usize>(acc: &[f32; L], finish: impl Fn(f32) -> f32) -> [Self; L] {
        let cut = acc.map(|value| cut::<B>(finish(value)));
        // SAFETY: the instruction set is available, as the trait demands of the caller.
        bytes(&unsafe { round_all::<S, L>(&cut) })
    }

    #[inline(always)]
    unsafe fn add_two<S: Halves, const L: usize>(a: *const Self, b: *const Self) -> [Self; L] {
        // SAFETY: the trait demands `L` readable elements, of a byte each, at both, and the instruction set.
        let sums = unsafe { add_all::<S, L>(&halves::<B, L>(a.cast()), &halves::<B, L>(b.cast())) };
        bytes(&sums.map(cut_half::<B>))
    }
}

/// Returns the halves of bytes: first of the lower byte of each word, then of the upper.
///
/// # Safety
/// `from` is valid for reads of `L` bytes.
#[inline(always)]
unsafe fn halves<B: ByteFormat, const L: usize>(from: *const u8) -> [u16; L] {
    let mut halves = [0; L];
    if L == 1 {
        // SAFETY: `from` is valid for `L` bytes, here one.
        halves[0] = B::half(u16::from(unsafe { from.read() }) << 8);
    }
    for low in 0..L / 2 {
        // SAFETY: word `low` is bytes `2 * low` and `2 * low + 1` of the caller's `L`.
        let word = unsafe { from.cast::<u16>().add(low).read_unaligned() };
        halves[low] = B::half(word << 8);
        halves[L / 2 + low] = B::half(word);
    }
    halves
}

/// Puts halves in the order of [`halves`] back.
#[inline(always)]
fn bytes<B: ByteFormat, const L: usize>(halves: &[u16; L]) -> [F8<B>; L] {
    let mut result = [F8(0, PhantomData); L];
    if L == 1 {
        result[0].0 = (B::byte(halves[0]) >> 8) as u8;
    }
    let words = result.as_mut_ptr().cast::<u16>();
    for low in 0..L / 2 {
        let word = B::byte(halves[low]) >> 8 | B::byte(halves[L / 2 + low]) & UPPER;
        // SAFETY: word `low` is elements `2 * low` and `2 * low + 1` of the result's `L`, and any bits are an element.
        unsafe { words.add(low).write_unaligned(word) };
    }
    result
}

const SIGN: u32 = 0x8000_0000;
const EXPONENT: u32 = 0x7f80_0000;
/// The exponent of the least normal half, in f32 position; both formats have the same.
const LEAST: u32 = (127 - 14) << 23;

/// Rounds to the mantissa bits of the format; the sign is unchanged.
#[inline(always)]
fn cut<B: ByteFormat>(value: f32) -> f32 {
    let bits = value.to_bits();
    let one_and_a_half = (23 - B::MANTISSA) << 23 | 1 << 22;
    let c = f32::from_bits((bits & EXPONENT).max(LEAST).wrapping_add(one_and_a_half));
    f32::from_bits(((value + c) - c).to_bits() | bits & SIGN)
}

/// Rounds a half to the mantissa bits of the format. The bits that the format lacks are unspecified. A NaN has none
/// of them.
#[inline(always)]
fn cut_half<B: ByteFormat>(half: u16) -> u16 {
    let lacks = 10 - B::MANTISSA;
    half.wrapping_add((1 << (lacks - 1)) - 1 + (half >> lacks & 1))
}

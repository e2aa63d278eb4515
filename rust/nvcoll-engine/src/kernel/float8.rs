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
//! The way back must round once, so the bits that the byte lacks go before the value becomes a half:
//!
//! ```text
//! c = 1.5 * 2^(e + 23 - m)      e: the value's exponent, at least that of the least normal number; m: bits of mantissa
//! (value + c) - c               the adder rounds to a unit of 2^(e - m), ties to even
//! ```
//!
//! Sums of bytes are small enough for `c` to be finite. The exponent of infinity and NaN wraps round: `c` is next to nothing,
//! and they stay what they are. What rounds to zero gets its sign back. Then the half is exact or beyond the largest number:
//! infinity in e5m2, and whatever it is, NaN in e4m3fn. Source: ours; the magic number is folklore.

use super::element::Element;
use super::half::{round_all, widen_all, Halves};
use super::ordered::Ordered8;
use std::marker::PhantomData;

/// A format of eight bits.
pub(super) trait Byte: Copy {
    /// Bits of mantissa.
    const MANTISSA: u32;
    type ForMin: Element;
    type ForMax: Element;

    /// Returns the half of a byte.
    fn half(byte: u8) -> u16;

    /// Returns the byte of a half that has no more bits than the format, or lies beyond it.
    fn byte(half: u16) -> u8;
}

/// The upper half of binary16.
#[derive(Clone, Copy)]
pub(super) struct E5M2;

impl Byte for E5M2 {
    const MANTISSA: u32 = 2;
    type ForMin = Ordered8<-3>;
    type ForMax = Ordered8<3>;

    #[inline(always)]
    fn half(byte: u8) -> u16 {
        u16::from(byte) << 8
    }

    #[inline(always)]
    fn byte(half: u16) -> u8 {
        (half >> 8) as u8
    }
}

/// No infinity, and one NaN of each sign.
#[derive(Clone, Copy)]
pub(super) struct E4M3;

impl Byte for E4M3 {
    const MANTISSA: u32 = 3;
    type ForMin = Ordered8<-1>;
    type ForMax = Ordered8<1>;

    /// Sign extension puts the sign where a half has it, and into the exponent, from where the mask takes it. A byte is a NaN
    /// if one more carries out of its magnitude; that carry is the missing bit of the exponent.
    #[inline(always)]
    fn half(byte: u8) -> u16 {
        let half = (i16::from(byte as i8) << 7) as u16 & 0xbf80;
        half | (half + 0x80) & 0x4000
    }

    #[inline(always)]
    fn byte(half: u16) -> u8 {
        let magnitude = ((half & 0x7fff) >> 7).min(0x7f);
        (half >> 8 & 0x80 | magnitude) as u8
    }
}

/// A float of eight bits.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct F8<B>(u8, PhantomData<B>);

impl<B: Byte> Element for F8<B> {
    type Acc = f32;
    type ForMin = B::ForMin;
    type ForMax = B::ForMax;

    #[inline(always)]
    unsafe fn take<S: Halves, const L: usize>(acc: &mut [f32; L], from: *const Self, fold: impl Fn(f32, f32) -> f32) {
        // SAFETY: the caller's `L` elements.
        let halves = unsafe { from.cast::<[u8; L]>().read_unaligned() }.map(B::half);
        // SAFETY: the caller's.
        let wide = unsafe { widen_all::<S, L>(&halves) };
        for l in 0..L {
            acc[l] = fold(acc[l], wide[l]);
        }
    }

    #[inline(always)]
    unsafe fn round<S: Halves, const L: usize>(acc: &[f32; L], finish: impl Fn(f32) -> f32) -> [Self; L] {
        let cut = acc.map(|value| cut::<B>(finish(value)));
        // SAFETY: the caller's.
        unsafe { round_all::<S, L>(&cut) }.map(|half| Self(B::byte(half), PhantomData))
    }
}

const SIGN: u32 = 0x8000_0000;
const EXPONENT: u32 = 0x7f80_0000;
/// The exponent of the least normal half, in its place; both formats have the same.
const LEAST: u32 = (127 - 14) << 23;

/// Rounds to the bits that the format has; the sign stays.
#[inline(always)]
fn cut<B: Byte>(value: f32) -> f32 {
    let bits = value.to_bits();
    let one_and_a_half = (23 - B::MANTISSA) << 23 | 1 << 22;
    let c = f32::from_bits((bits & EXPONENT).max(LEAST).wrapping_add(one_and_a_half));
    f32::from_bits(((value + c) - c).to_bits() | bits & SIGN)
}

//! Floats of eight bits: a byte becomes a half, and the half is widened (see [`super::half`]).
//!
//! ```text
//! e5m2     s eeeee mm    its byte is the upper one of a half
//! e4m3fn   s eeee mmm    s 0eeee mmm 0000000 is a half too, 2^8 smaller, subnormals included; f32 multiplies by 2^8
//! ```
//!
//! e4m3fn's NaN is a number of that half and gets its exponent bits by hand. The way back is rare, once per step however many
//! sources it has, and must round once: it is [`super::minifloat`]'s. Source: ours.

use super::element::Element;
use super::half::{widen_all, Halves};
use super::minifloat::{round, Format, E4M3, E5M2};
use super::ordered::Ordered8;
use std::marker::PhantomData;

/// A format whose bytes become halves.
pub(super) trait Byte: Format {
    /// What the half of a code must be multiplied by.
    const SCALE: f32;
    type ForMin: Element;
    type ForMax: Element;

    /// Returns the half of a code.
    fn half(code: u8) -> u16;
}

impl Byte for E5M2 {
    const SCALE: f32 = 1.0;
    type ForMin = Ordered8<-3>;
    type ForMax = Ordered8<3>;

    #[inline(always)]
    fn half(code: u8) -> u16 {
        u16::from(code) << 8
    }
}

impl Byte for E4M3 {
    const SCALE: f32 = 256.0;
    type ForMin = Ordered8<-1>;
    type ForMax = Ordered8<1>;

    #[inline(always)]
    fn half(code: u8) -> u16 {
        let (sign, magnitude) = (u16::from(code & 0x80) << 8, u16::from(code & 0x7f));
        let nan = if magnitude == 0x7f { 0x7c00 } else { 0 };
        sign | magnitude << 7 | nan
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
            acc[l] = fold(acc[l], wide[l] * B::SCALE);
        }
    }

    #[inline(always)]
    unsafe fn round<S: Halves, const L: usize>(acc: &[f32; L], finish: impl Fn(f32) -> f32) -> [Self; L] {
        acc.map(|value| Self(round::<B>(finish(value)) as u8, PhantomData))
    }
}

//! Halves, which are binary16: converted by the processor where it can, sixteen at a time.
//!
//! The conversions of x86 (F16C, AVX-512) are exact one way and round to nearest the other way whatever the control word
//! says, subnormals included. Elsewhere integer arithmetic stands in for them; only the payloads of NaNs differ. A block
//! shorter than sixteen is padded, so that all elements see the same instruction.
//!
//! In integers, all cases are computed and one is chosen, so that the compiler makes vectors of it:
//!
//! ```text
//! widen   normal     exponent and mantissa in place, and the difference of the biases added to the exponent
//!         subnormal  the same with one more, which gives 2^-14 (1 + m); minus 2^-14
//!         beyond     all exponent bits set: infinity, or a NaN that keeps its payload
//! round   normal     half a unit and the tie's bit added to the bits, then cut; the carry walks into the exponent
//!         subnormal  a number added whose unit in the last place is the least subnormal: the adder rounds; its bits taken off
//!         beyond     at most infinity
//! ```
//!
//! Source: the magic numbers are F. Giesen's (`float_to_half_fast3_rtne`, 2012).

use super::stream::Baseline;
#[cfg(target_arch = "x86_64")]
use super::stream::{Avx2, Avx512};

/// The conversion of sixteen halves by an instruction set.
pub(super) trait Halves {
    /// Widens sixteen halves to f32.
    ///
    /// # Safety
    /// The instruction set is available.
    unsafe fn widen(halves: &[u16; 16]) -> [f32; 16];

    /// Rounds sixteen f32 to halves, to nearest, ties to even.
    ///
    /// # Safety
    /// The instruction set is available.
    unsafe fn round(values: &[f32; 16]) -> [u16; 16];
}

impl Halves for Baseline {
    #[inline(always)]
    unsafe fn widen(halves: &[u16; 16]) -> [f32; 16] {
        halves.map(|half| widen(half.into()))
    }

    #[inline(always)]
    unsafe fn round(values: &[f32; 16]) -> [u16; 16] {
        values.map(|value| round(value) as u16)
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Avx2, Avx512, Halves};
    use core::arch::x86_64::{
        __m128i, __m256, __m256i, __m512, _mm256_cvtph_ps, _mm256_cvtps_ph, _mm512_cvtph_ps, _mm512_cvtps_ph,
        _MM_FROUND_TO_NEAREST_INT,
    };
    use core::mem::transmute;

    /// Rounds to nearest whatever the control word says.
    const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;

    impl Halves for Avx2 {
        #[inline(always)]
        unsafe fn widen(halves: &[u16; 16]) -> [f32; 16] {
            // SAFETY: `Halves` demands the instruction set; arrays and vectors of the same elements have the same bytes.
            unsafe {
                let [low, high] = transmute::<[u16; 16], [__m128i; 2]>(*halves);
                transmute([_mm256_cvtph_ps(low), _mm256_cvtph_ps(high)])
            }
        }

        #[inline(always)]
        unsafe fn round(values: &[f32; 16]) -> [u16; 16] {
            // SAFETY: `Halves` demands the instruction set; arrays and vectors of the same elements have the same bytes.
            unsafe {
                let [low, high] = transmute::<[f32; 16], [__m256; 2]>(*values);
                transmute([_mm256_cvtps_ph::<NEAREST>(low), _mm256_cvtps_ph::<NEAREST>(high)])
            }
        }
    }

    impl Halves for Avx512 {
        #[inline(always)]
        unsafe fn widen(halves: &[u16; 16]) -> [f32; 16] {
            // SAFETY: `Halves` demands the instruction set; arrays and vectors of the same elements have the same bytes.
            unsafe { transmute(_mm512_cvtph_ps(transmute::<[u16; 16], __m256i>(*halves))) }
        }

        #[inline(always)]
        unsafe fn round(values: &[f32; 16]) -> [u16; 16] {
            // SAFETY: `Halves` demands the instruction set; arrays and vectors of the same elements have the same bytes.
            unsafe { transmute(_mm512_cvtps_ph::<NEAREST>(transmute::<[f32; 16], __m512>(*values))) }
        }
    }
}

const SIGN: u32 = 0x8000_0000;
const INFINITY: u32 = 0x7f80_0000;
/// The difference of mantissa lengths of f32 and half, in bits.
const CUT: u32 = 13;
/// The difference of the exponent biases of f32 and half, in position.
const REBIAS: u32 = (127 - 15) << 23;
/// The least normal half, as f32.
const LEAST: u32 = REBIAS + (1 << 23);
/// Infinity as a half.
const BEYOND: u32 = 0x7c00;

#[inline(always)]
fn widen(half: u32) -> f32 {
    let (sign, magnitude) = (half << 16 & SIGN, half & 0x7fff);
    let normal = (magnitude << CUT) + REBIAS;
    let subnormal = (f32::from_bits(normal + (1 << 23)) - f32::from_bits(LEAST)).to_bits();
    let number = if magnitude < 0x400 { subnormal } else { normal };
    let beyond = if magnitude >= BEYOND { INFINITY } else { 0 };
    f32::from_bits(number | beyond | sign)
}

#[inline(always)]
fn round(value: f32) -> u32 {
    let (sign, magnitude) = (value.to_bits() & SIGN, value.to_bits() & !SIGN);
    let half_unit = (1 << (CUT - 1)) - 1 + (magnitude >> CUT & 1);
    let normal = (magnitude + half_unit).wrapping_sub(REBIAS) >> CUT;
    let unit = LEAST + (CUT << 23);
    let subnormal = (f32::from_bits(magnitude) + f32::from_bits(unit)).to_bits() - unit;
    let finite = if magnitude < LEAST { subnormal } else { normal.min(BEYOND) };
    let half = if magnitude > INFINITY { BEYOND | 0x200 } else { finite };
    half | sign >> 16
}

/// Widens halves, sixteen at a time.
///
/// # Safety
/// The instruction set `S` is available.
#[inline(always)]
pub(super) unsafe fn widen_all<S: Halves, const L: usize>(halves: &[u16; L]) -> [f32; L] {
    let mut wide = [0.0; L];
    for (to, from) in wide.chunks_mut(16).zip(halves.chunks(16)) {
        let mut sixteen = [0; 16];
        sixteen[..from.len()].copy_from_slice(from);
        // SAFETY: the instruction set `S` is available, as this function demands of its caller.
        let widened = unsafe { S::widen(&sixteen) };
        to.copy_from_slice(&widened[..to.len()]);
    }
    wide
}

/// Rounds to halves, sixteen at a time.
///
/// # Safety
/// The instruction set `S` is available.
#[inline(always)]
pub(super) unsafe fn round_all<S: Halves, const L: usize>(values: &[f32; L]) -> [u16; L] {
    let mut halves = [0; L];
    for (to, from) in halves.chunks_mut(16).zip(values.chunks(16)) {
        let mut sixteen = [0.0; 16];
        sixteen[..from.len()].copy_from_slice(from);
        // SAFETY: the instruction set `S` is available, as this function demands of its caller.
        let rounded = unsafe { S::round(&sixteen) };
        to.copy_from_slice(&rounded[..to.len()]);
    }
    halves
}

/// Adds halves as if in f32 and rounds to halves. A sum of two halves has the same bits either way.
///
/// # Safety
/// The instruction set `S` is available.
#[inline(always)]
pub(super) unsafe fn add_all<S: Halves, const L: usize>(a: &[u16; L], b: &[u16; L]) -> [u16; L] {
    // SAFETY: the instruction set `S` is available, as this function demands of its caller.
    unsafe {
        let (mut sums, b) = (widen_all::<S, L>(a), widen_all::<S, L>(b));
        for l in 0..L {
            sums[l] += b[l];
        }
        round_all::<S, L>(&sums)
    }
}

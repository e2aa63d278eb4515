//! Small floats by integer arithmetic: what every instruction set has. **A format is one row of `formats!`.**
//!
//! All cases are computed and one is chosen, so that the compiler makes vectors of it.
//!
//! ```text
//! widen   normal     exponent and mantissa in place, and the difference of the biases added to the exponent
//!         subnormal  the same with one more, which gives 2^least (1 + m); minus 2^least
//!         beyond     all exponent bits set: infinity, or a NaN that keeps its payload
//! round   normal     half a unit and the tie's bit added to the bits, then cut; the carry walks into the exponent
//!         subnormal  a number added whose unit in the last place is the least subnormal: the adder rounds; then subtracted
//!         beyond     the code after the largest number: infinity, or e4m3fn's only NaN
//! ```
//!
//! Rounding is to nearest, ties to even, once, as the adder's is; no operand or result of these additions is a subnormal of
//! f32, except what is widened from nothing smaller. Source: the magic numbers are F. Giesen's (`float_to_half_fast3_rtne`,
//! 2012); the formulation by one table is ours.

/// A format with sign, exponent and mantissa, fewer of each than f32 has.
pub(super) trait Format: Copy {
    const BITS: u32;
    const MANTISSA: u32;
    /// The magnitude after the largest number: infinity, or NaN where there is none.
    const BEYOND: u32;
    /// By how much the exponent's bias is smaller than f32's, in the place of f32's exponent.
    const REBIAS: u32 = (128 - (1 << (Self::BITS - Self::MANTISSA - 2))) << 23;
}

macro_rules! formats {
    ($($(#[$doc:meta])* $name:ident: $bits:literal bits, $mantissa:literal of mantissa, beyond $beyond:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $name;
        impl Format for $name {
            const BITS: u32 = $bits;
            const MANTISSA: u32 = $mantissa;
            const BEYOND: u32 = $beyond;
        }
    )*};
}

formats! {
    /// IEEE binary16.
    Half: 16 bits, 10 of mantissa, beyond 0x7c00;
    /// No infinity, and one NaN of each sign.
    E4M3: 8 bits, 3 of mantissa, beyond 0x7f;
    /// The upper half of binary16.
    E5M2: 8 bits, 2 of mantissa, beyond 0x7c;
}

const SIGN: u32 = 0x8000_0000;
const INFINITY: u32 = 0x7f80_0000;

/// Returns the number that a code stands for.
#[inline(always)]
pub(super) fn widen<F: Format>(code: u32) -> f32 {
    let magnitude = code & ((1 << (F::BITS - 1)) - 1);
    let sign = code << (32 - F::BITS) & SIGN;
    let normal = (magnitude << (23 - F::MANTISSA)) + F::REBIAS;
    let least = F::REBIAS + (1 << 23);
    let subnormal = (f32::from_bits(normal + (1 << 23)) - f32::from_bits(least)).to_bits();
    let number = if magnitude < 1 << F::MANTISSA { subnormal } else { normal };
    let beyond = if magnitude >= F::BEYOND { INFINITY } else { 0 };
    f32::from_bits(number | beyond | sign)
}

/// Returns the code of the nearest number, ties to even.
#[inline(always)]
pub(super) fn round<F: Format>(value: f32) -> u32 {
    let (cut, bits) = (23 - F::MANTISSA, value.to_bits());
    let (sign, magnitude) = (bits & SIGN, bits & !SIGN);
    let half_unit = (1 << (cut - 1)) - 1 + (magnitude >> cut & 1);
    let normal = (magnitude + half_unit).wrapping_sub(F::REBIAS) >> cut;
    let unit = F::REBIAS + ((1 + cut) << 23);
    let subnormal = (f32::from_bits(magnitude) + f32::from_bits(unit)).to_bits() - unit;
    let finite = if magnitude < F::REBIAS + (1 << 23) { subnormal } else { normal.min(F::BEYOND) };
    let code = if magnitude > INFINITY { F::BEYOND | 1 << (F::MANTISSA - 1) } else { finite };
    code | sign >> (32 - F::BITS)
}

//! The arithmetic of accumulated values. Nothing here branches, so that it becomes vector instructions.
//!
//! Minimum and maximum follow IEEE 754-2019: NaN propagates, -0 < +0. A processor's own minimum returns its second
//! operand if the operands are equal or one is NaN, so asking both ways round gives:
//!
//! | | `m = min(a, b)` | `w = min(b, a)` | `m or w` |
//! |---|---|---|---|
//! | `a < b` | a | a | a |
//! | -0 and +0 | second | first | -0 |
//! | one is NaN | second | first | all exponent bits, and a NaN's payload: NaN |
//!
//! For the maximum `and` does the same for zeros, but could clear a NaN, which therefore is put back. Source: ours.

/// An accumulated value.
pub(super) trait Accumulator: Copy {
    const ZERO: Self;
}

/// A value that is added, multiplied and compared.
pub(super) trait Number: Accumulator {
    fn add(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    fn minimum(self, other: Self) -> Self;
    fn maximum(self, other: Self) -> Self;
    fn from_scalar(scalar: f64) -> Self;
}

/// A number that is divided.
pub(super) trait Float: Number {
    fn divide(self, by: u32) -> Self;
}

/// A value with bitwise operations; as a truth value it is true unless it is 0.
pub(super) trait Bits: Accumulator {
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn exclusive_or(self, other: Self) -> Self;
    /// Returns 1 if `claim` holds for the two truth values, else 0.
    fn logical(self, other: Self, claim: impl Fn(bool, bool) -> bool) -> Self;
}

macro_rules! floats {
    ($($type:ty),*) => {$(
        impl Accumulator for $type {
            const ZERO: $type = 0 as $type;
        }

        impl Number for $type {
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self + other
            }

            #[inline(always)]
            fn multiply(self, other: Self) -> Self {
                self * other
            }

            #[inline(always)]
            fn minimum(self, other: Self) -> Self {
                let one_way = if self < other { self } else { other };
                let the_other = if other < self { other } else { self };
                <$type>::from_bits(one_way.to_bits() | the_other.to_bits())
            }

            #[inline(always)]
            fn maximum(self, other: Self) -> Self {
                let one_way = if self > other { self } else { other };
                let the_other = if other > self { other } else { self };
                let nan = if self.is_nan() | other.is_nan() { !0 } else { 0 };
                <$type>::from_bits(one_way.to_bits() & the_other.to_bits() | nan)
            }

            /// NaN becomes the canonical one: bfloat16's rounding counts on it.
            #[inline(always)]
            fn from_scalar(scalar: f64) -> Self {
                if scalar.is_nan() { <$type>::NAN } else { scalar as $type }
            }
        }

        impl Float for $type {
            #[inline(always)]
            fn divide(self, by: u32) -> Self {
                self / by as $type
            }
        }
    )*};
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Accumulator for $type {
            const ZERO: $type = 0 as $type;
        }

        impl Number for $type {
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn multiply(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline(always)]
            fn minimum(self, other: Self) -> Self {
                self.min(other)
            }

            #[inline(always)]
            fn maximum(self, other: Self) -> Self {
                self.max(other)
            }

            /// A negative scalar of an integer without sign is that of the signed one that shares its kernels.
            #[inline(always)]
            fn from_scalar(scalar: f64) -> Self {
                if scalar < 0.0 { scalar as i64 as $type } else { scalar as u64 as $type }
            }
        }

        impl Bits for $type {
            #[inline(always)]
            fn and(self, other: Self) -> Self {
                self & other
            }

            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }

            #[inline(always)]
            fn exclusive_or(self, other: Self) -> Self {
                self ^ other
            }

            #[inline(always)]
            fn logical(self, other: Self, claim: impl Fn(bool, bool) -> bool) -> Self {
                claim(self != 0, other != 0) as $type
            }
        }
    )*};
}

floats!(f32, f64);
integers!(i8, i16, i32, i64, u8, u16, u32, u64);

//! The dtypes as the kernels see them: what is stored, what it accumulates in, how to go there and back.

/// A stored element.
pub(super) trait Element: Copy {
    /// What a step accumulates in.
    type Acc: Number;
    /// Widens a stored element.
    fn load(self) -> Self::Acc;
    /// Rounds an accumulated value, once.
    fn round(acc: Self::Acc) -> Self;
}

/// An accumulated value.
pub(super) trait Number: Copy {
    fn add(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    fn divide(self, by: u32) -> Self;
    fn minimum(self, other: Self) -> Self;
    fn maximum(self, other: Self) -> Self;
    fn from_scalar(scalar: f64) -> Self;
}

macro_rules! native {
    ($($type:ty),*) => {$(
        impl Element for $type {
            type Acc = $type;
            #[inline(always)]
            fn load(self) -> $type {
                self
            }
            #[inline(always)]
            fn round(acc: $type) -> $type {
                acc
            }
        }
    )*};
}
native!(f32, f64, i32);

/// bfloat16: the upper half of an f32.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Bf16(u16);

impl Element for Bf16 {
    type Acc = f32;
    #[inline(always)]
    fn load(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
    #[inline(always)]
    fn round(acc: f32) -> Self {
        let bits = acc.to_bits();
        let to_nearest_even = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        let quiet_nan = bits >> 16 | 0x40;
        Self(if acc.is_nan() { quiet_nan } else { to_nearest_even } as u16)
    }
}

/// Floats: minimum and maximum propagate NaN and order -0 before +0.
macro_rules! float {
    ($($type:ty),*) => {$(
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
            fn divide(self, by: u32) -> Self {
                self / by as $type
            }
            #[inline(always)]
            fn minimum(self, other: Self) -> Self {
                let alike = <$type>::from_bits(self.to_bits() | other.to_bits());
                let ordered = if self < other { self } else { other };
                let number = if self == other { alike } else { ordered };
                if self.is_nan() { self } else { number }
            }
            #[inline(always)]
            fn maximum(self, other: Self) -> Self {
                let alike = <$type>::from_bits(self.to_bits() & other.to_bits());
                let ordered = if self > other { self } else { other };
                let number = if self == other { alike } else { ordered };
                if self.is_nan() { self } else { number }
            }
            #[inline(always)]
            fn from_scalar(scalar: f64) -> Self {
                scalar as $type
            }
        }
    )*};
}
float!(f32, f64);

impl Number for i32 {
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    #[inline(always)]
    fn multiply(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }
    /// Averages of integers are not defined; the op table says so before a kernel is chosen.
    #[inline(always)]
    fn divide(self, _by: u32) -> Self {
        self
    }
    #[inline(always)]
    fn minimum(self, other: Self) -> Self {
        self.min(other)
    }
    #[inline(always)]
    fn maximum(self, other: Self) -> Self {
        self.max(other)
    }
    #[inline(always)]
    fn from_scalar(scalar: f64) -> Self {
        scalar as i64 as i32
    }
}

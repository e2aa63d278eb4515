//! Small floats by the definition: a code stands for a number, and a number gets the code whose number is nearest.

use nvcoll_core::dtype::DType;

/// A float of at most 16 bits: sign, exponent, mantissa.
#[derive(Debug, Clone, Copy)]
pub(super) struct SmallFloat {
    exponent_bits: u32,
    mantissa_bits: u32,
    /// The magnitude after that of the largest number.
    beyond: u16,
    /// Whether that is infinity; else it is NaN.
    has_infinity: bool,
}

impl SmallFloat {
    /// Returns the format of a dtype; `None` if it accumulates in itself.
    pub(super) fn of(dtype: DType) -> Option<Self> {
        let (exponent_bits, mantissa_bits, beyond, has_infinity) = match dtype {
            DType::F16 => (5, 10, 0x7c00, true),
            DType::BF16 => (8, 7, 0x7f80, true),
            DType::F8E4M3 => (4, 3, 0x7f, false),
            DType::F8E5M2 => (5, 2, 0x7c, true),
            _ => return None,
        };
        Some(Self { exponent_bits, mantissa_bits, beyond, has_infinity })
    }

    fn sign_bit(self) -> u16 {
        1 << (self.exponent_bits + self.mantissa_bits)
    }

    /// Returns the number of a magnitude, as if the formula held for every exponent. An f64 holds it exactly.
    fn magnitude(self, code: u16) -> f64 {
        let bias = (1 << (self.exponent_bits - 1)) - 1;
        let exponent = i32::from(code >> self.mantissa_bits);
        let fraction = f64::from(code & ((1 << self.mantissa_bits) - 1)) / 2f64.powi(self.mantissa_bits as i32);
        match exponent {
            0 => fraction * 2f64.powi(1 - bias),
            _ => (1.0 + fraction) * 2f64.powi(exponent - bias),
        }
    }

    /// Returns the number that a code stands for.
    pub(super) fn decode(self, code: u16) -> f32 {
        let (is_negative, magnitude) = (code & self.sign_bit() != 0, code & (self.sign_bit() - 1));
        let number = match magnitude {
            m if m < self.beyond => self.magnitude(m) as f32,
            m if m == self.beyond && self.has_infinity => f32::INFINITY,
            _ => f32::NAN,
        };
        if is_negative {
            -number
        } else {
            number
        }
    }

    /// Returns the code nearest to a number, the even one of two; beyond the largest number stands for the number that
    /// would come next.
    pub(super) fn nearest(self, value: f32) -> u16 {
        let sign = if value.is_sign_negative() { self.sign_bit() } else { 0 };
        if value.is_nan() {
            return sign | (self.sign_bit() - 1);
        }
        let wanted = f64::from(value).abs();
        let (mut low, mut high) = (0, self.beyond);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.magnitude(middle) <= wanted {
                low = middle;
            } else {
                high = middle;
            }
        }
        let (below, above) = (wanted - self.magnitude(low), self.magnitude(high) - wanted);
        let is_up = below > above || (below == above && low % 2 == 1);
        sign | if is_up { high } else { low }
    }
}

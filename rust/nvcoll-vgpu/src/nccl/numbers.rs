//! Numbers of NCCL's data types as bits: what a reduction over ranks that all hold the same leaves.
//!
//! Every element is read as bits, folded and written back as bits. Integers wrap at their width, as
//! NCCL's do. Small floats go through `f64`, which holds each of their values; the result is rounded
//! once, to the nearest even. A real ring rounds at every hop, so a sum of n equal numbers can differ
//! from this one in the last bit.

/// A data type of NCCL, by its number in `ncclDataType_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NcclDtype {
    /// Integer of this number of bytes; signed and unsigned wrap alike.
    Integer(usize),
    /// Float of a format.
    Float(Format),
}

/// Layout of a float below 64 bits, and whether its largest exponent means infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    exponent_bits: u32,
    mantissa_bits: u32,
    infinity: bool,
}

const HALF: Format = Format { exponent_bits: 5, mantissa_bits: 10, infinity: true };
const SINGLE: Format = Format { exponent_bits: 8, mantissa_bits: 23, infinity: true };
const DOUBLE: Format = Format { exponent_bits: 11, mantissa_bits: 52, infinity: true };
const BRAIN: Format = Format { exponent_bits: 8, mantissa_bits: 7, infinity: true };
/// OCP 8-bit floats (Micikevicius et al., "FP8 formats for deep learning", 2022): E4M3 has no infinity.
const E4M3: Format = Format { exponent_bits: 4, mantissa_bits: 3, infinity: false };
const E5M2: Format = Format { exponent_bits: 5, mantissa_bits: 2, infinity: true };

impl NcclDtype {
    /// The type of a number of `ncclDataType_t`.
    pub(crate) fn of_nccl(number: i32) -> Option<Self> {
        Some(match number {
            0 | 1 => Self::Integer(1),
            2 | 3 => Self::Integer(4),
            4 | 5 => Self::Integer(8),
            6 => Self::Float(HALF),
            7 => Self::Float(SINGLE),
            8 => Self::Float(DOUBLE),
            9 => Self::Float(BRAIN),
            10 => Self::Float(E4M3),
            11 => Self::Float(E5M2),
            _ => return None,
        })
    }

    /// Bytes of an element.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::Integer(bytes) => bytes,
            Self::Float(format) => format.size(),
        }
    }

    /// `bits` of one rank's element, reduced over `ranks` ranks that hold the same.
    pub(crate) fn reduced(self, bits: u64, fold: NcclFold, ranks: u32) -> u64 {
        match (self, fold) {
            (_, NcclFold::Same) => bits,
            (Self::Integer(_), NcclFold::Sum) => bits.wrapping_mul(u64::from(ranks)),
            (Self::Integer(_), NcclFold::Product) => bits.wrapping_pow(ranks),
            (Self::Integer(_), NcclFold::ScaledSum(scale)) => bits.wrapping_mul(scale).wrapping_mul(u64::from(ranks)),
            (Self::Float(format), _) => {
                let x = format.decode(bits);
                let n = f64::from(ranks);
                format.encode(match fold {
                    NcclFold::Sum => x * n,
                    NcclFold::Product => x.powf(n),
                    NcclFold::ScaledSum(scale) => x * format.decode(scale) * n,
                    NcclFold::Same => x,
                })
            }
        }
    }
}

/// A reduction of equal numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NcclFold {
    /// Minimum, maximum and average of equal numbers: that number.
    Same,
    /// Sum.
    Sum,
    /// Product.
    Product,
    /// Sum of elements times a scalar, given as bits of their type.
    ScaledSum(u64),
}

impl Format {
    fn size(self) -> usize {
        (1 + self.exponent_bits + self.mantissa_bits) as usize / 8
    }

    fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    fn sign_bit(self) -> u64 {
        1 << (self.exponent_bits + self.mantissa_bits)
    }

    /// Bits of the infinity, or of the largest number where there is none.
    fn largest(self) -> u64 {
        if self.infinity {
            ((1 << self.exponent_bits) - 1) << self.mantissa_bits
        } else {
            self.sign_bit() - 2
        }
    }

    /// The number of `bits`.
    fn decode(self, bits: u64) -> f64 {
        if self == DOUBLE {
            return f64::from_bits(bits);
        }
        let magnitude = bits & (self.sign_bit() - 1);
        let mantissa = magnitude & ((1 << self.mantissa_bits) - 1);
        let exponent = (magnitude >> self.mantissa_bits) as i32;
        let value = if self.infinity && magnitude == self.largest() {
            f64::INFINITY
        } else if magnitude > self.largest() {
            f64::NAN
        } else {
            let implicit = if exponent == 0 { 0 } else { 1 << self.mantissa_bits };
            let power = exponent.max(1) - self.bias() - self.mantissa_bits as i32;
            (mantissa + implicit) as f64 * 2f64.powi(power)
        };
        if bits & self.sign_bit() == 0 {
            value
        } else {
            -value
        }
    }

    /// The bits nearest to `value`, ties to even; beyond the largest number: infinity, or that number.
    fn encode(self, value: f64) -> u64 {
        if self == DOUBLE {
            return value.to_bits();
        }
        let sign = if value.is_sign_negative() { self.sign_bit() } else { 0 };
        let size = value.abs();
        if size.is_nan() {
            return sign | (self.sign_bit() - 1);
        }
        if size.is_infinite() {
            return sign | self.largest();
        }
        let exponent = ((size.to_bits() >> 52) as i32 - 1023).max(1 - self.bias());
        let units = (size * 2f64.powi(self.mantissa_bits as i32 - exponent)).round_ties_even() as u64;
        let bits = units + (((exponent + self.bias() - 1) as u64) << self.mantissa_bits);
        sign | bits.min(self.largest())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn float(number: i32) -> Format {
        match NcclDtype::of_nccl(number) {
            Some(NcclDtype::Float(format)) => format,
            other => panic!("{other:?} is no float"),
        }
    }

    #[test]
    fn every_small_float_survives_decoding_and_encoding() {
        for (number, bits) in [(6, 16), (9, 16), (10, 8), (11, 8)] {
            let format = float(number);
            for pattern in 0..1u64 << bits {
                let value = format.decode(pattern);
                if !value.is_nan() {
                    assert_eq!(format.encode(value), pattern, "type {number}, bits {pattern:#x}");
                }
            }
        }
    }

    #[test]
    fn sums_round_to_the_nearest_even_and_saturate() {
        assert_eq!(float(10).encode(1e9), 0x7e, "E4M3 has no infinity: 448");
        assert_eq!(float(11).encode(1e9), 0x7c, "E5M2 has one");
        assert_eq!(float(6).encode(65520.0), 0x7c00);
        assert_eq!(float(9).encode(1.0 + 1.0 / 256.0), 0x3f80, "a tie goes to the even neighbour");
        let bf16_one = 0x3f80;
        assert_eq!(NcclDtype::of_nccl(9).unwrap().reduced(bf16_one, NcclFold::Sum, 8), 0x4100);
    }

    #[test]
    fn integers_wrap_at_their_width() {
        let int8 = NcclDtype::of_nccl(0).unwrap();
        assert_eq!(int8.reduced(0xff, NcclFold::Sum, 3) as u8 as i8, -3);
        assert_eq!(NcclDtype::of_nccl(4).unwrap().reduced(3, NcclFold::Product, 4), 81);
        assert_eq!(NcclDtype::of_nccl(12), None);
    }

    proptest! {
        #[test]
        fn singles_encode_as_the_processor_rounds(value in any::<f64>()) {
            let expected = value as f32;
            let bits = float(7).encode(value) as u32;
            prop_assert!(bits == expected.to_bits() || expected.is_nan());
        }

        #[test]
        fn singles_decode_as_the_processor_reads(bits in any::<u32>()) {
            let value = f32::from_bits(bits);
            prop_assert!(value.is_nan() || float(7).decode(u64::from(bits)) == f64::from(value));
        }
    }
}

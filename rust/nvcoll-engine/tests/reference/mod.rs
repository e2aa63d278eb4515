//! What a kernel computes, written to be obviously right: one element after the other, safe, slow, sharing no code with the
//! kernels.
//!
//! Integers are computed in 128 bits and cut to their width, small floats are rounded by asking which number is nearest
//! (`small`), minimum and maximum by asking each case in turn.

use nvcoll_core::dtype::{DType, Kind};
use nvcoll_engine::kernel::Arm;

mod small;

use small::SmallFloat;

/// Folds sources of equal length, in order, and returns the bytes of the result.
///
/// `scalars` is read by [`Arm::SumScaled`], `divisor` by [`Arm::SumDivided`].
///
/// # Panics
/// If a source is not as long as the first, or the arm scales and there are fewer scalars than sources.
pub(crate) fn fold(dtype: DType, arm: Arm, sources: &[&[u8]], scalars: &[f64], divisor: u32) -> Vec<u8> {
    let elements = sources[0].len() / dtype.bytes();
    let mut result = Vec::with_capacity(sources[0].len());
    for i in 0..elements {
        let stored: Vec<&[u8]> = sources.iter().map(|source| &source[i * dtype.bytes()..][..dtype.bytes()]).collect();
        match arm {
            Arm::Copy => result.extend_from_slice(stored[0]),
            _ => result.extend(element(dtype, arm, &stored, scalars, divisor)),
        }
    }
    result
}

/// Says whether two results are the same bits, a NaN being the same as any other NaN.
pub(crate) fn is_same(dtype: DType, a: &[u8], b: &[u8]) -> bool {
    let is_nan = |bytes: &[u8]| match dtype {
        DType::F32 | DType::C64 => read_f32(bytes).is_nan(),
        DType::F64 | DType::C128 => read_f64(bytes).is_nan(),
        _ => SmallFloat::of(dtype).is_some_and(|small| small.decode(read(bytes) as u16).is_nan()),
    };
    let width = if dtype.kind() == Kind::Complex { dtype.bytes() / 2 } else { dtype.bytes() };
    a.len() == b.len()
        && a.chunks_exact(width).zip(b.chunks_exact(width)).all(|(a, b)| a == b || (is_nan(a) && is_nan(b)))
}

fn element(dtype: DType, arm: Arm, stored: &[&[u8]], scalars: &[f64], divisor: u32) -> Vec<u8> {
    let width = dtype.bytes();
    let halves = || stored.iter().map(|bytes| bytes.split_at(width / 2));
    match dtype {
        DType::F32 => f32s(arm, stored.iter().map(|s| read_f32(s)), scalars, divisor).to_ne_bytes().to_vec(),
        DType::F64 => f64s(arm, stored.iter().map(|s| read_f64(s)), scalars, divisor).to_ne_bytes().to_vec(),
        DType::F16 | DType::BF16 | DType::F8E4M3 | DType::F8E5M2 => {
            let small = SmallFloat::of(dtype).expect("a float of at most 16 bits");
            let values = stored.iter().map(|s| small.decode(read(s) as u16));
            write(small.nearest(f32s(arm, values, scalars, divisor)).into(), width)
        }
        DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64 => {
            let values = stored.iter().map(|s| cut(dtype, read(s) as i128));
            write(integers(dtype, arm, values, scalars) as u128, width)
        }
        DType::Bool if stored.len() == 1 => stored[0].to_vec(),
        DType::Bool => vec![u8::from(bools(arm, stored.iter().map(|s| s[0] != 0)))],
        DType::C64 => {
            let values = halves().map(|(re, im)| (read_f32(re), read_f32(im)));
            let (re, im) = complex_f32s(arm, values, divisor);
            [re, im].map(f32::to_ne_bytes).concat()
        }
        DType::C128 => {
            let values = halves().map(|(re, im)| (read_f64(re), read_f64(im)));
            let (re, im) = complex_f64s(arm, values, divisor);
            [re, im].map(f64::to_ne_bytes).concat()
        }
    }
}

macro_rules! floats {
    ($fold:ident, $minimum:ident, $complex:ident, $type:ty) => {
        fn $fold(arm: Arm, values: impl Iterator<Item = $type>, scalars: &[f64], divisor: u32) -> $type {
            let scaled = values.enumerate().map(|(s, value)| match arm {
                Arm::SumScaled => value * scalars[s] as $type,
                _ => value,
            });
            let folded = scaled.reduce(|acc, next| match arm {
                Arm::Min => $minimum(acc, next),
                Arm::Max => -$minimum(-acc, -next),
                Arm::Prod => acc * next,
                Arm::Sum | Arm::SumScaled | Arm::SumDivided => acc + next,
                _ => panic!("{arm:?} of floats"),
            });
            match arm {
                Arm::SumDivided => folded.unwrap_or_default() / divisor as $type,
                _ => folded.unwrap_or_default(),
            }
        }

        fn $minimum(a: $type, b: $type) -> $type {
            if a.is_nan() {
                a
            } else if b.is_nan() {
                b
            } else if a == 0.0 && b == 0.0 {
                if a.is_sign_negative() {
                    a
                } else {
                    b
                }
            } else if a < b {
                a
            } else {
                b
            }
        }

        fn $complex(arm: Arm, values: impl Iterator<Item = ($type, $type)>, divisor: u32) -> ($type, $type) {
            let folded = values.reduce(|a, b| match arm {
                Arm::Prod => (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0),
                Arm::Sum | Arm::SumDivided => (a.0 + b.0, a.1 + b.1),
                _ => panic!("{arm:?} of complex numbers"),
            });
            let (re, im) = folded.unwrap_or_default();
            match arm {
                Arm::SumDivided => (re / divisor as $type, im / divisor as $type),
                _ => (re, im),
            }
        }
    };
}

floats!(f32s, minimum_f32, complex_f32s, f32);
floats!(f64s, minimum_f64, complex_f64s, f64);

fn integers(dtype: DType, arm: Arm, values: impl Iterator<Item = i128>, scalars: &[f64]) -> i128 {
    let scaled = values.enumerate().map(|(s, value)| match arm {
        Arm::SumScaled => cut(dtype, value.wrapping_mul(scalars[s] as i128)),
        _ => value,
    });
    let folded = scaled.reduce(|acc, next| match arm {
        Arm::Min => acc.min(next),
        Arm::Max => acc.max(next),
        Arm::Prod => cut(dtype, acc.wrapping_mul(next)),
        Arm::Sum | Arm::SumScaled => cut(dtype, acc + next),
        Arm::Band => acc & next,
        Arm::Bor => acc | next,
        Arm::Bxor => acc ^ next,
        Arm::Land => (acc != 0 && next != 0).into(),
        Arm::Lor => (acc != 0 || next != 0).into(),
        _ => panic!("{arm:?} of integers"),
    });
    folded.unwrap_or_default()
}

/// Returns the number of the dtype that is equal to `value` modulo 2 to the power of its bits.
fn cut(dtype: DType, value: i128) -> i128 {
    let (least, greatest) = dtype.limits().expect("a dtype of integers");
    value.wrapping_sub(least).rem_euclid(greatest - least + 1) + least
}

fn bools(arm: Arm, values: impl Iterator<Item = bool>) -> bool {
    let folded = values.reduce(|acc, next| match arm {
        Arm::Sum | Arm::Max | Arm::Bor | Arm::Lor => acc || next,
        Arm::Prod | Arm::Min | Arm::Band | Arm::Land => acc && next,
        Arm::Bxor => acc != next,
        _ => panic!("{arm:?} of bools"),
    });
    folded.unwrap_or_default()
}

/// Reads up to 16 bytes.
fn read(bytes: &[u8]) -> u128 {
    let mut wide = [0; 16];
    match cfg!(target_endian = "little") {
        true => wide[..bytes.len()].copy_from_slice(bytes),
        false => wide[16 - bytes.len()..].copy_from_slice(bytes),
    }
    u128::from_ne_bytes(wide)
}

fn write(bits: u128, width: usize) -> Vec<u8> {
    let wide = bits.to_ne_bytes();
    match cfg!(target_endian = "little") {
        true => wide[..width].to_vec(),
        false => wide[16 - width..].to_vec(),
    }
}

fn read_f32(bytes: &[u8]) -> f32 {
    f32::from_ne_bytes(bytes.try_into().expect("an element is four bytes"))
}

fn read_f64(bytes: &[u8]) -> f64 {
    f64::from_ne_bytes(bytes.try_into().expect("an element is eight bytes"))
}

//! What a kernel computes, written to be obviously right: one element after the other, safe, slow, sharing no code with the
//! kernels. Tests and benchmarks compare against it; nothing else calls it.
//!
//! bfloat16 is rounded by asking which of its two neighbours is nearer, minimum and maximum by asking each case in turn.

use super::Arm;
use nvcoll_core::dtype::DType;

/// Folds sources of equal length, in order, and returns the bytes of the result.
///
/// `scalars` is read by [`Arm::SumScaled`], `divisor` by [`Arm::SumDivided`].
///
/// # Panics
/// If a source is not as long as the first, or the arm scales and there are fewer scalars than sources.
pub fn fold(dtype: DType, arm: Arm, sources: &[&[u8]], scalars: &[f64], divisor: u32) -> Vec<u8> {
    let elements = sources[0].len() / dtype.bytes();
    let mut result = Vec::with_capacity(sources[0].len());
    for i in 0..elements {
        let stored: Vec<&[u8]> = sources.iter().map(|source| &source[i * dtype.bytes()..][..dtype.bytes()]).collect();
        if arm == Arm::Copy {
            result.extend_from_slice(stored[0]);
            continue;
        }
        match dtype {
            DType::F32 => result.extend(f32s(arm, stored.iter().map(|s| read_f32(s)), scalars, divisor).to_ne_bytes()),
            DType::F64 => result.extend(f64s(arm, stored.iter().map(|s| read_f64(s)), scalars, divisor).to_ne_bytes()),
            DType::I32 => result.extend(i32s(arm, stored.iter().map(|s| read_i32(s)), scalars).to_ne_bytes()),
            DType::BF16 => {
                let sum = f32s(arm, stored.iter().map(|s| widen_bf16(read_u16(s))), scalars, divisor);
                result.extend(nearest_bf16(sum).to_ne_bytes());
            }
        }
    }
    result
}

/// Says whether two results are the same bits, a NaN being the same as any other NaN.
pub fn is_same(dtype: DType, a: &[u8], b: &[u8]) -> bool {
    let is_nan = |bytes: &[u8]| match dtype {
        DType::F32 => read_f32(bytes).is_nan(),
        DType::F64 => read_f64(bytes).is_nan(),
        DType::BF16 => widen_bf16(read_u16(bytes)).is_nan(),
        DType::I32 => false,
    };
    let width = dtype.bytes();
    a.len() == b.len()
        && a.chunks_exact(width).zip(b.chunks_exact(width)).all(|(a, b)| a == b || (is_nan(a) && is_nan(b)))
}

macro_rules! floats {
    ($fold:ident, $minimum:ident, $type:ty) => {
        fn $fold(arm: Arm, values: impl Iterator<Item = $type>, scalars: &[f64], divisor: u32) -> $type {
            let scaled = values.enumerate().map(|(s, value)| match arm {
                Arm::SumScaled => value * scalars[s] as $type,
                _ => value,
            });
            let folded = scaled.reduce(|acc, next| match arm {
                Arm::Min => $minimum(acc, next),
                Arm::Max => -$minimum(-acc, -next),
                _ => acc + next,
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
    };
}

floats!(f32s, minimum_f32, f32);
floats!(f64s, minimum_f64, f64);

fn i32s(arm: Arm, values: impl Iterator<Item = i32>, scalars: &[f64]) -> i32 {
    let scaled = values.enumerate().map(|(s, value)| match arm {
        Arm::SumScaled => (i64::from(value) * i64::from(scalars[s] as i32)) as i32,
        _ => value,
    });
    let folded = scaled.reduce(|acc, next| match arm {
        Arm::Min => acc.min(next),
        Arm::Max => acc.max(next),
        _ => (i64::from(acc) + i64::from(next)) as i32,
    });
    folded.unwrap_or_default()
}

fn widen_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The neighbours of `value` are its bits cut, and the next number away from zero. An f64 holds their distances exactly;
/// beyond the largest bfloat16 the next number stands for 2^128, and what is nearer to it becomes infinite.
fn nearest_bf16(value: f32) -> u16 {
    let cut = (value.to_bits() >> 16) as u16;
    if value.is_nan() {
        return cut | 0x40;
    }
    if value.is_infinite() {
        return cut;
    }
    let next = cut + 1;
    let magnitude = |bits: u16| {
        let wide = f64::from(widen_bf16(bits)).abs();
        if wide.is_infinite() {
            2f64.powi(128)
        } else {
            wide
        }
    };
    let (below, above) = (f64::from(value).abs() - magnitude(cut), magnitude(next) - f64::from(value).abs());
    match below.total_cmp(&above) {
        std::cmp::Ordering::Less => cut,
        std::cmp::Ordering::Greater => next,
        std::cmp::Ordering::Equal => cut + (cut & 1),
    }
}

fn read_f32(bytes: &[u8]) -> f32 {
    f32::from_ne_bytes(bytes.try_into().expect("an element is four bytes"))
}

fn read_f64(bytes: &[u8]) -> f64 {
    f64::from_ne_bytes(bytes.try_into().expect("an element is eight bytes"))
}

fn read_i32(bytes: &[u8]) -> i32 {
    i32::from_ne_bytes(bytes.try_into().expect("an element is four bytes"))
}

fn read_u16(bytes: &[u8]) -> u16 {
    u16::from_ne_bytes(bytes.try_into().expect("an element is two bytes"))
}

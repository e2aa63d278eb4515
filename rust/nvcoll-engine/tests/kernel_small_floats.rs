//! Floats of 8 and 16 bits, exhaustively: every value widens and comes back, every pair of float8 folds as the reference
//! says, and every tie of 16 bits goes to the even neighbour, on every instruction set.

mod reference;

use nvcoll_core::dtype::DType;
use nvcoll_engine::kernel::{select, Args, Arm, Isa};

/// Yields each float of at most 16 bits.
fn small() -> impl Iterator<Item = DType> {
    DType::ALL.iter().copied().filter(|dtype| dtype.accumulator() == DType::F32 && dtype.bytes() <= 2)
}

fn mantissa_bits(dtype: DType) -> u32 {
    match dtype {
        DType::F16 => 10,
        DType::BF16 => 7,
        DType::F8E4M3 => 3,
        DType::F8E5M2 => 2,
        _ => panic!("{dtype} needs the bits of its mantissa here"),
    }
}

/// Folds sources of `dtype` out of place and compares with the reference.
fn check(dtype: DType, arm: Arm, sources: &[Vec<u8>]) {
    let slices: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
    let expected = reference::fold(dtype, arm, &slices, &[], sources.len() as u32);
    for isa in Isa::available() {
        let result = fold(isa, dtype, arm, sources);
        let width = dtype.bytes();
        for (i, (found, wanted)) in result.chunks(width).zip(expected.chunks(width)).enumerate() {
            let terms: Vec<&[u8]> = slices.iter().map(|source| &source[i * width..][..width]).collect();
            assert!(
                reference::is_same(dtype, found, wanted),
                "{dtype} {arm:?} {}: {terms:x?} gave {found:x?}, not {wanted:x?}",
                isa.name()
            );
        }
    }
}

fn fold(isa: Isa, dtype: DType, arm: Arm, sources: &[Vec<u8>]) -> Vec<u8> {
    let mut result = vec![0; sources[0].len()];
    let src: Vec<*const u8> = sources.iter().map(|source| source.as_ptr()).collect();
    let dst = [result.as_mut_ptr()];
    let args = Args {
        src: src.as_ptr(),
        n_src: src.len(),
        dst: dst.as_ptr(),
        n_dst: 1,
        count: sources[0].len() / dtype.bytes(),
        scalars: std::ptr::null(),
        divisor: sources.len() as u32,
        plain: 1,
        is_far: false,
    };
    // SAFETY: live vectors of `count` elements, the destination apart; the instruction set is from `available`.
    unsafe { select(isa, dtype, arm).run(&args) };
    result
}

/// The stored form of codes.
fn stored(dtype: DType, codes: impl Iterator<Item = u32>) -> Vec<u8> {
    match dtype.bytes() {
        1 => codes.map(|code| code as u8).collect(),
        _ => codes.flat_map(|code| (code as u16).to_ne_bytes()).collect(),
    }
}

fn codes(dtype: DType) -> std::ops::Range<u32> {
    0..1 << (8 * dtype.bytes())
}

/// The code of half of the distance from a number to the next one, 0 where the dtype has no such number.
fn half_unit(dtype: DType, mantissa: u32, code: u32) -> u32 {
    let magnitude = code & ((1 << (8 * dtype.bytes() - 1)) - 1);
    match (magnitude >> mantissa).max(1) {
        1 => 0,
        exponent if exponent > mantissa + 1 => (exponent - mantissa - 1) << mantissa,
        exponent => 1 << (exponent - 2),
    }
}

#[test]
fn every_value_comes_back_from_a_sum_with_negative_zero() {
    for dtype in small() {
        let negative_zero = 1 << (8 * dtype.bytes() - 1);
        let (values, zeros) = (stored(dtype, codes(dtype)), stored(dtype, codes(dtype).map(|_| negative_zero)));
        for isa in Isa::available() {
            let result = fold(isa, dtype, Arm::Sum, &[values.clone(), zeros.clone()]);
            assert!(reference::is_same(dtype, &result, &values), "{dtype} {}", isa.name());
        }
        check(dtype, Arm::Sum, &[values, zeros]);
    }
}

#[test]
fn every_tie_goes_to_the_even_neighbour_and_the_least_bit_more_or_less_breaks_it() {
    for (dtype, mantissa) in small().map(|dtype| (dtype, mantissa_bits(dtype))) {
        let sign = 1 << (8 * dtype.bytes() - 1);
        let values = stored(dtype, codes(dtype));
        for half_sign in [0, sign] {
            let halves = stored(dtype, codes(dtype).map(|code| half_unit(dtype, mantissa, code) | half_sign));
            for least in [0, 1, sign | 1] {
                let more = stored(dtype, codes(dtype).map(|_| least));
                check(dtype, Arm::Sum, &[values.clone(), halves.clone(), more]);
            }
        }
    }
}

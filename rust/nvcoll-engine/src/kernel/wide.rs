//! Small floats in memory as the float32 in which they accumulate, so that a partial sum can leave a kernel without being rounded.
//!
//! Both conversions are the kernels' own, around a fold of nothing:
//!
//! ```text
//! widen    take, in the order of memory    exact
//! narrow   round                           once
//! ```
//!
//! Dtypes that accumulate in themselves have none. Blocks are converted by functions that are always inlined: a closure that the compiler
//! leaves out of line has no instruction set, and is 20 to 100 times as slow (measured).

use super::bfloat16::Bf16;
use super::element::Element;
use super::float16::F16;
use super::float8::{ByteFormat, E4M3, E5M2, F8};
use super::half::Halves;
use super::isa::Isa;
use super::stream::Baseline;
#[cfg(target_arch = "x86_64")]
use super::stream::{Avx2, Avx512};
use nvcoll_core::dtype::DType;

/// The elements of a block, as in the kernels of floats.
const BLOCK: usize = 64;

/// An element that accumulates in float32.
trait Small: Element<Acc = f32> {
    /// Whether accumulated values of a block have the order of its even elements, then its odd ones.
    const IS_SPLIT: bool;
    /// The accumulated value of 1.
    const ONE: f32 = 1.0;
    /// The bits that a NaN may have before it is rounded; see `bfloat16`.
    const NAN_BITS: u32 = u32::MAX;

    /// Returns the accumulated values of a block in the order of memory.
    ///
    /// # Safety
    /// `from` is valid for reads of a block, and the instruction set `S` is available.
    #[inline(always)]
    unsafe fn widened<S: Halves>(from: *const Self) -> [f32; BLOCK] {
        let (mut taken, mut values) = ([0.0; BLOCK], [0.0; BLOCK]);
        // SAFETY: this function demands what `take` does.
        unsafe { Self::take::<S, BLOCK>(&mut taken, from, |_, value| value) };
        for at in 0..BLOCK / 2 {
            let [even, odd] = places::<Self>(at);
            (values[2 * at], values[2 * at + 1]) = (taken[even], taken[odd]);
        }
        values
    }
}

impl Small for F16 {
    const IS_SPLIT: bool = false;
}

impl Small for Bf16 {
    const IS_SPLIT: bool = true;
    const NAN_BITS: u32 = 0xffff_0000;

    /// Measured: 16 times as fast as putting the halves of words in order, for which the compiler finds no vectors.
    #[inline(always)]
    unsafe fn widened<S: Halves>(from: *const Self) -> [f32; BLOCK] {
        // SAFETY: the block is readable, as the trait demands; an element is the upper half of its float32.
        unsafe { from.cast::<[u16; BLOCK]>().read_unaligned() }.map(|bits| f32::from_bits(u32::from(bits) << 16))
    }
}

impl<B: ByteFormat> Small for F8<B> {
    const IS_SPLIT: bool = true;
    const ONE: f32 = B::ONE;
}

/// A conversion of the elements at the first address into elements at the second.
type ConversionFunction = unsafe fn(*const u8, *mut u8, usize);

/// The conversions between a dtype and its accumulator.
#[derive(Clone, Copy)]
pub(super) struct Conversions {
    /// To float32. Demands the instruction set, a readable element and a writable float32 for each of the count, at any alignment, and
    /// that they share no byte.
    pub(super) widen: ConversionFunction,
    /// From float32; demands the same.
    pub(super) narrow: ConversionFunction,
}

/// Chooses the conversions of a dtype; `None` if it accumulates in itself.
pub(super) fn conversions(isa: Isa, dtype: DType) -> Option<Conversions> {
    match dtype {
        DType::F16 => Some(of::<F16>(isa)),
        DType::BF16 => Some(of::<Bf16>(isa)),
        DType::F8E4M3 => Some(of::<F8<E4M3>>(isa)),
        DType::F8E5M2 => Some(of::<F8<E5M2>>(isa)),
        _ => None,
    }
}

fn of<E: Small>(isa: Isa) -> Conversions {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => Conversions { widen: with_avx512::<E, true>, narrow: with_avx512::<E, false> },
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => Conversions { widen: with_avx2::<E, true>, narrow: with_avx2::<E, false> },
        _ => Conversions { widen: convert::<E, Baseline, true>, narrow: convert::<E, Baseline, false> },
    }
}

/// Converts with the instructions of AVX2 with F16C.
///
/// # Safety
/// As [`Conversions`] says.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
unsafe fn with_avx2<E: Small, const WIDENS: bool>(from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: `convert` demands what this function does.
    unsafe { convert::<E, Avx2, WIDENS>(from, to, count) }
}

/// Converts with the instructions of AVX-512.
///
/// # Safety
/// As [`Conversions`] says.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn with_avx512<E: Small, const WIDENS: bool>(from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: `convert` demands what this function does.
    unsafe { convert::<E, Avx512, WIDENS>(from, to, count) }
}

/// Converts `count` elements, block by block; the last ones are copied into a whole block.
///
/// # Safety
/// As [`Conversions`] says.
#[inline(always)]
unsafe fn convert<E: Small, S: Halves, const WIDENS: bool>(from: *const u8, to: *mut u8, count: usize) {
    let [read, written] = if WIDENS { [size_of::<E>(), 4] } else { [4, size_of::<E>()] };
    let whole = count - count % BLOCK;
    // SAFETY: blocks and the rest lie below the count, for which the caller vouches; float32 are the widest elements of both arrays.
    unsafe {
        for at in (0..whole).step_by(BLOCK) {
            convert_block::<E, S, WIDENS>(from.add(at * read), to.add(at * written));
        }
        if whole < count {
            let (mut last, mut converted) = ([0_f32; BLOCK], [0_f32; BLOCK]);
            let (last, converted) = (last.as_mut_ptr().cast::<u8>(), converted.as_mut_ptr().cast::<u8>());
            last.copy_from_nonoverlapping(from.add(whole * read), (count - whole) * read);
            convert_block::<E, S, WIDENS>(last, converted);
            converted.copy_to_nonoverlapping(to.add(whole * written), (count - whole) * written);
        }
    }
}

/// Converts a block.
///
/// # Safety
/// As [`Conversions`] says, for the elements of a block.
#[inline(always)]
unsafe fn convert_block<E: Small, S: Halves, const WIDENS: bool>(from: *const u8, to: *mut u8) {
    // SAFETY: both demand what this function does.
    unsafe {
        if WIDENS {
            widen::<E, S>(from.cast(), to.cast())
        } else {
            narrow::<E, S>(from.cast(), to.cast())
        }
    }
}

/// Widens a block.
///
/// # Safety
/// `from` and `to` are valid for a block; the instruction set `S` is available.
#[inline(always)]
unsafe fn widen<E: Small, S: Halves>(from: *const E, to: *mut f32) {
    // SAFETY: the block is readable and writable, and the instruction set available, as this function demands.
    unsafe { to.cast::<[f32; BLOCK]>().write_unaligned(E::widened::<S>(from).map(|value| value / E::ONE)) };
}

/// Rounds a block.
///
/// # Safety
/// As `widen`.
#[inline(always)]
unsafe fn narrow<E: Small, S: Halves>(from: *const f32, to: *mut E) {
    // SAFETY: the block is readable, as this function demands.
    let values = unsafe { from.cast::<[f32; BLOCK]>().read_unaligned() };
    let accumulated = |value: f32| match value.is_nan() {
        true => f32::from_bits(value.to_bits() & E::NAN_BITS | QUIET),
        false => value * E::ONE,
    };
    let mut taken = [0.0; BLOCK];
    for at in 0..BLOCK / 2 {
        let [even, odd] = places::<E>(at);
        (taken[even], taken[odd]) = (accumulated(values[2 * at]), accumulated(values[2 * at + 1]));
    }
    // SAFETY: the block is writable, and the instruction set available, as this function demands.
    unsafe { to.cast::<[E; BLOCK]>().write_unaligned(E::round::<S, BLOCK>(&taken, |value| value)) };
}

/// The bit that a NaN keeps whatever bits it loses.
const QUIET: u32 = 0x0040_0000;

/// Returns the places of elements `2 * at` and `2 * at + 1` among the accumulated values of a block.
#[inline(always)]
fn places<E: Small>(at: usize) -> [usize; 2] {
    if E::IS_SPLIT {
        [at, BLOCK / 2 + at]
    } else {
        [2 * at, 2 * at + 1]
    }
}

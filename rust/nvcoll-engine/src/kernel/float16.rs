//! float16: a half, converted as [`super::half`] does.

use super::element::Element;
use super::half::{round_all, widen_all, Halves};
use super::ordered::Ordered16;

/// The number of NaNs of one sign.
const NANS: i16 = 0x3ff;

/// float16: IEEE binary16.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct F16(u16);

impl Element for F16 {
    type Acc = f32;
    type ForMin = Ordered16<{ -NANS }>;
    type ForMax = Ordered16<NANS>;

    #[inline(always)]
    unsafe fn take<S: Halves, const L: usize>(acc: &mut [f32; L], from: *const F16, fold: impl Fn(f32, f32) -> f32) {
        // SAFETY: `Element::take` demands that `from` is valid for reads of `L` elements.
        let halves = unsafe { from.cast::<[u16; L]>().read_unaligned() };
        // SAFETY: the instruction set is available, as the trait demands of the caller.
        let wide = unsafe { widen_all::<S, L>(&halves) };
        for l in 0..L {
            acc[l] = fold(acc[l], wide[l]);
        }
    }

    #[inline(always)]
    unsafe fn round<S: Halves, const L: usize>(acc: &[f32; L], finish: impl Fn(f32) -> f32) -> [F16; L] {
        // SAFETY: the instruction set is available, as the trait demands of the caller.
        unsafe { round_all::<S, L>(&acc.map(finish)) }.map(F16)
    }
}

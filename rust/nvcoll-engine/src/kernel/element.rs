//! Elements of dtypes in kernels: how they are stored, in which type they accumulate, and the conversions. **A dtype that accumulates
//! in itself is one word of `rows!`**; each of the others has a file.
//!
//! | file | elements | accumulate in |
//! |---|---|---|
//! | here | f32, f64, integers | themselves |
//! | `bfloat16` | [`Bf16`](super::bfloat16::Bf16) | f32 |
//! | `float16` | [`F16`](super::float16::F16) | f32 |
//! | `float8` | [`F8`](super::float8::F8) | f32 |
//! | `ordered` | all of these, for minimum and maximum | integers of the same order |
//! | `complex` | [`Complex`](super::complex::Complex), for products; sums are sums of floats | themselves |
//!
//! Elements are converted a block at a time. The accumulated values of a block may have any order, as long as loading and rounding
//! agree.
//!
//! Loading, widening and folding are one loop over the block, and so are finishing and rounding. The compiler vectorises such loops
//! reliably, and a chain of array operations only sometimes (measured: a factor of seven for the minimum of bfloat16).

use super::half::Halves;
use super::number::Accumulator;

/// A stored element.
pub(super) trait Element: Copy {
    /// The type of the accumulated values.
    type Acc: Accumulator;
    /// The element type that minimum uses.
    type ForMin: Element;
    /// The element type that maximum uses.
    type ForMax: Element;

    /// Widens the `L` elements at `from` and folds each onto its value in `acc`.
    ///
    /// # Safety
    /// `from` is valid for reads of `L` elements, at any alignment. The instruction set `S` is available.
    unsafe fn take<S: Halves, const L: usize>(
        acc: &mut [Self::Acc; L],
        from: *const Self,
        fold: impl Fn(Self::Acc, Self::Acc) -> Self::Acc,
    );

    /// Finishes and rounds accumulated values, once, and restores the order of memory.
    ///
    /// # Safety
    /// The instruction set `S` is available.
    unsafe fn round<S: Halves, const L: usize>(
        acc: &[Self::Acc; L],
        finish: impl Fn(Self::Acc) -> Self::Acc,
    ) -> [Self; L];

    /// Whether the type implements [`Element::add_two`].
    const ADDS_TWO: bool = false;

    /// Adds the `L` elements at `a` and those at `b`, with the bits of accumulating and rounding, in fewer
    /// instructions.
    ///
    /// # Safety
    /// `a` and `b` are valid for reads of `L` elements, at any alignment. The instruction set `S` is available.
    unsafe fn add_two<S: Halves, const L: usize>(_a: *const Self, _b: *const Self) -> [Self; L] {
        unreachable!("asked for only where `ADDS_TWO`")
    }
}

/// Elements that accumulate in themselves.
macro_rules! rows {
    ($($type:ty),*) => {$(
        impl $crate::kernel::element::Element for $type {
            type Acc = $type;
            type ForMin = $type;
            type ForMax = $type;

            #[inline(always)]
            unsafe fn take<S: $crate::kernel::half::Halves, const L: usize>(
                acc: &mut [$type; L],
                from: *const $type,
                fold: impl Fn($type, $type) -> $type,
            ) {
                for l in 0..L {
                    // SAFETY: element `l` is one of the caller's `L`.
                    acc[l] = fold(acc[l], unsafe { from.add(l).read_unaligned() });
                }
            }

            #[inline(always)]
            unsafe fn round<S: $crate::kernel::half::Halves, const L: usize>(
                acc: &[$type; L],
                finish: impl Fn($type) -> $type,
            ) -> [$type; L] {
                acc.map(finish)
            }
        }
    )*};
}
pub(super) use rows;

rows!(f32, f64, i8, i16, i32, i64, u8, u16, u32, u64);

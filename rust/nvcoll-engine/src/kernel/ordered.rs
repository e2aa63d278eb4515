//! Small floats as integers of the same order: their minimum and maximum need no f32 at all.
//!
//! Flipping the lower bits of negative numbers turns sign and magnitude into two's complement; -0 comes right below +0, and
//! NaNs are beyond both infinities. Moved by their number, the NaNs of one sign wrap round to the NaNs of the other: below
//! everything (for minimum) or above everything (for maximum). So NaN propagates by itself.
//!
//! ```text
//! -NaN … -inf … -1 … -0 +0 … +1 … +inf … +NaN         in the order of integers
//!  +NaN -NaN … -inf … -0 +0 … +inf                    moved up by the number of NaNs: for minimum
//!             -inf … -0 +0 … +inf … +NaN -NaN         moved down: for maximum
//! ```
//!
//! Source: ours; the order of the integers is IEEE 754's totalOrder.

use super::element::Element;
use super::half::Halves;

macro_rules! ordered {
    ($($(#[$doc:meta])* $name:ident, $int:ty;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        #[repr(transparent)]
        pub(super) struct $name<const MOVED_DOWN: $int>($int);

        impl<const MOVED_DOWN: $int> $name<MOVED_DOWN> {
            #[inline(always)]
            fn flip_if_negative(bits: $int) -> $int {
                bits ^ (bits >> (<$int>::BITS - 1) & <$int>::MAX)
            }
        }

        impl<const MOVED_DOWN: $int> Element for $name<MOVED_DOWN> {
            type Acc = $int;
            type ForMin = Self;
            type ForMax = Self;

            #[inline(always)]
            unsafe fn take<S: Halves, const L: usize>(
                acc: &mut [$int; L],
                from: *const Self,
                fold: impl Fn($int, $int) -> $int,
            ) {
                #[allow(clippy::needless_range_loop, reason = "indices keep the loads and the fold in one vectorised loop")]
                for l in 0..L {
                    // SAFETY: element `l` is one of the caller's `L`.
                    let bits = unsafe { from.cast::<$int>().add(l).read_unaligned() };
                    acc[l] = fold(acc[l], Self::flip_if_negative(bits).wrapping_sub(MOVED_DOWN));
                }
            }

            #[inline(always)]
            unsafe fn round<S: Halves, const L: usize>(acc: &[$int; L], finish: impl Fn($int) -> $int) -> [Self; L] {
                acc.map(|place| Self(Self::flip_if_negative(finish(place).wrapping_add(MOVED_DOWN))))
            }
        }
    )*};
}

ordered! {
    /// A float of eight bits.
    Ordered8, i8;
    /// A float of sixteen bits.
    Ordered16, i16;
}

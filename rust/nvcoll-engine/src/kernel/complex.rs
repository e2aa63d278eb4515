//! Complex products: the plain formula of four multiplications, never fused. Sums and averages work on the
//! parts as floats, and need nothing here.

use super::arm::Fold;
use super::element::rows;
use super::number::Accumulator;

/// Two floats, the real part first.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Complex<P> {
    re: P,
    im: P,
}

/// Multiplication.
pub(super) struct Product;

macro_rules! complex {
    ($($part:ty),*) => {$(
        impl Accumulator for Complex<$part> {
            const ZERO: Self = Self { re: 0.0, im: 0.0 };
        }

        impl Fold<Complex<$part>> for Product {
            #[inline(always)]
            fn fold(a: Complex<$part>, b: Complex<$part>) -> Complex<$part> {
                Complex { re: a.re * b.re - a.im * b.im, im: a.re * b.im + a.im * b.re }
            }
        }

        rows!(Complex<$part>);
    )*};
}

complex!(f32, f64);

//! The arms of the fold: the operation of a step on its sources. **An op is one row of `arms!`** (two if its completing step differs),
//! one variant and one line of [`Arm::of`].

use super::number::{Accumulator, Bits, Float, Number};
use nvcoll_core::op::Op;

/// The operation of a step on its sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arm {
    /// The copy of one source.
    Copy,
    /// Addition.
    Sum,
    /// Multiplication.
    Prod,
    /// IEEE 754-2019 minimum.
    Min,
    /// IEEE 754-2019 maximum.
    Max,
    /// Multiplication of each source by its scalar, then addition.
    SumScaled,
    /// Addition, then division.
    SumDivided,
    /// And of each bit.
    Band,
    /// Or of each bit.
    Bor,
    /// Exclusive or of each bit.
    Bxor,
    /// 1 if all are other than zero, else 0.
    Land,
    /// 1 if any is other than zero, else 0.
    Lor,
}

impl Arm {
    /// Every arm.
    pub const ALL: &'static [Arm] = &[
        Arm::Copy,
        Arm::Sum,
        Arm::Prod,
        Arm::Min,
        Arm::Max,
        Arm::SumScaled,
        Arm::SumDivided,
        Arm::Band,
        Arm::Bor,
        Arm::Bxor,
        Arm::Land,
        Arm::Lor,
    ];

    /// Returns the operation of a step with `n_src` sources under `op`.
    ///
    /// A completing step with one source belongs to a world of one rank, where dividing by 1 is copying.
    pub fn of(op: Op, n_src: usize, is_final: bool, has_contribution: bool) -> Arm {
        match op {
            Op::PremulSum if has_contribution => Arm::SumScaled,
            _ if n_src == 1 => Arm::Copy,
            Op::Avg if is_final => Arm::SumDivided,
            Op::Sum | Op::Avg | Op::PremulSum => Arm::Sum,
            Op::Prod => Arm::Prod,
            Op::Min => Arm::Min,
            Op::Max => Arm::Max,
            Op::Band => Arm::Band,
            Op::Bor => Arm::Bor,
            Op::Bxor => Arm::Bxor,
            Op::Land => Arm::Land,
            Op::Lor => Arm::Lor,
        }
    }
}

/// The interface of an arm for the generic routine.
pub(super) trait Fold<V: Accumulator> {
    /// Whether a destination that is also the source is left alone.
    const COPIES: bool = false;
    /// Whether sources are scaled first.
    const SCALES: bool = false;
    /// Whether the arm is addition and nothing else.
    const ADDS: bool = false;

    /// Folds `next` onto `acc`.
    fn fold(acc: V, next: V) -> V;

    /// Scales a source, if the arm does.
    #[inline(always)]
    fn scale(source: V, _scalar: f64) -> V {
        source
    }

    /// Completes the fold.
    #[inline(always)]
    fn finish(acc: V, _divisor: u32) -> V {
        acc
    }
}

macro_rules! arms {
    ($($(#[$doc:meta])* $name:ident of $kind:ident: |$acc:ident, $next:ident| $fold:expr $(, { $($more:item)* })?;)*) => {$(
        $(#[$doc])*
        pub(super) struct $name;
        impl<V: $kind> Fold<V> for $name {
            #[inline(always)]
            fn fold($acc: V, $next: V) -> V {
                $fold
            }
            $($($more)*)?
        }
    )*};
}

arms! {
    /// One source; there is nothing to fold.
    Copy of Accumulator: |acc, _next| acc, { const COPIES: bool = true; };
    /// Addition.
    Sum of Number: |acc, next| acc.add(next), { const ADDS: bool = true; };
    /// Multiplication.
    Prod of Number: |acc, next| acc.multiply(next);
    /// Minimum.
    Min of Number: |acc, next| acc.minimum(next);
    /// Maximum.
    Max of Number: |acc, next| acc.maximum(next);
    /// Addition of scaled sources.
    SumScaled of Number: |acc, next| acc.add(next), {
        const SCALES: bool = true;
        #[inline(always)]
        fn scale(source: V, scalar: f64) -> V {
            source.multiply(V::from_scalar(scalar))
        }
    };
    /// Addition, then division.
    SumDivided of Float: |acc, next| acc.add(next), {
        #[inline(always)]
        fn finish(acc: V, divisor: u32) -> V {
            acc.divide(divisor)
        }
    };
    /// And of each bit.
    Band of Bits: |acc, next| acc.and(next);
    /// Or of each bit.
    Bor of Bits: |acc, next| acc.or(next);
    /// Exclusive or of each bit.
    Bxor of Bits: |acc, next| acc.exclusive_or(next);
    /// And of truth values.
    Land of Bits: |acc, next| acc.logical(next, |a, b| a & b);
    /// Or of truth values.
    Lor of Bits: |acc, next| acc.logical(next, |a, b| a | b);
    /// Exclusive or of truth values.
    Lxor of Bits: |acc, next| acc.logical(next, |a, b| a ^ b);
}

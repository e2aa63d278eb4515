//! The arms of the fold: what a step does with its sources. **An op is one row of `arms!`** (two if its completing step
//! differs), one variant and one line of [`Arm::of`].

use super::number::Number;
use nvcoll_core::op::Op;

/// What a step does with its sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arm {
    /// One source, unchanged.
    Copy,
    /// Addition.
    Sum,
    /// IEEE 754-2019 minimum.
    Min,
    /// IEEE 754-2019 maximum.
    Max,
    /// Each source times its scalar, then addition.
    SumScaled,
    /// Addition, then division.
    SumDivided,
}

impl Arm {
    /// Every arm.
    pub const ALL: &'static [Arm] = &[Arm::Copy, Arm::Sum, Arm::Min, Arm::Max, Arm::SumScaled, Arm::SumDivided];

    /// Returns what a step with `n_src` sources does under `op`.
    ///
    /// A completing step with one source is that of a world of one rank, where dividing by 1 is copying.
    pub fn of(op: Op, n_src: usize, is_final: bool, has_contribution: bool) -> Arm {
        match op {
            Op::PremulSum if has_contribution => Arm::SumScaled,
            _ if n_src == 1 => Arm::Copy,
            Op::Avg if is_final => Arm::SumDivided,
            Op::Sum | Op::Avg | Op::PremulSum => Arm::Sum,
            Op::Min => Arm::Min,
            Op::Max => Arm::Max,
        }
    }
}

/// One arm, as the generic routine sees it.
pub(super) trait Fold {
    /// Whether a destination that is the source is left alone.
    const COPIES: bool = false;
    /// Whether sources are multiplied by their scalars first.
    const SCALES: bool = false;
    /// Whether the result is divided at the end.
    const DIVIDES: bool = false;

    /// Folds `next` onto `acc`.
    fn fold<N: Number>(acc: N, next: N) -> N;
}

macro_rules! arms {
    ($($(#[$doc:meta])* $name:ident: $method:ident $(, $flag:ident)?;)*) => {$(
        $(#[$doc])*
        pub(super) struct $name;
        impl Fold for $name {
            $(const $flag: bool = true;)?
            #[inline(always)]
            fn fold<N: Number>(acc: N, next: N) -> N {
                acc.$method(next)
            }
        }
    )*};
}

arms! {
    /// One source; there is nothing to add.
    Copy: add, COPIES;
    /// Addition.
    Sum: add;
    /// Addition of scaled sources.
    SumScaled: add, SCALES;
    /// Addition, then division.
    SumDivided: add, DIVIDES;
    /// Minimum.
    Min: minimum;
    /// Maximum.
    Max: maximum;
}

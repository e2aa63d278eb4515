//! The arms: how two accumulated values become one, and what happens before and after.

use super::element::Number;

/// One arm of the fold.
pub(super) trait Fold {
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

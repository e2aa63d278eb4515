//! The reduce operations. **An op is one row of the table below** and one fold arm in the engine's kernels.
//!
//! `avg` is the sum, then one true division by the number of ranks in the accumulation type, at the step that completes
//! the reduction. `premul_sum` multiplies each rank's contribution by that rank's scalar in the accumulation type, then
//! adds; never fused. `min` and `max` are IEEE 754-2019 minimum and maximum: NaN propagates, -0 < +0.

use crate::dtype::{DType, Kind};

macro_rules! ops {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, on $kinds:expr;)*) => {
        /// A reduce operation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Op { $($(#[$doc])* $variant,)* }

        impl Op {
            /// Every op, in table order.
            pub const ALL: &'static [Op] = &[$(Op::$variant,)*];

            /// Returns its name, the same in Rust, Python and the CLI.
            pub const fn name(self) -> &'static str {
                match self { $(Op::$variant => $name,)* }
            }

            /// Returns the kinds of dtype on which it is defined.
            pub const fn kinds(self) -> &'static [Kind] {
                match self { $(Op::$variant => &$kinds,)* }
            }
        }
    };
}

ops! {
    /// Addition; integers wrap.
    Sum = "sum", on [Kind::Integer, Kind::Float];
    /// IEEE 754-2019 minimum.
    Min = "min", on [Kind::Integer, Kind::Float];
    /// IEEE 754-2019 maximum.
    Max = "max", on [Kind::Integer, Kind::Float];
    /// Sum, then one true division by the world size.
    Avg = "avg", on [Kind::Float];
    /// Sum of contributions, each multiplied by its rank's scalar.
    PremulSum = "premul_sum", on [Kind::Integer, Kind::Float];
}

impl Op {
    /// Finds an op by its name.
    pub fn named(name: &str) -> Option<Op> {
        Self::ALL.iter().copied().find(|o| o.name() == name)
    }

    /// Says whether the op is defined on `dtype`.
    pub fn is_defined_on(self, dtype: DType) -> bool {
        self.kinds().contains(&dtype.kind())
    }
}

impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

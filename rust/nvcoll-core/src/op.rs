//! The reduce operations. **An op is one row of the table below** and one fold arm in the engine's kernels.
//!
//! `avg` adds, and divides once by the number of ranks in the accumulation type, in the step that completes the reduction.
//! `premul_sum` multiplies each rank's contribution by that rank's scalar in the accumulation type, then adds, never fused. `min`
//! and `max` are IEEE 754-2019 minimum and maximum: NaN propagates, and -0 < +0. On bool, `sum` and `max` are or; `prod` and `min`
//! are and.

use crate::dtype::{DType, Kind};
use crate::error::{Error, Result};

macro_rules! ops {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, on [$($kind:ident),*];)*) => {
        /// A reduce operation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Op { $($(#[$doc])* $variant,)* }

        impl Op {
            /// Every op, in table order.
            pub const ALL: &'static [Op] = &[$(Op::$variant,)*];

            /// Returns the name of the op, the same in Rust, Python and the CLI.
            pub const fn name(self) -> &'static str {
                match self { $(Op::$variant => $name,)* }
            }

            /// Returns the kinds of dtype on which the op is defined.
            pub const fn kinds(self) -> &'static [Kind] {
                match self { $(Op::$variant => &[$(Kind::$kind),*],)* }
            }
        }
    };
}

ops! {
    /// Addition; integers wrap.
    Sum = "sum", on [Float, Float8, Signed, Unsigned, Bool, Complex];
    /// Multiplication; integers wrap.
    Prod = "prod", on [Float, Signed, Unsigned, Bool, Complex];
    /// IEEE 754-2019 minimum.
    Min = "min", on [Float, Float8, Signed, Unsigned, Bool];
    /// IEEE 754-2019 maximum.
    Max = "max", on [Float, Float8, Signed, Unsigned, Bool];
    /// Sum, then one true division by the world size.
    Avg = "avg", on [Float, Float8, Complex];
    /// Sum of contributions, each multiplied by its rank's scalar.
    PremulSum = "premul_sum", on [Float, Signed, Unsigned];
    /// Bitwise and; logical and of bools.
    Band = "band", on [Signed, Unsigned, Bool];
    /// Bitwise or; logical or of bools.
    Bor = "bor", on [Signed, Unsigned, Bool];
    /// Bitwise exclusive or; logical exclusive or of bools.
    Bxor = "bxor", on [Signed, Unsigned, Bool];
    /// 1 if no contribution is zero, else 0.
    Land = "land", on [Signed, Unsigned, Bool];
    /// 1 if a contribution is not zero, else 0.
    Lor = "lor", on [Signed, Unsigned, Bool];
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

    /// Refuses a dtype on which the op is not defined.
    ///
    /// # Errors
    /// [`Error::Undefined`] lists the dtypes of the op and the ops of the dtype.
    pub fn check(self, dtype: DType) -> Result<()> {
        if self.is_defined_on(dtype) {
            return Ok(());
        }
        let dtypes: Vec<&str> = DType::ALL.iter().filter(|d| self.is_defined_on(**d)).map(|d| d.name()).collect();
        let ops: Vec<&str> = Op::ALL.iter().filter(|o| o.is_defined_on(dtype)).map(|o| o.name()).collect();
        let (defined, ops) = (dtypes.join(", "), ops.join(", "));
        Err(Error::Undefined { op: self.name(), dtype: dtype.name(), defined, ops })
    }
}

impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

//! The element types. **A dtype is one row of the table below**; every list of dtypes in the project (tests, CLI, docs,
//! kernels) is generated from it.

/// What arithmetic a dtype has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Wrapping two's complement integers.
    Integer,
    /// IEEE 754 numbers, and formats that accumulate in them.
    Float,
}

macro_rules! dtypes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $bytes:literal bytes, $kind:ident, accumulates in $acc:ident;)*) => {
        /// An element type.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DType { $($(#[$doc])* $variant,)* }

        impl DType {
            /// Every dtype, in table order.
            pub const ALL: &'static [DType] = &[$(DType::$variant,)*];

            /// Returns the name that numpy, torch or ml_dtypes gives it.
            pub const fn name(self) -> &'static str {
                match self { $(DType::$variant => $name,)* }
            }

            /// Returns the width of one element in bytes.
            pub const fn bytes(self) -> usize {
                match self { $(DType::$variant => $bytes,)* }
            }

            /// Returns what arithmetic it has.
            pub const fn kind(self) -> Kind {
                match self { $(DType::$variant => Kind::$kind,)* }
            }

            /// Returns the dtype in which a step accumulates before it rounds once.
            pub const fn accumulator(self) -> DType {
                match self { $(DType::$variant => DType::$acc,)* }
            }
        }
    };
}

dtypes! {
    /// IEEE binary32.
    F32 = "float32", 4 bytes, Float, accumulates in F32;
    /// IEEE binary64.
    F64 = "float64", 8 bytes, Float, accumulates in F64;
    /// 32-bit integer, wrapping.
    I32 = "int32", 4 bytes, Integer, accumulates in I32;
    /// bfloat16: the upper half of binary32.
    BF16 = "bfloat16", 2 bytes, Float, accumulates in F32;
}

impl DType {
    /// Finds a dtype by its name.
    pub fn named(name: &str) -> Option<DType> {
        Self::ALL.iter().copied().find(|d| d.name() == name)
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

//! The element types. **A dtype is one row of the table below**; every list of dtypes in the project (tests, CLI, docs,
//! kernels) is generated from it.

crate::names! {
    /// The kind of arithmetic of a dtype. The table of ops lists the kinds on which each op is defined.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Kind {
        /// Floats of IEEE 754, and formats that accumulate in them.
        Float = "float",
        /// Floats of eight bits. They support addition and comparison only, because they are too coarse for more.
        Float8 = "float8",
        /// Signed integers in two's complement, which wrap.
        Signed = "signed integer",
        /// Unsigned integers, which wrap.
        Unsigned = "unsigned integer",
        /// Truth values of one byte, true unless it is zero.
        Bool = "bool",
        /// Complex numbers of two floats, the real part first.
        Complex = "complex",
    }
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

            /// Returns the name of the dtype in numpy, torch or ml_dtypes.
            pub const fn name(self) -> &'static str {
                match self { $(DType::$variant => $name,)* }
            }

            /// Returns the width of one element in bytes.
            pub const fn bytes(self) -> usize {
                match self { $(DType::$variant => $bytes,)* }
            }

            /// Returns the kind of arithmetic of the dtype.
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
    /// IEEE binary16.
    F16 = "float16", 2 bytes, Float, accumulates in F32;
    /// bfloat16: the upper half of binary32.
    BF16 = "bfloat16", 2 bytes, Float, accumulates in F32;
    /// 8-bit float with 4 bits of exponent, 3 bits of mantissa, no infinity and one NaN.
    F8E4M3 = "float8_e4m3fn", 1 bytes, Float8, accumulates in F32;
    /// 8-bit float: the upper half of binary16.
    F8E5M2 = "float8_e5m2", 1 bytes, Float8, accumulates in F32;
    /// 8-bit signed integer.
    I8 = "int8", 1 bytes, Signed, accumulates in I8;
    /// 16-bit signed integer.
    I16 = "int16", 2 bytes, Signed, accumulates in I16;
    /// 32-bit signed integer.
    I32 = "int32", 4 bytes, Signed, accumulates in I32;
    /// 64-bit signed integer.
    I64 = "int64", 8 bytes, Signed, accumulates in I64;
    /// 8-bit unsigned integer.
    U8 = "uint8", 1 bytes, Unsigned, accumulates in U8;
    /// 16-bit unsigned integer.
    U16 = "uint16", 2 bytes, Unsigned, accumulates in U16;
    /// 32-bit unsigned integer.
    U32 = "uint32", 4 bytes, Unsigned, accumulates in U32;
    /// 64-bit unsigned integer.
    U64 = "uint64", 8 bytes, Unsigned, accumulates in U64;
    /// Truth value in one byte.
    Bool = "bool", 1 bytes, Bool, accumulates in Bool;
    /// Complex number of two binary32 floats.
    C64 = "complex64", 8 bytes, Complex, accumulates in C64;
    /// Complex number of two binary64 floats.
    C128 = "complex128", 16 bytes, Complex, accumulates in C128;
}

impl DType {
    /// Finds a dtype by its name.
    pub fn named(name: &str) -> Option<DType> {
        Self::ALL.iter().copied().find(|d| d.name() == name)
    }

    /// Returns the least and the greatest value of an integer dtype.
    pub const fn limits(self) -> Option<(i128, i128)> {
        let bits = 8 * self.bytes();
        match self.kind() {
            Kind::Signed => Some((-(1 << (bits - 1)), (1 << (bits - 1)) - 1)),
            Kind::Unsigned => Some((0, (1 << bits) - 1)),
            _ => None,
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

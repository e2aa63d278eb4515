//! Dtypes in DLPack and the buffer protocol: a family and a width, as (bfloat, 16). Together they are the name in the core's table.
//! A new row there needs no change here, unless its family is new.

use nvcoll_core::dtype::DType;

/// A family of dtypes, by their name without the width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Family {
    name: &'static str,
    /// Whether the names of its dtypes end with their bits; if not, the family is one dtype.
    has_widths: bool,
}

impl Family {
    /// Returns the family of a DLPack type code. Cited: `DLDataTypeCode` of dlpack.h 1.1.
    pub(super) fn of_dlpack(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::with_widths("int"),
            1 => Self::with_widths("uint"),
            2 => Self::with_widths("float"),
            4 => Self::with_widths("bfloat"),
            5 => Self::with_widths("complex"),
            6 => Self::of_one("bool"),
            7 => Self::of_one("float8_e3m4"),
            8 => Self::of_one("float8_e4m3"),
            9 => Self::of_one("float8_e4m3b11fnuz"),
            10 => Self::of_one("float8_e4m3fn"),
            11 => Self::of_one("float8_e4m3fnuz"),
            12 => Self::of_one("float8_e5m2"),
            13 => Self::of_one("float8_e5m2fnuz"),
            14 => Self::of_one("float8_e8m0fnu"),
            15 => Self::of_one("float6_e2m3fn"),
            16 => Self::of_one("float6_e3m2fn"),
            17 => Self::of_one("float4_e2m1fn"),
            _ => return None,
        })
    }

    /// Returns the family of a format of Python's `struct` module, `Z` before a float being numpy's for complex; the width is
    /// the buffer's to say, because that of `l` depends on the platform. Cited: PEP 3118; `F` and `D` from Python 3.14 on.
    pub(super) fn of_format(format: &[u8]) -> Option<Self> {
        Some(match format {
            b"b" | b"h" | b"i" | b"l" | b"q" | b"n" => Self::with_widths("int"),
            b"B" | b"H" | b"I" | b"L" | b"Q" | b"N" => Self::with_widths("uint"),
            b"e" | b"f" | b"d" => Self::with_widths("float"),
            b"Zf" | b"Zd" | b"F" | b"D" => Self::with_widths("complex"),
            b"?" => Self::of_one("bool"),
            _ => return None,
        })
    }

    fn with_widths(name: &'static str) -> Self {
        Self { name, has_widths: true }
    }

    fn of_one(name: &'static str) -> Self {
        Self { name, has_widths: false }
    }

    /// Finds the dtype of this family with elements of `bits` bits.
    pub(super) fn dtype(self, bits: usize) -> Option<DType> {
        DType::named(&self.spell(bits)).filter(|dtype| 8 * dtype.bytes() == bits)
    }

    /// Returns the name of the dtype in numpy, whether or not it is in the table.
    pub(super) fn spell(self, bits: usize) -> String {
        match self.has_widths {
            true => format!("{}{bits}", self.name),
            false => self.name.to_owned(),
        }
    }
}

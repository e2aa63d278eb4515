//! How DLPack and the buffer protocol spell a dtype: a family and a width, (bfloat, 16). Together they are the name that the
//! core's table holds, so a new row there needs nothing here unless its family is new.

use nvcoll_core::dtype::DType;

/// A family of dtypes, by their name without the width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Family(&'static str);

impl Family {
    /// Returns the family of a DLPack type code. Cited: `DLDataTypeCode` of dlpack.h.
    pub(super) fn of_dlpack(code: u8) -> Option<Self> {
        let name = match code {
            0 => "int",
            1 => "uint",
            2 => "float",
            4 => "bfloat",
            5 => "complex",
            6 => "bool",
            _ => return None,
        };
        Some(Self(name))
    }

    /// Returns the family of a format character of Python's `struct` module; the width is the buffer's to say, because that
    /// of `l` depends on the platform.
    pub(super) fn of_format(character: u8) -> Option<Self> {
        let name = match character {
            b'b' | b'h' | b'i' | b'l' | b'q' | b'n' => "int",
            b'B' | b'H' | b'I' | b'L' | b'Q' | b'N' => "uint",
            b'e' | b'f' | b'd' => "float",
            b'?' => "bool",
            _ => return None,
        };
        Some(Self(name))
    }

    /// Finds the dtype of this family with elements of `bits` bits.
    pub(super) fn dtype(self, bits: usize) -> Option<DType> {
        DType::ALL.iter().copied().find(|dtype| dtype.name() == self.spell(bits) && 8 * dtype.bytes() == bits)
    }

    /// Returns the name that numpy would give it, in the table or not.
    pub(super) fn spell(self, bits: usize) -> String {
        match self.0 {
            "bool" => "bool".to_owned(),
            family => format!("{family}{bits}"),
        }
    }
}

//! NCCL's reduce ops: the five built-in ones, and sums that scale first.

use std::ffi::c_int;
use std::sync::Mutex;

use super::numbers::{NcclDtype, NcclFold};
use super::{answer, COMMUNICATORS};
use crate::arguments::List;
use crate::entry_points::functions;
use crate::lock::lock;
use crate::nccl::data::read;
use crate::{set, Failure, Handle, Out};

/// Number of built-in ops: `ncclNumOps`. Ops that a program makes count from here.
const BUILT_IN: c_int = 5;

/// The scalar of an op that a program made.
#[derive(Clone, Copy)]
enum Scalar {
    /// Its bits, read when the op was made.
    Bits(u64),
    /// It lies in device memory, and is read when the op is used.
    At(usize, NcclDtype),
    /// The op was destroyed.
    Gone,
}

static MADE: Mutex<Vec<Scalar>> = Mutex::new(Vec::new());

/// What `op` does to equal numbers; none if there is no such op.
pub(crate) fn fold(op: c_int) -> Option<NcclFold> {
    match op {
        0 => Some(NcclFold::Sum),
        1 => Some(NcclFold::Product),
        2..BUILT_IN => Some(NcclFold::Same),
        _ => {
            let made = lock(&MADE);
            match *made.get(usize::try_from(op.checked_sub(BUILT_IN)?).ok()?)? {
                Scalar::Bits(bits) => Some(NcclFold::ScaledSum(bits)),
                Scalar::At(at, dtype) => Some(NcclFold::ScaledSum(read(at, dtype.size())?)),
                Scalar::Gone => None,
            }
        }
    }
}

/// Reads a scalar that lies in the host's memory.
fn immediate(scalar: List<u8>, dtype: NcclDtype) -> Result<Scalar, Failure> {
    let mut bytes = [0; 8];
    bytes[..dtype.size()].copy_from_slice(&scalar.read(dtype.size())?);
    Ok(Scalar::Bits(u64::from_le_bytes(bytes)))
}

functions! { answer:
    // The op "multiply by a scalar, then sum".
    ncclRedOpCreatePreMulSum(op: Out<c_int>, scalar: List<u8>, dtype: c_int, residence: c_int, comm: Handle) => {
        COMMUNICATORS.find(comm)?;
        let dtype = NcclDtype::of_nccl(dtype).ok_or(Failure::INVALID_VALUE)?;
        let kept = match residence {
            0 if scalar.is_null() => return Err(Failure::INVALID_VALUE),
            0 => Scalar::At(scalar.address(), dtype),
            _ => immediate(scalar, dtype)?,
        };
        let mut made = lock(&MADE);
        made.push(kept);
        set(op, BUILT_IN + made.len() as c_int - 1)
    };
    ncclRedOpDestroy(op: c_int) => {
        let index = op.checked_sub(BUILT_IN).and_then(|index| usize::try_from(index).ok());
        let mut made = lock(&MADE);
        let found = index.and_then(|index| made.get_mut(index)).filter(|scalar| !matches!(scalar, Scalar::Gone));
        found.map(|scalar| *scalar = Scalar::Gone).ok_or(Failure::INVALID_VALUE)
    };
}

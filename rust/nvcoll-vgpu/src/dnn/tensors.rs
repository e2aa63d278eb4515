//! Descriptors of tensors and filters of cuDNN's older interface: type, dimensions and strides.
use std::ffi::c_int;
use std::sync::Mutex;

use super::{new, put, status, Answer, BAD_PARAM};
use crate::handles::Handles;
use crate::log::lock;
use crate::{Handle, Out};

/// Most dimensions of a tensor: `CUDNN_DIM_MAX`.
const MOST: usize = 8;

/// A tensor or filter.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Tensor {
    /// `cudnnDataType_t`.
    pub(super) dtype: c_int,
    /// `cudnnTensorFormat_t`, of a filter.
    format: c_int,
    pub(super) dimensions: Vec<c_int>,
    pub(super) strides: Vec<c_int>,
}

static TENSORS: Handles<Mutex<Tensor>> = Handles::new();

/// Type and dimensions of a descriptor.
pub(super) fn tensor_of(handle: Handle) -> Result<(i64, Tensor), c_int> {
    let tensor = TENSORS.find(handle).ok_or(BAD_PARAM)?;
    let tensor = lock(&tensor).clone();
    Ok((tensor.dtype.into(), tensor))
}

/// Dimensions of a descriptor.
pub(super) fn dimensions_of(handle: Handle) -> Result<Vec<i64>, c_int> {
    Ok(tensor_of(handle)?.1.dimensions.iter().map(|size| i64::from(*size)).collect())
}

/// Describes a contiguous tensor.
pub(super) fn describe(handle: Handle, dtype: c_int, dimensions: &[c_int]) -> Answer {
    let mut strides = vec![1; dimensions.len()];
    for index in (1..dimensions.len()).rev() {
        strides[index - 1] = c_int::wrapping_mul(strides[index], dimensions[index]);
    }
    let kept = Tensor { dtype, format: 0, dimensions: dimensions.to_vec(), strides };
    TENSORS.find(handle).map(|tensor| *lock(&tensor) = kept).ok_or(BAD_PARAM)
}

/// A list of `count` numbers that a caller passed.
fn list(first: Option<&c_int>, count: c_int) -> Result<Vec<c_int>, c_int> {
    let count = usize::try_from(count).ok().filter(|count| *count <= MOST).ok_or(BAD_PARAM)?;
    let first = first.ok_or(BAD_PARAM)?;
    // SAFETY: the list has `count` numbers, by cuDNN's interface.
    Ok(unsafe { std::slice::from_raw_parts(first, count) }.to_vec())
}

/// Writes as many numbers as there is room for.
fn hand_out(numbers: &[c_int], out: Out<'_, c_int>, room: c_int) -> Answer {
    let first = out.ok_or(BAD_PARAM)?.as_mut_ptr();
    let count = numbers.len().min(usize::try_from(room).unwrap_or(0));
    // SAFETY: the caller has room for `room` numbers, by cuDNN's interface.
    unsafe { numbers.as_ptr().copy_to_nonoverlapping(first, count) };
    Ok(())
}

/// Descriptors that hold a tensor: how they are made and forgotten.
macro_rules! descriptors {
    ($($create:ident $destroy:ident;)*) => { $(
        /// Makes a descriptor.
        #[no_mangle]
        pub(super) extern "C" fn $create(out: Out<'_, Handle>) -> c_int {
            status(new(out, &TENSORS, Mutex::default()))
        }
        /// Forgets a descriptor.
        #[no_mangle]
        pub(super) extern "C" fn $destroy(descriptor: Handle) -> c_int {
            status(TENSORS.remove(descriptor).map(|_| ()).ok_or(BAD_PARAM))
        }
    )* };
}
descriptors! {
    cudnnCreateTensorDescriptor cudnnDestroyTensorDescriptor;
    cudnnCreateFilterDescriptor cudnnDestroyFilterDescriptor;
}

/// Describes a tensor.
#[no_mangle]
pub(super) extern "C" fn cudnnSetTensorNdDescriptor(
    descriptor: Handle,
    dtype: c_int,
    count: c_int,
    dimensions: Option<&c_int>,
    strides: Option<&c_int>,
) -> c_int {
    let run = || {
        let kept = Tensor { dtype, format: 0, dimensions: list(dimensions, count)?, strides: list(strides, count)? };
        TENSORS.find(descriptor).map(|tensor| *lock(&tensor) = kept).ok_or(BAD_PARAM)
    };
    status(run())
}

/// Describes a filter.
#[no_mangle]
pub(super) extern "C" fn cudnnSetFilterNdDescriptor(
    descriptor: Handle,
    dtype: c_int,
    format: c_int,
    count: c_int,
    dimensions: Option<&c_int>,
) -> c_int {
    let run = || {
        let kept = Tensor { dtype, format, dimensions: list(dimensions, count)?, strides: Vec::new() };
        TENSORS.find(descriptor).map(|tensor| *lock(&tensor) = kept).ok_or(BAD_PARAM)
    };
    status(run())
}

/// Reads a tensor.
#[no_mangle]
pub(super) extern "C" fn cudnnGetTensorNdDescriptor(
    descriptor: Handle,
    room: c_int,
    dtype: Out<'_, c_int>,
    count: Out<'_, c_int>,
    dimensions: Out<'_, c_int>,
    strides: Out<'_, c_int>,
) -> c_int {
    let run = || {
        let (_, tensor) = tensor_of(descriptor)?;
        put(dtype, tensor.dtype)?;
        put(count, tensor.dimensions.len() as c_int)?;
        hand_out(&tensor.dimensions, dimensions, room)?;
        hand_out(&tensor.strides, strides, room)
    };
    status(run())
}

/// Reads a filter.
#[no_mangle]
pub(super) extern "C" fn cudnnGetFilterNdDescriptor(
    descriptor: Handle,
    room: c_int,
    dtype: Out<'_, c_int>,
    format: Out<'_, c_int>,
    count: Out<'_, c_int>,
    dimensions: Out<'_, c_int>,
) -> c_int {
    let run = || {
        let (_, filter) = tensor_of(descriptor)?;
        put(dtype, filter.dtype)?;
        put(format, filter.format)?;
        put(count, filter.dimensions.len() as c_int)?;
        hand_out(&filter.dimensions, dimensions, room)
    };
    status(run())
}

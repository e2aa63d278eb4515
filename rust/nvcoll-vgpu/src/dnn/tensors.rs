//! Descriptors of tensors and filters of cuDNN's older interface: type, dimensions and strides.
use std::ffi::c_int;

use super::answer;
use crate::arguments::{List, Room};
use crate::entry_points::functions;
use crate::handles::Handles;
use crate::{set, Answer, Failure, Handle, Out};

/// Most dimensions of a tensor: `CUDNN_DIM_MAX`.
const MOST: usize = 8;

/// A tensor or filter.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct TensorDescriptor {
    /// `cudnnDataType_t`.
    pub(super) dtype: c_int,
    /// `cudnnTensorFormat_t`, of a filter.
    format: c_int,
    dimensions: Vec<c_int>,
    strides: Vec<c_int>,
}

static TENSORS: Handles<TensorDescriptor> = Handles::new();

/// What a descriptor says.
pub(super) fn tensor_of(handle: Handle) -> Result<TensorDescriptor, Failure> {
    TENSORS.find(handle)
}

/// Dimensions of a descriptor.
pub(super) fn dimensions_of(handle: Handle) -> Result<Vec<i64>, Failure> {
    Ok(tensor_of(handle)?.dimensions.iter().map(|size| i64::from(*size)).collect())
}

/// Strides of a descriptor.
pub(super) fn strides_of(handle: Handle) -> Result<Vec<i64>, Failure> {
    Ok(tensor_of(handle)?.strides.iter().map(|stride| i64::from(*stride)).collect())
}

/// Describes a contiguous tensor.
pub(super) fn describe(handle: Handle, dtype: c_int, dimensions: &[c_int]) -> Answer {
    let mut strides = vec![1; dimensions.len()];
    for index in (1..dimensions.len()).rev() {
        strides[index - 1] = c_int::wrapping_mul(strides[index], dimensions[index]);
    }
    TENSORS.change(handle, |tensor| {
        *tensor = TensorDescriptor { dtype, format: 0, dimensions: dimensions.to_vec(), strides }
    })
}

/// A list of `count` numbers that a caller passed.
fn list(numbers: List<c_int>, count: c_int) -> Result<Vec<c_int>, Failure> {
    let count = usize::try_from(count).ok().filter(|count| *count <= MOST);
    numbers.read(count.ok_or(Failure::INVALID_VALUE)?)
}

/// Writes numbers until the room is full.
fn hand_out(numbers: &[c_int], out: Room<c_int>, room: c_int) -> Answer {
    out.write(&numbers[..numbers.len().min(usize::try_from(room).unwrap_or(0))])
}

functions! { answer:
    cudnnCreateTensorDescriptor cudnnCreateFilterDescriptor(out: Out<Handle>) => TENSORS.make(out, TensorDescriptor::default());
    cudnnDestroyTensorDescriptor cudnnDestroyFilterDescriptor(descriptor: Handle) => TENSORS.remove(descriptor);
    cudnnSetTensorNdDescriptor(descriptor: Handle, dtype: c_int, count: c_int, dimensions: List<c_int>,
        strides: List<c_int>) => {
        let kept = TensorDescriptor { dtype, format: 0, dimensions: list(dimensions, count)?, strides: list(strides, count)? };
        TENSORS.change(descriptor, |tensor| *tensor = kept)
    };
    cudnnSetFilterNdDescriptor(descriptor: Handle, dtype: c_int, format: c_int, count: c_int, dimensions: List<c_int>) => {
        let kept = TensorDescriptor { dtype, format, dimensions: list(dimensions, count)?, strides: Vec::new() };
        TENSORS.change(descriptor, |tensor| *tensor = kept)
    };
    cudnnGetTensorNdDescriptor(descriptor: Handle, room: c_int, dtype: Out<c_int>, count: Out<c_int>, dimensions: Room<c_int>,
        strides: Room<c_int>) => {
        let tensor = tensor_of(descriptor)?;
        set(dtype, tensor.dtype)?;
        set(count, tensor.dimensions.len() as c_int)?;
        hand_out(&tensor.dimensions, dimensions, room)?;
        hand_out(&tensor.strides, strides, room)
    };
    cudnnGetFilterNdDescriptor(descriptor: Handle, room: c_int, dtype: Out<c_int>, format: Out<c_int>, count: Out<c_int>,
        dimensions: Room<c_int>) => {
        let filter = tensor_of(descriptor)?;
        set(dtype, filter.dtype)?;
        set(format, filter.format)?;
        set(count, filter.dimensions.len() as c_int)?;
        hand_out(&filter.dimensions, dimensions, room)
    };
}

//! A convolution as a matrix product of the same FLOPs, and the calls of the older interface.
//!
//! ```text
//! x (N, C, H, W) * w (K, C / g, R, S) = y (N, K, P, Q)          g groups
//! forward          m = N P Q   n = K / g         k = C R S / g
//! backward data    m = N P Q   n = C / g         k = K R S / g
//! backward filter  m = K / g   n = C R S / g     k = N P Q       batch = g for all: 2 m n k g operations
//! ```
//!
//! That is the implicit product that the fast kernels compute (Chetlur et al., "cuDNN: efficient primitives for deep
//! learning", 2014); algorithms that do fewer operations (Winograd, FFT) are not modelled. A is transposed if the channels
//! of images come first. Single precision counts as TF32, which cuDNN may use unless a program forbids it.
use std::ffi::c_int;

use super::tensors::{dimensions_of, strides_of, tensor_of};
use super::{answer, data_type_of, LIBRARIES};
use crate::blas::{MatrixProduct, COMPUTE_32F, COMPUTE_64F, COMPUTE_TF32};
use crate::entry_points::{functions, named};
use crate::{set, Answer, Failure, Handle, Out};

/// Which product of a convolution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ConvolutionPass {
    Forward,
    BackwardData,
    BackwardFilter,
}

/// The product of a convolution of a `cudnnDataType_t` and the strides of x; none if the dimensions are no convolution's.
pub(super) fn convolution(
    pass: ConvolutionPass,
    dtype: i64,
    strides: &[i64],
    [x, w, y]: [&[i64]; 3],
) -> Option<MatrixProduct> {
    let product = |sizes: &[i64]| sizes.iter().try_fold(1i64, |all, size| all.checked_mul((*size).max(0)));
    let ([_, channels, ..], [outputs, per_group, ..], [images, _, pixels @ ..]) = (x, w, y) else { return None };
    let groups = channels.checked_div(*per_group)?.max(1);
    let (pixels, outputs, filter) = (product(pixels)?.checked_mul(*images)?, outputs / groups, product(&w[1..])?);
    let points = filter / (*per_group).max(1);
    let is_first = strides.get(1).is_some_and(|stride| *stride != 1);
    let (name, m, n, k) = match pass {
        ConvolutionPass::Forward => (named!("cudnnConvolutionForward"), pixels, outputs, filter),
        ConvolutionPass::BackwardData => {
            (named!("cudnnConvolutionBackwardData"), pixels, *per_group, outputs.checked_mul(points)?)
        }
        ConvolutionPass::BackwardFilter => (named!("cudnnConvolutionBackwardFilter"), outputs, filter, pixels),
    };
    let dtype = data_type_of(dtype);
    let compute = match dtype {
        0 => COMPUTE_TF32,
        1 => COMPUTE_64F,
        _ => COMPUTE_32F,
    };
    let operations = [is_first.into(), 0];
    Some(MatrixProduct { name, sizes: [m, n, k, groups], operations, types: [dtype; 2], epilogue: 0, compute })
}

/// Logs a convolution of descriptors of the older interface.
fn log(handle: Handle, pass: ConvolutionPass, x: Handle, w: Handle, y: Handle) -> Answer {
    let sizes = [&dimensions_of(x)?[..], &dimensions_of(w)?, &dimensions_of(y)?];
    convolution(pass, tensor_of(x)?.dtype.into(), &strides_of(x)?, sizes)
        .ok_or(Failure::INVALID_VALUE)?
        .log(LIBRARIES.find(handle)?)
}

/// An algorithm of a convolution: `cudnnConvolutionFwdAlgoPerf_t` and the same types of the gradients.
#[repr(C)]
pub(crate) struct ConvolutionAlgorithm {
    number: c_int,
    status: c_int,
    milliseconds: f32,
    memory_bytes: usize,
    deterministic: c_int,
    math: c_int,
    reserved: [c_int; 3],
}

const OFFERED: ConvolutionAlgorithm = ConvolutionAlgorithm {
    number: 1,
    status: 0,
    milliseconds: 0.0,
    memory_bytes: 0,
    deterministic: 1,
    math: 1,
    reserved: [0; 3],
};

fn offer(asked: c_int, found: Out<'_, c_int>, results: Out<'_, ConvolutionAlgorithm>) -> Answer {
    set(results.filter(|_| asked > 0), OFFERED)?;
    set(found, 1)
}

functions! { answer:
    cudnnConvolutionForward[handle alpha x x_data w w_data convolution algorithm workspace bytes beta y]() =>
        log(handle, ConvolutionPass::Forward, x, w, y);
    // Bias and activation are part of it.
    cudnnConvolutionBiasActivationForward[handle alpha x x_data w w_data convolution algorithm workspace bytes beta z z_data bias
        bias_data activation y]() => log(handle, ConvolutionPass::Forward, x, w, y);
    cudnnConvolutionBackwardData[handle alpha w w_data dy dy_data convolution algorithm workspace bytes beta dx]() =>
        log(handle, ConvolutionPass::BackwardData, dx, w, dy);
    cudnnConvolutionBackwardFilter[handle alpha x x_data dy dy_data convolution algorithm workspace bytes beta dw]() =>
        log(handle, ConvolutionPass::BackwardFilter, x, dw, dy);
    // One algorithm, and no workspace.
    cudnnGetConvolutionForwardAlgorithm_v7 cudnnGetConvolutionBackwardDataAlgorithm_v7
        cudnnGetConvolutionBackwardFilterAlgorithm_v7[handle a b convolution c](asked: c_int, found: Out<c_int>, results: Out<ConvolutionAlgorithm>) => offer(asked, found, results);
    cudnnFindConvolutionForwardAlgorithmEx cudnnFindConvolutionBackwardDataAlgorithmEx
        cudnnFindConvolutionBackwardFilterAlgorithmEx[handle a a_data b b_data convolution c c_data](asked: c_int, found: Out<c_int>, results: Out<ConvolutionAlgorithm>) =>
        offer(asked, found, results);
    cudnnGetConvolutionForwardWorkspaceSize cudnnGetConvolutionBackwardDataWorkspaceSize
        cudnnGetConvolutionBackwardFilterWorkspaceSize[handle a b convolution c algorithm](out: Out<usize>) => set(out, 0);
}

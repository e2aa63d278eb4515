//! A convolution as the product of matrices that has its operations, and the calls of the older interface.
//!
//! ```text
//! x (N, C, H, W) * w (K, C / g, R, S) = y (N, K, P, Q)          g groups
//! forward          m = N P Q   n = K / g         k = C R S / g
//! backward data    m = N P Q   n = C R S / g     k = K / g
//! backward filter  m = K / g   n = C R S / g     k = N P Q       batch = g for all: 2 m n k g operations
//! ```
//!
//! That is the implicit product that the fast kernels compute (Chetlur et al., "cuDNN: efficient primitives for deep
//! learning", 2014); algorithms that do fewer operations (Winograd, FFT) are not told apart. Single precision counts as TF32,
//! which cuDNN may use unless a program forbids it.
use std::ffi::c_int;
use std::sync::Mutex;

use super::tensors::{dimensions_of, tensor_of};
use super::{cuda_type, new, put, status, stream_of, Answer, Pointer, BAD_PARAM};
use crate::blas::Product;
use crate::handles::{named, Handles};
use crate::{Handle, Out};

/// Compute types: `cublasComputeType_t`.
const COMPUTE_32F: c_int = 68;
const COMPUTE_64F: c_int = 70;
const COMPUTE_TF32: c_int = 77;

/// Which product of a convolution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pass {
    Forward,
    BackwardData,
    BackwardFilter,
}

/// A convolution with its sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Convolution {
    pass: Pass,
    /// `cudaDataType_t`.
    dtype: c_int,
    /// Elements of y per channel: N P Q.
    pixels: i64,
    /// Output channels of a group.
    outputs: i64,
    /// Elements of a filter of one output channel: C R S / g.
    filter: i64,
    groups: i64,
}

impl Convolution {
    /// A convolution of a `cudnnDataType_t`; none if the dimensions are not those of one.
    pub(super) fn new(pass: Pass, dtype: i64, x: &[i64], w: &[i64], y: &[i64]) -> Option<Self> {
        let product = |sizes: &[i64]| sizes.iter().try_fold(1i64, |all, size| all.checked_mul((*size).max(0)));
        let ([_, channels, ..], [outputs, per_group, ..], [images, _, pixels @ ..]) = (x, w, y) else { return None };
        let groups = channels.checked_div(*per_group)?.max(1);
        Some(Self {
            pass,
            dtype: cuda_type(dtype),
            pixels: product(pixels)?.checked_mul(*images)?,
            outputs: outputs / groups,
            filter: product(&w[1..])?,
            groups,
        })
    }

    /// Logs the product.
    pub(super) fn log(&self, stream: Handle) -> Answer {
        let (name, m, n, k) = match self.pass {
            Pass::Forward => (named!("cudnnConvolutionForward"), self.pixels, self.outputs, self.filter),
            Pass::BackwardData => (named!("cudnnConvolutionBackwardData"), self.pixels, self.filter, self.outputs),
            Pass::BackwardFilter => (named!("cudnnConvolutionBackwardFilter"), self.outputs, self.filter, self.pixels),
        };
        let compute = match self.dtype {
            0 => COMPUTE_TF32,
            1 => COMPUTE_64F,
            _ => COMPUTE_32F,
        };
        let batch = self.groups;
        let product = Product {
            name,
            m,
            n,
            k,
            batch,
            operations: [0; 2],
            a_type: self.dtype,
            c_type: self.dtype,
            epilogue: 0,
            compute,
        };
        match product.log(stream) {
            0 => Ok(()),
            _ => Err(BAD_PARAM),
        }
    }
}

/// Descriptors of convolutions of the older interface: padding and strides do not change the operations, so none is kept.
static CONVOLUTIONS: Handles<Mutex<()>> = Handles::new();

/// Makes a descriptor of a convolution.
#[no_mangle]
extern "C" fn cudnnCreateConvolutionDescriptor(out: Out<'_, Handle>) -> c_int {
    status(new(out, &CONVOLUTIONS, Mutex::new(())))
}

/// Entry points that take a descriptor of a convolution first.
macro_rules! descriptors {
    ($($name:ident $find:ident;)*) => { $(
        /// Accepts a descriptor of a convolution, or forgets it.
        #[no_mangle]
        extern "C" fn $name(descriptor: Handle) -> c_int {
            status(CONVOLUTIONS.$find(descriptor).map(|_| ()).ok_or(BAD_PARAM))
        }
    )* };
}
descriptors! {
    cudnnDestroyConvolutionDescriptor remove;
    cudnnSetConvolutionNdDescriptor find;
    cudnnSetConvolutionGroupCount find;
    cudnnSetConvolutionMathType find;
}

/// Logs a convolution of descriptors of the older interface.
fn log(handle: Handle, pass: Pass, x: Handle, w: Handle, y: Handle) -> Answer {
    let dtype = tensor_of(x)?.0;
    let dimensions = (dimensions_of(x)?, dimensions_of(w)?, dimensions_of(y)?);
    let convolution = Convolution::new(pass, dtype, &dimensions.0, &dimensions.1, &dimensions.2).ok_or(BAD_PARAM)?;
    convolution.log(stream_of(handle)?)
}

/// Logs a convolution.
#[no_mangle]
extern "C" fn cudnnConvolutionForward(
    handle: Handle,
    _alpha: Pointer,
    x: Handle,
    _x_data: Pointer,
    w: Handle,
    _w_data: Pointer,
    _convolution: Handle,
    _algorithm: c_int,
    _workspace: Pointer,
    _bytes: usize,
    _beta: Pointer,
    y: Handle,
) -> c_int {
    status(log(handle, Pass::Forward, x, w, y))
}

/// Logs a convolution; bias and activation are part of it.
#[no_mangle]
extern "C" fn cudnnConvolutionBiasActivationForward(
    handle: Handle,
    _alpha: Pointer,
    x: Handle,
    _x_data: Pointer,
    w: Handle,
    _w_data: Pointer,
    _convolution: Handle,
    _algorithm: c_int,
    _workspace: Pointer,
    _bytes: usize,
    _beta: Pointer,
    _z: Handle,
    _z_data: Pointer,
    _bias: Handle,
    _bias_data: Pointer,
    _activation: Handle,
    y: Handle,
) -> c_int {
    status(log(handle, Pass::Forward, x, w, y))
}

/// Logs the gradient of a convolution's input.
#[no_mangle]
extern "C" fn cudnnConvolutionBackwardData(
    handle: Handle,
    _alpha: Pointer,
    w: Handle,
    _w_data: Pointer,
    dy: Handle,
    _dy_data: Pointer,
    _convolution: Handle,
    _algorithm: c_int,
    _workspace: Pointer,
    _bytes: usize,
    _beta: Pointer,
    dx: Handle,
) -> c_int {
    status(log(handle, Pass::BackwardData, dx, w, dy))
}

/// Logs the gradient of a convolution's filter.
#[no_mangle]
extern "C" fn cudnnConvolutionBackwardFilter(
    handle: Handle,
    _alpha: Pointer,
    x: Handle,
    _x_data: Pointer,
    dy: Handle,
    _dy_data: Pointer,
    _convolution: Handle,
    _algorithm: c_int,
    _workspace: Pointer,
    _bytes: usize,
    _beta: Pointer,
    dw: Handle,
) -> c_int {
    status(log(handle, Pass::BackwardFilter, x, dw, dy))
}

/// An algorithm of a convolution: `cudnnConvolutionFwdAlgoPerf_t` and those of the gradients.
#[repr(C)]
pub(super) struct Algorithm {
    number: c_int,
    status: c_int,
    milliseconds: f32,
    memory_bytes: usize,
    deterministic: c_int,
    math: c_int,
    reserved: [c_int; 3],
}

const OFFERED: Algorithm =
    Algorithm { number: 1, status: 0, milliseconds: 0.0, memory_bytes: 0, deterministic: 1, math: 1, reserved: [0; 3] };

/// Searches for algorithms: their arguments before the count that is asked for.
macro_rules! searches {
    ($($name:ident($($arg:ident)*);)*) => { $(
        /// Offers one algorithm.
        #[no_mangle]
        extern "C" fn $name(
            $($arg: usize,)* asked: c_int, found: Out<'_, c_int>, results: Option<&mut std::mem::MaybeUninit<Algorithm>>,
        ) -> c_int {
            $(let _ = $arg;)*
            if asked < 1 || found.is_none() {
                return BAD_PARAM;
            }
            status(put(results, OFFERED).and_then(|()| put(found, 1)))
        }
    )* };
}
searches! {
    cudnnGetConvolutionForwardAlgorithm_v7(handle x w convolution y);
    cudnnGetConvolutionBackwardDataAlgorithm_v7(handle w dy convolution dx);
    cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle x dy convolution dw);
    cudnnFindConvolutionForwardAlgorithmEx(handle x x_data w w_data convolution y y_data);
    cudnnFindConvolutionBackwardDataAlgorithmEx(handle w w_data dy dy_data convolution dx dx_data);
    cudnnFindConvolutionBackwardFilterAlgorithmEx(handle x x_data dy dy_data convolution dw dw_data);
}

/// Sizes of workspaces of the older interface.
macro_rules! workspaces {
    ($($name:ident)*) => { $(
        /// Writes 0: no workspace.
        #[no_mangle]
        extern "C" fn $name(
            _handle: Handle, _a: Handle, _b: Handle, _convolution: Handle, _c: Handle, _algorithm: c_int, out: Out<'_, usize>,
        ) -> c_int {
            status(put(out, 0))
        }
    )* };
}
workspaces! {
    cudnnGetConvolutionForwardWorkspaceSize
    cudnnGetConvolutionBackwardDataWorkspaceSize
    cudnnGetConvolutionBackwardFilterWorkspaceSize
}

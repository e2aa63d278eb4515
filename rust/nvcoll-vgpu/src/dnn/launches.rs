//! Calls of cuDNN that are launches in the log, their descriptors and the sizes that they ask for.
use std::ffi::c_int;

use super::{launch, new, put, status, BAD_PARAM};
use crate::gpu::gpu;
use crate::handles::{named, Handles};
use crate::{Handle, Out};

/// Descriptors of which nothing is kept.
static OTHERS: Handles<()> = Handles::new();

/// Calls that are one launch; further arguments are not read.
macro_rules! launches {
    ($($name:ident)*) => { $(
        /// Logs a launch.
        #[no_mangle]
        pub(super) extern "C" fn $name(handle: Handle) -> c_int {
            status(launch(handle, named!(stringify!($name))))
        }
    )* };
}
launches! {
    cudnnBatchNormalizationForwardTrainingEx cudnnBatchNormalizationForwardInference cudnnBatchNormalizationBackwardEx
    cudnnCTCLoss cudnnCTCLoss_v8 cudnnPoolingForward
    cudnnSpatialTfGridGeneratorForward cudnnSpatialTfGridGeneratorBackward
    cudnnSpatialTfSamplerForward cudnnSpatialTfSamplerBackward
}

/// Descriptors that are made, set and forgotten.
macro_rules! descriptors {
    ($($create:ident $destroy:ident $($set:ident)*;)*) => { $(
        /// Makes a descriptor.
        #[no_mangle]
        extern "C" fn $create(out: Out<'_, Handle>) -> c_int {
            status(new(out, &OTHERS, ()))
        }
        /// Forgets a descriptor.
        #[no_mangle]
        extern "C" fn $destroy(descriptor: Handle) -> c_int {
            status(OTHERS.remove(descriptor).map(|_| ()).ok_or(BAD_PARAM))
        }
        $(
            /// Accepts what a descriptor says.
            #[no_mangle]
            extern "C" fn $set(descriptor: Handle) -> c_int {
                status(OTHERS.find(descriptor).map(|_| ()).ok_or(BAD_PARAM))
            }
        )*
    )* };
}
descriptors! {
    cudnnCreateActivationDescriptor cudnnDestroyActivationDescriptor cudnnSetActivationDescriptor;
    cudnnCreateDropoutDescriptor cudnnDestroyDropoutDescriptor cudnnRestoreDropoutDescriptor;
    cudnnCreateCTCLossDescriptor cudnnDestroyCTCLossDescriptor cudnnSetCTCLossDescriptorEx cudnnSetCTCLossDescriptor_v8
        cudnnSetCTCLossDescriptor_v9;
    cudnnCreatePoolingDescriptor cudnnDestroyPoolingDescriptor cudnnSetPooling2dDescriptor;
    cudnnCreateSpatialTransformerDescriptor cudnnDestroySpatialTransformerDescriptor cudnnSetSpatialTransformerNdDescriptor;
}

/// Prepares dropout: a launch that sets the states of its generators.
#[no_mangle]
extern "C" fn cudnnSetDropoutDescriptor(descriptor: Handle, handle: Handle) -> c_int {
    let known = OTHERS.find(descriptor).map(|_| ()).ok_or(BAD_PARAM);
    status(known.and_then(|()| launch(handle, named!("cudnnSetDropoutDescriptor"))))
}

/// Writes the bytes of dropout's generators: 16 for each thread that the GPU holds (chosen).
#[no_mangle]
extern "C" fn cudnnDropoutGetStatesSize(_handle: Handle, out: Out<'_, usize>) -> c_int {
    status(put(out, 16 * gpu().sms as usize * gpu().limits.threads_per_sm as usize))
}

/// Sizes that a call asks for: its arguments before the place for the answer.
macro_rules! no_bytes {
    ($($name:ident($($arg:ident)*);)*) => { $(
        /// Writes 0: no bytes are needed.
        #[no_mangle]
        extern "C" fn $name($($arg: usize,)* out: Out<'_, usize>) -> c_int {
            $(let _ = $arg;)*
            status(put(out, 0))
        }
    )* };
}
no_bytes! {
    cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(handle mode ops x z y parameters activation);
    cudnnGetBatchNormalizationBackwardExWorkspaceSize(handle mode ops x y dy dz dx parameters activation);
    cudnnGetBatchNormalizationTrainingExReserveSpaceSize(handle mode ops activation x);
    cudnnGetCTCLossWorkspaceSize(handle probabilities gradients labels label_lengths input_lengths algorithm descriptor);
    cudnnGetCTCLossWorkspaceSize_v8(handle algorithm descriptor probabilities gradients);
}

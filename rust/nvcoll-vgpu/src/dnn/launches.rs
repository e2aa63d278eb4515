//! Calls of cuDNN that are launches in the log, descriptors without content, and sizes that calls ask for.
use super::{answer, launch};
use crate::entry_points::{functions, logged};
use crate::gpu::gpu;
use crate::handles::Handles;
use crate::{set, Handle, Out};

/// Descriptors without content: padding and strides of a convolution do not change its operations.
static OTHERS: Handles<()> = Handles::new();

logged! { answer:
    cudnnBatchNormalizationForwardTrainingEx cudnnBatchNormalizationForwardInference cudnnBatchNormalizationBackwardEx
        cudnnCTCLoss cudnnCTCLoss_v8 cudnnPoolingForward cudnnSpatialTfGridGeneratorForward
        cudnnSpatialTfGridGeneratorBackward cudnnSpatialTfSamplerForward cudnnSpatialTfSamplerBackward(handle: Handle) =>
        |name| launch(handle, name.number);
    // Sets the states of dropout's generators.
    cudnnSetDropoutDescriptor(descriptor: Handle, handle: Handle) =>
        |name| OTHERS.find(descriptor).and_then(|()| launch(handle, name.number));
}

functions! { answer:
    cudnnCreateConvolutionDescriptor cudnnCreateActivationDescriptor cudnnCreateDropoutDescriptor cudnnCreateCTCLossDescriptor
        cudnnCreatePoolingDescriptor cudnnCreateSpatialTransformerDescriptor(out: Out<Handle>) => OTHERS.make(out, ());
    cudnnDestroyConvolutionDescriptor cudnnDestroyActivationDescriptor cudnnDestroyDropoutDescriptor
        cudnnDestroyCTCLossDescriptor cudnnDestroyPoolingDescriptor cudnnDestroySpatialTransformerDescriptor
        (descriptor: Handle) => OTHERS.remove(descriptor);
    cudnnSetConvolutionNdDescriptor cudnnSetConvolutionGroupCount cudnnSetConvolutionMathType cudnnSetActivationDescriptor
        cudnnRestoreDropoutDescriptor cudnnSetCTCLossDescriptorEx cudnnSetCTCLossDescriptor_v8 cudnnSetCTCLossDescriptor_v9
        cudnnSetPooling2dDescriptor cudnnSetSpatialTransformerNdDescriptor(descriptor: Handle) => OTHERS.find(descriptor);
    // 16 bytes for each thread that the GPU holds (chosen).
    cudnnDropoutGetStatesSize(_handle: Handle, out: Out<usize>) =>
        set(out, 16 * gpu().sms as usize * gpu().limits.threads_per_sm as usize);
    cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize cudnnGetCTCLossWorkspaceSize[a1 a2 a3 a4 a5 a6 a7 a8]
        (out: Out<usize>) => set(out, 0);
    cudnnGetBatchNormalizationBackwardExWorkspaceSize[handle mode ops x y dy dz dx parameters activation]
        (out: Out<usize>) => set(out, 0);
    cudnnGetBatchNormalizationTrainingExReserveSpaceSize cudnnGetCTCLossWorkspaceSize_v8[a1 a2 a3 a4 a5](out: Out<usize>) =>
        set(out, 0);
}

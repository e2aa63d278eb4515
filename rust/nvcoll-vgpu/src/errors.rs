//! Errors of the CUDA runtime and driver: their numbers, names and sentences, and the last error of a thread.
//!
//! Runtime and driver share their numbers. A call returns its error, and the runtime also remembers it for
//! `cudaGetLastError`. "Not ready" is an answer and is not remembered.
use std::cell::Cell;
use std::ffi::CStr;

use crate::Answer;

/// What a C function returns: 0, or the number of an error.
pub type Status = i32;

/// An error of the runtime or driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure(pub Status);

/// Declares the errors: number, constant, names in the runtime and in the driver, sentence.
macro_rules! failures {
    ($($number:literal $constant:ident $runtime:literal $driver:literal $sentence:literal)*) => {
        impl Failure {
            $(#[doc = concat!("`", $runtime, "`: ", $sentence, ".")]
            pub const $constant: Failure = Failure($number);)*
        }
        /// Number, name in the runtime, name in the driver, sentence; each text ends with a zero byte.
        static FAILURES: &[(Status, &str, &str, &str)] =
            &[$(($number, concat!($runtime, "\0"), concat!($driver, "\0"), concat!($sentence, "\0"))),*];
    };
}

failures! {
    1 INVALID_VALUE "cudaErrorInvalidValue" "CUDA_ERROR_INVALID_VALUE" "invalid argument"
    2 OUT_OF_MEMORY "cudaErrorMemoryAllocation" "CUDA_ERROR_OUT_OF_MEMORY" "out of memory"
    9 INVALID_CONFIGURATION "cudaErrorInvalidConfiguration" "CUDA_ERROR_INVALID_CONFIGURATION" "invalid configuration argument"
    13 INVALID_SYMBOL "cudaErrorInvalidSymbol" "CUDA_ERROR_INVALID_SYMBOL" "invalid device symbol"
    21 INVALID_DIRECTION "cudaErrorInvalidMemcpyDirection" "CUDA_ERROR_INVALID_VALUE" "invalid copy direction for memcpy"
    52 MISSING_CONFIGURATION "cudaErrorMissingConfiguration" "CUDA_ERROR_MISSING_CONFIGURATION" "no launch was configured"
    98 INVALID_FUNCTION "cudaErrorInvalidDeviceFunction" "CUDA_ERROR_INVALID_DEVICE_FUNCTION" "invalid device function"
    100 NO_DEVICE "cudaErrorNoDevice" "CUDA_ERROR_NO_DEVICE" "no CUDA-capable device is detected"
    101 INVALID_DEVICE "cudaErrorInvalidDevice" "CUDA_ERROR_INVALID_DEVICE" "invalid device ordinal"
    201 INVALID_CONTEXT "cudaErrorDeviceUninitialized" "CUDA_ERROR_INVALID_CONTEXT" "invalid device context"
    205 MAP_FAILED "cudaErrorMapBufferObjectFailed" "CUDA_ERROR_MAP_FAILED" "memory of another process, which a dry run does not have"
    209 NO_KERNEL_IMAGE "cudaErrorNoKernelImageForDevice" "CUDA_ERROR_NO_BINARY_FOR_GPU" "no kernel image is available for execution on the device"
    400 INVALID_HANDLE "cudaErrorInvalidResourceHandle" "CUDA_ERROR_INVALID_HANDLE" "invalid resource handle"
    401 ILLEGAL_STATE "cudaErrorIllegalState" "CUDA_ERROR_ILLEGAL_STATE" "the operation cannot be performed in the present state"
    500 NOT_FOUND "cudaErrorSymbolNotFound" "CUDA_ERROR_NOT_FOUND" "named symbol not found"
    600 NOT_READY "cudaErrorNotReady" "CUDA_ERROR_NOT_READY" "device not ready"
    712 ALREADY_REGISTERED "cudaErrorHostMemoryAlreadyRegistered" "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED" "part or all of the requested memory range is already mapped"
    713 NOT_REGISTERED "cudaErrorHostMemoryNotRegistered" "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED" "pointer does not correspond to a registered memory region"
    720 COOPERATIVE_LAUNCH_TOO_LARGE "cudaErrorCooperativeLaunchTooLarge" "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE" "too many blocks in cooperative launch"
    801 NOT_SUPPORTED "cudaErrorNotSupported" "CUDA_ERROR_NOT_SUPPORTED" "operation not supported by the virtual GPU"
    900 CAPTURE_UNSUPPORTED "cudaErrorStreamCaptureUnsupported" "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" "operation not permitted when stream is capturing"
    902 CAPTURE_MERGE "cudaErrorStreamCaptureMerge" "CUDA_ERROR_STREAM_CAPTURE_MERGE" "operation would result in a merge of separate capture sequences"
    903 CAPTURE_UNMATCHED "cudaErrorStreamCaptureUnmatched" "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED" "capture was not ended in the same stream as it began"
    906 CAPTURE_IMPLICIT "cudaErrorStreamCaptureImplicit" "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT" "operation would make the legacy stream depend on a capturing blocking stream"
    907 CAPTURED_EVENT "cudaErrorCapturedEvent" "CUDA_ERROR_CAPTURED_EVENT" "operation not permitted on an event last recorded in a capturing stream"
}

thread_local! {
    static LAST: Cell<Status> = const { Cell::new(0) };
    /// The sentence about the function that failed last, if it is one that is refused.
    static REFUSED: Cell<Option<&'static CStr>> = const { Cell::new(None) };
}

/// The status that the runtime returns; an error is kept for `cudaGetLastError`.
pub(crate) fn runtime(body: impl FnOnce() -> Answer) -> Status {
    let status = driver(body);
    if status != 0 && status != Failure::NOT_READY.0 {
        LAST.set(status);
    }
    status
}

/// The status that the driver returns, which keeps no last error.
pub(crate) fn driver(body: impl FnOnce() -> Answer) -> Status {
    body().err().map_or(0, |failure| {
        REFUSED.set(None);
        failure.0
    })
}

/// Names the function that failed as one that is refused, by a sentence that ends with a zero byte.
pub(crate) fn name_refused(sentence: &'static str) {
    REFUSED.set(CStr::from_bytes_with_nul(sentence.as_bytes()).ok());
}

/// The sentence about the function that failed last in this thread, if it is one that is refused.
pub(crate) fn refused() -> Option<&'static CStr> {
    REFUSED.get()
}

/// The last error of this thread; `forget` clears it.
pub(crate) fn last(forget: bool) -> Status {
    LAST.replace(if forget { 0 } else { LAST.get() })
}

/// Which of the texts of an error is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorText {
    /// The name in the runtime, `cudaError...`.
    RuntimeName,
    /// The name in the driver, `CUDA_ERROR_...`.
    DriverName,
    /// The sentence.
    Sentence,
}

/// A text of an error; none for a number that has no row.
pub fn text(number: Status, which: ErrorText) -> Option<&'static CStr> {
    if let (true, Some(sentence)) = (number == Failure::NOT_SUPPORTED.0 && which == ErrorText::Sentence, refused()) {
        return Some(sentence);
    }
    let success = (0, "cudaSuccess\0", "CUDA_SUCCESS\0", "no error\0");
    let row = if number == 0 { &success } else { FAILURES.iter().find(|row| row.0 == number)? };
    let text = match which {
        ErrorText::RuntimeName => row.1,
        ErrorText::DriverName => row.2,
        ErrorText::Sentence => row.3,
    };
    CStr::from_bytes_with_nul(text.as_bytes()).ok()
}

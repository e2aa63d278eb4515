//! cuDNN: convolutions and recurrent layers as products of matrices in the log, everything else as a launch.
//!
//! | module | what it answers |
//! |---|---|
//! | `graph` | the graph interface: descriptors keep their attributes, one plan is always offered, running it is logged |
//! | `tensors` | descriptors of tensors and filters of the older interface |
//! | `convolution` | a convolution as the product of matrices that has its operations; the older calls |
//! | `recurrent` | RNN, GRU, LSTM: layout and size of weights, products of each layer and direction |
//! | `launches` | normalization, dropout, CTC loss, sampling |
//!
//! Names, argument orders and numbers of enums are those of NVIDIA's documentation, *cuDNN API reference*.
mod convolution;
mod graph;
mod launches;
mod recurrent;
mod tensors;
#[cfg(test)]
mod tests;

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::gpu::gpu;
use crate::handles::Handles;
use crate::log::{self, Kind};
use crate::{set, Handle, Out};

/// Success and the errors of `cudnnStatus_t` that are reported.
const SUCCESS: c_int = 0;
const NOT_INITIALIZED: c_int = 1001;
const BAD_PARAM: c_int = 2000;

/// A pointer that is never followed.
type Pointer = *const c_void;

/// What a call answers before it becomes a status.
type Answer = Result<(), c_int>;

/// The stream of each handle. One thread uses a handle at a time, so Relaxed suffices.
static LIBRARIES: Handles<AtomicUsize> = Handles::new();

fn status(answer: Answer) -> c_int {
    answer.err().unwrap_or(SUCCESS)
}

/// Writes to an out-parameter; null is a bad parameter.
fn put<T>(out: Out<'_, T>, value: T) -> Answer {
    set(out, value).map_err(|_| BAD_PARAM)
}

/// Writes the handle of a new object, if there is a place for it.
fn new<T>(out: Out<'_, Handle>, table: &Handles<T>, object: T) -> Answer {
    match out {
        Some(_) => put(out, table.insert(object)),
        None => Err(BAD_PARAM),
    }
}

/// The stream of a handle.
fn stream_of(handle: Handle) -> Result<Handle, c_int> {
    // Relaxed: see `LIBRARIES`.
    LIBRARIES.find(handle).map(|stream| stream.load(Ordering::Relaxed)).ok_or(NOT_INITIALIZED)
}

/// Logs a launch that fills the GPU once, on the stream of a handle.
fn launch(handle: Handle, name: u32) -> Answer {
    log::push(Kind::Launch, stream_of(handle)?, name, [u64::from(gpu().sms), 256, 0]);
    Ok(())
}

/// The `cudaDataType_t` of a `cudnnDataType_t`; single precision for those that no product has.
fn cuda_type(dtype: i64) -> c_int {
    match dtype {
        1 => 1,
        2 => 2,
        3 => 3,
        4 => 10,
        6 => 8,
        9 => 14,
        12 => 28,
        13 => 29,
        _ => 0,
    }
}

/// The version: 9.26 or 9.10, as cuDNN codes it.
#[no_mangle]
extern "C" fn cudnnGetVersion() -> usize {
    if gpu().cuda == 12 {
        91_002
    } else {
        92_600
    }
}

/// The version of the runtime.
#[no_mangle]
extern "C" fn cudnnGetCudartVersion() -> usize {
    gpu().version() as usize
}

/// Writes the major (0), minor (1) or patch (2) number of the version.
#[no_mangle]
extern "C" fn cudnnGetProperty(which: c_int, out: Out<'_, c_int>) -> c_int {
    let version = cudnnGetVersion() as c_int;
    status(match which {
        0 => put(out, version / 10_000),
        1 => put(out, version / 100 % 100),
        2 => put(out, version % 100),
        _ => Err(BAD_PARAM),
    })
}

/// The text of a status.
#[no_mangle]
extern "C" fn cudnnGetErrorString(status: c_int) -> *const c_char {
    let text = match status {
        SUCCESS => c"success",
        NOT_INITIALIZED => c"the library was not initialized",
        BAD_PARAM => c"an invalid parameter was passed to the function",
        _ => c"unknown status of cuDNN",
    };
    text.as_ptr()
}

/// Writes the last error in words: none.
#[no_mangle]
extern "C" fn cudnnGetLastErrorString(out: Out<'_, c_char>, size: usize) {
    if size > 0 {
        let _ = put(out, 0);
    }
}

/// Writes a new handle.
#[no_mangle]
extern "C" fn cudnnCreate(out: Out<'_, Handle>) -> c_int {
    status(new(out, &LIBRARIES, AtomicUsize::new(0)))
}

/// Forgets a handle.
#[no_mangle]
extern "C" fn cudnnDestroy(handle: Handle) -> c_int {
    LIBRARIES.remove(handle).map_or(NOT_INITIALIZED, |_| SUCCESS)
}

/// Sets the stream of a handle.
#[no_mangle]
extern "C" fn cudnnSetStream(handle: Handle, stream: Handle) -> c_int {
    // Relaxed: see `LIBRARIES`.
    LIBRARIES.find(handle).map_or(NOT_INITIALIZED, |kept| {
        kept.store(stream, Ordering::Relaxed);
        SUCCESS
    })
}

/// Reads the stream of a handle.
#[no_mangle]
extern "C" fn cudnnGetStream(handle: Handle, out: Out<'_, Handle>) -> c_int {
    status(stream_of(handle).and_then(|stream| put(out, stream)))
}

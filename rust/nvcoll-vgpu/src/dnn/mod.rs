//! cuDNN: convolutions and recurrent layers as products of matrices in the log, everything else as a launch.
//!
//! | module | content |
//! |---|---|
//! | `graph` | the graph interface: descriptors keep their attributes, one plan is always offered, running it is logged |
//! | `tensors` | descriptors of tensors and filters of the older interface |
//! | `convolution` | a convolution as a matrix product of the same FLOPs; the older calls |
//! | `recurrent` | RNN, GRU, LSTM: layout and size of weights, products of each layer and direction |
//! | `launches` | normalization, dropout, CTC loss, sampling |
//!
//! Names, argument orders and numbers of enums are from NVIDIA's documentation, *cuDNN API reference*.
mod convolution;
mod graph;
mod launches;
mod recurrent;
mod tensors;
#[cfg(test)]
mod tests;

use std::ffi::{c_char, c_int};

use crate::entry_points::{functions, number, values};
use crate::gpu::gpu;
use crate::handles::Handles;
use crate::log::{self, RecordKind};
use crate::{set, Answer, Failure, Handle, Out, Status};

/// The stream of each handle.
static LIBRARIES: Handles<Handle> = Handles::new();

/// `cudnnStatus_t`: bad parameter.
fn answer(body: impl FnOnce() -> Answer) -> Status {
    number(body(), 2000, 2000)
}

/// Logs a launch that fills the GPU once, on the stream of a handle.
fn launch(handle: Handle, name: u32) -> Answer {
    log::push(RecordKind::Launch, LIBRARIES.find(handle)?, name, [u64::from(gpu().sms), 256, 0]);
    Ok(())
}

/// The `cudaDataType_t` of a `cudnnDataType_t`; single precision for types that no product has.
fn data_type_of(dtype: i64) -> c_int {
    match dtype {
        1..=3 => dtype as c_int,
        4 => 10,
        6 => 8,
        9 => 14,
        12 | 13 => dtype as c_int + 16,
        _ => 0,
    }
}

values! {
    // 9.26 or 9.10, as cuDNN codes it.
    cudnnGetVersion() -> usize => [92_600, 91_002][usize::from(gpu().cuda == 12)];
    cudnnGetCudartVersion() -> usize => gpu().version() as usize;
    // The last error in words: none.
    cudnnGetLastErrorString(out: Out<c_char>, size: usize) -> () => { let _ = set(out.filter(|_| size > 0), 0); };
}

functions! { answer:
    cudnnCreate(out: Out<Handle>) => LIBRARIES.make(out, 0);
    cudnnDestroy(handle: Handle) => LIBRARIES.remove(handle);
    cudnnSetStream(handle: Handle, stream: Handle) => LIBRARIES.change(handle, |kept| *kept = stream);
    cudnnGetStream(handle: Handle, out: Out<Handle>) => set(out, LIBRARIES.find(handle)?);
    // The major (0), minor (1) or patch (2) number of the version.
    cudnnGetProperty(which: c_int, out: Out<c_int>) => match which {
        0 => set(out, cudnnGetVersion() as c_int / 10_000),
        1 => set(out, cudnnGetVersion() as c_int / 100 % 100),
        2 => set(out, cudnnGetVersion() as c_int % 100),
        _ => Err(Failure::INVALID_VALUE),
    };
}

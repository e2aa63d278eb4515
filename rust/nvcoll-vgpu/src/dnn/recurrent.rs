//! Recurrent layers of cuDNN: sizes and layout of the weights, and the products of each layer and direction.
//!
//! A pseudo-layer is one direction of one layer. It has G gates (RNN 1, GRU 3, LSTM 4), and for each gate an input matrix
//! (H x inputs), a recurrent matrix (H x R) and two biases (H); R is the size of the projection, or H. The weights lie so:
//!
//! ```text
//! for each pseudo-layer: input matrices of all gates, recurrent matrices of all gates, projection      then all biases, likewise
//! ```
//!
//! A pass over T steps of B sequences is, per pseudo-layer, one product (G H, T B, inputs) and T products (G H, B, R) that
//! wait for each other; with a projection T more (R, B, H). Gradients of the input and of the weights have the same products.
use std::ffi::c_int;
use std::sync::Mutex;

use super::tensors::describe;
use super::{cuda_type, new, put, status, stream_of, Answer, Pointer, BAD_PARAM};
use crate::blas::Product;
use crate::handles::{named, Handles};
use crate::log::lock;
use crate::{Handle, Out};

/// What `cudnnSetRNNDescriptor_v8` said.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Layers {
    gates: usize,
    has_biases: bool,
    directions: usize,
    /// `cudnnDataType_t`.
    dtype: c_int,
    inputs: usize,
    hidden: usize,
    /// Size of what a layer hands on: of the projection, or hidden.
    outputs: usize,
    layers: usize,
}

/// Largest size of a layer, and most layers (chosen: their products stay below 2^63).
const LARGEST: c_int = 1 << 20;
const MOST_LAYERS: c_int = 1 << 10;

static LAYERS: Handles<Mutex<Layers>> = Handles::new();
/// Steps and sequences of each descriptor of data.
static DATA: Handles<Mutex<[i64; 2]>> = Handles::new();

impl Layers {
    fn element_bytes(&self) -> usize {
        match self.dtype {
            1 => 8,
            2 | 9 => 2,
            _ => 4,
        }
    }

    fn inputs_of(&self, pseudo: usize) -> usize {
        if pseudo < self.directions {
            self.inputs
        } else {
            self.outputs * self.directions
        }
    }

    fn has_projection(&self) -> bool {
        self.outputs != self.hidden
    }

    /// Elements of the matrices of a pseudo-layer.
    fn matrices(&self, pseudo: usize) -> usize {
        let projection = if self.has_projection() { self.outputs * self.hidden } else { 0 };
        self.gates * self.hidden * (self.inputs_of(pseudo) + self.outputs) + projection
    }

    /// Elements of the biases of a pseudo-layer.
    fn biases(&self) -> usize {
        if self.has_biases {
            2 * self.gates * self.hidden
        } else {
            0
        }
    }

    fn pseudo_layers(&self) -> usize {
        self.layers * self.directions
    }

    fn all_matrices(&self) -> usize {
        (0..self.pseudo_layers()).map(|pseudo| self.matrices(pseudo)).sum()
    }

    fn weight_bytes(&self) -> usize {
        (self.all_matrices() + self.pseudo_layers() * self.biases()) * self.element_bytes()
    }

    /// The matrix of a linear layer: its offset in elements, rows and columns.
    fn matrix(&self, pseudo: usize, linear: usize) -> Option<(usize, usize, usize)> {
        let before: usize = (0..pseudo).map(|pseudo| self.matrices(pseudo)).sum();
        let (inputs, recurrent) = (self.hidden * self.inputs_of(pseudo), self.hidden * self.outputs);
        let all_inputs = self.gates * inputs;
        if linear < self.gates {
            Some((before + linear * inputs, self.hidden, self.inputs_of(pseudo)))
        } else if linear < 2 * self.gates {
            Some((before + all_inputs + (linear - self.gates) * recurrent, self.hidden, self.outputs))
        } else if linear == 2 * self.gates && self.has_projection() {
            Some((before + all_inputs + self.gates * recurrent, self.outputs, self.hidden))
        } else {
            None
        }
    }

    /// The offset in elements of the bias of a linear layer.
    fn bias(&self, pseudo: usize, linear: usize) -> Option<usize> {
        let has = self.has_biases && linear < 2 * self.gates;
        has.then(|| self.all_matrices() + pseudo * self.biases() + linear * self.hidden)
    }

    /// Logs the products of a pass.
    fn log(&self, name: u32, stream: Handle, [steps, sequences]: [i64; 2]) -> Answer {
        let dtype = cuda_type(self.dtype.into());
        let one = |m: usize, n: i64, k: usize, batch: i64| {
            let (m, k) = (m as i64, k as i64);
            let product = Product {
                name,
                m,
                n,
                k,
                batch,
                operations: [0; 2],
                a_type: dtype,
                c_type: dtype,
                epilogue: 0,
                compute: 68,
            };
            match product.log(stream) {
                0 => Ok(()),
                _ => Err(BAD_PARAM),
            }
        };
        let rows = self.gates * self.hidden;
        for pseudo in 0..self.pseudo_layers() {
            one(rows, steps.saturating_mul(sequences), self.inputs_of(pseudo), 1)?;
            one(rows, sequences, self.outputs, steps)?;
            if self.has_projection() {
                one(self.outputs, sequences, self.hidden, steps)?;
            }
        }
        Ok(())
    }
}

fn layers_of(handle: Handle) -> Result<Layers, c_int> {
    let layers = LAYERS.find(handle).ok_or(BAD_PARAM)?;
    let layers = *lock(&layers);
    Ok(layers)
}

fn data_of(handle: Handle) -> Result<[i64; 2], c_int> {
    let data = DATA.find(handle).ok_or(BAD_PARAM)?;
    let data = *lock(&data);
    Ok(data)
}

/// Descriptors that are made and forgotten.
macro_rules! descriptors {
    ($($table:ident $create:ident $destroy:ident;)*) => { $(
        /// Makes a descriptor.
        #[no_mangle]
        pub(super) extern "C" fn $create(out: Out<'_, Handle>) -> c_int {
            status(new(out, &$table, Mutex::default()))
        }
        /// Forgets a descriptor.
        #[no_mangle]
        pub(super) extern "C" fn $destroy(descriptor: Handle) -> c_int {
            status($table.remove(descriptor).map(|_| ()).ok_or(BAD_PARAM))
        }
    )* };
}
descriptors! {
    LAYERS cudnnCreateRNNDescriptor cudnnDestroyRNNDescriptor;
    DATA cudnnCreateRNNDataDescriptor cudnnDestroyRNNDataDescriptor;
}

/// Describes recurrent layers.
#[no_mangle]
pub(super) extern "C" fn cudnnSetRNNDescriptor_v8(
    descriptor: Handle,
    _algorithm: c_int,
    cell: c_int,
    biases: c_int,
    direction: c_int,
    _input: c_int,
    dtype: c_int,
    _precision: c_int,
    _math: c_int,
    inputs: c_int,
    hidden: c_int,
    projection: c_int,
    layers: c_int,
) -> c_int {
    let sizes = [inputs, hidden, projection, layers];
    if sizes.iter().any(|size| !(0..=LARGEST).contains(size)) || layers > MOST_LAYERS {
        return BAD_PARAM;
    }
    let [inputs, hidden, projection, layers] = sizes.map(|size| size as usize);
    let gates = match cell {
        2 => 4,
        3 => 3,
        _ => 1,
    };
    let outputs = if projection == 0 { hidden } else { projection };
    let directions = if direction == 1 { 2 } else { 1 };
    let kept = Layers { gates, has_biases: biases != 0, directions, dtype, inputs, hidden, outputs, layers };
    status(LAYERS.find(descriptor).map(|layers| *lock(&layers) = kept).ok_or(BAD_PARAM))
}

/// Describes a batch of sequences; the longest counts for all.
#[no_mangle]
pub(super) extern "C" fn cudnnSetRNNDataDescriptor(
    descriptor: Handle,
    _dtype: c_int,
    _layout: c_int,
    steps: c_int,
    sequences: c_int,
) -> c_int {
    let kept = [steps.into(), sequences.into()];
    status(DATA.find(descriptor).map(|data| *lock(&data) = kept).ok_or(BAD_PARAM))
}

/// Writes the bytes of all weights.
#[no_mangle]
pub(super) extern "C" fn cudnnGetRNNWeightSpaceSize(_handle: Handle, layers: Handle, out: Out<'_, usize>) -> c_int {
    status(layers_of(layers).and_then(|layers| put(out, layers.weight_bytes())))
}

/// Writes the bytes of the workspace (none) and of what training keeps: the gates and the state of every step.
#[no_mangle]
pub(super) extern "C" fn cudnnGetRNNTempSpaceSizes(
    _handle: Handle,
    layers: Handle,
    _mode: c_int,
    data: Handle,
    workspace: Out<'_, usize>,
    reserve: Out<'_, usize>,
) -> c_int {
    let run = || {
        let (layers, [steps, sequences]) = (layers_of(layers)?, data_of(data)?);
        let states = usize::try_from(steps.saturating_mul(sequences)).unwrap_or(0);
        let kept = (layers.gates + 2) * layers.hidden * layers.pseudo_layers() * layers.element_bytes();
        if let Some(workspace) = workspace {
            workspace.write(0);
        }
        match reserve {
            Some(reserve) => put(Some(reserve), states.saturating_mul(kept)),
            None => Ok(()),
        }
    };
    status(run())
}

/// Describes the matrix and the bias of a linear layer, and writes where they lie.
#[no_mangle]
pub(super) extern "C" fn cudnnGetRNNWeightParams(
    _handle: Handle,
    layers: Handle,
    pseudo: c_int,
    _bytes: usize,
    weights: Handle,
    linear: c_int,
    matrix: Handle,
    matrix_at: Out<'_, Handle>,
    bias: Handle,
    bias_at: Out<'_, Handle>,
) -> c_int {
    let run = || {
        let layers = layers_of(layers)?;
        let [pseudo, linear] = [pseudo, linear].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
        if pseudo >= layers.pseudo_layers() {
            return Err(BAD_PARAM);
        }
        let at = |elements: usize| weights.wrapping_add(elements.wrapping_mul(layers.element_bytes()));
        let sizes = layers.matrix(pseudo, linear);
        let matrix_is = sizes.map(|(offset, rows, columns)| (at(offset), [1, rows as c_int, columns as c_int]));
        let bias_is = layers.bias(pseudo, linear).map(|offset| (at(offset), [1, layers.hidden as c_int, 1]));
        tell(layers.dtype, matrix_is, matrix, matrix_at)?;
        tell(layers.dtype, bias_is, bias, bias_at)
    };
    status(run())
}

/// Describes a parameter and writes where it lies; a caller that does not ask passes null.
fn tell(dtype: c_int, is: Option<(Handle, [c_int; 3])>, descriptor: Handle, out: Out<'_, Handle>) -> Answer {
    if descriptor == 0 && out.is_none() {
        return Ok(());
    }
    match is {
        Some((at, sizes)) => describe(descriptor, dtype, &sizes).and_then(|()| put(out, at)),
        None => put(out, 0),
    }
}

fn pass(handle: Handle, name: u32, layers: Handle, data: Handle) -> c_int {
    let run = || layers_of(layers)?.log(name, stream_of(handle)?, data_of(data)?);
    status(run())
}

/// Logs a forward pass.
#[no_mangle]
pub(super) extern "C" fn cudnnRNNForward(
    handle: Handle,
    layers: Handle,
    _mode: c_int,
    _lengths: Pointer,
    x: Handle,
) -> c_int {
    pass(handle, named!("cudnnRNNForward"), layers, x)
}

/// Logs the gradient of the input.
#[no_mangle]
pub(super) extern "C" fn cudnnRNNBackwardData_v8(
    handle: Handle,
    layers: Handle,
    _lengths: Pointer,
    y: Handle,
) -> c_int {
    pass(handle, named!("cudnnRNNBackwardData_v8"), layers, y)
}

/// Logs the gradient of the weights.
#[no_mangle]
pub(super) extern "C" fn cudnnRNNBackwardWeights_v8(
    handle: Handle,
    layers: Handle,
    _add: c_int,
    _lengths: Pointer,
    x: Handle,
) -> c_int {
    pass(handle, named!("cudnnRNNBackwardWeights_v8"), layers, x)
}

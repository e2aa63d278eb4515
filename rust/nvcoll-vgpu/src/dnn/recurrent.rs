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

use super::tensors::describe;
use super::{answer, data_type_of, LIBRARIES};
use crate::blas::{MatrixProduct, COMPUTE_32F};
use crate::entry_points::{functions, logged};
use crate::handles::Handles;
use crate::{set, Answer, Failure, Handle, Out};

/// The arguments of `cudnnSetRNNDescriptor_v8`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct RecurrentLayers {
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

static LAYERS: Handles<RecurrentLayers> = Handles::new();
/// Steps and sequences of each descriptor of data.
static DATA: Handles<[i64; 2]> = Handles::new();

impl RecurrentLayers {
    fn element_bytes(&self) -> usize {
        match self.dtype {
            1 => 8,
            2 | 9 => 2,
            _ => 4,
        }
    }

    fn inputs_of(&self, pseudo: usize) -> usize {
        [self.outputs * self.directions, self.inputs][usize::from(pseudo < self.directions)]
    }

    fn has_projection(&self) -> bool {
        self.outputs != self.hidden
    }

    /// Elements of the matrices of a pseudo-layer.
    fn matrices(&self, pseudo: usize) -> usize {
        let projection = self.outputs * self.hidden * usize::from(self.has_projection());
        self.gates * self.hidden * (self.inputs_of(pseudo) + self.outputs) + projection
    }

    /// Elements of the biases of a pseudo-layer.
    fn biases(&self) -> usize {
        2 * self.gates * self.hidden * usize::from(self.has_biases)
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
        let types = [data_type_of(self.dtype.into()); 2];
        let one = |m: usize, n: i64, k: usize, batch: i64| {
            let sizes = [m as i64, n, k as i64, batch];
            MatrixProduct { name, sizes, operations: [0; 2], types, epilogue: 0, compute: COMPUTE_32F }.log(stream)
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

/// What a descriptor says: kind of cell, biases, direction, type, and the sizes of input, state, projection, and layers.
fn layers(
    cell: c_int,
    biases: c_int,
    direction: c_int,
    dtype: c_int,
    sizes: [c_int; 4],
) -> Result<RecurrentLayers, Failure> {
    if sizes.iter().any(|size| !(0..=LARGEST).contains(size)) || sizes[3] > MOST_LAYERS {
        return Err(Failure::INVALID_VALUE);
    }
    let [inputs, hidden, projection, layers] = sizes.map(|size| size as usize);
    let gates = match cell {
        2 => 4,
        3 => 3,
        _ => 1,
    };
    let outputs = if projection == 0 { hidden } else { projection };
    let directions = if direction == 1 { 2 } else { 1 };
    Ok(RecurrentLayers { gates, has_biases: biases != 0, directions, dtype, inputs, hidden, outputs, layers })
}

/// Describes a parameter and writes where it lies; a caller that does not ask passes null.
fn write_tensor(dtype: c_int, is: Option<(Handle, [c_int; 3])>, descriptor: Handle, out: Out<'_, Handle>) -> Answer {
    match is {
        _ if descriptor == 0 && out.is_none() => Ok(()),
        Some((at, sizes)) => describe(descriptor, dtype, &sizes).and_then(|()| set(out, at)),
        None => set(out, 0),
    }
}

fn pass(handle: Handle, name: u32, layers: Handle, data: Handle) -> Answer {
    LAYERS.find(layers)?.log(name, LIBRARIES.find(handle)?, DATA.find(data)?)
}

functions! { answer:
    cudnnCreateRNNDescriptor(out: Out<Handle>) => LAYERS.make(out, RecurrentLayers::default());
    cudnnDestroyRNNDescriptor(descriptor: Handle) => LAYERS.remove(descriptor);
    cudnnCreateRNNDataDescriptor(out: Out<Handle>) => DATA.make(out, [0; 2]);
    cudnnDestroyRNNDataDescriptor(descriptor: Handle) => DATA.remove(descriptor);
    cudnnSetRNNDescriptor_v8(descriptor: Handle, _algorithm: c_int, cell: c_int, biases: c_int, direction: c_int, _input: c_int,
        dtype: c_int, _precision: c_int, _math: c_int, inputs: c_int, hidden: c_int, projection: c_int, count: c_int) => {
        let described = layers(cell, biases, direction, dtype, [inputs, hidden, projection, count])?;
        LAYERS.change(descriptor, |kept| *kept = described)
    };
    // The longest sequence counts for all.
    cudnnSetRNNDataDescriptor(descriptor: Handle, _dtype: c_int, _layout: c_int, steps: c_int, sequences: c_int) =>
        DATA.change(descriptor, |data| *data = [steps.into(), sequences.into()]);
    cudnnGetRNNWeightSpaceSize(_handle: Handle, layers: Handle, out: Out<usize>) =>
        set(out, LAYERS.find(layers)?.weight_bytes());
    // No workspace, and what training keeps: the gates and the state of every step.
    cudnnGetRNNTempSpaceSizes(_handle: Handle, layers: Handle, _mode: c_int, data: Handle, workspace: Out<usize>,
        reserve: Out<usize>) => {
        let (layers, [steps, sequences]) = (LAYERS.find(layers)?, DATA.find(data)?);
        let states = usize::try_from(steps.saturating_mul(sequences)).unwrap_or(0);
        let kept = (layers.gates + 2) * layers.hidden * layers.pseudo_layers() * layers.element_bytes();
        let _ = (set(workspace, 0), set(reserve, states.saturating_mul(kept))); // both are optional
        Ok(())
    };
    // Describes the matrix and the bias of a linear layer, and writes where they lie.
    cudnnGetRNNWeightParams(_handle: Handle, layers: Handle, pseudo: c_int, _bytes: usize, weights: Handle, linear: c_int,
        matrix: Handle, matrix_at: Out<Handle>, bias: Handle, bias_at: Out<Handle>) => {
        let layers = LAYERS.find(layers)?;
        let [pseudo, linear] = [pseudo, linear].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
        if pseudo >= layers.pseudo_layers() {
            return Err(Failure::INVALID_VALUE);
        }
        let at = |elements: usize| weights.wrapping_add(elements.wrapping_mul(layers.element_bytes()));
        let sizes = layers.matrix(pseudo, linear);
        let matrix_is = sizes.map(|(offset, rows, columns)| (at(offset), [1, rows as c_int, columns as c_int]));
        let bias_is = layers.bias(pseudo, linear).map(|offset| (at(offset), [1, layers.hidden as c_int, 1]));
        write_tensor(layers.dtype, matrix_is, matrix, matrix_at)?;
        write_tensor(layers.dtype, bias_is, bias, bias_at)
    };
}
logged! { answer:
    cudnnRNNForward cudnnRNNBackwardWeights_v8(handle: Handle, layers: Handle, _mode: c_int, _lengths: usize, x: Handle) =>
        |name| pass(handle, name.number, layers, x);
    cudnnRNNBackwardData_v8(handle: Handle, layers: Handle, _lengths: usize, y: Handle) =>
        |name| pass(handle, name.number, layers, y);
}

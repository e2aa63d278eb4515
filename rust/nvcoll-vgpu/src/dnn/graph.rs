//! The graph interface of cuDNN: descriptors keep their attributes, and one plan is always offered.
//!
//! ```text
//! plan ─▶ configuration ─▶ engine ─▶ graph ─▶ operations ─▶ tensors (type, dimensions)
//! ```
//!
//! Running a plan logs each convolution of its graph as a product of matrices; a graph without one is a launch, whose name
//! says what it has. Attributes that are numbers, types or descriptors are kept, others are accepted. A number that nobody
//! set reads as 0: no workspace, no shared memory, no knobs.
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex};

use super::convolution::{convolution, ConvolutionPass};
use super::{answer, launch, LIBRARIES};
use crate::arguments::{List, Room};
use crate::blas::MatrixProduct;
use crate::entry_points::{functions, named};
use crate::handles::Handles;
use crate::lock::lock;
use crate::{set, Answer, Failure, Handle, Out};

/// Types of attributes: `cudnnBackendAttributeType_t`.
const DATA_TYPE: c_int = 1;
const BOOLEAN: c_int = 2;
const INT64: c_int = 3;
const NUMERICAL_NOTE: c_int = 11;
const DESCRIPTOR: c_int = 15;
const BEHAVIOR_NOTE: c_int = 19;
const INT32: c_int = 23;
const CHAR: c_int = 24;

/// Attributes: `cudnnBackendAttributeName_t`.
const HEURISTIC_GRAPH: c_int = 201;
const HEURISTIC_RESULTS: c_int = 202;
const CONFIGURATION_ENGINE: c_int = 300;
const PLAN_CONFIGURATION: c_int = 401;
const GRAPH_OPERATIONS: c_int = 801;
const GRAPH_ENGINES: c_int = 802;
const TENSOR_TYPE: c_int = 901;
const TENSOR_DIMENSIONS: c_int = 902;
const TENSOR_STRIDES: c_int = 903;
const ENGINE_GRAPH: c_int = 1300;

/// Kinds of descriptors: `cudnnBackendDescriptorType_t`.
const ENGINE: c_int = 2;
const CONFIGURATION: c_int = 3;
const MATMUL: c_int = 19;
const NORM_FORWARD: c_int = 29;
const NORM_BACKWARD: c_int = 30;
const ATTENTION_FORWARD: c_int = 41;
const ATTENTION_BACKWARD: c_int = 43;

/// Longest list of values that is kept (chosen: dimensions and operations are far fewer).
const LONGEST: usize = 4096;

/// The values of an attribute.
#[derive(Clone)]
enum Values {
    Numbers(Vec<i64>),
    Descriptors(Vec<Arc<Descriptor>>),
}

/// A descriptor and its attributes.
struct Descriptor {
    kind: c_int,
    attributes: Mutex<BTreeMap<c_int, Values>>,
}

static DESCRIPTORS: Handles<Arc<Descriptor>> = Handles::new();

impl Descriptor {
    fn new(kind: c_int, attributes: BTreeMap<c_int, Values>) -> Self {
        Self { kind, attributes: Mutex::new(attributes) }
    }

    fn numbers(&self, attribute: c_int) -> Vec<i64> {
        match lock(&self.attributes).get(&attribute) {
            Some(Values::Numbers(numbers)) => numbers.clone(),
            _ => Vec::new(),
        }
    }

    fn children(&self, attribute: c_int) -> Vec<Arc<Descriptor>> {
        match lock(&self.attributes).get(&attribute) {
            Some(Values::Descriptors(children)) => children.clone(),
            _ => Vec::new(),
        }
    }

    fn child(&self, attribute: c_int) -> Option<Arc<Descriptor>> {
        self.children(attribute).into_iter().next()
    }

    /// What a read of an attribute that holds descriptors gives.
    fn answered(&self, attribute: c_int) -> Vec<Arc<Descriptor>> {
        if attribute != HEURISTIC_RESULTS {
            return self.children(attribute);
        }
        let engine = BTreeMap::from([(ENGINE_GRAPH, Values::Descriptors(self.children(HEURISTIC_GRAPH)))]);
        let engine = vec![Arc::new(Descriptor::new(ENGINE, engine))];
        let configuration = BTreeMap::from([(CONFIGURATION_ENGINE, Values::Descriptors(engine))]);
        vec![Arc::new(Descriptor::new(CONFIGURATION, configuration))]
    }

    /// The convolution that an operation is.
    fn convolution(&self) -> Option<MatrixProduct> {
        let (pass, [x, w, y]) = match self.kind {
            10 => (ConvolutionPass::Forward, [704, 703, 705]),
            11 => (ConvolutionPass::BackwardFilter, [716, 715, 717]),
            12 => (ConvolutionPass::BackwardData, [710, 709, 711]),
            _ => return None,
        };
        let dimensions = |attribute| self.child(attribute).map(|tensor| tensor.numbers(TENSOR_DIMENSIONS));
        let dtype = *self.child(x)?.numbers(TENSOR_TYPE).first()?;
        let strides = self.child(x)?.numbers(TENSOR_STRIDES);
        convolution(pass, dtype, &strides, [&dimensions(x)?, &dimensions(w)?, &dimensions(y)?])
    }

    fn run(&self, handle: Handle) -> Answer {
        let configuration = self.child(PLAN_CONFIGURATION).ok_or(Failure::INVALID_VALUE)?;
        let engine = configuration.child(CONFIGURATION_ENGINE).ok_or(Failure::INVALID_VALUE)?;
        let operations = engine.child(ENGINE_GRAPH).ok_or(Failure::INVALID_VALUE)?.children(GRAPH_OPERATIONS);
        let stream = LIBRARIES.find(handle)?;
        let convolutions: Vec<_> = operations.iter().filter_map(|operation| operation.convolution()).collect();
        if convolutions.is_empty() {
            return launch(handle, name_of(&operations));
        }
        convolutions.iter().try_for_each(|convolution| convolution.log(stream))
    }
}

/// The name under which a graph without convolutions is logged.
fn name_of(operations: &[Arc<Descriptor>]) -> u32 {
    let count = |kinds: &[c_int]| operations.iter().filter(|operation| kinds.contains(&operation.kind)).count();
    if count(&[ATTENTION_BACKWARD]) > 0 || count(&[MATMUL]) > 3 {
        named!("cudnn_attention_backward")
    } else if count(&[ATTENTION_FORWARD]) > 0 || count(&[MATMUL]) > 1 {
        named!("cudnn_attention_forward")
    } else if count(&[NORM_FORWARD, NORM_BACKWARD]) > 0 {
        named!("cudnn_norm")
    } else {
        named!("cudnn_graph")
    }
}

/// Numbers of 4 or 8 bytes, or descriptors, that a caller passed; none for values of other types.
fn read(of_type: c_int, count: usize, values: List<u8>) -> Result<Option<Values>, Failure> {
    Ok(Some(match of_type {
        INT64 => Values::Numbers(values.cast().read(count)?),
        DATA_TYPE | INT32 => Values::Numbers(values.cast::<c_int>().read(count)?.into_iter().map(i64::from).collect()),
        DESCRIPTOR => {
            let handles = values.cast::<Handle>().read(count)?;
            Values::Descriptors(handles.into_iter().map(|handle| DESCRIPTORS.find(handle)).collect::<Result<_, _>>()?)
        }
        _ => return Ok(None),
    }))
}

fn keep(descriptor: Handle, attribute: c_int, of_type: c_int, count: i64, values: List<u8>) -> Answer {
    let descriptor = DESCRIPTORS.find(descriptor)?;
    let count = usize::try_from(count).ok().filter(|count| *count <= LONGEST).ok_or(Failure::INVALID_VALUE)?;
    if count == 0 && values.is_null() {
        return Ok(());
    }
    if let Some(kept) = read(of_type, count, values)? {
        lock(&descriptor.attributes).insert(attribute, kept);
    }
    Ok(())
}

/// Writes values of an attribute until the room is full, and returns the number of its values.
fn write(
    descriptor: &Descriptor,
    attribute: c_int,
    of_type: c_int,
    room: usize,
    values: Room<u8>,
) -> Result<usize, Failure> {
    if of_type == DESCRIPTOR {
        let children = descriptor.answered(attribute);
        let shown = children.len().min(room);
        let targets = if shown == 0 { Vec::new() } else { values.cast::<Handle>().read(shown)? };
        for (child, target) in children.iter().zip(targets) {
            let attributes = lock(&child.attributes).clone();
            *lock(&DESCRIPTORS.find(target)?.attributes) = attributes;
        }
        return Ok(children.len());
    }
    let size = match of_type {
        NUMERICAL_NOTE | BEHAVIOR_NOTE => return Ok(0),
        INT64 => 8,
        DATA_TYPE | INT32 => 4,
        BOOLEAN | CHAR => 1,
        _ => 0,
    };
    let numbers = match (attribute, descriptor.numbers(attribute)) {
        (GRAPH_ENGINES, _) => vec![1],
        (_, numbers) if numbers.is_empty() => vec![0],
        (_, numbers) => numbers,
    };
    let shown = &numbers[..numbers.len().min(room)];
    if !shown.is_empty() {
        values
            .write(&shown.iter().flat_map(|number| number.to_le_bytes().into_iter().take(size)).collect::<Vec<_>>())?;
    }
    Ok(numbers.len())
}

functions! { answer:
    cudnnBackendCreateDescriptor(kind: c_int, out: Out<Handle>) =>
        DESCRIPTORS.make(out, Arc::new(Descriptor::new(kind, BTreeMap::new())));
    // Others that hold it keep it.
    cudnnBackendDestroyDescriptor(descriptor: Handle) => DESCRIPTORS.remove(descriptor);
    cudnnBackendFinalize(descriptor: Handle) => DESCRIPTORS.find(descriptor).map(drop);
    cudnnBackendSetAttribute(descriptor: Handle, attribute: c_int, of_type: c_int, count: i64, values: List<u8>) =>
        keep(descriptor, attribute, of_type, count, values);
    // Without a place for values only their number is asked for.
    cudnnBackendGetAttribute(descriptor: Handle, attribute: c_int, of_type: c_int, room: i64, count: Out<i64>,
        values: Room<u8>) => {
        let room = usize::try_from(room).ok().filter(|_| !values.is_null()).unwrap_or(0);
        let found = write(&*DESCRIPTORS.find(descriptor)?, attribute, of_type, room, values)?;
        let _ = set(count, found as i64); // optional
        Ok(())
    };
    cudnnBackendExecute(handle: Handle, plan: Handle) => DESCRIPTORS.find(plan)?.run(handle);
}

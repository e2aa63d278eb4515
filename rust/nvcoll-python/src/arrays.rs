//! Python arrays as engine views: the one unsafe file of the binding.
//!
//! numpy arrays are read directly: address, element count, dtype, flags. Everything else goes through
//! `nvcoll._arrays.as_ndarray`, which gives a numpy array over the same memory (DLPack, buffer protocol) and the name of
//! the dtype where numpy has none. Strided arrays are packed before the call and written back after it. What is written may
//! overlap nothing else of the call.

use numpy::npyffi::{NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_WRITEABLE};
use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use nvcoll_core::dtype::DType;

use crate::error::invalid;

/// One array of one rank.
pub(crate) struct Array<'py> {
    pub(crate) start: *mut u8,
    pub(crate) count: usize,
    pub(crate) dtype: DType,
    is_writable: bool,
    /// What keeps the memory alive.
    holder: Bound<'py, PyUntypedArray>,
    /// The strided array of which `holder` is a packed copy.
    strided: Option<Bound<'py, PyUntypedArray>>,
}

impl<'py> Array<'py> {
    /// Reads an array; `name` is how messages call it.
    pub(crate) fn of(object: &Bound<'py, PyAny>, name: &str) -> PyResult<Self> {
        if let Ok(array) = object.cast::<PyUntypedArray>() {
            return Self::of_ndarray(array, None, name);
        }
        let py = object.py();
        let pair = py.import("nvcoll._arrays")?.call_method1("as_ndarray", (object, name))?;
        let (array, dtype): (Bound<'py, PyAny>, String) = pair.extract()?;
        Self::of_ndarray(array.cast::<PyUntypedArray>()?, DType::named(&dtype), name)
    }

    fn of_ndarray(array: &Bound<'py, PyUntypedArray>, dtype: Option<DType>, name: &str) -> PyResult<Self> {
        let py = array.py();
        let dtype = match dtype {
            Some(dtype) => dtype,
            None => dtype_of(array).ok_or_else(|| unsupported(array, name))?,
        };
        // SAFETY: `array` is a live numpy array, whose header may be read while the GIL is held.
        let (start, flags) =
            unsafe { ((*array.as_array_ptr()).fields.data.cast::<u8>(), (*array.as_array_ptr()).fields.flags) };
        let is_writable = flags & NPY_ARRAY_WRITEABLE != 0;
        if flags & NPY_ARRAY_C_CONTIGUOUS != 0 {
            return Ok(Self { start, count: array.len(), dtype, is_writable, holder: array.clone(), strided: None });
        }
        let has_stride_zero = array.strides().iter().zip(array.shape()).any(|(s, n)| *s == 0 && *n > 1);
        let packed = py.import("numpy")?.call_method1("ascontiguousarray", (array,))?;
        let packed = packed.cast_into::<PyUntypedArray>()?;
        // SAFETY: as above.
        let start = unsafe { (*packed.as_array_ptr()).fields.data.cast::<u8>() };
        let strided = Some(array.clone());
        Ok(Self {
            start,
            count: packed.len(),
            dtype,
            is_writable: is_writable && !has_stride_zero,
            holder: packed,
            strided,
        })
    }

    pub(crate) fn is_strided(&self) -> bool {
        self.strided.is_some()
    }

    /// Copies the result into the strided array, if there is one.
    pub(crate) fn write_back(&self) -> PyResult<()> {
        match &self.strided {
            Some(strided) => {
                let numpy = strided.py().import("numpy")?;
                numpy.call_method1("copyto", (strided, &self.holder)).map(|_| ())
            }
            None => Ok(()),
        }
    }

    /// The bytes that the caller's array spans, for the overlap check.
    fn span(&self) -> (usize, usize) {
        let Some(strided) = &self.strided else {
            return (self.start as usize, self.start as usize + self.count * self.dtype.bytes());
        };
        // SAFETY: `strided` is a live numpy array.
        let start = unsafe { (*strided.as_array_ptr()).fields.data } as isize;
        let (mut low, mut high) = (start, start + self.dtype.bytes() as isize);
        for (stride, length) in strided.strides().iter().zip(strided.shape()) {
            let reach = stride * (*length as isize - 1).max(0);
            if reach < 0 {
                low += reach
            } else {
                high += reach
            }
        }
        if self.count == 0 {
            (low as usize, low as usize)
        } else {
            (low as usize, high as usize)
        }
    }
}

fn dtype_of(array: &Bound<'_, PyUntypedArray>) -> Option<DType> {
    let descriptor = array.dtype();
    if !descriptor.is_native_byteorder().unwrap_or(true) {
        return None;
    }
    match (descriptor.kind(), descriptor.itemsize()) {
        (b'f', 4) => Some(DType::F32),
        (b'f', 8) => Some(DType::F64),
        (b'i', 4) => Some(DType::I32),
        (b'b' | b'i' | b'u' | b'f' | b'c', _) => None,
        _ => DType::named(descriptor.getattr("name").ok()?.extract::<String>().ok()?.as_str()),
    }
}

fn unsupported(array: &Bound<'_, PyUntypedArray>, name: &str) -> PyErr {
    let names: Vec<&str> = DType::ALL.iter().map(|d| d.name()).collect();
    invalid(array.py(), format!("{name} has dtype {}: convert it to one of {}", array.dtype(), names.join(", ")))
}

/// The arrays of all ranks: a list with one per rank, or one array whose axis 0 is the rank.
pub(crate) fn of_ranks<'py>(object: &Bound<'py, PyAny>, world_size: u32, name: &str) -> PyResult<Vec<Array<'py>>> {
    let py = object.py();
    let wrong = |found: usize| {
        invalid(py, format!("`{name}` has {found} arrays, the node has {world_size} ranks: pass one array per rank"))
    };
    let rows: Vec<Bound<'py, PyAny>> = if let Ok(list) = object.cast::<PyList>() {
        list.iter().collect()
    } else if let Ok(tuple) = object.cast::<PyTuple>() {
        tuple.iter().collect()
    } else {
        let array = Array::of(object, &format!("`{name}`"))?;
        let stacked = array.strided.as_ref().unwrap_or(&array.holder);
        if stacked.ndim() == 0 {
            return Err(invalid(
                py,
                format!("`{name}` is a scalar: pass a list of arrays, or one whose axis 0 is the rank"),
            ));
        }
        if stacked.shape()[0] != world_size as usize {
            return Err(wrong(stacked.shape()[0]));
        }
        let dtype = Some(array.dtype);
        let row = |rank: usize| Array::of_ndarray(stacked.get_item(rank)?.cast::<PyUntypedArray>()?, dtype, name);
        if stacked.ndim() == 1 {
            return scalars_of_ranks(&array, world_size, name);
        }
        return (0..world_size as usize).map(row).collect();
    };
    if rows.len() != world_size as usize {
        return Err(wrong(rows.len()));
    }
    rows.iter().enumerate().map(|(rank, row)| Array::of(row, &format!("`{name}` of rank {rank}"))).collect()
}

/// A vector whose element r is the whole array of rank r.
fn scalars_of_ranks<'py>(array: &Array<'py>, world_size: u32, name: &str) -> PyResult<Vec<Array<'py>>> {
    if array.strided.is_some() {
        let message = format!("`{name}` is a strided vector of one element per rank: pass a contiguous one");
        return Err(invalid(array.holder.py(), message));
    }
    let element = |rank: usize| Array {
        start: array.start.wrapping_add(rank * array.dtype.bytes()),
        count: 1,
        holder: array.holder.clone(),
        strided: None,
        ..*array
    };
    Ok((0..world_size as usize).map(element).collect())
}

/// Checks that all arrays of a call fit each other: dtype, count, writable, no overlap. `name_of(i)` names them.
///
/// `outputs` is empty for a call in place.
pub(crate) fn check(py: Python<'_>, inputs: &[Array<'_>], outputs: &[Array<'_>], collective: &str) -> PyResult<()> {
    let first = &inputs[0];
    let all = || inputs.iter().zip(0..).map(|a| (a, "arrays")).chain(outputs.iter().zip(0..).map(|a| (a, "out")));
    for ((array, rank), name) in all() {
        if array.dtype != first.dtype {
            let (found, wanted) = (array.dtype, first.dtype);
            let message =
                format!("`{name}` of rank {rank} is {found}, rank 0 has {wanted}: pass {wanted} on every rank");
            return Err(invalid(py, message));
        }
        if array.count != first.count {
            let (found, wanted) = (array.count, first.count);
            let message = format!(
                "`{name}` holds {found} elements on rank {rank}, {collective} needs {wanted} (as on rank 0): pass an array of {wanted}"
            );
            return Err(invalid(py, message));
        }
    }
    let (written, written_name) = if outputs.is_empty() { (inputs, "arrays") } else { (outputs, "out") };
    if let Some(rank) = written.iter().position(|array| !array.is_writable) {
        let message =
            format!("`{written_name}` of rank {rank} is read-only and would be written: pass a writable array");
        return Err(invalid(py, message));
    }
    check_overlap(py, inputs, outputs)
}

fn check_overlap(py: Python<'_>, inputs: &[Array<'_>], outputs: &[Array<'_>]) -> PyResult<()> {
    let is_in_place = outputs.is_empty();
    let mut spans: Vec<(usize, usize, bool, usize)> = Vec::with_capacity(inputs.len() + outputs.len());
    let span = |array: &Array<'_>, is_written: bool, at: usize| {
        let (low, high) = array.span();
        (low, high, is_written, at)
    };
    spans.extend(inputs.iter().enumerate().map(|(at, a)| span(a, is_in_place, at)));
    spans.extend(outputs.iter().enumerate().map(|(at, a)| span(a, true, inputs.len() + at)));
    match first_overlap(&mut spans) {
        None => Ok(()),
        Some((a, b)) => {
            let name = |at: usize| match at.checked_sub(inputs.len()) {
                None => format!("`arrays` of rank {at}"),
                Some(rank) => format!("`out` of rank {rank}"),
            };
            let message =
                format!("{} and {} overlap, and one is written: pass arrays that share no byte", name(a), name(b));
            Err(invalid(py, message))
        }
    }
}

/// Finds two spans that overlap, of which one is written: (low, high, is written, number).
fn first_overlap(spans: &mut [(usize, usize, bool, usize)]) -> Option<(usize, usize)> {
    spans.sort_unstable();
    let (mut furthest, mut furthest_written) = ((0, usize::MAX), (0, usize::MAX));
    for &(low, high, is_written, at) in spans.iter().filter(|span| span.0 < span.1) {
        let reach = if is_written { furthest } else { furthest_written };
        if reach.1 != usize::MAX && low < reach.0 {
            return Some((reach.1.min(at), reach.1.max(at)));
        }
        if high > furthest.0 {
            furthest = (high, at);
        }
        if is_written && high > furthest_written.0 {
            furthest_written = (high, at);
        }
    }
    None
}

//! Arrays that every rank can reach: numpy arrays on a block of the symmetric heap.
//!
//! ```text
//! numpy array ─base─▶ memoryview ─▶ SymmetricMemory ─▶ block of the heap
//! slices, DLPack consumers ─▶ the array                released when nobody holds it any more
//! ```

use std::ffi::{c_int, c_void};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi::{PyBuffer_FillInfo, Py_buffer};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use nvcoll_engine::memory::heap::HeapBlock;
use nvcoll_engine::ranks::member::Member;

use crate::engine::error::of_member;
use crate::error::invalid;

/// A block of memory that every rank can reach, with the buffer protocol. Not public.
#[pyclass(name = "SymmetricMemory", module = "nvcoll._nvcoll", frozen)]
struct SymmetricMemory {
    block: HeapBlock,
    bytes: usize,
}

#[pymethods]
impl SymmetricMemory {
    /// Lends the bytes; the lender lives as long as the buffer.
    ///
    /// # Safety
    /// `view` is a place for the answer, as Python passes it.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut Py_buffer, flags: c_int) -> PyResult<()> {
        let memory = slf.get();
        // SAFETY: `view` is a place for the answer; the block has so many bytes and lives as long as `slf`, to which the answer
        // holds a reference.
        unsafe { lend(slf.as_any(), memory.block.start().cast(), memory.bytes, view, flags) }
    }
}

/// Lends writable bytes of an object by the buffer protocol.
///
/// # Safety
/// `view` is a place for the answer, as Python passes it. From `start` on there are so many bytes, which live as long as the owner.
pub(crate) unsafe fn lend(
    owner: &Bound<'_, PyAny>,
    start: *mut c_void,
    bytes: usize,
    view: *mut Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    let length = isize::try_from(bytes).map_err(|_| PyBufferError::new_err("too long for a buffer"))?;
    // SAFETY: by the contract above; the answer holds a reference to the owner.
    match unsafe { PyBuffer_FillInfo(view, owner.as_ptr(), start, length, 0, flags) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(owner.py())),
    }
}

/// Makes an uninitialized numpy array that every rank can reach.
///
/// # Errors
/// `InvalidArgument` for a dtype of objects; `MemoryError`; numpy's errors for the shape and the dtype.
pub(crate) fn empty<'py>(
    member: &Member,
    shape: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = shape.py();
    let numpy = py.import(intern!(py, "numpy"))?;
    let dtype = numpy.call_method1(intern!(py, "dtype"), (dtype,))?;
    if dtype.getattr(intern!(py, "hasobject"))?.is_truthy()? {
        return Err(invalid(
            py,
            format!("`dtype` is {dtype}, whose elements are references: pass a dtype of plain bytes"),
        ));
    }
    if member.is_in_one_space() {
        return numpy.call_method1(intern!(py, "empty"), (shape, dtype));
    }
    let outline = match shape.extract::<isize>() {
        Ok(length) => PyTuple::new(py, [length])?,
        Err(_) => shape.try_iter()?.collect::<PyResult<Vec<_>>>().and_then(|axes| PyTuple::new(py, axes))?,
    };
    let mut bytes: usize = dtype.getattr(intern!(py, "itemsize"))?.extract()?;
    for length in outline.iter() {
        let length: isize = length.extract()?;
        let fits = usize::try_from(length).ok().and_then(|length| bytes.checked_mul(length));
        bytes = fits.ok_or_else(|| invalid(py, format!("`shape` is {shape}: pass lengths from 0 that fit memory")))?;
    }
    let block = py.detach(|| member.allocate(bytes)).map_err(|error| of_member(py, member, &error))?;
    let Some(block) = block else { return numpy.call_method1(intern!(py, "empty"), (shape, dtype)) };
    let memory = Bound::new(py, SymmetricMemory { block, bytes })?;
    numpy.call_method1(intern!(py, "ndarray"), (outline, dtype, memory))
}

//! The arrays that one rank passed to a call, as bytes for Python code that moves them itself.
//!
//! ```text
//! PassedArrays ─input, output─▶ PassedBytes ─memoryview─▶ the array, or its packed copy
//! ```

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use pyo3::ffi::Py_buffer;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use super::contract::Side;
use super::operands::Operands;
use super::symmetric::lend;

/// The arrays and arguments that a rank passed to a call, checked. Not public: it is for hosts.
#[pyclass(name = "_Passed", module = "nvcoll._nvcoll", frozen)]
pub(crate) struct PassedArrays {
    operands: Mutex<Operands>,
    /// What the call returns.
    #[pyo3(get)]
    result: Py<PyAny>,
    /// The name of the dtype of all arrays.
    #[pyo3(get)]
    dtype: &'static str,
    /// The elements of each part, or of the one array; of an all_to_all, of the part from each rank to each.
    #[pyo3(get)]
    counts: Vec<usize>,
    /// The rank with the data, or that receives them; 0 if there is none.
    #[pyo3(get)]
    root: u32,
    /// The name of the op; of a call that copies, sum.
    #[pyo3(get)]
    op: &'static str,
    /// The scalar of `premul_sum`, else 1.
    #[pyo3(get)]
    scalar: f64,
}

/// The bytes of one of them, with the buffer protocol. Not public.
#[pyclass(name = "_PassedBytes", module = "nvcoll._nvcoll", frozen)]
struct PassedBytes {
    passed: Py<PassedArrays>,
    side: Side,
}

impl PassedArrays {
    /// Takes the arrays of one rank, and fills packed copies.
    pub(crate) fn new(mut operands: Operands, result: Py<PyAny>, op: &'static str, scalar: f64) -> Self {
        operands.gather();
        let (dtype, counts) = (operands.dtype.name(), operands.contract.counts_of_parts());
        let root = operands.contract.roles.root;
        Self { operands: Mutex::new(operands), result, dtype, counts, root, op, scalar }
    }
}

#[pymethods]
impl PassedArrays {
    /// The bytes that this rank contributes.
    #[getter]
    fn input(slf: Bound<'_, Self>) -> PyResult<Bound<'_, PyMemoryView>> {
        bytes_of(slf, Side::Input)
    }

    /// The bytes that this rank receives; they may be the bytes of the input, or some of them.
    #[getter]
    fn output(slf: Bound<'_, Self>) -> PyResult<Bound<'_, PyMemoryView>> {
        bytes_of(slf, Side::Output)
    }

    /// Copies the received bytes to the array, if they are a copy of it.
    fn write_back(&self) {
        self.operands.lock().unwrap_or_else(PoisonError::into_inner).write_back();
    }
}

fn bytes_of(passed: Bound<'_, PassedArrays>, side: Side) -> PyResult<Bound<'_, PyMemoryView>> {
    let py = passed.py();
    PyMemoryView::from(Bound::new(py, PassedBytes { passed: passed.unbind(), side })?.as_any())
}

#[pymethods]
impl PassedBytes {
    /// Lends the bytes; the arrays live as long as the buffer.
    ///
    /// # Safety
    /// `view` is a place for the answer, as Python passes it.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut Py_buffer, flags: c_int) -> PyResult<()> {
        let operands = slf.get().passed.get().operands.lock().unwrap_or_else(PoisonError::into_inner);
        let (start, bytes) = operands.bytes_of_one_rank(slf.get().side);
        // SAFETY: `view` is a place for the answer; the operands hold the owners of so many bytes, and live as long as `slf`, to which
        // the answer holds a reference. The caller writes to an output alone, as hosts do.
        unsafe { lend(slf.as_any(), start.cast(), bytes, view, flags) }
    }
}

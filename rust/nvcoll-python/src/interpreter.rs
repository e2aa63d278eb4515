//! Refuses subinterpreters: calls in flight and ranks that are threads take the GIL of the main interpreter.

use pyo3::exceptions::PyImportError;
use pyo3::ffi::{PyInterpreterState_Get, PyInterpreterState_GetID};
use pyo3::prelude::*;

/// Refuses the import into a subinterpreter.
///
/// # Errors
/// `ImportError`.
pub(crate) fn require_main(_py: Python<'_>) -> PyResult<()> {
    // SAFETY: this thread is attached to an interpreter, whose state lives meanwhile.
    match unsafe { PyInterpreterState_GetID(PyInterpreterState_Get()) } {
        0 => Ok(()),
        _ => Err(PyImportError::new_err(
            "nvcoll does not run in a subinterpreter: import it in the main interpreter, or start a process",
        )),
    }
}

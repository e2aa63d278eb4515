//! The reasons why a call cannot use an object as an array.

use std::fmt::Display;

use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use nvcoll_core::dtype::DType;

use crate::error::invalid;

/// The reason why an object cannot be used.
#[derive(Debug)]
pub(super) enum Reason {
    /// The rest of a sentence that begins with argument and rank: what was found, what was expected, what to do.
    Refused(String),
    /// The exception of the object's Python code.
    Raised(PyErr),
}

impl Reason {
    pub(super) fn refused(rest: &str) -> Self {
        Self::Refused(rest.to_owned())
    }

    /// The dtype is not supported; `found` is its name in the object.
    pub(super) fn dtype(found: impl Display) -> Self {
        let names: Vec<&str> = DType::ALL.iter().map(|dtype| dtype.name()).collect();
        Self::Refused(format!("has dtype {found}: convert it to one of {}", names.join(", ")))
    }

    /// The dtype is supported, but not its byte order.
    pub(super) fn byte_order(found: impl Display) -> Self {
        Self::Refused(format!("has dtype {found}, whose byte order is not this machine's: convert it to native order"))
    }

    /// Count or distances do not fit an address.
    pub(super) fn too_large() -> Self {
        Self::refused("has a shape and strides that reach past the end of memory: pass a view of memory that exists")
    }

    /// Returns the exception; `name` begins its message. KeyboardInterrupt and similar exceptions pass unchanged.
    pub(super) fn about(self, py: Python<'_>, name: impl Display) -> PyErr {
        match self {
            Self::Refused(rest) => invalid(py, format!("{name} {rest}")),
            Self::Raised(error) if error.is_instance_of::<PyException>(py) => {
                let text = error.value(py).to_string();
                let first_line = text.lines().next().unwrap_or_default();
                let kind = error.get_type(py).name().map_or_else(|_| "error".to_owned(), |name| name.to_string());
                let advice = "pass a numpy array, or anything in CPU memory with DLPack or the buffer protocol";
                let refusal =
                    invalid(py, format!("{name} cannot be read as an array ({kind}: {first_line}): {advice}"));
                refusal.set_cause(py, Some(error));
                refusal
            }
            Self::Raised(error) => error,
        }
    }
}

impl From<PyErr> for Reason {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

/// Returns the name of an argument, or of the array of a rank in it, in messages.
pub(super) fn name_of(argument: &str, rank: Option<u32>) -> String {
    rank.map_or_else(|| quoted(argument), |rank| label(argument, rank))
}

pub(super) fn quoted(argument: &str) -> String {
    format!("`{argument}`")
}

pub(super) fn label(argument: &str, rank: u32) -> String {
    format!("`{argument}` of rank {rank}")
}

//! Stands in for `engine` in a build without it.

use pyo3::prelude::*;

pub(crate) mod proofs {
    /// No call needs a proof.
    #[derive(Default)]
    pub(crate) struct Proofs;
}

/// Gives the module stand-ins for the names that it lacks: each says what it needs when it is used.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__getattr__", module.py().import("nvcoll.without_engine")?.getattr("stand_in")?)
}

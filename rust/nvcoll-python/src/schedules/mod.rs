//! Schedules: the builder, proofs, and the registries of what can be scheduled.

mod builder;
mod refuted;
mod registries;
pub(crate) mod schedule;

use pyo3::prelude::*;

/// Adds the classes and functions of the room to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    refuted::register(module)?;
    module.add_class::<schedule::Schedule>()?;
    module.add_class::<schedule::Step>()?;
    module.add_class::<schedule::Proof>()?;
    module.add_class::<builder::Builder>()?;
    module.add_class::<builder::View>()?;
    module.add_function(wrap_pyfunction!(schedule::verify, module)?)?;
    module.add_function(wrap_pyfunction!(schedule::schedule, module)?)?;
    module.add_function(wrap_pyfunction!(schedule::why, module)?)?;
    registries::register(module)?;
    Ok(())
}

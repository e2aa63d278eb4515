//! Machines, and how long calls take on them: predictions, NCCL's choice, simulations.

mod conditions;
mod fabric;
mod fabric_cache;
mod nccl;
mod prediction;
mod settings;
mod simulate;
mod timeline;

use pyo3::prelude::*;

/// Adds the classes and functions of the room to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    fabric::register(module)?;
    nccl::register(module)?;
    settings::register(module)?;
    prediction::register(module)?;
    timeline::register(module)?;
    Ok(())
}

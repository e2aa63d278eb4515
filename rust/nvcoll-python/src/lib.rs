//! The Python binding. It reads arguments, releases the GIL, lets Ctrl-C in and turns errors into exceptions. The docstrings of its
//! classes and functions are here. `python/nvcoll` adds types and the command line.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod arrays;
mod builder;
mod call_counts;
mod calls;
mod collectives;
mod communicator;
mod conditions;
mod counts;
mod endpoint;
mod error;
mod fabric;
mod fabric_cache;
mod faults;
mod gil;
mod group;
mod integers;
mod issue;
#[cfg(target_os = "linux")]
mod job;
mod nccl;
mod node;
mod plan;
mod prediction;
#[cfg(target_os = "linux")]
mod recorder;
mod refuted;
mod registries;
mod request;
mod rows;
mod schedule;
mod settings;
mod simulate;
mod sizes;
mod team;
mod timeline;
mod tuning;
mod units;
mod work;

use pyo3::prelude::*;

#[pymodule]
fn _nvcoll(module: &Bound<'_, PyModule>) -> PyResult<()> {
    error::register(module)?;
    refuted::register(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<node::Node>()?;
    module.add_class::<plan::Plan>()?;
    module.add_class::<group::Group>()?;
    module.add_class::<work::Work>()?;
    module.add_class::<call_counts::CallCounts>()?;
    module.add_class::<call_counts::Calls>()?;
    module.add_class::<team::Team>()?;
    module.add_class::<communicator::Communicator>()?;
    module.add_class::<communicator::Message>()?;
    #[cfg(target_os = "linux")]
    module.add_class::<job::Job>()?;
    #[cfg(target_os = "linux")]
    module.add_class::<recorder::Recorder>()?;
    module.add_class::<schedule::Schedule>()?;
    module.add_class::<schedule::Step>()?;
    module.add_class::<schedule::Proof>()?;
    module.add_class::<builder::Builder>()?;
    module.add_class::<builder::View>()?;
    module.add_class::<calls::PremulSum>()?;
    module.add_function(wrap_pyfunction!(calls::premul_sum, module)?)?;
    module.add_function(wrap_pyfunction!(schedule::verify, module)?)?;
    module.add_function(wrap_pyfunction!(schedule::schedule, module)?)?;
    module.add_function(wrap_pyfunction!(schedule::why, module)?)?;
    module.add_function(wrap_pyfunction!(tuning::cost_model, module)?)?;
    module.add_function(wrap_pyfunction!(tuning::auto_candidates, module)?)?;
    module.add_function(wrap_pyfunction!(faults::arm, module)?)?;
    rows::register(module)?;
    module.add_function(wrap_pyfunction!(sizes::parse_size, module)?)?;
    registries::register(module)?;
    fabric::register(module)?;
    nccl::register(module)?;
    settings::register(module)?;
    prediction::register(module)?;
    timeline::register(module)?;
    gil::register(module)?;
    // The package, not the extension, says which names are public.
    module.delattr("__all__")
}

//! Calls and those who make them: nodes, communicators, teams, groups, works and plans.

pub(crate) mod call_counts;
pub(crate) mod choices;
pub(crate) mod collectives;
pub(crate) mod communicator;
pub(crate) mod endpoint;
pub(crate) mod faults;
pub(crate) mod group;
pub(crate) mod issue;
#[cfg(target_os = "linux")]
pub(crate) mod job;
pub(crate) mod node;
pub(crate) mod open_group;
pub(crate) mod plan;
#[cfg(target_os = "linux")]
pub(crate) mod recorder;
pub(crate) mod request;
pub(crate) mod team;
pub(crate) mod tuning;
pub(crate) mod work;

use pyo3::prelude::*;

/// Adds the classes and functions of the room to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
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
    module.add_class::<choices::PremulSum>()?;
    module.add_function(wrap_pyfunction!(choices::premul_sum, module)?)?;
    module.add_function(wrap_pyfunction!(tuning::cost_model, module)?)?;
    module.add_function(wrap_pyfunction!(tuning::auto_candidates, module)?)?;
    module.add_function(wrap_pyfunction!(faults::arm, module)?)?;
    Ok(())
}

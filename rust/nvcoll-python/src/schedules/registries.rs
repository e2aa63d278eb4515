//! The registries of the core, for tests, documentation and the CLI.

use pyo3::prelude::*;

use nvcoll_core::algorithm::{NamedAlgorithm, ALGORITHMS};
use nvcoll_core::collective::{Collective, COLLECTIVES};
use nvcoll_core::dtype::DType;
use nvcoll_core::limits::MAX_WORLD_SIZE;
use nvcoll_core::op::Op;
use nvcoll_fabric::predict::Pattern;

use crate::error::of_core;
use crate::integers::integer;
use crate::rows::{AlgorithmRow, CollectiveRow, DtypeRow, OpRow, ParameterRow};
use crate::schedules::schedule::collective_named;

/// Returns all registered algorithms.
#[pyfunction]
pub(crate) fn algorithms() -> Vec<AlgorithmRow> {
    ALGORITHMS.iter().copied().map(AlgorithmRow).collect()
}

/// Returns the parameters of a registered algorithm.
#[pyfunction]
pub(crate) fn algorithm_parameters(py: Python<'_>, collective: &str, name: &str) -> PyResult<Vec<ParameterRow>> {
    let named = NamedAlgorithm::read(collective_named(py, collective)?, name).map_err(|error| of_core(py, &error))?;
    Ok(named.parameters().iter().map(ParameterRow).collect())
}

/// Returns all collectives.
#[pyfunction]
pub(crate) fn collectives() -> Vec<CollectiveRow> {
    COLLECTIVES.iter().copied().map(CollectiveRow).collect()
}

/// Returns nvcoll's name of a collective, or of sendrecv, in the spelling of any tool, as `alltoall` or `AllReduce`; None if
/// there is none.
#[pyfunction]
pub(crate) fn collective_spelled(name: &str) -> Option<&'static str> {
    let pattern = || Pattern::named(name).ok().map(Pattern::name);
    Collective::named(name).map(|contract| contract.name).or_else(pattern)
}

/// Returns busbw / algbw of a collective among `world_size` ranks, as nccl-tests defines it.
#[pyfunction]
#[pyo3(signature = (collective, world_size: "int"))]
pub(crate) fn bus_factor(py: Python<'_>, collective: &str, world_size: &Bound<'_, PyAny>) -> PyResult<f64> {
    let world_size = integer("world_size", world_size, 1..=MAX_WORLD_SIZE)?;
    Ok((collective_named(py, collective)?.bus_factor)(world_size))
}

/// Returns all dtypes.
#[pyfunction]
pub(crate) fn dtypes() -> Vec<DtypeRow> {
    DType::ALL.iter().copied().map(DtypeRow).collect()
}

/// Returns all ops.
#[pyfunction]
pub(crate) fn ops() -> Vec<OpRow> {
    Op::ALL.iter().copied().map(OpRow).collect()
}

//! The registries of the core and the facts of this machine, for tests, documentation and the CLI.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use nvcoll_core::algorithm::{NamedAlgorithm, ALGORITHMS};
use nvcoll_core::collective::{Collective, COLLECTIVES};
use nvcoll_core::dtype::DType;
use nvcoll_core::limits::MAX_WORLD_SIZE;
use nvcoll_core::op::Op;
use nvcoll_engine::kernel::Isa;
#[cfg(target_os = "linux")]
use nvcoll_engine::memory::has_huge_pages;
use nvcoll_engine::roofline::handoff;
use nvcoll_engine::system::cpus;
#[cfg(target_os = "linux")]
use nvcoll_engine::system::memory::{available_bytes, group_memory};

use nvcoll_fabric::predict::Pattern;

use crate::error::of_core;
use crate::integers::integer;
use crate::rows::{AlgorithmRow, CollectiveRow, DtypeRow, OpRow, ParameterRow};
use crate::schedules::schedule::collective_named;

/// More than the numbers of processors. Chosen: the size of the system's affinity masks.
const MOST_PROCESSORS: u32 = 1024;

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

/// Returns the facts of this machine: CPU, usable CPUs, sizes of caches in bytes, instruction sets.
#[pyfunction]
pub(crate) fn machine(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let facts = PyDict::new(py);
    facts.set_item("cpu", cpus::model())?;
    facts.set_item("usable_cpus", cpus::usable())?;
    facts.set_item("cpu_quota", cpus::quota())?;
    facts.set_item("l1_bytes", cpus::cache_bytes(1))?;
    facts.set_item("l2_bytes", cpus::cache_bytes(2))?;
    facts.set_item("l3_bytes", cpus::cache_bytes(3))?;
    facts.set_item("isa", Isa::detect().name())?;
    facts.set_item("isas", Isa::available().iter().map(|isa| isa.short_name()).collect::<Vec<_>>())?;
    Ok(facts)
}

/// Returns the memory that this process can still have, and whether memory between processes has huge pages.
#[cfg(target_os = "linux")]
#[pyfunction]
pub(crate) fn memory(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let (facts, group) = (PyDict::new(py), group_memory());
    facts.set_item("available_bytes", available_bytes())?;
    facts.set_item("group_limit_bytes", group.map(|group| group.limit_bytes))?;
    facts.set_item("group_left_bytes", group.map(|group| group.left_bytes))?;
    facts.set_item("has_huge_pages", py.detach(has_huge_pages))?;
    Ok(facts)
}

/// Measures the time from a store on one of two processors until the other one sees it. It takes some milliseconds.
///
/// Args:
///     first, second: the processors, by their numbers in the system.
///
/// Returns:
///     The time in nanoseconds.
///
/// Raises:
///     InvalidArgument: a number is no processor's.
#[pyfunction]
#[pyo3(signature = (first: "int", second: "int"))]
pub(crate) fn handoff_ns(py: Python<'_>, first: &Bound<'_, PyAny>, second: &Bound<'_, PyAny>) -> PyResult<f64> {
    let number = |name, value| integer(name, value, 0..=MOST_PROCESSORS - 1).map(|number| number as usize);
    let pair = [number("first", first)?, number("second", second)?];
    Ok(py.detach(|| handoff(pair)).as_secs_f64() * 1e9)
}

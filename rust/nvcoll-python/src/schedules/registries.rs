//! The registries of the core and the facts of this machine, for tests, documentation and the CLI.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use nvcoll_core::algorithm::{Algorithm, NamedAlgorithm, ALGORITHMS};
use nvcoll_core::collective::{Collective, Folds, COLLECTIVES};
use nvcoll_core::dtype::DType;
use nvcoll_core::limits::MAX_WORLD_SIZE;
use nvcoll_core::op::Op;
use nvcoll_engine::kernel::Isa;
#[cfg(target_os = "linux")]
use nvcoll_engine::memory::has_huge_pages;
use nvcoll_engine::system::cpus;
#[cfg(target_os = "linux")]
use nvcoll_engine::system::memory::{available_bytes, group_memory};

use crate::error::of_core;
use crate::integers::integer;
use crate::rows::{AlgorithmRow, CollectiveRow, DtypeRow, OpRow, ParameterRow};
use crate::schedules::schedule::collective_named;

/// Returns all registered algorithms.
#[pyfunction]
pub(crate) fn algorithms() -> Vec<AlgorithmRow> {
    let row = |algorithm: &&'static Algorithm| AlgorithmRow {
        collective: algorithm.collective.name,
        name: algorithm.name,
        order: algorithm.order.name(),
        summary: algorithm.summary,
        source: algorithm.source,
    };
    ALGORITHMS.iter().map(row).collect()
}

/// Returns the parameters of a registered algorithm.
#[pyfunction]
pub(crate) fn algorithm_parameters(py: Python<'_>, collective: &str, name: &str) -> PyResult<Vec<ParameterRow>> {
    let named = NamedAlgorithm::read(collective_named(py, collective)?, name).map_err(|error| of_core(py, &error))?;
    let parameters = named.parameters().iter().map(|parameter| ParameterRow {
        name: parameter.name,
        choices: parameter.choices(),
        default: parameter.default(),
        summary: parameter.summary,
    });
    Ok(parameters.collect())
}

/// Returns all collectives.
#[pyfunction]
pub(crate) fn collectives() -> Vec<CollectiveRow> {
    let folds = |folds| match folds {
        Folds::Nothing => "nothing",
        Folds::Everyone => "everyone",
        Folds::Predecessors => "predecessors",
    };
    let row = |collective: &&'static Collective| CollectiveRow {
        name: collective.name,
        summary: collective.summary,
        has_root: collective.has_root,
        can_be_in_place: collective.can_be_in_place,
        folds: folds(collective.folds),
    };
    COLLECTIVES.iter().map(row).collect()
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
    let row = |dtype: &DType| DtypeRow {
        name: dtype.name(),
        nbytes: dtype.bytes(),
        kind: dtype.kind().name(),
        accumulator: dtype.accumulator().name(),
    };
    DType::ALL.iter().map(row).collect()
}

/// Returns all ops.
#[pyfunction]
pub(crate) fn ops() -> Vec<OpRow> {
    let defined = |op: &Op| DType::ALL.iter().filter(|d| op.is_defined_on(**d)).map(|d| d.name()).collect();
    Op::ALL.iter().map(|op| OpRow { name: op.name(), dtypes: defined(op) }).collect()
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

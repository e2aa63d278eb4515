//! The facts of this machine, for tests, `auto` and the CLI.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use nvcoll_engine::kernel::Isa;
use nvcoll_engine::memory::has_huge_pages;
use nvcoll_engine::roofline::handoff;
use nvcoll_engine::system::caches::{ring_bytes, staging_bytes};
use nvcoll_engine::system::cpus;
use nvcoll_engine::system::memory::{available_bytes, group_memory};

use crate::integers::integer;

/// More than the numbers of processors. Chosen: the size of the system's affinity masks.
const MOST_PROCESSORS: u32 = 1024;

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

/// Returns the memory that this process can still have, whether memory between processes has huge pages, and the staging of a rank: in a
/// world of one rank per CPU and in one of twice as many.
#[pyfunction]
pub(crate) fn memory(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let (facts, group) = (PyDict::new(py), group_memory());
    facts.set_item("available_bytes", available_bytes())?;
    facts.set_item("group_limit_bytes", group.map(|group| group.limit_bytes))?;
    facts.set_item("group_left_bytes", group.map(|group| group.left_bytes))?;
    facts.set_item("has_huge_pages", py.detach(has_huge_pages))?;
    let cpus = cpus::online().unwrap_or(1) as u32;
    facts.set_item("staging_bytes", [cpus, 2 * cpus].map(|ranks| staging_bytes(ranks, ring_bytes(ranks))))?;
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

//! The registries and the machine, as Python lists and dictionaries: what tests, docs and the CLI iterate.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use nvcoll_core::algorithm::{Named, ALGORITHMS};
use nvcoll_core::collective::{Collective, Folds, Roles, ALL_REDUCE, COLLECTIVES};
use nvcoll_core::dtype::DType;
use nvcoll_core::limits::{MAX_RUNNING_RANKS, MAX_WORLD_SIZE};
use nvcoll_core::op::Op;
use nvcoll_engine::kernel::Isa;
use nvcoll_engine::roofline::{Roofline, StoreMode};
use nvcoll_engine::system::cpus;

use crate::arrays::{Caller, Contract, Operands, Passed};
use crate::error::of_core;
use crate::schedule::collective_named;
use crate::whole::whole;

/// More threads than any machine has processors for. Chosen.
const ROOFLINE_THREADS: u32 = 1024;

/// All algorithms: (collective, name, order, summary, source).
#[pyfunction]
fn algorithms() -> Vec<(&'static str, &'static str, &'static str, &'static str, &'static str)> {
    ALGORITHMS.iter().map(|a| (a.collective.name, a.name, a.order.name(), a.summary, a.source)).collect()
}

/// The parameters of a registered algorithm: (name, what it can be, what it is unless given, summary).
#[pyfunction]
fn algorithm_parameters(
    py: Python<'_>,
    collective: &str,
    name: &str,
) -> PyResult<Vec<(&'static str, String, &'static str, &'static str)>> {
    let named = Named::read(collective_named(py, collective)?, name).map_err(|error| of_core(py, &error))?;
    Ok(named.parameters().iter().map(|p| (p.name, p.choices(), p.default(), p.summary)).collect())
}

/// All collectives: (name, summary, whether one rank is the root, whether it can be in place, what it folds).
#[pyfunction]
fn collectives() -> Vec<(&'static str, &'static str, bool, bool, &'static str)> {
    let folds = |folds| match folds {
        Folds::Nothing => "nothing",
        Folds::Everyone => "everyone",
        Folds::Predecessors => "predecessors",
    };
    COLLECTIVES.iter().map(|c| (c.name, c.summary, c.has_root, c.can_be_in_place, folds(c.folds))).collect()
}

/// busbw / algbw of a collective among so many ranks, as nccl-tests has it.
#[pyfunction]
fn bus_factor(py: Python<'_>, collective: &str, world_size: &Bound<'_, PyAny>) -> PyResult<f64> {
    let world_size = whole("world_size", world_size, 1..=MAX_WORLD_SIZE)?;
    let named = Collective::named(collective);
    let unknown = || crate::error::invalid(py, format!("no collective is called `{collective}`"));
    named.map(|c| (c.bus_factor)(world_size)).ok_or_else(unknown)
}

/// All dtypes: (name, bytes, kind, name of the accumulator).
#[pyfunction]
fn dtypes() -> Vec<(&'static str, usize, &'static str, &'static str)> {
    DType::ALL.iter().map(|d| (d.name(), d.bytes(), d.kind().name(), d.accumulator().name())).collect()
}

/// All ops: (name, names of the dtypes on which it is defined).
#[pyfunction]
fn ops() -> Vec<(&'static str, Vec<&'static str>)> {
    let defined = |op: &Op| DType::ALL.iter().filter(|d| op.is_defined_on(**d)).map(|d| d.name()).collect();
    Op::ALL.iter().map(|op| (op.name(), defined(op))).collect()
}

/// What this machine offers.
#[pyfunction]
fn machine(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
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

/// Sums float32 arrays in place by the hand-written loop of `threads` threads; returns seconds.
#[pyfunction]
#[pyo3(signature = (arrays, threads, *, non_temporal=false))]
fn roofline(
    py: Python<'_>,
    arrays: &Bound<'_, PyAny>,
    threads: &Bound<'_, PyAny>,
    non_temporal: bool,
) -> PyResult<f64> {
    let threads = whole("threads", threads, 1..=ROOFLINE_THREADS)? as usize;
    let ranks = u32::try_from(arrays.len()?).unwrap_or(u32::MAX);
    if ranks == 0 {
        return Err(crate::error::invalid(py, "the roofline adds at least one array"));
    }
    let (roles, passed) = (Roles::of(ranks), Passed { arrays, out: None, counts: None, is_deferred: false });
    let (operands, _) = Operands::new(py, Contract::new(&ALL_REDUCE, roles), Caller::Node, passed)?;
    let starts: Vec<*mut f32> = operands.buffers(|_| 1.0).iter().map(|buffers| buffers.input.cast()).collect();
    let is_aligned = starts.iter().all(|start| start.is_aligned());
    if operands.dtype() != DType::F32 || operands.is_strided() || !is_aligned {
        return Err(crate::error::invalid(py, "the roofline adds contiguous aligned float32 arrays"));
    }
    let (mut starts, counts) = (crate::gil::Detached(starts), operands.counts());
    let count = counts.of_parts(&ALL_REDUCE, roles)[0];
    let stores = if non_temporal { StoreMode::NonTemporal } else { StoreMode::Plain };
    let time = py.detach(|| {
        let mut roofline = Roofline::new(threads, starts.get().len());
        // SAFETY: the arrays were checked for count, dtype and overlap and are held until this call returns.
        unsafe { roofline.run(starts.get(), count, stores) }
    });
    Ok(time.as_secs_f64())
}

/// Adds the functions to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("MAX_WORLD_SIZE", MAX_WORLD_SIZE)?;
    module.add("MAX_RUNNING_RANKS", MAX_RUNNING_RANKS)?;
    module.add_function(wrap_pyfunction!(algorithms, module)?)?;
    module.add_function(wrap_pyfunction!(algorithm_parameters, module)?)?;
    module.add_function(wrap_pyfunction!(collectives, module)?)?;
    module.add_function(wrap_pyfunction!(bus_factor, module)?)?;
    module.add_function(wrap_pyfunction!(dtypes, module)?)?;
    module.add_function(wrap_pyfunction!(ops, module)?)?;
    module.add_function(wrap_pyfunction!(roofline, module)?)?;
    module.add_function(wrap_pyfunction!(machine, module)?)
}

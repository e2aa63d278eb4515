//! The roofline of benchmarks: a hand-written loop over the arrays of a call.

use pyo3::prelude::*;

use nvcoll_core::collective::{Roles, ALL_REDUCE};
use nvcoll_core::dtype::DType;
use nvcoll_engine::roofline::StoreMode;

use super::contract::Contract;
use super::operands::{Operands, Passed};
use crate::error::invalid;
use crate::integers::integer;

/// The most threads of a roofline. Chosen: more than any machine has processors.
const MOST_THREADS: u32 = 1024;

/// Sums float32 arrays into each other with a hand-written loop, for benchmarks.
///
/// Args:
///     arrays: one array per rank, (count,), float32, contiguous and aligned. Written.
///     threads: the number of threads, 1 to 1024.
///     non_temporal: whether the loop uses non-temporal stores.
///
/// Returns:
///     The time in seconds.
///
/// Raises:
///     InvalidArgument: there is no array, or one cannot be used.
#[pyfunction]
#[pyo3(signature = (arrays, threads: "int", *, non_temporal=false))]
pub(crate) fn roofline(
    py: Python<'_>,
    arrays: &Bound<'_, PyAny>,
    threads: &Bound<'_, PyAny>,
    non_temporal: bool,
) -> PyResult<f64> {
    let threads = integer("threads", threads, 1..=MOST_THREADS)? as usize;
    let ranks = u32::try_from(arrays.len()?).unwrap_or(u32::MAX);
    if ranks == 0 {
        return Err(invalid(py, "the roofline adds at least one array"));
    }
    let (roles, passed) =
        (Roles::of(ranks), Passed { arrays, out: None, counts: None, is_deferred: false, member: None });
    let (operands, _) = Operands::new(py, Contract::new(&ALL_REDUCE, roles, None), passed)?;
    let buffers = operands.buffers(|_| 1.0);
    let is_aligned = buffers.iter().all(|buffers| buffers.input.cast::<f32>().is_aligned());
    if operands.dtype != DType::F32 || operands.is_strided() || !is_aligned {
        return Err(invalid(py, "the roofline adds contiguous aligned float32 arrays"));
    }
    let count = operands.contract.counts.of_parts(&ALL_REDUCE, roles)[0];
    let stores = if non_temporal { StoreMode::NonTemporal } else { StoreMode::Plain };
    let time = py.detach(|| {
        let starts: Vec<*mut f32> = buffers.iter().map(|buffers| buffers.input.cast()).collect();
        // SAFETY: `Operands::new` checked count, dtype and overlap of the arrays, their alignment was checked here, and
        // `operands` holds their owners until this function returns.
        unsafe { nvcoll_engine::roofline::run(threads, &starts, count, stores) }
    });
    Ok(time.as_secs_f64())
}

//! The faults of `nvcoll.testing`: a test has something happen to a rank at a moment of one of its calls.

use std::time::Duration;

use pyo3::prelude::*;

use nvcoll_engine::run::fault::{Moment, Strike};

use crate::calls::communicator::Communicator;
use crate::engine::error::of_engine;
use crate::error::invalid;

/// Has a fault strike this rank in a call of a communicator. Not public.
#[pyfunction]
#[pyo3(signature = (comm, is_of_messages, call, step, strike, report))]
pub(crate) fn arm(
    py: Python<'_>,
    comm: &Communicator,
    is_of_messages: bool,
    call: u32,
    step: Option<i64>,
    strike: (String, f64),
    report: Option<i32>,
) -> PyResult<()> {
    let at = match step {
        None => Moment::Before,
        Some(-1) => Moment::Leave,
        Some(step) => Moment::After(u32::try_from(step).map_err(|_| {
            invalid(
                py,
                format!("`step` is {step}: pass the number of steps, -1 for the end, or None for before the call"),
            )
        })?),
    };
    let (strike, number) = (&*strike.0, strike.1);
    let strike = match strike {
        "signal" => Strike::Signal(number as i32),
        "exit" => Strike::Exit(number as i32),
        "delay" => {
            Strike::Delay(Duration::try_from_secs_f64(number).map_err(|e| invalid(py, format!("`seconds`: {e}")))?)
        }
        "memory" => Strike::NoMemory,
        "descriptors" => Strike::NoDescriptors,
        "raise" => Strike::Raise,
        other => return Err(invalid(py, format!("`strike` is {other}, which is none"))),
    };
    comm.member().arm(is_of_messages, call, at, strike, report).map_err(|error| of_engine(py, &error))
}

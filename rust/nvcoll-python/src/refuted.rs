//! `Refuted`: the finding of the verifier, as an exception with attributes.
//!
//! `places` are the steps and leaves in the message, or the steps that write the outputs in the message, in the text form. `missing`
//! is the missing wait, or None. An exception without a schedule has no places and no missing wait.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use nvcoll_core::schedule::{Aliasing, Schedule, View};
use nvcoll_core::verify::{BufferChunk, Refutation, Violation};

use crate::error::raise;

/// Makes the exception of a proof that failed.
pub(crate) fn refuted(py: Python<'_>, schedule: &Schedule, refutation: &Refutation) -> PyErr {
    let error = raise(py, "Refuted", refutation.to_string());
    let value = error.value(py);
    let places = PyTuple::new(py, places(schedule, &refutation.violation));
    let raised = places
        .and_then(|places| value.setattr("places", places))
        .and_then(|()| value.setattr("missing", refutation.violation.missing().map(|missing| missing.to_string())));
    raised.err().unwrap_or(error)
}

fn places(schedule: &Schedule, violation: &Violation) -> Vec<String> {
    let writers = |cells: &[&BufferChunk]| cells.iter().filter_map(|cell| last_writer(schedule, cell)).collect();
    match violation {
        Violation::WrongOutput { cell, .. } => writers(&[cell]),
        Violation::Disagreement { cell, other, .. } => writers(&[cell, other]),
        _ => violation.places().iter().map(ToString::to_string).collect(),
    }
}

/// Returns the name of the step that writes an output last, in the author's order.
fn last_writer(schedule: &Schedule, cell: &BufferChunk) -> Option<String> {
    let is_output = |view: &View| match schedule.aliasing {
        Aliasing::InPlace => view.buffer.is_user(),
        Aliasing::Disjoint => view.buffer == cell.buffer,
    };
    let writes = |view: &View| view.rank == cell.rank && is_output(view) && view.chunks.contains(&cell.chunk);
    let last = schedule.steps.iter().rev().find(|step| step.dst.iter().any(writes))?;
    Some(format!("r{}.q{}.{}", last.rank, last.queue, last.index))
}

//! The calls of a group, which the engine runs as one batch.

use pyo3::prelude::*;

use nvcoll_engine::program::batch::Batch;
use nvcoll_engine::Deadline;

use super::bound::BoundArrays;
use super::operands::Operands;
use super::prepared::{Kept, Prepared};
use crate::endpoint::Endpoint;
use crate::error::of_member;
use crate::gil::{interruptible, watched, watched_rank, WithoutGil};

/// Kept calls that run as one batch.
pub(crate) struct Launch {
    calls: Vec<Prepared>,
    /// Of the arrays of `calls`.
    bound: BoundArrays,
    /// The positions of the calls of which the engine sees copies.
    copied: Vec<usize>,
    /// Has the buffers of `calls`.
    batch: Batch,
}

impl Launch {
    /// Makes the batch of calls that `endpoint` prepared. Ranks that are processes agree on the path of the calls first.
    ///
    /// # Errors
    /// `InvalidArgument` if arrays of two calls share memory and one of them is written; the exceptions of a call.
    pub(crate) fn new(py: Python<'_>, kept: Vec<Kept>, endpoint: &Endpoint, deadline: Deadline) -> PyResult<Self> {
        let (mut calls, mut bound) = (Vec::with_capacity(kept.len()), BoundArrays::default());
        for one in kept {
            calls.push(one.call);
            bound.append(one.bound);
        }
        let operands: Vec<&Operands> = calls.iter().map(|call| &call.operands).collect();
        Operands::check_apart_from_each_other(py, &operands)?;
        let is_mapped = agreed(py, &calls, endpoint, deadline)?;
        let copied = (0..calls.len()).filter(|&nth| operands[nth].is_copied()).collect();
        let mut batch = Batch::new(calls.iter().map(|call| (call.chosen(is_mapped), call.buffers.clone())).collect());
        operands.iter().enumerate().for_each(|(nth, operands)| batch.set_originals(nth, operands.originals()));
        Ok(Self { calls, bound, copied, batch })
    }

    /// Runs the calls for the ranks of `endpoint`, which prepared them, without the GIL.
    ///
    /// # Errors
    /// `InvalidArgument` if a numpy array has moved since its call was kept; the exceptions of the run.
    pub(crate) fn run(&mut self, py: Python<'_>, endpoint: &Endpoint, deadline: Deadline) -> PyResult<()> {
        self.bound.check(py, "group")?;
        self.copied.iter().for_each(|&nth| self.calls[nth].operands.gather(py));
        let batch = &mut self.batch;
        match endpoint.member() {
            None => {
                // SAFETY: the batch has the buffers of the calls, which keep every demand on one call; `new` checked that calls
                // do not write what others touch. The node checks the number of ranks.
                watched(py, |is_interrupted| unsafe { endpoint.node().run_batch(batch, deadline, is_interrupted) })?;
            }
            Some(member) => {
                self.calls.iter().for_each(|call| call.operands.require_rank(member.rank()));
                // SAFETY: as above, and the arrays are this rank's. The engine compares the footprints of ranks when they meet,
                // so that no rank writes an array of another.
                watched_rank(py, member, |is_interrupted| unsafe {
                    member.run_batch(batch, deadline, is_interrupted)
                })?;
            }
        }
        endpoint.count_batch(batch);
        self.copied.iter().for_each(|&nth| self.calls[nth].operands.write_back(py));
        if let Some(member) = endpoint.member().filter(|_| !self.copied.is_empty()) {
            member.results_are_back();
        }
        Ok(())
    }

    /// Returns the number of calls.
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Returns the Python objects that the calls hold, for the garbage collector.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Py<PyAny>> {
        self.calls.iter().flat_map(|call| call.operands.objects()).chain(self.bound.objects())
    }
}

/// Says whether the ranks run the calls mapped that leave the path open. There is nothing to agree on if all calls name theirs, and
/// then no rank asks.
fn agreed(py: Python<'_>, calls: &[Prepared], endpoint: &Endpoint, deadline: Deadline) -> PyResult<bool> {
    let mut open = calls.iter().filter(|call| call.program.call().is_path_agreed).peekable();
    let Some(member) = endpoint.member().filter(|_| open.peek().is_some()) else { return Ok(false) };
    let is_offered = open.all(|call| call.mapped.is_some());
    let agreed =
        interruptible(|is_interrupted| member.agree_on_mapped(is_offered, deadline, &WithoutGil(py), is_interrupted))?;
    agreed.map_err(|error| of_member(py, member, &error))
}

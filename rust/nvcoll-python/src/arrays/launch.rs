//! The calls of a group, which the engine runs as one batch.

use pyo3::prelude::*;

use nvcoll_engine::messages::transfer::Direction;
use nvcoll_engine::program::batch::Batch;
use nvcoll_engine::ranks::member::Member;
use nvcoll_engine::{Deadline, OriginalArray};

use super::bound::BoundArrays;
use super::in_flight::LaneOfRank;
use super::message::MessageArray;
use super::operands::Operands;
use super::prepared::{Kept, Prepared};
use crate::calls::endpoint::Endpoint;
use crate::gil::{watched, watched_rank};

/// Kept calls that run as one batch.
pub(crate) struct Launch {
    calls: Vec<Prepared>,
    /// Sends, then receives.
    messages: Vec<MessageArray>,
    /// Of the arrays of both.
    bound: BoundArrays,
    /// Has the buffers of `calls`; made at the first run, in which ranks agree on its path.
    batch: Option<Batch>,
}

impl Launch {
    /// Puts calls together that one endpoint prepared.
    ///
    /// # Errors
    /// `InvalidArgument` if arrays of two calls share memory and one of them is written.
    pub(crate) fn new(py: Python<'_>, kept: Vec<Kept>, mut messages: Vec<MessageArray>) -> PyResult<Self> {
        let (mut calls, mut bound) = (Vec::with_capacity(kept.len()), BoundArrays::default());
        for one in kept {
            calls.push(one.call);
            bound.append(one.bound);
        }
        let operands: Vec<&Operands> = calls.iter().map(|call| &call.operands).collect();
        Operands::check_apart_from_each_other(py, &operands)?;
        messages.sort_by_key(|message| matches!(message.direction, Direction::From(_)));
        let others: Vec<_> = calls.iter().flat_map(Prepared::arrays).collect();
        MessageArray::check_apart(py, &messages.iter().collect::<Vec<_>>(), &others)?;
        messages.iter().for_each(|message| message.bind(py, &mut bound));
        Ok(Self { calls, messages, bound, batch: None })
    }

    /// Refuses a run if a numpy array has moved since its call was kept, or if an array is in flight, other than in calls before it on
    /// `lane`.
    ///
    /// # Errors
    /// `InvalidArgument`, `Busy`.
    pub(crate) fn check(&self, py: Python<'_>, lane: Option<LaneOfRank>) -> PyResult<()> {
        self.bound.check(py, "group")?;
        self.messages.iter().try_for_each(|message| message.refuse_in_flight(py, lane))?;
        self.calls.iter().try_for_each(|call| call.refuse_in_flight(py, lane))
    }

    /// Runs the calls for the ranks of `endpoint`, which prepared them, without the GIL.
    ///
    /// # Errors
    /// Those of [`Launch::check`]; the exceptions of the run.
    pub(crate) fn run(&mut self, py: Python<'_>, endpoint: &Endpoint, deadline: Deadline) -> PyResult<()> {
        self.check(py, None)?;
        match endpoint.member() {
            None => watched(py, |is_interrupted| {
                self.gather();
                let batch = self.batch(false);
                // SAFETY: the batch has the buffers of the calls, which keep every demand on one call; `new` checked that calls
                // do not write what others touch. The node checks the number of ranks.
                unsafe { endpoint.node().run_batch(batch, deadline, is_interrupted) }?;
                self.write_back();
                Ok(())
            })?,
            Some(member) => {
                watched_rank(py, member, |is_interrupted| self.run_of_rank(member, deadline, is_interrupted))?;
            }
        }
        self.count(endpoint);
        Ok(())
    }

    /// Makes the sends and receives, and runs the calls meanwhile, for their rank and on a thread without the GIL.
    pub(crate) fn run_of_rank(
        &mut self,
        member: &Member,
        deadline: Deadline,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> nvcoll_engine::Result<()> {
        if self.messages.is_empty() {
            return self.run_calls(member, deadline, is_interrupted);
        }
        let messages = std::mem::take(&mut self.messages);
        let made = MessageArray::exchange_around(&messages, member, deadline, is_interrupted, |is_interrupted| {
            match self.calls.is_empty() {
                true => Ok(()),
                false => self.run_calls(member, deadline, is_interrupted),
            }
        });
        self.messages = messages;
        made
    }

    /// Runs the calls for their rank, on a thread without the GIL. At the first run, ranks that are processes agree on the path.
    fn run_calls(
        &mut self,
        member: &Member,
        deadline: Deadline,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> nvcoll_engine::Result<()> {
        self.calls.iter().for_each(|call| call.operands.require_rank(member.rank()));
        let is_mapped = match self.batch {
            None => self.agreed(member, deadline, is_interrupted)?,
            Some(_) => false,
        };
        self.gather();
        let batch = self.batch(is_mapped);
        // SAFETY: as in `run`, and the arrays are this rank's. The engine compares the footprints of ranks when they meet, so that
        // no rank writes an array of another.
        unsafe { member.run_batch(batch, deadline, is_interrupted) }?;
        if self.write_back() {
            member.results_are_back();
        }
        Ok(())
    }

    /// Counts the calls of a run that succeeded.
    pub(crate) fn count(&mut self, endpoint: &Endpoint) {
        self.batch.iter_mut().for_each(|batch| endpoint.count_batch(batch));
        self.messages.iter().for_each(|message| endpoint.count_message(message));
    }

    /// Returns the batch, and makes it at the first run.
    fn batch(&mut self, is_mapped: bool) -> &mut Batch {
        self.batch.get_or_insert_with(|| {
            let calls = self.calls.iter().map(|call| (call.chosen(is_mapped), call.buffers.clone())).collect();
            let mut batch = Batch::new(calls);
            let originals = self.calls.iter().map(|call| call.operands.originals()).enumerate();
            originals.for_each(|(nth, originals)| batch.set_originals(nth, originals));
            batch
        })
    }

    /// Says whether the ranks run the calls mapped that leave the path open. There is nothing to agree on if all calls name theirs, and
    /// then no rank asks.
    fn agreed(
        &self,
        member: &Member,
        deadline: Deadline,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> nvcoll_engine::Result<bool> {
        let mut open = self.calls.iter().filter(|call| call.program.call().is_path_agreed).peekable();
        if open.peek().is_none() {
            return Ok(false);
        }
        let is_offered = open.all(|call| call.mapped.is_some());
        member.agree_on_mapped(is_offered, deadline, is_interrupted)
    }

    fn gather(&mut self) {
        self.calls.iter_mut().for_each(|call| call.operands.gather());
    }

    /// Writes copies back, and says whether there are any.
    fn write_back(&mut self) -> bool {
        self.calls.iter_mut().for_each(|call| call.operands.write_back());
        self.calls.iter().any(|call| call.operands.is_copied())
    }

    /// Returns the arrays as the user passed them.
    pub(crate) fn arrays(&self) -> Vec<OriginalArray> {
        let of_calls = self.calls.iter().flat_map(|call| call.arrays());
        of_calls.chain(self.messages.iter().map(MessageArray::original)).collect()
    }

    /// Returns the number of calls.
    pub(crate) fn len(&self) -> usize {
        self.calls.len() + self.messages.len()
    }

    /// Returns the Python objects that the calls hold, for the garbage collector.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Py<PyAny>> {
        let messages = self.messages.iter().filter_map(MessageArray::object);
        self.calls.iter().flat_map(|call| call.operands.objects()).chain(messages).chain(self.bound.objects())
    }
}

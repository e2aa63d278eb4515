//! Bound calls: programs, and the addresses of their arrays.
//!
//! ```text
//! BoundCall::new ─run─▶                     once, now, or issued
//!       └─keep─▶ run─▶ run─▶ …              a plan
//!            └─▶ BoundCall::group ─add─▶    calls of a group, which run together
//! ```
//!
//! This file alone passes addresses of calls to the engine. The engine demands of the buffers of a call:
//!
//! | demand | kept by |
//! |---|---|
//! | they have the lengths and the aliasing that the program's call says | `BoundCall::new` compares program and operands |
//! | they do not overlap where one is written | [`Operands::new`] for one call, [`BoundCall::check_apart`] for several |
//! | they live until the run is over | the operands hold the owners of the arrays |
//! | they have not moved since the call was bound | a call runs at once, or looks before each run: [`BoundCall::check`] |
//! | nobody else touches them | the caller's promise, which no array library can enforce |

use std::future::Future;
use std::sync::Arc;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use nvcoll_core::collective::ALL_GATHER;
use nvcoll_core::counts::Counts;
use nvcoll_core::dtype::DType;
use nvcoll_core::schedule::{Aliasing, Path};
use nvcoll_core::words::counted;
use nvcoll_engine::call::{Call, CallPurpose};
use nvcoll_engine::memory::strided::TryBudget;
use nvcoll_engine::messages::transfer::Direction;
use nvcoll_engine::program::batch::Batch;
use nvcoll_engine::program::Program;
use nvcoll_engine::ranks::member::Member;
use nvcoll_engine::ranks::node::Node;
use nvcoll_engine::sync::condition::IsInterrupted;
use nvcoll_engine::{Buffers, Deadline, OriginalArray, Result, WaitLimit};

use super::bound::BoundArrays;
use super::in_flight::{self, IssueQueue};
use super::message::MessageArray;
use super::operands::{refuse_conflict, Operands, APART};

/// A program that several Python objects share.
pub(crate) type SharedProgram = Arc<Program>;

/// The programs of a call.
#[derive(Clone)]
pub(crate) struct Programs {
    pub(crate) own: SharedProgram,
    /// The program of the same call on the mapped path, if ranks may agree on it.
    pub(crate) mapped: Option<SharedProgram>,
}

impl Programs {
    /// Runs a call for its rank, on a thread without the GIL.
    ///
    /// # Safety
    /// The buffers are the rank's and meet the demands of this file; `originals` are the arrays of [`Operands::originals`].
    #[inline]
    pub(super) unsafe fn run_of_rank<'a, 'b>(
        &'a self,
        member: &'a Member,
        buffers: Buffers,
        originals: &'a [OriginalArray],
        limit: &'a mut WaitLimit<'b>,
    ) -> impl Future<Output = Result<()>> + use<'a, 'b> {
        // SAFETY: the caller's promise. The engine compares the footprints of ranks when they meet, so that no rank writes an
        // array of another.
        unsafe { member.run_call(&self.own, self.mapped.as_ref(), buffers, originals, limit) }
    }
}

/// One call, and its arrays.
struct OneCall {
    programs: Programs,
    operands: Operands,
    /// Of the arrays in `operands`.
    buffers: Vec<Buffers>,
}

/// A call that is checked and ready to run; or the calls and messages of a group, which run together.
pub(crate) struct BoundCall {
    calls: Vec<OneCall>,
    /// The messages of a group; sends, then receives, once it is checked.
    messages: Vec<MessageArray>,
    /// The calls of a group that Python code makes, if ranks are on several hosts.
    made: Vec<Py<PyAny>>,
    /// The arrays of a call that is kept.
    bound: BoundArrays,
    is_group: bool,
    /// Has the buffers of a group's calls; made at the first run, in which ranks agree on its path.
    batch: Option<Batch>,
}

impl BoundCall {
    /// Binds the programs of a call to its arrays; `scalar(i)` is the scalar of the i-th rank in premul_sum.
    ///
    /// # Panics
    /// If the program is of another call than the arrays.
    pub(crate) fn new(programs: Programs, operands: Operands, scalar: impl Fn(usize) -> f64) -> Self {
        assert!(operands.are_of(&programs.own), "{} got the arrays of another call", programs.own.call());
        let buffers = operands.buffers(scalar);
        Self { calls: vec![OneCall { programs, operands, buffers }], is_group: false, ..Self::group() }
    }

    /// Makes a group without calls.
    pub(crate) fn group() -> Self {
        let (calls, messages, made, bound) = (Vec::new(), Vec::new(), Vec::new(), BoundArrays::default());
        Self { calls, messages, made, bound, is_group: true, batch: None }
    }

    /// Records the arrays, for later runs.
    pub(crate) fn keep(mut self, py: Python<'_>) -> Self {
        self.bound = self.calls[0].operands.bind(py);
        self
    }

    /// Adds a call that is kept to a group.
    pub(crate) fn add(&mut self, kept: Self) {
        self.calls.extend(kept.calls);
        self.bound.append(kept.bound);
    }

    /// Adds a send or a receive to a group.
    pub(crate) fn add_message(&mut self, py: Python<'_>, message: MessageArray) {
        message.bind(py, &mut self.bound);
        self.messages.push(message);
    }

    /// Adds a call that Python code makes to a group.
    pub(crate) fn add_made(&mut self, call: Py<PyAny>) {
        self.made.push(call);
    }

    /// Returns the calls of a group that Python code makes: all, or none.
    pub(crate) fn made(&self) -> &[Py<PyAny>] {
        &self.made
    }

    /// Checks the arrays of a group before its first run.
    ///
    /// # Errors
    /// `InvalidArgument` if arrays of two calls share memory and one of them is written.
    pub(crate) fn check_apart(&mut self, py: Python<'_>) -> PyResult<()> {
        self.messages.sort_by_key(|message| matches!(message.direction, Direction::From(_)));
        // By number: the call, and the number of the array in it; or the message.
        let (mut ranges, mut places) = (Vec::new(), Vec::new());
        for (nth, OneCall { operands, .. }) in self.calls.iter().enumerate() {
            for (number, array, is_written) in operands.numbered() {
                ranges.push(array.placed(is_written, places.len()));
                places.push((nth, Some(number)));
            }
        }
        for (nth, message) in self.messages.iter().enumerate() {
            ranges.push(message.placed(places.len()));
            places.push((nth, None));
        }
        let label = |at: usize| match places[at] {
            (nth, Some(number)) => {
                format!("{} in call {} of the group", self.calls[nth].operands.label(number), nth + 1)
            }
            (nth, None) => self.messages[nth].label(),
        };
        refuse_conflict(py, &mut ranges, &mut TryBudget::of_a_call(), label, |_, _| APART.into())
    }

    /// Refuses a run if a numpy array has moved since its call was kept, or if an array is in flight, other than in calls before it on
    /// `queue`.
    ///
    /// # Errors
    /// `InvalidArgument`, `Busy`.
    #[inline]
    pub(crate) fn check(&self, py: Python<'_>, queue: Option<IssueQueue>) -> PyResult<()> {
        self.bound.check(py, if self.is_group { "group" } else { "plan" })?;
        if !in_flight::any() {
            return Ok(());
        }
        self.messages.iter().try_for_each(|message| message.refuse_in_flight(py, queue))?;
        self.calls.iter().try_for_each(|OneCall { programs, operands, .. }| {
            in_flight::check(py, programs.own.call(), &operands.arrays(), queue, |at| operands.name(at))
        })
    }

    /// Runs the call for all ranks of a node, on a thread without the GIL. Strided arrays are packed before and written back after.
    pub(crate) fn run_of_node(
        &mut self,
        node: &Node,
        deadline: Deadline,
        is_interrupted: IsInterrupted<'_>,
    ) -> Result<()> {
        self.calls.iter_mut().for_each(|call| call.operands.gather());
        match self.is_group {
            // SAFETY: the table of this file says what keeps each demand; the node checks the number of ranks.
            true => unsafe { node.run_batch(self.batch(false), deadline, is_interrupted) }?,
            false => {
                let OneCall { programs, buffers, .. } = &mut self.calls[0];
                // SAFETY: as above.
                unsafe { node.run(&programs.own, buffers, deadline, is_interrupted) }?;
            }
        }
        self.calls.iter_mut().for_each(|call| call.operands.write_back());
        Ok(())
    }

    /// Runs the call for its rank, on a thread without the GIL; a group makes its sends and receives meanwhile.
    #[inline]
    pub(crate) async fn run_of_rank(&mut self, member: &Member, limit: &mut WaitLimit<'_>) -> Result<()> {
        if self.messages.is_empty() {
            return self.run_calls(member, limit).await;
        }
        let (begun, refused) = MessageArray::begin_all(&self.messages, member);
        let mut made = refused.map_or(Ok(()), Err);
        if made.is_ok() && !self.calls.is_empty() {
            // The transfers move during the calls.
            made = begun.iter().try_for_each(|transfer| member.leave_in_flight(transfer, limit.deadline()));
            if made.is_ok() {
                made = self.run_calls(member, limit).await;
            }
        }
        if made.is_err() {
            member.give_up();
        }
        let finished = member.finish(&begun, limit).await;
        made.and(finished)?;
        self.messages.iter().zip(&begun).for_each(|(message, transfer)| message.end(transfer));
        Ok(())
    }

    #[inline]
    async fn run_calls(&mut self, member: &Member, limit: &mut WaitLimit<'_>) -> Result<()> {
        self.calls.iter().for_each(|call| call.operands.require_rank(member.rank()));
        let is_mapped = match self.offer() {
            Some(is_offered) => member.agree_on_mapped(is_offered, limit).await?,
            None => false,
        };
        self.calls.iter_mut().for_each(|call| call.operands.gather());
        match self.is_group {
            // SAFETY: the table of this file says what keeps each demand, and the arrays are this rank's. The engine compares the
            // footprints of ranks when they meet, so that no rank writes an array of another.
            true => unsafe { member.run_batch(self.batch(is_mapped), limit) }.await?,
            false => {
                let OneCall { programs, operands, buffers } = &self.calls[0];
                // SAFETY: as above.
                unsafe { programs.run_of_rank(member, buffers[0], &operands.originals(), limit) }.await?;
            }
        }
        self.calls.iter_mut().for_each(|call| call.operands.write_back());
        if self.calls.iter().any(|call| call.operands.is_copied()) {
            member.results_are_back();
        }
        Ok(())
    }

    /// Returns the batch of a group, and makes it at the first run.
    fn batch(&mut self, is_mapped: bool) -> &mut Batch {
        self.batch.get_or_insert_with(|| {
            let chosen =
                |programs: &Programs| programs.mapped.as_ref().filter(|_| is_mapped).unwrap_or(&programs.own).clone();
            let mut batch =
                Batch::new(self.calls.iter().map(|call| (chosen(&call.programs), call.buffers.clone())).collect());
            let originals = self.calls.iter().map(|call| call.operands.originals()).enumerate();
            originals.for_each(|(nth, originals)| batch.set_originals(nth, originals));
            batch
        })
    }

    /// Says whether this rank offers to run the calls of a group mapped that leave the path open; ranks that are processes agree on it at
    /// the first run. `None` if there is nothing to agree on, as where all calls name theirs, and then no rank asks.
    fn offer(&self) -> Option<bool> {
        let mut open = self.calls.iter().filter(|call| call.programs.own.call().is_path_agreed).peekable();
        let is_asked = self.is_group && self.batch.is_none() && open.peek().is_some();
        is_asked.then(|| open.all(|call| call.programs.mapped.is_some()))
    }

    /// Returns the programs of a call that is no group.
    pub(crate) fn programs(&self) -> Option<&Programs> {
        self.calls.first().filter(|_| !self.is_group).map(|call| &call.programs)
    }

    /// Returns the batch of a group that has run.
    pub(crate) fn batch_run(&mut self) -> Option<&mut Batch> {
        self.batch.as_mut()
    }

    pub(crate) fn messages(&self) -> &[MessageArray] {
        &self.messages
    }

    /// Returns the buffers of a rank's call, if the engine works on the arrays themselves.
    pub(super) fn buffers_in_place(&self) -> Option<Buffers> {
        let call = self.calls.first().filter(|call| !call.operands.is_copied());
        call.map(|call| call.buffers[0])
    }

    /// Returns the arrays as the user passed them.
    pub(crate) fn arrays(&self) -> Vec<OriginalArray> {
        let of_calls = self.calls.iter().flat_map(|call| call.operands.arrays());
        of_calls.chain(self.messages.iter().map(MessageArray::original)).collect()
    }

    /// Returns the number of calls.
    pub(crate) fn len(&self) -> usize {
        self.calls.len() + self.messages.len() + self.made.len()
    }

    /// Returns the call in words.
    pub(crate) fn words(&self) -> String {
        match self.programs() {
            Some(programs) => programs.own.call().to_string(),
            None => format!("a group of {}", counted(self.len() as u64, "call")),
        }
    }

    /// Visits the Python objects that the call holds, for the garbage collector.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        let messages = self.messages.iter().filter_map(MessageArray::object);
        let arrays = self.calls.iter().flat_map(|call| call.operands.objects());
        arrays.chain(messages).chain(&self.made).chain(self.bound.objects()).try_for_each(|object| visit.call(object))
    }
}

/// The call by which every rank gets the words of all ranks: an all_gather in place. It holds the program of
/// [`WordExchange::call`].
pub(crate) struct WordExchange(pub(crate) SharedProgram);

impl WordExchange {
    /// Returns the call that exchanges `words` words in all.
    pub(crate) fn call(words: usize, path: Path) -> Call {
        Call {
            dtype: DType::I32,
            counts: Counts::Even(words),
            path,
            aliasing: Aliasing::InPlace,
            purpose: CallPurpose::RowsOfCounts,
            ..Call::without_data(&ALL_GATHER)
        }
    }

    /// Exchanges words, on a thread without the GIL. `words` has them in the order of ranks; a rank calls with its own there.
    ///
    /// # Panics
    /// If the program is of another call, or the words cannot be divided among the ranks.
    pub(crate) async fn run_of_rank(
        &self,
        member: &Member,
        words: &mut [u32],
        limit: &mut WaitLimit<'_>,
    ) -> Result<()> {
        assert!(
            *self.0.call() == Self::call(words.len(), self.0.call().path)
                && words.len().is_multiple_of(member.ranks().len())
        );
        let own_bytes = size_of_val(words) / member.ranks().len();
        let all: *mut u8 = words.as_mut_ptr().cast();
        let buffers = Buffers::new(all.wrapping_add(member.rank() as usize * own_bytes), all, 1.0);
        // SAFETY: the program gathers as many words in place as `words` has, which is borrowed until the run is over; the input
        // is this rank's part of it.
        unsafe { member.run_call(&self.0, None, buffers, &[], limit) }.await
    }
}

//! Endpoints make calls: a node calls for all its ranks, a communicator for one. A call is checked, gets its program, and runs or waits
//! for the end of its group.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pyo3::prelude::*;
use pyo3::IntoPyObjectExt;

use nvcoll_core::collective::BARRIER;
use nvcoll_core::dtype::DType;
use nvcoll_core::schedule::Path;
use nvcoll_core::verify::Verified;
use nvcoll_engine::auto::work_split::WorkSplit;
use nvcoll_engine::call::Call;
use nvcoll_engine::messages::transfer::Direction;
use nvcoll_engine::program::call_counter::CallCounter;
use nvcoll_engine::ranks::member::Member;
use nvcoll_engine::ranks::node::Node;
use nvcoll_engine::run::wait::now;
use nvcoll_engine::{Deadline, Error};

use crate::arrays::in_flight::IssueQueue;
use crate::arrays::{BoundCall, MessageArray, Operands, Programs, RepeatedCalls, SharedProgram, WordExchange};
use crate::calls::choices::{deadline, Seconds};
use crate::calls::open_group::OpenGroup;
use crate::calls::request::Request;
use crate::engine::error::{of_engine, of_member};
use crate::engine::gil::{watched, watched_rank, WithoutGil};

/// The number of counters that a communicator keeps. Chosen: more than a training step has calls.
const MOST_COUNTERS: usize = 16;

/// A node, or one rank of a node.
pub(crate) struct Endpoint {
    node: Arc<Node>,
    /// The rank that calls; none if the node calls for all ranks.
    member: Option<Arc<Member>>,
    /// The timeout of calls that have none of their own.
    pub(crate) timeout: Option<Seconds>,
    pub(crate) group: OpenGroup,
    repeated: RepeatedCalls,
    barrier: OnceLock<SharedProgram>,
    /// The counters of the last programs, by address, for ranks that were split off.
    counters: LastCounters<SharedProgram>,
    /// The counters of the last messages, by receiver, dtype and number of elements.
    message_counters: LastCounters<(u32, DType, usize)>,
}

/// The counters of the last calls, the latest first.
struct LastCounters<Kind>(Mutex<Vec<(Kind, Arc<CallCounter>)>>);

impl<Kind> LastCounters<Kind> {
    /// Counts a call of the kind that `is_it` recognises; `make` makes its counter.
    fn count(&self, is_it: impl Fn(&Kind) -> bool, make: impl FnOnce() -> (Kind, Arc<CallCounter>)) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, counter)) = known.iter().find(|(kind, _)| is_it(kind)) {
            return counter.count();
        }
        known.truncate(MOST_COUNTERS - 1);
        known.insert(0, make());
        known[0].1.count();
    }
}

impl Endpoint {
    /// Makes the endpoint of a node.
    pub(crate) fn of_node(node: Node) -> Arc<Self> {
        Arc::new(Self::new(Arc::new(node), None, None))
    }

    /// Makes the endpoint of a rank; `timeout` is the default of its calls.
    pub(crate) fn of_rank(node: Arc<Node>, member: Arc<Member>, timeout: Option<Seconds>) -> Arc<Self> {
        Arc::new(Self::new(node, Some(member), timeout))
    }

    fn new(node: Arc<Node>, member: Option<Arc<Member>>, timeout: Option<Seconds>) -> Self {
        Self {
            node,
            member,
            timeout,
            group: OpenGroup::default(),
            repeated: RepeatedCalls::default(),
            barrier: OnceLock::new(),
            counters: LastCounters(Mutex::default()),
            message_counters: LastCounters(Mutex::default()),
        }
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    #[inline]
    pub(crate) fn member(&self) -> Option<&Member> {
        self.member.as_deref()
    }

    /// Returns the member, to be held.
    pub(crate) fn member_shared(&self) -> Option<&Arc<Member>> {
        self.member.as_ref()
    }

    fn world_size(&self) -> u32 {
        self.member().map_or_else(|| self.node.world_size(), |member| member.ranks().len() as u32)
    }

    /// Returns the path of calls that name none: mapped if the ranks are threads, which reach all memory.
    pub(crate) fn default_path(&self) -> Path {
        match self.member().is_none_or(Member::is_in_one_space) {
            true => Path::Mapped,
            false => Path::Staged,
        }
    }

    /// Returns the deadline of a call that begins now.
    pub(crate) fn deadline(&self, timeout: Option<Seconds>) -> Deadline {
        deadline(timeout.or(self.timeout))
    }

    fn error(&self, py: Python<'_>, error: &Error) -> PyErr {
        self.member().map_or_else(|| of_engine(py, error), |member| of_member(py, member, error))
    }

    /// Finds or makes the program of a call; `proof` is that of an algorithm of the user.
    pub(crate) fn program(
        &self,
        py: Python<'_>,
        call: &Call,
        proof: Option<&Verified>,
        deadline: Deadline,
    ) -> PyResult<SharedProgram> {
        let split = if self.member.is_some() { WorkSplit::ByRank } else { WorkSplit::of(call.path) };
        let program = self.node.program_until(call, split, self.world_size(), proof, &WithoutGil::AtOnce(py), deadline);
        program.map_err(|error| self.error(py, &error))
    }

    /// Checks a call, finds its program and binds it to the arrays; returns it with the object that the call returns.
    pub(crate) fn bind<'py>(
        &self,
        py: Python<'py>,
        request: Request<'_, 'py>,
        deadline: Deadline,
    ) -> PyResult<(BoundCall, Bound<'py, PyAny>)> {
        let program = |call: &Call, proof: Option<&Verified>| self.program(py, call, proof, deadline);
        request.bind(self.member(), self.world_size(), self.default_path(), deadline, program)
    }

    /// Binds a barrier.
    pub(crate) fn bind_barrier(&self, py: Python<'_>, deadline: Deadline) -> PyResult<BoundCall> {
        let own = match self.barrier.get() {
            Some(program) => program.clone(),
            None => {
                let program = self.program(py, &Call::without_data(&BARRIER), None, deadline)?;
                self.barrier.get_or_init(|| program).clone()
            }
        };
        let operands = Operands::without_data(&BARRIER, self.member(), self.world_size());
        Ok(BoundCall::new(Programs { own, mapped: None }, operands, |_| 1.0))
    }

    /// Prepares the exchange of `words` words in all, divided equally among the ranks.
    pub(crate) fn exchange_of_words(&self, py: Python<'_>, words: usize, deadline: Deadline) -> PyResult<WordExchange> {
        let call = WordExchange::call(words, self.default_path());
        self.program(py, &call, None, deadline).map(WordExchange)
    }

    /// Makes a call, issues it, or keeps it if a group is open.
    pub(crate) fn call<'py>(
        self: &Arc<Self>,
        py: Python<'py>,
        request: Request<'_, 'py>,
        timeout: Option<Seconds>,
        is_async: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        if is_async {
            return self.issue(py, request, timeout)?.into_bound_py_any(py);
        }
        let plain = self.member().filter(|_| !self.group.is_open()).zip(request.plain());
        let run = |(member, plain)| {
            let count = |program: &SharedProgram| self.count_program(program);
            self.repeated.run(&plain, member, || self.deadline(timeout), count)
        };
        if let Some(outcome) = plain.and_then(run) {
            outcome?;
            return Ok(request.out.unwrap_or(request.arrays).clone());
        }
        self.call_until(py, request, timeout, self.deadline(timeout))
    }

    /// Makes a call until a deadline, or keeps it if a group is open, where it has no `timeout` of its own.
    pub(crate) fn call_until<'py>(
        &self,
        py: Python<'py>,
        request: Request<'_, 'py>,
        timeout: Option<Seconds>,
        deadline: Deadline,
    ) -> PyResult<Bound<'py, PyAny>> {
        if self.group.is_open() {
            let never = Deadline::after(None);
            let (call, result) = self.bind(py, Request { is_deferred: true, ..request }, never)?;
            self.group.add(py, timeout, |group| group.add(call.keep(py)))?;
            return Ok(result);
        }
        let (mut call, result) = self.bind(py, request.clone(), deadline)?;
        if let (Some(member), Some(plain)) = (self.member(), request.plain()) {
            self.repeated.remember(&plain, &call, member);
        }
        self.run(py, &mut call, deadline)?;
        Ok(result)
    }

    /// Makes a barrier.
    pub(crate) fn barrier(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<()> {
        self.group.refuse(py, "barrier")?;
        let deadline = self.deadline(timeout);
        self.run(py, &mut self.bind_barrier(py, deadline)?, deadline)
    }

    /// Runs a call or a group of this endpoint without the GIL.
    ///
    /// # Errors
    /// As [`BoundCall::check`]; the exceptions of the run.
    #[inline]
    pub(crate) fn run(&self, py: Python<'_>, call: &mut BoundCall, deadline: Deadline) -> PyResult<()> {
        // On several hosts, calls of the program run in the order of issue, and this is a part of one.
        let is_part = |member: &&Member| member.names_of_ranks().is_some();
        call.check(py, self.member().filter(is_part).map(IssueQueue::of))?;
        match self.member() {
            None => watched(py, |is_interrupted| call.run_of_node(&self.node, deadline, is_interrupted)),
            Some(member) => watched_rank(py, member, deadline, |limit| now(call.run_of_rank(member, limit))),
        }?;
        self.count(call);
        Ok(())
    }

    /// Counts a call or a group that succeeded, once for all ranks.
    pub(crate) fn count(&self, call: &mut BoundCall) {
        call.programs().inspect(|programs| self.count_program(&programs.own));
        match (call.batch_run(), self.member()) {
            (Some(batch), None) => self.node.count_batch(batch),
            (Some(batch), Some(member)) if member.rank() == 0 => {
                batch.count(self.node.programs().call_counts(), member.ranks());
            }
            _ => {}
        }
        call.messages().iter().for_each(|message| self.count_message(message));
    }

    /// Counts a call of a rank that succeeded, on the first rank. The engine counts the calls of a node.
    #[inline]
    fn count_program(&self, program: &SharedProgram) {
        let Some(member) = self.member().filter(|member| member.rank() == 0) else { return };
        if !member.is_of_group() {
            return program.count();
        }
        let counter = || self.node.programs().call_counts().among(program, member.ranks());
        self.counters.count(|one| Arc::ptr_eq(one, program), || (program.clone(), counter()));
    }

    /// Counts a message, if this rank sends it.
    pub(crate) fn count_message(&self, message: &MessageArray) {
        let (Direction::To(to), Some(member)) = (message.direction, self.member()) else { return };
        let (dtype, count) = message.elements();
        let ranks = [member.rank(), to].map(|rank| member.ranks()[rank as usize]);
        let counter = || self.node.programs().call_counts().of_message(dtype, count, ranks);
        let kind = (to, dtype, count);
        self.message_counters.count(|one| *one == kind, || (kind, counter()));
    }
}

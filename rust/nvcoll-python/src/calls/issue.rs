//! Calls with `async_op=True`: the thread of the caller checks them, and the progress thread of the rank runs them.
//!
//! ```text
//! caller, with the GIL                 read and check the arguments, refuse arrays in flight elsewhere, issue, return a Work
//! progress thread, without the GIL     pack, run, write back, count, finish the completion
//! caller, with the GIL                 give the arrays back (arrays/in_flight.rs)
//! ```
//!
//! The timeout of a call counts from its turn. For `all_to_all` with a row of counts, the progress thread exchanges the rows. Then it knows
//! the lengths of the parts, takes the GIL and does the rest of the check.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::panic::PanicException;
use pyo3::prelude::*;

use nvcoll_core::collective::ALL_TO_ALL;
use nvcoll_engine::ranks::member::Member;
use nvcoll_engine::run::issued_calls::catching;
use nvcoll_engine::sync::Completion;
use nvcoll_engine::{Deadline, Error, OriginalArray, Result, WaitLimit};

use crate::arrays::in_flight::{self, Failure, InFlight, IssueQueue, Outcome};
use crate::arrays::{place_of_rank, BoundCall, WordExchange};
use crate::calls::choices::{deadline, Seconds};
use crate::calls::endpoint::Endpoint;
use crate::calls::request::Request;
use crate::calls::work::Work;
use crate::counts::Rows;
use crate::engine::error::of_member;
use crate::engine::gil::attached;

/// A call that is checked: its words for messages, its arrays and its result.
pub(crate) struct Issued {
    pub(crate) call: String,
    pub(crate) arrays: Vec<OriginalArray>,
    pub(crate) result: Py<PyAny>,
}

/// A call for the progress thread, with what it holds until it is over; a thread with the GIL drops it.
pub(crate) trait IssuedCall: Send + 'static {
    /// Makes the call of a rank, without the GIL.
    fn run(&mut self, endpoint: &Endpoint, member: &Member) -> impl Future<Output = Outcome> + Send;
}

/// Issues a call of a rank.
///
/// # Errors
/// `Closed`; `OSError` if the system refuses a thread.
pub(crate) fn issue(
    py: Python<'_>,
    endpoint: &Arc<Endpoint>,
    issued: Issued,
    mut call: impl IssuedCall,
) -> PyResult<Work> {
    let member = endpoint.member_shared().expect("a rank issues calls").clone();
    let (completion, held) = (Arc::new(Completion::<Outcome>::default()), Arc::new(Mutex::new(None)));
    let run = {
        let (endpoint, member, completion, held) = (endpoint.clone(), member.clone(), completion.clone(), held.clone());
        async move {
            let outcome = catching(call.run(&endpoint, &member)).await;
            *held.lock().unwrap_or_else(PoisonError::into_inner) = Some(call);
            completion.finish(outcome.unwrap_or_else(|_| {
                _ = member.abort();
                Err(Failure::Raised(PanicException::new_err("a call in flight panicked, see standard error")))
            }));
        }
    };
    member.issue(run).map_err(|error| of_member(py, &member, &error))?;
    let Issued { call, arrays, result } = issued;
    let give_back = Box::new(move || drop(held.lock().unwrap_or_else(PoisonError::into_inner).take()));
    let queue = Some(IssueQueue::of(&member));
    in_flight::add(py, InFlight { call: call.clone(), queue, arrays, completion: completion.clone(), give_back });
    Ok(Work::new(call, completion, result, member))
}

/// A collective or a barrier that was issued.
struct IssuedCollective {
    call: BoundCall,
    timeout: Option<Seconds>,
}

impl IssuedCall for IssuedCollective {
    async fn run(&mut self, endpoint: &Endpoint, member: &Member) -> Outcome {
        self.call.run_of_rank(member, &mut WaitLimit::of_issued(deadline(self.timeout))).await?;
        endpoint.count(&mut self.call);
        Ok(None)
    }
}

impl Endpoint {
    /// Issues a collective.
    pub(crate) fn issue<'py>(
        self: &Arc<Self>,
        py: Python<'py>,
        request: Request<'_, 'py>,
        timeout: Option<Seconds>,
    ) -> PyResult<Work> {
        self.group.refuse_async(py)?;
        let (call, result) = self.bind(py, request, self.deadline(timeout))?;
        self.issue_bound(py, call, result.unbind(), timeout)
    }

    /// Issues a barrier.
    pub(crate) fn issue_barrier(self: &Arc<Self>, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<Work> {
        self.group.refuse(py, "barrier")?;
        let call = self.bind_barrier(py, self.deadline(timeout))?;
        self.issue_bound(py, call, py.None(), timeout)
    }

    fn issue_bound(
        self: &Arc<Self>,
        py: Python<'_>,
        call: BoundCall,
        result: Py<PyAny>,
        timeout: Option<Seconds>,
    ) -> PyResult<Work> {
        call.check(py, self.member().map(IssueQueue::of))?;
        let timeout = timeout.or(self.timeout);
        let issued = Issued { call: call.words(), arrays: call.arrays(), result };
        issue(py, self, issued, IssuedCollective { call, timeout })
    }

    /// Refuses an all_to_all with a row of counts that touches an array in flight, before its ranks exchange the rows; returns the
    /// arrays of the call.
    pub(crate) fn refuse_rows_in_flight(
        &self,
        py: Python<'_>,
        request: &Request<'_, '_>,
        queue: Option<IssueQueue>,
    ) -> PyResult<Vec<OriginalArray>> {
        let rank = self.member().map_or(0, Member::rank);
        let mut arrays = vec![place_of_rank("x", request.arrays, rank, false)?];
        if let Some(out) = request.out {
            arrays.push(place_of_rank("out", out, rank, true)?);
        }
        in_flight::check(py, &ROWS_CALL, &arrays, queue, |at| format!("`{}` of rank {rank}", ["x", "out"][at]))?;
        Ok(arrays)
    }

    /// Issues an all_to_all with one row of counts per rank. The ranks exchange the rows first.
    pub(crate) fn issue_rows<'py>(
        self: &Arc<Self>,
        py: Python<'py>,
        request: Request<'_, 'py>,
        exchange: WordExchange,
        rows: Rows,
        timeout: Option<Seconds>,
    ) -> PyResult<Work> {
        self.group.refuse_async(py)?;
        let arrays = self.refuse_rows_in_flight(py, &request, self.member().map(IssueQueue::of))?;
        let own = |object: Option<&Bound<'py, PyAny>>| object.map(|object| object.clone().unbind());
        let call = IssuedRows {
            x: request.arrays.clone().unbind(),
            out: own(request.out),
            algorithm: own(request.algorithm),
            path: request.path.map(str::to_owned),
            exchange,
            rows,
            timeout: timeout.or(self.timeout),
            bound: None,
        };
        issue(py, self, Issued { call: ROWS_CALL.to_owned(), arrays, result: py.None() }, call)
    }
}

/// Exchanges the rows of an all_to_all, on a thread without the GIL.
///
/// Ranks whose rows disagree meet once more: the first that raised would abort the others in the exchange, and they would not
/// learn why. A rank that has met the others here has its rows, so the end of the meeting is no matter.
pub(crate) async fn exchange_rows(
    rows: &mut Rows,
    exchange: &WordExchange,
    member: &Member,
    limit: &mut WaitLimit<'_>,
) -> Result<()> {
    exchange.run_of_rank(member, rows.words_mut(), limit).await?;
    if rows.disagreement().is_some() {
        _ = exchange.run_of_rank(member, &mut rows.words_mut().to_vec(), limit).await;
    }
    Ok(())
}

const ROWS_CALL: &str = "all_to_all with a row of counts";
const PROGRAM_ENDED: Error = Error::Closed("the program ended");

/// An all_to_all with a row of counts that was issued: its arguments, and its bound call after the exchange of the rows.
struct IssuedRows {
    x: Py<PyAny>,
    out: Option<Py<PyAny>>,
    algorithm: Option<Py<PyAny>>,
    path: Option<String>,
    exchange: WordExchange,
    rows: Rows,
    timeout: Option<Seconds>,
    bound: Option<BoundCall>,
}

impl IssuedCall for IssuedRows {
    async fn run(&mut self, endpoint: &Endpoint, member: &Member) -> Outcome {
        let mut limit = WaitLimit::of_issued(deadline(self.timeout));
        exchange_rows(&mut self.rows, &self.exchange, member, &mut limit).await?;
        let bound = attached(|py| self.bind(py, endpoint, limit.deadline())).ok_or(PROGRAM_ENDED)?;
        let result = bound.map_err(Failure::Raised)?;
        let call = self.bound.as_mut().expect("it was bound");
        call.run_of_rank(member, &mut limit).await?;
        endpoint.count(call);
        Ok(Some(result))
    }
}

impl IssuedRows {
    /// Binds the call with the rows of all ranks, and returns its result.
    fn bind(&mut self, py: Python<'_>, endpoint: &Endpoint, deadline: Deadline) -> PyResult<Py<PyAny>> {
        let (out, algorithm) =
            (self.out.as_ref().map(|out| out.bind(py)), self.algorithm.as_ref().map(|it| it.bind(py)));
        let new = Request::new(&ALL_TO_ALL, self.x.bind(py), self.path.as_deref());
        let request = Request { out, algorithm, table: Some(self.rows.table(py)?), ..new };
        let (bound, result) = endpoint.bind(py, request, deadline)?;
        self.bound = Some(bound);
        Ok(result.unbind())
    }
}

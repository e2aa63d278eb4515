//! `all_to_all` of one rank, which may pass its own row of counts: ranks then exchange their rows first.

use pyo3::prelude::*;
use pyo3::IntoPyObjectExt;

use nvcoll_core::collective::ALL_TO_ALL;
use nvcoll_engine::run::wait::now;

use super::Communicator;
use crate::calls::choices::Seconds;
use crate::calls::issue::exchange_rows;
use crate::calls::request::Request;
use crate::counts::{self, Rows, Table};
use crate::engine::gil::watched_rank;
use crate::error::invalid;

#[pymethods]
impl Communicator {
    /// Gives rank r part r of the array of every rank, in the order of ranks.
    ///
    /// Ranks that pass rows of `counts` tell each other their rows in a call of their own. A table needs no such call. All ranks
    /// pass rows, or none does.
    ///
    /// Args:
    ///     x: this rank's array: numpy, or CPU memory with DLPack or the buffer protocol. Any supported dtype, equal on all
    ///         ranks, and any strides. It has the elements to rank 0, to rank 1, …. Read.
    ///     counts: a row: the elements from this rank to each rank, 0 allowed. Or a table, equal on all ranks: row q has the
    ///         elements from rank q to each rank. Default: `x` has one length on all ranks, and is cut as numpy's
    ///         `array_split` does.
    ///     recv_counts: the elements that this rank receives from each rank, which nvcoll checks; only with a row of `counts`.
    ///     algorithm: a name, an algorithm or a schedule. Default: selected by `auto`.
    ///     out: this rank's array for the result. It has the elements from rank 0, from rank 1, …; it is never in place.
    ///         Default: a new array of the kind of the input, with the input's axes after the first if all parts have whole
    ///         rows.
    ///     path: how data move between ranks: mapped, staged or pushed. Default: mapped between threads, staged between
    ///         processes.
    ///     timeout: seconds that the call may take. Default: that of `Node.run` or `init`.
    ///     async_op: whether to return at once, with a `Work` whose `wait` returns the result. The arrays must not be touched until
    ///         the call is over, and its `timeout` counts from its turn. Default: false.
    ///
    /// Returns:
    ///     `out` if it is given, else the new array.
    ///
    /// Raises:
    ///     InvalidArgument: an argument cannot be used; the message names argument and rank.
    ///     Busy: an array is in flight in another call, and one of the two writes it. Calls of one communicator
    ///         with `async_op` may share arrays: they run in the order of issue.
    ///     Mismatch: another rank made a different call, or `counts` and `recv_counts` of two ranks differ.
    ///     Aborted: the program of another rank failed, or a rank called `abort`.
    ///     Timeout: the deadline passed; the message names the ranks that have not entered the call.
    #[pyo3(
        signature = (x, *, counts=None, recv_counts=None, algorithm=None, out=None, path=None, timeout=None, async_op=false)
    )]
    #[allow(clippy::too_many_arguments)]
    fn all_to_all<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        counts: Option<&Bound<'py, PyAny>>,
        recv_counts: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: Option<&str>,
        timeout: Option<Seconds>,
        async_op: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = Request { algorithm, out, ..Request::new(&ALL_TO_ALL, x, path) };
        let world_size = self.world_size();
        let send = match counts.map(|counts| counts::read(&ALL_TO_ALL, world_size, counts)).transpose()? {
            Some(Table::Row(send)) => send,
            _ if recv_counts.is_some() => {
                return Err(invalid(py, "`recv_counts` is given without a row of `counts`: pass what this rank sends"))
            }
            table => return self.endpoint.call(py, Request { table, ..request }, timeout, async_op),
        };
        let receive = recv_counts.map(|counts| counts::row("recv_counts", counts, world_size, "rank")).transpose()?;
        let mut rows = Rows::of_rank(self.rank(), &send, receive.as_deref());
        let (deadline, words) = (self.endpoint.deadline(timeout), rows.words_mut().len());
        let exchange = self.endpoint.exchange_of_words(py, words, deadline)?;
        if async_op {
            return self.endpoint.issue_rows(py, request, exchange, rows, timeout)?.into_bound_py_any(py);
        }
        self.endpoint.refuse_rows_in_flight(py, &request, None)?;
        watched_rank(py, &self.member, deadline, |limit| {
            now(exchange_rows(&mut rows, &exchange, &self.member, limit))
        })?;
        self.endpoint.call_until(py, Request { table: Some(rows.table(py)?), ..request }, timeout, deadline)
    }
}

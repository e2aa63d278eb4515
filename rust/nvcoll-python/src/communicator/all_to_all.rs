//! `all_to_all` of one rank, which may say its own row of the table only: then ranks tell each other theirs first.

use pyo3::prelude::*;

use nvcoll_core::collective::{ALL_GATHER, ALL_TO_ALL};
use nvcoll_core::counts::Counts;
use nvcoll_core::dtype::DType;
use nvcoll_core::schedule::Aliasing;
use nvcoll_engine::call::{Call, CallPurpose};
use nvcoll_engine::{Buffers, Deadline};

use super::Communicator;
use crate::calls::{deadline, Seconds};
use crate::counts::{self, Rows, Table};
use crate::error::invalid;
use crate::request::Request;

#[pymethods]
impl Communicator {
    /// Gives this rank, r, part r of the array of every rank, in the order of ranks.
    ///
    /// Args:
    ///     x: all that this rank sends, first what rank 0 receives. Read.
    ///     counts: how many elements this rank sends to each rank, 0 allowed. Or, the same on every rank, a table whose row q is
    ///         what rank q sends to each. Default: the length, the same on every rank, cut as numpy's `array_split` does.
    ///     recv_counts: how many elements this rank receives from each rank, for a check, and only without a table.
    ///     out: all that this rank receives; never in place. Default: a new array with the trailing axes of the input, of the kind of `x`.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// A table needs no second call. Rows do: ranks tell each other theirs first, so all ranks pass rows or none.
    ///
    /// Returns:
    ///     `out`, or the new array.
    ///
    /// Raises:
    ///     Mismatch: as in `all_reduce`; or a rank does not receive what another sends it, on every rank.
    ///     InvalidArgument, Aborted, Timeout: as in `all_reduce`.
    #[pyo3(signature = (x, *, counts=None, recv_counts=None, algorithm=None, out=None, path="mapped", timeout=None))]
    #[allow(clippy::too_many_arguments)]
    fn all_to_all<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        counts: Option<&Bound<'py, PyAny>>,
        recv_counts: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
        timeout: Option<Seconds>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let deadline = deadline(timeout.or(self.timeout));
        let table = self.all_to_all_table(py, counts, recv_counts, deadline)?;
        let request = Request { table, algorithm, out, ..Request::new(&ALL_TO_ALL, x, path) };
        if self.group.is_open() {
            return self.keep(py, request, timeout);
        }
        self.call_until(py, request, deadline)
    }
}

impl Communicator {
    /// Returns how many elements each rank sends to each; none if that was left open.
    fn all_to_all_table<'py>(
        &self,
        py: Python<'py>,
        counts: Option<&Bound<'py, PyAny>>,
        recv_counts: Option<&Bound<'py, PyAny>>,
        deadline: Deadline,
    ) -> PyResult<Option<Vec<usize>>> {
        let world_size = self.world_size();
        let send = match counts.map(|counts| counts::read(&ALL_TO_ALL, world_size, counts)).transpose()? {
            Some(Table::Row(send)) => send,
            _ if recv_counts.is_some() => {
                return Err(invalid(py, "`recv_counts` is given without a row of `counts`: pass what this rank sends"))
            }
            Some(Table::Whole(table)) => return Ok(Some(table)),
            None => return Ok(None),
        };
        let receive = recv_counts.map(|counts| counts::row("recv_counts", counts, world_size, "rank")).transpose()?;
        let mut rows = Rows::of_rank(self.rank(), &send, receive.as_deref());
        self.exchange(py, &mut rows, deadline)?;
        rows.table(py).map(Some)
    }

    /// Tells all ranks each other's rows, by an all_gather in place.
    fn exchange(&self, py: Python<'_>, rows: &mut Rows, deadline: Deadline) -> PyResult<()> {
        let (world_size, words) = (self.world_size() as usize, Rows::words(self.world_size() as usize));
        let call = Call {
            dtype: DType::I32,
            counts: Counts::Even(words * world_size),
            aliasing: Aliasing::InPlace,
            purpose: CallPurpose::RowsOfCounts,
            ..Call::without_data(&ALL_GATHER)
        };
        let all = rows.start();
        let own = all.wrapping_add(self.rank() as usize * words * DType::I32.bytes());
        self.execute(py, &self.program(py, &call, None, deadline)?, Buffers::new(own, all, 1.0), &[], deadline)
    }
}

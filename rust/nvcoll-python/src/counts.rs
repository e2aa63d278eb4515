//! `counts=`: the elements per part.
//!
//! ```text
//! reduce_scatter, all_gather, gather, scatter     [3, 0, 5, 4]                 one number for each rank
//! all_to_all                                      [[1, 2], [0, 4]]             row q: from rank q to each rank
//! all_to_all of one rank                          [0, 4]                       its own row; rows are exchanged first
//! ```

use pyo3::prelude::*;

use nvcoll_core::collective::{Collective, Division, Roles};
use nvcoll_core::counts::Counts;
use nvcoll_core::words::counted;

use crate::error::{invalid, raise};
use crate::integers::{integer, items_of};

/// More elements than any memory has. Chosen.
const MOST: i64 = 1 << 50;

/// The most elements of a call. Chosen: their bytes fit 64 bits.
const MOST_TOGETHER: usize = 1 << 58;

/// The value of `counts=`.
#[derive(Clone)]
pub(crate) enum Table {
    /// A number for each part.
    Whole(Vec<usize>),
    /// The elements from one rank to each rank in an all_to_all.
    Row(Vec<usize>),
}

/// Reads `counts=` of a collective.
///
/// # Errors
/// Something else than whole numbers, or another number of them.
pub(crate) fn read(collective: &'static Collective, world_size: u32, counts: &Bound<'_, PyAny>) -> PyResult<Table> {
    let (name, parts) = (collective.name, collective.parts(Roles::of(world_size)) as usize);
    let py = counts.py();
    if !collective.has_parts() {
        return Err(invalid(py, format!("`counts` is given, and {name} is of arrays of one length: leave it out")));
    }
    let rows = items("counts", counts)?;
    let is_of_rows = collective.division == Division::ByPair;
    if is_of_rows && rows.first().is_some_and(|row| row.len().is_ok()) {
        check_number(py, "counts", rows.len(), world_size, ["row", "rank"])?;
        let rows = rows.iter().map(|each| row("a row of counts", each, world_size, "rank"));
        return Ok(Table::Whole(rows.collect::<PyResult<Vec<_>>>()?.concat()));
    }
    let numbers = numbers("counts", py, &rows, world_size, "rank")?;
    Ok(if numbers.len() == parts && !is_of_rows { Table::Whole(numbers) } else { Table::Row(numbers) })
}

/// Reads `wanted` numbers, one for each rank or part, as `of` says.
///
/// # Errors
/// As [`read`].
pub(crate) fn row(argument: &str, value: &Bound<'_, PyAny>, wanted: u32, of: &str) -> PyResult<Vec<usize>> {
    numbers(argument, value.py(), &items(argument, value)?, wanted, of)
}

fn numbers(argument: &str, py: Python<'_>, items: &[Bound<'_, PyAny>], wanted: u32, of: &str) -> PyResult<Vec<usize>> {
    check_number(py, argument, items.len(), wanted, ["number", of])?;
    let number = |number: &Bound<'_, PyAny>| integer(argument, number, 0..=MOST).map(|number| number as usize);
    items.iter().map(number).collect()
}

fn items<'py>(argument: &str, value: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    items_of(&format!("`{argument}`"), value, "a list of whole numbers, one for each rank")
}

fn check_number(py: Python<'_>, argument: &str, found: usize, wanted: u32, of: [&str; 2]) -> PyResult<()> {
    if found == wanted as usize {
        return Ok(());
    }
    let (found, wanted) = (counted(found as u64, of[0]), counted(wanted, of[1]));
    Err(invalid(py, format!("`{argument}` has {found}, the call has {wanted}: pass one for each")))
}

/// Returns the shortest form of what `counts=` says.
///
/// # Errors
/// A row of one rank where a call speaks for all.
pub(crate) fn of_table(
    py: Python<'_>,
    collective: &'static Collective,
    roles: Roles,
    table: Table,
) -> PyResult<Counts> {
    match table {
        Table::Whole(table) => {
            check_sum(py, table.iter().copied())?;
            Ok(Counts::of_table(collective, roles, table))
        }
        Table::Row(_) => {
            Err(invalid(py, "`counts` is one row: pass a table, whose row q says what rank q sends to each"))
        }
    }
}

/// Refuses counts whose sum no memory holds.
///
/// # Errors
/// `InvalidArgument`.
pub(crate) fn check_sum(py: Python<'_>, mut counts: impl Iterator<Item = usize>) -> PyResult<()> {
    let sum = counts.try_fold(0usize, usize::checked_add).filter(|&sum| sum <= MOST_TOGETHER);
    let message = "the counts of the call add up to more than 2^58 elements, more than any memory holds: pass less";
    sum.map(drop).ok_or_else(|| invalid(py, message))
}

/// The exchange of rows in an all_to_all. Each rank sends whether it has `recv_counts`, then both rows.
pub(crate) struct Rows {
    world_size: usize,
    /// Words of all ranks, one after the other. A number is two of them, the lower half first.
    words: Vec<u32>,
}

impl Rows {
    /// Writes the words of one rank at their place among the words of all ranks.
    pub(crate) fn of_rank(rank: u32, send: &[usize], receive: Option<&[usize]>) -> Self {
        let world_size = send.len();
        let mut rows = Self { world_size, words: vec![0; world_size * Self::words(world_size)] };
        let nothing = vec![0; world_size];
        let numbers = std::iter::once(usize::from(receive.is_some())).chain(send.iter().copied());
        let numbers = numbers.chain(receive.unwrap_or(&nothing).iter().copied());
        let own = rows.words[rank as usize * Self::words(world_size)..].iter_mut();
        let halves = numbers.flat_map(|number| [number as u32, (number as u64 >> 32) as u32]);
        own.zip(halves).for_each(|(word, half)| *word = half);
        rows
    }

    /// Returns the number of words of one rank.
    const fn words(world_size: usize) -> usize {
        2 * (1 + 2 * world_size)
    }

    /// Returns the words of all ranks.
    pub(crate) fn words_mut(&mut self) -> &mut [u32] {
        &mut self.words
    }

    fn number(&self, rank: usize, at: usize) -> usize {
        let at = rank * Self::words(self.world_size) + 2 * at;
        (u64::from(self.words[at]) | u64::from(self.words[at + 1]) << 32) as usize
    }

    fn sent(&self, from: usize, to: usize) -> usize {
        self.number(from, 1 + to)
    }

    /// Returns a rank that sends, one that receives, and what each says, of the first two that disagree.
    pub(crate) fn disagreement(&self) -> Option<[usize; 4]> {
        let n = self.world_size;
        let pairs = (0..n).flat_map(|from| (0..n).map(move |to| (from, to)));
        let mut numbers = pairs.map(|(from, to)| [from, to, self.sent(from, to), self.number(to, 1 + n + from)]);
        numbers.find(|&[_, to, sends, receives]| self.number(to, 0) != 0 && sends != receives)
    }

    /// Returns the table, if the `recv_counts` of all ranks agree with it.
    ///
    /// # Errors
    /// `Mismatch` that names the first two ranks that disagree, the same on every rank.
    pub(crate) fn table(&self, py: Python<'_>) -> PyResult<Table> {
        if let Some([from, to, sends, receives]) = self.disagreement() {
            let message = format!(
                "rank {from} sends {} to rank {to}, but rank {to} receives {receives} from rank {from} in all_to_all: \
                 pass `counts` and `recv_counts` that agree",
                counted(sends as u64, "element")
            );
            return Err(raise(py, "Mismatch", message));
        }
        let n = self.world_size;
        Ok(Table::Whole((0..n).flat_map(|from| (0..n).map(move |to| self.sent(from, to))).collect()))
    }
}

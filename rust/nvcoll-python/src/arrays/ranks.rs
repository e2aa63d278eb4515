//! One argument of a call: the arrays of its ranks.
//!
//! ```text
//! [a, b, c]              one array per rank, each of any source
//! x of shape (3, ...)    one array; row r belongs to rank r
//! ```

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use nvcoll_core::words::counted;
use nvcoll_engine::OriginalArray;

use super::array::Array;
use super::bound::BoundArrays;
use super::reason::{label, quoted, Reason};
use super::source::{self, Owner};
use crate::error::invalid;

/// The arrays of one argument, by rank.
pub(super) struct Ranks {
    /// The name of the argument.
    pub(super) argument: &'static str,
    /// The rank of the first array.
    first_rank: u32,
    pub(super) arrays: Vec<Array>,
    /// One per array of a list, one for all rows of a stack.
    owners: Vec<Owned>,
}

/// The owner of one array, or of all rows of a stack.
struct Owned {
    /// The rank of the array; `None` for a stack.
    rank: Option<u32>,
    owner: Owner,
}

impl Ranks {
    /// Reads an argument with the arrays of all ranks; it ignores the entries of ranks without an array.
    pub(super) fn of_node(
        argument: &'static str,
        object: &Bound<'_, PyAny>,
        world_size: u32,
        brings: impl Fn(u32) -> bool,
    ) -> PyResult<Self> {
        let py = object.py();
        let wanted = world_size as usize;
        let (arrays, owners) = if let Ok(list) = object.cast::<PyList>() {
            read_each(argument, list.iter(), list.len(), wanted, brings, py)?
        } else if let Ok(tuple) = object.cast::<PyTuple>() {
            read_each(argument, tuple.iter(), tuple.len(), wanted, brings, py)?
        } else {
            let (whole, owner) = source::read(object.clone()).map_err(|reason| reason.about(py, quoted(argument)))?;
            (rows_of(argument, &whole, wanted, brings, py)?, vec![Owned { rank: None, owner }])
        };
        Ok(Self { argument, first_rank: 0, arrays, owners })
    }

    /// Reads the root's array, as the only array of all ranks.
    pub(super) fn of_root(
        argument: &'static str,
        object: &Bound<'_, PyAny>,
        world_size: u32,
        root: u32,
    ) -> PyResult<Self> {
        let is_list = object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>();
        if is_list || object.is_none() {
            let found = if is_list { "a list" } else { "None" };
            let message =
                format!("`{argument}` is {found}, and only rank {root}, the root, has an array: pass that array");
            return Err(invalid(object.py(), message));
        }
        let read = source::read(object.clone());
        let (array, owner) = read.map_err(|reason| reason.about(object.py(), quoted(argument)))?;
        let mut ranks = Self::absent(argument, 0, world_size as usize);
        ranks.arrays[root as usize] = array;
        ranks.owners.push(Owned { rank: Some(root), owner });
        Ok(ranks)
    }

    /// Makes the placeholders of `number` ranks without arrays.
    pub(super) fn absent(argument: &'static str, first_rank: u32, number: usize) -> Self {
        let arrays = (0..number).map(|_| Array::absent()).collect();
        Self { argument, first_rank, arrays, owners: Vec::new() }
    }

    /// Reads an argument of one rank's own call.
    pub(super) fn of_rank(argument: &'static str, object: &Bound<'_, PyAny>, rank: u32) -> PyResult<Self> {
        let read = source::read(object.clone());
        let (array, owner) = read.map_err(|reason| reason.about(object.py(), label(argument, rank)))?;
        Ok(Self { argument, first_rank: rank, arrays: vec![array], owners: vec![Owned { rank: Some(rank), owner }] })
    }

    /// Returns the Python objects that are held.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Py<PyAny>> {
        self.owners.iter().filter_map(|owned| owned.owner.array()).map(Py::as_any)
    }

    /// Records every numpy array in `bound`; `is_written` says whether runs write the array of a rank.
    pub(super) fn bind(&self, py: Python<'_>, is_written: impl Fn(usize) -> bool, bound: &mut BoundArrays) {
        for owned in &self.owners {
            let is_written = match owned.rank {
                Some(rank) => is_written((rank - self.first_rank) as usize),
                None => (0..self.arrays.len()).any(&is_written),
            };
            if let Some(array) = owned.owner.array() {
                bound.add(array.bind(py), self.argument, owned.rank, is_written);
            }
        }
    }

    /// Returns the rank of the array at `at`.
    pub(super) fn rank(&self, at: usize) -> u32 {
        self.first_rank + at as u32
    }

    /// Allocates the packed copies of strided arrays.
    pub(super) fn make_copies(&mut self, py: Python<'_>) -> PyResult<()> {
        let (argument, first_rank) = (self.argument, self.first_rank);
        let make = |(rank, array): (u32, &mut Array)| {
            array.make_copy().map_err(|reason| reason.about(py, label(argument, rank)))
        };
        (first_rank..).zip(&mut self.arrays).try_for_each(make)
    }

    /// Returns the name of the array at `at` in messages.
    pub(super) fn label(&self, at: usize) -> String {
        label(self.argument, self.rank(at))
    }
}

/// Returns the place of an array of one rank's own call; `is_written` says whether the call changes it.
pub(crate) fn place_of_rank(
    argument: &'static str,
    object: &Bound<'_, PyAny>,
    rank: u32,
    is_written: bool,
) -> PyResult<OriginalArray> {
    let read = Ranks::of_rank(argument, object, rank)?;
    let array = &read.arrays[0];
    Ok(OriginalArray { address: array.first.addr(), layout: array.layout.clone(), is_written })
}

/// Returns the places of arrays that one rank passed in a list.
pub(crate) fn places_of(rank: u32, objects: &[Bound<'_, PyAny>], is_written: bool) -> PyResult<Vec<OriginalArray>> {
    objects.iter().map(|object| place_of_rank("x", object, rank, is_written)).collect()
}

fn check_number(py: Python<'_>, argument: &str, found: usize, wanted: usize) -> PyResult<()> {
    if found == wanted {
        return Ok(());
    }
    let message = format!(
        "`{argument}` has length {found}, the node has {}: pass one array per rank",
        counted(wanted as u64, "rank")
    );
    Err(invalid(py, message))
}

fn read_each<'py>(
    argument: &str,
    objects: impl Iterator<Item = Bound<'py, PyAny>>,
    number: usize,
    wanted: usize,
    brings: impl Fn(u32) -> bool,
    py: Python<'py>,
) -> PyResult<(Vec<Array>, Vec<Owned>)> {
    check_number(py, argument, number, wanted)?;
    let (mut arrays, mut owners) = (Vec::with_capacity(wanted), Vec::with_capacity(wanted));
    for (rank, object) in (0..).zip(objects) {
        if !brings(rank) {
            arrays.push(Array::absent());
            continue;
        }
        let (array, owner) = source::read(object).map_err(|reason| reason.about(py, label(argument, rank)))?;
        arrays.push(array);
        owners.push(Owned { rank: Some(rank), owner });
    }
    // Reading an object may run Python code that changes the list.
    check_number(py, argument, arrays.len(), wanted)?;
    Ok((arrays, owners))
}

fn rows_of(
    argument: &str,
    whole: &Array,
    wanted: usize,
    brings: impl Fn(u32) -> bool,
    py: Python<'_>,
) -> PyResult<Vec<Array>> {
    let Some(rows) = whole.rows else {
        let message = format!("`{argument}` is a scalar: pass a list of arrays, or one array whose axis 0 is the rank");
        return Err(invalid(py, message));
    };
    check_number(py, argument, rows, wanted)?;
    let row_of = |row| {
        if !brings(row as u32) {
            return Ok(Array::absent());
        }
        let row = whole.layout.row(rows, row).ok_or_else(Reason::too_large);
        let array = row.and_then(|(offset, layout)| {
            Array::new(whole.first.wrapping_offset(offset), layout, whole.dtype, whole.access, None)
        });
        array.map_err(|reason| reason.about(py, quoted(argument)))
    };
    (0..wanted).map(row_of).collect()
}

//! One argument of a call: the arrays of its ranks.
//!
//! ```text
//! [a, b, c]              one array per rank, each of any source
//! x of shape (3, ...)    one array; row r belongs to rank r
//! ```

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use nvcoll_core::collective::Roles;
use nvcoll_core::words::counted;
use nvcoll_engine::OriginalArray;

use super::array::Array;
use super::bound::BoundArrays;
use super::contract::{Contract, Side};
use super::reason::{label, quoted};
use super::source::{self, Owner};
use crate::error::invalid;

/// The arrays of one argument, by rank.
pub(super) struct Ranks {
    /// The name of the argument.
    pub(super) argument: &'static str,
    /// The rank of the first array.
    first_rank: u32,
    pub(super) arrays: Vec<Array>,
    /// One per array of a list, with its rank; one for all rows of a stack, without a rank.
    owners: Vec<(Option<u32>, Owner)>,
}

impl Ranks {
    /// Reads the argument of one side of a call. `brings` says whether a rank passes an array; it ignores what other ranks pass.
    pub(super) fn read(
        contract: &Contract,
        side: Side,
        argument: &'static str,
        object: &Bound<'_, PyAny>,
        brings: impl Fn(u32) -> bool,
    ) -> PyResult<Self> {
        let py = object.py();
        match contract.own {
            None if contract.is_of_root_only(side) && (side == Side::Output || !contract.is_of_one_part()) => {
                Self::of_root(contract, argument, object)
            }
            None => Self::of_node(contract, argument, object, brings),
            Some(rank) if !brings(rank) => Ok(Self::absent(argument, rank, 1)),
            Some(rank) if object.is_none() => {
                Err(invalid(py, format!("`{argument}` of rank {rank} is None, {}", contract.needs(rank))))
            }
            Some(rank) => Self::of_rank(argument, object, rank),
        }
    }

    /// Reads an argument with the arrays of all ranks.
    fn of_node(
        contract: &Contract,
        argument: &'static str,
        object: &Bound<'_, PyAny>,
        brings: impl Fn(u32) -> bool,
    ) -> PyResult<Self> {
        let (py, wanted) = (object.py(), contract.roles.world_size as usize);
        if !is_list(object) {
            let (whole, owner) = source::read(object.clone()).map_err(|reason| reason.about(py, quoted(argument)))?;
            let arrays = rows_of(argument, &whole, wanted, brings, py)?;
            return Ok(Self { argument, first_rank: 0, arrays, owners: vec![(None, owner)] });
        }
        check_number(py, argument, object.len()?, wanted)?;
        let (arrays, owners) = (Vec::with_capacity(wanted), Vec::with_capacity(wanted));
        let mut ranks = Self { argument, first_rank: 0, arrays, owners };
        for (rank, object) in (0..).zip(object.try_iter()?) {
            match brings(rank) {
                true => ranks.push(rank, &object?)?,
                false => ranks.arrays.push(Array::absent()),
            }
        }
        // Reading an object may run Python code that changes the list.
        check_number(py, argument, ranks.arrays.len(), wanted)?;
        Ok(ranks)
    }

    /// Reads the root's array, as the only array of all ranks.
    fn of_root(contract: &Contract, argument: &'static str, object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (py, Roles { world_size, root }) = (object.py(), contract.roles);
        if is_list(object) || object.is_none() {
            let found = if object.is_none() { "None" } else { "a list" };
            let message =
                format!("`{argument}` is {found}, and only rank {root}, the root, has an array: pass that array");
            return Err(invalid(py, message));
        }
        let (array, owner) = source::read(object.clone()).map_err(|reason| reason.about(py, quoted(argument)))?;
        let mut ranks = Self::absent(argument, 0, world_size as usize);
        ranks.arrays[root as usize] = array;
        ranks.owners.push((Some(root), owner));
        Ok(ranks)
    }

    /// Makes the placeholders of `number` ranks without arrays.
    pub(super) fn absent(argument: &'static str, first_rank: u32, number: usize) -> Self {
        let arrays = (0..number).map(|_| Array::absent()).collect();
        Self { argument, first_rank, arrays, owners: Vec::new() }
    }

    /// Reads an argument of one rank's own call.
    fn of_rank(argument: &'static str, object: &Bound<'_, PyAny>, rank: u32) -> PyResult<Self> {
        let mut ranks = Self::absent(argument, rank, 0);
        ranks.push(rank, object)?;
        Ok(ranks)
    }

    /// Reads the array of the next rank.
    #[inline]
    fn push(&mut self, rank: u32, object: &Bound<'_, PyAny>) -> PyResult<()> {
        let read = source::read(object.clone());
        let (array, owner) = read.map_err(|reason| reason.about(object.py(), label(self.argument, rank)))?;
        self.arrays.push(array);
        self.owners.push((Some(rank), owner));
        Ok(())
    }

    /// Returns the Python objects that are held.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Py<PyAny>> {
        self.owners.iter().filter_map(|(_, owner)| owner.array()).map(Py::as_any)
    }

    /// Records every numpy array in `bound`; `is_written` says whether runs write the array of a rank.
    pub(super) fn bind(&self, py: Python<'_>, is_written: impl Fn(usize) -> bool, bound: &mut BoundArrays) {
        for (rank, owner) in &self.owners {
            let is_written = match rank {
                Some(rank) => is_written((rank - self.first_rank) as usize),
                None => (0..self.arrays.len()).any(&is_written),
            };
            if let Some(array) = owner.array() {
                bound.add(array.bind(py), self.argument, *rank, is_written);
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
    Ok(read.arrays[0].original(is_written))
}

/// Returns the places of arrays that one rank passed in a list.
pub(crate) fn places_of(rank: u32, objects: &[Bound<'_, PyAny>], is_written: bool) -> PyResult<Vec<OriginalArray>> {
    objects.iter().map(|object| place_of_rank("x", object, rank, is_written)).collect()
}

/// Says whether an argument is one array per rank, each an object.
pub(super) fn is_list(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>()
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
        whole.row(rows, row).map_err(|reason| reason.about(py, quoted(argument)))
    };
    (0..wanted).map(row_of).collect()
}

//! The records of the numpy arrays of a plan or a group. Before every run they show whether an array has moved.
//!
//! A plan keeps addresses. It also holds the array, so that `ndarray.resize` refuses. But `resize(refcheck=False)` and
//! `__setstate__` free the memory of the array, or of its base, in any case. Both change the C structure, which is read before
//! each run. This takes a few nanoseconds per array, and the records of all calls of a group are in one row for that.
//!
//! Borrowed tensors and exported buffers have no record: their lender promises to keep the memory in place.

use std::ffi::c_int;

use ::numpy::npyffi::NPY_ARRAY_C_CONTIGUOUS;
use ::numpy::{PyArrayDescr, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::intern;
use pyo3::prelude::*;

use super::array::{Access, Array};
use super::numpy;
use super::reason::name_of;
use crate::error::invalid;

/// The numpy arrays of a plan or a group, as they were when it was made.
#[derive(Default)]
pub(super) struct BoundArrays(Vec<BoundArray>);

/// A numpy array, and what it was at the time at which its plan was made.
struct BoundArray {
    array: Py<PyUntypedArray>,
    seen: Array,
    /// Memory, flags and dtype of a packed array that is no view. Nearly all are, and comparing these takes a tenth of reading the array.
    plain: Option<(Memory, c_int, Py<PyArrayDescr>)>,
    /// The base array if this one is a view, and its memory then.
    base: Option<(Py<PyUntypedArray>, Memory)>,
    is_written: bool,
    /// The argument, and the rank unless it is an array of all ranks.
    argument: &'static str,
    rank: Option<u32>,
}

/// The address of the first element, and the number of elements.
type Memory = (*mut u8, usize);

// SAFETY: the addresses are compared, never followed; the arrays are read only by a thread that is attached.
unsafe impl Send for BoundArrays {}

impl BoundArrays {
    /// Records an array as it is now; `is_written` says whether runs write it.
    pub(super) fn add(
        &mut self,
        array: &Bound<'_, PyUntypedArray>,
        argument: &'static str,
        rank: Option<u32>,
        is_written: bool,
    ) {
        // An array that cannot be read any more has changed since its call was read.
        let seen = numpy::read(array).unwrap_or_else(|_| Array::absent());
        let base = array.getattr(intern!(array.py(), "base")).and_then(|base| Ok(base.cast_into::<PyUntypedArray>()?));
        let base = base.ok().map(|base| {
            let memory = memory_of(&base);
            (base.unbind(), memory)
        });
        let flags = numpy::first_and_flags(array).1;
        let is_plain = flags & NPY_ARRAY_C_CONTIGUOUS != 0 && base.is_none();
        let plain = is_plain.then(|| (memory_of(array), flags, array.dtype().unbind()));
        self.0.push(BoundArray { array: array.clone().unbind(), seen, plain, base, is_written, argument, rank });
    }

    /// Adds the records of another call.
    pub(super) fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// Refuses a run on an array that has changed; `keeper`, a plan or a group, stands in the message.
    ///
    /// # Errors
    /// `InvalidArgument`, with argument and rank.
    #[inline]
    pub(super) fn check(&self, py: Python<'_>, keeper: &str) -> PyResult<()> {
        let Some((bound, change)) = self.0.iter().find_map(|bound| Some((bound, bound.change(py)?))) else {
            return Ok(());
        };
        let name = name_of(bound.argument, bound.rank);
        Err(invalid(py, format!("{name} {change} since the {keeper} was made: make a new {keeper}")))
    }

    /// Returns the arrays that are held, for the garbage collector.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Py<PyAny>> {
        let bases = self.0.iter().filter_map(|bound| bound.base.as_ref()).map(|(base, _)| base.as_any());
        self.0.iter().map(|bound| bound.array.as_any()).chain(bases)
    }
}

impl BoundArray {
    /// Returns the change of the array since the record, in words.
    #[inline]
    fn change(&self, py: Python<'_>) -> Option<&'static str> {
        let (seen, array) = (&self.seen, self.array.bind(py));
        if let Some((memory, flags, dtype)) = &self.plain {
            let same_flags = numpy::first_and_flags(array).1 == *flags;
            if same_flags && memory_of(array) == *memory && array.dtype().is(dtype) {
                return None;
            }
        }
        let now = numpy::read(array);
        let of_memory = |array: &Array| (array.first, array.dtype, array.layout.count(), array.layout.is_strided());
        let Some(now) = now.ok().filter(|now| of_memory(now) == of_memory(seen)) else {
            return Some("has moved or changed its shape");
        };
        if self.is_written && now.access != Access::Writable {
            return Some("has become read-only");
        }
        if !now.layout.is_same(&seen.layout) {
            return Some("has changed its shape or strides");
        }
        let is_moved = self.base.as_ref().is_some_and(|(base, memory)| memory_of(base.bind(py)) != *memory);
        is_moved.then_some("is a view of an array that has moved or changed its shape")
    }
}

fn memory_of(array: &Bound<'_, PyUntypedArray>) -> Memory {
    (numpy::first_and_flags(array).0, array.len())
}

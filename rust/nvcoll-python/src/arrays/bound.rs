//! The records of the numpy arrays of a plan or a group. Before every run they show whether an array has moved.
//!
//! A plan keeps addresses. It also holds the array, so that `ndarray.resize` refuses. But `resize(refcheck=False)` and
//! `__setstate__` free the memory of the array, or of its base, in any case. Both change the C structure, which is read before
//! each run. This takes a few nanoseconds per array, and the records of all calls of a group are in one row for that.
//!
//! Borrowed tensors and exported buffers have no record: their lender promises to keep the memory in place.

use std::ffi::{c_int, c_void};

use numpy::npyffi::{PyArrayObject, PyArray_Check, NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_WRITEABLE};
use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;

use super::reason::name_of;
use crate::error::invalid;

/// The numpy arrays of a plan or a group, as they were when it was made.
#[derive(Default)]
pub(super) struct BoundArrays(Vec<BoundArray>);

/// A numpy array at the time at which its plan was made.
struct BoundArray {
    array: Py<PyUntypedArray>,
    memory: BoundMemory,
    /// The flags that must not change, and their values.
    mask: c_int,
    flags: c_int,
    /// None for a packed array that has its own memory.
    view: Option<Box<BoundView>>,
    /// The argument, and the rank unless it is an array of all ranks.
    argument: &'static str,
    rank: Option<u32>,
}

/// The memory of a numpy array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BoundMemory {
    first: *mut c_void,
    count: isize,
    dtype: c_int,
}

/// What a strided array or a view has beside its memory.
struct BoundView {
    /// Lengths and strides; none for a packed array.
    axes: Option<Vec<[isize; 2]>>,
    /// The array of which this one is a view.
    base: Option<(*mut c_void, BoundMemory)>,
}

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
        self.0.push(BoundArray::of(array, argument, rank, is_written));
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
        self.0.iter().map(|bound| bound.array.as_any())
    }
}

impl BoundArray {
    fn of(array: &Bound<'_, PyUntypedArray>, argument: &'static str, rank: Option<u32>, is_written: bool) -> Self {
        let object = array.as_array_ptr();
        // SAFETY: `array` is a live numpy array, this thread is attached, and nothing here runs Python code.
        let fields = unsafe { &(*object).fields };
        let is_packed = fields.flags & NPY_ARRAY_C_CONTIGUOUS != 0;
        // SAFETY: `array` is live.
        let axes = (!is_packed).then(|| unsafe { axes(object) }.collect());
        // SAFETY: the array holds a reference to its base, and this thread is attached.
        let has_base = !fields.base.is_null() && unsafe { PyArray_Check(array.py(), fields.base.cast()) } != 0;
        let base = has_base.then(|| {
            // SAFETY: the base is a live numpy array, as `PyArray_Check` found.
            (fields.base.cast(), unsafe { BoundMemory::of(fields.base.cast()) })
        });
        let view = (!is_packed || has_base).then(|| Box::new(BoundView { axes, base }));
        let mask = NPY_ARRAY_C_CONTIGUOUS | if is_written { NPY_ARRAY_WRITEABLE } else { 0 };
        // SAFETY: `array` is live.
        let memory = unsafe { BoundMemory::of(object) };
        Self { array: array.clone().unbind(), memory, mask, flags: fields.flags & mask, view, argument, rank }
    }

    /// Returns the change of the array since the record, in words.
    #[inline]
    fn change(&self, _py: Python<'_>) -> Option<&'static str> {
        let object: *mut PyArrayObject = self.array.as_ptr().cast();
        // SAFETY: `array` is a live numpy array, this thread is attached, and nothing here runs Python code.
        let (flags, memory) = unsafe { ((*object).fields.flags & self.mask, BoundMemory::of(object)) };
        if memory != self.memory || (flags ^ self.flags) & NPY_ARRAY_C_CONTIGUOUS != 0 {
            return Some("has moved or changed its shape");
        }
        if flags != self.flags {
            return Some("has become read-only");
        }
        // SAFETY: as above.
        self.view.as_ref().and_then(|view| unsafe { view.change(object) })
    }
}

impl BoundView {
    /// Returns the change of a view since its record, in words.
    ///
    /// # Safety
    /// `array` is the live numpy array of the record, and this thread is attached.
    unsafe fn change(&self, array: *mut PyArrayObject) -> Option<&'static str> {
        if let Some(known) = &self.axes {
            // SAFETY: `array` is live by this function's condition.
            if !unsafe { axes(array) }.eq(known.iter().copied()) {
                return Some("has changed its shape or strides");
            }
        }
        let (base, memory) = self.base?;
        // SAFETY: `array` is live; it holds its base, which is read only if it still is the numpy array of the record.
        let is_moved = unsafe { (*array).fields.base.cast() != base || BoundMemory::of(base.cast()) != memory };
        is_moved.then_some("is a view of an array that has moved or changed its shape")
    }
}

impl BoundMemory {
    /// Records the memory of `array`.
    ///
    /// # Safety
    /// `array` is a live numpy array, and this thread is attached.
    #[inline]
    unsafe fn of(array: *mut PyArrayObject) -> Self {
        // SAFETY: `array` is live by this function's condition; every array has a descriptor, whose first fields are the same
        // in numpy 1 and 2.
        let (fields, dtype) = unsafe { (&(*array).fields, (*(*array).fields.descr).fields.type_num) };
        // SAFETY: numpy keeps `nd` lengths in every array that has axes.
        let count = (0..fields.nd as usize).map(|axis| unsafe { *fields.dimensions.add(axis) }).product();
        Self { first: fields.data.cast(), count, dtype }
    }
}

/// Returns length and stride of each axis.
///
/// # Safety
/// `array` is a live numpy array while the iterator is used, and nothing changes it.
unsafe fn axes(array: *mut PyArrayObject) -> impl Iterator<Item = [isize; 2]> {
    // SAFETY: `array` is live by this function's condition.
    let fields = unsafe { &(*array).fields };
    // SAFETY: numpy keeps `nd` lengths and `nd` strides in every array that has axes.
    (0..fields.nd as usize).map(|axis| unsafe { [*fields.dimensions.add(axis), *fields.strides.add(axis)] })
}

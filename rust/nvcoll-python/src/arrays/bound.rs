//! The record of a numpy array in a plan or a group. Before every run it shows whether the array has moved.
//!
//! A plan keeps addresses. It also holds the array, so that `ndarray.resize` refuses. But `resize(refcheck=False)` and
//! `__setstate__` free the memory of the array, or of its base, in any case. Both change the C structure, which is read before
//! each run. This takes a few nanoseconds per array.
//!
//! Borrowed tensors and exported buffers have no record: their lender promises to keep the memory in place.

use std::ffi::c_void;

use numpy::npyffi::{PyArrayObject, PyArray_Check, NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_WRITEABLE};
use pyo3::prelude::*;

/// A numpy array at the time at which its plan was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BoundArray {
    memory: BoundMemory,
    is_writable: bool,
    /// Lengths and strides; none for a packed array.
    axes: Option<Vec<[isize; 2]>>,
    /// The array of which this one is a view.
    base: Option<(*mut c_void, BoundMemory)>,
}

/// The memory of a numpy array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BoundMemory {
    first: *mut c_void,
    count: isize,
    dtype: i32,
}

impl BoundArray {
    /// Records `array` as it is now.
    ///
    /// # Safety
    /// `array` is a live numpy array, and this thread is attached.
    pub(super) unsafe fn of(py: Python<'_>, array: *mut PyArrayObject) -> Self {
        // SAFETY: `array` is live by this function's condition, and nothing here runs Python code.
        let fields = unsafe { &(*array).fields };
        let is_packed = fields.flags & NPY_ARRAY_C_CONTIGUOUS != 0;
        // SAFETY: `array` is live by this function's condition.
        let axes = (!is_packed).then(|| unsafe { axes(array) }.collect());
        // SAFETY: the array holds a reference to its base, and this thread is attached.
        let has_base = !fields.base.is_null() && unsafe { PyArray_Check(py, fields.base.cast()) } != 0;
        let base = has_base.then(|| {
            // SAFETY: the base is a live numpy array, as `PyArray_Check` found.
            (fields.base.cast(), unsafe { BoundMemory::of(fields.base.cast()) })
        });
        // SAFETY: `array` is live by this function's condition.
        let memory = unsafe { BoundMemory::of(array) };
        Self { memory, is_writable: fields.flags & NPY_ARRAY_WRITEABLE != 0, axes, base }
    }

    /// Returns the change of the array since the record, in words; `is_written` says whether runs write it.
    ///
    /// # Safety
    /// `array` is a live numpy array, and this thread is attached.
    #[inline]
    pub(super) unsafe fn change(&self, array: *mut PyArrayObject, is_written: bool) -> Option<&'static str> {
        // SAFETY: `array` is live by this function's condition, and nothing here runs Python code.
        let fields = unsafe { &(*array).fields };
        let is_packed = fields.flags & NPY_ARRAY_C_CONTIGUOUS != 0;
        // SAFETY: `array` is live by this function's condition.
        if unsafe { BoundMemory::of(array) } != self.memory || is_packed != self.axes.is_none() {
            return Some("has moved or changed its shape");
        }
        if let Some(known) = &self.axes {
            // SAFETY: `array` is live by this function's condition.
            if !unsafe { axes(array) }.eq(known.iter().copied()) {
                return Some("has changed its shape or strides");
            }
        }
        if let Some((base, memory)) = self.base {
            // SAFETY: the array still has the base that was a numpy array when the plan was made, and holds it.
            if fields.base.cast() != base || unsafe { BoundMemory::of(base.cast()) } != memory {
                return Some("is a view of an array that has moved or changed its shape");
            }
        }
        let is_locked = is_written && self.is_writable && fields.flags & NPY_ARRAY_WRITEABLE == 0;
        is_locked.then_some("has become read-only")
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

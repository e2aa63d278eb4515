//! What a plan or a group keeps of a numpy array: enough to see, before every run, that its memory is still where it was.
//!
//! A plan keeps addresses. It also holds the array, so that `ndarray.resize` refuses; but `resize(refcheck=False)` and
//! `__setstate__` free the memory all the same, of the array or of the one that it is a view of. Both leave a trace in the C
//! structure, which is read again before each run. It costs a few nanoseconds per array.
//!
//! A tensor on loan and an exported buffer are not looked at again: their lender promises to keep the memory in place.

use std::ffi::c_void;

use numpy::npyffi::{PyArrayObject, PyArray_Check, NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_WRITEABLE};
use pyo3::prelude::*;

/// What a numpy array was when its plan was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BoundArray {
    memory: BoundMemory,
    is_writable: bool,
    /// Lengths and strides of an array that is not packed.
    axes: Option<Vec<[isize; 2]>>,
    /// The array that this one is a view of.
    base: Option<(*mut c_void, BoundMemory)>,
}

/// Where the elements of a numpy array lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BoundMemory {
    first: *mut c_void,
    count: isize,
    dtype: i32,
}

impl BoundArray {
    /// Reads what `array` is now.
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

    /// Says what has become of the array that this was read from, if it is another now; `is_written`: whether runs write it.
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
    /// Reads where the elements of `array` lie.
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

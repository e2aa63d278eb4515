//! Objects with the buffer protocol: `array.array`, `memoryview`, ctypes arrays, mapped files. The exported buffer is held for
//! the call, so that its owner cannot be resized meanwhile.
//!
//! PyO3's buffers refuse exporters without shape or strides, such as ctypes. This module reads them.

use std::ffi::CStr;
use std::slice;

use pyo3::ffi::{PyBUF_FULL_RO, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer, Py_buffer};
use pyo3::prelude::*;

use nvcoll_core::dtype::DType;

use super::array::{Access, Array};
use super::element::Family;
use super::reason::Reason;

/// A borrowed buffer; its drop returns it. It is boxed, because exporters may let it point into itself.
pub(super) struct Loan(Box<Py_buffer>);

impl Drop for Loan {
    fn drop(&mut self) {
        // SAFETY: `borrow` filled it, only this gives it back, and owners are dropped by threads that are attached.
        unsafe { PyBuffer_Release(&raw mut *self.0) };
    }
}

fn borrow(object: &Bound<'_, PyAny>) -> Result<Loan, Reason> {
    let mut buffer = Box::new(Py_buffer::new());
    // SAFETY: `object` is a live Python object, this thread is attached, and `buffer` is a place for its answer.
    match unsafe { PyObject_GetBuffer(object.as_ptr(), &raw mut *buffer, PyBUF_FULL_RO) } {
        0 => Ok(Loan(buffer)),
        _ => Err(Reason::Raised(PyErr::fetch(object.py()))),
    }
}

/// Reads an object that exports a buffer.
pub(super) fn read(object: &Bound<'_, PyAny>) -> Result<(Array, Loan), Reason> {
    // SAFETY: `object` is a live Python object and this thread is attached.
    if unsafe { PyObject_CheckBuffer(object.as_ptr()) } == 0 {
        let name = object.get_type().name()?.to_string();
        let article = if name.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
        let kind = if object.is_none() { "None".to_owned() } else { format!("{article} {name}") };
        let message =
            format!("is {kind}: pass a numpy array, or anything on the CPU with DLPack or the buffer protocol");
        return Err(Reason::Refused(message));
    }
    let loan = borrow(object)?;
    let buffer = &loan.0;
    let format = match buffer.format.is_null() {
        true => c"B",
        // SAFETY: a format is a string that lives as long as its buffer.
        false => unsafe { CStr::from_ptr(buffer.format) },
    };
    let dtype = dtype_of(format.to_bytes(), 8 * buffer.itemsize.unsigned_abs())?;
    let access = if buffer.readonly != 0 { Access::ReadOnly } else { Access::Writable };
    let (first, axes) = (buffer.buf.cast(), usize::try_from(buffer.ndim).unwrap_or(0));
    if axes == 0 || buffer.shape.is_null() {
        let length = [buffer.len.unsigned_abs() / dtype.bytes()];
        return Ok((Array::new(first, dtype, access, &length[..axes.min(1)], None)?, loan));
    }
    // SAFETY: a buffer that has a shape has one length, not negative, for each axis; strides and suboffsets as many, if any.
    let (shape, strides, suboffsets) = unsafe {
        let of_axes = |values: *const isize| (!values.is_null()).then(|| slice::from_raw_parts(values, axes));
        (slice::from_raw_parts(buffer.shape.cast(), axes), of_axes(buffer.strides), of_axes(buffer.suboffsets))
    };
    if suboffsets.is_some_and(|offsets| offsets.iter().any(|&offset| offset >= 0)) {
        return Err(Reason::refused("is a buffer of pointers to rows: pass one block of memory"));
    }
    Ok((Array::new(first, dtype, access, shape, strides)?, loan))
}

/// Finds the dtype of a format such as `f`, `<d` or `@Zf`, whose elements have `bits` bits.
fn dtype_of(format: &[u8], bits: usize) -> Result<DType, Reason> {
    let unknown = || Reason::dtype(format!("(buffer format {:?})", String::from_utf8_lossy(format)));
    let (order, rest) = match format {
        [order, rest @ ..] if b"@=<>!".contains(order) => (*order, rest),
        _ => (b'@', format),
    };
    let family = Family::of_format(rest).ok_or_else(unknown)?;
    let is_swapped = if cfg!(target_endian = "little") { matches!(order, b'>' | b'!') } else { order == b'<' };
    match family.dtype(bits) {
        Some(dtype) if is_swapped => Err(Reason::byte_order(dtype)),
        Some(dtype) => Ok(dtype),
        None => Err(Reason::dtype(family.spell(bits))),
    }
}

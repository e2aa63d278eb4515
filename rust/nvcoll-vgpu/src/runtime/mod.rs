//! The entry points of the CUDA runtime, version 12 and 13.
//!
//! Each does what its name says in terms of the modules beside this one, and returns the number of an error. Where the two
//! versions give one name to two signatures, the version that the GPU says decides.
mod devices;
mod entry;
mod graphs;
mod launches;
mod memory;
mod pools;
mod streams;
mod symbols;

use std::ffi::{c_char, CStr};

use crate::errors::{call, Failure};

/// Declares functions for which "success" is the whole answer: they tune or announce what a virtual GPU does not have.
macro_rules! accept {
    ($($name:ident)*) => { $(
        #[no_mangle]
        extern "C" fn $name() -> $crate::errors::Status {
            0
        }
    )* };
}
pub(crate) use accept;
pub(crate) use devices::device_of;
pub(crate) use entry::find;
pub(crate) use memory::{copy, copy_and_wait, fill};

/// The text of a C string.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] for null.
///
/// # Safety
/// `text` is null, or points to bytes that end with a zero and live as long as the result is used.
pub(crate) unsafe fn text_of<'a>(text: *const c_char) -> Result<&'a CStr, Failure> {
    if text.is_null() {
        return Err(Failure::INVALID_VALUE);
    }
    // SAFETY: the caller's contract.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// Writes a text and its zero byte into a buffer, cut to its length.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] for null or a length below 1.
///
/// # Safety
/// `buffer` is null, or writable for `length` bytes.
pub(crate) unsafe fn write_text(buffer: *mut c_char, length: i32, text: &str) -> Result<(), Failure> {
    let room = usize::try_from(length).ok().and_then(|length| length.checked_sub(1));
    let room = room.filter(|_| !buffer.is_null()).ok_or(Failure::INVALID_VALUE)?;
    let bytes = &text.as_bytes()[..text.len().min(room)];
    // SAFETY: the caller's contract; one byte of `length` is left for the zero.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), bytes.len());
        buffer.add(bytes.len()).write(0);
    }
    Ok(())
}

//! Entry points by name: how the runtime and the driver give a program their own functions.
//!
//! A name without a version means its newest version, so `cuMemGetAddressRange` is `cuMemGetAddressRange_v2`. Under CUDA 12
//! a third version is not looked for. A name that nobody answers is not found, and the program does without.
#![allow(non_snake_case)] // the names of a public interface

use std::ffi::{c_char, c_void, CStr, CString};

use super::{call, text_of};
use crate::errors::{Failure, Status};
use crate::gpu::gpu;
use crate::{set, Out};

fn look_up(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: `name` is a C string; looking a symbol up has no other condition.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

/// The function with a name of the driver.
pub(crate) fn entry_point(name: &CStr) -> Option<*mut c_void> {
    let versions: &[&str] = if gpu().cuda >= 13 { &["_v3", "_v2", ""] } else { &["_v2", ""] };
    versions.iter().find_map(|version| {
        let name = CString::new([name.to_bytes(), version.as_bytes()].concat()).ok()?;
        look_up(&name)
    })
}

/// Writes the function with a name to a place: whether it was found is the second place's, 0 or 1.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] for null, [`Failure::NOT_FOUND`] if nobody answers the name and nobody asked whether.
///
/// # Safety
/// `name` is null or a C string.
pub(crate) unsafe fn find(name: *const c_char, out: Out<*mut c_void>, status: Out<i32>) -> Result<(), Failure> {
    // SAFETY: the caller's contract.
    let found = entry_point(unsafe { text_of(name)? });
    set(out, found.unwrap_or(std::ptr::null_mut()))?;
    let was_asked = set(status, found.is_none().into()).is_ok();
    if found.is_some() || was_asked {
        Ok(())
    } else {
        Err(Failure::NOT_FOUND)
    }
}

#[no_mangle]
unsafe extern "C" fn cudaGetDriverEntryPoint(
    name: *const c_char,
    out: Out<*mut c_void>,
    _flags: u64,
    status: Out<i32>,
) -> Status {
    // SAFETY: the contract of the C function: `name` is a C string.
    call(|| unsafe { find(name, out, status) })
}

#[no_mangle]
unsafe extern "C" fn cudaGetDriverEntryPointByVersion(
    name: *const c_char,
    out: Out<*mut c_void>,
    _version: u32,
    _flags: u64,
    status: Out<i32>,
) -> Status {
    // SAFETY: the contract of the C function: `name` is a C string.
    call(|| unsafe { find(name, out, status) })
}

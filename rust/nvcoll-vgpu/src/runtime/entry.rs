//! Entry points by name: how the runtime and the driver give a program their own functions.
//!
//! A name without a version means its newest version, so `cuMemGetAddressRange` is `cuMemGetAddressRange_v2`. Under CUDA 12
//! a third version is not looked for. A name that nobody answers is not found, and the program does without.
#![allow(non_snake_case)] // the names of a public interface

use std::ffi::{c_void, CStr, CString};

use crate::arguments::Text;
use crate::entry_points::{functions, runtime};
use crate::errors::{self, Failure};
use crate::gpu::gpu;
use crate::{set, Answer, Out};

/// The function with a name of the driver.
fn entry_point(name: &CStr) -> Option<*mut c_void> {
    let versions: &[&str] = if gpu().cuda >= 13 { &["_v3", "_v2", ""] } else { &["_v2", ""] };
    versions.iter().find_map(|version| {
        let name = CString::new([name.to_bytes(), version.as_bytes()].concat()).ok()?;
        // SAFETY: `name` is a C string; looking a symbol up has no other condition.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    })
}

/// Writes the function with a name to a place: whether it was found is the second place's, 0 or 1.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] for null, [`Failure::NOT_FOUND`] if nobody answers the name and nobody asked whether.
fn find(name: Text<'_>, out: Out<*mut c_void>, status: Out<i32>) -> Answer {
    let found = entry_point(name.read()?);
    set(out, found.unwrap_or(std::ptr::null_mut()))?;
    let was_asked = set(status, found.is_none().into()).is_ok();
    found.map(drop).or(was_asked.then_some(())).ok_or(Failure::NOT_FOUND)
}

runtime! {
    cudaGetDriverEntryPoint(name: Text, out: Out<*mut c_void>, _flags: u64, status: Out<i32>) => find(name, out, status);
    cudaGetDriverEntryPointByVersion(name: Text, out: Out<*mut c_void>, _version: u32, _flags: u64, status: Out<i32>),
        cuGetProcAddress_v2 => find(name, out, status);
}
functions! { errors::driver:
    cuGetProcAddress(name: Text, out: Out<*mut c_void>) => find(name, out, None);
    // Tables of functions that no document describes.
    cuGetExportTable() => Err(Failure::NOT_FOUND);
}

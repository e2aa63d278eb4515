//! Modules, libraries and their functions. Code is not read: a function exists when it is asked for by its name.
#![allow(non_snake_case)] // the names of a public interface

use std::ffi::{c_char, c_void};

use super::{call, refuse};
use crate::entry_points::driver;
use crate::errors::{Failure, Status};
use crate::launches;
use crate::runtime::text_of;
use crate::{set, Handle, Out};

driver! {
    cuModuleLoadData(module: Out<Handle>, _image: usize) => set(module, launches::create_owner());
}

#[no_mangle]
extern "C" fn cuModuleLoadDataEx(module: Out<Handle>, image: usize) -> Status {
    cuModuleLoadData(module, image)
}

#[no_mangle]
extern "C" fn cuModuleLoadFatBinary(module: Out<Handle>, image: usize) -> Status {
    cuModuleLoadData(module, image)
}

#[no_mangle]
extern "C" fn cuModuleLoad(module: Out<Handle>, image: usize) -> Status {
    cuModuleLoadData(module, image)
}

#[no_mangle]
extern "C" fn cuLibraryLoadData(library: Out<Handle>, code: usize) -> Status {
    cuModuleLoadData(library, code)
}

#[no_mangle]
extern "C" fn cuLibraryLoadFromFile(library: Out<Handle>, code: usize) -> Status {
    cuModuleLoadData(library, code)
}

#[no_mangle]
extern "C" fn cuModuleUnload(module: Handle) -> Status {
    launches::unload(module);
    0
}

#[no_mangle]
extern "C" fn cuLibraryUnload(library: Handle) -> Status {
    launches::unload(library);
    0
}

driver! {
    /// A library's handle is also its module's.
    cuLibraryGetModule(module: Out<Handle>, library: Handle) => set(module, library);
}

#[no_mangle]
unsafe extern "C" fn cuModuleGetFunction(function: Out<Handle>, module: Handle, name: *const c_char) -> Status {
    // SAFETY: the contract of the C function: `name` is a C string.
    call(|| set(function, launches::function_of(module, unsafe { text_of(name)? })))
}

#[no_mangle]
unsafe extern "C" fn cuLibraryGetKernel(kernel: Out<Handle>, library: Handle, name: *const c_char) -> Status {
    // SAFETY: the contract of the C function: `name` is a C string.
    call(|| set(kernel, launches::function_of(library, unsafe { text_of(name)? })))
}

driver! {
    /// A kernel's handle is also its function's.
    cuKernelGetFunction(function: Out<Handle>, kernel: Handle) => {
        launches::function(kernel)?;
        set(function, kernel)
    };
}

/// Variables of a module are in its code.
#[no_mangle]
extern "C" fn cuModuleGetGlobal_v2(_address: *mut c_void, _bytes: *mut usize) -> Status {
    Failure::NOT_FOUND.0
}

refuse! { cuLinkCreate_v2 cuLinkAddData_v2 cuLinkAddFile_v2 cuLinkComplete cuLinkDestroy }

//! Tables of entry points: a row has the names of C functions that do the same, their arguments, and what they do.
//!
//! ```text
//! functions! { answer: cublasDestroy_v2 cublasLtDestroy(handle: Handle) => LIBRARIES.remove(handle); }
//! runtime! { cudaStreamQuery(stream: Handle), cuStreamQuery => streams::query(stream); }
//! logged! { answer: cusparseSpMM cusparseSpMV(handle: Handle) => |name| launch(handle, name.number); }
//! values! { cudaGetLastError() -> Status => errors::last(true); }
//! ```
//!
//! What a row does is an [`Answer`](crate::Answer), which `answer` turns into the number that the interface has for the error.
//! The runtime also remembers it for `cudaGetLastError`; functions of the driver, behind the comma, only return it. Rows of a
//! table that begins with `unsafe` follow addresses.
//!
//! Arguments in square brackets are words: handles, addresses, and numbers; an `int` is the lower half of its word ([`int`]), as the
//! calling convention passes them. Functions ignore the arguments that a row leaves out at the end: on x86-64 the caller removes them.
use std::ffi::c_char;

use crate::{errors, Answer, Failure, Status};

/// Functions of one interface; `answer` turns what a row does into a status.
macro_rules! functions {
    (unsafe $answer:path: $($($name:ident)+ ($($argument:tt)*) => $body:expr;)*) => {
        $($crate::entry_points::functions! { @unsafe $answer, ($($argument)*), $body, $($name)+ })*
    };
    (@unsafe $answer:path, $arguments:tt, $body:expr, $($name:ident)*) => { $(
        #[no_mangle]
        pub(crate) unsafe extern "C" fn $name $arguments -> $crate::Status {
            // SAFETY: the contract of the C function: ranges of the host, lists and places are as its arguments say.
            $answer(|| unsafe { $body })
        }
    )* };
    (@ $answer:path, $arguments:tt, $body:expr, $($name:ident)*) => { $(
        #[no_mangle]
        #[allow(unused_variables)] // words are named and perhaps not read
        pub(crate) extern "C" fn $name $arguments -> $crate::Status {
            $answer(|| $body)
        }
    )* };
    ($answer:path: $($($name:ident)+ $([$($word:ident)*])? ($($argument:tt)*) => $body:expr;)*) => {
        $($crate::entry_points::functions! { @ $answer, ($($($word: usize,)*)? $($argument)*), $body, $($name)+ })*
    };
}
pub(crate) use functions;

/// Functions of the runtime, and of the driver if it has them, too.
macro_rules! runtime {
    (unsafe: $($($name:ident)+ ($($argument:tt)*) $(, $($driver:ident)+)? => $body:expr;)*) => { $(
        $crate::entry_points::functions! { @unsafe $crate::errors::runtime, ($($argument)*), $body, $($name)+ }
        $crate::entry_points::functions! { @unsafe $crate::errors::driver, ($($argument)*), $body, $($($driver)+)? }
    )* };
    ($($($name:ident)+ ($($argument:tt)*) $(, $($driver:ident)+)? => $body:expr;)*) => { $(
        $crate::entry_points::functions! { @ $crate::errors::runtime, ($($argument)*), $body, $($name)+ }
        $crate::entry_points::functions! { @ $crate::errors::driver, ($($argument)*), $body, $($($driver)+)? }
    )* };
}
pub(crate) use runtime;

/// Functions that do nothing here and fail: what the interface says of the error has their name.
macro_rules! refused {
    ($answer:path: $($name:ident)+) => { $(
        #[no_mangle]
        pub(crate) extern "C" fn $name() -> $crate::Status {
            let status = $answer(|| Err($crate::Failure::NOT_SUPPORTED));
            $crate::errors::name_refused(concat!("operation not supported by the virtual GPU: ", stringify!($name), "\0"));
            status
        }
    )+ };
}
pub(crate) use refused;

/// Functions that the log names: what a row does is a function of its [`Name`].
macro_rules! logged {
    (@ $answer:path, $arguments:tt, $body:expr, $($name:ident)+) => { $(
        #[no_mangle]
        #[allow(unused_variables)] // words are named and perhaps not read
        pub(crate) extern "C" fn $name $arguments -> $crate::Status {
            $answer(|| $crate::entry_points::Name::of($crate::entry_points::named!(stringify!($name)), stringify!($name), $body))
        }
    )+ };
    ($answer:path: $($($name:ident)+ $([$($word:ident)*])? ($($argument:tt)*) => $body:expr;)*) => {
        $($crate::entry_points::logged! { @ $answer, ($($($word: usize,)*)? $($argument)*), $body, $($name)+ })*
    };
}
pub(crate) use logged;

/// Functions that return something else than a status.
macro_rules! values {
    (@ $arguments:tt, $result:ty, $body:expr, $($name:ident)+) => { $(
        #[no_mangle]
        pub(crate) extern "C" fn $name $arguments -> $result {
            $body
        }
    )+ };
    ($($($name:ident)+ ($($argument:tt)*) -> $result:ty => $body:expr;)*) => {
        $($crate::entry_points::values! { @ ($($argument)*), $result, $body, $($name)+ })*
    };
}
pub(crate) use values;

/// The number of a name in the log, looked up once per place that says it.
macro_rules! named {
    ($text:expr) => {{
        static NUMBER: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
        *NUMBER.get_or_init(|| $crate::log::name($text))
    }};
}
pub(crate) use named;

/// The name of a function: in the log, and as a text.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    pub(crate) number: u32,
    pub(crate) text: &'static str,
}

impl Name {
    /// What a row does for a name.
    pub(crate) fn of(number: u32, text: &'static str, body: impl FnOnce(Name) -> Answer) -> Answer {
        body(Name { number, text })
    }
}

/// The `int` that a word passes.
pub(crate) fn int(word: usize) -> i32 {
    word as i32
}

/// The status of a library: its numbers for a handle that names nothing, and for any other error.
pub(crate) fn number(answer: Answer, handle: Status, other: Status) -> Status {
    match errors::driver(|| answer) {
        0 => 0,
        status if status == Failure::INVALID_HANDLE.0 => handle,
        _ => other,
    }
}

values! {
    // What a status of a library says.
    cublasGetStatusString cudnnGetErrorString cusparseGetErrorString ncclGetErrorString nvmlErrorString nvrtcGetErrorString
        (status: Status) -> *const c_char => outcome(status);
}

/// What a status of a library says.
pub(crate) fn outcome(status: Status) -> *const c_char {
    let unknown = c"the virtual GPU does not know a handle or a value, or has no memory left";
    if status == 0 { c"success" } else { errors::refused().unwrap_or(unknown) }.as_ptr()
}

//! Tables of entry points: a row has the names of a C function, its arguments, and what it does.
//!
//! ```text
//! runtime! { cudaStreamQuery(stream: Handle), cuStreamQuery => streams::query(stream); }
//! ```
//!
//! The function of the runtime remembers its error for `cudaGetLastError`; those of the driver, behind the comma, only return
//! it. What a row does is `Result<(), Failure>`. Functions that read memory through pointers are written out, since each has
//! a contract of its own.

/// Functions of the runtime, and their names in the driver if it has them, too.
macro_rules! runtime {
    ($($(#[$doc:meta])* $name:ident $arguments:tt $(, $driver:ident)* => $body:expr;)*) => { $(
        $(#[$doc])*
        #[no_mangle]
        extern "C" fn $name $arguments -> $crate::Status {
            $crate::errors::call(|| $body)
        }
        $(
            #[no_mangle]
            extern "C" fn $driver $arguments -> $crate::Status {
                $crate::errors::call_driver(|| $body)
            }
        )*
    )* };
}
pub(crate) use runtime;

/// Functions of the driver alone.
macro_rules! driver {
    ($($(#[$doc:meta])* $name:ident $arguments:tt => $body:expr;)*) => { $(
        $(#[$doc])*
        #[no_mangle]
        extern "C" fn $name $arguments -> $crate::Status {
            $crate::errors::call_driver(|| $body)
        }
    )* };
}
pub(crate) use driver;

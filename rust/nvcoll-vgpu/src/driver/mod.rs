//! The entry points of the CUDA driver that programs of training use, directly or through the runtime's table of them.
//!
//! Names without a version are not defined here where a later version exists: `entry_point` finds that.
mod contexts;
mod devices;
mod launches;
mod mapped;
mod memory;
mod modules;
mod pointers;
mod streams;

use crate::errors::{status, Failure, Status};

/// Runs the body of an entry point. The driver keeps no last error.
fn call(body: impl FnOnce() -> Result<(), Failure>) -> Status {
    status(body())
}

/// Declares functions that answer "not supported": a program that can do without does so.
macro_rules! refuse {
    ($($name:ident)*) => { $(
        #[no_mangle]
        extern "C" fn $name() -> $crate::errors::Status {
            $crate::Failure::NOT_SUPPORTED.0
        }
    )* };
}
pub(crate) use refuse;

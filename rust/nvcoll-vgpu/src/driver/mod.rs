//! The entry points of the CUDA driver that programs of training use, directly or through the runtime's table of them.
//!
//! Functions that do what one of the runtime does stand in the runtime's tables, behind its name. Names without a version are
//! not defined where a later version exists: `entry_point` finds that.
mod contexts;
mod devices;
mod launches;
mod mapped;
mod memory;
mod modules;
mod pointers;

use crate::errors::call_driver as call;

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

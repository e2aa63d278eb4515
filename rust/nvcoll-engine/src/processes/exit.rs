//! The end of a rank with its process: the exit status decides whether its peers hear that it returned, or that it failed.
//!
//! A program that ends by `sys.exit(3)` has failed, and nothing in Python knows the status before the interpreter is gone. The C library
//! does, and passes it to functions that were registered with `on_exit`. So the communicators of the rank are kept until then. A process
//! that ends otherwise, by a signal or `_exit`, is noticed as gone.
//!
//! Source: on_exit(3) of the GNU C library. Other libraries have none: there a rank whose program reaches its end has returned.

use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Result;
use crate::ranks::member::Member;
use crate::ranks::memberships::{Memberships, RankEnd};
use crate::ranks::rank_end::retire;
use crate::system::process::Process;

/// What ends with this process.
static LEAVING: Mutex<Vec<(Process, Arc<Member>)>> = Mutex::new(Vec::new());

/// Has a rank end with this process.
///
/// # Errors
/// As [`retire`], if another thread is in a call.
pub(crate) fn leave_at_exit(memberships: &Memberships<Member>) -> Result<()> {
    let members = memberships.all();
    if members.iter().any(|member| member.is_in_a_call()) || !is_registered() {
        return retire(memberships);
    }
    let mut leaving = LEAVING.lock().unwrap_or_else(PoisonError::into_inner);
    leaving.extend(members.into_iter().map(|member| (Process::current(), member)));
    Ok(())
}

/// Says whether the C library will call [`leave`].
fn is_registered() -> bool {
    #[cfg(target_env = "gnu")]
    {
        use std::ffi::{c_int, c_void};
        use std::ptr::null_mut;

        extern "C" {
            fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
        }
        extern "C" fn at_exit(status: c_int, _: *mut c_void) {
            leave(status as u8); // parents see the lowest eight bits
        }
        // SAFETY: the function uses no argument, and is there as long as the process: Python unloads no extension.
        unsafe { on_exit(at_exit, null_mut()) == 0 }
    }
    #[cfg(not(target_env = "gnu"))]
    false
}

/// Tells the peers how the process ended.
#[cfg_attr(not(target_env = "gnu"), expect(dead_code, reason = "nobody knows the status"))]
fn leave(status: u8) {
    let end = if status == 0 { RankEnd::Returned } else { RankEnd::Exited(status) };
    let leaving = std::mem::take(&mut *LEAVING.lock().unwrap_or_else(PoisonError::into_inner));
    for (_, member) in leaving.iter().filter(|(process, _)| process.is_current()) {
        member.end(end);
    }
}

//! Functions for Python in the child: the log, its names, and settings of a thread.
use std::ffi::{c_char, CStr};
use std::sync::Mutex;

use crate::entry_points::values;
use crate::log::{self, Record};
use crate::{memory, set, streams, Out};

/// Symbols that answered "success" and nothing else, in the order of their first call.
static UNANSWERED: Mutex<Vec<&'static CStr>> = Mutex::new(Vec::new());

/// Notes a call of a symbol that this library does not answer; `NVCOLL_VGPU_TRACE=1` names it on the standard error.
pub fn note_unanswered(symbol: &'static CStr) {
    let mut noted = log::lock(&UNANSWERED);
    if noted.contains(&symbol) {
        return;
    }
    noted.push(symbol);
    if std::env::var_os("NVCOLL_VGPU_TRACE").is_some() {
        eprintln!("nvcoll, virtual GPU: {} is not answered", symbol.to_string_lossy());
    }
}

values! {
    nvcoll_vgpu_log() -> *const Record => log::records();
    nvcoll_vgpu_count() -> u64 => log::count();
    nvcoll_vgpu_lost() -> u64 => log::lost();
    nvcoll_vgpu_name_of(name: u32) -> *const c_char => log::text(name).map_or(std::ptr::null(), CStr::as_ptr);
    nvcoll_vgpu_names() -> u32 => log::names();
    nvcoll_vgpu_set_op(op: u32) -> () => log::set_op(op);
    nvcoll_vgpu_get_op() -> u32 => log::op();
    nvcoll_vgpu_used(device: i32) -> u64 => u16::try_from(device).map_or(0, memory::used);
    nvcoll_vgpu_watchdog(is_watchdog: i32) -> () => streams::set_watchdog(is_watchdog != 0);
    nvcoll_vgpu_unanswered(index: u32) -> *const c_char =>
        log::lock(&UNANSWERED).get(index as usize).map_or(std::ptr::null(), |symbol| symbol.as_ptr());
    nvcoll_vgpu_address_range(start: Out<u64>, length: Out<u64>) -> () => {
        let (first, bytes) = memory::address_range();
        let _ = (set(start, first as u64), set(length, bytes as u64));
    };
}

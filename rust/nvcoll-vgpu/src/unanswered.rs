//! The symbols that this library does not answer, in the order of their first call.

use std::ffi::CStr;
use std::sync::Mutex;

use crate::lock::lock;

/// Symbols that answered "success" and nothing else, in the order of their first call.
pub(crate) static UNANSWERED: Mutex<Vec<&'static CStr>> = Mutex::new(Vec::new());

/// Notes a call of a symbol that this library does not answer; `NVCOLL_VGPU_TRACE=1` names it on the standard error.
pub(crate) fn note_unanswered(symbol: &'static CStr) {
    let mut noted = lock(&UNANSWERED);
    if noted.contains(&symbol) {
        return;
    }
    noted.push(symbol);
    if std::env::var_os("NVCOLL_VGPU_TRACE").is_some() {
        eprintln!("nvcoll, virtual GPU: {} is not answered", symbol.to_string_lossy());
    }
}

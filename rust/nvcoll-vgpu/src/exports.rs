//! Functions for Python in the child: the log, its names, and settings of a thread.
//!
//! Python's side of the log is written from this library, by `tools/generate/wire.py`: the functions of [`exports`], and the fields and kinds
//! of records (`records`), as [`nvcoll_vgpu_wire`] describes them.
use std::ffi::{c_char, c_int, CStr, CString};
use std::sync::LazyLock;

use crate::arguments::List;
use crate::lock::lock;
use crate::log::{self, LogRecord};
use crate::records::{CAPTURED, FIELDS, KINDS};
use crate::unanswered::UNANSWERED;
use crate::{clock, memory, nccl, set, times, Out};

/// Declares functions for Python, and the list of them.
macro_rules! exports {
    ($($(#[doc = $doc:literal])+ $name:ident($($argument:ident: $type:ty),*) -> $result:ty => $body:expr;)*) => {
        $($(#[doc = $doc])+
        #[no_mangle]
        extern "C" fn $name($($argument: $type),*) -> $result {
            $body
        })*
        /// Name, result and arguments of each function.
        const EXPORTS: &[&[&str]] = &[$(&[stringify!($name), stringify!($result), $(stringify!($type)),*]),*];
    };
}

exports! {
    /// The first record of the log.
    nvcoll_vgpu_log() -> *const LogRecord => log::records();
    /// The number of records.
    nvcoll_vgpu_count() -> u64 => log::count();
    /// When records were written, in nanoseconds.
    nvcoll_vgpu_stamps() -> *const u64 => log::stamps();
    /// The number of records for which the log had no space.
    nvcoll_vgpu_lost() -> u64 => log::lost();
    /// A name of the log; null for a number that is none.
    nvcoll_vgpu_name_of(name: u32) -> *const c_char => log::text(name).map_or(std::ptr::null(), CStr::as_ptr);
    /// The number of names in the log.
    nvcoll_vgpu_names() -> u32 => log::names();
    /// Sets the operator of this thread's next records.
    nvcoll_vgpu_set_op(op: u32) -> () => log::set_op(op);
    /// Says what the next `ncclCommSplit` makes: the number of ranks, and this rank.
    nvcoll_vgpu_split_hint(ranks: c_int, rank: c_int) -> () => nccl::set_split_hint(ranks, rank);
    /// Bytes of a GPU that the program uses.
    nvcoll_vgpu_used(device: c_int) -> u64 => u16::try_from(device).map_or(0, memory::used);
    /// A called function that only answers "success"; null behind the last one.
    nvcoll_vgpu_unanswered(index: u64) -> *const c_char =>
        lock(&UNANSWERED).get(index as usize).map_or(std::ptr::null(), |symbol| symbol.as_ptr());
    /// The first address of the GPU's memory, and its bytes.
    nvcoll_vgpu_address_range(start: Out<u64>, length: Out<u64>) -> () => {
        let (first, bytes) = memory::address_range();
        let _ = (set(start, first as u64), set(length, bytes as u64));
    };
    /// Says when the `n` records from `first` on begin and end, in nanoseconds from the start of their step.
    nvcoll_vgpu_set_times(start: List<u64>, end: List<u64>, first: u64, n: u64, period_ns: u64) -> () =>
        set_times(start, end, first, n, period_ns);
    /// What `tools/generate/wire.py` writes as Python: a line for each field, kind, constant and function, with tabs.
    nvcoll_vgpu_wire() -> *const c_char => WIRE.as_ptr();
}

fn set_times(start: List<u64>, end: List<u64>, first: u64, n: u64, period_ns: u64) {
    let Ok(n @ 1..) = usize::try_from(n) else { return };
    let (Ok(start), Ok(end)) = (start.read(n), end.read(n)) else { return };
    let times: Vec<[u64; 2]> = start.iter().zip(end).map(|(start, end)| [*start, end.max(*start)]).collect();
    times::set(first, &times, period_ns);
    clock::step(period_ns);
}

static WIRE: LazyLock<CString> = LazyLock::new(|| {
    let fields = FIELDS.iter().map(|(name, of_type)| format!("field\t{name}\t{of_type}"));
    let kinds = KINDS.iter().map(|(name, number, content)| format!("kind\t{name}\t{number}\t{}", content.trim()));
    let captured = std::iter::once(format!("constant\tCAPTURED\t{CAPTURED}"));
    let functions = EXPORTS.iter().map(|words| format!("function\t{}", words.join("\t")));
    let lines: Vec<String> = fields.chain(kinds).chain(captured).chain(functions).collect();
    CString::new(lines.join("\n")).unwrap_or_default()
});

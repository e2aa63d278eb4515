//! What the profiler has noted of the log, and the clock by which it did.
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::log::LogRecord;

/// Kinds of activities: `CUpti_ActivityKind`.
pub(super) const COPY: u32 = 1;
pub(super) const FILL: u32 = 2;
pub(super) const KERNEL: u32 = 3;
pub(super) const CALL: u32 = 5;
pub(super) const CONCURRENT_KERNEL: u32 = 10;
pub(super) const LINK: u32 = 39;

/// Default duration of a kernel (chosen).
pub(super) const MADE_UP_NS: u64 = 2_000;
/// How long a launch takes to reach the GPU (chosen).
pub(super) const LAUNCH_NS: u64 = 4_000;

/// A record that was written while the profiler looked.
#[derive(Clone, Debug)]
pub(super) struct Note {
    pub(super) position: u64,
    pub(super) record: LogRecord,
    /// The time stamp of the profiler's function.
    pub(super) stamp: u64,
    /// `pthread_self`, as CUPTI gives it.
    pub(super) thread: u32,
    /// Kind and id of the innermost operators of this thread.
    pub(super) operators: Vec<(u32, u64)>,
}

/// A stamp of the profiler's clock, and the real monotonic time then in ns.
pub(super) type Anchor = (u64, i64);

/// The profiler's clock, a function without arguments; 0: ns since the epoch. Relaxed: set before it looks.
pub(super) static STAMP: AtomicUsize = AtomicUsize::new(0);
/// A time stamp of the profiler's clock.
pub(super) fn stamp() -> u64 {
    match STAMP.load(Ordering::Relaxed) {
        0 => {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            since.map_or(0, |since| since.as_nanos() as u64)
        }
        function => {
            // SAFETY: the profiler registered it as a function of this type, by CUPTI's interface.
            let function = unsafe { std::mem::transmute::<usize, extern "C" fn() -> u64>(function) };
            function()
        }
    }
}

/// Whether the profiler wanted a kind since it last flushed, or wants it now.
pub(super) fn is_wanted(wanted: u64, kind: u32) -> bool {
    wanted & 1 << kind != 0
}

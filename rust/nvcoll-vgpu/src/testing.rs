//! What tests of entry points share: the records and the values that calls write.
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::log::{self, LogRecord};
use crate::{Out, Status};

/// What `calls` writes into the log, which tests share: each marks its records with an operator of its own.
pub(crate) fn records_of(calls: impl FnOnce()) -> Vec<LogRecord> {
    static NEXT: AtomicU32 = AtomicU32::new(1_000_000);
    let op = NEXT.fetch_add(1, Ordering::Relaxed); // Relaxed: only uniqueness counts
    log::set_op(op);
    calls();
    log::set_op(0);
    (0..log::count()).filter_map(log::record).filter(|record| record.op == op).collect()
}

/// What a call that succeeds leaves in a place that held `first`.
pub(crate) fn value_of<T: Copy>(first: T, write: impl FnOnce(Out<'_, T>) -> Status) -> T {
    let mut out = MaybeUninit::new(first);
    assert_eq!(write(Some(&mut out)), 0);
    // SAFETY: it was initialized with `first`.
    unsafe { out.assume_init() }
}

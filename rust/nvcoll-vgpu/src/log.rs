//! The log: one record of 64 bytes for each call of a program to the GPU, in the order of the calls.
//!
//! The records lie in one anonymous mapping, which Python reads in place. Address space for all of them is reserved at the
//! start, pages come as records do: a million records take 64 MB. A record is written before the count is raised, both under
//! one lock, so a reader sees whole records.
//!
//! Names of kernels and collectives are numbers, which count from 1 in the order of their first use. 0 is the empty name.
use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, OnceLock};

use rustix::mm::{mmap_anonymous, MapFlags, ProtFlags};

use crate::captures;
use crate::lock::lock;
use crate::real_time;
pub use crate::records::{stream_number, LogRecord, RecordKind, CAPTURED};
use crate::Handle;

/// Records that the mapping has space for: 4 GiB of addresses (chosen). Miri gives every page memory at once, so there it has few.
const CAPACITY: u64 = if cfg!(miri) { 1 << 12 } else { 1 << 26 };

struct Log {
    records: *mut LogRecord,
    /// When each record was written, in nanoseconds of the monotonic clock.
    stamps: *mut u64,
    /// Written under the lock with Release, after the record. Pairs with the Acquire of [`count`].
    count: AtomicU64,
    lost: AtomicU64,
    /// Per stream: one more than the position of its last record.
    last: Mutex<Vec<u64>>,
}

// SAFETY: `records` and `stamps` point to mappings that live as long as the process; `append` writes them only under the lock `last`.
unsafe impl Send for Log {}
// SAFETY: as for `Send`.
unsafe impl Sync for Log {}

/// Address space for something of each record.
fn mapped<T>() -> *mut T {
    let bytes = CAPACITY as usize * size_of::<T>();
    let reserved = if cfg!(miri) { MapFlags::empty() } else { MapFlags::NORESERVE };
    // SAFETY: a new anonymous mapping at an address that the kernel chooses touches no memory that is in use.
    let mapped = unsafe {
        mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | reserved)
    };
    mapped.expect("address space for the log").cast()
}

static LOG: LazyLock<Log> = LazyLock::new(|| Log {
    records: mapped(),
    stamps: mapped(),
    count: AtomicU64::new(0),
    lost: AtomicU64::new(0),
    last: Mutex::new(Vec::new()),
});

thread_local! {
    static OP: Cell<u32> = const { Cell::new(0) };
    static DEVICE: Cell<u16> = const { Cell::new(0) };
}

/// Appends a record of this thread's operator and device, and returns its position.
pub fn push<const N: usize>(kind: RecordKind, stream: Handle, name: u32, args: [u64; N]) -> u64 {
    let record = made(kind, stream, name, args);
    if kind.is_captured() {
        return submit(record);
    }
    append(&record)
}

/// A record of this thread's operator and device, which is not in the log yet.
pub(crate) fn made<const N: usize>(kind: RecordKind, stream: Handle, name: u32, args: [u64; N]) -> LogRecord {
    const { assert!(N <= 6, "a record has six arguments") };
    let mut all = [0; 6];
    all[..N].copy_from_slice(&args);
    let (device, stream) = (DEVICE.get(), stream_number(stream));
    LogRecord { kind: kind as u16, device, stream, name, op: OP.get(), args: all }
}

/// Appends a record of a kind that graphs hold: if its stream captures, it becomes part of the graph.
pub fn submit(mut record: LogRecord) -> u64 {
    captures::take(&mut record);
    append(&record)
}

/// Appends `record` as it is and returns its position. A record beyond the capacity is only counted as lost.
fn append(record: &LogRecord) -> u64 {
    let mut last = lock(&LOG.last);
    let position = LOG.count.load(Ordering::Relaxed); // Relaxed: written under the lock that is held
    if position == CAPACITY {
        LOG.lost.fetch_add(1, Ordering::Relaxed); // a statistic that orders nothing
        return position;
    }
    // SAFETY: the position is below CAPACITY, inside the mapping, and no other thread writes while the lock is held.
    unsafe { LOG.records.add(position as usize).write(*record) };
    let stream = record.stream as usize;
    if last.len() <= stream {
        last.resize(stream + 1, 0);
    }
    last[stream] = position + 1;
    // SAFETY: as above; the mapping has a stamp for each record.
    unsafe { LOG.stamps.add(position as usize).write(real_time::monotonic_ns() as u64) };
    LOG.count.store(position + 1, Ordering::Release); // pairs with the Acquire of `count`
    drop(last);
    if let Some(observer) = OBSERVER.get() {
        observer.wrote(position, record);
    }
    position
}

/// Sees the log while a program runs: the profiler.
pub(crate) trait Observer: Sync {
    /// A record was written.
    fn wrote(&self, position: u64, record: &LogRecord);

    /// The host waits for everything before a position of the log, or of one stream.
    fn host_waits(&self, before: u64, stream: Option<u32>);
}

static OBSERVER: OnceLock<&'static dyn Observer> = OnceLock::new();

/// Lets the observer see the log from now on. There is one, so a second call changes nothing.
pub(crate) fn observe(observer: &'static dyn Observer) {
    OBSERVER.get_or_init(|| observer);
}

/// Says that the host waits for everything before a position of the log, or of one stream.
pub(crate) fn host_waits(before: u64, stream: Option<u32>) {
    if let Some(observer) = OBSERVER.get() {
        observer.host_waits(before, stream);
    }
}

/// Records that were written.
pub fn count() -> u64 {
    LOG.count.load(Ordering::Acquire) // pairs with the Release of `append`
}

/// Records that found no space.
pub fn lost() -> u64 {
    LOG.lost.load(Ordering::Relaxed) // a statistic that orders nothing
}

/// The first record.
pub fn records() -> *const LogRecord {
    LOG.records
}

/// The record at a position; none at or after [`count`].
pub fn record(position: u64) -> Option<LogRecord> {
    // SAFETY: records below the count are whole and never change.
    (position < count()).then(|| unsafe { LOG.records.add(position as usize).read() })
}

/// The stamp of the first record.
pub fn stamps() -> *const u64 {
    LOG.stamps
}

/// One more than the position of the last record of a stream; 0 if it has none.
pub fn last_of(stream: Handle) -> u64 {
    let last = lock(&LOG.last);
    last.get(stream_number(stream) as usize).copied().unwrap_or(0)
}

/// Sets the operator of this thread's next records.
pub fn set_op(op: u32) {
    OP.set(op);
}

/// The operator of this thread's next records.
pub fn op() -> u32 {
    OP.get()
}

/// Sets the GPU of this thread.
pub fn set_device(device: u16) {
    crate::gpu::use_device(device);
    DEVICE.set(device);
}

/// The GPU of this thread.
pub fn device() -> u16 {
    DEVICE.get()
}

#[derive(Default)]
struct Names {
    numbers: HashMap<&'static CStr, u32>,
    texts: Vec<&'static CStr>,
}

static NAMES: LazyLock<Mutex<Names>> = LazyLock::new(|| {
    let names = Names { texts: vec![c""], numbers: HashMap::from([(c"", 0)]) };
    Mutex::new(names)
});

/// The number of a name; the same text always has the same number.
pub fn name(text: &str) -> u32 {
    let text = CString::new(text.replace('\0', "")).unwrap_or_default();
    name_of_text(&text)
}

/// The number of a name that C gave.
pub fn name_of_text(text: &CStr) -> u32 {
    let mut names = lock(&NAMES);
    if let Some(number) = names.numbers.get(text) {
        return *number;
    }
    let number = names.texts.len() as u32;
    let kept: &'static CStr = Box::leak(text.to_owned().into_boxed_c_str());
    names.texts.push(kept);
    names.numbers.insert(kept, number);
    number
}

/// The text of a name.
pub fn text(name: u32) -> Option<&'static CStr> {
    lock(&NAMES).texts.get(name as usize).copied()
}

/// Names that exist, the empty one included.
pub fn names() -> u32 {
    lock(&NAMES).texts.len() as u32
}

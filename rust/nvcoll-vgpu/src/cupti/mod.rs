//! CUPTI: the profiler of torch finds the records of the log, in a second run with predicted times.
//!
//! ```text
//! a record is written ─▶ note: position, host time, thread, the operator's ids on this thread's stack
//! flush               ─▶ for each note: link (operator ─ correlation), call of the runtime, kernel or copy or fill
//! ```
//!
//! Kineto joins the three by the correlation id and so finds the operator of a kernel. A kernel's time is predicted
//! (`times`); in a first run, and before the first step with predicted times, each kernel takes [`MADE_UP_NS`] and follows the
//! kernel before it on its stream. Kernels never start before the host issued them: a step is moved as a whole, as far as
//! its latest record needs. Waits of the host in a second run take real time while the profiler records.
//!
//! Time stamps come from the function that the profiler registers. Its unit is not given, so it is measured.
//! Names, argument orders and layouts of records (own declarations) are from NVIDIA's documentation, *CUPTI*.
mod buffers;
mod names;
mod notes;
mod records;
mod timeline;

use std::cell::RefCell;
use std::ffi::c_char;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;

use notes::{stamp, Anchor, Note, CONCURRENT_KERNEL, COPY, FILL, KERNEL, STAMP};

use crate::entry_points::{functions, outcome};
use crate::gpu::gpu;
use crate::lock::lock;
use crate::log::{self, LogRecord, Observer, RecordKind, CAPTURED};
use crate::real_time::monotonic_ns;
use crate::{clock, set, times, Answer, Failure, Handle, Out, Status};

/// `CUptiResult`: maximum limit reached (no record is left), queue empty, invalid parameter.
fn answer(body: impl FnOnce() -> Answer) -> Status {
    body().map_or_else(
        |failure| match failure {
            Failure::NOT_FOUND => 12,
            Failure::NOT_READY => 18,
            _ => 1,
        },
        |()| 0,
    )
}

/// The kinds that the profiler wants, as bits. Relaxed: it is set before and after the work that is looked at.
static WANTED: AtomicU64 = AtomicU64::new(0);
/// Whether any of them is written here: what `note` asks first. Relaxed: as `WANTED`.
static LOOKS: AtomicBool = AtomicBool::new(false);
static NOTES: Mutex<Vec<Note>> = Mutex::new(Vec::new());
/// A time by that clock and by the real one in ns, from which its unit is measured.
static ANCHOR: Mutex<Option<Anchor>> = Mutex::new(None);

thread_local! {
    static OPERATORS: RefCell<Vec<(u32, u64)>> = const { RefCell::new(Vec::new()) };
}

/// Notes a record that the log just took, if the profiler looks.
fn note(position: u64, record: &LogRecord) {
    if !LOOKS.load(Ordering::Relaxed) {
        return;
    }
    const SHOWN: [u16; 5] = [
        RecordKind::Launch as u16,
        RecordKind::Gemm as u16,
        RecordKind::Copy as u16,
        RecordKind::Fill as u16,
        RecordKind::Collective as u16,
    ];
    if record.kind & CAPTURED != 0 || !SHOWN.contains(&record.kind) {
        return;
    }
    let operators = OPERATORS.try_with(|stack| innermost(&stack.borrow())).unwrap_or_default();
    buffers::prepare();
    // SAFETY: the call has no condition.
    let thread = unsafe { libc::pthread_self() } as u32;
    lock(&NOTES).push(Note { position, record: *record, stamp: stamp(), thread, operators });
}

/// Makes the host wait, while the profiler records in a second run, until the awaited work has run: everything before a
/// position of the log, or of one stream. So the profiler's window holds all of it, as on a GPU.
fn pace(before: u64, stream: Option<u32>) {
    if !LOOKS.load(Ordering::Relaxed) {
        return;
    }
    let notes = lock(&NOTES).clone();
    if notes.last().is_none_or(|last| times::of(last.position).is_none()) {
        return;
    }
    let anchor = *lock(&ANCHOR);
    let waited = |note: &Note| note.position < before && stream.is_none_or(|stream| stream == note.record.stream);
    let runs = timeline::timeline(&notes, anchor);
    let until = notes.iter().zip(&runs).filter(|(note, _)| waited(note)).map(|(_, run)| run.1).max();
    timeline::sleep_until(until.unwrap_or(0), anchor);
}

/// The profiler, as seen in the log.
struct Profiler;

impl Observer for Profiler {
    fn wrote(&self, position: u64, record: &LogRecord) {
        note(position, record);
    }

    fn host_waits(&self, before: u64, stream: Option<u32>) {
        pace(before, stream);
    }
}

/// The last entry of each kind of a stack.
fn innermost(stack: &[(u32, u64)]) -> Vec<(u32, u64)> {
    let mut last: Vec<(u32, u64)> = Vec::new();
    for entry in stack.iter().rev() {
        if last.iter().all(|(kind, _)| kind != &entry.0) {
            last.push(*entry);
        }
    }
    last
}

/// Wants or no longer wants a kind of activity.
fn want(kind: u32, wanted: bool) -> Answer {
    let bit = 1u64.checked_shl(kind).ok_or(Failure::INVALID_VALUE)?;
    let kinds = if wanted {
        WANTED.fetch_or(bit, Ordering::Relaxed) | bit
    } else {
        WANTED.fetch_and(!bit, Ordering::Relaxed) & !bit
    };
    let shown = [COPY, FILL, KERNEL, CONCURRENT_KERNEL].iter().any(|kind| kinds & 1 << kind != 0);
    LOOKS.store(shown, Ordering::Relaxed);
    log::observe(&Profiler);
    clock::hold(shown);
    if wanted {
        lock(&ANCHOR).get_or_insert_with(|| (stamp(), monotonic_ns()));
        EVER_WANTED.fetch_or(kinds, Ordering::Relaxed);
    }
    Ok(())
}

/// Kinds that were wanted when notes were taken: a profiler disables them before it flushes.
static EVER_WANTED: AtomicU64 = AtomicU64::new(0);

/// Hands all notes to the profiler.
fn flush() {
    let notes = std::mem::take(&mut *lock(&NOTES));
    if notes.is_empty() {
        return;
    }
    let anchor = *lock(&ANCHOR);
    let times = timeline::timeline(&notes, anchor);
    buffers::deliver(records::of(&notes, &times, EVER_WANTED.load(Ordering::Relaxed)));
}

/// What `with` makes of this thread's operators; an error where a thread ends.
fn operators<T>(with: impl FnOnce(&mut Vec<(u32, u64)>) -> T) -> Result<T, Failure> {
    OPERATORS.try_with(|stack| with(&mut stack.borrow_mut())).map_err(|_| Failure::INVALID_VALUE)
}

functions! { answer:
    cuptiActivityEnable(kind: u32) => want(kind, true);
    cuptiActivityDisable(kind: u32) => want(kind, false);
    // The function that gives time stamps.
    cuptiActivityRegisterTimestampCallback(function: usize) => {
        STAMP.store(function, Ordering::Relaxed);
        *lock(&ANCHOR) = None;
        Ok(())
    };
    cuptiActivityPushExternalCorrelationId(kind: u32, id: u64) => operators(|stack| stack.push((kind, id)));
    // The place for the last operator of the kind is optional.
    cuptiActivityPopExternalCorrelationId(kind: u32, last: Out<u64>) => {
        let taken = operators(|stack| stack.iter().rposition(|entry| entry.0 == kind).map(|index| stack.remove(index)))?;
        let _ = set(last, taken.ok_or(Failure::NOT_READY)?.1);
        Ok(())
    };
    // The functions that hand out and take buffers.
    cuptiActivityRegisterCallbacks(ask: Option<buffers::Ask>, give: Option<buffers::Give>) => {
        let (ask, give) = ask.zip(give).ok_or(Failure::INVALID_VALUE)?;
        buffers::register(ask, give);
        Ok(())
    };
    cuptiActivityGetNextRecord(buffer: Handle, filled: usize, record: Option<&mut Handle>) =>
        buffers::advance(buffer, filled, record.ok_or(Failure::INVALID_VALUE)?);
    cuptiActivityFlushAll() => { flush(); Ok(()) };
    // Records that found no place: none.
    cuptiActivityGetNumDroppedRecords(_context: Handle, _stream: u32, out: Out<usize>) => set(out, 0);
    cuptiGetVersion(out: Out<u32>) => set(out, if gpu().cuda == 12 { 26 } else { 130_202 });
    // Callbacks are never called.
    cuptiSubscribe(out: Out<Handle>) => set(out, 64);
    cuptiGetCallbackName(_domain: u32, number: u32, out: Out<*const c_char>) => set(out, records::call_name(number).as_ptr());
    cuptiGetResultString(result: Status, out: Out<*const c_char>) => set(out, outcome(result));
    cuptiActivityEnableCudaEventDeviceTimestamps cuptiActivityEnableDriverApi cuptiActivityEnableRuntimeApi
        cuptiActivitySetAttribute cuptiEnableCallback cuptiEnableDomain cuptiFinalize cuptiUnsubscribe() => Ok(());
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUCCESS: Status = 0;
    const QUEUE_EMPTY: Status = 18;

    #[test]
    fn the_innermost_operator_of_each_kind_counts() {
        assert_eq!(innermost(&[(3, 1), (4, 2), (3, 5)]), [(3, 5), (4, 2)]);
    }

    #[test]
    fn operators_are_taken_from_the_stack_by_kind() {
        cuptiActivityPushExternalCorrelationId(3, 7);
        cuptiActivityPushExternalCorrelationId(4, 8);
        let mut last = std::mem::MaybeUninit::new(0);
        assert_eq!(cuptiActivityPopExternalCorrelationId(3, Some(&mut last)), SUCCESS);
        // SAFETY: it was initialized.
        assert_eq!(unsafe { last.assume_init() }, 7);
        assert_eq!(cuptiActivityPopExternalCorrelationId(3, None), QUEUE_EMPTY);
        assert_eq!(cuptiActivityPopExternalCorrelationId(4, None), SUCCESS);
    }
}

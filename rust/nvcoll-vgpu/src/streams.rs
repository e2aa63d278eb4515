//! Streams and events, and when an event is complete.
//!
//! The GPU of a real run lags behind the host, and programs act on it: torch leaves out a wait for work that is complete,
//! and its allocator uses a block again when the event that guards it is complete. So an event here is complete only when
//! the host must know it:
//!
//! ```text
//! waited    one more than the position in the log of the last thing that the host waited for
//! complete  the event's record lies before `waited`, or this thread asked POLLS times and nothing was issued meanwhile;
//!           a sleep counts as many questions
//! ```
//!
//! The thread that watches NCCL asks for ever and changes nothing; for it every event is complete, or it would report a
//! collective that hangs. It is known by the name that torch gives it.
//!
//! Cost: a lock and a look into a table per call. Departure from a GPU: a wait for one stream completes what all streams
//! were given before.
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard};

use crate::lock::lock;
use crate::log::{self, RecordKind};
use crate::{captures, Answer, Failure, Handle};

/// Questions in a row after which an event is complete although the host did not wait (chosen: more than a loop over the
/// events of all blocks asks, less than a human notices).
const POLLS: u32 = 2000;

/// Questions for which a sleep of the thread counts (chosen: a loop that asks and sleeps ends after ten rounds). The time of
/// a sleep is not looked at, so that each run is the same.
const SLEEP: u32 = POLLS / 10;

/// The first handles of streams and events; handles are 64 bytes apart, since torch takes odd numbers for its own.
const FIRST_STREAM: Handle = 0x10000;
const FIRST_EVENT: Handle = 0x1000_0000_0000;

/// A stream that a program made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CudaStream {
    /// The GPU.
    pub device: u16,
    /// `cudaStreamNonBlocking`.
    pub flags: u32,
    /// The lower, the earlier.
    pub priority: i32,
}

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CudaEvent {
    /// `cudaEventDisableTiming` and others.
    pub flags: u32,
    /// One more than the position of its last record in the log; 0 before the first.
    pub recorded: u64,
    /// The capture in which it was last recorded.
    pub capture: Option<u64>,
}

/// The flag of an event that keeps no time.
pub const DISABLE_TIMING: u32 = 2;

#[derive(Default)]
struct StreamTables {
    streams: HashMap<u32, CudaStream>,
    events: HashMap<u64, CudaEvent>,
    next_event: u64,
}

static TABLES: LazyLock<Mutex<StreamTables>> = LazyLock::new(Mutex::default);
/// The number of the last stream. Written and read with Relaxed: a handle reaches another thread only by the program's own
/// synchronisation, which orders the two.
static STREAMS: AtomicU32 = AtomicU32::new(0);
/// What the host waited for. Relaxed: it only grows, and orders no other memory.
static WAITED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The count of the log at the last question, and questions since then.
    static POLLED: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
    static WATCHDOG: Cell<Option<bool>> = const { Cell::new(None) };
}

fn tables() -> MutexGuard<'static, StreamTables> {
    lock(&TABLES)
}

/// Makes a stream of this thread's GPU.
pub fn create(flags: u32, priority: i32) -> Handle {
    crate::gpu::use_device(log::device());
    let number = STREAMS.fetch_add(1, Ordering::Relaxed) + 1; // see STREAMS
    let stream = CudaStream { device: log::device(), flags, priority };
    tables().streams.insert(number, stream);
    let handle = FIRST_STREAM + 64 * number as Handle;
    log::push(RecordKind::StreamMade, handle, 0, [flags.into(), priority as u64]);
    handle
}

/// Destroys a stream.
///
/// # Errors
/// [`Failure::INVALID_HANDLE`] if there is none, or it is a default stream.
pub fn destroy(stream: Handle) -> Answer {
    let removed = tables().streams.remove(&log::stream_number(stream));
    removed.map(drop).ok_or(Failure::INVALID_HANDLE)
}

/// A stream's properties; its handles 0, 1 and 2 have the properties of the default stream.
///
/// # Errors
/// [`Failure::INVALID_HANDLE`] for an unknown or destroyed stream.
pub fn stream(handle: Handle) -> Result<CudaStream, Failure> {
    if handle <= 2 {
        return Ok(CudaStream { device: log::device(), flags: 0, priority: 0 });
    }
    check(handle)?;
    let found = tables().streams.get(&log::stream_number(handle)).copied();
    found.ok_or(Failure::INVALID_HANDLE)
}

/// Checks that a handle is one that was given out, destroyed or not: what a launch can afford.
///
/// # Errors
/// [`Failure::INVALID_HANDLE`] if it is not.
pub fn check(handle: Handle) -> Answer {
    let number = log::stream_number(handle);
    let is_made = number > 0 && number <= STREAMS.load(Ordering::Relaxed); // see STREAMS
    let is_known = handle <= 2 || (is_made && handle == FIRST_STREAM + 64 * number as Handle);
    is_known.then_some(()).ok_or(Failure::INVALID_HANDLE)
}

fn number_of_event(event: Handle) -> Result<u64, Failure> {
    let offset = event.checked_sub(FIRST_EVENT).filter(|offset| offset.is_multiple_of(64));
    offset.map(|offset| offset as u64 / 64).ok_or(Failure::INVALID_HANDLE)
}

/// Makes an event.
pub fn create_event(flags: u32) -> Handle {
    let mut tables = tables();
    tables.next_event += 1;
    let number = tables.next_event;
    tables.events.insert(number, CudaEvent { flags, recorded: 0, capture: None });
    FIRST_EVENT + 64 * number as Handle
}

/// Destroys an event.
///
/// # Errors
/// [`Failure::INVALID_HANDLE`] for an unknown or destroyed event.
pub fn destroy_event(event: Handle) -> Answer {
    let removed = tables().events.remove(&number_of_event(event)?);
    removed.map(drop).ok_or(Failure::INVALID_HANDLE)
}

/// An event's number in the log, and what is known of it.
///
/// # Errors
/// [`Failure::INVALID_HANDLE`] for an unknown or destroyed event.
pub fn event(event: Handle) -> Result<(u64, CudaEvent), Failure> {
    let number = number_of_event(event)?;
    let found = tables().events.get(&number).copied();
    Ok((number, found.ok_or(Failure::INVALID_HANDLE)?))
}

/// Records an event in a stream.
///
/// # Errors
/// [`Failure::INVALID_HANDLE`] for an unknown stream or event.
pub fn record(handle: Handle, stream_handle: Handle) -> Answer {
    stream(stream_handle)?;
    let (number, _) = event(handle)?;
    let position = log::push(RecordKind::EventRecord, stream_handle, 0, [number]);
    let capture = captures::capture_of(stream_handle).map(|capture| capture.id);
    if let Some(event) = tables().events.get_mut(&number) {
        event.recorded = position + 1;
        event.capture = capture;
    }
    Ok(())
}

/// Makes a stream wait for an event. A wait for an event of a capture makes the stream part of that capture.
///
/// # Errors
/// [`Failure::INVALID_HANDLE`] for an unknown stream or event, [`Failure::CAPTURE_MERGE`] if the stream captures another
/// graph.
pub fn wait(stream_handle: Handle, handle: Handle) -> Answer {
    stream(stream_handle)?;
    let (number, event) = event(handle)?;
    if event.recorded == 0 {
        return Ok(());
    }
    if let Some(capture) = event.capture {
        captures::join(stream_handle, capture)?;
    }
    log::push(RecordKind::StreamWait, stream_handle, 0, [number]);
    Ok(())
}

/// Whether this thread watches NCCL. torch names its threads `pt_nccl_watchdg` and `pt_nccl_heartbt`.
fn is_watchdog() -> bool {
    WATCHDOG.get().unwrap_or_else(|| {
        let name = rustix::thread::name().unwrap_or_default();
        let is_watchdog = name.to_bytes().starts_with(b"pt_nccl");
        WATCHDOG.set(Some(is_watchdog));
        is_watchdog
    })
}

/// Whether what lies before `recorded` in the log is complete for the host; see the rule of this module.
fn is_complete(recorded: u64) -> bool {
    if recorded <= WAITED.load(Ordering::Relaxed) || is_watchdog() {
        return true;
    }
    let count = log::count();
    let (seen, polls) = POLLED.get();
    let polls = if seen == count { polls + 1 } else { 1 };
    POLLED.set((count, polls));
    if polls < POLLS {
        return false;
    }
    WAITED.fetch_max(recorded, Ordering::Relaxed); // see WAITED
    true
}

/// Says that this thread sleeps: if it polls, it does so more patiently.
pub fn slept() {
    let (seen, polls) = POLLED.get();
    POLLED.set((seen, polls.saturating_add(SLEEP)));
}

/// Whether an event is complete.
///
/// # Errors
/// [`Failure::NOT_READY`] if it is not, [`Failure::CAPTURED_EVENT`] if it was recorded in a capture,
/// [`Failure::INVALID_HANDLE`].
pub fn query_event(handle: Handle) -> Answer {
    let (_, event) = event(handle)?;
    if event.capture.is_some() {
        return Err(Failure::CAPTURED_EVENT);
    }
    is_complete(event.recorded).then_some(()).ok_or(Failure::NOT_READY)
}

/// Whether all that a stream was given is complete.
///
/// # Errors
/// [`Failure::NOT_READY`] if it is not, [`Failure::CAPTURE_UNSUPPORTED`] in a capture, [`Failure::INVALID_HANDLE`].
pub fn query(handle: Handle) -> Answer {
    stream(handle)?;
    captures::refuse_in_capture(handle)?;
    is_complete(log::last_of(handle)).then_some(()).ok_or(Failure::NOT_READY)
}

/// What the host waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostWait {
    /// All streams of the GPU.
    Device,
    /// One stream.
    Stream(Handle),
    /// One event.
    Event(Handle),
}

/// The host waits. What the log holds by then is complete; for an event, what lies before its record.
///
/// # Errors
/// [`Failure::CAPTURE_UNSUPPORTED`] in a capture, [`Failure::CAPTURED_EVENT`], [`Failure::INVALID_HANDLE`].
pub fn wait_for(what: HostWait) -> Answer {
    let (stream_handle, args, complete, of_stream) = match what {
        HostWait::Device => (0, [0, 0], log::count(), None),
        HostWait::Stream(handle) => {
            stream(handle)?;
            captures::refuse_in_capture(handle)?;
            (handle, [1, 0], log::count(), Some(log::stream_number(handle)))
        }
        HostWait::Event(handle) => {
            let (number, event) = event(handle)?;
            if event.capture.is_some() {
                return Err(Failure::CAPTURED_EVENT);
            }
            let record = event.recorded.checked_sub(1).and_then(log::record);
            (0, [2, number], event.recorded, record.map(|record| record.stream))
        }
    };
    if !is_watchdog() {
        log::push(RecordKind::HostWait, stream_handle, 0, args);
        WAITED.fetch_max(complete, Ordering::Relaxed); // see WAITED
        log::host_waits(complete, of_stream);
    }
    Ok(())
}

/// The positions in the log between which the time of two events is asked for.
///
/// # Errors
/// [`Failure::INVALID_HANDLE`] for an event that keeps no time or was never recorded, [`Failure::NOT_READY`] for one that
/// is not complete.
pub fn positions(start: Handle, end: Handle) -> Result<(u64, u64), Failure> {
    let mut positions = [0; 2];
    for (position, handle) in positions.iter_mut().zip([start, end]) {
        let (_, event) = event(handle)?;
        if event.recorded == 0 || event.flags & DISABLE_TIMING != 0 {
            return Err(Failure::INVALID_HANDLE);
        }
        *position = event.recorded - 1;
    }
    query_event(start)?;
    query_event(end)?;
    Ok((positions[0], positions[1]))
}

/// Milliseconds between two events: as predicted in a second run; otherwise one.
///
/// # Errors
/// As [`positions`].
pub fn elapsed_ms(start: Handle, end: Handle) -> Result<f32, Failure> {
    let (start, end) = positions(start, end)?;
    Ok(crate::times::between_ms(start, end).unwrap_or(1.0))
}

//! The records of CUPTI that Kineto reads: links, calls, kernels, copies, fills.
//!
//! Layouts are those of CUPTI for CUDA 13 (`CUpti_ActivityKernel11` and so on); the fields that Kineto reads lie at the same
//! offsets in those for CUDA 12, which are shorter at the end. A buffer is read by kind, with the sizes of this file.
use std::ffi::{c_char, CStr};

use super::names::kernel_name;
use super::{is_wanted, Note, CALL, CONCURRENT_KERNEL, COPY, FILL, KERNEL, LINK};
use crate::log::{Kind, Record};

/// A link of an operator: `CUpti_ActivityExternalCorrelation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Link {
    kind: u32,
    operator_kind: u32,
    operator: u64,
    correlation: u32,
    reserved: u32,
}

/// A call of the runtime: `CUpti_ActivityAPI`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Call {
    kind: u32,
    number: u32,
    start: u64,
    end: u64,
    process: u32,
    thread: u32,
    correlation: u32,
    status: u32,
}

/// A kernel: `CUpti_ActivityKernel11`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Kernel {
    kind: u32,
    cache: u16,
    registers: u16,
    partitioned: [u32; 2],
    start: u64,
    end: u64,
    completed: u64,
    device: u32,
    context: u32,
    stream: u32,
    grid: [u32; 3],
    block: [u32; 3],
    static_shared: u32,
    dynamic_shared: u32,
    local_per_thread: u32,
    local_total: u32,
    correlation: u32,
    grid_number: i64,
    name: *const c_char,
    rest: [u64; 14],
}

/// A copy: `CUpti_ActivityMemcpy6`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Copy {
    kind: u32,
    /// Direction, kind of memory of the source, of the destination, flags.
    how: [u8; 4],
    bytes: u64,
    start: u64,
    end: u64,
    device: u32,
    context: u32,
    stream: u32,
    correlation: u32,
    rest: [u64; 6],
}

/// A fill: `CUpti_ActivityMemset4`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Fill {
    kind: u32,
    value: u32,
    bytes: u64,
    start: u64,
    end: u64,
    device: u32,
    context: u32,
    stream: u32,
    correlation: u32,
    flags: u16,
    memory: u16,
    padding: u32,
    rest: [u64; 4],
}

/// A record of any kind.
#[derive(Clone, Copy)]
pub(super) enum Activity {
    Link(Link),
    Call(Call),
    Kernel(Kernel),
    Copy(Copy),
    Fill(Fill),
}

/// Bytes of a record of a kind.
pub(super) fn size_of_kind(kind: u32) -> Option<usize> {
    Some(match kind {
        LINK => size_of::<Link>(),
        CALL => size_of::<Call>(),
        KERNEL | CONCURRENT_KERNEL => size_of::<Kernel>(),
        COPY => size_of::<Copy>(),
        FILL => size_of::<Fill>(),
        _ => return None,
    })
}

impl Activity {
    /// Its address and size.
    pub(super) fn bytes(&self) -> (*const u8, usize) {
        fn of<T>(record: &T) -> (*const u8, usize) {
            (std::ptr::from_ref(record).cast(), size_of::<T>())
        }
        match self {
            Self::Link(record) => of(record),
            Self::Call(record) => of(record),
            Self::Kernel(record) => of(record),
            Self::Copy(record) => of(record),
            Self::Fill(record) => of(record),
        }
    }
}

/// Numbers of calls of the runtime: `CUpti_runtime_api_trace_cbid`.
const COPY_CALL: u32 = 41;
const FILL_CALL: u32 = 51;
const LAUNCH_CALL: u32 = 211;

/// The name of a call, as CUPTI has it, with the version of its interface.
pub(super) fn call_name(number: u32) -> &'static CStr {
    match number {
        COPY_CALL => c"cudaMemcpyAsync_v3020",
        FILL_CALL => c"cudaMemsetAsync_v3020",
        LAUNCH_CALL => c"cudaLaunchKernel_v7000",
        _ => c"unknown",
    }
}

/// The number that CUPTI gives a stream: the default one is 7, those that a program makes follow from 13 on.
fn stream_of(record: &Record) -> u32 {
    match record.stream {
        0 => 7,
        made => made.saturating_add(12),
    }
}

/// Everything that the profiler finds of the notes; `times` has the start and end of each.
pub(super) fn of(notes: &[Note], times: &[(u64, u64)], wanted: u64) -> Vec<Activity> {
    let mut activities = Vec::with_capacity(3 * notes.len());
    let mut group = 0;
    for (note, (start, end)) in notes.iter().zip(times) {
        let correlation = (note.position as u32).wrapping_add(1);
        if is_wanted(wanted, LINK) {
            activities.extend(note.operators.iter().map(|(kind, id)| link(*kind, *id, correlation)));
        }
        if is_wanted(wanted, CALL) {
            activities.push(call(note, correlation));
        }
        let messages =
            matches!(note.record.args, [_, _, _, _, id, _] if is_message(&note.record) && id != 0 && id == group);
        group = if is_message(&note.record) { note.record.args[4] } else { 0 };
        if !messages {
            activities.extend(work(note, *start, *end, correlation, wanted));
        }
    }
    activities
}

/// Whether a record is a send or receive: those of one group call are one kernel.
fn is_message(record: &Record) -> bool {
    let is_collective = record.kind == Kind::Collective as u16;
    is_collective && matches!(crate::log::text(record.name), Some(name) if name == c"send" || name == c"recv")
}

fn link(operator_kind: u32, operator: u64, correlation: u32) -> Activity {
    Activity::Link(Link { kind: LINK, operator_kind, operator, correlation, reserved: 0 })
}

fn call(note: &Note, correlation: u32) -> Activity {
    let number = match note.record.kind {
        kind if kind == Kind::Copy as u16 => COPY_CALL,
        kind if kind == Kind::Fill as u16 => FILL_CALL,
        _ => LAUNCH_CALL,
    };
    let (start, end) = (note.stamp, note.stamp.saturating_add(1_000));
    let (process, thread) = (std::process::id(), note.thread);
    Activity::Call(Call { kind: CALL, number, start, end, process, thread, correlation, status: 0 })
}

/// The kernel, copy or fill of a note, if the profiler wants its kind.
fn work(note: &Note, start: u64, end: u64, correlation: u32, wanted: u64) -> Option<Activity> {
    let record = &note.record;
    let (device, context, stream) = (record.device.into(), 1, stream_of(record));
    let [first, second, third, ..] = record.args;
    if record.kind == Kind::Copy as u16 {
        // `CUpti_ActivityMemcpyKind` and `CUpti_ActivityMemoryKind`, by the direction of the log.
        let how = match second {
            0 => [9, 1, 1, 0],
            1 => [2, 3, 1, 1],
            2 => [1, 1, 3, 1],
            _ => [8, 3, 3, 1],
        };
        let copy =
            Copy { kind: COPY, how, bytes: first, start, end, device, context, stream, correlation, rest: [0; 6] };
        return is_wanted(wanted, COPY).then_some(Activity::Copy(copy));
    }
    if record.kind == Kind::Fill as u16 {
        let fill = Fill {
            kind: FILL,
            value: 0,
            bytes: first,
            start,
            end,
            device,
            context,
            stream,
            correlation,
            flags: 1,
            memory: 3,
            padding: 0,
            rest: [0; 4],
        };
        return is_wanted(wanted, FILL).then_some(Activity::Fill(fill));
    }
    let kind = [CONCURRENT_KERNEL, KERNEL].into_iter().find(|kind| is_wanted(wanted, *kind))?;
    let [blocks, threads, shared] = match record.kind {
        kind if kind == Kind::Launch as u16 => [first, second, third].map(|size| size as u32),
        _ => [1, 1, 0],
    };
    Some(Activity::Kernel(Kernel {
        kind,
        cache: 0,
        registers: 32,
        partitioned: [0; 2],
        start,
        end,
        completed: end,
        device,
        context,
        stream,
        grid: [blocks.max(1), 1, 1],
        block: [threads.max(1), 1, 1],
        static_shared: 0,
        dynamic_shared: shared,
        local_per_thread: 0,
        local_total: 0,
        correlation,
        grid_number: i64::from(correlation),
        name: kernel_name(record).as_ptr(),
        rest: [0; 14],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn layouts_are_those_of_cupti() {
        assert_eq!((size_of::<Link>(), size_of::<Call>(), size_of::<Kernel>()), (24, 40, 224));
        assert_eq!((size_of::<Copy>(), size_of::<Fill>()), (96, 88));
        assert_eq!((offset_of!(Kernel, start), offset_of!(Kernel, stream), offset_of!(Kernel, block)), (16, 48, 64));
        assert_eq!((offset_of!(Kernel, correlation), offset_of!(Kernel, name)), (92, 104));
        assert_eq!((offset_of!(Copy, bytes), offset_of!(Copy, correlation)), (8, 44));
        assert_eq!((offset_of!(Fill, correlation), offset_of!(Fill, memory), offset_of!(Fill, rest)), (44, 50, 56));
        assert_eq!((offset_of!(Call, thread), offset_of!(Link, correlation)), (28, 16));
    }
}

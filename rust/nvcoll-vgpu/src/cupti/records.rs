//! The records of CUPTI that Kineto reads: links, calls, kernels, copies, fills.
//!
//! A record is its bytes: numbers at the offsets of a layout, and zeros. Layouts come from CUPTI for CUDA 13 (`CUpti_ActivityKernel11` and so on); the fields that Kineto reads lie at the same
//! offsets in those for CUDA 12, which are shorter at the end. A buffer is read by kind, with the sizes of this file.
use std::ffi::CStr;

use super::names::kernel_name;
use super::notes::{is_wanted, Note, CALL, CONCURRENT_KERNEL, COPY, FILL, KERNEL, LINK};
use crate::log::{LogRecord, RecordKind};

/// Bytes of a record of a kind: `CUpti_ActivityExternalCorrelation`, `...API`, `...Kernel11`, `...Memcpy6`, `...Memset4`.
pub(super) fn size_of_kind(kind: u32) -> Option<usize> {
    Some(match kind {
        LINK => 24,
        CALL => 40,
        KERNEL | CONCURRENT_KERNEL => 224,
        COPY => 96,
        FILL => 88,
        _ => return None,
    })
}

/// A record of a kind: its numbers of 32 bits and of 64 bits, by offset.
fn made(kind: u32, words: &[(usize, u32)], longs: &[(usize, u64)]) -> Vec<u8> {
    let mut bytes = vec![0; size_of_kind(kind).unwrap_or(0)];
    bytes[..4].copy_from_slice(&kind.to_le_bytes());
    for (at, word) in words {
        bytes[*at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    for (at, long) in longs {
        bytes[*at..at + 8].copy_from_slice(&long.to_le_bytes());
    }
    bytes
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

/// Everything that the profiler finds of the notes; `times` has the start and end of each.
pub(super) fn of(notes: &[Note], times: &[(u64, u64)], wanted: u64) -> Vec<Vec<u8>> {
    let mut activities = Vec::with_capacity(3 * notes.len());
    let mut group = 0;
    for (note, run) in notes.iter().zip(times) {
        let correlation = (note.position as u32).wrapping_add(1);
        if is_wanted(wanted, LINK) {
            let link = |(kind, id): &(u32, u64)| made(LINK, &[(4, *kind), (16, correlation)], &[(8, *id)]);
            activities.extend(note.operators.iter().map(link));
        }
        if is_wanted(wanted, CALL) {
            activities.push(call(note, correlation));
        }
        // Sends and receives of one group call are one kernel.
        let before = std::mem::replace(&mut group, if is_message(&note.record) { note.record.args[4] } else { 0 });
        if group == 0 || group != before {
            activities.extend(work(&note.record, *run, correlation, wanted));
        }
    }
    activities
}

/// Whether a record is a send or receive.
fn is_message(record: &LogRecord) -> bool {
    let is_collective = record.kind == RecordKind::Collective as u16;
    is_collective && matches!(crate::log::text(record.name), Some(name) if name == c"send" || name == c"recv")
}

fn call(note: &Note, correlation: u32) -> Vec<u8> {
    let number = match note.record.kind {
        kind if kind == RecordKind::Copy as u16 => COPY_CALL,
        kind if kind == RecordKind::Fill as u16 => FILL_CALL,
        _ => LAUNCH_CALL,
    };
    let words = [(4, number), (24, std::process::id()), (28, note.thread), (32, correlation)];
    made(CALL, &words, &[(8, note.stamp), (16, note.stamp.saturating_add(1_000))])
}

/// The kernel, copy or fill of a record, if the profiler wants its kind.
fn work(record: &LogRecord, (start, end): (u64, u64), correlation: u32, wanted: u64) -> Option<Vec<u8>> {
    // The default stream is 7, streams of the program follow from 13 on.
    let (device, stream) =
        (record.device.into(), if record.stream == 0 { 7 } else { record.stream.saturating_add(12) });
    let [first, second, third, ..] = record.args;
    if record.kind == RecordKind::Copy as u16 {
        // `CUpti_ActivityMemcpyKind`, `CUpti_ActivityMemoryKind` of both ends, flags, by the direction of the log.
        let how = match second {
            0 => [9, 1, 1, 0],
            1 => [2, 3, 1, 1],
            2 => [1, 1, 3, 1],
            _ => [8, 3, 3, 1],
        };
        let words = [(4, u32::from_le_bytes(how)), (32, device), (36, 1), (40, stream), (44, correlation)];
        return is_wanted(wanted, COPY).then(|| made(COPY, &words, &[(8, first), (16, start), (24, end)]));
    }
    if record.kind == RecordKind::Fill as u16 {
        // At 48 are flags, and the kind of memory.
        let words = [(32, device), (36, 1), (40, stream), (44, correlation), (48, 1 | 3 << 16)];
        return is_wanted(wanted, FILL).then(|| made(FILL, &words, &[(8, first), (16, start), (24, end)]));
    }
    let kind = [CONCURRENT_KERNEL, KERNEL].into_iter().find(|kind| is_wanted(wanted, *kind))?;
    let [blocks, threads, shared] = match record.kind {
        kind if kind == RecordKind::Launch as u16 => [first, second, third].map(|size| size as u32),
        _ => [1, 1, 0],
    };
    // At 6 are registers; grid and block lie from 52 and 64 on, along x, y and z.
    let place = [(4, 32 << 16), (40, device), (44, 1), (48, stream), (80, shared), (92, correlation)];
    let sizes = [(52, blocks.max(1)), (56, 1), (60, 1), (64, threads.max(1)), (68, 1), (72, 1)];
    let name = kernel_name(record).as_ptr() as u64;
    let longs = [(16, start), (24, end), (32, end), (96, correlation.into()), (104, name)];
    Some(made(kind, &[place, sizes].concat(), &longs))
}

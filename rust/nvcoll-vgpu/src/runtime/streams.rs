//! Streams and events.
#![allow(non_snake_case)] // the names of a public interface

use crate::entry_points::runtime;
use crate::errors::{Failure, Status};
use crate::streams::{self, HostWait};
use crate::{captures, graphs, log, make, set, Answer, Handle, Out};

/// A function of the host in the older form, which also hears the stream and whether there was an error.
pub(super) type StreamCallback = extern "C" fn(Handle, Status, usize);

fn call_back(stream: Handle, function: Option<StreamCallback>, argument: usize) -> Answer {
    let function = function.ok_or(Failure::INVALID_VALUE)?;
    streams::stream(stream)?;
    captures::refuse_in_capture(stream)?;
    log::push(log::RecordKind::HostFunction, stream, 0, []);
    function(stream, 0, argument);
    Ok(())
}

runtime! {
    cudaStreamCreateWithPriority(out: Out<Handle>, flags: u32, priority: i32), cuStreamCreateWithPriority =>
        make(out, || Ok(streams::create(flags, priority.clamp(-5, 0))));
    cudaStreamCreateWithFlags(out: Out<Handle>, flags: u32), cuStreamCreate => make(out, || Ok(streams::create(flags, 0)));
    cudaStreamCreate(out: Out<Handle>) => make(out, || Ok(streams::create(0, 0)));
    cudaStreamDestroy(stream: Handle), cuStreamDestroy_v2 => streams::destroy(stream);
    cudaStreamGetPriority(stream: Handle, priority: Out<i32>), cuStreamGetPriority =>
        set(priority, streams::stream(stream)?.priority);
    cudaStreamQuery(stream: Handle), cuStreamQuery => streams::query(stream);
    cudaStreamSynchronize(stream: Handle), cuStreamSynchronize => streams::wait_for(HostWait::Stream(stream));
    cudaStreamWaitEvent(stream: Handle, event: Handle), cuStreamWaitEvent => streams::wait(stream, event);
    cudaLaunchHostFunc(stream: Handle, function: Option<extern "C" fn(usize)>, argument: usize), cuLaunchHostFunc =>
        streams::stream(stream).and_then(|_| graphs::host_function(stream, (function.ok_or(Failure::INVALID_VALUE)?, argument)));
    cudaStreamAddCallback(stream: Handle, function: Option<StreamCallback>, argument: usize), cuStreamAddCallback =>
        call_back(stream, function, argument);
    cudaStreamCopyAttributes cudaStreamSetAttribute() => Ok(());
    cudaEventCreateWithFlags(out: Out<Handle>, flags: u32), cuEventCreate =>
        make(out, || Ok(streams::create_event(flags)));
    cudaEventCreate(out: Out<Handle>) => make(out, || Ok(streams::create_event(0)));
    cudaEventDestroy(event: Handle), cuEventDestroy_v2 => streams::destroy_event(event);
    cudaEventRecord cudaEventRecordWithFlags(event: Handle, stream: Handle), cuEventRecord => streams::record(event, stream);
    cudaEventQuery(event: Handle), cuEventQuery => streams::query_event(event);
    cudaEventSynchronize(event: Handle), cuEventSynchronize => streams::wait_for(HostWait::Event(event));
    cudaEventElapsedTime(milliseconds: Out<f32>, start: Handle, end: Handle), cuEventElapsedTime cuEventElapsedTime_v2 =>
        set(milliseconds, streams::elapsed_ms(start, end)?);
}

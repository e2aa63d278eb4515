//! Streams and events.
#![allow(non_snake_case)] // the names of a public interface

use super::{accept, call};
use crate::entry_points::runtime;
use crate::errors::{Failure, Status};
use crate::streams::{self, HostWait};
use crate::{graphs, log, make, set, Handle, Out};

runtime! {
    cudaStreamCreateWithPriority(out: Out<Handle>, flags: u32, priority: i32), cuStreamCreateWithPriority =>
        make(out, || Ok(streams::create(flags, priority.clamp(-5, 0))));
    cudaStreamCreateWithFlags(out: Out<Handle>, flags: u32), cuStreamCreate =>
        make(out, || Ok(streams::create(flags, 0)));
    cudaStreamCreate(out: Out<Handle>) => make(out, || Ok(streams::create(0, 0)));
    cudaStreamDestroy(stream: Handle), cuStreamDestroy_v2 => streams::destroy(stream);
    cudaStreamGetPriority(
        stream: Handle,
        priority: Out<i32>,
    ), cuStreamGetPriority => set(priority, streams::stream(stream)?.priority);
    cudaStreamGetFlags(stream: Handle, flags: Out<u32>) => set(flags, streams::stream(stream)?.flags);
    cudaStreamGetId(stream: Handle, id: Out<u64>) => {
        streams::stream(stream)?;
        set(id, log::stream_number(stream).into())
    };
    cudaStreamGetDevice(stream: Handle, device: Out<i32>) => set(device, streams::stream(stream)?.device.into());
    cudaStreamQuery(stream: Handle), cuStreamQuery => streams::query(stream);
    cudaStreamSynchronize(stream: Handle), cuStreamSynchronize => streams::wait_for(HostWait::Stream(stream));
    cudaStreamWaitEvent(stream: Handle, event: Handle, _flags: u32), cuStreamWaitEvent => streams::wait(stream, event);
}

#[no_mangle]
extern "C" fn cudaLaunchHostFunc(stream: Handle, function: Option<extern "C" fn(usize)>, argument: usize) -> Status {
    call(|| {
        streams::stream(stream)?;
        graphs::host_function(stream, (function.ok_or(Failure::INVALID_VALUE)?, argument))
    })
}

/// The older form of a function of the host: it also hears the stream and whether there was an error.
#[no_mangle]
extern "C" fn cudaStreamAddCallback(
    stream: Handle,
    function: Option<extern "C" fn(Handle, Status, usize)>,
    argument: usize,
    _flags: u32,
) -> Status {
    call(|| {
        let function = function.ok_or(Failure::INVALID_VALUE)?;
        streams::stream(stream)?;
        graphs::refuse_in_capture(stream)?;
        log::push(log::Kind::HostFunction, stream, 0, []);
        function(stream, 0, argument);
        Ok(())
    })
}

accept! { cudaStreamCopyAttributes cudaStreamSetAttribute }

runtime! {
    cudaEventCreateWithFlags(out: Out<Handle>, flags: u32), cuEventCreate =>
        make(out, || Ok(streams::create_event(flags)));
}

#[no_mangle]
extern "C" fn cudaEventCreate(out: Out<Handle>) -> Status {
    cudaEventCreateWithFlags(out, 0)
}

runtime! {
    cudaEventDestroy(event: Handle), cuEventDestroy_v2 => streams::destroy_event(event);
    cudaEventRecord(event: Handle, stream: Handle), cuEventRecord => streams::record(event, stream);
    cudaEventRecordWithFlags(event: Handle, stream: Handle, _flags: u32) => streams::record(event, stream);
    cudaEventQuery(event: Handle), cuEventQuery => streams::query_event(event);
    cudaEventSynchronize(event: Handle), cuEventSynchronize => streams::wait_for(HostWait::Event(event));
    cudaEventElapsedTime(
        milliseconds: Out<f32>,
        start: Handle,
        end: Handle,
    ), cuEventElapsedTime, cuEventElapsedTime_v2 => set(milliseconds, streams::elapsed_ms(start, end)?);
}

//! Streams and events.
#![allow(non_snake_case)] // the names of a public interface

use super::{accept, call};
use crate::errors::{Failure, Status};
use crate::streams::{self, HostWait};
use crate::{graphs, log, set, Handle, Out};

#[no_mangle]
extern "C" fn cudaStreamCreateWithPriority(out: Out<Handle>, flags: u32, priority: i32) -> Status {
    call(|| {
        let out = out.ok_or(Failure::INVALID_VALUE)?;
        out.write(streams::create(flags, priority.clamp(-5, 0)));
        Ok(())
    })
}

#[no_mangle]
extern "C" fn cudaStreamCreateWithFlags(out: Out<Handle>, flags: u32) -> Status {
    cudaStreamCreateWithPriority(out, flags, 0)
}

#[no_mangle]
extern "C" fn cudaStreamCreate(out: Out<Handle>) -> Status {
    cudaStreamCreateWithPriority(out, 0, 0)
}

#[no_mangle]
extern "C" fn cudaStreamDestroy(stream: Handle) -> Status {
    call(|| streams::destroy(stream))
}

#[no_mangle]
extern "C" fn cudaStreamGetPriority(stream: Handle, priority: Out<i32>) -> Status {
    call(|| set(priority, streams::stream(stream)?.priority))
}

#[no_mangle]
extern "C" fn cudaStreamGetFlags(stream: Handle, flags: Out<u32>) -> Status {
    call(|| set(flags, streams::stream(stream)?.flags))
}

#[no_mangle]
extern "C" fn cudaStreamGetId(stream: Handle, id: Out<u64>) -> Status {
    call(|| {
        streams::stream(stream)?;
        set(id, log::stream_number(stream).into())
    })
}

#[no_mangle]
extern "C" fn cudaStreamGetDevice(stream: Handle, device: Out<i32>) -> Status {
    call(|| set(device, streams::stream(stream)?.device.into()))
}

#[no_mangle]
extern "C" fn cudaStreamQuery(stream: Handle) -> Status {
    call(|| streams::query(stream))
}

#[no_mangle]
extern "C" fn cudaStreamSynchronize(stream: Handle) -> Status {
    call(|| streams::wait_for(HostWait::Stream(stream)))
}

#[no_mangle]
extern "C" fn cudaStreamWaitEvent(stream: Handle, event: Handle, _flags: u32) -> Status {
    call(|| streams::wait(stream, event))
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

#[no_mangle]
extern "C" fn cudaEventCreateWithFlags(out: Out<Handle>, flags: u32) -> Status {
    call(|| {
        let out = out.ok_or(Failure::INVALID_VALUE)?;
        out.write(streams::create_event(flags));
        Ok(())
    })
}

#[no_mangle]
extern "C" fn cudaEventCreate(out: Out<Handle>) -> Status {
    cudaEventCreateWithFlags(out, 0)
}

#[no_mangle]
extern "C" fn cudaEventDestroy(event: Handle) -> Status {
    call(|| streams::destroy_event(event))
}

#[no_mangle]
extern "C" fn cudaEventRecord(event: Handle, stream: Handle) -> Status {
    call(|| streams::record(event, stream))
}

#[no_mangle]
extern "C" fn cudaEventRecordWithFlags(event: Handle, stream: Handle, _flags: u32) -> Status {
    call(|| streams::record(event, stream))
}

#[no_mangle]
extern "C" fn cudaEventQuery(event: Handle) -> Status {
    call(|| streams::query_event(event))
}

#[no_mangle]
extern "C" fn cudaEventSynchronize(event: Handle) -> Status {
    call(|| streams::wait_for(HostWait::Event(event)))
}

#[no_mangle]
extern "C" fn cudaEventElapsedTime(milliseconds: Out<f32>, start: Handle, end: Handle) -> Status {
    call(|| set(milliseconds, streams::elapsed_ms(start, end)?))
}

//! Streams and events: those of the runtime under the driver's names.
#![allow(non_snake_case)] // the names of a public interface

use super::call;
use super::contexts::context_of;
use crate::errors::{Failure, Status};
use crate::runtime::capture_info;
use crate::streams::{self, HostWait};
use crate::{set, Handle, Out};

#[no_mangle]
extern "C" fn cuStreamCreateWithPriority(out: Out<Handle>, flags: u32, priority: i32) -> Status {
    call(|| {
        let out = out.ok_or(Failure::INVALID_VALUE)?;
        out.write(streams::create(flags, priority.clamp(-5, 0)));
        Ok(())
    })
}

#[no_mangle]
extern "C" fn cuStreamCreate(out: Out<Handle>, flags: u32) -> Status {
    cuStreamCreateWithPriority(out, flags, 0)
}

#[no_mangle]
extern "C" fn cuStreamDestroy_v2(stream: Handle) -> Status {
    call(|| streams::destroy(stream))
}

#[no_mangle]
extern "C" fn cuStreamGetPriority(stream: Handle, priority: Out<i32>) -> Status {
    call(|| set(priority, streams::stream(stream)?.priority))
}

#[no_mangle]
extern "C" fn cuStreamGetCtx(stream: Handle, context: Out<Handle>) -> Status {
    call(|| set(context, context_of(streams::stream(stream)?.device)))
}

#[no_mangle]
extern "C" fn cuStreamQuery(stream: Handle) -> Status {
    call(|| streams::query(stream))
}

#[no_mangle]
extern "C" fn cuStreamSynchronize(stream: Handle) -> Status {
    call(|| streams::wait_for(HostWait::Stream(stream)))
}

#[no_mangle]
extern "C" fn cuStreamWaitEvent(stream: Handle, event: Handle, _flags: u32) -> Status {
    call(|| streams::wait(stream, event))
}

#[no_mangle]
extern "C" fn cuStreamIsCapturing(stream: Handle, status: Out<i32>) -> Status {
    call(|| capture_info(stream, status, None, None, [None, None, None]))
}

#[no_mangle]
extern "C" fn cuStreamGetCaptureInfo_v2(
    stream: Handle,
    status: Out<i32>,
    id: Out<u64>,
    graph: Out<Handle>,
    dependencies: Out<usize>,
    count: Out<usize>,
) -> Status {
    call(|| capture_info(stream, status, id, graph, [dependencies, count, None]))
}

#[no_mangle]
extern "C" fn cuStreamGetCaptureInfo_v3(
    stream: Handle,
    status: Out<i32>,
    id: Out<u64>,
    graph: Out<Handle>,
    dependencies: Out<usize>,
    edges: Out<usize>,
    count: Out<usize>,
) -> Status {
    call(|| capture_info(stream, status, id, graph, [dependencies, edges, count]))
}

#[no_mangle]
extern "C" fn cuEventCreate(out: Out<Handle>, flags: u32) -> Status {
    call(|| {
        let out = out.ok_or(Failure::INVALID_VALUE)?;
        out.write(streams::create_event(flags));
        Ok(())
    })
}

#[no_mangle]
extern "C" fn cuEventDestroy_v2(event: Handle) -> Status {
    call(|| streams::destroy_event(event))
}

#[no_mangle]
extern "C" fn cuEventRecord(event: Handle, stream: Handle) -> Status {
    call(|| streams::record(event, stream))
}

#[no_mangle]
extern "C" fn cuEventQuery(event: Handle) -> Status {
    call(|| streams::query_event(event))
}

#[no_mangle]
extern "C" fn cuEventSynchronize(event: Handle) -> Status {
    call(|| streams::wait_for(HostWait::Event(event)))
}

#[no_mangle]
extern "C" fn cuEventElapsedTime(milliseconds: Out<f32>, start: Handle, end: Handle) -> Status {
    call(|| set(milliseconds, streams::elapsed_ms(start, end)?))
}

#[no_mangle]
extern "C" fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: Handle, end: Handle) -> Status {
    cuEventElapsedTime(milliseconds, start, end)
}

//! CUDA graphs: captures, graphs and what is launched of them.
#![allow(non_snake_case)] // the names of a public interface

use std::mem::MaybeUninit;

use crate::entry_points::{refused, runtime};
use crate::errors::{self, Failure};
use crate::gpu::gpu;
use crate::{captures, graphs, make, set, streams, Answer, Handle, Out};

/// Whether a stream captures, and what: the part that all versions of the question share. All places but the first are
/// optional.
fn capture_info(
    stream: Handle,
    status: Out<i32>,
    id: Out<u64>,
    graph: Out<Handle>,
    nothing: [Out<usize>; 3],
) -> Answer {
    let capture = captures::capture_of(stream);
    set(status, capture.is_some().into())?;
    let _ = set(id, capture.as_ref().map_or(0, |capture| capture.id));
    let _ = set(graph, capture.map_or(0, |capture| capture.graph));
    for place in nothing {
        let _ = set(place, 0); // dependencies, their edges, their number: none, so that nobody follows them
    }
    Ok(())
}

/// The place to which a pointer points.
///
/// # Safety
/// `pointer` is null, or a place for one value that nobody else uses.
unsafe fn place<'a, T>(pointer: *mut T) -> Out<'a, T> {
    // SAFETY: the caller's contract; the value may be uninitialised.
    unsafe { pointer.cast::<MaybeUninit<T>>().as_mut() }
}

/// Writes at most `count` nodes, or without a place their number.
///
/// # Safety
/// `nodes` is null, or has `count` places.
unsafe fn write_nodes(graph: Handle, nodes: *mut Handle, count: Option<&mut usize>) -> Answer {
    let count = count.ok_or(Failure::INVALID_VALUE)?;
    let all = captures::nodes(graph)?;
    if nodes.is_null() {
        *count = all;
        return Ok(());
    }
    for at in 0..*count {
        // SAFETY: the caller's contract.
        unsafe { nodes.add(at).write(if at < all { (graph << 24) + 64 * (at + 1) } else { 0 }) };
    }
    *count = all.min(*count);
    Ok(())
}

runtime! {
    cudaStreamBeginCapture(stream: Handle, _mode: i32), cuStreamBeginCapture_v2 =>
        streams::stream(stream).and_then(|_| captures::begin(stream, None));
    cudaStreamBeginCaptureToGraph(stream: Handle, graph: Handle) =>
        streams::stream(stream).and_then(|_| captures::begin(stream, Some(graph)));
    cudaStreamEndCapture(stream: Handle, graph: Out<Handle>), cuStreamEndCapture => {
        let graph = graph.ok_or(Failure::INVALID_VALUE)?;
        graph.write(0);
        graph.write(captures::end(stream)?);
        Ok(())
    };
    cudaStreamIsCapturing(stream: Handle, status: Out<i32>), cuStreamIsCapturing =>
        capture_info(stream, status, None, None, [None, None, None]);
    cudaStreamGetCaptureInfo_v2(stream: Handle, status: Out<i32>, id: Out<u64>, graph: Out<Handle>,
        dependencies: Out<usize>, count: Out<usize>), cuStreamGetCaptureInfo_v2 =>
        capture_info(stream, status, id, graph, [dependencies, count, None]);
    cudaStreamGetCaptureInfo_v3(stream: Handle, status: Out<i32>, id: Out<u64>, graph: Out<Handle>,
        dependencies: Out<usize>, edges: Out<usize>, count: Out<usize>), cuStreamGetCaptureInfo_v3 =>
        capture_info(stream, status, id, graph, [dependencies, edges, count]);
    cudaGraphCreate(graph: Out<Handle>, _flags: u32) => set(graph, captures::create());
    cudaGraphInstantiate cudaGraphInstantiateWithFlags(executable: Out<Handle>, graph: Handle, _flags: u64),
        cuGraphInstantiateWithFlags =>
        make(executable, || graphs::instantiate(graph));
    cudaGraphLaunch(executable: Handle, stream: Handle), cuGraphLaunch =>
        streams::stream(stream).and_then(|_| graphs::launch(executable, stream));
    cudaGraphDestroy(graph: Handle), cuGraphDestroy => captures::destroy(graph);
    cudaGraphExecDestroy(executable: Handle), cuGraphExecDestroy => graphs::destroy_executable(executable);
    // An object that a graph would hold alive: it lives as long as the process.
    cudaUserObjectCreate(object: Out<Handle>) => set(object, 64);
    cudaUserObjectRelease cudaUserObjectRetain cudaGraphRetainUserObject cudaGraphReleaseUserObject cudaGraphUpload
        cudaThreadExchangeStreamCaptureMode cudaStreamUpdateCaptureDependencies cudaGraphDebugDotPrint() => Ok(());
}

runtime! { unsafe:
    // Under CUDA 13 the question with seven places, under CUDA 12 the one with three: there the others are what a register
    // held.
    cudaStreamGetCaptureInfo(stream: Handle, status: Out<i32>, id: Out<u64>, graph: *mut Handle, dependencies: *mut usize,
        edges: *mut usize, count: *mut usize) => {
        if gpu().cuda < 13 {
            return capture_info(stream, status, id, None, [None, None, None]);
        }
        capture_info(stream, status, id, place(graph), [place(dependencies), place(edges), place(count)])
    };
    cudaGraphGetNodes(graph: Handle, nodes: *mut Handle, count: Option<&mut usize>) => write_nodes(graph, nodes, count);
    // Nodes have no dependencies to follow. CUDA 13 has a place for data of edges before the number.
    cudaGraphNodeGetDependencies(_node: Handle, _nodes: usize, edges_or_count: *mut usize, count: *mut usize) =>
        set(place(if gpu().cuda < 13 { edges_or_count } else { count }), 0);
}

// Nodes that choose by a value on the GPU: the value does not exist.
refused! { errors::runtime: cudaGraphConditionalHandleCreate cudaGraphAddNode }

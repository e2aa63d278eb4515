//! CUDA graphs: a launch appends the records that a capture kept ([`captures`](crate::captures)) to the log again.
//!
//! ```text
//! launch(graph, u)    a record that counts the copies, then these without the bit; what was captured on s is now on u
//! ```
//!
//! Functions of the host run at each launch. Nodes that choose (`cudaGraphAddNode` with a condition) are refused.
use std::sync::Arc;

use crate::captures::{self, CudaGraph, HostFunction};
use crate::handles::Handles;
use crate::log::{self, RecordKind};
use crate::{memory, memory_constants, Answer, Failure, Handle};

/// Bytes of a GPU that each node takes of what can be launched.
const NODE_BYTES: usize = memory_constants::GRAPH_NODE_BYTES as usize;

/// What can be launched, and the memory that it takes of its GPU.
struct Executable {
    graph: CudaGraph,
    device: u16,
    bytes: usize,
}

impl Drop for Executable {
    fn drop(&mut self) {
        memory::let_go(self.device, self.bytes);
    }
}

/// What can be launched.
static EXECUTABLES: Handles<Arc<Executable>> = Handles::new();

/// Runs a function of the host in the order of a stream: now, or at each launch of the graph that the stream captures.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] if the graph was destroyed.
pub fn host_function(stream: Handle, function: HostFunction) -> Answer {
    log::push(RecordKind::HostFunction, stream, 0, []);
    if let Some(capture) = captures::capture_of(stream) {
        return captures::keep_function(capture.graph, function);
    }
    function.0(function.1);
    Ok(())
}

/// Makes what can be launched of a graph.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] for an unknown graph; [`Failure::OUT_OF_MEMORY`].
pub fn instantiate(graph: Handle) -> Result<Handle, Failure> {
    let (device, bytes) = (log::device(), captures::nodes(graph)? * NODE_BYTES);
    let graph = captures::graph(graph)?;
    memory::hold(device, bytes)?;
    Ok(EXECUTABLES.insert(Arc::new(Executable { graph, device, bytes })))
}

/// Launches a graph on a stream.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] for an unknown handle.
pub fn launch(executable: Handle, stream: Handle) -> Answer {
    let executable = EXECUTABLES.find(executable).map_err(|_| Failure::INVALID_VALUE)?;
    let graph = &executable.graph;
    let number = log::stream_number(stream);
    log::push(RecordKind::GraphLaunch, stream, 0, [graph.records.len() as u64]);
    for record in &graph.records {
        let mut record = *record;
        if record.stream == graph.origin {
            record.stream = number;
        }
        log::submit(record);
    }
    for (function, argument) in &graph.functions {
        function(*argument);
    }
    Ok(())
}

/// Destroys what can be launched.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] for an unknown handle, or one that was destroyed before.
pub fn destroy_executable(executable: Handle) -> Answer {
    EXECUTABLES.remove(executable).map_err(|_| Failure::INVALID_VALUE)
}

//! Captures: a graph is filled with copies of the records of the streams that it captures.
//!
//! ```text
//! begin(s)                               a capture with one stream, its graph empty
//! t waits for an event that s recorded   t is part of the capture
//! work on s or t                         a record with the bit CAPTURED in the log, a copy in the graph
//! end(s)                                 the graph is whole
//! ```
//!
//! A graph's nodes are launches, copies, fills, collectives and functions of the host; records and waits of events are its
//! edges.
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard};

use crate::lock::lock;
use crate::records::{stream_number, LogRecord, RecordKind, CAPTURED};
use crate::{Answer, Failure, Handle};

/// The first handle of graphs.
const FIRST: Handle = 0x2000_0000;

/// A function of the host in a graph: its address and its argument.
pub type HostFunction = (extern "C" fn(usize), usize);

/// What a graph holds.
#[derive(Clone, Default)]
pub(crate) struct CudaGraph {
    pub(crate) records: Vec<LogRecord>,
    pub(crate) functions: Vec<HostFunction>,
    /// The number of the stream on which its capture began.
    pub(crate) origin: u32,
}

/// A capture that has begun.
#[derive(Clone, Debug)]
pub struct Capture {
    /// Counts from 1.
    pub id: u64,
    /// The graph that it fills.
    pub graph: Handle,
    origin: u32,
    streams: Vec<u32>,
}

#[derive(Default)]
struct CaptureTables {
    captures: Vec<Capture>,
    graphs: HashMap<Handle, CudaGraph>,
    made: usize,
    begun: u64,
}

static TABLES: LazyLock<Mutex<CaptureTables>> = LazyLock::new(Mutex::default);
/// Captures that have begun. Release after the tables changed, Acquire before they are read; a stream that captures is used
/// by a second thread only after the program synchronised both.
static CAPTURES: AtomicUsize = AtomicUsize::new(0);

fn tables() -> MutexGuard<'static, CaptureTables> {
    lock(&TABLES)
}

impl CaptureTables {
    fn capture_of(&mut self, stream: u32) -> Option<&mut Capture> {
        self.captures.iter_mut().find(|capture| capture.streams.contains(&stream))
    }

    fn graph(&mut self, graph: Handle) -> Result<&mut CudaGraph, Failure> {
        self.graphs.get_mut(&graph).ok_or(Failure::INVALID_VALUE)
    }
}

/// Makes an empty graph.
pub fn create() -> Handle {
    let mut tables = tables();
    tables.made += 1;
    let handle = FIRST + 64 * tables.made;
    tables.graphs.insert(handle, CudaGraph::default());
    handle
}

/// Begins a capture on a stream, into a graph of its own or one that exists.
///
/// # Errors
/// [`Failure::CAPTURE_UNSUPPORTED`] for a default stream, [`Failure::ILLEGAL_STATE`] if the stream captures already,
/// [`Failure::INVALID_VALUE`] for an unknown graph.
pub fn begin(stream: Handle, into: Option<Handle>) -> Answer {
    let origin = stream_number(stream);
    if origin == 0 {
        return Err(Failure::CAPTURE_UNSUPPORTED);
    }
    let graph = into.unwrap_or_else(create);
    let mut tables = tables();
    if tables.capture_of(origin).is_some() {
        return Err(Failure::ILLEGAL_STATE);
    }
    tables.graph(graph)?.origin = origin;
    tables.begun += 1;
    let capture = Capture { id: tables.begun, graph, origin, streams: vec![origin] };
    tables.captures.push(capture);
    CAPTURES.store(tables.captures.len(), Ordering::Release); // pairs with the Acquire of `capture_of`
    Ok(())
}

/// Ends the capture that began on a stream, and gives its graph.
///
/// # Errors
/// [`Failure::ILLEGAL_STATE`] if the stream captures nothing, [`Failure::CAPTURE_UNMATCHED`] if the capture began on
/// another stream.
pub fn end(stream: Handle) -> Result<Handle, Failure> {
    let number = stream_number(stream);
    let mut tables = tables();
    let at = tables.captures.iter().position(|capture| capture.streams.contains(&number));
    let at = at.ok_or(Failure::ILLEGAL_STATE)?;
    if tables.captures[at].origin != number {
        return Err(Failure::CAPTURE_UNMATCHED);
    }
    let capture = tables.captures.remove(at);
    CAPTURES.store(tables.captures.len(), Ordering::Release); // pairs with the Acquire of `capture_of`
    Ok(capture.graph)
}

/// The capture that contains a stream.
pub fn capture_of(stream: Handle) -> Option<Capture> {
    if CAPTURES.load(Ordering::Acquire) == 0 {
        return None; // pairs with the Release of `begin` and `end`
    }
    tables().capture_of(stream_number(stream)).cloned()
}

/// Makes a stream part of a capture, if that still runs.
///
/// # Errors
/// [`Failure::CAPTURE_MERGE`] if the stream is part of another one, [`Failure::CAPTURE_IMPLICIT`] for a default stream.
pub fn join(stream: Handle, capture: u64) -> Answer {
    let number = stream_number(stream);
    let mut tables = tables();
    if let Some(present) = tables.capture_of(number) {
        return if present.id == capture { Ok(()) } else { Err(Failure::CAPTURE_MERGE) };
    }
    match tables.captures.iter_mut().find(|running| running.id == capture) {
        Some(_) if number == 0 => Err(Failure::CAPTURE_IMPLICIT),
        Some(running) => {
            running.streams.push(number);
            Ok(())
        }
        None => Ok(()),
    }
}

/// Refuses what must not happen to a stream that captures.
///
/// # Errors
/// [`Failure::CAPTURE_UNSUPPORTED`] if it does.
pub fn refuse_in_capture(stream: Handle) -> Answer {
    capture_of(stream).map_or(Ok(()), |_| Err(Failure::CAPTURE_UNSUPPORTED))
}

/// Keeps a copy of a record whose stream captures, and marks the record.
pub(crate) fn take(record: &mut LogRecord) {
    if CAPTURES.load(Ordering::Acquire) == 0 {
        return; // pairs with the Release of `begin` and `end`
    }
    let mut tables = tables();
    let Some(graph) = tables.capture_of(record.stream).map(|capture| capture.graph) else { return };
    if let Ok(graph) = tables.graph(graph) {
        graph.records.push(*record);
    }
    record.kind |= CAPTURED;
}

/// Keeps a function of the host, which runs at each launch of a graph.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] if the graph was destroyed.
pub(crate) fn keep_function(graph: Handle, function: HostFunction) -> Answer {
    tables().graph(graph)?.functions.push(function);
    Ok(())
}

/// A graph as it is now.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] for an unknown graph.
pub(crate) fn graph(graph: Handle) -> Result<CudaGraph, Failure> {
    tables().graph(graph).cloned()
}

/// Records of a graph that are no nodes; a graph in a graph counts by what it holds.
const EDGES: [u16; 3] = [RecordKind::EventRecord as u16, RecordKind::StreamWait as u16, RecordKind::GraphLaunch as u16];

/// Nodes of a graph.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] for an unknown graph.
pub fn nodes(graph: Handle) -> Result<usize, Failure> {
    let is_edge = |record: &&LogRecord| EDGES.contains(&record.kind);
    let mut tables = tables();
    let records = &tables.graph(graph)?.records;
    Ok(records.iter().filter(|record| !is_edge(record)).count())
}

/// Destroys a graph.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] for an unknown or destroyed graph.
pub fn destroy(graph: Handle) -> Answer {
    tables().graphs.remove(&graph).map(drop).ok_or(Failure::INVALID_VALUE)
}

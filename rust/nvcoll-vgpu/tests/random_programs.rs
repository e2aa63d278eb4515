//! Random programs call the C interface, and a small model says what each call must answer and write down.
//!
//! The model knows live memory with its bytes, streams, events, captures and graphs. After every call it compares: the status,
//! the records that were added, the bytes in use. Handles that were destroyed, addresses that were released and numbers that
//! were never given out are used as often as good ones.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod interface;

use std::collections::{BTreeMap, BTreeSet};

use interface::*;
use nvcoll_vgpu::log::{self, RecordKind, CAPTURED};
use nvcoll_vgpu::memory::data::KEPT_BYTES;
use nvcoll_vgpu::{gpu, memory, memory_constants, Handle};
use proptest::prelude::*;

/// Offsets and lengths of copies are below it.
const SMALL: usize = 64 << 10;

#[derive(Clone, Copy, Debug)]
enum Call {
    Malloc(usize),
    Free(usize),
    ToDevice { block: usize, offset: usize, bytes: usize, byte: u8 },
    ToHost { block: usize },
    Between { to: usize, from: usize },
    Fill { block: usize, offset: usize, bytes: usize, byte: u8 },
    MakeStream,
    DropStream(usize),
    MakeEvent,
    DropEvent(usize),
    LogRecord { event: usize, stream: usize },
    Wait { event: usize, stream: usize },
    Query(usize),
    WaitForEvent(usize),
    WaitForStream(usize),
    WaitForDevice,
    Launch(usize),
    Begin(usize),
    End(usize),
    Replay { graph: usize, stream: usize },
    DropGraph(usize),
}

fn call() -> impl Strategy<Value = Call> {
    let few = 0..6usize;
    let bytes = prop_oneof![4 => 0..SMALL, 1 => Just(3 << 30), 1 => Just(30 << 30), 1 => Just(usize::MAX)];
    prop_oneof![
        3 => bytes.prop_map(Call::Malloc),
        2 => few.clone().prop_map(Call::Free),
        2 => (few.clone(), 0..SMALL, 0..SMALL, any::<u8>())
            .prop_map(|(block, offset, bytes, byte)| Call::ToDevice { block, offset, bytes, byte }),
        2 => few.clone().prop_map(|block| Call::ToHost { block }),
        1 => (few.clone(), few.clone()).prop_map(|(to, from)| Call::Between { to, from }),
        1 => (few.clone(), 0..SMALL, 0..SMALL, any::<u8>())
            .prop_map(|(block, offset, bytes, byte)| Call::Fill { block, offset, bytes, byte }),
        1 => Just(Call::MakeStream),
        1 => few.clone().prop_map(Call::DropStream),
        1 => Just(Call::MakeEvent),
        1 => few.clone().prop_map(Call::DropEvent),
        3 => (few.clone(), few.clone()).prop_map(|(event, stream)| Call::LogRecord { event, stream }),
        2 => (few.clone(), few.clone()).prop_map(|(event, stream)| Call::Wait { event, stream }),
        3 => few.clone().prop_map(Call::Query),
        1 => few.clone().prop_map(Call::WaitForEvent),
        1 => few.clone().prop_map(Call::WaitForStream),
        1 => Just(Call::WaitForDevice),
        3 => few.clone().prop_map(Call::Launch),
        1 => few.clone().prop_map(Call::Begin),
        1 => few.clone().prop_map(Call::End),
        2 => (few.clone(), few.clone()).prop_map(|(graph, stream)| Call::Replay { graph, stream }),
        1 => few.prop_map(Call::DropGraph),
    ]
}

/// A block of memory, and its first bytes that copies can reach.
struct Block {
    address: usize,
    bytes: usize,
    content: Vec<u8>,
    is_live: bool,
}

#[derive(Default, Clone, Copy)]
struct Event {
    handle: Handle,
    is_live: bool,
    recorded: u64,
    /// The capture in which it was recorded: its first stream, and its number.
    capture: Option<usize>,
}

struct Capture {
    origin: usize,
    streams: BTreeSet<usize>,
    kinds: Vec<u16>,
}

/// Bytes that a node of a graph takes.
const NODE_BYTES: u64 = memory_constants::GRAPH_NODE_BYTES as u64;

/// What the program has, and what must be true of it.
struct Model {
    blocks: Vec<Block>,
    /// Streams by number; the first is the default stream.
    streams: Vec<(Handle, bool)>,
    events: Vec<Event>,
    captures: BTreeMap<usize, Capture>,
    begun: usize,
    /// Executable graphs, and the kinds of their records.
    graphs: Vec<(Handle, bool, Vec<u16>)>,
    waited: u64,
    function: Handle,
}

impl Model {
    fn new() -> Model {
        static FUNCTION: u8 = 0;
        let function = &raw const FUNCTION as Handle;
        // SAFETY: the name is a C string; the other calls have no conditions.
        unsafe {
            assert_eq!(cudaSetDevice(3), OK);
            let owner = __cudaRegisterFatBinary(0);
            __cudaRegisterFunction(owner, function, 0, c"kernel".as_ptr());
            cudaDeviceSynchronize();
        }
        Model {
            blocks: Vec::new(),
            streams: vec![(0, true)],
            events: Vec::new(),
            captures: BTreeMap::new(),
            begun: 0,
            graphs: Vec::new(),
            waited: log::count(),
            function,
        }
    }

    fn used(&self) -> u64 {
        let blocks: u64 = self.blocks.iter().filter(|block| block.is_live).map(|block| block.bytes as u64).sum();
        let graphs = self.graphs.iter().filter(|graph| graph.1).map(|graph| nodes_of(&graph.2) as u64 * NODE_BYTES);
        blocks + graphs.sum::<u64>()
    }

    fn stream(&self, at: usize) -> (Handle, bool) {
        self.streams.get(at).copied().unwrap_or((0xdead_beef, false))
    }

    fn event(&self, at: usize) -> Event {
        self.events.get(at).copied().unwrap_or(Event { handle: 77, ..Event::default() })
    }

    fn capture_of(&mut self, stream: usize) -> Option<(usize, &mut Capture)> {
        let found = self.captures.iter_mut().find(|(_, capture)| capture.streams.contains(&stream));
        found.map(|(number, capture)| (*number, capture))
    }

    /// Checks that one record was added, captured if its stream captures.
    fn added(&mut self, before: u64, kind: RecordKind, stream: usize) {
        assert_eq!(log::count(), before + 1, "one record");
        let record = log::record(before).expect("it was counted");
        let mut expected = kind as u16;
        if let Some((_, capture)) = self.capture_of(stream) {
            if kind.is_captured() {
                capture.kinds.push(expected);
                expected |= CAPTURED;
            }
        }
        assert_eq!(record.kind, expected);
        assert_eq!(record.device, 3);
        assert_eq!(Handle::from(record.stream == 0), Handle::from(self.streams[stream].0 == 0));
    }

    fn is_complete(&self, event: &Event) -> bool {
        event.recorded <= self.waited
    }

    fn run(&mut self, call: Call) {
        let before = log::count();
        match call {
            Call::Malloc(bytes) => self.malloc(bytes, before),
            Call::Free(at) => self.free(at, before),
            Call::ToDevice { .. } | Call::ToHost { .. } | Call::Between { .. } | Call::Fill { .. } => {
                self.move_data(call, before);
            }
            Call::MakeStream | Call::DropStream(_) | Call::MakeEvent | Call::DropEvent(_) => self.make(call, before),
            Call::LogRecord { .. } | Call::Wait { .. } | Call::Query(_) => self.order(call, before),
            Call::WaitForEvent(_) | Call::WaitForStream(_) | Call::WaitForDevice => self.wait(call, before),
            Call::Launch(stream) => self.launch(stream, before),
            Call::Begin(_) | Call::End(_) | Call::Replay { .. } | Call::DropGraph(_) => self.graph(call, before),
        }
        assert_eq!(memory::used(3), self.used());
    }

    fn malloc(&mut self, bytes: usize, before: u64) {
        let mut address = 1;
        // SAFETY: the place is valid.
        let status = unsafe { cudaMalloc(&mut address, bytes) };
        let fits = (bytes as u64).checked_add(self.used()).is_some_and(|sum| sum <= gpu::gpu().available_bytes());
        if !fits {
            assert_eq!((status, log::count()), (OUT_OF_MEMORY, before));
            // SAFETY: no conditions.
            assert_eq!(unsafe { (cudaPeekAtLastError(), cudaGetLastError(), cudaGetLastError()) }, (2, 2, 0));
            return;
        }
        assert_eq!(status, OK);
        if bytes == 0 {
            assert_eq!(address, 0);
            return;
        }
        self.added(before, RecordKind::Malloc, 0);
        assert_eq!(address % 256, 0);
        assert!(memory::is_device(address) && memory::is_device(address + bytes - 1));
        let overlaps = |block: &Block| block.address < address + bytes && address < block.address + block.bytes;
        assert!(!self.blocks.iter().any(|block| block.is_live && overlaps(block)));
        let content = vec![0; bytes.min(2 * SMALL)];
        self.blocks.push(Block { address, bytes, content, is_live: true });
    }

    fn free(&mut self, at: usize, before: u64) {
        let count = self.blocks.len();
        let Some(block) = self.blocks.get(count.wrapping_sub(at + 1)) else {
            // SAFETY: an address that nobody gave out.
            assert_eq!(unsafe { (cudaFree(0), cudaFree(4096), cudaFreeHost(4096)) }, (OK, 1, 1));
            return;
        };
        let is_reused = self.blocks.iter().any(|other| other.is_live && other.address == block.address);
        // SAFETY: any address may be passed.
        let status = unsafe { cudaFree(block.address) };
        if !is_reused {
            assert_eq!((status, log::count()), (INVALID_VALUE, before));
            return;
        }
        assert_eq!(status, OK);
        let address = block.address;
        let live = self.blocks.iter_mut().find(|other| other.is_live && other.address == address);
        live.expect("there is one").is_live = false;
        self.added(before, RecordKind::Free, 0);
    }

    fn live(&mut self, at: usize) -> Option<usize> {
        let live: Vec<usize> = (0..self.blocks.len()).filter(|at| self.blocks[*at].is_live).collect();
        live.get(at).copied()
    }

    fn move_data(&mut self, call: Call, before: u64) {
        match call {
            Call::ToDevice { block, offset, bytes, byte } => {
                let Some(block) = self.live(block) else { return };
                let source = vec![byte; bytes];
                let (address, length) = (self.blocks[block].address, self.blocks[block].bytes);
                let is_beyond = offset + bytes > length;
                if is_beyond && memory::is_live(address + offset, bytes) {
                    return; // into a neighbour, as on a GPU
                }
                // SAFETY: the source has `bytes` bytes.
                let status = unsafe { cudaMemcpyAsync(address + offset, source.as_ptr() as usize, bytes, 1, 0) };
                if bytes == 0 {
                    assert_eq!(status, OK);
                } else if is_beyond {
                    assert_eq!((status, log::count()), (INVALID_VALUE, before));
                } else {
                    assert_eq!(status, OK);
                    self.added(before, RecordKind::Copy, 0);
                    self.blocks[block].content[offset..offset + bytes].fill(byte);
                }
            }
            Call::ToHost { block } => {
                let Some(block) = self.live(block) else { return };
                let content = self.blocks[block].content.clone();
                let mut read = vec![9; content.len()];
                // SAFETY: the destination has as many bytes.
                let status = unsafe {
                    cudaMemcpyAsync(read.as_mut_ptr() as usize, self.blocks[block].address, read.len(), 2, 0)
                };
                assert_eq!(status, OK);
                self.added(before, RecordKind::Copy, 0);
                assert!(read == content, "the bytes that were written");
            }
            Call::Between { to, from } => {
                let (Some(to), Some(from)) = (self.live(to), self.live(from)) else { return };
                let bytes = self.blocks[to].bytes.min(self.blocks[from].bytes);
                // SAFETY: both are device memory.
                let status =
                    unsafe { cudaMemcpyAsync(self.blocks[to].address, self.blocks[from].address, bytes, 3, 0) };
                assert_eq!(status, OK);
                self.added(before, RecordKind::Copy, 0);
                let kept = bytes.min(2 * SMALL);
                let source = match bytes {
                    0..=KEPT_BYTES => self.blocks[from].content[..kept].to_vec(),
                    _ => vec![0; kept],
                };
                self.blocks[to].content[..kept].copy_from_slice(&source);
            }
            Call::Fill { block, offset, bytes, byte } => {
                let Some(block) = self.live(block) else { return };
                if offset + bytes > self.blocks[block].bytes || bytes == 0 {
                    return;
                }
                // SAFETY: any address may be passed.
                let status = unsafe { cudaMemsetAsync(self.blocks[block].address + offset, byte.into(), bytes, 0) };
                assert_eq!(status, OK);
                self.added(before, RecordKind::Fill, 0);
                self.blocks[block].content[offset..offset + bytes].fill(byte);
            }
            _ => unreachable!("`run` passes calls that move data"),
        }
    }

    fn make(&mut self, call: Call, before: u64) {
        match call {
            Call::MakeStream => {
                let mut handle = 0;
                // SAFETY: the place is valid.
                assert_eq!(unsafe { cudaStreamCreateWithPriority(&mut handle, 1, -1) }, OK);
                assert!(handle.is_multiple_of(64) && !self.streams.iter().any(|stream| stream.0 == handle));
                self.streams.push((handle, true));
                self.added(before, RecordKind::StreamMade, self.streams.len() - 1);
            }
            Call::DropStream(at) => {
                let (handle, is_live) = self.stream(at);
                if self.capture_of(at).is_some() {
                    return;
                }
                let expected = if is_live && at > 0 { OK } else { INVALID_HANDLE };
                // SAFETY: any handle may be passed.
                assert_eq!(unsafe { cudaStreamDestroy(handle) }, expected);
                if at > 0 && is_live {
                    self.streams[at].1 = false;
                }
            }
            Call::MakeEvent => {
                let mut handle = 0;
                // SAFETY: the place is valid.
                assert_eq!(unsafe { cudaEventCreateWithFlags(&mut handle, 0) }, OK);
                self.events.push(Event { handle, is_live: true, ..Event::default() });
            }
            Call::DropEvent(at) => {
                let event = self.event(at);
                let expected = if event.is_live { OK } else { INVALID_HANDLE };
                // SAFETY: any handle may be passed.
                assert_eq!(unsafe { cudaEventDestroy(event.handle) }, expected);
                if event.is_live {
                    self.events[at].is_live = false;
                }
            }
            _ => unreachable!("`run` passes calls that make"),
        }
    }

    fn order(&mut self, call: Call, before: u64) {
        match call {
            Call::LogRecord { event: at, stream } => {
                let (event, (handle, is_live)) = (self.event(at), self.stream(stream));
                // SAFETY: any handles may be passed.
                let status = unsafe { cudaEventRecord(event.handle, handle) };
                if !is_live || !event.is_live {
                    assert_eq!((status, log::count()), (INVALID_HANDLE, before));
                    return;
                }
                assert_eq!(status, OK);
                self.added(before, RecordKind::EventRecord, stream);
                self.events[at].recorded = before + 1;
                self.events[at].capture = self.capture_of(stream).map(|(number, _)| number);
            }
            Call::Wait { event: at, stream } => {
                let (event, (handle, is_live)) = (self.event(at), self.stream(stream));
                let joins = event.capture.filter(|capture| self.captures.contains_key(capture));
                let present = self.capture_of(stream).map(|(number, _)| number);
                // SAFETY: any handles may be passed.
                let status = unsafe { cudaStreamWaitEvent(handle, event.handle, 0) };
                if !is_live || !event.is_live {
                    assert_eq!((status, log::count()), (INVALID_HANDLE, before));
                } else if event.recorded == 0 {
                    assert_eq!((status, log::count()), (OK, before));
                } else if event.capture.is_some() && present.is_some() && present != event.capture {
                    assert_eq!(status, 902, "two captures do not merge");
                } else if joins.is_some() && present.is_none() && stream == 0 {
                    assert_eq!(status, 906, "the default stream does not capture");
                } else {
                    assert_eq!(status, OK);
                    if let Some(capture) = joins.and_then(|joins| self.captures.get_mut(&joins)) {
                        capture.streams.insert(stream);
                    }
                    self.added(before, RecordKind::StreamWait, stream);
                }
            }
            Call::Query(at) => {
                let event = self.event(at);
                // SAFETY: any handle may be passed.
                let status = unsafe { cudaEventQuery(event.handle) };
                let expected = match event {
                    Event { is_live: false, .. } => INVALID_HANDLE,
                    Event { capture: Some(_), .. } => 907,
                    event if self.is_complete(&event) => OK,
                    _ => NOT_READY,
                };
                assert_eq!((status, log::count()), (expected, before));
            }
            _ => unreachable!("`run` passes calls that order"),
        }
    }

    fn wait(&mut self, call: Call, before: u64) {
        match call {
            Call::WaitForDevice => {
                // SAFETY: no conditions.
                assert_eq!(unsafe { cudaDeviceSynchronize() }, OK);
                self.added(before, RecordKind::HostWait, 0);
                self.waited = before;
            }
            Call::WaitForStream(at) => {
                let (handle, is_live) = self.stream(at);
                let expected = match self.capture_of(at) {
                    Some(_) => 900,
                    None if is_live => OK,
                    None => INVALID_HANDLE,
                };
                // SAFETY: any handle may be passed.
                assert_eq!(unsafe { cudaStreamSynchronize(handle) }, expected);
                if expected == OK {
                    self.added(before, RecordKind::HostWait, at);
                    self.waited = before;
                }
            }
            Call::WaitForEvent(at) => {
                let event = self.event(at);
                // SAFETY: any handle may be passed.
                let status = unsafe { cudaEventSynchronize(event.handle) };
                match event {
                    Event { is_live: false, .. } => assert_eq!(status, INVALID_HANDLE),
                    Event { capture: Some(_), .. } => assert_eq!(status, 907),
                    _ => {
                        assert_eq!(status, OK);
                        self.added(before, RecordKind::HostWait, 0);
                        self.waited = self.waited.max(event.recorded);
                    }
                }
            }
            _ => unreachable!("`run` passes calls that wait"),
        }
    }

    fn launch(&mut self, stream: usize, before: u64) {
        let (handle, is_live) = self.stream(stream);
        // SAFETY: the function is registered, and its arguments are not read.
        let status = unsafe { cudaLaunchKernel(self.function, line(7), line(128), 0, 1024, handle) };
        if is_live {
            assert_eq!(status, OK);
            self.added(before, RecordKind::Launch, stream);
            assert_eq!(log::record(before).expect("it was counted").args[..3], [7, 128, 1024]);
        } else if stream >= self.streams.len() {
            assert_eq!((status, log::count()), (INVALID_HANDLE, before));
        }
    }

    fn graph(&mut self, call: Call, before: u64) {
        match call {
            Call::Begin(at) => {
                let (handle, is_live) = self.stream(at);
                // SAFETY: any handle may be passed.
                let status = unsafe { cudaStreamBeginCapture(handle, 0) };
                if !is_live {
                    assert_eq!(status, INVALID_HANDLE);
                } else if at == 0 {
                    assert_eq!(status, 900);
                } else if self.capture_of(at).is_some() {
                    assert_eq!(status, 401);
                } else {
                    assert_eq!(status, OK);
                    self.begun += 1;
                    let capture = Capture { origin: at, streams: BTreeSet::from([at]), kinds: Vec::new() };
                    self.captures.insert(self.begun, capture);
                }
            }
            Call::End(at) => self.end(at),
            Call::Replay { graph, stream } => {
                let (handle, is_live) = self.stream(stream);
                let Some((executable, is_kept, kinds)) = self.graphs.get(graph).cloned() else { return };
                // SAFETY: any handles may be passed.
                let status = unsafe { cudaGraphLaunch(executable, handle) };
                if !is_live || !is_kept {
                    assert_ne!(status, OK);
                    assert_eq!(log::count(), before);
                    return;
                }
                let launched = log::record(before).map(|record| record.args[0]);
                assert_eq!((status, launched), (OK, Some(kinds.len() as u64)));
                let kinds = [&[RecordKind::GraphLaunch as u16], &kinds[..]].concat();
                assert_eq!(log::count(), before + kinds.len() as u64);
                let added = (before..).zip(&kinds);
                let runs_now = self.captures.is_empty();
                for (position, kind) in added {
                    let record = log::record(position).expect("it was counted");
                    assert_eq!(record.kind & !CAPTURED, *kind);
                    assert!(!runs_now || record.kind == *kind);
                    if let Some((_, capture)) = self.capture_of(stream) {
                        if record.kind & CAPTURED != 0 {
                            capture.kinds.push(*kind);
                        }
                    }
                }
            }
            Call::DropGraph(at) => {
                let Some(graph) = self.graphs.get_mut(at) else { return };
                let expected = if graph.1 { OK } else { INVALID_VALUE };
                // SAFETY: any handle may be passed.
                assert_eq!(unsafe { cudaGraphExecDestroy(graph.0) }, expected);
                graph.1 = false;
            }
            _ => unreachable!("`run` passes calls of graphs"),
        }
    }

    fn end(&mut self, at: usize) {
        let (handle, _) = self.stream(at);
        let mut graph = 1;
        // SAFETY: any handle may be passed, and the place is valid.
        let status = unsafe { cudaStreamEndCapture(handle, &mut graph) };
        let Some((number, capture)) = self.capture_of(at) else {
            assert_eq!((status, graph), (401, 0));
            return;
        };
        if capture.origin != at {
            assert_eq!((status, graph), (903, 0));
            return;
        }
        assert_eq!(status, OK);
        let kinds = self.captures.remove(&number).expect("it was found").kinds;
        let nodes = nodes_of(&kinds);
        let (mut count, mut executable) = (0, 0);
        let mut handles = vec![0; nodes + 1];
        // SAFETY: the places are valid, and the count is their number.
        unsafe {
            assert_eq!(cudaGraphGetNodes(graph, std::ptr::null_mut(), &mut count), OK);
            assert_eq!(count, nodes);
            count = nodes + 1;
            assert_eq!(cudaGraphGetNodes(graph, handles.as_mut_ptr(), &mut count), OK);
            assert_eq!((count, handles[nodes]), (nodes, 0));
            assert_eq!(cudaGraphInstantiate(&mut executable, graph, 0), OK);
            assert_eq!((cudaGraphDestroy(graph), cudaGraphDestroy(graph)), (OK, INVALID_VALUE));
        }
        self.graphs.push((executable, true, kinds));
    }
}

/// The nodes among the records of a graph.
fn nodes_of(kinds: &[u16]) -> usize {
    let edges = [RecordKind::EventRecord, RecordKind::StreamWait, RecordKind::GraphLaunch].map(|kind| kind as u16);
    kinds.iter().filter(|kind| !edges.contains(kind)).count()
}

/// Ends captures and gives everything back, also after a failure, so that the next program starts afresh.
impl Drop for Model {
    fn drop(&mut self) {
        for capture in self.captures.values() {
            let mut graph = 0;
            // SAFETY: any handle may be passed, and the place is valid.
            unsafe { cudaStreamEndCapture(self.streams[capture.origin].0, &mut graph) };
        }
        for block in self.blocks.iter().filter(|block| block.is_live) {
            // SAFETY: any address may be passed.
            unsafe { cudaFree(block.address) };
        }
        for graph in self.graphs.iter().filter(|graph| graph.1) {
            // SAFETY: any handle may be passed.
            unsafe { cudaGraphExecDestroy(graph.0) };
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn calls_answer_and_write_down_what_the_model_says(calls in prop::collection::vec(call(), 1..120)) {
        let mut model = Model::new();
        for call in calls {
            model.run(call);
        }
        drop(model);
        prop_assert_eq!(memory::used(3), 0);
    }
}

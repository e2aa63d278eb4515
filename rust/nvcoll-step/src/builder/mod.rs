//! The builder of steps on streams: what the dry run and readers of traces call, operation by operation.
//!
//! ```text
//! group(ranks), rank(number)                              drafts, by number
//! rank: work on a stream, record, waits, after(handles)   handles, by number
//! finish ─ names and kinds of groups, tags of messages (`groups`)
//!        ─ bytes of all ranks of a collective, parts of the time by names of kernels (`words`)
//!        ─ events: one for each recording for which something waits, by number; waits for what is never recorded are left out
//!        ─ FLOPs of the model, precision of most of them
//!        ─▶ WorkStep
//! ```
//!
//! Groups get names at the end: these depend on the calls of all ranks. [`StreamsBuilder::after`] says dependencies without events, as traces know
//! them: the builder makes the events. A wait for an earlier operation of the same stream, and a second wait of a stream for the same
//! operation, are left out. So operations may have other positions in the step than their handles: [`StreamsBuilder::place`].
//!
//! **FLOPs of the model** are the FLOPs of the forward pass and of the backward pass, but at most twice the forward ones: further FLOPs are
//! recomputation. If nothing is of the backward pass, as with compiled autograd, all count. Products and attention are compared apart.

mod groups;
mod words;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use nvcoll_fabric::predict::{Pattern, Server};

use crate::error::{Error, Result};
use crate::layout::Dtype;
use crate::memory::RankMemory;
use crate::network::Group;
use crate::parts::TimePart;
use crate::step::streams::{HostClock, Issued, RankStreams, Streams};
use crate::step::work::{Awaited, MoveRate, StepOp, StepWork};
use crate::step::{Form, WorkStep, SCHEMA};
use groups::GroupDraft;
pub use words::group_word;

/// FLOPs of a backward pass, as a multiple of the forward pass: gradients of inputs and of weights.
const BACKWARD: f64 = 2.0;

/// A step on streams that is being made.
#[derive(Debug, Clone)]
pub struct StreamsBuilder {
    name: String,
    gpus: u32,
    gpu: String,
    groups: Vec<GroupDraft>,
    ranks: Vec<RankDraft>,
    lines: Vec<String>,
    line_numbers: HashMap<String, u32>,
    /// What was assumed, each once.
    notes: Vec<String>,
    /// The names of groups, and for each rank the position of the operation of each handle: [`StreamsBuilder::finish`] fills them in.
    names: Vec<String>,
    places: Vec<Vec<Option<usize>>>,
}

/// A rank that is being made.
#[derive(Debug, Clone)]
struct RankDraft {
    rank: u32,
    stands_for: u32,
    name: String,
    host: HostClock,
    memory: Option<RankMemory>,
    drafts: Vec<StepDraft>,
}

/// An operation that is being made, or what orders operations.
#[derive(Debug, Clone)]
enum StepDraft {
    Op {
        issued: Issued,
        group: Option<usize>,
        is_backward: bool,
    },
    /// A stream, or the processor, waits for operations of other streams.
    After {
        stream: Option<u32>,
        handles: Vec<usize>,
    },
}

/// Where and how an operation was issued.
#[derive(Debug, Clone, Default)]
pub struct Issue {
    /// The stream.
    pub stream: u32,
    /// The name of the operation.
    pub name: String,
    /// The line of the script, if it is known.
    pub line: Option<String>,
    /// Whether it is of the backward pass.
    pub is_backward: bool,
    /// Whether a CUDA graph launched it.
    pub by_graph: bool,
    /// Its group call.
    pub together: Option<u64>,
}

/// What a maker knows of the whole step.
#[derive(Debug, Clone, Copy, Default)]
pub struct Totals {
    /// Tokens of all ranks, if they are known.
    pub tokens: Option<f64>,
    /// The precision of most products. Default: found in the operations.
    pub dtype: Option<Dtype>,
    /// Whether makers marked the operations of the backward pass: then FLOPs of the model are known.
    pub has_passes: bool,
}

impl StreamsBuilder {
    /// Begins a step of `gpus` GPUs, whose kernels were chosen for a model of GPU.
    pub fn new(name: &str, gpus: u32, gpu: &str) -> Self {
        let (groups, ranks, names, places) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (lines, line_numbers, notes) = (Vec::new(), HashMap::new(), Vec::new());
        Self { name: name.into(), gpus, gpu: gpu.into(), groups, ranks, lines, line_numbers, notes, names, places }
    }

    /// Returns the number of a group of ranks; the same group has the same number.
    ///
    /// # Errors
    /// [`Error::Step`] if it has no ranks, or one twice.
    pub fn group(&mut self, ranks: &[u32], rank: u32, called: &str) -> Result<usize> {
        let (draft, assumed) = GroupDraft::of_ranks(called, ranks, rank, self.gpus)?;
        assumed.into_iter().for_each(|text| self.note(&text));
        Ok(self.numbered(draft))
    }

    /// Returns the number of a group with a known shape and unknown ranks.
    pub fn shape(&mut self, size: u32, stride: u32, called: &str) -> usize {
        self.numbered(GroupDraft::of_shape(called, Group::even(size.max(1), stride.max(1))))
    }

    fn numbered(&mut self, draft: GroupDraft) -> usize {
        let known = self.groups.iter().position(|one| one.is_like(&draft));
        known.unwrap_or_else(|| {
            self.groups.push(draft);
            self.groups.len() - 1
        })
    }

    /// Adds an assumption.
    pub fn note(&mut self, text: &str) {
        if !self.notes.iter().any(|known| known == text) {
            self.notes.push(text.to_owned());
        }
    }

    /// Returns the assumptions.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Adds a rank, and returns its position.
    pub fn rank(
        &mut self,
        rank: u32,
        stands_for: u32,
        name: &str,
        host: HostClock,
        memory: Option<RankMemory>,
    ) -> usize {
        self.ranks.push(RankDraft { rank, stands_for, name: name.to_owned(), host, memory, drafts: Vec::new() });
        self.ranks.len() - 1
    }

    fn draft(&mut self, at: usize, draft: StepDraft) -> usize {
        self.ranks[at].drafts.push(draft);
        self.ranks[at].drafts.len() - 1
    }

    /// Adds work of a rank, and returns its handle. Kernels that move bytes, or have a known time, belong to the part of the time that fits their
    /// name; kernels of optimizers stream.
    pub fn op(&mut self, at: usize, issue: Issue, mut work: StepWork) -> usize {
        let kernel = matches!(work, StepWork::Move { .. } | StepWork::Timed { .. });
        let part = if kernel { words::part_of_kernel(&issue.name) } else { None };
        if let (Some(TimePart::Optimizer), StepWork::Move { rate, .. }) = (part, &mut work) {
            *rate = MoveRate::Stream;
        }
        self.add(at, issue, work, part, None)
    }

    fn add(&mut self, at: usize, issue: Issue, work: StepWork, part: Option<TimePart>, group: Option<usize>) -> usize {
        let Issue { stream, name, line, is_backward, by_graph, together } = issue;
        let line = line.map(|text| {
            let next = self.lines.len() as u32;
            *self.line_numbers.entry(text).or_insert_with_key(|text| {
                self.lines.push(text.clone());
                next
            })
        });
        let op = StepOp { name, count: 1.0, part, work };
        self.draft(at, StepDraft::Op { issued: Issued { stream, line, by_graph, together, op }, group, is_backward })
    }

    /// Adds one more launch, of some bytes, to kernels that move bytes. Returns whether the operation is such.
    pub fn more(&mut self, at: usize, handle: usize, more: f64) -> bool {
        match self.ranks[at].drafts.get_mut(handle) {
            Some(StepDraft::Op {
                issued: Issued { op: StepOp { work: StepWork::Move { bytes, launches, .. }, .. }, .. },
                ..
            }) => {
                *bytes += more;
                *launches += 1.0;
                true
            }
            _ => false,
        }
    }

    /// Adds a collective. `is_share`: the bytes are the share of one rank, and nccl-tests counts all ranks. Without a name it gets the name of its group and
    /// pattern. A group of one rank reads and writes the bytes. `server`: the model server that makes it.
    ///
    /// # Errors
    /// [`Error::Step`] if there is no such group.
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    pub fn collective(
        &mut self,
        at: usize,
        issue: Issue,
        pattern: Pattern,
        bytes: f64,
        group: usize,
        is_share: bool,
        server: Option<Server>,
    ) -> Result<usize> {
        let size = self.communicate(group, pattern.name(), bytes, is_share)?;
        if size == 1 {
            let work = StepWork::Move { bytes: 2.0 * bytes, launches: 1.0, rate: MoveRate::Counted, flops: 0.0 };
            return Ok(self.add(at, Issue { together: None, ..issue }, work, None, None));
        }
        let total = if is_share { bytes * f64::from(size) } else { bytes };
        let work = StepWork::Collective { pattern, bytes: total, group: String::new(), once_per_node: None, server };
        Ok(self.add(at, issue, work, None, Some(group)))
    }

    /// Notes a call of a group, and returns the number of its ranks.
    fn communicate(&mut self, group: usize, call: &'static str, bytes: f64, is_share: bool) -> Result<u32> {
        let draft = self.groups.get_mut(group);
        let draft =
            draft.ok_or_else(|| Error::Step(format!("there is no group {group}: make it by `group` or `shape`")))?;
        draft.called_with(call, bytes, is_share);
        Ok(draft.size())
    }

    /// Adds a message. Its group, if it has one, gives it name and tag.
    ///
    /// # Errors
    /// [`Error::Step`] if there is no such group.
    pub fn message(&mut self, at: usize, issue: Issue, message: StepWork, group: Option<usize>) -> Result<usize> {
        if let Some(group) = group {
            self.communicate(group, "message", 0.0, false)?;
        }
        Ok(self.add(at, issue, message, None, group))
    }

    /// Makes a stream, or the processor, wait for operations.
    pub fn after(&mut self, at: usize, stream: Option<u32>, handles: &[usize]) {
        self.draft(at, StepDraft::After { stream, handles: handles.to_vec() });
    }

    /// Returns the position of an operation in its rank, after [`StreamsBuilder::finish`]; none if it was left out.
    pub fn place(&self, at: usize, handle: usize) -> Option<usize> {
        self.places.get(at)?.get(handle).copied().flatten()
    }

    /// Returns the name of a group, after [`StreamsBuilder::finish`].
    pub fn name_of(&self, group: usize) -> Option<&str> {
        self.names.get(group).map(String::as_str)
    }

    /// Makes the step.
    ///
    /// # Errors
    /// [`Error::Step`] if it contradicts itself.
    pub fn finish(&mut self, totals: Totals) -> Result<WorkStep> {
        let named = groups::named(&self.groups, self.gpus);
        let tags = groups::tags(&named);
        let flops = Flops::of(&self.ranks);
        let (mut ranks, mut places) = (Vec::new(), Vec::new());
        for draft in &self.ranks {
            let (issued, of_rank) = draft.issued(&named, &tags);
            let RankDraft { rank, stands_for, host, .. } = *draft;
            let (name, memory) = (draft.name.clone(), draft.memory.clone());
            ranks.push(RankStreams { rank, stands_for, name, host, memory, issued });
            places.push(of_rank);
        }
        self.places = places;
        self.names = named.iter().map(|one| one.name.clone()).collect();
        let made = named.iter().zip(&self.groups).filter(|(_, draft)| draft.communicates());
        let groups = made.map(|(one, _)| (one.name.clone(), one.group)).collect();
        let step = WorkStep {
            schema: SCHEMA.to_owned(),
            name: self.name.clone(),
            gpus: self.gpus,
            tokens: totals.tokens,
            model_flops: totals.has_passes.then(|| flops.model()).filter(|flops| *flops > 0.0),
            dtype: totals.dtype.unwrap_or_else(|| flops.dtype()),
            groups,
            form: Form::Streams(Streams { gpu: self.gpu.clone(), lines: self.lines.clone(), ranks }),
        };
        step.check()?;
        Ok(step)
    }
}

/// FLOPs of all ranks: of products and attention, in each of the forward and the backward pass.
#[derive(Debug, Default)]
struct Flops {
    products: [f64; 2],
    attention: [f64; 2],
    dtypes: BTreeMap<&'static str, (f64, Dtype)>,
}

impl Flops {
    fn of(ranks: &[RankDraft]) -> Self {
        let mut found = Self::default();
        for rank in ranks {
            for draft in &rank.drafts {
                let StepDraft::Op { issued, is_backward, .. } = draft else { continue };
                let flops = f64::from(rank.stands_for) * issued.op.flops();
                match &issued.op.work {
                    StepWork::Gemm { dtype, .. } => {
                        found.products[usize::from(*is_backward)] += flops;
                        found.dtypes.entry(dtype.name()).or_insert((0.0, *dtype)).0 += flops;
                    }
                    StepWork::Attention(attention) => {
                        found.attention[usize::from(*is_backward || attention.backward)] += flops;
                    }
                    StepWork::Move { .. } => found.products[usize::from(*is_backward)] += flops,
                    _ => {}
                }
            }
        }
        found
    }

    /// Returns the FLOPs of the model: without recomputation.
    fn model(&self) -> f64 {
        let [forward, backward] = self.products;
        if forward == 0.0 {
            return self.products.iter().chain(&self.attention).sum();
        }
        let of = |[forward, backward]: [f64; 2], most: f64| forward + backward.min(most * forward);
        // The backward pass of attention computes the scores again, which is no recomputation of the model.
        of([forward, backward], BACKWARD) + of(self.attention, BACKWARD)
    }

    fn dtype(&self) -> Dtype {
        let most = self.dtypes.values().max_by(|one, other| one.0.total_cmp(&other.0));
        most.map_or(Dtype::Bf16, |(_, dtype)| *dtype)
    }
}

/// What waits of a rank.
struct StepWaits {
    /// The handles for which each draft waits; for a wait for an event, its last recording before, or else in the step before.
    after: Vec<Vec<usize>>,
    /// The event of each handle for which something waits, by the order of the handles: makers' own numbers may differ between runs.
    events: BTreeMap<usize, u64>,
}

impl RankDraft {
    fn stream(&self, handle: usize) -> Option<u32> {
        match self.drafts.get(handle) {
            Some(StepDraft::Op { issued, .. }) if issued.op.work.is_on_stream() => Some(issued.stream),
            _ => None,
        }
    }

    /// Finds the waits that order something.
    fn waits(&self) -> StepWaits {
        let mut recordings: HashMap<u64, usize> = self.recordings().collect();
        let mut after = Vec::with_capacity(self.drafts.len());
        let mut seen: HashMap<(Option<u32>, u32), usize> = HashMap::new();
        for (at, draft) in self.drafts.iter().enumerate() {
            let mut last: BTreeMap<u32, usize> = BTreeMap::new();
            match draft {
                StepDraft::After { stream, handles } => {
                    for &handle in handles {
                        let Some(of) = self.stream(handle).filter(|of| Some(*of) != *stream) else { continue };
                        if seen.get(&(*stream, of)).is_none_or(|known| handle > *known) {
                            let latest = last.entry(of).or_insert(handle);
                            *latest = (*latest).max(handle);
                        }
                    }
                    seen.extend(last.iter().map(|(&of, &handle)| ((*stream, of), handle)));
                }
                StepDraft::Op { issued, .. } => match &issued.op.work {
                    StepWork::Record { event } => _ = recordings.insert(*event, at),
                    StepWork::StreamWait { event } | StepWork::HostWait { target: Awaited::Event(event) } => {
                        last.extend(recordings.get(event).map(|&handle| (0, handle)));
                    }
                    _ => {}
                },
            }
            let mut handles: Vec<usize> = last.into_values().collect();
            handles.sort_unstable();
            after.push(handles);
        }
        let awaited: BTreeSet<usize> = after.iter().flatten().copied().collect();
        StepWaits { after, events: awaited.into_iter().zip(1..).collect() }
    }

    /// Yields event and handle of each recording.
    fn recordings(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        self.drafts.iter().enumerate().filter_map(|(at, draft)| match draft {
            StepDraft::Op { issued: Issued { op: StepOp { work: StepWork::Record { event }, .. }, .. }, .. } => {
                Some((*event, at))
            }
            _ => None,
        })
    }

    /// Returns the operations, and the position of the operation of each handle.
    fn issued(&self, named: &[groups::NamedGroup], tags: &[u64]) -> (Vec<Issued>, Vec<Option<usize>>) {
        let StepWaits { after, events } = self.waits();
        let (mut issued, mut places) = (Vec::with_capacity(self.drafts.len()), Vec::with_capacity(self.drafts.len()));
        let order = |stream: Option<u32>, work: StepWork| Issued {
            stream: stream.unwrap_or(0),
            line: None,
            by_graph: false,
            together: None,
            op: StepOp::once("", work),
        };
        for (handle, (draft, after)) in self.drafts.iter().zip(&after).enumerate() {
            let event_of = |handle: &usize| events[handle];
            let awaited = after.iter().map(event_of);
            let recorded = events.get(&handle).copied();
            let mut place = None;
            match draft {
                StepDraft::After { stream: None, .. } => {
                    let waits = awaited.map(|event| StepWork::HostWait { target: Awaited::Event(event) });
                    issued.extend(waits.map(|work| order(None, work)));
                }
                StepDraft::After { stream, .. } => {
                    issued.extend(awaited.map(|event| order(*stream, StepWork::StreamWait { event })));
                }
                StepDraft::Op { issued: one, group, .. } => {
                    if let Some(work) = ordered(&one.op.work, recorded, after.last().map(event_of)) {
                        place = Some(issued.len());
                        let one = Issued { op: StepOp { work, ..one.op.clone() }, ..one.clone() };
                        issued.push(named_op(one, group.map(|at| (&named[at], tags[at]))));
                    }
                    if let Some(event) = recorded.filter(|_| !matches!(one.op.work, StepWork::Record { .. })) {
                        issued.push(order(self.stream(handle), StepWork::Record { event }));
                    }
                }
            }
            places.push(place);
        }
        (issued, places)
    }
}

/// Returns work with the number of the event that it records or awaits; none if it orders nothing.
fn ordered(work: &StepWork, recorded: Option<u64>, awaited: Option<u64>) -> Option<StepWork> {
    Some(match work {
        StepWork::Record { .. } => StepWork::Record { event: recorded? },
        StepWork::StreamWait { .. } => StepWork::StreamWait { event: awaited? },
        StepWork::HostWait { target: Awaited::Event(_) } => StepWork::HostWait { target: Awaited::Event(awaited?) },
        work => work.clone(),
    })
}

/// Gives an operation the name of its group.
fn named_op(mut issued: Issued, group: Option<(&groups::NamedGroup, u64)>) -> Issued {
    let Some((group, order)) = group else { return issued };
    let call = match &mut issued.op.work {
        StepWork::Collective { group: name, pattern, .. } => {
            name.clone_from(&group.name);
            pattern.name()
        }
        StepWork::Message { way, tag, .. } => {
            *tag = order;
            way.name()
        }
        _ => return issued,
    };
    if issued.op.name.is_empty() {
        issued.op.name = format!("{} {call}", group.name);
    }
    issued
}

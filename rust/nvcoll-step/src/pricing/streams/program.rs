//! The program of a rank on a machine: each operation with its time alone, the resources that it needs, and its waits.
//!
//! | operation | time alone | needs |
//! |---|---|---|
//! | products, attention | as in planned steps, at least the least time of a kernel | the multiprocessors |
//! | kernels of known time | as timed | nothing: their time includes the effect of work beside them |
//! | other kernels | bytes at the rate of planned element-wise kernels, some at the memory's rate, and the least time of a kernel | the multiprocessors, except in the least time |
//! | copies | bytes at the rate of the link to the processor, and a latency | that link, in its direction |
//! | collectives, messages | as in planned steps | ports of the GPU or its share of the network cards, or both; messages one direction |
//!
//! Kernels that a CUDA graph launches take longer by their start and the gap to the next.
//!
//! A collective needs all of the link that limits it, except in its latency. The processor takes time for each operator, launch and event.

use std::collections::{BTreeMap, HashMap};

use nvcoll_fabric::predict::{Pattern, Server};
use nvcoll_fabric::units::Ps;

use super::share::Need;
use crate::compute::Compute;
use crate::error::{Error, Result};
use crate::network::Group;
use crate::parts::TimePart;
use crate::pricing::{Pricer, SPREAD};
use crate::software::{DRIVER_S, OPERATOR_S};
use crate::step::streams::{HostClock, Issued, RankStreams};
use crate::step::work::{Awaited, Direction, StepWork, Way};
use crate::step::WorkStep;

/// The least time of a kernel: start, tail, and the gap to the next. Chosen: traces of eager training show 1.5 to 3 us on A100 and H100.
const KERNEL_S: f64 = 2e-6;

impl Compute<'_> {
    /// Returns the seconds of one kernel that computes, and that the processor launches.
    ///
    /// # Errors
    /// Those of [`Compute::seconds`].
    pub(crate) fn kernel_s(&self, work: &StepWork) -> Result<f64> {
        Ok(self.seconds(work)?.max(KERNEL_S))
    }
}

/// Seconds of the processor to record an event, to make a stream wait, or to wake up. Chosen.
const EVENT_S: f64 = 5e-7;

/// Seconds until the first byte of a copy has arrived. Chosen: small copies between processor and GPU take about 5 us.
const COPY_S: f64 = 5e-6;

/// The most seconds of all operations together. Chosen: four such steps fit in picoseconds of 64 bits.
const MOST_SECONDS: f64 = 1e6;

/// The number of resources of a rank: multiprocessors; ports to other GPUs, share of network cards, link to the processor, each out and in.
pub(super) const RESOURCES: usize = 7;
const SMS: usize = 0;
const PORTS: [usize; 2] = [1, 2];
const CARDS: [usize; 2] = [3, 4];
const PROCESSOR: [usize; 2] = [5, 6];

/// The directions of links.
const OUT: usize = 0;
const IN: usize = 1;

impl Way {
    const fn direction(self) -> usize {
        match self {
            Self::Send => OUT,
            Self::Recv => IN,
        }
    }
}

/// The ranks of a step, ready to run.
pub(super) struct StreamsProgram {
    pub(super) ranks: Vec<RankProgram>,
    /// Operations of several ranks that begin together: the ranks by position, and the operation of each.
    pub(super) meetings: Vec<Vec<(usize, usize)>>,
}

/// The operations of a rank, in the order in which they are issued.
pub(super) struct RankProgram {
    pub(super) ops: Vec<ProgramOp>,
    /// The number of its streams; operations name them by position.
    pub(super) streams: usize,
}

/// An operation.
pub(super) struct ProgramOp {
    /// The time of the processor to issue it.
    pub(super) host: Ps,
    pub(super) stream: usize,
    pub(super) what: What,
}

/// The work of an operation.
pub(super) enum What {
    /// Work on a stream.
    Task(StreamTask),
    /// An event is recorded.
    Record,
    /// The stream waits for the operation that records an event.
    Wait(Recording),
    /// The processor waits.
    HostWaits(Target),
    /// The processor works.
    Host,
}

/// An event as it was recorded by an operation of this step, or of the step before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recording {
    pub(super) op: usize,
    pub(super) is_before: bool,
}

/// The work for which the processor waits.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    Device,
    Stream(usize),
    Event(Recording),
}

/// Work of a stream.
pub(super) struct StreamTask {
    /// Its time alone.
    pub(super) alone: Ps,
    /// Its needs at full speed.
    pub(super) needs: Vec<Need>,
    /// The part of the step's time to which it belongs where nothing hides it.
    pub(super) part: TimePart,
    /// Whether it computes.
    pub(super) computes: bool,
    /// Whether its time is known from a measurement; then work beside it does not slow it.
    pub(super) is_measured: bool,
    /// Its speed as a share of the speed of a collective inside a node: this part of the contention slows computing beside it.
    pub(super) nearby: f64,
    /// The meeting of operations with which it begins, if some are of other ranks.
    pub(super) meeting: Option<usize>,
    /// Its group call.
    pub(super) together: Option<u64>,
    /// The collective of the same group, on another stream, that must end before it begins.
    pub(super) after: Option<Recording>,
    /// Whether it is the `after` of another collective.
    pub(super) is_awaited: bool,
}

impl StreamsProgram {
    /// Returns the seconds that the processor with most work takes to issue the step.
    pub(super) fn issue_s(&self) -> f64 {
        self.ranks.iter().map(|rank| rank.ops.iter().map(|op| op.host).sum::<Ps>()).max().unwrap_or(0) as f64 / 1e12
    }
}

impl HostClock {
    /// Returns the factor by which the times of another processor may differ.
    pub(super) fn spread(self) -> f64 {
        match self {
            Self::Timed => 1.0,
            Self::Launches { spread, .. } => spread.unwrap_or(SPREAD).max(1.0),
        }
    }
}

/// Rounds seconds to picoseconds.
fn ps(seconds: f64) -> Ps {
    (seconds * 1e12).round() as Ps
}

/// The price of a collective or message: seconds, needs, and `nearby` as in [`StreamTask`].
#[derive(Debug, Clone, Copy)]
struct CallPrice {
    seconds: f64,
    ports: f64,
    cards: f64,
    nearby: f64,
}

/// Makes the program of a step.
pub(super) struct Maker<'p, 's> {
    pricer: &'p Pricer<'p>,
    step: &'s WorkStep,
    calls: HashMap<(Option<Server>, usize, u64, Group), CallPrice>,
    seconds: f64,
}

impl<'p, 's> Maker<'p, 's> {
    pub(super) fn new(pricer: &'p Pricer<'p>, step: &'s WorkStep) -> Self {
        Self { pricer, step, calls: HashMap::new(), seconds: 0.0 }
    }

    /// Returns the program.
    ///
    /// # Errors
    /// [`Error::Gpu`], [`Error::Fabric`] if the machine lacks a rate that the step needs; [`Error::Step`] for a total time of 0 or too large.
    pub(super) fn program(mut self, ranks: &[RankStreams]) -> Result<StreamsProgram> {
        let mut made = ranks.iter().map(|rank| self.rank(rank)).collect::<Result<Vec<_>>>()?;
        if !(self.seconds > 0.0 && self.seconds <= MOST_SECONDS) {
            let seconds = self.seconds;
            return Err(Error::Step(format!(
                "its operations take {seconds:e} s: a time above 0 and up to {MOST_SECONDS:e} s was expected"
            )));
        }
        made.iter_mut().zip(ranks).for_each(|(made, rank)| order_groups(&mut made.ops, &rank.issued));
        let meetings = meetings(self.step, ranks);
        for (number, meeting) in meetings.iter().enumerate() {
            for &(rank, op) in meeting {
                if let What::Task(task) = &mut made[rank].ops[op].what {
                    task.meeting = Some(number);
                }
            }
        }
        Ok(StreamsProgram { ranks: made, meetings })
    }

    fn rank(&mut self, rank: &RankStreams) -> Result<RankProgram> {
        let numbers: BTreeMap<u32, usize> = {
            let mut streams: Vec<u32> = rank.issued.iter().map(|one| one.stream).collect();
            streams.sort_unstable();
            streams.dedup();
            streams.into_iter().enumerate().map(|(number, stream)| (stream, number)).collect()
        };
        let processor = StepProcessor::of(rank);
        let last: HashMap<u64, usize> = recorded_events(&rank.issued).collect();
        let mut now: HashMap<u64, usize> = HashMap::new();
        let mut ops = Vec::with_capacity(rank.issued.len());
        for (at, one) in rank.issued.iter().enumerate() {
            let of_event = |event: &u64| match now.get(event) {
                Some(&op) => Recording { op, is_before: false },
                None => Recording { op: last[event], is_before: true },
            };
            let what = match &one.op.work {
                StepWork::Record { event } => {
                    now.insert(*event, at);
                    What::Record
                }
                StepWork::StreamWait { event } => What::Wait(of_event(event)),
                StepWork::HostWait { target } => match target {
                    Awaited::Device => What::HostWaits(Target::Device),
                    Awaited::Stream(stream) => {
                        numbers.get(stream).map_or(What::Host, |&number| What::HostWaits(Target::Stream(number)))
                    }
                    Awaited::Event(event) => What::HostWaits(Target::Event(of_event(event))),
                },
                StepWork::Host { .. } => What::Host,
                _ => What::Task(self.task(rank.rank, one)?),
            };
            let host_s = processor.seconds(one);
            self.seconds += host_s;
            ops.push(ProgramOp { host: ps(host_s.min(MOST_SECONDS)), stream: numbers[&one.stream], what });
        }
        Ok(RankProgram { ops, streams: numbers.len() })
    }

    fn task(&mut self, rank: u32, one: &Issued) -> Result<StreamTask> {
        let (op, compute) = (&one.op, self.pricer.compute());
        let all_s = || Ok::<f64, Error>(op.count * compute.seconds(&op.work)?);
        let (seconds, part, computes, needs, nearby) = match &op.work {
            StepWork::Collective { pattern, bytes, group, server, .. } => {
                let group = self.step.groups[group];
                let call = self.call(*server, *pattern, *bytes, group.ranks)?;
                (op.count * call.seconds, group.kind.part(), false, call.needs(&[OUT, IN]), call.nearby)
            }
            StepWork::Message { way, bytes, peer, .. } => {
                let call = self.call(None, Pattern::SendRecv, *bytes, self.pricer.pair(self.step, rank, *peer))?;
                (op.count * call.seconds, TimePart::Sends, false, call.needs(&[way.direction()]), 0.0)
            }
            StepWork::Copy { direction: Direction::D2d, .. } => {
                (all_s()? + op.count * KERNEL_S, op.computing_part(), true, vec![(SMS, 1.0)], 0.0)
            }
            StepWork::Copy { direction, .. } => {
                let link = PROCESSOR[if *direction == Direction::H2d { IN } else { OUT }];
                let moving = all_s()?;
                let seconds = op.count * COPY_S + moving;
                (seconds, TimePart::Copies, false, vec![(link, share(moving, seconds))], 0.0)
            }
            StepWork::Move { launches, .. } => {
                let moving = all_s()?;
                let seconds = moving + if one.by_graph { 0.0 } else { op.count * launches * KERNEL_S };
                (seconds, op.computing_part(), true, vec![(SMS, share(moving, seconds))], 0.0)
            }
            StepWork::Timed { .. } => (all_s()?, op.computing_part(), true, Vec::new(), 0.0),
            work => {
                let seconds = op.count * if one.by_graph { compute.seconds(work)? } else { compute.kernel_s(work)? };
                (seconds, op.computing_part(), true, vec![(SMS, 1.0)], 0.0)
            }
        };
        let seconds = seconds + if one.by_graph { op.count * compute.graph_s(&op.work) } else { 0.0 };
        self.seconds += seconds;
        let (alone, together) = (ps(seconds.min(MOST_SECONDS)), one.together);
        let is_measured = matches!(op.work, StepWork::Timed { .. });
        let (meeting, after, is_awaited) = (None, None, false);
        Ok(StreamTask { alone, needs, part, computes, is_measured, nearby, meeting, together, after, is_awaited })
    }

    fn call(&mut self, server: Option<Server>, pattern: Pattern, bytes: f64, group: Group) -> Result<CallPrice> {
        let key = (server, pattern as usize, bytes.to_bits(), group);
        if let Some(known) = self.calls.get(&key) {
            return Ok(*known);
        }
        let seconds = self.pricer.call(server, pattern, bytes, group)?;
        let needs = self.pricer.network.needs(server, pattern, bytes, group)?;
        let nearby = share(self.pricer.nearby_seconds(pattern, bytes, self.step.gpus)?, seconds);
        let call = CallPrice { seconds, ports: needs.ports, cards: needs.cards, nearby };
        self.calls.insert(key, call);
        Ok(call)
    }
}

impl Pricer<'_> {
    /// Returns a pair of ranks with the same price as two given ranks: of one node, or of neighbouring nodes.
    pub(super) fn pair(&self, step: &WorkStep, one: u32, other: u32) -> Group {
        let domain = self.network.domain();
        let stride = if one / domain == other / domain { 1 } else { domain.min(step.gpus / 2).max(1) };
        Group::even(2, stride)
    }
}

impl CallPrice {
    /// Returns its needs in some directions.
    fn needs(&self, ways: &[usize]) -> Vec<Need> {
        let of_way = |&way: &usize| [(PORTS[way], self.ports), (CARDS[way], self.cards)];
        ways.iter().flat_map(of_way).filter(|(_, part)| *part > 0.0).collect()
    }
}

/// Returns `of / whole`, from 0 to 1; 0 if the whole is 0.
fn share(of: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        (of / whole).clamp(0.0, 1.0)
    } else {
        0.0
    }
}

fn recorded_events(issued: &[Issued]) -> impl Iterator<Item = (u64, usize)> + '_ {
    issued.iter().enumerate().filter_map(|(at, one)| match one.op.work {
        StepWork::Record { event } => Some((event, at)),
        _ => None,
    })
}

/// The processor of a rank: seconds of each operator that it dispatches; none if operations `host` have all its time.
struct StepProcessor(Option<f64>);

impl StepProcessor {
    fn of(rank: &RankStreams) -> Self {
        Self(match rank.host {
            HostClock::Timed => None,
            HostClock::Launches { operators, .. } => {
                let launches = |one: &&Issued| one.op.work.is_task() && !one.by_graph;
                let launched = rank.issued.iter().filter(launches).count().max(1) as f64;
                Some(OPERATOR_S * operators.unwrap_or(launched) / launched)
            }
        })
    }

    /// Returns the seconds to issue an operation; 0 for operations that a CUDA graph launches.
    fn seconds(&self, one: &Issued) -> f64 {
        match (&one.op.work, self.0.filter(|_| !one.by_graph)) {
            (StepWork::Host { seconds }, _) => one.op.count * seconds,
            (_, None) => 0.0,
            (work, Some(_)) if work.is_order() => EVENT_S,
            (StepWork::Move { launches, .. }, Some(dispatch_s)) => dispatch_s + one.op.count * launches * DRIVER_S,
            (_, Some(dispatch_s)) => dispatch_s + one.op.count * DRIVER_S,
        }
    }
}

/// Orders the collectives of each group as they were issued. NCCL runs kernels of one communicator one after another, on any streams
/// (source: its maintainers, NVIDIA/nccl issue 574).
fn order_groups(made: &mut [ProgramOp], issued: &[Issued]) {
    let mut calls: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, one) in issued.iter().enumerate() {
        if let StepWork::Collective { group, .. } = &one.op.work {
            calls.entry(group).or_default().push(at);
        }
    }
    for calls in calls.values() {
        for (nth, &at) in calls.iter().enumerate() {
            let before = calls[(nth + calls.len() - 1) % calls.len()];
            if made[before].stream == made[at].stream {
                continue;
            }
            if let What::Task(task) = &mut made[at].what {
                task.after = Some(Recording { op: before, is_before: nth == 0 });
            }
            if let What::Task(task) = &mut made[before].what {
                task.is_awaited = true;
            }
        }
    }
}

/// The key of meetings that follow each other: the group and its first rank, or both ends of a message and its tag.
type Key<'s> = (Option<&'s str>, [u32; 2], u64);

/// Finds operations of several ranks that begin together: the nth collective of a group, the nth message between two ranks.
fn meetings(step: &WorkStep, ranks: &[RankStreams]) -> Vec<Vec<(usize, usize)>> {
    let places: HashMap<u32, usize> = ranks.iter().enumerate().map(|(place, rank)| (rank.rank, place)).collect();
    let mut met: BTreeMap<(Key<'_>, usize), Vec<(usize, usize)>> = BTreeMap::new();
    for (place, rank) in ranks.iter().enumerate() {
        let mut counts: HashMap<Key<'_>, usize> = HashMap::new();
        for (at, one) in rank.issued.iter().enumerate() {
            let key: Key<'_> = match &one.op.work {
                StepWork::Collective { group, .. } => {
                    (Some(group.as_str()), [step.groups[group].ranks.first(rank.rank), 0], 0)
                }
                StepWork::Message { way, peer, tag, .. } if places.contains_key(peer) => match way {
                    Way::Send => (None, [rank.rank, *peer], *tag),
                    Way::Recv => (None, [*peer, rank.rank], *tag),
                },
                _ => continue,
            };
            let count = counts.entry(key).or_default();
            met.entry((key, *count)).or_default().push((place, at));
            *count += 1;
        }
    }
    met.into_values().filter(|members| members.len() > 1).collect()
}

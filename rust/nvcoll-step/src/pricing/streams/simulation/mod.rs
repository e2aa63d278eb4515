//! The streams of recorded ranks in virtual time.
//!
//! ```text
//! processor   issues operations in order; each takes time; it stops at host_waits
//! stream      a queue: its head begins when it is issued and the operation before it has ended. It waits for events, and for the
//!             collective of the same group that was issued before
//! task        begins alone, or when all recorded ranks that take part have reached it; runs at a speed of 0 to 1
//! speeds      change when a task begins or ends: max-min fair shares of resources (`share`), times 1 / (1 + contention x nearness)
//!             where computing and collectives run beside each other
//! ```
//!
//! The step runs four times in a row, so that work may hide behind the next step. Time is in integer picoseconds. Events of one time are
//! handled in the order in which they were made, so the result is the same everywhere. Cost: for each operation, the tasks beside it.
//!
//! It does not model: the limit of launches in flight (about 1,024), kernels too small to fill the GPU, the implicit waits of the legacy
//! default stream, PCIe that network cards and copies share, and collectives of other ranks on the same links. All ranks of a kind do the
//! same at the same time, which the price of one collective already includes.

mod speeds;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use nvcoll_fabric::units::Ps;

use super::account::Account;
use super::program::{Recording, StreamTask, StreamsProgram, Target, What};
use crate::error::{Error, Result};

/// The number of runs of the step. The third counts: in two runs before it the processor gets ahead, one after it hides its end.
pub(super) const ROUNDS: usize = 4;

/// The round that counts, from 0.
pub(super) const COUNTED: usize = 2;

/// When an operation was issued, began and ended.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OpSpan {
    pub(super) issued: Ps,
    pub(super) start: Ps,
    pub(super) end: Ps,
}

/// The result of a simulation.
pub(super) struct SimulatedRun {
    /// When all ranks had ended each round.
    pub(super) ends: [Ps; ROUNDS],
    /// The operations of each rank in the round that counts.
    pub(super) spans: Vec<Vec<OpSpan>>,
    /// When the processor of each rank began the round that counts.
    pub(super) begins: Vec<Ps>,
    /// The account of each rank, from the end of the round before to the end of the round that counts.
    pub(super) accounts: Vec<Account>,
}

/// Operations of a stream that begin together: one, or all operations of a group call.
struct Item {
    ready: Ps,
    round: usize,
    ops: Vec<usize>,
}

#[derive(Default)]
struct StreamState {
    queue: VecDeque<Item>,
    /// Operations of its head that run or wait for other ranks.
    running: usize,
}

struct Rank {
    /// The next operation to issue, and its round.
    next: (usize, usize),
    /// When the processor is free.
    host: Ps,
    streams: Vec<StreamState>,
    /// When events were recorded, by round and operation.
    recorded: Vec<bool>,
    /// Streams that wait, with the place of the recording.
    waiting: Vec<(usize, usize)>,
    /// Tasks that run, in the order in which they began.
    active: Vec<usize>,
    /// Operations that have begun and wait for other ranks.
    arrived: Vec<usize>,
    begins: [Ps; ROUNDS],
    spans: Vec<OpSpan>,
    account: Account,
}

/// A task that runs.
struct Active {
    round: usize,
    members: Vec<(usize, usize)>,
    remaining: f64,
    speed: f64,
    since: Ps,
    version: u32,
}

/// An event of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RunEvent {
    Wake { rank: usize, stream: usize },
    End { task: usize, version: u32 },
}

pub(super) struct StreamsSimulation<'p> {
    program: &'p StreamsProgram,
    contention: f64,
    now: Ps,
    events: BinaryHeap<Reverse<(Ps, u64, RunEvent)>>,
    sequence: u64,
    ranks: Vec<Rank>,
    tasks: Vec<Active>,
    free: Vec<usize>,
    /// The ranks that have reached each meeting, by round.
    reached: Vec<usize>,
    /// Ranks whose processor can continue.
    resumed: Vec<usize>,
    /// Ranks whose tasks changed at this time.
    changed: Vec<usize>,
    /// Operations of streams that have not ended, by round.
    left: [usize; ROUNDS],
    ends: [Ps; ROUNDS],
}

impl<'p> StreamsSimulation<'p> {
    pub(super) fn new(program: &'p StreamsProgram, contention: f64) -> Self {
        let on_stream = |what: &What| !matches!(what, What::HostWaits(_) | What::Host);
        let count = |rank: &super::program::RankProgram| rank.ops.iter().filter(|op| on_stream(&op.what)).count();
        let ranks = program.ranks.iter().map(|rank| Rank {
            next: (0, 0),
            host: 0,
            streams: (0..rank.streams).map(|_| StreamState::default()).collect(),
            recorded: vec![false; ROUNDS * rank.ops.len()],
            waiting: Vec::new(),
            active: Vec::new(),
            arrived: Vec::new(),
            begins: [0; ROUNDS],
            spans: vec![OpSpan::default(); rank.ops.len()],
            account: Account::new(rank.ops.len()),
        });
        Self {
            program,
            contention,
            now: 0,
            events: BinaryHeap::new(),
            sequence: 0,
            ranks: ranks.collect(),
            tasks: Vec::new(),
            free: Vec::new(),
            reached: vec![0; ROUNDS * program.meetings.len()],
            resumed: Vec::new(),
            changed: Vec::new(),
            left: [program.ranks.iter().map(count).sum(); ROUNDS],
            ends: [0; ROUNDS],
        }
    }

    /// Runs all rounds.
    ///
    /// # Errors
    /// The ranks and operations that wait for ever, if some do.
    pub(super) fn run(mut self) -> std::result::Result<SimulatedRun, Vec<(usize, usize)>> {
        (0..self.ranks.len()).for_each(|rank| self.issue(rank));
        self.issue_resumed();
        self.share();
        while let Some(Reverse((time, _, event))) = self.events.pop() {
            if time > self.now && !self.changed.is_empty() {
                self.share();
                self.push(time, event);
                continue;
            }
            self.now = time;
            match event {
                RunEvent::Wake { rank, stream } => self.advance(rank, stream),
                RunEvent::End { task, version } if self.tasks[task].version == version => self.end(task),
                RunEvent::End { .. } => {}
            }
            self.issue_resumed();
            if self.events.is_empty() {
                self.share();
            }
        }
        let is_done = self.left == [0; ROUNDS] && self.ranks.iter().all(|rank| rank.next.0 == ROUNDS);
        if !is_done {
            return Err((0..self.ranks.len()).filter_map(|rank| Some((rank, self.held_up(rank)?))).collect());
        }
        Ok(SimulatedRun {
            ends: self.ends,
            begins: self.ranks.iter().map(|rank| rank.begins[COUNTED]).collect(),
            accounts: self.ranks.iter_mut().map(|rank| std::mem::take(&mut rank.account)).collect(),
            spans: self.ranks.into_iter().map(|rank| rank.spans).collect(),
        })
    }

    fn push(&mut self, time: Ps, event: RunEvent) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    /// Lets the processor of a rank issue operations, until it has to wait.
    fn issue(&mut self, rank: usize) {
        let program = &self.program.ranks[rank];
        let mut touched = vec![false; program.streams];
        while self.ranks[rank].next.0 < ROUNDS {
            let now = self.now;
            let state = &mut self.ranks[rank];
            let (round, at) = state.next;
            if at == program.ops.len() {
                state.next = (round + 1, 0);
                continue;
            }
            if at == 0 {
                state.begins[round] = state.host;
            }
            let op = &program.ops[at];
            let started = state.host;
            match &op.what {
                What::HostWaits(target) => {
                    if !state.is_reached(*target, round, program.ops.len()) {
                        break;
                    }
                    state.host = state.host.max(now) + op.host;
                }
                What::Host => state.host += op.host,
                what => {
                    state.host += op.host;
                    touched[op.stream] = true;
                    let together = what.together();
                    let of = &mut state.streams[op.stream];
                    let is_begun = of.running > 0 && of.queue.len() == 1;
                    let queue = &mut of.queue;
                    let joins = |last: &&mut Item| {
                        together.is_some()
                            && !is_begun
                            && last.round == round
                            && program.ops[last.ops[0]].what.together() == together
                    };
                    match queue.back_mut().filter(joins) {
                        Some(last) => {
                            last.ready = state.host;
                            last.ops.push(at);
                        }
                        None => queue.push_back(Item { ready: state.host, round, ops: vec![at] }),
                    }
                }
            }
            if round == COUNTED {
                state.spans[at] = OpSpan { issued: state.host, start: started, end: state.host };
            }
            state.next = (round, at + 1);
        }
        for stream in (0..program.streams).filter(|&stream| touched[stream]) {
            self.advance(rank, stream);
        }
    }

    /// Begins operations of a stream that can begin.
    fn advance(&mut self, rank: usize, stream: usize) {
        while let Some((round, at)) = self.free_head(rank, stream) {
            let (what, ops) = (&self.program.ranks[rank].ops[at].what, self.program.ranks[rank].ops.len());
            if matches!(what, What::Task(_)) {
                let of = &mut self.ranks[rank].streams[stream];
                let begun = of.queue.front().expect("it has a head").ops.clone();
                of.running = begun.len();
                begun.into_iter().for_each(|op| self.begin(rank, round, op));
                break;
            }
            self.ranks[rank].streams[stream].queue.pop_front();
            self.finished(rank, round, at, (self.now, self.now));
            if matches!(what, What::Record) {
                self.record(rank, round * ops + at);
            }
            self.resume(rank);
        }
    }

    /// Returns the head of a stream, round and operation, if it can begin. Otherwise the stream is woken when it can.
    fn free_head(&mut self, rank: usize, stream: usize) -> Option<(usize, usize)> {
        let (ops, state) = (&self.program.ranks[rank].ops, &mut self.ranks[rank]);
        let head = state.streams[stream].queue.front().filter(|_| state.streams[stream].running == 0)?;
        let (ready, round, at) = (head.ready, head.round, head.ops[0]);
        if ready > self.now {
            self.push(ready, RunEvent::Wake { rank, stream });
            return None;
        }
        let awaited = match &ops[at].what {
            What::Task(task) => task.after,
            What::Wait(recording) => Some(*recording),
            _ => None,
        };
        if let Some(recording) = awaited.filter(|awaited| !state.is_recorded(*awaited, round, ops.len())) {
            state.waiting.push((recording.place(round, ops.len()), stream));
            return None;
        }
        Some((round, at))
    }

    /// Marks an event as recorded, and wakes the streams that wait for it.
    fn record(&mut self, rank: usize, place: usize) {
        let state = &mut self.ranks[rank];
        state.recorded[place] = true;
        let (ready, waiting): (Vec<_>, Vec<_>) = state.waiting.drain(..).partition(|(awaited, _)| *awaited == place);
        state.waiting = waiting;
        for (_, stream) in ready {
            self.push(self.now, RunEvent::Wake { rank, stream });
        }
    }

    fn issue_resumed(&mut self) {
        while let Some(rank) = self.resumed.pop() {
            self.issue(rank);
        }
    }

    /// Lets the processor continue if its wait is over.
    fn resume(&mut self, rank: usize) {
        let (ops, state) = (&self.program.ranks[rank].ops, &self.ranks[rank]);
        let (round, at) = state.next;
        if let Some(What::HostWaits(target)) = ops.get(at).map(|op| &op.what).filter(|_| round < ROUNDS) {
            if state.is_reached(*target, round, ops.len()) {
                self.resumed.push(rank);
            }
        }
    }

    /// Begins a task, or waits until all ranks that take part have reached it.
    fn begin(&mut self, rank: usize, round: usize, op: usize) {
        let task = self.program.task(rank, op);
        self.account(rank, Some(op));
        if round == COUNTED {
            self.ranks[rank].spans[op].start = self.now;
        }
        let members = match task.meeting {
            None => vec![(rank, op)],
            Some(meeting) => {
                let members = &self.program.meetings[meeting];
                let reached = &mut self.reached[round * self.program.meetings.len() + meeting];
                *reached += 1;
                if *reached < members.len() {
                    self.ranks[rank].arrived.push(op);
                    return;
                }
                members.clone()
            }
        };
        self.start(round, members);
    }

    fn start(&mut self, round: usize, members: Vec<(usize, usize)>) {
        let alone = members.iter().map(|&(rank, op)| self.program.task(rank, op).alone).max().unwrap_or(0);
        let number = self.free.pop().unwrap_or(self.tasks.len());
        let version = self.tasks.get(number).map_or(0, |task| task.version + 1);
        for &(rank, op) in &members {
            self.account(rank, Some(op));
            let state = &mut self.ranks[rank];
            state.arrived.retain(|&arrived| arrived != op);
            state.active.push(number);
            self.changed.push(rank);
        }
        let task = Active { round, members, remaining: alone as f64, speed: 0.0, since: self.now, version };
        if number == self.tasks.len() {
            self.tasks.push(task);
        } else {
            self.tasks[number] = task;
        }
    }

    fn end(&mut self, number: usize) {
        let (round, members) = (self.tasks[number].round, self.tasks[number].members.clone());
        self.tasks[number].version += 1;
        self.free.push(number);
        for &(rank, _) in &members {
            self.account(rank, None);
            self.ranks[rank].active.retain(|&active| active != number);
            self.changed.push(rank);
        }
        for &(rank, op) in &members {
            let start = self.ranks[rank].spans[op].start;
            self.finished(rank, round, op, (start, self.now));
            if self.program.task(rank, op).is_awaited {
                self.record(rank, round * self.program.ranks[rank].ops.len() + op);
            }
            let stream = self.program.ranks[rank].ops[op].stream;
            let of = &mut self.ranks[rank].streams[stream];
            of.running -= 1;
            if of.running == 0 {
                of.queue.pop_front();
                self.advance(rank, stream);
            }
            self.resume(rank);
        }
    }

    /// Counts an operation as ended; at the end of a round, accounts are closed.
    fn finished(&mut self, rank: usize, round: usize, op: usize, (start, end): (Ps, Ps)) {
        if round == COUNTED {
            let span = &mut self.ranks[rank].spans[op];
            (span.start, span.end) = (start, end);
        }
        self.left[round] -= 1;
        if self.left[round] > 0 {
            return;
        }
        self.ends[round] = self.now;
        for rank in 0..self.ranks.len() {
            self.account(rank, None);
            match round {
                _ if round + 1 == COUNTED => self.ranks[rank].account.open(),
                COUNTED => self.ranks[rank].account.close(),
                _ => {}
            }
        }
    }

    /// Accounts for the time of a rank since its tasks last changed; `next` is the operation that begins now.
    fn account(&mut self, rank: usize, next: Option<usize>) {
        let state = &mut self.ranks[rank];
        let op_of = |&number: &usize| {
            let members = &self.tasks[number].members;
            members.iter().find(|(of, _)| *of == rank).expect("a rank has its own tasks").1
        };
        let active = state.active.iter().map(|number| (op_of(number), self.program.task(rank, op_of(number))));
        state.account.until(self.now, active, state.arrived.first().copied(), next);
    }

    /// Returns the operation at which a rank waits for ever.
    fn held_up(&self, rank: usize) -> Option<usize> {
        let (state, ops) = (&self.ranks[rank], &self.program.ranks[rank].ops);
        let head = state.streams.iter().find_map(|stream| Some(stream.queue.front()?.ops[0]));
        state.arrived.first().copied().or(head).or((state.next.0 < ROUNDS).then(|| state.next.1.min(ops.len() - 1)))
    }
}

impl Rank {
    fn is_recorded(&self, recording: Recording, round: usize, ops: usize) -> bool {
        (recording.is_before && round == 0) || self.recorded[recording.place(round, ops)]
    }

    fn is_reached(&self, target: Target, round: usize, ops: usize) -> bool {
        match target {
            Target::Device => self.streams.iter().all(|stream| stream.queue.is_empty()),
            Target::Stream(stream) => self.streams[stream].queue.is_empty(),
            Target::Event(recording) => self.is_recorded(recording, round, ops),
        }
    }
}

impl Recording {
    /// Returns the position of the recording among the recordings of all rounds.
    fn place(self, round: usize, ops: usize) -> usize {
        let round = if self.is_before { round.saturating_sub(1) } else { round };
        round * ops + self.op
    }
}

impl What {
    fn together(&self) -> Option<u64> {
        match self {
            Self::Task(task) => task.together,
            _ => None,
        }
    }
}

impl StreamsProgram {
    /// Returns the task of an operation that is one.
    pub(super) fn task(&self, rank: usize, op: usize) -> &StreamTask {
        match &self.ranks[rank].ops[op].what {
            What::Task(task) => task,
            _ => unreachable!("streams run tasks only"),
        }
    }
}

/// Returns the error that names the operations that wait for ever.
pub(super) fn hangs(waiting: &[(usize, usize)], name: impl Fn(usize, usize) -> String) -> Error {
    let shown: Vec<String> = waiting.iter().take(4).map(|&(rank, op)| name(rank, op)).collect();
    let more = if waiting.len() > 4 { format!(", and {} more ranks wait", waiting.len() - 4) } else { String::new() };
    Error::Deadlock(format!("the ranks wait for each other for ever: {}{more}", shown.join("; ")))
}

/// Runs a program.
///
/// # Errors
/// [`Error::Deadlock`] if ranks wait for each other for ever.
pub(super) fn run(
    program: &StreamsProgram,
    contention: f64,
    name: impl Fn(usize, usize) -> String,
) -> Result<SimulatedRun> {
    StreamsSimulation::new(program, contention).run().map_err(|waiting| hangs(&waiting, name))
}

//! Requests and iterations of one server in virtual time.
//!
//! ```text
//! clients ─▶ waiting ─room in the cache─▶ reading, in chunks ─first token─▶ generating ─▶ done, and the client's next request
//! ```
//!
//! An iteration reads prompts first come, first served, up to a chunk of tokens; where a server mixes, sequences that generate get a token in it,
//! else they wait. Between two events all iterations are alike: they are one jump.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::batch::IterationBatch;
use super::times::IterationTimes;
use super::ClientLoad;
use crate::error::Result;

/// Requests of a run, in requests under way at once, and at least and at most. Benchmarks of servers send as many, the first all at once, and
/// print means.
const WAVES: f64 = 10.0;
const FEWEST: f64 = 24.0;
const MOST: f64 = 20_000.0;

/// The part of an iteration from which on prompts that fill it wait for no others. Chosen: TensorRT-LLM's configurations have 0.8 and 0.9.
const FULL: f64 = 0.9;

/// Requests of a run at a rate. Chosen.
const AT_RATE: f64 = 1000.0;

/// The part of the requests that come which a server ends at least, between the first and the last fifth of a run, if it keeps up. Chosen: the
/// times of Poisson differ by 4 %.
const KEEPS_UP: f64 = 0.9;

/// A request: tokens, and when its client sent it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sent {
    input: f64,
    output: f64,
    at: f64,
}

/// A request that is generating, by the number of the iteration in which it ends.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Running {
    ends: u64,
    first_at: f64,
    sent: Sent,
}

impl Eq for Running {}

impl PartialOrd for Running {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Running {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.ends.cmp(&other.ends).then(self.sent.at.total_cmp(&other.sent.at))
    }
}

/// What clients of one server see.
#[derive(Debug, Clone, Copy)]
pub(super) struct Served {
    /// Mean seconds to the first token, and for each token after it.
    pub(super) ttft_s: f64,
    pub(super) tpot_s: f64,
    /// Generated tokens in a second.
    pub(super) tokens_per_second: f64,
    /// Sequences that generate at once, mean over time, and tokens in the cache.
    pub(super) decodes: f64,
    pub(super) cached: f64,
    /// Whether requests come faster than they are served.
    pub(super) is_saturated: bool,
}

/// What limits how many requests a server works on at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerRoom {
    /// Tokens of the cache.
    pub(super) tokens: f64,
    /// Tokens of a generating sequence that an iteration computes, and that it adds.
    pub(super) checked: f64,
    pub(super) added: f64,
    /// Sequences.
    pub(super) sequences: f64,
    /// Tokens of an iteration.
    pub(super) chunk: f64,
    /// Attention copies, which share all of these.
    pub(super) copies: f64,
    /// The part of its answer for which a request takes room.
    pub(super) reserved: f64,
    /// Iterations for which prompts wait for others, unless they fill most of an iteration.
    pub(super) wait: f64,
    /// The tokens of which the states of a sequence take the room.
    pub(super) state: f64,
}

impl ServerRoom {
    /// Returns the tokens of the cache that a request takes while it is admitted.
    fn taken(&self, sent: Sent) -> f64 {
        self.state + sent.input + self.reserved * sent.output
    }

    /// Returns the iterations that an answer takes after its first token.
    fn iterations(&self, sent: Sent) -> f64 {
        ((sent.output - 1.0) / self.added).ceil()
    }
}

/// Numbers between 0 and 1 that look random, always the same: a generator of Lehmer.
struct Draws(u64);

impl Draws {
    fn random(&mut self) -> f64 {
        self.0 = self.0 * 48_271 % 0x7fff_ffff;
        self.0 as f64 / f64::from(0x7fff_ffff_u32)
    }
}

/// One server in virtual time.
struct ServerSimulation<'r> {
    times: &'r IterationTimes<'r>,
    load: ClientLoad,
    room: ServerRoom,
    mixes: bool,
    draws: Draws,
    now: f64,
    next_at: f64,
    iteration: u64,
    waiting: VecDeque<Sent>,
    reading: VecDeque<(Sent, f64)>,
    /// The iteration from which prompts wait no longer.
    reads_at: u64,
    running: BinaryHeap<Reverse<Running>>,
    /// Tokens that admitted requests may take, and that are in the cache of running ones.
    reserved: f64,
    cached: f64,
    ended: Vec<(Running, f64)>,
    /// Sequences, and tokens in the cache, times seconds.
    weighed: [f64; 2],
}

/// Runs a server on its part of the load.
///
/// # Errors
/// Those of a price.
pub(super) fn run(times: &IterationTimes<'_>, load: ClientLoad, room: ServerRoom, mixes: bool) -> Result<Served> {
    let at_once = load.concurrency.unwrap_or(0.0).max(1.0).round();
    let requests = if load.rate.is_some() { AT_RATE } else { (WAVES * at_once).clamp(FEWEST, MOST) } as usize;
    let mut one = ServerSimulation {
        times,
        load,
        room,
        mixes,
        draws: Draws(1),
        now: 0.0,
        next_at: f64::INFINITY,
        iteration: 0,
        waiting: VecDeque::new(),
        reading: VecDeque::new(),
        reads_at: 0,
        running: BinaryHeap::new(),
        reserved: 0.0,
        cached: 0.0,
        ended: Vec::new(),
        weighed: [0.0; 2],
    };
    match load.rate {
        Some(_) => one.next_at = 0.0,
        None => (0..at_once as usize).for_each(|_| one.send(0.0)),
    }
    while one.ended.len() < requests {
        one.advance()?;
    }
    Ok(one.served(requests))
}

impl ServerSimulation<'_> {
    fn send(&mut self, at: f64) {
        let spread = self.load.spread;
        let [input, output] = [self.load.input, self.load.output].map(|mean| {
            let drawn = mean * (1.0 + spread * (2.0 * self.draws.random() - 1.0));
            drawn.round().max(1.0)
        });
        self.waiting.push_back(Sent { input, output, at });
    }

    fn arrive(&mut self) {
        while let Some(rate) = self.load.rate.filter(|_| self.next_at <= self.now) {
            self.send(self.next_at);
            self.next_at -= self.draws.random().max(1e-12).ln() / rate;
        }
    }

    fn admit(&mut self) {
        while let Some(&next) = self.waiting.front() {
            let at_once = (self.running.len() + self.reading.len()) as f64;
            let takes = self.room.taken(next);
            if at_once > 0.0 && (self.reserved + takes > self.room.tokens || at_once >= self.room.sequences) {
                return;
            }
            self.reserved += takes;
            if self.reading.is_empty() {
                self.reads_at = self.iteration + self.room.wait as u64;
            }
            self.reading.push_back((next, 0.0));
            self.waiting.pop_front();
        }
    }

    /// Runs to the next event.
    fn advance(&mut self) -> Result<()> {
        self.arrive();
        self.admit();
        let wait = if self.fills() { 0 } else { self.reads_at.saturating_sub(self.iteration) };
        if !self.reading.is_empty() && (wait == 0 || self.running.is_empty()) {
            self.read()?;
        } else if !self.running.is_empty() {
            self.generate(if self.reading.is_empty() { f64::INFINITY } else { wait as f64 })?;
        } else {
            self.now = self.next_at;
            return Ok(());
        }
        self.end();
        Ok(())
    }

    /// Whether the prompts that are read fill most of an iteration.
    fn fills(&self) -> bool {
        let left: f64 = self.reading.iter().map(|(sent, read)| sent.input - read).sum();
        left >= FULL * self.room.chunk * self.room.copies
    }

    fn pass(&mut self, seconds: f64) {
        self.now += seconds;
        self.weighed[0] += seconds * self.running.len() as f64;
        self.weighed[1] += seconds * self.cached;
    }

    /// One iteration that reads prompts.
    fn read(&mut self) -> Result<()> {
        let ServerRoom { copies, checked, .. } = self.room;
        let decodes = if self.mixes { self.running.len() as f64 } else { 0.0 };
        let mut left = (self.room.chunk * copies - decodes * checked).max(1.0);
        let (mut batch, mut done) = (IterationBatch::default(), 0);
        for (sent, read) in &mut self.reading {
            let tokens = (sent.input - *read).min(left);
            batch.pairs += tokens * (*read + (tokens + 1.0) / 2.0);
            batch.tokens += tokens;
            *read += tokens;
            left -= tokens;
            if *read >= sent.input {
                done += 1;
            }
            if left <= 0.0 {
                break;
            }
        }
        let [tokens, pairs, prompts, decodes_of_copy, cached] =
            [batch.tokens, batch.pairs, f64::from(done), decodes, if decodes > 0.0 { self.cached } else { 0.0 }]
                .map(|all| all / copies);
        let seconds =
            self.times.seconds(IterationBatch { decodes: decodes_of_copy, checked, cached, prompts, tokens, pairs })?;
        self.pass(seconds);
        if decodes > 0.0 {
            self.iteration += 1;
            self.cached += decodes * self.room.added;
        }
        for _ in 0..done {
            let (sent, _) = self.reading.pop_front().expect("it was read");
            let ends = self.iteration + self.room.iterations(sent) as u64;
            self.cached += sent.input + 1.0;
            self.running.push(Reverse(Running { ends, first_at: self.now, sent }));
        }
        Ok(())
    }

    /// All iterations until a sequence ends, or the next request comes, at most some.
    fn generate(&mut self, most: f64) -> Result<()> {
        let copies = self.room.copies;
        let decodes = self.running.len() as f64;
        let ends = self.running.peek().map_or(0, |one| one.0.ends);
        let mut count = (ends.saturating_sub(self.iteration) as f64).min(most);
        if count > 0.0 {
            let cached = (self.cached + decodes * self.room.added * count / 2.0) / copies;
            let checked = self.room.checked;
            let batch = IterationBatch { decodes: decodes / copies, checked, cached, ..IterationBatch::default() };
            let seconds = self.times.seconds(batch)?;
            count = ((self.next_at - self.now) / seconds).ceil().clamp(1.0, count);
            self.iteration += count as u64;
            self.cached += decodes * self.room.added * count;
            self.pass(seconds * count);
        }
        Ok(())
    }

    fn end(&mut self) {
        while let Some(Reverse(one)) = self.running.peek().copied().filter(|one| one.0.ends <= self.iteration) {
            self.running.pop();
            self.reserved -= self.room.taken(one.sent);
            self.cached -= one.sent.input + 1.0 + self.room.added * self.room.iterations(one.sent);
            self.ended.push((one, self.now));
            if self.load.rate.is_none() {
                self.send(self.now);
            }
        }
        if self.running.is_empty() {
            self.cached = 0.0;
        }
    }

    fn served(&self, requests: usize) -> Served {
        let counted = &self.ended[..requests];
        let mean = |of: &dyn Fn(&(Running, f64)) -> f64| counted.iter().map(of).sum::<f64>() / requests as f64;
        let output = mean(&|(one, _)| one.sent.output);
        let [decodes, cached] = self.weighed.map(|all| all / self.now);
        let all = requests as f64 / self.now;
        let (rate, is_saturated) = self.load.rate.map_or((all, false), |rate| {
            let [from, to] = [requests / 5, requests * 4 / 5];
            let ended = (to - from) as f64 / (counted[to].1 - counted[from].1);
            if ended < KEEPS_UP * rate {
                (ended, true)
            } else {
                (rate, false)
            }
        });
        Served {
            ttft_s: mean(&|(one, _)| one.first_at - one.sent.at),
            tpot_s: mean(&|(one, end)| (end - one.first_at) / (one.sent.output - 1.0).max(1.0)),
            tokens_per_second: rate * output,
            decodes,
            cached,
            is_saturated,
        }
    }
}

//! The clock of streams: virtual time.
//!
//! ```text
//! operations ─compute, network─▶ program ─virtual time─▶ ends of rounds, spans, accounts ─▶ seconds, parts, collectives, lines
//! ```
//!
//! | module | content |
//! |---|---|
//! | `program` | each operation with its time alone, the resources that it needs, and the operations for which it waits |
//! | `share` | max-min fair speeds of tasks that run at the same time |
//! | `simulation` | processors, streams and events in virtual time; speeds of tasks beside each other |
//! | `account` | the part of the time to which each moment belongs |
//!
//! The step runs four times in a row; its time is from the end of the second run to the end of the third. Parts are the parts of the rank
//! that waits least for others.

mod account;
mod program;
mod share;
mod simulation;

use std::collections::BTreeMap;

use serde::Serialize;

use super::{CollectivePrice, HostPrice, LinePrice, Pricer, RolePrice, Timed};
use crate::error::{Error, Result};
use crate::parts::TimePart;
use crate::step::streams::{RankStreams, Streams};
use crate::step::work::{StepWork, Way};
use crate::step::WorkStep;
use account::{Account, Bare};
use program::{Maker, StreamsProgram, What};
use simulation::{SimulatedRun, COUNTED};

/// A step on streams in virtual time.
#[derive(Debug, Clone, Serialize)]
pub struct StreamsTimeline {
    /// Nanoseconds of the step.
    pub period_ns: u64,
    /// The ranks.
    pub ranks: Vec<RankTimeline>,
}

/// The operations of a rank, in the order in which the processor issued them. Nanoseconds since the first processor began the step.
#[derive(Debug, Clone, Serialize)]
pub struct RankTimeline {
    /// The rank.
    pub rank: u32,
    /// When each operation was issued.
    pub issued_ns: Vec<u64>,
    /// When it began: on its stream, or on the processor if it runs there.
    pub start_ns: Vec<u64>,
    /// When it ended.
    pub end_ns: Vec<u64>,
}

/// A step that ran in virtual time.
pub(super) struct StreamsRun<'s> {
    step: &'s WorkStep,
    streams: &'s Streams,
    program: StreamsProgram,
    outcome: SimulatedRun,
}

impl Pricer<'_> {
    /// Returns the times of streams as a report needs them.
    pub(super) fn timed_streams(&self, step: &WorkStep, streams: &Streams) -> Result<Timed> {
        let run = self.run_streams(step, streams)?;
        let spread = streams.ranks.iter().map(|rank| rank.host.spread()).fold(1.0, f64::max);
        let role = |rank: &RankStreams| RolePrice { name: rank.name.clone(), ..RolePrice::default() };
        Ok(Timed {
            seconds: run.seconds()?,
            parts: run.account().parts,
            roles: streams.ranks.iter().map(role).collect(),
            blocks: BTreeMap::new(),
            collectives: self.collectives_of(&run)?,
            lines: run.lines(),
            host: Some(HostPrice { issue_s: run.program.issue_s(), spread }),
        })
    }

    /// Returns when each operation is issued, begins and ends.
    pub(super) fn streams_timeline(&self, step: &WorkStep, streams: &Streams) -> Result<StreamsTimeline> {
        let outcome = self.run_streams(step, streams)?.outcome;
        let begin = outcome.begins.iter().copied().min().unwrap_or(0);
        let ns = |ps: u64| ps.saturating_sub(begin) / 1000;
        let ranks = streams.ranks.iter().zip(&outcome.spans).map(|(rank, spans)| RankTimeline {
            rank: rank.rank,
            issued_ns: spans.iter().map(|span| ns(span.issued)).collect(),
            start_ns: spans.iter().map(|span| ns(span.start)).collect(),
            end_ns: spans.iter().map(|span| ns(span.end)).collect(),
        });
        let period_ns = (outcome.ends[COUNTED] - outcome.ends[COUNTED - 1]) / 1000;
        Ok(StreamsTimeline { period_ns, ranks: ranks.collect() })
    }

    pub(super) fn run_streams<'s>(&self, step: &'s WorkStep, streams: &'s Streams) -> Result<StreamsRun<'s>> {
        let program = Maker::new(self, step).program(&streams.ranks)?;
        let outcome = simulation::run(&program, self.constants.contention, |rank, op| streams.waits(rank, op))?;
        Ok(StreamsRun { step, streams, program, outcome })
    }

    /// Returns the collectives and messages of each rank; one row for each name, group and size.
    fn collectives_of(&self, run: &StreamsRun<'_>) -> Result<Vec<CollectivePrice>> {
        let mut found: Vec<CollectivePrice> = Vec::new();
        for (place, rank) in run.streams.ranks.iter().enumerate() {
            let mut known: BTreeMap<(&str, &str, u64), usize> = BTreeMap::new();
            for (at, op) in rank.issued.iter().map(|one| &one.op).enumerate() {
                let (bytes, group, kind) = match &op.work {
                    StepWork::Collective { pattern, bytes, group, .. } => (*bytes, group.as_str(), pattern.name()),
                    StepWork::Message { way: Way::Send, bytes, .. } => (*bytes, "pp", "send"),
                    StepWork::Message { way: Way::Recv, bytes, .. } => (*bytes, "pp", "recv"),
                    _ => continue,
                };
                let name = if op.name.is_empty() { kind } else { &op.name };
                let exposed = run.outcome.accounts[place].ops[at].exposed;
                let next = found.len();
                let number = *known.entry((name, group, bytes.to_bits())).or_insert(next);
                if number == next {
                    let What::Task(task) = &run.program.ranks[place].ops[at].what else { continue };
                    let of_group = match &op.work {
                        StepWork::Message { peer, .. } => self.pair(run.step, rank.rank, *peer),
                        _ => run.step.groups[group].ranks,
                    };
                    found.push(CollectivePrice {
                        of: rank.name.clone(),
                        pass: "streams".to_owned(),
                        name: name.to_owned(),
                        group: group.to_owned(),
                        ranks: self.network.shape(of_group)?.to_string(),
                        count: 0.0,
                        bytes,
                        seconds: task.alone as f64 / 1e12 / op.count.max(1.0),
                        hides: None,
                        exposed_s: Some(0.0),
                    });
                }
                let price = &mut found[number];
                price.count += op.count;
                price.exposed_s = price.exposed_s.map(|before| before + exposed);
            }
        }
        Ok(found)
    }
}

impl StreamsRun<'_> {
    pub(super) fn seconds(&self) -> Result<f64> {
        let seconds = (self.outcome.ends[COUNTED] - self.outcome.ends[COUNTED - 1]) as f64 / 1e12;
        if seconds <= 0.0 {
            return Err(Error::Step("its operations take 0 s: a time above 0 was expected".to_owned()));
        }
        Ok(seconds)
    }

    /// Returns the position of the rank that waits least for others.
    fn slowest(&self) -> usize {
        let waits = self.outcome.accounts.iter().map(|account| account.parts.seconds(TimePart::Bubble)).enumerate();
        waits.min_by(|one, other| one.1.total_cmp(&other.1)).map_or(0, |(place, _)| place)
    }

    fn account(&self) -> &Account {
        &self.outcome.accounts[self.slowest()]
    }

    /// Returns the lines of the script for which the GPU waits, the longest wait first.
    fn lines(&self) -> Vec<LinePrice> {
        let mut lines: BTreeMap<u32, LinePrice> = BTreeMap::new();
        for (one, bare) in self.streams.ranks[self.slowest()].issued.iter().zip(&self.account().ops) {
            let Bare { exposed, waits, host } = *bare;
            let Some(number) = one.line.filter(|_| exposed + waits + host > 0.0) else { continue };
            let line = || self.streams.lines[number as usize].clone();
            let new = || LinePrice { line: line(), exposed_s: 0.0, copies_s: 0.0, waits_s: 0.0, host_s: 0.0 };
            let price = lines.entry(number).or_insert_with(new);
            let is_copy = matches!(one.op.work, StepWork::Copy { .. });
            *(if is_copy { &mut price.copies_s } else { &mut price.exposed_s }) += exposed;
            price.waits_s += waits;
            price.host_s += host;
        }
        let mut lines: Vec<LinePrice> = lines.into_values().collect();
        lines.sort_by(|one, other| other.lost_s().total_cmp(&one.lost_s()));
        lines
    }
}

impl Streams {
    /// Returns the sentence that says for what a rank waits.
    fn waits(&self, rank: usize, op: usize) -> String {
        let rank = &self.ranks[rank];
        let one = &rank.issued[op];
        let line = one.line.map_or(String::new(), |line| format!(" at {}", self.lines[line as usize]));
        let what = match &one.op.work {
            StepWork::Collective { pattern, group, .. } => {
                format!("the others in {} of the group `{group}`", pattern.name())
            }
            StepWork::Message { way: Way::Send, peer, bytes, .. } => format!("rank {peer} to receive {bytes} bytes"),
            StepWork::Message { way: Way::Recv, peer, bytes, .. } => format!("rank {peer} to send {bytes} bytes"),
            StepWork::StreamWait { event } => format!("event {event} on stream {}", one.stream),
            _ => format!("`{}`", one.op.name),
        };
        format!("rank {} waits{line} for {what}", rank.rank)
    }
}

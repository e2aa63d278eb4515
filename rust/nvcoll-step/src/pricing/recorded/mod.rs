//! The time of a recorded step on a machine.
//!
//! ```text
//! operations ─compute, network─▶ program ─virtual time─▶ ends of rounds, spans, accounts ─▶ seconds, parts, collectives, lines, memory
//! ```
//!
//! | module | content |
//! |---|---|
//! | `program` | each operation with its time alone, the resources that it needs, and the operations for which it waits |
//! | `share` | max-min fair speeds of tasks that run at the same time |
//! | `simulation` | processors, streams and events in virtual time; speeds of tasks beside each other |
//! | `account` | the part of the time to which each moment belongs |
//!
//! The step runs four times in a row; its time is from the end of the second run to the end of the third. Parts are those of the rank
//! that waits least for others. Memory is the memory that the framework's allocator reserved, CUDA's context and NCCL's buffers.

mod account;
mod program;
mod share;
mod simulation;

use std::collections::BTreeMap;

use serde::Serialize;

use super::parts::Part;
use super::{CollectivePrice, Pricer, RolePrice, StepPrice};
use crate::error::{Error, Result};
use crate::memory::{Fit, Part as MemoryPart, CONTEXT_BYTES, GIB, NCCL_BYTES};
use crate::recorded::{Action, Recorded, RecordedMemory, RecordedRank};
use crate::training_step::{TrainingStep, Work};
use account::Account;
use program::{Maker, Program, What};
use simulation::{Outcome, COUNTED};

/// The time that the GPU loses for a line of the script.
#[derive(Debug, Clone, Serialize)]
pub struct LinePrice {
    /// The line.
    pub line: String,
    /// Seconds of exposed collectives, messages and copies.
    pub exposed_s: f64,
    /// Seconds in which they wait for other ranks.
    pub waits_s: f64,
    /// Seconds in which the GPU waits for the processor to issue its operations.
    pub host_s: f64,
}

/// A recorded step in virtual time.
#[derive(Debug, Clone, Serialize)]
pub struct RecordedTimeline {
    /// Nanoseconds of the step.
    pub period_ns: u64,
    /// The recorded ranks.
    pub ranks: Vec<RankTimeline>,
}

/// The operations of a recorded rank, in the order in which the processor issued them. Nanoseconds since the first processor began the
/// step.
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
struct Run<'s> {
    step: &'s TrainingStep,
    recorded: &'s Recorded,
    program: Program,
    outcome: Outcome,
}

impl Pricer<'_> {
    /// Prices a recorded step.
    ///
    /// # Errors
    /// Those of [`Pricer::price`]; [`Error::Deadlock`] if its ranks wait for each other for ever.
    pub(super) fn price_recorded(&self, step: &TrainingStep, recorded: &Recorded) -> Result<StepPrice> {
        let run = self.run_recorded(step, recorded)?;
        let seconds = run.seconds()?;
        let ([low, high], extrapolated) = self.trust(step)?;
        let roles: Vec<RolePrice> = recorded.ranks.iter().map(|rank| role_price(rank, step.gpus)).collect();
        let memory_gb = roles.iter().map(|role| role.memory_gb).fold(0.0, f64::max);
        let fits = recorded.ranks.iter().map(|rank| rank.memory.fit(self.device.memory, step.gpus));
        let (flops, flops_of) =
            if step.model_flops > 0.0 { (step.model_flops, "model") } else { (recorded.flops(), "recorded") };
        let flops_per_second = flops / seconds / f64::from(step.gpus);
        Ok(StepPrice {
            seconds,
            low_s: seconds * low,
            high_s: seconds * high,
            extrapolated,
            tokens_per_second: step.tokens / seconds / f64::from(step.gpus),
            mfu: flops_per_second / self.device.peak(step.dtype)?,
            tflops: flops_per_second / 1e12,
            flops_of,
            parts: run.account().parts,
            roles,
            blocks: BTreeMap::new(),
            collectives: self.collectives_of(&run)?,
            lines: run.lines(),
            memory_gb,
            gpu_memory_gb: self.device.memory / GIB,
            fit: fits.max().unwrap_or(Fit::Fits),
        })
    }

    /// Returns the seconds of a recorded step alone.
    pub(super) fn seconds_recorded(&self, step: &TrainingStep, recorded: &Recorded) -> Result<f64> {
        self.run_recorded(step, recorded)?.seconds()
    }

    /// Returns when each operation of a recorded step is issued, begins and ends.
    ///
    /// # Errors
    /// Those of [`Pricer::price`]; [`Error::Step`] if the step was planned.
    pub fn recorded_timeline(&self, step: &TrainingStep) -> Result<RecordedTimeline> {
        let recorded = step.recorded.as_ref();
        let recorded = recorded.ok_or_else(|| Error::Step("it was planned: it has no streams".to_owned()))?;
        let outcome = self.run_recorded(step, recorded)?.outcome;
        let begin = outcome.begins.iter().copied().min().unwrap_or(0);
        let ns = |ps: u64| ps.saturating_sub(begin) / 1000;
        let ranks = recorded.ranks.iter().zip(&outcome.spans).map(|(rank, spans)| RankTimeline {
            rank: rank.rank,
            issued_ns: spans.iter().map(|span| ns(span.issued)).collect(),
            start_ns: spans.iter().map(|span| ns(span.start)).collect(),
            end_ns: spans.iter().map(|span| ns(span.end)).collect(),
        });
        let period_ns = (outcome.ends[COUNTED] - outcome.ends[COUNTED - 1]) / 1000;
        Ok(RecordedTimeline { period_ns, ranks: ranks.collect() })
    }

    fn run_recorded<'s>(&self, step: &'s TrainingStep, recorded: &'s Recorded) -> Result<Run<'s>> {
        self.check_size(step)?;
        let program = Maker::new(self, step).program(&recorded.ranks)?;
        let outcome = simulation::run(&program, self.constants.contention, |rank, op| recorded.waits(rank, op))?;
        Ok(Run { step, recorded, program, outcome })
    }

    /// Returns the collectives and messages of each rank; one row for those of the same name, group and size.
    fn collectives_of(&self, run: &Run<'_>) -> Result<Vec<CollectivePrice>> {
        let mut found: Vec<CollectivePrice> = Vec::new();
        for (place, rank) in run.recorded.ranks.iter().enumerate() {
            let mut known: BTreeMap<(&str, &str, u64), usize> = BTreeMap::new();
            for (at, op) in rank.ops.iter().enumerate() {
                let (bytes, group, kind) = match &op.action {
                    Action::Collective { pattern, bytes, group, .. } => (*bytes, group.as_str(), pattern.name()),
                    Action::Send { bytes, .. } => (*bytes, "pp", "send"),
                    Action::Recv { bytes, .. } => (*bytes, "pp", "recv"),
                    _ => continue,
                };
                let name = if op.name.is_empty() { kind } else { &op.name };
                let exposed = run.outcome.accounts[place].ops[at].exposed;
                let next = found.len();
                let number = *known.entry((name, group, bytes.to_bits())).or_insert(next);
                if number == next {
                    let What::Task(task) = &run.program.ranks[place].ops[at].what else { continue };
                    let of_group = match &op.action {
                        Action::Send { peer, .. } | Action::Recv { peer, .. } => self.pair(run.step, rank.rank, *peer),
                        _ => run.step.groups[group],
                    };
                    found.push(CollectivePrice {
                        of: rank.name.clone(),
                        pass: "recorded",
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

impl Run<'_> {
    fn seconds(&self) -> Result<f64> {
        let seconds = (self.outcome.ends[COUNTED] - self.outcome.ends[COUNTED - 1]) as f64 / 1e12;
        if seconds <= 0.0 {
            return Err(Error::Step("its operations take 0 s: a time above 0 was expected".to_owned()));
        }
        Ok(seconds)
    }

    /// Returns the position of the rank that waits least for others.
    fn slowest(&self) -> usize {
        let waits = self.outcome.accounts.iter().map(|account| account.parts.seconds(Part::Bubble)).enumerate();
        waits.min_by(|one, other| one.1.total_cmp(&other.1)).map_or(0, |(place, _)| place)
    }

    fn account(&self) -> &Account {
        &self.outcome.accounts[self.slowest()]
    }

    /// Returns the lines of the script for which the GPU waits, the longest wait first.
    fn lines(&self) -> Vec<LinePrice> {
        let mut lines: BTreeMap<u32, LinePrice> = BTreeMap::new();
        for (op, bare) in self.recorded.ranks[self.slowest()].ops.iter().zip(&self.account().ops) {
            let Some(number) = op.line.filter(|_| bare.exposed + bare.waits + bare.host > 0.0) else { continue };
            let line = || self.recorded.lines[number as usize].clone();
            let new = || LinePrice { line: line(), exposed_s: 0.0, waits_s: 0.0, host_s: 0.0 };
            let price = lines.entry(number).or_insert_with(new);
            price.exposed_s += bare.exposed;
            price.waits_s += bare.waits;
            price.host_s += bare.host;
        }
        let mut lines: Vec<LinePrice> = lines.into_values().collect();
        let lost = |one: &LinePrice| one.exposed_s + one.waits_s + one.host_s;
        lines.sort_by(|one, other| lost(other).total_cmp(&lost(one)));
        lines
    }
}

impl Recorded {
    /// Returns FLOPs of products and attention of all ranks, recomputation included.
    fn flops(&self) -> f64 {
        let of_op =
            |op: &crate::recorded::RecordedOp| op.count * op.action.as_work().map_or(0.0, |work| flops_of(&work));
        let of_rank = |rank: &RecordedRank| f64::from(rank.stands_for) * rank.ops.iter().map(of_op).sum::<f64>();
        self.ranks.iter().map(of_rank).sum()
    }

    /// Returns the sentence that says for what a rank waits.
    fn waits(&self, rank: usize, op: usize) -> String {
        let rank = &self.ranks[rank];
        let op = &rank.ops[op];
        let line = op.line.map_or(String::new(), |line| format!(" at {}", self.lines[line as usize]));
        let what = match &op.action {
            Action::Collective { pattern, group, .. } => {
                format!("the others in {} of the group `{group}`", pattern.name())
            }
            Action::Send { peer, bytes, .. } => format!("rank {peer} to receive {bytes} bytes"),
            Action::Recv { peer, bytes, .. } => format!("rank {peer} to send {bytes} bytes"),
            Action::Wait { event } => format!("event {event} on stream {}", op.stream),
            _ => format!("`{}`", op.name),
        };
        format!("rank {} waits{line} for {what}", rank.rank)
    }
}

/// Returns FLOPs of a product or of attention.
fn flops_of(work: &Work) -> f64 {
    match *work {
        Work::Gemm { m, n, k, batch, .. } => 2.0 * m * n * k * batch,
        Work::Attention(attention) => attention.flops(),
        _ => 0.0,
    }
}

fn role_price(rank: &RecordedRank, gpus: u32) -> RolePrice {
    let memory = rank.memory.parts_of_gpu(gpus);
    RolePrice {
        name: rank.name.clone(),
        stages: Vec::new(),
        forward_s: Vec::new(),
        backward_s: Vec::new(),
        once_s: 0.0,
        memory_gb: memory.iter().map(|part| part.bytes).sum::<f64>() / GIB,
        memory,
    }
}

/// Returns memory in bytes beside the framework's: NCCL, if there are other GPUs, and CUDA's context.
fn beside(gpus: u32) -> [(&'static str, f64); 2] {
    [("NCCL", if gpus > 1 { NCCL_BYTES } else { 0.0 }), ("CUDA context", CONTEXT_BYTES)]
}

impl RecordedMemory {
    /// Returns parts with their bytes: allocated at the peak, reserved beyond, NCCL, and CUDA's context. If `reserved` is not known, as in a
    /// trace, only the recorded parts.
    fn parts_of_gpu(&self, gpus: u32) -> Vec<MemoryPart> {
        let part = |name: &str, bytes: f64| MemoryPart { name: name.to_owned(), bytes };
        let named: f64 = self.parts.iter().map(|one| one.bytes).sum();
        let other = (self.allocated - named).max(0.0);
        let mut parts = self.parts.clone();
        if self.reserved == 0.0 {
            return parts;
        }
        parts.push(part("other", other));
        parts.push(part("reserved, not allocated", (self.reserved - named - other).max(0.0)));
        parts.extend(beside(gpus).map(|(name, bytes)| part(name, bytes)));
        parts.retain(|one| one.bytes > 0.0);
        parts
    }

    /// Judges as the framework's allocator does. The step fits if reserved memory fits. If only allocated memory fits, the step may fit, as
    /// the allocator gives back unused memory and tries again.
    fn fit(&self, memory: f64, gpus: u32) -> Fit {
        let left = memory - beside(gpus).iter().map(|(_, bytes)| bytes).sum::<f64>();
        match (self.reserved <= left, self.allocated <= left) {
            (true, _) => Fit::Fits,
            (false, true) => Fit::Tight,
            (false, false) => Fit::TooLarge,
        }
    }
}

//! Checks a recorded step: refuses unknown names, impossible numbers, and ranks whose messages or collectives do not match.
//!
//! ```text
//! each rank   lines, groups, peers and events exist; numbers are finite and at least 0
//! all ranks   between two recorded ranks each send has a receive of equal bytes; recorded ranks of one group run the same collectives in
//!             the same order
//! ```
//!
//! Ranks that are not recorded are assumed to be ready whenever a recorded one needs them. Pricing finds steps that hang nevertheless.

use std::collections::{BTreeMap, BTreeSet};

use nvcoll_fabric::hardware::gpus;

use crate::error::{Error, Result};
use crate::recorded::{Action, Awaited, Recorded, RecordedOp, RecordedRank};
use crate::training_step::{TrainingStep, MOST};

/// The most operations of all ranks. Chosen: a hundred times those of a large step.
const MOST_OPS: usize = 1 << 20;

/// The most recorded ranks, and operations of a group call. Chosen: operations that run at the same time are priced together.
const MOST_RANKS: usize = 1024;
const MOST_TOGETHER: usize = 512;

/// The most streams of a rank. Cited: no GPU runs more than 128 grids at once (CUDA programming guide, table of compute capabilities).
const MOST_STREAMS: usize = 128;

/// The members of a group that several recorded ranks share: its name and its first rank.
type Circle<'r> = (&'r str, u32);

/// Refuses with a reason.
fn refuse<T>(reason: String) -> Result<T> {
    Err(Error::Step(reason))
}

impl Recorded {
    /// Refuses a step that contradicts itself.
    ///
    /// # Errors
    /// [`Error::Step`] with what was found and what was expected; [`Error::Fabric`] for an unknown GPU.
    pub(crate) fn check(&self, step: &TrainingStep) -> Result<()> {
        gpus::named(&self.gpu)?;
        if !step.blocks.is_empty() || !step.roles.is_empty() || step.pipeline.stages != 1 {
            return refuse("it is recorded, and has blocks, roles or stages: only planned steps have them".to_owned());
        }
        if [step.tokens, step.model_flops].iter().any(|number| !(0.0..=MOST).contains(number)) {
            return refuse(format!("its tokens or FLOPs are no number from 0 to {MOST:e}"));
        }
        self.check_ranks(step.gpus)?;
        self.ranks.iter().try_for_each(|rank| self.check_rank(step, rank))?;
        self.check_messages()?;
        self.check_circles(step)
    }

    fn check_ranks(&self, gpus: u32) -> Result<()> {
        let distinct: BTreeSet<u32> = self.ranks.iter().map(|one| one.rank).collect();
        let names: BTreeSet<&str> = self.ranks.iter().map(|one| one.name.as_str()).collect();
        let stood_for: u64 = self.ranks.iter().map(|one| u64::from(one.stands_for)).sum();
        let count = self.ranks.len();
        if distinct.len() < count || names.len() < count || distinct.last().is_none_or(|&rank| rank >= gpus) {
            let found: Vec<String> = self.ranks.iter().map(|one| format!("{} `{}`", one.rank, one.name)).collect();
            let found = found[..found.len().min(8)].join(", ");
            return refuse(format!(
                "the ranks [{found}] were recorded: one or more were expected, below {gpus}, with names of their own"
            ));
        }
        if stood_for > u64::from(gpus) || self.ranks.iter().any(|one| one.stands_for == 0) {
            return refuse(format!("its ranks stand for {stood_for} ranks: each for 1 or more, all for up to {gpus}"));
        }
        if count > MOST_RANKS {
            return refuse(format!("{count} ranks were recorded, up to {MOST_RANKS} were expected: one of each kind"));
        }
        let ops: usize = self.ranks.iter().map(|one| one.ops.len()).sum();
        if ops > MOST_OPS || self.ranks.iter().any(|one| !one.ops.iter().any(|op| op.action.is_work())) {
            return refuse(format!("it has {ops} operations: up to {MOST_OPS} were expected, and work on each rank"));
        }
        Ok(())
    }

    fn check_rank(&self, step: &TrainingStep, rank: &RecordedRank) -> Result<()> {
        let memory = &rank.memory;
        let parts = memory.parts.iter().map(|part| part.bytes);
        let numbers = parts.chain([memory.allocated, memory.reserved, rank.operators.unwrap_or(0.0)]);
        if let Some(number) = numbers.into_iter().find(|number| !(0.0..=MOST).contains(number)) {
            return refuse(format!("rank {} has the number {number:?}, 0 to {MOST:e} was expected", rank.rank));
        }
        let streams: BTreeSet<u32> = rank.ops.iter().map(|op| op.stream).collect();
        let calls = rank.ops.chunk_by(|one, next| one.action.together() == next.action.together());
        let longest = calls.filter(|call| call[0].action.together().is_some()).map(<[_]>::len).max().unwrap_or(0);
        if streams.len() > MOST_STREAMS || longest > MOST_TOGETHER {
            let (rank, streams) = (rank.rank, streams.len());
            return refuse(format!(
                "rank {rank} has {streams} streams and a group call of {longest} operations: up to {MOST_STREAMS} and {MOST_TOGETHER} \
                 were expected"
            ));
        }
        let recorded: BTreeSet<u64> = rank.ops.iter().filter_map(|op| op.action.recorded_event()).collect();
        for (at, op) in rank.ops.iter().enumerate() {
            let found = self.wrong(step, rank, op, &recorded);
            if let Some(found) = found {
                return refuse(format!("operation {at} of rank {}, `{}`, {found}", rank.rank, op.name));
            }
        }
        Ok(())
    }

    /// Returns the error of an operation, if it has one.
    fn wrong(
        &self,
        step: &TrainingStep,
        rank: &RecordedRank,
        op: &RecordedOp,
        recorded: &BTreeSet<u64>,
    ) -> Option<String> {
        let numbers = op.action.numbers().into_iter().chain([op.count]);
        if let Some(number) = numbers.into_iter().find(|number| !(0.0..=MOST).contains(number)) {
            return Some(format!("has the number {number:?}, 0 to {MOST:e} was expected"));
        }
        if let Some(line) = op.line.filter(|&line| line as usize >= self.lines.len()) {
            return Some(format!("has the line {line}: a number below {} was expected", self.lines.len()));
        }
        match &op.action {
            Action::Collective { group, .. } if !step.groups.contains_key(group) => {
                Some(format!("is a collective of the group `{group}`, which does not exist"))
            }
            Action::Collective { group, .. } if !step.groups[group].fits(rank.rank, step.gpus) => {
                Some(format!("is a collective of the group `{group}`, which reaches beyond {} GPUs", step.gpus))
            }
            Action::Send { peer, .. } | Action::Recv { peer, .. } if *peer >= step.gpus || *peer == rank.rank => {
                Some(format!("has the peer {peer}: another rank below {} was expected", step.gpus))
            }
            Action::Wait { event } | Action::HostWaits { target: Awaited::Event(event) }
                if !recorded.contains(event) =>
            {
                Some(format!("waits for event {event}, which is never recorded"))
            }
            _ => None,
        }
    }

    /// Refuses sends without receives between recorded ranks, and receives without sends.
    fn check_messages(&self) -> Result<()> {
        let known: BTreeSet<u32> = self.ranks.iter().map(|one| one.rank).collect();
        let mut messages: BTreeMap<(u32, u32, u64), [Vec<f64>; 2]> = BTreeMap::new();
        for (rank, op) in self.ranks.iter().flat_map(|rank| rank.ops.iter().map(move |op| (rank.rank, op))) {
            let (from, to, tag, bytes, end) = match op.action {
                Action::Send { bytes, peer, tag, .. } => (rank, peer, tag, bytes, 0),
                Action::Recv { bytes, peer, tag, .. } => (peer, rank, tag, bytes, 1),
                _ => continue,
            };
            if known.contains(&from) && known.contains(&to) {
                messages.entry((from, to, tag)).or_default()[end].push(op.count * bytes);
            }
        }
        for ((from, to, tag), [sent, received]) in &messages {
            if sent.len() != received.len() {
                let (sent, received) = (sent.len(), received.len());
                return refuse(format!(
                    "rank {from} sends {sent} messages of tag {tag} to rank {to}, which receives {received}"
                ));
            }
            if let Some(at) = (0..sent.len()).find(|&at| sent[at] != received[at]) {
                let (sent, received) = (sent[at], received[at]);
                return refuse(format!(
                    "message {at} of tag {tag} from rank {from} to rank {to} has {sent} bytes, {received} are received"
                ));
            }
        }
        Ok(())
    }

    /// Refuses a group whose recorded ranks do not run the same collectives in the same order.
    fn check_circles(&self, step: &TrainingStep) -> Result<()> {
        let mut circles: BTreeMap<Circle<'_>, Vec<(u32, Vec<&'static str>)>> = BTreeMap::new();
        for rank in &self.ranks {
            for op in &rank.ops {
                let Action::Collective { pattern, group, .. } = &op.action else { continue };
                let of_group = circles.entry((group, step.groups[group].first(rank.rank))).or_default();
                if of_group.last().is_none_or(|(last, _)| *last != rank.rank) {
                    of_group.push((rank.rank, Vec::new()));
                }
                of_group.last_mut().expect("one was pushed").1.push(pattern.name());
            }
        }
        for ((group, first), members) in &circles {
            let within = |rank: &&RecordedRank| step.groups[*group].holds(*first, rank.rank);
            let missing =
                self.ranks.iter().filter(within).find(|one| members.iter().all(|(rank, _)| *rank != one.rank));
            let (rank, calls) = &members[0];
            let (other, found) = match (missing, members.iter().find(|(_, other)| other != calls)) {
                (Some(one), _) => (one.rank, "none".to_owned()),
                (None, Some((other, _))) => (*other, "others".to_owned()),
                (None, None) => continue,
            };
            let calls = calls.len();
            return refuse(format!(
                "rank {rank} runs {calls} collectives of the group `{group}`, rank {other} of the same group {found}"
            ));
        }
        Ok(())
    }
}

impl Action {
    /// Says whether it is work of the GPU or of links.
    pub(crate) const fn is_work(&self) -> bool {
        self.is_on_stream() && !matches!(self, Self::Record { .. } | Self::Wait { .. })
    }

    const fn recorded_event(&self) -> Option<u64> {
        match self {
            Self::Record { event } => Some(*event),
            _ => None,
        }
    }
}

//! Checks of streams: refuses unknown names, impossible numbers, and ranks whose messages or collectives do not match.
//!
//! ```text
//! each rank   lines, groups, peers and events exist; numbers are finite and at least 0
//! all ranks   between two recorded ranks each send has a receive of equal bytes; recorded ranks of one group run the same collectives in
//!             the same order
//! ```
//!
//! Ranks that are not recorded are assumed to be ready whenever a recorded one needs them. Pricing finds steps that hang nevertheless.

use std::collections::{BTreeMap, BTreeSet};

use super::{refuse, wrong};
use crate::error::Result;
use crate::memory::RankMemory;
use crate::step::streams::{HostClock, Issued, RankStreams, Streams};
use crate::step::work::{Awaited, StepWork, Way};
use crate::step::{WorkStep, MOST};

/// The largest number of operations of all ranks. Chosen: a hundred times a large step.
const MOST_OPS: usize = 1 << 20;

/// The most recorded ranks, and operations of a group call. Chosen: operations that run at the same time are priced together.
const MOST_RANKS: usize = 1024;
const MOST_TOGETHER: usize = 512;

/// The most streams of a rank. Cited: no GPU runs more than 128 grids at once (CUDA programming guide, table of compute capabilities).
const MOST_STREAMS: usize = 128;

/// The members of a group that several recorded ranks share: its name and its first rank.
type Circle<'r> = (&'r str, u32);

impl WorkStep {
    pub(super) fn check_streams(&self, streams: &Streams) -> Result<()> {
        streams.check_ranks(self.gpus)?;
        streams.ranks.iter().try_for_each(|rank| streams.check_rank(self, rank))?;
        streams.check_messages()?;
        streams.check_circles(self)
    }
}

impl Streams {
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
        let ops: usize = self.ranks.iter().map(|one| one.issued.len()).sum();
        if ops > MOST_OPS || self.ranks.iter().any(|one| !one.issued.iter().any(|one| one.op.work.is_task())) {
            return refuse(format!("it has {ops} operations: up to {MOST_OPS} were expected, and work on each rank"));
        }
        Ok(())
    }

    fn check_rank(&self, step: &WorkStep, rank: &RankStreams) -> Result<()> {
        let (operators, spread) = match rank.host {
            HostClock::Timed => (None, None),
            HostClock::Launches { operators, spread } => (operators, spread),
        };
        let numbers = rank.memory.as_ref().map_or_else(Vec::new, RankMemory::numbers);
        if let Some(number) = wrong(numbers.into_iter().chain(operators).chain(spread)) {
            return refuse(format!("rank {} has the number {number:?}, 0 to {MOST:e} was expected", rank.rank));
        }
        let streams: BTreeSet<u32> = rank.issued.iter().map(|one| one.stream).collect();
        let calls = rank.issued.chunk_by(|one, next| one.together == next.together);
        let longest = calls.filter(|call| call[0].together.is_some()).map(<[_]>::len).max().unwrap_or(0);
        if streams.len() > MOST_STREAMS || longest > MOST_TOGETHER {
            let (rank, streams) = (rank.rank, streams.len());
            return refuse(format!(
                "rank {rank} has {streams} streams and a group call of {longest} operations: up to {MOST_STREAMS} and {MOST_TOGETHER} \
                 were expected"
            ));
        }
        let recorded: BTreeSet<u64> = rank.issued.iter().filter_map(|one| one.op.work.recorded_event()).collect();
        for (at, one) in rank.issued.iter().enumerate() {
            if let Some(found) = step.wrong_op(&one.op).or_else(|| self.misplaced(step, rank, one, &recorded)) {
                return refuse(format!("operation {at} of rank {}, `{}`, {found}", rank.rank, one.op.name));
            }
        }
        Ok(())
    }

    /// Returns why the streams of a rank have no such operation.
    fn misplaced(&self, step: &WorkStep, rank: &RankStreams, one: &Issued, recorded: &BTreeSet<u64>) -> Option<String> {
        if let Some(line) = one.line.filter(|&line| line as usize >= self.lines.len()) {
            return Some(format!("has the line {line}: a number below {} was expected", self.lines.len()));
        }
        match &one.op.work {
            StepWork::Stall { .. } => {
                Some("stalls the GPU, which streams do not: `host` is time of the processor".to_owned())
            }
            StepWork::Collective { once_per_node: Some(_), .. } => {
                Some("sends tokens once to each node, which streams do not say: leave out `once_per_node`".to_owned())
            }
            StepWork::Collective { group, .. } if !step.groups[group].ranks.fits(rank.rank, step.gpus) => {
                Some(format!("is a collective of the group `{group}`, which reaches beyond {} GPUs", step.gpus))
            }
            StepWork::Message { peer, .. } if *peer >= step.gpus || *peer == rank.rank => {
                Some(format!("has the peer {peer}: another rank below {} was expected", step.gpus))
            }
            StepWork::StreamWait { event } | StepWork::HostWait { target: Awaited::Event(event) }
                if !recorded.contains(event) =>
            {
                Some(format!("waits for event {event}, which is never recorded"))
            }
            StepWork::Collective { .. } | StepWork::Message { .. } => None,
            _ if one.together.is_some() => Some("is in a group call: only collectives and messages are".to_owned()),
            _ => None,
        }
    }

    /// Refuses sends without receives between recorded ranks, and receives without sends.
    fn check_messages(&self) -> Result<()> {
        let known: BTreeSet<u32> = self.ranks.iter().map(|one| one.rank).collect();
        let mut messages: BTreeMap<(u32, u32, u64), [Vec<f64>; 2]> = BTreeMap::new();
        for (rank, op) in self.ranks.iter().flat_map(|rank| rank.issued.iter().map(move |one| (rank.rank, &one.op))) {
            let StepWork::Message { way, bytes, peer, tag } = op.work else { continue };
            let (from, to, end) = match way {
                Way::Send => (rank, peer, 0),
                Way::Recv => (peer, rank, 1),
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
    fn check_circles(&self, step: &WorkStep) -> Result<()> {
        let mut circles: BTreeMap<Circle<'_>, Vec<(u32, Vec<&'static str>)>> = BTreeMap::new();
        for rank in &self.ranks {
            for one in &rank.issued {
                let StepWork::Collective { pattern, group, .. } = &one.op.work else { continue };
                let of_group = circles.entry((group, step.groups[group].ranks.first(rank.rank))).or_default();
                if of_group.last().is_none_or(|(last, _)| *last != rank.rank) {
                    of_group.push((rank.rank, Vec::new()));
                }
                of_group.last_mut().expect("one was pushed").1.push(pattern.name());
            }
        }
        for ((group, first), members) in &circles {
            let within = |rank: &&RankStreams| step.groups[*group].ranks.holds(*first, rank.rank);
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

impl StepWork {
    const fn recorded_event(&self) -> Option<u64> {
        match self {
            Self::Record { event } => Some(*event),
            _ => None,
        }
    }
}

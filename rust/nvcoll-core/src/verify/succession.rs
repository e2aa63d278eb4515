//! Successive calls: staging and call records are reused two calls later.
//!
//! ```text
//! call    c        c+1      c+2          staging: bank = call mod 2, and so are the slots for call records
//! rank 0  ▓▓▓▓     ▒▒▒▒     ████──────── a store of call c+2 must not meet a read of call c
//! rank 1  ────▓▓▓▓▓▓▓▓▓▓▓▓────▒▒▒▒
//! ```
//!
//! A rank enters a call after it has left the call before. If every leave comes after every enter, as in all_reduce, that is enough:
//! a rank that enters c+2 has left c+1, so all ranks have entered c+1, so all ranks have left c. A rooted collective does not
//! promise that: a root that only sends can be any number of calls ahead. Therefore the **stamp rule**: every rank stamps every call
//! that it enters. Before a rank stores into staging in call c+2, it waits until every rank has stamped c+1 and thereby left c. The
//! same argument in a chain covers calls that are further apart.
//!
//! The proof takes three successive calls A, B and C. Let `left` of an event be the ranks whose leave of A comes before it.
//!
//! ```text
//! left(enter of q in B) = {q}             left(step) = union over the awaited events; with the rule, all ranks at a store
//! left(enter of q in C) = left(leave of q in B)
//! an access by rank r in A comes before an event of C  ⇐  left(event) has r, or a rank whose leave of A waits for the access
//! ```
//!
//! One tile of each call is enough: the last tile of A comes after its other tiles, and the first tile of C before its other tiles.
//! The proof ignores slots: the tiles of two calls need not be in step, so any two accesses to one chunk of staging can meet.
//!
//! Cost: one bit per rank for every step. Source: ours.

use super::clocks::{is_past, Clock, Clocks};
use super::graph::Graph;
use super::location::{Access, BufferChunk, Waiter};
use super::memory::Memory;
use super::report::{Refutation, Violation};
use super::well_formed;
use crate::schedule::{Buffer, Dependency, Event, Schedule, View};

/// The wait of a rank before it reuses, in call c, memory that outlives a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StampRule {
    /// No wait. Symmetric collectives need none.
    Ignored,
    /// A wait for all stamps of call c-1 before the first store into staging. Staging is safe; call records of rooted collectives
    /// are not.
    BeforeStaging,
    /// A wait for all stamps of call c-1 before the early steps and the enter, which overwrites the record of call c-2. Staging and records are safe.
    BeforeEnter,
}

/// Proves that of every three successive calls, the first and the third do not conflict in staging or in call records.
///
/// A rank reads a call record at every wait for an enter. Fewer than three calls reuse nothing.
///
/// # Errors
/// The first two conflicting accesses; the refutation names the schedule of the third call.
///
/// # Panics
/// If the calls differ in world size.
pub fn succession(calls: &[&Schedule], rule: StampRule) -> Result<(), Refutation> {
    for three in calls.windows(3) {
        assert!(three.iter().all(|call| call.world_size == three[0].world_size), "one set of ranks makes all calls");
        let graphs: Vec<Graph<'_>> = three.iter().map(|call| checked(call)).collect::<Result<_, _>>()?;
        let first = FirstCall::new(&graphs[0]);
        let second = Spread::over(&graphs[1], singletons(three[0].world_size), |_| false);
        let everyone = RankSet::all(three[0].world_size);
        let enters = match rule {
            StampRule::BeforeEnter => vec![everyone; three[2].world_size as usize],
            _ => second.leaves,
        };
        let records = check_records(&first, &enters);
        let stamps = |store: u32| rule != StampRule::Ignored && stages(&graphs[2], store);
        let third = Spread::over(&graphs[2], enters, stamps);
        let staging = check_staging(&first, &graphs[2], &third);
        staging.and(records).map_err(|violation| Refutation::of(three[2], violation))?;
    }
    Ok(())
}

fn checked(call: &Schedule) -> Result<Graph<'_>, Refutation> {
    let check = || {
        well_formed::check_places(call)?;
        well_formed::check_steps(call, &Memory::of(call)?)?;
        Graph::of(call)
    };
    check().map_err(|violation| Refutation::of(call, violation))
}

fn stages(graph: &Graph<'_>, step: u32) -> bool {
    graph.step(step).dst.iter().any(|view| view.buffer.is_staging())
}

/// Checks the call records that the third call overwrites against their readers in the first call.
fn check_records(first: &FirstCall<'_, '_>, enters: &[RankSet]) -> Result<(), Violation> {
    let reads = |after: &[Dependency]| -> Vec<u32> {
        after.iter().filter(|wait| wait.event == Event::Enter).map(|wait| wait.rank).collect()
    };
    for step in 0..first.graph.order().len() as u32 {
        for rank in reads(&first.graph.step(step).after) {
            if !first.is_over(step, &enters[rank as usize]) {
                let reader = Waiter::Step(first.graph.name(step));
                return Err(Violation::RecordOverrun { rank, reader });
            }
        }
    }
    for (reader, after) in first.graph.schedule.leave.iter().enumerate() {
        if let Some(rank) = reads(after).into_iter().find(|&rank| !enters[rank as usize].has(reader as u32)) {
            return Err(Violation::RecordOverrun { rank, reader: Waiter::Leave(reader as u32) });
        }
    }
    Ok(())
}

/// Checks every access of the third call to staging against the accesses of the first call to the same chunk.
fn check_staging(first: &FirstCall<'_, '_>, graph: &Graph<'_>, third: &Spread) -> Result<(), Violation> {
    let earlier = StagingAccesses::of(first.graph);
    for step in 0..graph.order().len() as u32 {
        let left = &third.steps[step as usize];
        let overrun = |(chunk, access)| {
            let unfinished = earlier.conflicting(chunk, access).find(|&earlier| !first.is_over(earlier, left))?;
            Some((unfinished, chunk, access))
        };
        if let Some((unfinished, (rank, layer, chunk), access)) = staged(graph, step).find_map(overrun) {
            return Err(Violation::StagingOverrun {
                first: first.graph.name(unfinished),
                second: graph.name(step),
                second_access: access,
                cell: BufferChunk { rank, buffer: Buffer::Staging(layer), chunk },
            });
        }
    }
    Ok(())
}

/// A chunk of staging without its slot: rank, layer and chunk.
type StagingChunk = (u32, u16, u32);

/// All accesses of a call to staging, each with its step, sorted by chunk.
struct StagingAccesses(Vec<(StagingChunk, u32, Access)>);

impl StagingAccesses {
    fn of(graph: &Graph<'_>) -> Self {
        let steps = 0..graph.order().len() as u32;
        let of_step = |step| staged(graph, step).map(move |(chunk, access)| (chunk, step, access));
        let mut accesses: Vec<_> = steps.flat_map(of_step).collect();
        accesses.sort_unstable_by_key(|(chunk, ..)| *chunk);
        Self(accesses)
    }

    /// Yields the steps whose access to a chunk conflicts with another access: at least one of the two writes.
    fn conflicting(&self, chunk: StagingChunk, access: Access) -> impl Iterator<Item = u32> + '_ {
        let from = self.0.partition_point(|(other, ..)| *other < chunk);
        let same = self.0[from..].iter().take_while(move |(other, ..)| *other == chunk);
        same.filter(move |(_, _, other)| [*other, access].contains(&Access::Writes)).map(|(_, step, _)| *step)
    }
}

/// Yields the accesses of a step to staging.
fn staged<'s>(graph: &Graph<'s>, step: u32) -> impl Iterator<Item = (StagingChunk, Access)> + use<'s> {
    let step = graph.step(step);
    let chunks = |view: &'s View| {
        let layer = if let Buffer::Staging(layer) = view.buffer { Some(layer) } else { None };
        layer.into_iter().flat_map(move |layer| view.chunks.clone().map(move |chunk| (view.rank, layer, chunk)))
    };
    let reads = step.src.iter().flat_map(move |source| chunks(&source.view)).map(|chunk| (chunk, Access::Reads));
    reads.chain(step.dst.iter().flat_map(chunks).map(|chunk| (chunk, Access::Writes)))
}

/// The first of three calls, with the steps that happen before each leave.
struct FirstCall<'g, 'a> {
    graph: &'g Graph<'a>,
    leaves: Vec<Clock>,
}

impl<'g, 'a> FirstCall<'g, 'a> {
    fn new(graph: &'g Graph<'a>) -> Self {
        let mut clocks = Clocks::new(graph);
        graph.order().iter().for_each(|&step| clocks.advance(step));
        let leaves = (0..graph.schedule.world_size).map(|rank| clocks.leave(rank)).collect();
        Self { graph, leaves }
    }

    /// Says whether a step is done once these ranks have left.
    fn is_over(&self, step: u32, left: &RankSet) -> bool {
        let others = || (0..self.graph.schedule.world_size).filter(|&rank| left.has(rank));
        left.has(self.graph.step(step).rank)
            || others().any(|rank| is_past(self.graph, &self.leaves[rank as usize], step))
    }
}

/// For each step and each leave of a call, the ranks that have certainly left the first call.
struct Spread {
    steps: Vec<RankSet>,
    leaves: Vec<RankSet>,
}

impl Spread {
    /// Spreads the knowledge at each rank's enter along queues and waits; at some steps all ranks have left.
    fn over(graph: &Graph<'_>, enters: Vec<RankSet>, waits_for_all: impl Fn(u32) -> bool) -> Self {
        let world_size = graph.schedule.world_size;
        let mut steps: Vec<RankSet> = vec![RankSet::none(world_size); graph.order().len()];
        for &step in graph.order() {
            let waits = &graph.step(step).after;
            let mut known = at_enters(&enters, graph.step(step).rank, waits);
            let awaited = graph.awaited(waits).filter(|(_, lag)| *lag == 0).map(|(awaited, _)| awaited);
            graph.predecessor(step).into_iter().chain(awaited).for_each(|before| known.add(&steps[before as usize]));
            steps[step as usize] = if waits_for_all(step) { RankSet::all(world_size) } else { known };
        }
        let leave = |rank: u32| {
            let waits = &graph.schedule.leave[rank as usize];
            let mut known = at_enters(&enters, rank, waits);
            let ends = graph.queues_of(rank).filter_map(|queue| graph.queue(queue).last().copied());
            graph
                .awaited(waits)
                .map(|(awaited, _)| awaited)
                .chain(ends)
                .for_each(|step| known.add(&steps[step as usize]));
            known
        };
        let leaves = (0..world_size).map(leave).collect();
        Self { steps, leaves }
    }
}

/// Returns the knowledge from a rank's own enter and from the enters for which it waits.
fn at_enters(enters: &[RankSet], rank: u32, waits: &[Dependency]) -> RankSet {
    let mut known = enters[rank as usize].clone();
    waits.iter().filter(|wait| wait.event == Event::Enter).for_each(|wait| known.add(&enters[wait.rank as usize]));
    known
}

fn singletons(world_size: u32) -> Vec<RankSet> {
    (0..world_size).map(|rank| RankSet::one(world_size, rank)).collect()
}

/// A set of ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RankSet(Box<[u64]>);

impl RankSet {
    fn none(world_size: u32) -> Self {
        Self(vec![0; (world_size as usize).div_ceil(64)].into())
    }

    fn one(world_size: u32, rank: u32) -> Self {
        let mut ranks = Self::none(world_size);
        ranks.0[rank as usize / 64] |= 1 << (rank % 64);
        ranks
    }

    fn all(world_size: u32) -> Self {
        let mut ranks = Self::none(world_size);
        (0..world_size).for_each(|rank| ranks.0[rank as usize / 64] |= 1 << (rank % 64));
        ranks
    }

    fn has(&self, rank: u32) -> bool {
        self.0[rank as usize / 64] >> (rank % 64) & 1 == 1
    }

    fn add(&mut self, others: &RankSet) {
        self.0.iter_mut().zip(&others.0).for_each(|(mine, theirs)| *mine |= theirs);
    }
}

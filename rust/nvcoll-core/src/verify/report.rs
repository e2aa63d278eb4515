//! Messages of failed proofs: the broken rule, the steps involved and the missing wait.
//!
//! Each rule is one variant of [`Violation`]. Its message names the steps as the text form prints them (`r0.q1.3`: rank 0, queue 1,
//! step 3), the found and the expected state, and the remedy. [`Violation::places`] returns the same steps as data, and
//! [`Violation::missing`] returns the missing wait or contributions. The variants follow the order of the proof: form, deadlock,
//! contact, races, values, leaves.

use super::location::{Access, BufferChunk, StepName, Waiter};
use super::missing::Missing;
use crate::limits::MAX_WORLD_SIZE;
use crate::schedule::{Aliasing, Dependency, Event, Path, Schedule, View, MAX_SLOTS};
use crate::words::counted;

/// The text for the value of an unwritten output.
pub(super) const NOTHING: &str = "nothing";

/// A rule that a schedule breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The world size is outside the limits.
    #[error("world_size is {0}: it must be from 1 to {MAX_WORLD_SIZE}")]
    WorldSize(u32),
    /// The parts have no chunks.
    #[error("chunks_per_part is 0: cut each part into at least 1 chunk")]
    NoChunks,
    /// The number of slots does not suit the path.
    #[error("the schedule has {}, and {}", counted(*found, "slot"), slots_of(*path))]
    Slots {
        /// The path.
        path: Path,
        /// The number of slots.
        found: u32,
    },
    /// The schedule is too large for a proof.
    #[error("a proof of this schedule takes {found} {what}, and may take {most}: use fewer ranks or chunks")]
    TooLarge {
        /// The resource that a proof lacks.
        what: &'static str,
        /// The amount that a proof needs.
        found: u128,
        /// The largest amount that a proof can use.
        most: u128,
    },
    /// The number of leaves is not the number of ranks.
    #[error("the schedule has {} and {}: list one for each rank", counted(*found as u64, "leave"), counted(*expected, "rank"))]
    Leaves {
        /// The number of leaves.
        found: usize,
        /// The number of ranks.
        expected: u32,
    },
    /// The list of early queues does not have an entry for each rank.
    #[error("the schedule has {} and {}: list one for each rank, or none", counted(*found as u64, "early queue"), counted(*expected, "rank"))]
    EarlyQueues {
        /// The number of entries.
        found: usize,
        /// The number of ranks.
        expected: u32,
    },
    /// The early queue of a rank has no step.
    #[error("the early queue of rank {rank} has no step: name a queue with steps, or none")]
    NoSuchEarlyQueue {
        /// The rank.
        rank: u32,
    },
    /// An early step waits.
    #[error("{step} comes before the enter of its rank and waits for {dependency}: an early step waits for nothing")]
    EarlyStepWaits {
        /// The step.
        step: StepName,
        /// The awaited event.
        dependency: Dependency,
    },
    /// A step or leave waits for an early step instead of the enter.
    #[error("{place} waits for {dependency}, an early step: let it wait for r{}.enter", dependency.rank)]
    WaitsForEarlyStep {
        /// The step or leave that waits.
        place: Waiter,
        /// The awaited event.
        dependency: Dependency,
    },
    /// A step or view names a rank that does not exist.
    #[error("{step} names rank {rank}, and world_size is {world_size}: use a lower rank")]
    NoSuchRank {
        /// The step.
        step: StepName,
        /// The named rank.
        rank: u32,
        /// The number of ranks.
        world_size: u32,
    },
    /// A queue has a gap, or two steps have the same position.
    #[error("{step} leaves a gap or takes a place twice: number queues from 0, and the steps of each queue from 0, each once")]
    Misnumbered {
        /// The step with the wrong number.
        step: StepName,
    },
    /// A step has no source or no destination.
    #[error("{step} has {} and {}: give it at least one of each", counted(*src as u64, "source"), counted(*dst as u64, "destination"))]
    Idle {
        /// The step.
        step: StepName,
        /// The number of sources.
        src: usize,
        /// The number of destinations.
        dst: usize,
    },
    /// A view names chunks that do not exist.
    #[error("{step} touches {view}, and the chunks are 0..{chunks}: use a range of these that is not empty")]
    OutOfBounds {
        /// The step.
        step: StepName,
        /// The view.
        view: View,
        /// The number of chunks.
        chunks: u32,
    },
    /// The views of a step name different chunks.
    #[error("{step} moves {first} and {view}, whose chunks differ: chunks stay in their place, so use the same range in every view")]
    UnlikeChunks {
        /// The step.
        step: StepName,
        /// Its first source.
        first: View,
        /// A view with other chunks.
        view: View,
    },
    /// By the contract, a user buffer does not hold the chunks of a view.
    #[error("{step} touches {view}, and that buffer does not hold these chunks: see the contract of the collective")]
    NotHeld {
        /// The step.
        step: StepName,
        /// The view.
        view: View,
    },
    /// The path does not reach a view.
    #[error("{step} touches {view}, which the {} path does not reach: {}", path.name(), reach(*path))]
    Unreachable {
        /// The step.
        step: StepName,
        /// The view.
        view: View,
        /// The path.
        path: Path,
    },
    /// A lag is longer than the path allows.
    #[error("{place} waits for {dependency}: here a lag is from 0 to {most}")]
    Lag {
        /// The step or leave that waits.
        place: Waiter,
        /// The awaited event.
        dependency: Dependency,
        /// The longest allowed lag.
        most: u32,
    },
    /// An awaited event does not exist.
    #[error("{place} waits for {dependency}, which does not exist: name a step of the schedule")]
    NoSuchEvent {
        /// The step or leave that waits.
        place: Waiter,
        /// The awaited event.
        dependency: Dependency,
    },
    /// Steps wait for each other in a cycle.
    #[error("these steps wait for each other for ever: {}; take one wait out of the circle", circle(steps))]
    Deadlock {
        /// The cycle: each step waits for the next, and the last step waits for the first.
        steps: Vec<StepName>,
    },
    /// A rank accesses another rank's memory, or waits for its steps, before it has waited for its enter.
    #[error("{place} touches or waits for rank {rank} without contact: let it, or a step of its rank before it, wait for r{rank}.enter")]
    NoContact {
        /// The step or leave without contact.
        place: Waiter,
        /// The other rank.
        rank: u32,
    },
    /// Two accesses to one chunk are not ordered, and one of them is a write.
    #[error(
        "{second} {second_access} {cell} and {first} {first_access} it{}, in no order: let {second} wait for {first}{}",
        tiles_before(*lag),
        at_lag(*lag)
    )]
    Race {
        /// The earlier step in the order of the proof.
        first: StepName,
        /// The access of the earlier step.
        first_access: Access,
        /// The later step.
        second: StepName,
        /// The access of the later step.
        second_access: Access,
        /// The chunk that both access.
        cell: BufferChunk,
        /// The number of tiles between the two accesses.
        lag: u32,
    },
    /// Two destinations of a step are the same memory.
    #[error("{step} writes {cell} twice: list each destination once")]
    WrittenTwice {
        /// The step.
        step: StepName,
        /// The chunk.
        cell: BufferChunk,
    },
    /// A step writes a chunk of an input that is not the output.
    #[error("{step} writes {cell}, and an input stays as it is {}: write output or scratch", unless(*aliasing))]
    InputWritten {
        /// The step.
        step: StepName,
        /// The chunk.
        cell: BufferChunk,
        /// The aliasing.
        aliasing: Aliasing,
    },
    /// A step reads a chunk that no step has written.
    #[error("{step} reads {cell}, which nothing has written before: let a step write it first")]
    Unwritten {
        /// The step.
        step: StepName,
        /// The chunk.
        cell: BufferChunk,
    },
    /// A step reduces in a collective that only copies.
    #[error("{step} folds or finishes, and {collective} only copies: use one source, and no final")]
    FoldInCopy {
        /// The step.
        step: StepName,
        /// The collective.
        collective: &'static str,
    },
    /// A fold contains a contribution more than once.
    #[error("{step} folds the contribution of rank {rank} into {cell} a second time{}: fold each rank's once", written(*brought))]
    Repeated {
        /// The step.
        step: StepName,
        /// The destination.
        cell: BufferChunk,
        /// The rank of the contribution.
        rank: u32,
        /// A source that contains the contribution, and the step that wrote the source last.
        brought: Option<(BufferChunk, StepName)>,
    },
    /// A step folds a value that is already final.
    #[error("{step} folds or finishes {cell}, which is final already{}: only copy it", since(*writer))]
    AfterFinal {
        /// The step.
        step: StepName,
        /// The source.
        cell: BufferChunk,
        /// The step that wrote the source last.
        writer: Option<StepName>,
    },
    /// A final step lacks contributions.
    #[error("{step} is final, and {cell} lacks the contribution of rank {missing}: mark only the step that completes the fold")]
    FinalTooEarly {
        /// The step.
        step: StepName,
        /// The destination.
        cell: BufferChunk,
        /// The first rank whose contribution is missing.
        missing: u32,
    },
    /// A step is final in a collective whose folds are never complete for all ranks.
    #[error(
        "{step} is final, and in {collective} what is complete for one rank is partial for the next: mark none final"
    )]
    FinalPrefix {
        /// The step.
        step: StepName,
        /// The collective.
        collective: &'static str,
    },
    /// A complete fold is not final.
    #[error("{step} completes the fold of {cell} and is not final: mark it final")]
    NotFinal {
        /// The step.
        step: StepName,
        /// The destination.
        cell: BufferChunk,
    },
    /// The contribution mark of a source does not match its value.
    #[error("{step} marks {cell} as {}, and it is {}: each contribution is marked where it is folded, once", mark(*found), mark(*expected))]
    Mark {
        /// The step.
        step: StepName,
        /// The source.
        cell: BufferChunk,
        /// The mark of the source.
        found: Option<u32>,
        /// The mark that the value requires.
        expected: Option<u32>,
    },
    /// An output does not hold the promised value.
    #[error("{cell} {}", wrong_output(found, expected, lacks))]
    WrongOutput {
        /// The output.
        cell: BufferChunk,
        /// The value that it holds.
        found: String,
        /// The value that the contract promises.
        expected: String,
        /// The ranks whose contributions it lacks.
        lacks: Vec<u32>,
    },
    /// Two ranks receive different expressions for the same chunk.
    #[error("{cell} ends as {found} and {other} as {other_found}: every rank must receive the same expression")]
    Disagreement {
        /// The chunk of one output.
        cell: BufferChunk,
        /// The value that it holds.
        found: String,
        /// The same chunk of another rank's output.
        other: BufferChunk,
        /// The value that the other output holds.
        other_found: String,
    },
    /// A rank can leave before the last access to its memory.
    #[error("r{rank} may leave while {step} still {access} {cell}: let leave r{rank} wait for {step}")]
    LeavesEarly {
        /// The rank.
        rank: u32,
        /// The step of another rank.
        step: StepName,
        /// The access of the step.
        access: Access,
        /// The chunk.
        cell: BufferChunk,
    },
    /// A rank can leave before another rank enters, although the collective synchronises.
    #[error("r{rank} may leave before r{other} has entered, and {collective} promises that it does not: let leave r{rank} wait for r{other}.enter")]
    NotSynchronised {
        /// The rank that can leave.
        rank: u32,
        /// The rank that may not have entered.
        other: u32,
        /// The collective.
        collective: &'static str,
    },
}

impl Violation {
    /// Returns the steps and leaves that the message names. The first is the one to change.
    pub fn places(&self) -> Vec<Waiter> {
        use Violation as V;
        let steps = |all: &[StepName]| all.iter().copied().map(Waiter::Step).collect();
        match self {
            V::WorldSize(_)
            | V::NoChunks
            | V::Slots { .. }
            | V::TooLarge { .. }
            | V::Leaves { .. }
            | V::EarlyQueues { .. }
            | V::NoSuchEarlyQueue { .. }
            | V::WrongOutput { .. }
            | V::Disagreement { .. } => Vec::new(),
            V::NoSuchRank { step, .. }
            | V::Misnumbered { step }
            | V::EarlyStepWaits { step, .. }
            | V::Idle { step, .. }
            | V::OutOfBounds { step, .. }
            | V::UnlikeChunks { step, .. }
            | V::NotHeld { step, .. }
            | V::Unreachable { step, .. }
            | V::WrittenTwice { step, .. }
            | V::InputWritten { step, .. }
            | V::Unwritten { step, .. }
            | V::FoldInCopy { step, .. }
            | V::FinalTooEarly { step, .. }
            | V::FinalPrefix { step, .. }
            | V::NotFinal { step, .. }
            | V::Mark { step, .. } => steps(&[*step]),
            V::Repeated { step, brought, .. } => {
                std::iter::once(*step).chain(brought.map(|(_, writer)| writer)).map(Waiter::Step).collect()
            }
            V::AfterFinal { step, writer, .. } => std::iter::once(*step).chain(*writer).map(Waiter::Step).collect(),
            V::Lag { place, .. }
            | V::NoSuchEvent { place, .. }
            | V::WaitsForEarlyStep { place, .. }
            | V::NoContact { place, .. } => vec![*place],
            V::Deadlock { steps: circle } => steps(circle),
            V::Race { first, second, .. } => steps(&[*second, *first]),
            V::LeavesEarly { rank, step, .. } => vec![Waiter::Leave(*rank), Waiter::Step(*step)],
            V::NotSynchronised { rank, .. } => vec![Waiter::Leave(*rank)],
        }
    }

    /// Returns the missing wait or contributions, if the violation misses some.
    pub fn missing(&self) -> Option<Missing> {
        use Violation as V;
        let wait = |place, rank, event, lag| Some(Missing::Wait { place, event: Dependency { rank, event, lag } });
        let done = |step: &StepName| Event::Step { queue: step.queue, index: step.index };
        match self {
            V::Race { first, second, lag, .. } => wait(Waiter::Step(*second), first.rank, done(first), *lag),
            V::LeavesEarly { rank, step, .. } => wait(Waiter::Leave(*rank), step.rank, done(step), 0),
            V::WaitsForEarlyStep { place, dependency } => wait(*place, dependency.rank, Event::Enter, 0),
            V::NoContact { place, rank } => wait(*place, *rank, Event::Enter, 0),
            V::NotSynchronised { rank, other, .. } => wait(Waiter::Leave(*rank), *other, Event::Enter, 0),
            V::FinalTooEarly { missing, .. } => Some(Missing::Contributions(vec![*missing])),
            V::WrongOutput { lacks, .. } if !lacks.is_empty() => Some(Missing::Contributions(lacks.clone())),
            _ => None,
        }
    }
}

/// A refuted schedule and the rule that it breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{collective} {algorithm} of {}, {}, {}: {violation}", counted(*world_size, "rank"), path.name(), aliasing.words())]
pub struct Refutation {
    /// The collective.
    pub collective: &'static str,
    /// The algorithm.
    pub algorithm: String,
    /// The number of ranks.
    pub world_size: u32,
    /// The path.
    pub path: Path,
    /// The aliasing.
    pub aliasing: Aliasing,
    /// The broken rule.
    pub violation: Box<Violation>,
}

impl Refutation {
    pub(super) fn of(schedule: &Schedule, violation: Violation) -> Self {
        Self {
            collective: schedule.collective.name,
            algorithm: schedule.algorithm.clone(),
            world_size: schedule.world_size,
            path: schedule.path,
            aliasing: schedule.aliasing,
            violation: Box::new(violation),
        }
    }
}

/// Describes a wrong output, with the contributions that it lacks.
fn wrong_output(found: &str, expected: &str, lacks: &[u32]) -> String {
    if lacks.is_empty() || found == NOTHING {
        return format!("ends as {found}: it must be {expected}");
    }
    format!("lacks {}: it ends as {found}, and must be {expected}", Missing::Contributions(lacks.to_vec()))
}

fn since(writer: Option<StepName>) -> String {
    writer.map_or_else(String::new, |writer| format!(" since {writer}"))
}

fn written(brought: Option<(BufferChunk, StepName)>) -> String {
    brought.map_or_else(String::new, |(cell, writer)| format!(" (what it reads in {cell} was written by {writer})"))
}

fn reach(path: Path) -> &'static str {
    match path {
        Path::Mapped => "it has no staging",
        Path::Staged => "a step touches the buffers of its own rank, and the staging of every rank",
        Path::Pushed => "a step touches the buffers of its own rank, and stores to the staging of every rank",
    }
}

fn slots_of(path: Path) -> String {
    match path {
        Path::Mapped => "the mapped path has no staging: leave them out".to_owned(),
        Path::Staged | Path::Pushed => format!("staging has 1 to {MAX_SLOTS} slots: choose a number in this range"),
    }
}

fn circle(steps: &[StepName]) -> String {
    let names: Vec<String> = steps.iter().chain(steps.first()).map(StepName::to_string).collect();
    names.join(" waits for ")
}

fn tiles_before(lag: u32) -> String {
    match lag {
        0 => String::new(),
        1 => " one tile before".to_owned(),
        _ => format!(" {lag} tiles before"),
    }
}

fn at_lag(lag: u32) -> String {
    if lag == 0 {
        String::new()
    } else {
        format!("@{lag}")
    }
}

fn unless(aliasing: Aliasing) -> &'static str {
    match aliasing {
        Aliasing::Disjoint => "where it shares no memory with the output",
        Aliasing::InPlace => "outside the chunks that are output as well",
    }
}

fn mark(contribution: Option<u32>) -> String {
    contribution
        .map_or("no contribution to scale".to_owned(), |rank| format!("the contribution of rank {rank} to scale"))
}

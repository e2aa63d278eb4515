//! What the verifier says when the proof fails: which rule, which two steps, what is missing.
//!
//! Every way to be wrong is one variant of [`Violation`]. Its message names the steps as the text form prints them
//! (`r0.q1.3`: rank 0, queue 1, step 3), what was found, what was expected and what to do; [`Violation::places`] gives the
//! same steps as data, for whoever wants to show them, and [`Violation::missing`] what lacks. The messages come in the order of the proof: form, deadlock,
//! contact, races, values, leaving, calls in succession.

use super::location::{Access, BufferChunk, StepName, Waiter};
use super::missing::Missing;
use crate::limits::MAX_WORLD_SIZE;
use crate::schedule::{Aliasing, Dependency, Path, Schedule, View, MAX_SLOTS};
use crate::words::counted;

/// What an output holds that no step writes.
pub(super) const NOTHING: &str = "nothing";

/// A rule that a schedule breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A world size that no schedule describes.
    #[error("world_size is {0}: it must be from 1 to {MAX_WORLD_SIZE}")]
    WorldSize(u32),
    /// Parts that are cut into nothing.
    #[error("chunks_per_part is 0: cut each part into at least 1 chunk")]
    NoChunks,
    /// Staging without slots, slots without staging, or too many.
    #[error("the schedule has {}, and {}", counted(*found, "slot"), slots_of(*path))]
    Slots {
        /// The path.
        path: Path,
        /// How many slots.
        found: u32,
    },
    /// More than the proof can number, or than it has memory for.
    #[error("a proof of this schedule takes {found} {what}, and may take {most}: use fewer ranks or chunks")]
    TooLarge {
        /// What it is that there is too much of.
        what: &'static str,
        /// How much a proof would take.
        found: u128,
        /// How much it may.
        most: u128,
    },
    /// Not one `leave` for each rank.
    #[error("the schedule has {} and {}: list one for each rank", counted(*found as u64, "leave"), counted(*expected, "rank"))]
    Leaves {
        /// How many there are.
        found: usize,
        /// How many ranks there are.
        expected: u32,
    },
    /// A step or view names a rank that does not exist.
    #[error("{step} names rank {rank}, and world_size is {world_size}: use a lower rank")]
    NoSuchRank {
        /// The step.
        step: StepName,
        /// The rank it names.
        rank: u32,
        /// How many there are.
        world_size: u32,
    },
    /// A queue with a gap, or a place taken twice.
    #[error("{step} leaves a gap or takes a place twice: number queues from 0, and the steps of each queue from 0, each once")]
    Misnumbered {
        /// A step that is out of place.
        step: StepName,
    },
    /// A step without source or destination.
    #[error("{step} has {} and {}: give it at least one of each", counted(*src as u64, "source"), counted(*dst as u64, "destination"))]
    Idle {
        /// The step.
        step: StepName,
        /// How many sources.
        src: usize,
        /// How many destinations.
        dst: usize,
    },
    /// A view outside the chunks that there are.
    #[error("{step} touches {view}, and the chunks are 0..{chunks}: use a range of these that is not empty")]
    OutOfBounds {
        /// The step.
        step: StepName,
        /// The view.
        view: View,
        /// How many chunks there are.
        chunks: u32,
    },
    /// Views of one step with different chunks.
    #[error("{step} moves {first} and {view}, whose chunks differ: chunks stay in their place, so use the same range in every view")]
    UnlikeChunks {
        /// The step.
        step: StepName,
        /// Its first source.
        first: View,
        /// A view with other chunks.
        view: View,
    },
    /// A view of a user buffer that, by the contract, does not hold those chunks.
    #[error("{step} touches {view}, and that buffer does not hold these chunks: see the contract of the collective")]
    NotHeld {
        /// The step.
        step: StepName,
        /// The view.
        view: View,
    },
    /// A view that the path does not reach.
    #[error("{step} touches {view}, which the {} path does not reach: {}", path.name(), reach(*path))]
    Unreachable {
        /// The step.
        step: StepName,
        /// The view.
        view: View,
        /// The path.
        path: Path,
    },
    /// A lag that the path does not have.
    #[error("{place} waits for {dependency}: here a lag is from 0 to {most}")]
    Lag {
        /// Who waits.
        place: Waiter,
        /// For what.
        dependency: Dependency,
        /// The longest lag allowed there.
        most: u32,
    },
    /// A wait for an event that never happens.
    #[error("{place} waits for {dependency}, which does not exist: name a step of the schedule")]
    NoSuchEvent {
        /// Who waits.
        place: Waiter,
        /// For what.
        dependency: Dependency,
    },
    /// Steps that wait for each other.
    #[error("these steps wait for each other for ever: {}; take one wait out of the circle", circle(steps))]
    Deadlock {
        /// The circle: each waits for the next, the last for the first.
        steps: Vec<StepName>,
    },
    /// A rank touches another, or waits for it, before it knows that the other is in the same call.
    #[error("{place} touches or waits for rank {rank} without contact: let it, or a step of its rank before it, wait for r{rank}.enter")]
    NoContact {
        /// Who does.
        place: Waiter,
        /// The other rank.
        rank: u32,
    },
    /// Two accesses to one cell that nothing orders, one of them a write.
    #[error(
        "{second} {second_access} {cell} and {first} {first_access} it{}, in no order: let {second} wait for {first}{}",
        tiles_before(*lag),
        at_lag(*lag)
    )]
    Race {
        /// The step that comes first in the order of the proof.
        first: StepName,
        /// What it does.
        first_access: Access,
        /// The other step.
        second: StepName,
        /// What that one does.
        second_access: Access,
        /// Where they meet.
        cell: BufferChunk,
        /// How many tiles lie between them.
        lag: u32,
    },
    /// Two destinations of one step that are the same memory.
    #[error("{step} writes {cell} twice: list each destination once")]
    WrittenTwice {
        /// The step.
        step: StepName,
        /// Where.
        cell: BufferChunk,
    },
    /// A write to an input that is not also output.
    #[error("{step} writes {cell}, and an input stays as it is {}: write output or scratch", unless(*aliasing))]
    InputWritten {
        /// The step.
        step: StepName,
        /// Where.
        cell: BufferChunk,
        /// The aliasing.
        aliasing: Aliasing,
    },
    /// A read of memory that no one has written.
    #[error("{step} reads {cell}, which nothing has written before: let a step write it first")]
    Unwritten {
        /// The step.
        step: StepName,
        /// Where.
        cell: BufferChunk,
    },
    /// A reduction in a collective that only moves.
    #[error("{step} folds or finishes, and {collective} only copies: use one source, and no final")]
    FoldInCopy {
        /// The step.
        step: StepName,
        /// The collective.
        collective: &'static str,
    },
    /// A contribution in a fold more than once.
    #[error("{step} folds the contribution of rank {rank} into {cell} a second time{}: fold each rank's once", written(*brought))]
    Repeated {
        /// The step.
        step: StepName,
        /// Where the result goes.
        cell: BufferChunk,
        /// Whose contribution.
        rank: u32,
        /// A source that brings it and that a step before wrote, and the step that wrote it last.
        brought: Option<(BufferChunk, StepName)>,
    },
    /// Work on a value that `final` has completed.
    #[error("{step} folds or finishes {cell}, which is final already{}: only copy it", since(*writer))]
    AfterFinal {
        /// The step.
        step: StepName,
        /// The source.
        cell: BufferChunk,
        /// The step that wrote it last.
        writer: Option<StepName>,
    },
    /// `final` on a fold that lacks contributions.
    #[error("{step} is final, and {cell} lacks the contribution of rank {missing}: mark only the step that completes the fold")]
    FinalTooEarly {
        /// The step.
        step: StepName,
        /// Where the result goes.
        cell: BufferChunk,
        /// A rank whose contribution is missing.
        missing: u32,
    },
    /// `final` where no fold is complete for all.
    #[error(
        "{step} is final, and in {collective} what is complete for one rank is partial for the next: mark none final"
    )]
    FinalPrefix {
        /// The step.
        step: StepName,
        /// The collective.
        collective: &'static str,
    },
    /// A complete fold that is not final.
    #[error("{step} completes the fold of {cell} and is not final: mark it final")]
    NotFinal {
        /// The step.
        step: StepName,
        /// Where the result goes.
        cell: BufferChunk,
    },
    /// A contribution mark that does not fit the value.
    #[error("{step} marks {cell} as {}, and it is {}: each contribution is marked where it is folded, once", mark(*found), mark(*expected))]
    Mark {
        /// The step.
        step: StepName,
        /// The source.
        cell: BufferChunk,
        /// The mark.
        found: Option<u32>,
        /// What it must be.
        expected: Option<u32>,
    },
    /// An output without the promised value.
    #[error("{cell} {}", wrong_output(found, expected, lacks))]
    WrongOutput {
        /// The output.
        cell: BufferChunk,
        /// What it holds.
        found: String,
        /// What the contract promises.
        expected: String,
        /// The ranks whose contribution it lacks.
        lacks: Vec<u32>,
    },
    /// Ranks that receive a chunk in different orders.
    #[error("{cell} ends as {found} and {other} as {other_found}: every rank must receive the same expression")]
    Disagreement {
        /// An output.
        cell: BufferChunk,
        /// What it holds.
        found: String,
        /// The same chunk of another rank's output.
        other: BufferChunk,
        /// What that one holds.
        other_found: String,
    },
    /// A leave that does not wait for the last access.
    #[error("r{rank} may leave while {step} still {access} {cell}: let leave r{rank} wait for {step}")]
    LeavesEarly {
        /// The rank.
        rank: u32,
        /// The step of another rank.
        step: StepName,
        /// What it does.
        access: Access,
        /// Where.
        cell: BufferChunk,
    },
    /// A leave before everyone's enter, where the collective promises otherwise.
    #[error("r{rank} may leave before r{other} has entered, and {collective} promises that it does not: let leave r{rank} wait for r{other}.enter")]
    NotSynchronised {
        /// Who may leave.
        rank: u32,
        /// Who may not have entered.
        other: u32,
        /// The collective.
        collective: &'static str,
    },
    /// Two calls, two apart, that meet in one bank of staging.
    #[error("{second} of the third call {second_access} {cell} while {first} of the first call may still use it: let a rank wait for stamps before it stores into staging")]
    StagingOverrun {
        /// The step of the earlier call.
        first: StepName,
        /// The step of the later call.
        second: StepName,
        /// What that one does.
        second_access: Access,
        /// Where.
        cell: BufferChunk,
    },
    /// A call record that is overwritten before everybody has read it.
    #[error("r{rank} enters the third call and overwrites its record of the first, which {reader} may not have read yet: let a rank wait for stamps before it enters")]
    RecordOverrun {
        /// Whose record.
        rank: u32,
        /// Who reads it, in the first call.
        reader: Waiter,
    },
}

impl Violation {
    /// Returns the steps and leaves that the message names, the one to change first.
    pub fn places(&self) -> Vec<Waiter> {
        use Violation as V;
        let steps = |all: &[StepName]| all.iter().copied().map(Waiter::Step).collect();
        match self {
            V::WorldSize(_)
            | V::NoChunks
            | V::Slots { .. }
            | V::TooLarge { .. }
            | V::Leaves { .. }
            | V::WrongOutput { .. }
            | V::Disagreement { .. } => Vec::new(),
            V::NoSuchRank { step, .. }
            | V::Misnumbered { step }
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
            V::Lag { place, .. } | V::NoSuchEvent { place, .. } | V::NoContact { place, .. } => vec![*place],
            V::Deadlock { steps: circle } => steps(circle),
            V::Race { first, second, .. } | V::StagingOverrun { first, second, .. } => steps(&[*second, *first]),
            V::LeavesEarly { rank, step, .. } => vec![Waiter::Leave(*rank), Waiter::Step(*step)],
            V::NotSynchronised { rank, .. } => vec![Waiter::Leave(*rank)],
            V::RecordOverrun { reader, .. } => vec![*reader],
        }
    }
}

/// A schedule that is not proved, and why.
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
    /// What is wrong.
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

/// Says what is wrong with an output: what it lacks, if it holds something and lacks a contribution.
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
        Path::Staged => "a step touches the buffers of its own rank, and anybody's staging",
        Path::Pushed => "a step touches the buffers of its own rank, and stores to anybody's staging",
    }
}

fn slots_of(path: Path) -> String {
    match path {
        Path::Mapped => "the mapped path has no staging: leave them out".to_owned(),
        Path::Staged | Path::Pushed => format!("staging has from 1 to {MAX_SLOTS}: choose as many"),
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

//! Mutants: schedules with one thing wrong, made from right ones, by kind.
//!
//! Every kind lists all places where it applies and what to change there. Most mutants are wrong; some are not (a wait that
//! others imply, two sources in another order), and only running them can tell. A mutant never names a rank, a chunk or a step
//! that does not exist: refuting those would be too easy.

use std::collections::BTreeSet;

use crate::random::Random;
use nvcoll_core::schedule::{Aliasing, Buffer, Dependency, Event, Schedule, Step};

/// What is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A wait for a step of another rank is dropped.
    DropDependency,
    /// A wait for another queue of the own rank is dropped.
    DropOwnQueue,
    /// A wait is for the step before the right one in its queue.
    WaitForLess,
    /// A step works on the neighbouring chunk.
    WrongChunk,
    /// A source is read from another rank.
    WrongRank,
    /// A source is read from the input instead of the output, or the other way round; not where both are the same memory.
    WrongBuffer,
    /// Two sources change places, and their marks with them.
    SwapSources,
    /// Two steps of a queue change places.
    SwapSteps,
    /// A layer of scratch or staging is folded onto the one below.
    CollapseLayer,
    /// All waits for earlier tiles reach twice as far back: what staging with half of its slots amounts to.
    ShrinkSlots,
    /// A lag is one shorter, or none.
    ShortenLag,
    /// A lag is one longer.
    LengthenLag,
    /// A contribution is folded twice, beside or instead of another.
    DuplicateContribution,
    /// One of several sources or destinations is left out.
    DropView,
    /// A wait for an enter is dropped.
    DropEnter,
    /// A leave does not wait for a step.
    DropLeave,
    /// `final` is flipped.
    FlipFinal,
    /// A contribution mark is dropped, invented, or of another rank.
    FlipContribution,
    /// A step that comes after the enter of its rank becomes an early step; who waited for it waits for the enter.
    BecomeEarly,
    /// The early steps of a rank come after its enter, which its readers still wait for.
    BecomeLate,
}

impl Kind {
    /// Every kind.
    pub(crate) const ALL: &'static [Kind] = &[
        Kind::DropDependency,
        Kind::DropOwnQueue,
        Kind::WaitForLess,
        Kind::WrongChunk,
        Kind::WrongRank,
        Kind::WrongBuffer,
        Kind::SwapSources,
        Kind::SwapSteps,
        Kind::CollapseLayer,
        Kind::ShrinkSlots,
        Kind::ShortenLag,
        Kind::LengthenLag,
        Kind::DuplicateContribution,
        Kind::DropView,
        Kind::DropEnter,
        Kind::DropLeave,
        Kind::FlipFinal,
        Kind::FlipContribution,
        Kind::BecomeEarly,
        Kind::BecomeLate,
    ];
}

/// Stands for every rank.
const EVERY_RANK: u32 = u32::MAX;

/// A change to a schedule.
type Change = Box<dyn Fn(&mut Schedule)>;

/// Makes the mutants of a kind in a random order, always the same for a seed, without mutants that equal the original.
pub(crate) fn mutants(original: &Schedule, kind: Kind, seed: u64) -> impl Iterator<Item = Schedule> + '_ {
    let (mut changes, mut random) = (changes(original, kind), Random::new(seed));
    let next = move || (!changes.is_empty()).then(|| changes.swap_remove(random.below(changes.len())));
    let mutate = move |change: Change| {
        let mut mutant = original.clone();
        change(&mut mutant);
        (mutant != *original).then_some(mutant)
    };
    std::iter::from_fn(next).filter_map(mutate)
}

fn changes(schedule: &Schedule, kind: Kind) -> Vec<Change> {
    let per_step = schedule.steps.iter().enumerate().flat_map(|(at, step)| changes_of_step(schedule, at, step, kind));
    let leaves = schedule.leave.iter().enumerate().flat_map(|(rank, leave)| {
        (0..leave.len()).filter_map(move |nth| match (kind, leave[nth].event) {
            (Kind::DropLeave, Event::Step { .. }) | (Kind::DropEnter, Event::Enter) => {
                let drop_wait = move |s: &mut Schedule| {
                    s.leave[rank].remove(nth);
                };
                Some(Box::new(drop_wait) as Change)
            }
            _ => None,
        })
    });
    let mut changes: Vec<Change> = per_step.chain(leaves).collect();
    match kind {
        Kind::ShrinkSlots => {
            changes.push(Box::new(|s| s.steps.iter_mut().flat_map(|step| &mut step.after).for_each(|d| d.lag *= 2)))
        }
        Kind::CollapseLayer => changes.extend(collapses(schedule)),
        Kind::BecomeLate => {
            let ranks = (0..schedule.early.len()).filter(|&rank| schedule.early[rank].is_some());
            changes.extend(ranks.map(|rank| Box::new(move |s: &mut Schedule| s.early[rank] = None) as Change));
        }
        _ => {}
    }
    changes
}

fn changes_of_step(schedule: &Schedule, at: usize, step: &Step, kind: Kind) -> Vec<Change> {
    let waits = || step.after.iter().enumerate();
    let sources = 0..step.src.len();
    let change_step = |change: fn(&mut Step, usize), nth: usize| {
        Box::new(move |s: &mut Schedule| change(&mut s.steps[at], nth)) as Change
    };
    let drop_waits = |is_meant: &dyn Fn(&Dependency) -> bool| {
        let meant = waits().filter(|(_, d)| is_meant(d)).map(|(nth, _)| nth);
        meant.map(|nth| change_step(drop_wait, nth)).collect()
    };
    let n = schedule.world_size;
    match kind {
        Kind::DropDependency => drop_waits(&|d| d.event != Event::Enter && d.rank != step.rank),
        Kind::DropOwnQueue => drop_waits(&|d| d.event != Event::Enter && d.rank == step.rank),
        Kind::DropEnter => drop_waits(&|d| d.event == Event::Enter),
        Kind::WaitForLess => waits().map(|(nth, _)| change_step(wait_for_less, nth)).collect(),
        Kind::ShortenLag => {
            let lagging = waits().filter(|(_, d)| d.lag > 0).map(|(nth, _)| nth);
            let shorter = |nth| {
                [change_step(|s, nth| s.after[nth].lag -= 1, nth), change_step(|s, nth| s.after[nth].lag = 0, nth)]
            };
            lagging.flat_map(shorter).collect()
        }
        Kind::LengthenLag => {
            let lagging = waits().filter(|(_, d)| d.lag > 0).map(|(nth, _)| nth);
            lagging.map(|nth| change_step(|s, nth| s.after[nth].lag += 1, nth)).collect()
        }
        Kind::WrongChunk => {
            let chunks = schedule.chunks();
            let shift = move |s: &mut Schedule| {
                let step = &mut s.steps[at];
                let views = step.src.iter_mut().map(|source| &mut source.view).chain(&mut step.dst);
                for view in views {
                    let start = if view.chunks.end < chunks {
                        view.chunks.start + 1
                    } else {
                        view.chunks.start.saturating_sub(1)
                    };
                    view.chunks = start..start + view.chunks.len() as u32;
                }
            };
            vec![Box::new(shift)]
        }
        Kind::WrongRank => {
            let elsewhere = move |nth: usize| {
                let change =
                    move |s: &mut Schedule| s.steps[at].src[nth].view.rank = (s.steps[at].src[nth].view.rank + 1) % n;
                Box::new(change) as Change
            };
            sources.map(elsewhere).collect()
        }
        Kind::WrongBuffer if schedule.aliasing == Aliasing::InPlace => Vec::new(),
        Kind::WrongBuffer => sources.map(|nth| change_step(exchange_buffer, nth)).collect(),
        Kind::SwapSources => {
            (1..step.src.len()).map(|nth| change_step(|step, nth| step.src.swap(nth - 1, nth), nth)).collect()
        }
        Kind::SwapSteps => {
            let is_next = |s: &Step| (s.rank, s.queue, s.index) == (step.rank, step.queue, step.index + 1);
            let next = schedule.steps.iter().position(is_next);
            next.into_iter().map(|next| Box::new(move |s: &mut Schedule| swap_places(s, at, next)) as Change).collect()
        }
        Kind::DuplicateContribution => {
            let beside = sources.clone().map(|nth| change_step(|step, nth| step.src.push(step.src[nth].clone()), nth));
            let instead =
                (1..step.src.len()).map(|nth| change_step(|step, nth| step.src[nth] = step.src[nth - 1].clone(), nth));
            beside.chain(instead).collect()
        }
        Kind::DropView => {
            let sources = sources.filter(|_| step.src.len() > 1).map(|nth| change_step(drop_source, nth));
            let destinations = (0..step.dst.len()).filter(|_| step.dst.len() > 1);
            sources.chain(destinations.map(|nth| change_step(drop_destination, nth))).collect()
        }
        Kind::FlipFinal => vec![change_step(|step, _| step.is_final = !step.is_final, 0)],
        Kind::FlipContribution => {
            let flip = |step: &mut Step, nth: usize| {
                let source = &mut step.src[nth];
                source.contribution = if source.contribution.is_some() { None } else { Some(source.view.rank) };
            };
            let rename = move |nth: usize| {
                let change = move |s: &mut Schedule| {
                    let source = &mut s.steps[at].src[nth];
                    source.contribution = source.contribution.map(|rank| (rank + 1) % n);
                };
                Box::new(change) as Change
            };
            sources.flat_map(|nth| [change_step(flip, nth), rename(nth)]).collect()
        }
        Kind::BecomeEarly => {
            let early = schedule.early_queue(step.rank).filter(|&early| early > step.queue && step.index == 0);
            early.map(|_| Box::new(move |s: &mut Schedule| become_early(s, at)) as Change).into_iter().collect()
        }
        Kind::CollapseLayer | Kind::ShrinkSlots | Kind::DropLeave | Kind::BecomeLate => Vec::new(),
    }
}

fn drop_wait(step: &mut Step, nth: usize) {
    step.after.remove(nth);
}

fn drop_source(step: &mut Step, nth: usize) {
    step.src.remove(nth);
}

fn drop_destination(step: &mut Step, nth: usize) {
    step.dst.remove(nth);
}

fn wait_for_less(step: &mut Step, nth: usize) {
    if let Event::Step { index, .. } = &mut step.after[nth].event {
        *index = index.saturating_sub(1);
    }
}

fn exchange_buffer(step: &mut Step, nth: usize) {
    let buffer = &mut step.src[nth].view.buffer;
    *buffer = match *buffer {
        Buffer::Input => Buffer::Output,
        Buffer::Output => Buffer::Input,
        other => other,
    };
}

fn swap_places(schedule: &mut Schedule, a: usize, b: usize) {
    let (index_a, index_b) = (schedule.steps[a].index, schedule.steps[b].index);
    (schedule.steps[a].index, schedule.steps[b].index) = (index_b, index_a);
}

/// Moves the first step of a queue to the end of the early queue of its rank, which is the last.
fn become_early(schedule: &mut Schedule, at: usize) {
    let (rank, queue) = (schedule.steps[at].rank, schedule.steps[at].queue);
    let is_empty = !schedule.steps.iter().any(|s| (s.rank, s.queue, s.index) == (rank, queue, 1));
    let early = schedule.early_queue(rank).unwrap() - u32::from(is_empty);
    let moved = |(q, index): (u32, u32)| match q {
        q if q == queue => (q, index.wrapping_sub(1)),
        q => (q - u32::from(is_empty && q > queue), index),
    };
    let length = schedule.steps.iter().filter(|s| (s.rank, s.queue) == (rank, early + u32::from(is_empty))).count();
    for step in schedule.steps.iter_mut().filter(|step| step.rank == rank) {
        (step.queue, step.index) = moved((step.queue, step.index));
    }
    let step = &mut schedule.steps[at];
    (step.queue, step.index) = (early, length as u32);
    step.after.clear();
    schedule.early[rank as usize] = Some(early);
    let waits = schedule.steps.iter_mut().map(|step| &mut step.after).chain(&mut schedule.leave).flatten();
    for wait in waits.filter(|wait| wait.rank == rank) {
        if let Event::Step { queue: q, index } = wait.event {
            let is_moved = (q, index) == (queue, 0);
            let (queue, index) = moved((q, index));
            wait.event = if is_moved { Event::Enter } else { Event::Step { queue, index } };
        }
    }
}

/// Layer k becomes layer k-1, for all ranks together and for each rank alone.
fn collapses(schedule: &Schedule) -> Vec<Change> {
    let whose = |rank: u32| move |other: u32| rank == EVERY_RANK || rank == other;
    let ranks = (0..schedule.world_size).chain([EVERY_RANK]);
    let lower = |buffer| match buffer {
        Buffer::Scratch(k) if k > 0 => Some((buffer, Buffer::Scratch(k - 1))),
        Buffer::Staging(k) if k > 0 => Some((buffer, Buffer::Staging(k - 1))),
        _ => None,
    };
    let buffers: BTreeSet<Buffer> = schedule.steps.iter().flat_map(Step::views).map(|view| view.buffer).collect();
    let pairs: Vec<(Buffer, Buffer)> = buffers.into_iter().filter_map(lower).collect();
    let collapse = |rank: u32, (from, to): (Buffer, Buffer)| {
        let is_meant = whose(rank);
        let change = move |s: &mut Schedule| {
            for step in &mut s.steps {
                let views = step.src.iter_mut().map(|source| &mut source.view).chain(&mut step.dst);
                views.filter(|v| v.buffer == from && is_meant(v.rank)).for_each(|v| v.buffer = to);
            }
        };
        Box::new(change) as Change
    };
    ranks.flat_map(|rank| pairs.iter().map(move |&pair| collapse(rank, pair))).collect()
}

//! Well-formedness: the rules that each step must keep on its own.
//!
//! - Queues are numbered without gaps. Ranks, chunks and awaited events exist.
//! - A step accesses only those chunks of a user buffer that the contract lists.
//! - All views of a step name the same chunks, because the lengths of chunks differ: the j-th chunk of every source goes to the
//!   j-th chunk of every destination.
//! - The path reaches every view. An input is written only where it is also the output.
//!
//! A well-formed schedule can be numbered densely; the rest of the proof relies on that.

use super::graph::name_of;
use super::location::{Access, BufferChunk, StepName, Waiter};
use super::memory::Memory;
use super::report::Violation;
use crate::limits::MAX_WORLD_SIZE;
use crate::schedule::{Aliasing, Buffer, Dependency, Event, Path, Schedule, Step, View, MAX_SLOTS};

/// Checks the rules that must hold before the schedule can be numbered.
pub(super) fn check_places(schedule: &Schedule) -> Result<(), Violation> {
    let world_size = schedule.world_size;
    if !(1..=MAX_WORLD_SIZE).contains(&world_size) {
        return Err(Violation::WorldSize(world_size));
    }
    if schedule.chunks_per_part == 0 {
        return Err(Violation::NoChunks);
    }
    if schedule.leave.len() != world_size as usize {
        return Err(Violation::Leaves { found: schedule.leave.len(), expected: world_size });
    }
    let is_mapped = schedule.path == Path::Mapped;
    if is_mapped != (schedule.slots == 0) || schedule.slots > MAX_SLOTS {
        return Err(Violation::Slots { path: schedule.path, found: schedule.slots });
    }
    if !schedule.early.is_empty() && schedule.early.len() != world_size as usize {
        return Err(Violation::EarlyQueues { found: schedule.early.len(), expected: world_size });
    }
    // The proof numbers the steps of all its tiles consecutively.
    let (steps, most) = (schedule.steps.len() as u128, u128::from(u32::MAX / (schedule.slots + 2).max(8)));
    if steps > most {
        return Err(Violation::TooLarge { what: "steps", found: steps, most });
    }
    check_numbering(schedule)
}

/// Checks every step and every leave.
pub(super) fn check_steps(schedule: &Schedule, memory: &Memory) -> Result<(), Violation> {
    let lengths = QueueLengths::of(schedule);
    let has_steps = |rank: u32, queue: u32| lengths.0[rank as usize].len() > queue as usize;
    let is_missing = |&rank: &u32| schedule.early_queue(rank).is_some_and(|queue| !has_steps(rank, queue));
    if let Some(rank) = (0..schedule.world_size).find(is_missing) {
        return Err(Violation::NoSuchEarlyQueue { rank });
    }
    for step in &schedule.steps {
        let place = Waiter::Step(name_of(step));
        check_views(schedule, memory, step)?;
        if schedule.early_queue(step.rank) == Some(step.queue) {
            check_early(step)?;
        }
        let longest_lag = if schedule.has_early_steps() { 0 } else { schedule.slots };
        step.after.iter().try_for_each(|wait| lengths.check(place, wait, longest_lag))?;
    }
    for (rank, after) in schedule.leave.iter().enumerate() {
        after.iter().try_for_each(|wait| lengths.check(Waiter::Leave(rank as u32), wait, 0))?;
    }
    Ok(())
}

/// Checks that an early step waits for nothing. So it has contact with nobody, and touches the memory of its own rank alone.
fn check_early(step: &Step) -> Result<(), Violation> {
    let waits = |&dependency| Err(Violation::EarlyStepWaits { step: name_of(step), dependency });
    step.after.first().map_or(Ok(()), waits)
}

/// Checks that queues, and the steps of each queue, are numbered from 0 without gaps or repetition.
fn check_numbering(schedule: &Schedule) -> Result<(), Violation> {
    if let Some(step) = schedule.steps.iter().find(|step| step.rank >= schedule.world_size) {
        return Err(no_such_rank(schedule, step, step.rank));
    }
    let mut places: Vec<(u32, u32, u32)> = schedule.steps.iter().map(|s| (s.rank, s.queue, s.index)).collect();
    places.sort_unstable();
    let mut before = None;
    for &(rank, queue, index) in &places {
        let is_next = match before {
            Some((r, q, i)) if (r, q) == (rank, queue) => index == i + 1,
            Some((r, q, _)) if r == rank => queue == q + 1 && index == 0,
            _ => queue == 0 && index == 0,
        };
        if !is_next {
            return Err(Violation::Misnumbered { step: StepName { rank, queue, index } });
        }
        before = Some((rank, queue, index));
    }
    Ok(())
}

fn no_such_rank(schedule: &Schedule, step: &Step, rank: u32) -> Violation {
    Violation::NoSuchRank { step: name_of(step), rank, world_size: schedule.world_size }
}

fn check_views(schedule: &Schedule, memory: &Memory, step: &Step) -> Result<(), Violation> {
    let (name, chunks) = (name_of(step), memory.chunks());
    if step.src.is_empty() || step.dst.is_empty() {
        return Err(Violation::Idle { step: name, src: step.src.len(), dst: step.dst.len() });
    }
    let first = &step.src[0].view;
    let roles = step.src.iter().map(|_| Access::Reads).chain(step.dst.iter().map(|_| Access::Writes));
    for (view, access) in step.views().zip(roles) {
        let of = || view.clone();
        if view.rank >= schedule.world_size {
            return Err(no_such_rank(schedule, step, view.rank));
        }
        if view.chunks.is_empty() || view.chunks.end > chunks {
            return Err(Violation::OutOfBounds { step: name, view: of(), chunks });
        }
        if view.chunks != first.chunks {
            return Err(Violation::UnlikeChunks { step: name, first: first.clone(), view: of() });
        }
        if !memory.holds(view) {
            return Err(Violation::NotHeld { step: name, view: of() });
        }
        if !is_reachable(schedule.path, step.rank, view, access) {
            return Err(Violation::Unreachable { step: name, view: of(), path: schedule.path });
        }
    }
    let is_kept = |view: &&View| view.buffer == Buffer::Input;
    step.dst.iter().filter(is_kept).try_for_each(|view| check_input_is_output(schedule.aliasing, memory, step, view))
}

fn is_reachable(path: Path, rank: u32, view: &View, access: Access) -> bool {
    match path {
        Path::Mapped => !view.buffer.is_staging(),
        Path::Staged => view.rank == rank || view.buffer.is_staging(),
        Path::Pushed => view.rank == rank || view.buffer.is_staging() && access == Access::Writes,
    }
}

fn check_input_is_output(aliasing: Aliasing, memory: &Memory, step: &Step, view: &View) -> Result<(), Violation> {
    match view.chunks.clone().find(|&chunk| !memory.is_aliased(view.rank, chunk)) {
        None => Ok(()),
        Some(chunk) => {
            Err(Violation::InputWritten { step: name_of(step), cell: BufferChunk::of(view, chunk), aliasing })
        }
    }
}

/// The length of each queue of each rank, and the early queues, for whose steps nobody waits.
struct QueueLengths<'a>(Vec<Vec<u32>>, &'a Schedule);

impl<'a> QueueLengths<'a> {
    fn of(schedule: &'a Schedule) -> Self {
        let mut lengths = vec![Vec::new(); schedule.world_size as usize];
        for step in &schedule.steps {
            let of_rank: &mut Vec<u32> = &mut lengths[step.rank as usize];
            of_rank.resize(of_rank.len().max(step.queue as usize + 1), 0);
            of_rank[step.queue as usize] += 1;
        }
        Self(lengths, schedule)
    }

    /// Checks that an awaited event exists and that its lag is possible; a wait for an enter has no lag.
    fn check(&self, place: Waiter, wait: &Dependency, slots: u32) -> Result<(), Violation> {
        let exists = match wait.event {
            Event::Enter => (wait.rank as usize) < self.0.len(),
            Event::Step { queue, index } => {
                let length = self.0.get(wait.rank as usize).and_then(|queues| queues.get(queue as usize));
                length.is_some_and(|&length| index < length)
            }
        };
        let most = if wait.event == Event::Enter { 0 } else { slots };
        let is_early = |queue| self.1.early_queue(wait.rank) == Some(queue);
        if !exists {
            Err(Violation::NoSuchEvent { place, dependency: *wait })
        } else if wait.lag > most {
            Err(Violation::Lag { place, dependency: *wait, most })
        } else if matches!(wait.event, Event::Step { queue, .. } if is_early(queue)) {
            Err(Violation::WaitsForEarlyStep { place, dependency: *wait })
        } else {
            Ok(())
        }
    }
}

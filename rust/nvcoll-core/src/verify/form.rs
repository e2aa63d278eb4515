//! Form: everything a schedule names exists, and every step can be executed as an instruction.

use super::violation::{StepName, Violation};
use crate::schedule::{Aliasing, Buffer, Dependency, Event, Path, Schedule, Step, View};

pub(super) fn check(schedule: &Schedule) -> Result<(), Violation> {
    let malformed = |at: String, what: String| Violation::Malformed { at, what };
    let n = schedule.world_size;
    if n == 0 || schedule.chunks_per_part == 0 || schedule.leave.len() != n as usize {
        return Err(malformed("the schedule".into(), "it has no ranks, no chunks, or not one leave per rank".into()));
    }
    if let Some(step) = schedule.steps.iter().find(|step| step.rank >= n || step.queue >= 1 << 16) {
        return Err(malformed(StepName::of(step).to_string(), format!("ranks are 0..{n}, queues below 65536")));
    }
    if let Some(step) = schedule.steps.iter().find(|step| step.index as usize >= schedule.steps.len()) {
        return Err(malformed(StepName::of(step).to_string(), "its index is beyond the number of steps".into()));
    }
    let queues = schedule.queues();
    let filled: usize = queues.iter().flatten().flatten().filter(|&&p| p != usize::MAX).count();
    let places: usize = queues.iter().flatten().map(Vec::len).sum();
    if filled != schedule.steps.len() || places != filled {
        return Err(malformed("the queues".into(), "a place is empty or taken twice".into()));
    }
    let held = Held::of(schedule);
    let exists = |dependency: &Dependency| match dependency.event {
        Event::Enter => dependency.rank < n && dependency.lag == 0,
        Event::Step { queue, index } => {
            let queue = queues.get(dependency.rank as usize).and_then(|rank| rank.get(queue as usize));
            let lag_is_possible = dependency.lag == 0 || schedule.path == Path::Staged;
            queue.is_some_and(|queue| (index as usize) < queue.len()) && lag_is_possible
        }
    };
    for step in &schedule.steps {
        let at = || StepName::of(step).to_string();
        check_step(schedule, &held, step).map_err(|what| malformed(at(), what))?;
        if let Some(wait) = step.after.iter().find(|d| !exists(d)) {
            return Err(malformed(at(), format!("it waits for {wait:?}, which does not exist")));
        }
    }
    for (rank, leave) in schedule.leave.iter().enumerate() {
        if let Some(wait) = leave.iter().find(|d| !exists(d) || d.lag != 0) {
            return Err(malformed(format!("the leave of rank {rank}"), format!("it waits for {wait:?}, which does not exist")));
        }
    }
    Ok(())
}

/// Which parts every rank's input and output hold.
pub(super) struct Held {
    parts: u32,
    per_part: u32,
    is_held: [Vec<bool>; 2],
}

impl Held {
    pub(super) fn of(schedule: &Schedule) -> Self {
        let (n, collective) = (schedule.world_size, schedule.collective);
        let parts = collective.parts(n);
        let table = |held: &dyn Fn(u32) -> Vec<u32>| {
            let mut table = vec![false; n as usize * parts as usize];
            for rank in 0..n {
                for part in held(rank) {
                    table[(rank * parts + part) as usize] = true;
                }
            }
            table
        };
        let is_held = [table(&|rank| collective.input(n, rank)), table(&|rank| collective.output(n, rank))];
        Self { parts, per_part: schedule.chunks_per_part, is_held }
    }

    pub(super) fn holds(&self, rank: u32, buffer: Buffer, chunk: u32) -> bool {
        let at = (rank * self.parts + chunk / self.per_part) as usize;
        match buffer {
            Buffer::Input => self.is_held[0][at],
            Buffer::Output => self.is_held[1][at],
            Buffer::Scratch(_) | Buffer::Staging(_) => true,
        }
    }

    /// The buffer whose memory it is: in place, what both hold is the input's.
    pub(super) fn memory(&self, aliasing: Aliasing, rank: u32, buffer: Buffer, chunk: u32) -> Buffer {
        let is_shared = aliasing == Aliasing::InPlace && buffer == Buffer::Output && self.holds(rank, Buffer::Input, chunk);
        if is_shared { Buffer::Input } else { buffer }
    }
}

fn check_step(schedule: &Schedule, held: &Held, step: &Step) -> Result<(), String> {
    let (Some(_), Some(first)) = (step.src.first(), step.dst.first()) else {
        return Err("it needs a source and a destination".into());
    };
    for view in step.views() {
        let is_reachable = match (schedule.path, view.buffer.is_staging()) {
            (Path::Mapped, is_staging) => !is_staging,
            (Path::Staged, is_staging) => is_staging || view.rank == step.rank,
        };
        if view.rank >= schedule.world_size || view.chunks.is_empty() || view.chunks.end > schedule.chunks() {
            return Err(format!("{view:?} is out of bounds"));
        }
        if view.chunks != first.chunks {
            return Err(format!("{view:?} and {first:?} are not the same chunks"));
        }
        if !is_reachable {
            return Err(format!("{view:?} cannot be reached on the {} path", schedule.path.name()));
        }
        if view.chunks.clone().any(|chunk| !held.holds(view.rank, view.buffer, chunk)) {
            return Err(format!("{view:?} is not held there by the contract"));
        }
    }
    let memory = |view: &View| (view.rank, held.memory(schedule.aliasing, view.rank, view.buffer, view.chunks.start));
    let mut destinations: Vec<_> = step.dst.iter().map(memory).collect();
    destinations.sort_unstable();
    if destinations.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err("two destinations are the same memory".into());
    }
    let writes_input = |view: &View| view.buffer == Buffer::Input && schedule.aliasing == Aliasing::Disjoint;
    if step.dst.iter().any(writes_input) {
        return Err("it writes an input that is not to be changed".into());
    }
    Ok(())
}

//! Dependencies and queues, derived from a sequential program.
//!
//! ```text
//! for every step, in program order:
//!     a read of a cell depends on the last writer of the cell; a write depends on the readers since then, or on the last writer
//! level of a step  = 1 + the highest level it depends on           (a textbook's "at time t")
//! queue of a step  = (channel, role), role = publish | fold | copy  (so that tiles stream through phases side by side)
//! order in a queue = by level, then program order
//! ```
//!
//! A cell is one chunk of one buffer of one rank; in place, input and output are one cell. On a path with p slots, the first write of
//! a staging cell also depends on the last accesses to it, p tiles back. A dependency in the same tile is dropped if other
//! dependencies or the queue imply it. A step that has contact with another rank waits for that rank's `enter`, once per queue. A
//! rank's `leave` depends on the last steps of other ranks that access its buffers or scratch.
//!
//! The verifier trusts nothing of this and shares no code with it.

mod draft;
mod hazards;
mod queues;
mod reduction;
mod waits;

use crate::collective::Folds;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::schedule::{Schedule, Source, Step, View};

pub(crate) use draft::Draft;
use hazards::{Hazards, StepValue};
use waits::Waits;

/// Derives queues, dependencies and marks of a program, and returns its schedule; `schedule` has no steps yet.
///
/// # Errors
/// [`Error::Step`] if a step reads an unwritten chunk, or a view whose chunks hold different kinds of values;
/// [`Error::Interrupted`] if the caller stops the work.
pub(crate) fn derive(mut schedule: Schedule, drafts: Vec<Draft<View>>, interrupt: &Interrupt) -> Result<Schedule> {
    let mut hazards = Hazards::new(&schedule, &drafts);
    let mut needs = Vec::with_capacity(drafts.len());
    let mut steps = Vec::with_capacity(drafts.len());
    for (position, draft) in drafts.iter().enumerate() {
        interrupt.check(1 + draft.src.len() + draft.dst.len())?;
        let at_step = |message| Error::Step { step: position, message };
        let value = hazards.value_of(draft).map_err(at_step)?;
        needs.push(hazards.record(position as u32, draft, &value));
        steps.push(step_of(draft, &value, schedule.collective.folds == Folds::Everyone));
    }
    reduction::reduce(&mut needs, interrupt)?;
    let order = queues::assign(&drafts, &needs, &mut steps);
    let reuse = hazards.slot_reuse();
    let mut waits = Waits::new(&schedule, &steps);
    for position in order {
        interrupt.check(1 + needs[position as usize].len())?;
        waits.settle_step(&mut steps, position, &needs, &reuse);
    }
    let leave = |rank| {
        let visitors = hazards.visitors(rank);
        interrupt.check(1 + visitors.len())?;
        Ok(waits.before_leave(&steps, rank, visitors))
    };
    schedule.leave = (0..schedule.world_size).map(leave).collect::<Result<_>>()?;
    schedule.steps = steps;
    Ok(schedule)
}

/// Makes a step of a draft. Contributions are marked in folds that will be complete, because only there `premul_sum` is defined.
fn step_of(draft: &Draft<View>, value: &StepValue, completes: bool) -> Step {
    let scales = completes && draft.src.len() > 1 || value.is_final;
    let source =
        |(view, &raw): (&View, &Option<u32>)| Source { view: view.clone(), contribution: raw.filter(|_| scales) };
    Step {
        rank: draft.rank,
        queue: 0,
        index: 0,
        src: draft.src.iter().zip(&value.raw).map(source).collect(),
        dst: draft.dst.clone(),
        is_final: value.is_final,
        at_switch: draft.at_switch,
        after: Vec::new(),
    }
}

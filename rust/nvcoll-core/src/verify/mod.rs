//! The proof: a schedule keeps the contract of its collective, or here is why not.
//!
//! ```text
//! Schedule ─form─▶ numbered steps and cells ─graph─▶ an order of one tile          (deadlock: there is none)
//!          tile 0       every step: contact? races? values            (clocks answer "does a happen before b?")
//!          then         every output: the promised value?  every leave: late enough? after every enter?
//!          tile slots   every step again, for the slots of staging that come back
//!                                                                                      ─▶ Verified | Refutation
//! ```
//!
//! **What [`Verified`] says.** Every output chunk is the fold of exactly the contributions that the contract names, each
//! once, scaled once and completed once, or the copy it promises; the same expression on every rank that receives it; no race;
//! no deadlock; nothing touched before its rank has entered or after it has left; under the aliasing the schedule names. It
//! says so for any count, dtype, op and number of tiles.
//!
//! **Why few tiles are enough.** With p slots, slot = tile mod p, and the same steps and waits in every tile, the graph of
//! tiles t.. looks like the graph of tiles 0.., except that the first tiles lack the waits that reach back before tile 0. No
//! edge leads to an earlier tile. So what is ordered among tiles 0..=p is ordered among any p+1 tiles in a row, and a
//! conflict further apart (2p tiles, 3p, …) is a chain of conflicts p apart. What holds in tile 0 alone holds at every
//! tile, and a call of one tile is the hardest to leave in time: it has the fewest waits. `tests/tile_theorem.rs`
//! compares this with brute force.
//!
//! | module | idea |
//! |---|---|
//! | `well_formed` | what can be said of a step alone |
//! | `memory` | chunks of buffers as numbered cells; aliasing |
//! | `graph` | queue order and waits; an order of one tile, or a deadlock |
//! | `clocks` | happens-before, by vector clocks of a moving front |
//! | `enter_leave` | enter and leave |
//! | `races` | conflicting accesses are ordered |
//! | `expressions`, `symbolic_run` | expressions; what every cell holds |
//! | [`succession()`] | calls that follow each other in the same staging |
//! | `report`, `location`, `missing` | what is said when it fails, and what that points at |
//!
//! It shares no code with the builder, the derivation of dependencies or the lowering, and believes nothing they wrote. Cost:
//! steps x queues for the clocks, linear in views and waits for the rest. Measured on two busy cores of a server: 8 ranks
//! 0.1 ms, all of `nvcoll verify --all` 2.3 s; 1024 ranks, mapped: 1 s for nvswitch, 5 s for the two million steps of a ring,
//! 12 s for two_shot, whose million fetches wait for a fold each; staged: 0.1 s for a tree, 15 s for a ring, 75 s for nvswitch, whose steps learn in the third tile what the first did.
//! Source: ours; the parts name theirs.
//!
//! What it does not do: prove the engine. That a step is one fold, that a wait waits, that a stamp is kept is the engine's.

mod clocks;
mod enter_leave;
mod expressions;
mod graph;
mod location;
mod memory;
mod missing;
mod races;
mod report;
mod succession;
mod symbolic_run;
mod well_formed;

use std::sync::Arc;

pub use expressions::{Expression, Term};
pub use location::{Access, BufferChunk, StepName, Waiter};
pub use missing::Missing;
pub use report::{Refutation, Violation};
pub use succession::{succession, StampRule};

use crate::algorithm::Order;
use crate::interrupt::{Interrupt, Interrupted};
use crate::schedule::Schedule;
use clocks::Clocks;
use enter_leave::Contacts;
use expressions::Expressions;
use graph::Graph;
use memory::Memory;
use races::Races;
use symbolic_run::{Outcome, SymbolicRun};

/// A schedule that has been proved, and what the proof found.
///
/// Only [`verify`] makes one.
#[derive(Debug, Clone)]
pub struct Verified {
    schedule: Arc<Schedule>,
    facts: Arc<Facts>,
}

#[derive(Debug)]
struct Facts {
    expressions: Expressions,
    outputs: Vec<Option<expressions::Id>>,
    order: Order,
    is_symmetric: bool,
}

impl Verified {
    /// Returns the schedule.
    pub fn schedule(&self) -> &Arc<Schedule> {
        &self.schedule
    }

    /// Returns what every output that holds `chunk` holds there, if any does; in a scan, that of the last rank.
    pub fn value(&self, chunk: u32) -> Option<Expression<'_>> {
        let id = self.facts.outputs.get(chunk as usize).copied().flatten();
        id.map(|id| self.facts.expressions.at(id))
    }

    /// Returns that value as text, as in `((r0 + r1) + r2)`; nothing for a chunk that no output holds.
    pub fn expression(&self, chunk: u32) -> String {
        self.value(chunk).map_or_else(String::new, |value| value.to_string())
    }

    /// Returns the order of the folds: the weakest over all chunks.
    pub fn order(&self) -> Order {
        self.facts.order
    }

    /// Says whether every chunk is one fold of ranks 0..n-1 in that order, rounded once.
    pub fn is_rank_order(&self) -> bool {
        self.facts.order == Order::Rank
    }

    /// Says whether no rank can leave before every rank has entered.
    pub fn is_symmetric(&self) -> bool {
        self.facts.is_symmetric
    }
}

/// Proves a schedule.
///
/// # Errors
/// The first rule that it breaks.
pub fn verify(schedule: impl Into<Arc<Schedule>>) -> Result<Verified, Refutation> {
    match verify_interruptible(schedule, &Interrupt::never()) {
        Ok(verified) => Ok(verified),
        Err(Unproved::Refuted(refutation)) => Err(refutation),
        Err(Unproved::Interrupted(_)) => unreachable!("this interrupt never comes"),
    }
}

/// Proves a schedule, as [`verify`] does, until it is interrupted.
///
/// # Errors
/// The first rule that the schedule breaks, or that the caller stopped the proof.
pub fn verify_interruptible(schedule: impl Into<Arc<Schedule>>, interrupt: &Interrupt) -> Result<Verified, Unproved> {
    let schedule = schedule.into();
    match prove(&schedule, schedule.slots, interrupt) {
        Ok(facts) => Ok(Verified { schedule, facts: Arc::new(facts) }),
        Err(Halt::Broken(violation)) => Err(Unproved::Refuted(Refutation::of(&schedule, violation))),
        Err(Halt::Interrupted(interrupted)) => Err(Unproved::Interrupted(interrupted)),
    }
}

/// Looks for a broken rule as if staging had `slots` slots: what a mutation test asks of a schedule made for more.
pub fn refute(schedule: &Schedule, slots: u32) -> Option<Refutation> {
    match prove(schedule, slots, &Interrupt::never()) {
        Err(Halt::Broken(violation)) => Some(Refutation::of(schedule, violation)),
        Ok(_) | Err(Halt::Interrupted(_)) => None,
    }
}

/// Why there is no proof of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unproved {
    /// The schedule breaks a rule.
    #[error(transparent)]
    Refuted(Refutation),
    /// The caller stopped the proof.
    #[error(transparent)]
    Interrupted(Interrupted),
}

/// Why a proof ends before its end.
enum Halt {
    Broken(Violation),
    Interrupted(Interrupted),
}

impl From<Violation> for Halt {
    fn from(violation: Violation) -> Self {
        Self::Broken(violation)
    }
}

impl From<Interrupted> for Halt {
    fn from(interrupted: Interrupted) -> Self {
        Self::Interrupted(interrupted)
    }
}

fn prove(schedule: &Schedule, slots: u32, interrupt: &Interrupt) -> Result<Facts, Halt> {
    well_formed::check_places(schedule)?;
    let memory = Memory::of(schedule)?;
    well_formed::check_steps(schedule, &memory)?;
    let graph = Graph::of(schedule)?;
    clocks::check_room(&graph)?;
    let contacts = Contacts::new(&graph);
    let mut clocks = Clocks::new(&graph);
    let mut races = Races::new(&graph, &memory);
    let (outcome, is_symmetric) = prove_tile(&graph, &memory, &contacts, &mut clocks, &mut races, interrupt)?;
    prove_reuse(&graph, slots, &contacts, &mut clocks, &mut races, interrupt)?;
    let symbolic_run::Outcome { expressions, outputs, order } = outcome;
    Ok(Facts { expressions, outputs, order, is_symmetric })
}

/// Proves everything but the reuse of slots.
fn prove_tile<'g, 'a>(
    graph: &'g Graph<'a>,
    memory: &'g Memory,
    contacts: &Contacts<'g, 'a>,
    clocks: &mut Clocks<'g, 'a>,
    races: &mut Races<'g, 'a>,
    interrupt: &Interrupt,
) -> Result<(Outcome, bool), Halt> {
    let mut values = SymbolicRun::new(graph, memory);
    for &step in graph.order() {
        interrupt.check(work_of(graph, step))?;
        clocks.advance(step);
        contacts.check_step(clocks, step)?;
        races.pass(clocks, step, 0)?;
        values.run(step).map_err(|found| symbolic_run::earliest(graph, memory, found))?;
    }
    // Before leaving: where a contribution never arrives, nobody waits for its rank either, and the cause is what to tell.
    let outcome = values.finish()?;
    let ranks = 0..graph.schedule.world_size;
    ranks.clone().try_for_each(|rank| contacts.check_leave(rank))?;
    let leave = |rank| {
        interrupt.check(1 + graph.schedule.leave[rank as usize].len())?;
        Ok(clocks.leave(rank))
    };
    let leaves = ranks.map(leave).collect::<Result<Vec<clocks::Clock>, Interrupted>>()?;
    let is_symmetric = enter_leave::check_leaves(graph, &leaves)?;
    Ok((outcome, is_symmetric))
}

/// Returns the units of work of a step: itself, and every chunk that it touches.
fn work_of(graph: &Graph<'_>, step: u32) -> usize {
    let step = graph.step(step);
    1 + (step.src.len() + step.dst.len()) * step.dst[0].chunks.len()
}

/// Proves that tiles which share a slot of staging keep out of each other's way.
fn prove_reuse<'g, 'a>(
    graph: &'g Graph<'a>,
    slots: u32,
    contacts: &Contacts<'g, 'a>,
    clocks: &mut Clocks<'g, 'a>,
    races: &mut Races<'g, 'a>,
    interrupt: &Interrupt,
) -> Result<(), Halt> {
    let longest_lag = graph.schedule.slots;
    for tile in 1..=if slots == 0 { 0 } else { slots.max(longest_lag) } {
        clocks.next_tile();
        for &step in graph.order() {
            interrupt.check(work_of(graph, step))?;
            clocks.advance(step);
            contacts.check_lagging(clocks, step, tile)?;
            if tile % slots == 0 {
                races.pass(clocks, step, tile)?;
            }
        }
    }
    Ok(())
}

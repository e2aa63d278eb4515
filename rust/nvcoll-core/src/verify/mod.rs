//! The proof that a schedule keeps the contract of its collective, or the reason why it does not.
//!
//! ```text
//! Schedule ─form─▶ numbered steps and cells ─graph─▶ an order of one tile          (deadlock: there is none)
//!          tile 0       every step: contact? races? values            (clocks answer "does a happen before b?")
//!          then         every output: the promised value?  every leave: late enough? after every enter?
//!          tile slots   every step again, for the slots of staging that come back
//!                                                                                      ─▶ Verified | Refutation
//! ```
//!
//! **[`Verified`] means**, for any count, dtype, op and number of tiles, under the aliasing of the schedule:
//!
//! - Every output chunk is the promised copy, or the fold of exactly the promised contributions, each once, scaled once and
//!   completed once. All ranks that receive a chunk receive the same expression.
//! - There is no race and no deadlock.
//! - No rank accesses a buffer of another before the owner's enter or after the owner's leave. Early steps touch own memory and wait
//!   for nothing.
//!
//! A schedule with early steps is proved for one tile, in which it runs.
//!
//! **Few tiles are enough.** Let there be p slots, slot = tile mod p, and equal steps and waits in every tile. Then the graph of tiles
//! t.. equals the graph of tiles 0.., except that the first tiles lack the waits that reach back before tile 0. No edge leads to an
//! earlier tile. Therefore events that are ordered among tiles 0..=p are ordered among any p+1 successive tiles. A conflict that is
//! further apart (2p tiles, 3p, …) is a chain of conflicts p apart. A rule that holds in tile 0 holds in every tile. A call of one
//! tile has the fewest waits, so it is the hardest case for leaves. `tests/tile_theorem.rs` compares this with brute force.
//!
//! **Successive calls** reuse staging and call records two calls later. The proof of each call is enough, by the **stamp rule** of the
//! engine: before a rank enters call c+2, it waits until every rank has entered c+1, unless c+1 is symmetric. If c+1 is symmetric
//! ([`Verified::is_symmetric`]), every rank has entered it when the rank leaves it. Either way every rank has entered c+1, so every rank
//! has left c. A rank leaves after its own steps and waits, so no step of c accesses staging any more, and no rank reads a record of c.
//!
//! | module | idea |
//! |---|---|
//! | `well_formed` | the rules that each step keeps on its own |
//! | `memory` | chunks of buffers as numbered cells; aliasing |
//! | `graph` | queue order and waits; an order of one tile, or a deadlock |
//! | `clocks` | happens-before, by vector clocks of a moving front |
//! | `enter_leave` | enter and leave |
//! | `races` | conflicting accesses are ordered |
//! | `expressions`, `symbolic_run` | the values of all cells, as expressions |
//! | `report`, `location`, `missing` | messages of failed proofs, and the locations that they name |
//!
//! The verifier shares no code with the builder, the derivation of dependencies or the lowering, and trusts none of them. Cost: steps
//! x queues for the clocks, linear in views and waits for the rest. Measured on one core of a server: 8 ranks 0.1 ms, all of
//! `nvcoll verify --all` 2.3 s; 384 ranks, mapped: 0.1 s for nvswitch, 0.7 s for a ring of 300,000 steps, 1.3 s for two_shot; staged:
//! 10 ms for a tree, 2 s for a ring, 3 s for nvswitch, 6 s for two_shot.
//! Source: ours; the parts name theirs.
//!
//! It does not prove the engine. It assumes that the engine executes a step as one fold, that waits wait, and that stamps are kept.

mod clocks;
mod enter_leave;
mod expressions;
mod graph;
mod location;
mod memory;
mod missing;
mod races;
mod report;
mod symbolic_run;
mod well_formed;

use std::sync::Arc;

pub use expressions::{Expression, Term};
pub use location::{Access, BufferChunk, StepName, Waiter};
pub use missing::Missing;
pub use report::{Refutation, Violation};

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

/// A proved schedule and the results of its proof.
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

    /// Returns the value of `chunk` in the outputs, if an output holds it; in a scan, the value of the last rank.
    pub fn value(&self, chunk: u32) -> Option<Expression<'_>> {
        let id = self.facts.outputs.get(chunk as usize).copied().flatten();
        id.map(|id| self.facts.expressions.at(id))
    }

    /// Returns the value of `chunk` as text such as `((r0 + r1) + r2)`; the empty string if no output holds it.
    pub fn expression(&self, chunk: u32) -> String {
        self.value(chunk).map_or_else(String::new, |value| value.to_string())
    }

    /// Returns the order of the folds, the weakest of all chunks.
    pub fn order(&self) -> Order {
        self.facts.order
    }

    /// Says whether every chunk is one fold of ranks 0..n-1 in this order, rounded once.
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
/// The first rule that the schedule breaks.
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

/// Looks for a broken rule as if staging had `slots` slots. Mutation tests use it on schedules that were made for more slots.
pub fn refute(schedule: &Schedule, slots: u32) -> Option<Refutation> {
    match prove(schedule, slots, &Interrupt::never()) {
        Err(Halt::Broken(violation)) => Some(Refutation::of(schedule, violation)),
        Ok(_) | Err(Halt::Interrupted(_)) => None,
    }
}

/// The reason why a schedule has no proof.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unproved {
    /// The schedule breaks a rule.
    #[error(transparent)]
    Refuted(Refutation),
    /// The caller stopped the proof.
    #[error(transparent)]
    Interrupted(Interrupted),
}

/// The reason why a proof stops early.
#[derive(Debug, thiserror::Error)]
enum Halt {
    #[error(transparent)]
    Broken(#[from] Violation),
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
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

/// Proves all rules of one tile.
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
    // Values before leaves: if a contribution never arrives, no rank waits for its rank either, and the message tells the cause.
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

/// Returns the units of work of a step: one for the step, and one for every chunk of its views.
fn work_of(graph: &Graph<'_>, step: u32) -> usize {
    let step = graph.step(step);
    1 + (step.src.len() + step.dst.len()) * step.dst[0].chunks.len()
}

/// Proves that tiles in the same slot of staging do not conflict.
fn prove_reuse<'g, 'a>(
    graph: &'g Graph<'a>,
    slots: u32,
    contacts: &Contacts<'g, 'a>,
    clocks: &mut Clocks<'g, 'a>,
    races: &mut Races<'g, 'a>,
    interrupt: &Interrupt,
) -> Result<(), Halt> {
    let longest_lag = graph.schedule.slots;
    let has_one_tile = slots == 0 || graph.schedule.has_early_steps();
    for tile in 1..=if has_one_tile { 0 } else { slots.max(longest_lag) } {
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

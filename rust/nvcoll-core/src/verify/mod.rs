//! The proof: a schedule over symbols, before a byte moves.
//!
//! ```text
//! form      views in bounds and reachable, queues dense, destinations apart          form.rs
//! order     no cycle inside a tile, so no deadlock; what happens before what         order.rs
//! races     conflicting accesses to a cell are ordered, over slots + 1 tiles         races.rs
//! contact   a rank is touched only between its enter and its leave                   contact.rs
//! values    every output is the promised fold, each contribution once, one `final`   values.rs
//! ```
//!
//! With p slots, lags of whole tiles, slot = tile mod p and no prologue or epilogue, the graph of tiles is shift-invariant:
//! a conflict between tiles t and t+d is one between 0 and d, and those further than p apart go through the slot's uses in
//! between. Proving p+1 tiles therefore proves any number. Source: ours; the obligation is that of software pipelining
//! (Lam 1988, modulo variable expansion).
//!
//! The verifier shares no code with the builder, the derivation or the lowering, and believes nothing that a schedule says.
//! What it does not prove: that the engine does what the schedule says; that is what the tests of the engine are for.

mod contact;
mod form;
mod order;
mod races;
mod values;
mod violation;

use std::sync::Arc;

use crate::schedule::Schedule;
use order::HappensBefore;
use values::Values;
pub use violation::{StepName, Violation};

/// A schedule that was proved, and what the proof found. Only [`verify`] makes one.
#[derive(Debug, Clone)]
pub struct Verified(Arc<Proof>);

#[derive(Debug)]
struct Proof {
    schedule: Schedule,
    values: Values,
}

impl Verified {
    /// Returns the schedule.
    pub fn schedule(&self) -> &Schedule {
        &self.0.schedule
    }

    /// Returns the fold expression of a chunk, as in `((r0 + r1) + r2)`: the same on every rank that receives it.
    pub fn expression(&self, chunk: u32) -> String {
        self.0.values.expression(chunk)
    }

    /// Says whether every chunk is the left fold over ranks 0..n-1, rounded once.
    pub fn is_rank_order(&self) -> bool {
        self.0.values.is_rank_order(&self.0.schedule)
    }

    /// Says whether no rank leaves before every rank has entered.
    pub fn is_symmetric(&self) -> bool {
        contact::is_symmetric(&self.0.schedule)
    }
}

/// Proves a schedule.
///
/// # Errors
/// The first [`Violation`] found.
pub fn verify(schedule: Schedule) -> Result<Verified, Violation> {
    let tiles = schedule.path.slots() + 1;
    let values = prove(&schedule, tiles)?;
    Ok(Verified(Arc::new(Proof { schedule, values })))
}

/// Checks a schedule over a given number of tiles; [`verify`] takes slots + 1. For tests of that theorem.
///
/// # Errors
/// The first [`Violation`] found.
pub fn check(schedule: &Schedule, tiles: u32) -> Result<(), Violation> {
    prove(schedule, tiles).map(|_| ())
}

fn prove(schedule: &Schedule, tiles: u32) -> Result<Values, Violation> {
    form::check(schedule)?;
    let mut order = HappensBefore::of(schedule, tiles)?;
    races::check(schedule, &mut order)?;
    contact::check(schedule, &mut order)?;
    Values::prove(schedule, &order)
}

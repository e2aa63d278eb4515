//! What a failing rank does last: it waits until nobody can touch its buffers, and says why it failed.

use std::ops::Range;

use crate::call::Call;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::program::Program;
use crate::sync::atomic::give_way;
use crate::sync::{Cause, Doorbell};
use crate::world::World;

/// Waits until no peer can touch the buffers of `own` ranks, which have acknowledged, and turns the cause into their error.
///
/// Peers acknowledge between two steps, each of which is at most a tile long. `number` is the call of `own`.
pub(crate) fn explain(
    world: &World,
    program: &Program,
    number: u32,
    own: &Range<u32>,
    cause: Cause,
    deadline: &Deadline,
) -> Error {
    // Its fence is also what a rank needs that only saw the abort, before it looks who is active.
    ring_everybody(world);
    while !world.lines.iter().all(|lines| lines.activity.is_quiet()) {
        give_way();
    }
    // A peer may be a call ahead or behind: records are read at the number of the call in which the trouble was seen, whose
    // place nobody reuses before everybody has entered the next.
    let call_of = |rank: u32, call: u32| {
        if own.contains(&rank) && call == number {
            return program.call().clone();
        }
        Call::from_record(&world.lines[rank as usize].record.read(call))
    };
    match cause {
        Cause::Failed(rank) => Error::Aborted { rank, cause: "failed" },
        Cause::TimedOut(rank) if rank == own.start => {
            deadline.error(program.call().clone(), missing(world, number, own))
        }
        Cause::TimedOut(rank) => Error::Aborted { rank, cause: "timed out" },
        Cause::Interrupted => Error::Interrupted,
        Cause::Called(rank) => Error::Aborted { rank, cause: "called abort" },
        Cause::Mismatch(pair) => {
            let ([rank_a, rank_b], [call_a, call_b]) = (pair.ranks, pair.ranks.map(|rank| call_of(rank, pair.call)));
            Error::Mismatch { rank_a, call_a, rank_b, call_b }
        }
        Cause::Overlap(pair) => {
            let [a, b] = pair.ranks;
            Error::Overlap { rank_a: a.min(b), rank_b: a.max(b), call: call_of(a, pair.call) }
        }
        Cause::Returned(pair) => {
            let [rank, caller] = pair.ranks;
            let calls = world.lines[rank as usize].departure.last().unwrap_or(0);
            let how = if world.is_group() { "returned, or dropped the communicator," } else { "returned" };
            Error::Returned { rank, how, calls, caller, call: call_of(caller, pair.call) }
        }
    }
}

/// Wakes all ranks, so that they see an abort or a departure.
pub(crate) fn ring_everybody(world: &World) {
    Doorbell::ring_all(world.lines.iter().map(|lines| &lines.doorbell));
}

/// Says which ranks have not entered a call of `own`.
fn missing(world: &World, number: u32, own: &Range<u32>) -> String {
    let is_missing = |rank: &u32| !own.contains(rank) && !world.lines[*rank as usize].stamp.has_entered(number);
    let ranks: Vec<String> = (0..world.world_size()).filter(is_missing).map(|rank| rank.to_string()).collect();
    match ranks[..] {
        [] => "every rank has entered the call, but they were not done".to_owned(),
        [ref one] => format!("rank {one} has not entered the call"),
        ref several => format!("ranks {} have not entered the call", several.join(", ")),
    }
}

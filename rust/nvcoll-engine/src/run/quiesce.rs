//! The end of a failed call: the rank waits until no peer can touch its buffers, and reports the cause.

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::call::{Call, PositionedCall};
use crate::deadline::Deadline;
use crate::error::Error;
use crate::memory::world::rank_lines::RankLines;
use crate::memory::world::World;
use crate::program::batch::Pass;
use crate::sync::record::{CALLS, FLAGS, PLACE};
use crate::sync::{Backoff, Cause, Doorbell, Record};

/// The longest sleep of a rank that waits for its peers to stop. Peers that acknowledge ring afterwards, and peers that
/// complete the call do not. Chosen: a step lasts no longer.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// Waits until no peer can touch the buffers of `own` ranks, which have acknowledged, and turns the cause into their
/// error.
///
/// Peers acknowledge between two steps, each of which is at most a tile long. `number` is the call of `own`.
pub(crate) fn quiesce_and_report(
    world: &World,
    pass: Pass<'_>,
    number: u32,
    own: &Range<u32>,
    cause: Cause,
    deadline: &Deadline,
) -> Error {
    // Its fence is also what a rank needs that only saw the abort, before it looks who is active.
    ring_everybody(world);
    let is_quiet = || (0..).zip(&world.lines).all(|(rank, lines)| lines.activity.is_quiet() || world.is_gone(rank));
    let give_up = world.origin().longest_quiesce().and_then(|longest| Instant::now().checked_add(longest));
    let mut backoff = Backoff::of_rank();
    while !is_quiet() && give_up.is_none_or(|at| Instant::now() < at) {
        let doorbell = world.lines[own.start as usize].doorbell();
        backoff.wait(|| doorbell.sleep(is_quiet, Instant::now().checked_add(LONGEST_SLEEP)));
    }
    // A peer may be a call ahead or behind: records are read at the number of the call in which the trouble was seen, whose
    // place nobody reuses before everybody has entered the next.
    let nth_of = |rank: u32, call: u32, nth: usize| {
        if own.contains(&rank) && call == number {
            let programs = pass.programs();
            let nth = nth.min(programs.len() - 1);
            return PositionedCall { call: programs[nth].call().clone().into(), place: pass.place(nth) };
        }
        if let Some((_, called)) =
            world.lines[rank as usize].notes.failed_in.get().filter(|(number, _)| *number == call)
        {
            return called[nth.min(called.len() - 1)].clone();
        }
        let records = records(world, rank, call);
        let record = &records[nth.min(records.len() - 1)];
        PositionedCall { call: Call::from_record(record).into(), place: place_in(record) }
    };
    let call_of = |rank: u32, call: u32| nth_of(rank, call, 0);
    match cause {
        Cause::Failed(rank) => Error::Aborted { rank, cause: "failed".into() },
        Cause::Exited(rank, status) => Error::Aborted { rank, cause: format!("ended with status {status}").into() },
        Cause::TimedOut(rank) if rank == own.start => {
            deadline.error(call_of(own.start, number), missing(world, number, own))
        }
        Cause::TimedOut(rank) => Error::Aborted { rank, cause: "timed out".into() },
        Cause::Interrupted => Error::Interrupted,
        Cause::CalledAbort(rank) => Error::Aborted { rank, cause: "called abort".into() },
        Cause::NoMemory(rank) => Error::Aborted { rank, cause: "could not map memory of its peers".into() },
        Cause::Gone(rank) => Error::Aborted { rank, cause: "ended without leaving the job".into() },
        Cause::Mismatch(pair) => {
            let records = pair.ranks.map(|rank| records(world, rank, pair.call));
            let is_alike = |(a, b): &(&Record, &Record)| a[..3] == b[..3];
            let nth = records[0].iter().zip(&records[1]).take_while(is_alike).count();
            let [rank_a, rank_b] = pair.ranks;
            let [call_a, call_b] = pair.ranks.map(|rank| nth_of(rank, pair.call, nth));
            Error::Mismatch { rank_a, call_a, rank_b, call_b }
        }
        Cause::Overlap(pair) => {
            let [rank_a, rank_b] = pair.ranks;
            Error::Overlap { rank_a, rank_b, call: call_of(rank_a, pair.call) }
        }
        Cause::Returned(pair) => {
            let [rank, caller] = pair.ranks;
            let calls = world.lines[rank as usize].departure.last().unwrap_or(0);
            let how = if world.is_group() { "returned, or dropped the communicator," } else { "returned" };
            Error::Returned { rank, how, calls, caller, call: call_of(caller, pair.call) }
        }
    }
}

/// Returns the records of a rank's calls in a batch, or the record of its single call.
fn records(world: &World, rank: u32, call: u32) -> Vec<Record> {
    let lines = &world.lines[rank as usize];
    let record = lines.record.read(call);
    match record[CALLS] & !FLAGS {
        0 | 1 => vec![record],
        calls => lines.batch.read(call, calls as u32 as usize).collect(),
    }
}

/// Returns the position of a record's call in its batch, and the number of calls there.
fn place_in(record: &Record) -> (usize, usize) {
    match record[PLACE] & !FLAGS {
        0 | 1 => (0, 1), // a record of the line
        place => (place as u32 as usize, (place >> 32) as usize),
    }
}

/// Wakes all ranks, so that they see an abort or a departure.
pub(crate) fn ring_everybody(world: &World) {
    Doorbell::ring_all(world.lines.iter().map(RankLines::doorbell));
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

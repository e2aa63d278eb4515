//! The error of a failed call: what the cause in the abort word means for the rank that reports it.

use std::ops::Range;

use nvcoll_core::words::counted;

use crate::call::{Call, PositionedCall};
use crate::error::{Error, LateRanks, LostPeer};
use crate::memory::world::rank_lines::RankWords;
use crate::memory::world::World;
use crate::sync::record::{words_of_message, CALLS, FLAGS, MESSAGES, PLACE, PLACES};
use crate::sync::{Cause, Pair, Record, WaitStatus};
use crate::system::memory::memory_ran_out;

/// Turns a cause into the error of `own` ranks.
///
/// `own_call` returns a call of these ranks by its number and its place in a batch; if it returns `None`, their records say it. `own_end`
/// returns the error of a wait that these ranks ended themselves.
pub(crate) fn error_of(
    world: &World,
    own: &Range<u32>,
    cause: Cause,
    own_call: impl Fn(u32, usize) -> Option<PositionedCall>,
    own_end: impl FnOnce() -> Error,
) -> Error {
    let nth_of = |rank: u32, call: u32, nth: usize| {
        let own_call = own.contains(&rank).then(|| own_call(call, nth)).flatten();
        own_call.unwrap_or_else(|| call_of_peer(world, rank, call, nth))
    };
    let first_of = |rank: u32, call: u32| nth_of(rank, call, 0);
    if !names_ranks_of(world, cause) {
        return Error::Aborted { rank: own.start, cause: "found overwritten what ranks say about aborts".into() };
    }
    match cause {
        Cause::Failed(rank) => Error::Aborted { rank, cause: "failed".into() },
        Cause::Exited(rank, status) => Error::Exited { rank, status },
        // Ranks of one program are interrupted together.
        Cause::Interrupted(_) if world.origin().longest_quiesce().is_none() => Error::Interrupted,
        Cause::TimedOut(rank) | Cause::Interrupted(rank) if own.contains(&rank) => own_end(),
        Cause::TimedOut(rank) => Error::Aborted { rank, cause: "timed out".into() },
        Cause::Interrupted(rank) => Error::Aborted { rank, cause: "was interrupted".into() },
        Cause::CalledAbort(rank) => Error::Aborted { rank, cause: "called abort".into() },
        Cause::NoMemory(rank) => {
            let reason = world.addresses.refusal().filter(|_| own.contains(&rank));
            let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
            Error::Aborted { rank, cause: format!("could not map memory of its peers{reason}").into() }
        }
        Cause::Gone(rank, status) => peer_lost(world, rank, status),
        Cause::Mismatch(pair) => {
            let nth = place_of_trouble(world, cause, pair.call);
            let [rank_a, rank_b] = pair.ranks;
            let [call_a, call_b] = pair.ranks.map(|rank| nth_of(rank, pair.call, nth));
            Error::Mismatch { rank_a, call_a, rank_b, call_b }
        }
        Cause::Overlap(pair) => {
            let [rank_a, rank_b] = pair.ranks;
            Error::Overlap { rank_a, rank_b, call: first_of(rank_a, pair.call) }
        }
        Cause::UnlikeMessage(Pair { ranks: [source, rank], call: tag }) => {
            let cause = format!("received a message from rank {source} with tag {tag}, and its array does not fit it");
            Error::Aborted { rank, cause: cause.into() }
        }
        Cause::Returned(pair) => {
            let [rank, caller] = pair.ranks;
            let calls = world.lines[rank as usize].departure.last().unwrap_or(0);
            let how = if world.is_group() { "returned, or dropped the communicator," } else { "returned" };
            Error::Returned { rank, how, calls, caller, call: first_of(caller, pair.call) }
        }
    }
}

/// Returns the error of a call in a communicator that the limit of an earlier call of the same rank ended.
pub(crate) fn ended_before(rank: u32, cause: Cause) -> Error {
    let how = if matches!(cause, Cause::Interrupted(_)) { "was interrupted" } else { "timed out" };
    Error::Aborted { rank, cause: format!("{how} in an earlier call").into() }
}

/// Says whether the ranks of a cause exist. Any rank can write the abort word, and one that is mad may write anything.
fn names_ranks_of(world: &World, cause: Cause) -> bool {
    let ranks = match cause {
        Cause::Mismatch(pair) | Cause::Overlap(pair) | Cause::Returned(pair) | Cause::UnlikeMessage(pair) => pair.ranks,
        Cause::Failed(rank) | Cause::TimedOut(rank) | Cause::CalledAbort(rank) | Cause::NoMemory(rank) => [rank, rank],
        Cause::Gone(rank, _) | Cause::Exited(rank, _) | Cause::Interrupted(rank) => [rank, rank],
    };
    ranks.into_iter().all(|rank| rank < world.world_size())
}

/// Returns the error about a rank whose process ended without a word.
pub(crate) fn peer_lost(world: &World, rank: u32, status: Option<WaitStatus>) -> Error {
    let lines = &world.lines[rank as usize];
    let (calls, is_complete) = lines.activity.last_call();
    let doing = match calls {
        0 => "before its first collective".into(),
        _ if is_complete => format!("between two calls, after {}", counted(calls, "call")),
        _ if lines.stamp.has_entered(calls) => {
            format!("in {}, its {}", call_of_peer(world, rank, calls, 0), nth(calls))
        }
        _ => format!("as it began its {}", nth(calls)),
    };
    let is_killed = status.and_then(WaitStatus::signal) == Some(KILL);
    let hint = if is_killed && memory_ran_out() { ", perhaps because memory ran out," } else { "" };
    Error::PeerLost(Box::new(LostPeer { rank, process: world.process_of(rank), status, doing, hint }))
}

/// The signal by which the kernel kills a process when memory runs out. Cited: signal(7).
const KILL: u32 = 9;

/// Returns the number of a call in words, from 1.
fn nth(call: u32) -> String {
    format!("call number {call}")
}

/// Returns the call of a rank, and its place in a batch, from the record that peers see.
///
/// A peer may be a call ahead or behind: records are read at the number of the call in which the trouble was seen, whose place nobody
/// reuses before everybody has entered the next.
fn call_of_peer(world: &World, rank: u32, call: u32, nth: usize) -> PositionedCall {
    let records = records(world, rank, call);
    let record = &records[nth.min(records.len() - 1)];
    PositionedCall { call: call_of(&world.lines[rank as usize], call, record).into(), place: place_in(record) }
}

/// Returns the call that a record of call `number` says, with what is described beside it.
fn call_of(words: &RankWords, number: u32, record: &Record) -> Call {
    let call = Call::from_record(record);
    let described = words.described[number as usize % PLACES].read().filter(|words| words[0] == record[0]);
    match described {
        Some(words) => call.described(&words),
        None => call,
    }
}

/// Returns which call of a batch two ranks disagree about, if that is the cause of the end of call `number`; else the first.
pub(crate) fn place_of_trouble(world: &World, cause: Cause, number: u32) -> usize {
    let Cause::Mismatch(pair) = cause else { return 0 };
    if pair.call != number || !names_ranks_of(world, cause) {
        return 0;
    }
    let [one, other] = pair.ranks.map(|rank| records(world, rank, number));
    one.iter().zip(&other).take_while(|(a, b)| a[..3] == b[..3]).count()
}

/// Returns the records of a rank's calls in a batch, or the record of its single call.
fn records(world: &World, rank: u32, call: u32) -> Vec<Record> {
    let lines = &world.lines[rank as usize];
    let record = lines.record.read(call);
    match record[CALLS] & !FLAGS {
        0 | 1 => vec![record],
        calls => lines.batch.read(call, (calls as u32).max(1) as usize).collect(),
    }
}

/// Returns a call of a rank in words, from its record and what is described beside it.
pub(crate) fn words_of_call(words: &RankWords, number: u32, record: &Record) -> String {
    words_of_record(record, &call_of(words, number, record))
}

/// Returns the call of a record in words, without a description.
pub(crate) fn words_of_notice(record: &Record) -> String {
    words_of_record(record, &Call::from_record(record))
}

fn words_of_record(record: &Record, call: &Call) -> String {
    match record[CALLS] & !FLAGS {
        MESSAGES => words_of_message(record),
        0 | 1 => call.to_string(),
        calls => format!("a group of {} calls, first {call}", (calls as u32).max(2)),
    }
}

/// Returns the position of a record's call in its batch, and the number of calls there.
fn place_in(record: &Record) -> (usize, usize) {
    match record[PLACE] & !FLAGS {
        0 | 1 => (0, 1), // a record of the line
        place => (place as u32 as usize, (place >> 32) as usize),
    }
}

/// Says which ranks have not entered a call of `own`, or which have not answered the abort.
pub(crate) fn missing(world: &World, number: u32, own: &Range<u32>) -> LateRanks {
    let peers = || (0..world.world_size()).filter(|rank| !own.contains(rank));
    let absent: Vec<u32> = peers().filter(|&rank| !world.lines[rank as usize].stamp.has_entered(number)).collect();
    let (late, not_done): (Vec<u32>, _) = match absent.is_empty() {
        true => (peers().filter(|&rank| !world.is_quiet(rank)).collect(), "answered since it entered the call"),
        false => (absent, "entered the call"),
    };
    if late.is_empty() {
        return "every rank has entered the call, but they were not done".into();
    }
    LateRanks { late, not_done: not_done.into(), ..LateRanks::default() }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_mismatch_of_ranks_that_do_not_exist_is_in_no_place() {
        let (world, pair) = (World::new(2), Pair { ranks: [7, 4095], call: 3 });
        assert_eq!(place_of_trouble(&world, Cause::Mismatch(pair), 3), 0);
    }
}

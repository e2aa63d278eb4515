//! What the other ranks do while a rank waits, in words, for the message of a timeout.
//!
//! ```text
//! the ranks that it waits for    one after the other: where they wait and for whom, or the last call that they made
//! a chain of waits               from notice to notice; if it comes back, it is a cycle, and only the cycle is reported
//! ```
//!
//! Waits are posted by ranks that sleep, in any communicator of the run (`memory/world/notice.rs`). The words are read at the moment
//! before the abort is raised: after it, peers take their notices down.
//!
//! What it does not do: a rank that waits in its own code, for a lock or a file, posts nothing.

use crate::error::LateRanks;
use crate::memory::world::notice::{Notice, RankList, WorldName, SUBSET};
use crate::memory::world::World;
use crate::run::report::{words_of_call, words_of_notice};
use crate::sync::record::{CALLS, FLAGS, MESSAGES};
use crate::system::other_process::is_stopped;

/// How many ranks a message describes. Chosen: a screen has room for them.
const DESCRIBED: usize = 4;

/// What the ranks do for which a rank waits.
#[derive(Debug, Default)]
pub(crate) struct WaitGraph {
    /// The words that go on a sentence, or none.
    words: String,
    /// The ranks of the communicator whose process is stopped.
    stopped: Vec<u32>,
}

impl WaitGraph {
    /// Adds what is known to what a wait missed.
    pub(crate) fn added_to(&self, missing: LateRanks) -> LateRanks {
        LateRanks { more: missing.more + &self.words, stopped: self.stopped.clone(), ..missing }
    }
}

/// Says what the ranks do for which the rank of `own` waits.
pub(crate) fn wait_graph(world: &World, rank: u32, own: &Notice) -> WaitGraph {
    let read = |rank| world.board().read(rank);
    if let Some(cycle) = cycle(rank, own, read) {
        let has_messages = cycle.iter().any(|(_, notice)| is_of_messages(notice));
        let advice = match has_messages {
            true => "begin sends and receives before you wait for another, by sendrecv, isend, irecv or a group",
            false => "every rank must use communicators that share ranks in the same order",
        };
        return WaitGraph { words: format!("; {}: {advice}", cycle_words(&cycle)), stopped: Vec::new() };
    }
    let waits = own.awaited.first().take(DESCRIBED).map(|rank| {
        let name = rank_words(rank, world);
        match relevant(read(rank), own).first() {
            Some(notice) => format!("; {name} {}", waits_words(notice)),
            None => {
                last_words(world, rank, is_of_messages(own)).map_or(String::new(), |words| format!("; {name} {words}"))
            }
        }
    });
    let is_stopped = |rank: &u32| world.origin().process_of(*rank).is_some_and(is_stopped);
    let stopped: Vec<u32> = own.awaited.first().take(DESCRIBED).filter(is_stopped).collect();
    let advice = |rank| format!("; the process of rank {rank} is stopped: continue it by SIGCONT");
    let here = |of_run: &u32| Some(world.ranks().iter().position(|rank| rank == of_run)? as u32);
    WaitGraph {
        words: waits.chain(stopped.iter().map(advice)).collect(),
        stopped: stopped.iter().filter_map(here).collect(),
    }
}

/// Says whether a rank waits for a send or a receive.
fn is_of_messages(notice: &Notice) -> bool {
    notice.record[CALLS] & !FLAGS == MESSAGES
}

/// Returns the notices that say something about a wait: those that last, and those that ended during it.
fn relevant(notices: Vec<Notice>, own: &Notice) -> Vec<Notice> {
    notices.into_iter().filter(|notice| notice.until_ns == 0 || notice.until_ns >= own.since_ns).collect()
}

/// Follows notices from rank to rank; returns the ranks of a cycle, each with its notice. `read` returns the notices of a rank.
pub(crate) fn cycle(rank: u32, own: &Notice, read: impl Fn(u32) -> Vec<Notice>) -> Option<Vec<(u32, Notice)>> {
    let (mut path, mut seen) = (vec![(rank, *own)], vec![rank]);
    let begin = follow(&mut path, &mut seen, &read)?;
    Some(path.split_off(begin))
}

/// Goes on from the end of a path; returns the place in it to which it comes back.
fn follow(path: &mut Vec<(u32, Notice)>, seen: &mut Vec<u32>, read: &impl Fn(u32) -> Vec<Notice>) -> Option<usize> {
    let own = path[path.len() - 1].1;
    for next in own.awaited.first() {
        if let Some(begin) = path.iter().position(|(rank, _)| *rank == next) {
            return Some(begin);
        }
        if seen.contains(&next) {
            continue;
        }
        seen.push(next);
        for notice in relevant(read(next), &own) {
            path.push((next, notice));
            if let Some(begin) = follow(path, seen, read) {
                return Some(begin);
            }
            path.pop();
        }
    }
    None
}

/// Says a cycle: "rank 0 waits in … for rank 1, which waits in … for rank 0".
pub(crate) fn cycle_words(cycle: &[(u32, Notice)]) -> String {
    let mut words = format!("rank {}", cycle[0].0);
    for (at, (_, notice)) in cycle.iter().enumerate() {
        let next = cycle[(at + 1) % cycle.len()].0;
        words += &format!(
            "{} {} in {} of {} for rank {next}",
            if at == 0 { "" } else { ", which" },
            if notice.until_ns == 0 || at == 0 { "waits" } else { "waited until its timeout" },
            words_of_notice(&notice.record),
            name_words(&notice.world)
        );
    }
    words
}

/// Says where a rank waits, and for whom: "waits in … of … for rank 0".
pub(crate) fn waits_words(notice: &Notice) -> String {
    let verb = if notice.until_ns == 0 { "waits" } else { "waited until its timeout" };
    let (call, name) = (words_of_notice(&notice.record), name_words(&notice.world));
    let number = if notice.call == 0 { String::new() } else { format!("call {}, ", notice.call) };
    let awaited = if notice.awaited.total == 0 { "any rank".to_owned() } else { list_words(&notice.awaited) };
    format!("{verb} in {number}{call}, of {name} for {awaited}")
}

/// Names a communicator by its ranks.
pub(crate) fn name_words(name: &WorldName) -> String {
    match (name.id, name.split) {
        (0, _) => "the communicator of all ranks".to_owned(),
        (_, 0) => format!("the communicator of {}, made by shrink,", list_words(&name.ranks)),
        (_, SUBSET) => format!("the communicator of {}, made by subset,", list_words(&name.ranks)),
        (_, split) => format!("the communicator of {}, made by split in call {split},", list_words(&name.ranks)),
    }
}

/// Lists ranks of the run.
pub(crate) fn list_words(ranks: &RankList) -> String {
    let shown: Vec<String> = ranks.first().map(|rank| rank.to_string()).collect();
    let more = if ranks.total > shown.len() { ", …" } else { "" };
    format!("rank{} {}{more}", if ranks.total == 1 { "" } else { "s" }, shown.join(", "))
}

/// Names a rank of the run; in a group, whose ranks have other numbers, with these words.
fn rank_words(rank: u32, world: &World) -> String {
    format!("rank {rank}{}", if world.is_group() { " of the run" } else { "" })
}

/// Says the last collective of a rank of the run in this communicator; `None` if it is not in it, or made none and the wait is for a
/// message.
fn last_words(world: &World, rank: u32, is_for_message: bool) -> Option<String> {
    let at = world.ranks().iter().position(|&of_run| of_run == rank)?;
    let lines = &world.lines[at];
    let last = lines.stamp.last();
    if last == 0 {
        return (!is_for_message).then(|| "has made no collective of this communicator yet".to_owned());
    }
    let (call, words) = lines.record.recent(last, || lines.stamp.last()).into_iter().next()?;
    let words = words_of_call(lines, call, &words);
    Some(match lines.activity.is_quiet() {
        true => format!("is between calls, after call {call} of this communicator, {words}"),
        false => format!("is in call {call}, {words}"),
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn waits(awaited: &[u32], since_ns: u64, until_ns: u64) -> Notice {
        let world = WorldName { id: 1, split: 1, ranks: (0..4).collect() };
        Notice { world, call: 1, record: [0; 8], awaited: awaited.iter().copied().collect(), since_ns, until_ns }
    }

    /// The ranks of the cycle that rank 0 finds, which waits since 10.
    fn found(own: &[u32], others: &[(u32, Notice)]) -> Option<Vec<u32>> {
        let read = |rank: u32| others.iter().filter(|(of, _)| *of == rank).map(|(_, notice)| *notice).collect();
        Some(cycle(0, &waits(own, 10, 0), read)?.iter().map(|(rank, _)| *rank).collect())
    }

    #[test]
    fn a_cycle_is_found_behind_ranks_that_wait_for_nobody_and_may_not_contain_the_first_rank() {
        let lasting = |awaited| waits(awaited, 5, 0);
        assert_eq!(found(&[3, 1], &[(1, lasting(&[2])), (2, lasting(&[3, 0]))]), Some(vec![0, 1, 2]));
        assert_eq!(found(&[1], &[(1, lasting(&[2])), (2, lasting(&[1]))]), Some(vec![1, 2]));
        assert_eq!(found(&[1], &[(1, lasting(&[3])), (1, lasting(&[0]))]), Some(vec![0, 1]), "two threads of rank 1");
        assert_eq!(found(&[1, 2], &[(1, lasting(&[3])), (2, lasting(&[3]))]), None);
    }

    #[test]
    fn a_wait_that_timed_out_counts_only_if_it_ended_during_the_own() {
        assert_eq!(found(&[1], &[(1, waits(&[0], 5, 11))]), Some(vec![0, 1]));
        assert_eq!(found(&[1], &[(1, waits(&[0], 5, 9))]), None);
    }

    #[test]
    fn a_communicator_is_named_by_its_ranks_and_by_what_made_it() {
        let named = |id, split| name_words(&WorldName { id, split, ranks: [2, 0].into_iter().collect() });
        assert_eq!(named(0, 0), "the communicator of all ranks");
        assert_eq!(named(9, 3), "the communicator of ranks 2, 0, made by split in call 3,");
        assert_eq!(named(9, 0), "the communicator of ranks 2, 0, made by shrink,");
        assert_eq!(named(9, SUBSET), "the communicator of ranks 2, 0, made by subset,");
    }
}

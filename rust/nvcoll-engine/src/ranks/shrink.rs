//! Shrinking: the ranks that are left of a world form a smaller one.
//!
//! ```text
//! list     the ranks whose processes run and whose programs have not ended                 in the order that they had
//! meet     wait until all of the list are there, with the same list (sync/rendezvous.rs)
//! make     the world of the list, as that of a group of a split                             ─┐
//!          ▲                                                                                 │
//!          └────────────── the list has changed meanwhile: a rank died, or failed ◀─────────┘
//! ```
//!
//! Every rank learns of every end: of deaths from the kernel (`processes/guard.rs`), of failures by the departure words. Ends are final. So the
//! lists of all ranks become the same when no more ranks end. A rank that dies just as the world is made may leave a world that some
//! ranks have, and others do not. Its next call raises there, and they shrink that world. They meet the others, because the place
//! of the meeting is the root: the world that was shrunk first.
//!
//! A rank that has dropped the communicator counts as left: whoever was through the same `shrink` first may have done that. A rank that runs
//! and does not call it ends the wait of the others at their deadline.
//!
//! Cost: a look at the words of all ranks every half millisecond until all have come; then that of a split.
//! Source: `MPIX_Comm_shrink` of ULFM (W. Bland and others, 2013); without its agreement, since the kernel tells all ranks of each death.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::deadline::WaitLimit;
use crate::error::{Error, LateRanks, Result};
use crate::memory::world::{SubsetKey, World};
use crate::ranks::subset::{make, PAUSE};
use crate::sync::rendezvous::{give_up, meet, Rendezvous, RendezvousPhase, RendezvousState};

/// Returns the world of the ranks that are left of `world`, and the rank of `own` there.
///
/// # Errors
/// As `Member::shrink`.
pub(crate) fn shrink(world: &World, own: u32, limit: &mut WaitLimit<'_>) -> Result<(Arc<World>, u32)> {
    loop {
        let list = left_of(world);
        let Some(attempt) = gather(world, own, &list, limit)? else { continue };
        let (deadline, mut is_interrupted) = (limit.deadline, false);
        let mut give_up = || {
            is_interrupted |= limit.is_interrupted();
            is_interrupted || left_of(world) != list
        };
        let mut until_change = WaitLimit::new(deadline, &mut give_up);
        let of_run = world.ranks()[own as usize];
        let rank = list.iter().position(|&rank| rank == of_run).expect("a rank that shrinks is left") as u32;
        match make(world, SubsetKey::Shrink { attempt }, list.clone(), rank, &mut until_change) {
            Ok(made) => return Ok(made),
            Err(_) if is_interrupted => return Err(Error::Interrupted),
            Err(Error::PeerLost(_)) => (), // again, with the ranks that are still left
            Err(error) if left_of(world) == list => return Err(error),
            Err(_) => (),
        }
    }
}

/// Returns the ranks of the run that are left.
fn left_of(world: &World) -> Vec<u32> {
    let is_left = |rank: &u32| {
        let of_run = world.ranks()[*rank as usize];
        world.deaths.end_of(of_run).is_none()
            && !world.lines[*rank as usize].departure.has_ended()
            && !world.board().words_of(of_run).departure.has_ended()
    };
    (0..world.world_size()).filter(is_left).map(|rank| world.ranks()[rank as usize]).collect()
}

/// Waits until all ranks of the list are there; returns the number of their attempt, or `None` if the list has changed.
fn gather(world: &World, own: u32, list: &[u32], limit: &mut WaitLimit<'_>) -> Result<Option<u32>> {
    let mut hasher = DefaultHasher::new();
    (world.origin().root(), list).hash(&mut hasher);
    let tag = hasher.finish();
    let of_run = world.ranks()[own as usize];
    let places: Vec<&Rendezvous> = list.iter().map(|&rank| &world.board().words_of(rank).rendezvous).collect();
    let Some(place) = list.iter().position(|&rank| rank == of_run) else {
        return Err(Error::Closed("the program of this rank has ended, and its communicators with it"));
    };
    loop {
        if let Some(attempt) = meet(&places, place, tag) {
            return Ok(Some(attempt));
        }
        let error = if left_of(world) != list {
            None
        } else if limit.is_interrupted() {
            Some(Error::Interrupted)
        } else if limit.deadline.has_passed() {
            Some(limit.deadline.overdue("shrink".into(), absent(world, &places, tag)))
        } else {
            std::thread::sleep(PAUSE);
            continue;
        };
        give_up(places[place]);
        return error.map_or(Ok(None), Err);
    }
}

/// Says which ranks have not come, or else which came and gave up: then their deadline passed before that of the asking rank.
fn absent(world: &World, places: &[&Rendezvous], tag: u64) -> LateRanks {
    let left = left_of(world);
    let here = |rank: &u32| world.ranks().iter().position(|of_run| of_run == rank);
    let those = |is_meant: &dyn Fn(RendezvousState) -> bool| -> Vec<u32> {
        let meant = left.iter().zip(places).filter(|(_, place)| is_meant(place.read()));
        meant.filter_map(|(rank, _)| Some(here(rank)? as u32)).collect()
    };
    let has_given_up = |state: RendezvousState| state.tag == tag && state.has_given_up();
    let has_not_come =
        |state: RendezvousState| (state.phase == RendezvousPhase::Idle || state.tag != tag) && !has_given_up(state);
    let (late, gone) = (those(&has_not_come), those(&has_given_up));
    if !late.is_empty() {
        return LateRanks { late, not_done: "called it".into(), ..LateRanks::default() };
    }
    let names: Vec<String> = gone.iter().map(u32::to_string).collect();
    match &names[..] {
        [] => "every rank has called it, but they were not done".into(),
        names => format!("rank {} has called it and given up", names.join(", rank ")).into(),
    }
}

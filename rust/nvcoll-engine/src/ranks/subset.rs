//! Subsets: some ranks of a world form a smaller one, and the others take no part.
//!
//! ```text
//! split     every rank calls it, with a color             a call of the communicator
//! subset    the ranks of the list call it, with the list   no call: it may run while another thread is in one
//! ```
//!
//! The ranks find each other by the list, a tag and the number of earlier subsets with both. So the ranks of a list must make their
//! subsets with one tag in the same order, and subsets with other lists or tags do not matter.
//!
//! **A subset that fails.** Ranks that are processes fail together, unless the deadline of one passes before another calls it. The one
//! that comes late then finds the failure and fails too.
//!
//! A split is an exchange of keys, then a subset; a shrink is an agreement on a list, then a subset.
//!
//! Cost: no barrier; one world, as for a group of a split. Source: `MPI_Comm_create_group` (MPI 3.0).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::deadline::WaitLimit;
use crate::error::{Error, LateRanks, Result};
use crate::memory::world::{SubsetKey, World};
use crate::run::report::{error_of, peer_lost};
use crate::sync::Cause;

/// The number of subsets that a member has made, by tag and ranks.
#[derive(Debug, Default)]
pub(crate) struct SubsetCounts(Mutex<HashMap<(u32, Vec<u32>), u32>>);

impl SubsetCounts {
    fn next(&self, tag: u32, ranks: &[u32]) -> u32 {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry((tag, ranks.to_vec())).or_default();
        *count += 1;
        *count
    }
}

/// Returns the world of some ranks of `world`, and the rank of `own` there.
///
/// # Errors
/// `Invalid` for a list without `own`, or with a rank twice; else as [`make`].
pub(crate) fn subset(
    world: &World,
    own: u32,
    counts: &SubsetCounts,
    ranks: &[u32],
    tag: u32,
    limit: &mut WaitLimit<'_>,
) -> Result<(Arc<World>, u32)> {
    let place = check(world, own, ranks)?;
    let of_run: Vec<u32> = ranks.iter().map(|&rank| world.ranks()[rank as usize]).collect();
    let attempt = counts.next(tag, ranks);
    let made = make(world, SubsetKey::Tagged { tag, attempt }, of_run, place, limit);
    made.map_err(|error| explain(world, ranks, error))
}

/// Makes the world of some ranks of `world`, in which this rank has this place. Subsets, splits and shrinks all do it so. Returns the world
/// with the rank.
///
/// # Errors
/// As `WorldOrigin::make_subset`; of a peer that is lost or has failed.
pub(crate) fn make(
    world: &World,
    key: SubsetKey,
    of_run: Vec<u32>,
    place: u32,
    limit: &mut WaitLimit<'_>,
) -> Result<(Arc<World>, u32)> {
    let made = world.origin().make_subset(key, of_run, limit).map_err(|error| explain_end(world, error))?;
    made.name_subset(world, key);
    made.identify(place, "");
    Ok((made, place))
}

/// How long the note of a death may come after a peer's connection has ended, or after another peer has reported it. Chosen.
const UNTIL_NOTED: Duration = Duration::from_millis(100);

/// The pause between two looks at the other ranks. Chosen.
pub(crate) const PAUSE: Duration = Duration::from_micros(500);

/// Turns the failure of making a world into that of the peer that died or failed meanwhile, if one did. Its connection may tell it first.
fn explain_end(world: &World, error: Error) -> Error {
    let (Error::Left { rank, .. } | Error::Aborted { rank, .. }) = error else { return error };
    let here = world.ranks().iter().position(|&of_run| of_run == rank).map_or(rank, |here| here as u32);
    let began = Instant::now();
    loop {
        if let Some(Cause::Gone(here, status)) = world.first_death() {
            return peer_lost(world, here, status);
        }
        let cause = world.abort().cause().filter(|cause| *cause == Cause::Failed(here) || is_exit(*cause, here));
        if let (Some(cause), Error::Left { .. }) = (cause, &error) {
            return error_of(world, &(here..here), cause, |_, _| None, || Error::Interrupted);
        }
        if began.elapsed() > UNTIL_NOTED {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    match error {
        Error::Aborted { cause, .. } => Error::Aborted { rank: here, cause },
        Error::Left { circumstance, .. } => Error::Left { rank: here, circumstance },
        error => error,
    }
}

fn is_exit(cause: Cause, rank: u32) -> bool {
    matches!(cause, Cause::Exited(one, _) if one == rank)
}

/// Returns the place of rank `own` in a list of ranks that is one.
fn check(world: &World, own: u32, ranks: &[u32]) -> Result<u32> {
    let last = world.world_size() - 1;
    if let Some(rank) = ranks.iter().find(|&&rank| rank > last) {
        return Err(Error::Invalid(format!("`ranks` contains {rank}: pass ranks from 0 to {last}")));
    }
    if let Some(at) = (1..ranks.len()).find(|&at| ranks[..at].contains(&ranks[at])) {
        return Err(Error::Invalid(format!("`ranks` contains {} twice: pass each rank once", ranks[at])));
    }
    let place = ranks.iter().position(|&rank| rank == own);
    let missing =
        || Error::Invalid(format!("`ranks` does not contain rank {own}, which calls: only its ranks call subset"));
    place.map(|place| place as u32).ok_or_else(missing)
}

/// Turns the failure of making a world into words about the subset.
fn explain(world: &World, ranks: &[u32], error: Error) -> Error {
    match error {
        Error::Overdue { what, seconds, missing } => {
            let here = |late: &u32| Some(world.ranks().iter().position(|of_run| of_run == late)? as u32);
            let late = missing.late.iter().filter_map(here).collect();
            let others: Vec<String> = ranks.iter().map(u32::to_string).collect();
            let words = format!(
                "found no answer while {what} of the run: every rank of the list ({}) must call subset with the same list and tag",
                others.join(", ")
            );
            Error::Overdue { what: "subset".into(), seconds, missing: Box::new(LateRanks { late, ..words.into() }) }
        }
        error => error,
    }
}

//! Splits: the ranks of a world form smaller worlds, called groups.
//!
//! ```text
//! enter     a split is a barrier; a rank's color and key lie in its record, where other calls have addresses
//! leave     everybody has entered: all read the same words and compute the same groups, ordered by (key, rank)
//! join      the ranks of a group get the world that they share, under (call, color)
//! ```
//!
//! A split is a call like any other: a different call of a peer is a mismatch, and deadline, abort and departure end the wait. A group's
//! world has its own words and does not know the world that it came from. An abort in one does not end calls in the other. Only the
//! failure of a rank ends the calls of every world that contains it (`memberships.rs`).
//!
//! **A split that fails on some ranks only.** A rank can complete while the deadline of a slower one passes, and would then wait in its
//! group for that rank forever. But a rank that completed has seen everybody enter, and a failing rank returns only when all are quiet.
//! So if any rank completed, the failing rank too sees that all have entered. It then joins its group to end the calls there.
//! Ranks that are processes wait for each other's memory to join, a failing rank too, beyond its deadline.
//!
//! Where the world of a group comes from is the business of the world that is split (`WorldOrigin`): threads find it in a map, processes
//! pass each other its memory. Cost: a barrier, then one world per group, about 46 KiB for each rank, and the staging.

use std::sync::Arc;

use crate::call::SplitKey;
use crate::deadline::WaitLimit;
use crate::error::Result;
use crate::memory::world::{SubsetKey, World};
use crate::program::Program;
use crate::ranks::subset::make;
use crate::ranks::words::words;

/// Returns the keys of all ranks in split number `call`; `None` if a rank has not entered it, or made a different
/// call.
fn keys(world: &World, program: &Program, call: u32) -> Option<Vec<SplitKey>> {
    Some(words(world, program, call)?.into_iter().map(SplitKey::of_words).collect())
}

/// Returns the ranks of the group of `rank`, in their new order.
fn group(keys: &[SplitKey], rank: u32) -> Vec<u32> {
    let color = keys[rank as usize].color;
    let mut group: Vec<u32> = (0..keys.len() as u32).filter(|&r| keys[r as usize].color == color).collect();
    group.sort_by_key(|&rank| keys[rank as usize].key);
    group
}

/// Returns the world of the group of `rank`, and its rank there. Each member asks once. It is `None` for a rank
/// without a color, and if the split failed on every rank.
///
/// # Errors
/// As [`make`].
pub(crate) fn join(
    world: &World,
    program: &Program,
    call: u32,
    rank: u32,
    limit: &mut WaitLimit<'_>,
) -> Result<Option<(Arc<World>, u32)>> {
    let Some(keys) = keys(world, program, call) else { return Ok(None) };
    let Some(color) = keys[rank as usize].color else { return Ok(None) };
    let group = group(&keys, rank);
    let own = group.iter().position(|&member| member == rank).expect("a rank has its own color") as u32;
    let ranks = group.iter().map(|&member| world.ranks()[member as usize]).collect();
    make(world, SubsetKey::Split { call, color }, ranks, own, limit).map(Some)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn two_words_give_back_every_key() {
        for color in [None, Some(0), Some(7), Some(i32::MAX as u32)] {
            for key in [i32::MIN, -1, 0, i32::MAX] {
                let key_pair = SplitKey { color, key };
                assert_eq!(SplitKey::of_words(key_pair.words()), key_pair);
            }
        }
    }

    #[test]
    fn a_group_is_ordered_by_key_and_then_by_rank() {
        let keys = [(Some(1), 5), (Some(0), 0), (Some(1), -5), (None, 0), (Some(1), 5), (None, 9)];
        let keys = keys.map(|(color, key)| SplitKey { color, key });
        assert_eq!(group(&keys, 0), [2, 0, 4]);
        assert_eq!(group(&keys, 4), [2, 0, 4]);
        assert_eq!(group(&keys, 1), [1]);
    }
}

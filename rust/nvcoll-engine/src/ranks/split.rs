//! Groups: how the ranks of a world split into smaller worlds.
//!
//! ```text
//! enter     split is a barrier; a rank's color and key lie in its record, where other calls have addresses
//! leave     everybody has entered: all read the same words and work out the same groups, ordered by (key, rank)
//! join      the first of a group to come makes its world, the others find it under (call, color), the last takes it away
//! ```
//!
//! Being a call, split has what every call has: another call of a peer is a mismatch, and deadline, abort and departure end
//! the wait. A group's world has words of its own and knows nothing of the world it came from; what ends the calls of one
//! does not end those of the other, but for the failure of a rank, which ends them wherever that rank is (`memberships`).
//!
//! **A split that fails on some ranks only.** A rank can be through while the deadline of a slower one passes, and would wait
//! in its group for one that never comes. But who is through has seen everybody enter; and a failing rank returns when all
//! are quiet, so if anybody is through, it too sees that all have entered. Then it joins its group to end its calls.
//!
//! Cost: a barrier, then one world per group, about 3 KiB for each rank. What it does not do: pass anything between processes.
//! The two words already lie in lines that processes can share, and so does all that a failing rank looks at. Only where the
//! others *find* the new world is a map of this process: ranks that are processes will pass its memory by descriptor, from
//! the first of the group to the others, and whoever watches the processes must raise the abort in every world of a dead one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::call::{Call, SplitKey};
use crate::error::Result;
use crate::kernel::Isa;
use crate::memory::world::World;
use crate::program::make::prove;
use crate::program::Program;
use crate::sync::single_flight::{SingleFlight, Unlocked};

static PROGRAMS: Mutex<Option<HashMap<u32, Weak<Program>>>> = Mutex::new(None);
static IN_FLIGHT: SingleFlight<u32> = SingleFlight::new();

/// Returns the program of a split of `world_size` ranks, which is that of a barrier. It lives as long as a member that split.
///
/// # Errors
/// An interruption by the caller.
pub(crate) fn program(world_size: u32, unlocked: &impl Unlocked) -> Result<Arc<Program>> {
    let programs = || PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let find = || programs().as_ref().and_then(|programs| programs.get(&world_size)?.upgrade());
    let make = || {
        let call = Call::of_split();
        let proof = prove(&call, "auto", world_size, unlocked)?;
        let program = Arc::new(unlocked.run(|| Program::bind(&proof, call, usize::MAX, Isa::Baseline))?);
        let mut programs = programs();
        let programs = programs.get_or_insert_default();
        programs.retain(|_, program| program.strong_count() > 0);
        programs.insert(world_size, Arc::downgrade(&program));
        Ok(program)
    };
    IN_FLIGHT.find_or_make(&world_size, unlocked, find, make)
}

/// Returns what every rank said in split number `call`; none if not all have entered it, or one of them called another thing.
fn keys(world: &World, program: &Program, call: u32) -> Option<Vec<SplitKey>> {
    let of_rank = |lines: &crate::memory::world::RankLines| {
        let record = lines.stamp.has_entered(call).then(|| lines.record.read(call))?;
        (record[..3] == program.fingerprint).then(|| SplitKey::of_words([record[3], record[4]]))
    };
    world.lines.iter().map(of_rank).collect()
}

/// Returns the ranks that `rank` is grouped with, itself included, in their new order.
fn group(keys: &[SplitKey], rank: u32) -> Vec<u32> {
    let color = keys[rank as usize].color;
    let mut group: Vec<u32> = (0..keys.len() as u32).filter(|&r| keys[r as usize].color == color).collect();
    group.sort_by_key(|&rank| keys[rank as usize].key);
    group
}

/// Returns the world of the group of `rank`, and its rank there; each member asks once. There is none for a rank without a
/// color, nor if the split failed on every rank.
pub(crate) fn join(world: &World, program: &Program, call: u32, rank: u32) -> Option<(Arc<World>, u32)> {
    let keys = keys(world, program, call)?;
    let color = keys[rank as usize].color?;
    let group = group(&keys, rank);
    let own = group.iter().position(|&member| member == rank)?;
    let ranks = group.iter().map(|&member| world.ranks()[member as usize]).collect();
    Some((world.groups.find_or_make(call, color, ranks), own as u32))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn two_words_give_back_every_key() {
        for color in [None, Some(0), Some(7), Some(i32::MAX as u32)] {
            for key in [i32::MIN, -1, 0, i32::MAX] {
                let said = SplitKey { color, key };
                assert_eq!(SplitKey::of_words(said.words()), said);
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

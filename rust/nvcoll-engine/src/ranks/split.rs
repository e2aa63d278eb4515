//! Groups: how the ranks of a world split into smaller worlds.
//!
//! ```text
//! enter     split is a call without steps; a rank's color and key lie in its record, where other calls have addresses
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

use std::sync::Arc;

use crate::memory::buffers::Buffers;
use crate::memory::world::World;
use crate::program::Program;
use crate::sync::Record;

/// What a rank says in a split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SplitKey {
    /// Ranks of one color form a group; none joins none. Less than 2^31.
    pub(crate) color: Option<u32>,
    /// Orders the ranks of a group; equal keys by rank.
    pub(crate) key: i32,
}

impl SplitKey {
    /// Returns the wish in the place of two addresses, which no step of a split looks at.
    pub(crate) fn into_buffers(self) -> Buffers {
        let color = self.color.map_or(0, |color| color + 1);
        let [color, key] = [color, self.key as u32].map(|word| std::ptr::without_provenance_mut(word as usize));
        Buffers::new(color, key, 1.0)
    }

    /// Reads the wish of another rank.
    fn of_record(record: &Record) -> Self {
        let [color, key] = [record[3] as u32, record[4] as u32];
        Self { color: color.checked_sub(1), key: key as i32 }
    }
}

/// Returns what every rank said in split number `call`; none if not all have entered it, or one of them called another thing.
fn wishes(world: &World, program: &Program, call: u32) -> Option<Vec<SplitKey>> {
    let of_rank = |lines: &crate::memory::world::RankLines| {
        let record = lines.stamp.has_entered(call).then(|| lines.record.read(call))?;
        (record[..3] == program.fingerprint).then(|| SplitKey::of_record(&record))
    };
    world.lines.iter().map(of_rank).collect()
}

/// Returns the ranks that `rank` is grouped with, itself included, in their new order.
fn group(wishes: &[SplitKey], rank: u32) -> Vec<u32> {
    let color = wishes[rank as usize].color;
    let mut group: Vec<u32> = (0..wishes.len() as u32).filter(|&r| wishes[r as usize].color == color).collect();
    group.sort_by_key(|&rank| wishes[rank as usize].key);
    group
}

/// Returns the world of the group of `rank`, and its rank there; each member asks once. There is none for a rank without a
/// color, nor if the split failed on every rank.
pub(crate) fn join(world: &World, program: &Program, call: u32, rank: u32) -> Option<(Arc<World>, u32)> {
    let wishes = wishes(world, program, call)?;
    let color = wishes[rank as usize].color?;
    let group = group(&wishes, rank);
    let own = group.iter().position(|&member| member == rank)?;
    let ranks = group.iter().map(|&member| world.ranks()[member as usize]).collect();
    Some((world.groups.find_or_make(call, color, ranks), own as u32))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_record_gives_back_every_wish() {
        for color in [None, Some(0), Some(7), Some(i32::MAX as u32)] {
            for key in [i32::MIN, -1, 0, i32::MAX] {
                let wish = SplitKey { color, key };
                let Buffers { input, output, .. } = wish.into_buffers();
                let record = [0, 0, 0, input as usize as u64, output as usize as u64, 0, 0, 0];
                assert_eq!(SplitKey::of_record(&record), wish);
            }
        }
    }

    #[test]
    fn a_group_is_ordered_by_key_and_then_by_rank() {
        let wishes = [(Some(1), 5), (Some(0), 0), (Some(1), -5), (None, 0), (Some(1), 5), (None, 9)];
        let wishes = wishes.map(|(color, key)| SplitKey { color, key });
        assert_eq!(group(&wishes, 0), [2, 0, 4]);
        assert_eq!(group(&wishes, 4), [2, 0, 4]);
        assert_eq!(group(&wishes, 1), [1]);
    }
}

//! The worlds of groups that gather, for ranks that are threads: the first rank of a group makes its world, the others find it, and the last removes it from the map.

use std::collections::hash_map::{Entry, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{HasLeft, SubsetKey, World, WorldOrigin};
use crate::deadline::WaitLimit;
use crate::error::Result;
use crate::memory::heap::{HeapBlock, IsHarmless};

/// The worlds of groups that wait for members.
#[derive(Debug, Default)]
pub(crate) struct GatheringGroups {
    /// Of this world.
    groups: Gatherings,
    /// Of all worlds that were shrunk from one root.
    shrunk: Arc<Gatherings>,
    root: u64,
}

type Gatherings = Mutex<HashMap<(SubsetKey, Vec<u32>), Gathering>>;

#[derive(Debug)]
struct Gathering {
    world: Arc<World>,
    missing: usize,
}

/// Returns the world of a group, which the first of its ranks makes.
fn gather(
    groups: &Gatherings,
    key: SubsetKey,
    ranks: Vec<u32>,
    origin: impl FnOnce() -> GatheringGroups,
) -> Arc<World> {
    let mut groups = groups.lock().unwrap_or_else(PoisonError::into_inner);
    match groups.entry((key, ranks.clone())) {
        Entry::Vacant(_) if ranks.len() == 1 => Arc::new(World::of(ranks, true, Box::new(origin()))),
        Entry::Vacant(place) => {
            let missing = ranks.len() - 1;
            place
                .insert(Gathering { world: Arc::new(World::of(ranks, true, Box::new(origin()))), missing })
                .world
                .clone()
        }
        Entry::Occupied(mut place) => {
            place.get_mut().missing -= 1;
            match place.get().missing {
                0 => place.remove().world,
                _ => place.get().world.clone(),
            }
        }
    }
}

impl World {
    /// Makes the world of all ranks, which are threads.
    pub(crate) fn new(world_size: u32) -> Self {
        Self::of((0..world_size).collect(), false, Box::<GatheringGroups>::default())
    }

    /// Makes the world of some ranks of the run. Their rank in it is their index in the list.
    #[cfg(test)]
    pub(crate) fn of_group(ranks: Vec<u32>) -> Self {
        Self::of(ranks, true, Box::<GatheringGroups>::default())
    }
}

/// The number of the next world that is a root.
static NEXT_ROOT: AtomicU64 = AtomicU64::new(1);

impl WorldOrigin for GatheringGroups {
    fn make_subset(&self, key: SubsetKey, ranks: Vec<u32>, _limit: &mut WaitLimit<'_>) -> Result<Arc<World>> {
        if let SubsetKey::Shrink { .. } = key {
            let origin = || Self { groups: Mutex::default(), shrunk: self.shrunk.clone(), root: self.root };
            return Ok(gather(&self.shrunk, key, ranks, origin));
        }
        // Relaxed: the numbers differ, and say nothing else.
        let origin = || Self { root: NEXT_ROOT.fetch_add(1, Ordering::Relaxed), ..Self::default() };
        Ok(gather(&self.groups, key, ranks, origin))
    }

    fn root(&self) -> u64 {
        self.root
    }

    fn allocate(&self, _bytes: usize) -> Result<Option<HeapBlock>> {
        Ok(None)
    }

    fn process_of(&self, _rank: u32) -> Option<u32> {
        None
    }

    fn note_stream(&self, _to: u32, _block: &HeapBlock) {}

    fn keep_until(&self, _block: HeapBlock, _has_left: HasLeft) {}

    fn withhold_until(&self, _is_harmless: Box<IsHarmless>) {}

    fn longest_quiesce(&self) -> Option<Duration> {
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::deadline::Deadline;

    #[test]
    fn a_world_is_made_once_per_call_and_color_and_taken_away_by_the_last() {
        let groups = GatheringGroups::default();
        let world = |call, color, ranks| {
            let mut never = || false;
            let mut limit = WaitLimit::new(Deadline::default(), &mut never);
            groups.make_subset(SubsetKey::Split { call, color }, ranks, &mut limit).unwrap()
        };
        let first = world(1, 0, vec![4, 2]);
        let (other_color, other_call) = (world(1, 1, vec![3]), world(2, 0, vec![4, 2]));
        let second = world(1, 0, vec![4, 2]);
        assert!(Arc::ptr_eq(&first, &second) && first.ranks() == [4, 2]);
        assert!(!Arc::ptr_eq(&first, &other_color) && !Arc::ptr_eq(&first, &other_call));
        assert_eq!(Arc::strong_count(&first), 2, "the two that came hold it");
        assert_eq!(groups.groups.lock().unwrap().len(), 1, "one group waits for its second rank");
    }
}

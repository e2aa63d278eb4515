//! The worlds of groups that gather, for ranks that are threads: the first rank of a group makes its world, the others find it, and the last removes it from the map.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{World, WorldOrigin};
use crate::deadline::WaitLimit;
use crate::error::Result;
use crate::memory::heap::HeapBlock;

/// The worlds of groups that wait for members.
#[derive(Debug, Default)]
pub(crate) struct GatheringGroups(Mutex<HashMap<(u32, u32), Gathering>>);

#[derive(Debug)]
struct Gathering {
    world: Arc<World>,
    missing: usize,
}

impl WorldOrigin for GatheringGroups {
    fn make_group(&self, call: u32, color: u32, ranks: Vec<u32>, _limit: &mut WaitLimit<'_>) -> Result<Arc<World>> {
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = ranks.len();
        let make = || Gathering { world: Arc::new(World::of_group(ranks)), missing };
        let gathering = groups.entry((call, color)).or_insert_with(make);
        gathering.missing -= 1;
        let (world, is_complete) = (gathering.world.clone(), gathering.missing == 0);
        if is_complete {
            groups.remove(&(call, color));
        }
        Ok(world)
    }

    fn allocate(&self, _bytes: usize) -> Result<Option<HeapBlock>> {
        Ok(None)
    }

    fn is_gone(&self, _rank: u32) -> bool {
        false
    }

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
            let mut limit = WaitLimit { deadline: Deadline::default(), is_interrupted: &mut || false };
            groups.make_group(call, color, ranks, &mut limit).unwrap()
        };
        let first = world(1, 0, vec![4, 2]);
        let (other_color, other_call) = (world(1, 1, vec![3]), world(2, 0, vec![4, 2]));
        let second = world(1, 0, vec![4, 2]);
        assert!(Arc::ptr_eq(&first, &second) && first.ranks() == [4, 2]);
        assert!(!Arc::ptr_eq(&first, &other_color) && !Arc::ptr_eq(&first, &other_call));
        assert_eq!(Arc::strong_count(&first), 2, "the two that came hold it");
        assert_eq!(groups.0.lock().unwrap().len(), 1, "one group waits for its second rank");
    }
}

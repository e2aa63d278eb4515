//! The worlds of groups that gather: the first rank of a group makes its world, the others find it, and the last removes it from the map.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::World;

/// The worlds of groups that wait for members.
#[derive(Debug, Default)]
pub(crate) struct GatheringGroups(Mutex<HashMap<(u32, u32), Gathering>>);

#[derive(Debug)]
struct Gathering {
    world: Arc<World>,
    missing: usize,
}

impl GatheringGroups {
    /// Returns the world of the ranks of a color in split number `call`. Each of them asks once.
    pub(crate) fn find_or_make(&self, call: u32, color: u32, ranks: Vec<u32>) -> Arc<World> {
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = ranks.len();
        let make = || Gathering { world: Arc::new(World::of_group(ranks)), missing };
        let gathering = groups.entry((call, color)).or_insert_with(make);
        gathering.missing -= 1;
        let (world, is_complete) = (gathering.world.clone(), gathering.missing == 0);
        if is_complete {
            groups.remove(&(call, color));
        }
        world
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_world_is_made_once_per_call_and_color_and_taken_away_by_the_last() {
        let groups = GatheringGroups::default();
        let first = groups.find_or_make(1, 0, vec![4, 2]);
        let (other_color, other_call) = (groups.find_or_make(1, 1, vec![3]), groups.find_or_make(2, 0, vec![4, 2]));
        let second = groups.find_or_make(1, 0, vec![4, 2]);
        assert!(Arc::ptr_eq(&first, &second) && first.ranks() == [4, 2]);
        assert!(!Arc::ptr_eq(&first, &other_color) && !Arc::ptr_eq(&first, &other_call));
        assert_eq!(Arc::strong_count(&first), 2, "the two that came hold it");
        assert_eq!(groups.0.lock().unwrap().len(), 1, "one group waits for its second rank");
    }
}

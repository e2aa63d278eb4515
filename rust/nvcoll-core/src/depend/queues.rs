//! Queues of steps: each step gets a queue of its rank and a position in the queue, by its level.

use super::draft::Draft;
use crate::schedule::{Step, View};

/// A queue, by rank and number.
pub(super) type QueueId = (u32, u32);

/// The role of a queue. When tiles stream, publishing runs ahead of folding, and folding runs ahead of copying.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Publish,
    Fold,
    Copy,
}

impl Role {
    fn of(draft: &Draft<View>) -> Self {
        if draft.src.len() > 1 {
            Role::Fold
        } else if draft.dst.iter().all(|view| view.buffer.is_staging()) && !draft.src[0].buffer.is_staging() {
            Role::Publish
        } else {
            Role::Copy
        }
    }
}

/// Writes queue and index into every step. Returns all positions by level and then by program order, which is the order of steps in
/// every queue.
pub(super) fn assign(drafts: &[Draft<View>], needs: &[Vec<u32>], steps: &mut [Step]) -> Vec<u32> {
    let mut levels = vec![0u32; drafts.len()];
    for (position, earlier) in needs.iter().enumerate() {
        levels[position] = earlier.iter().map(|&p| levels[p as usize] + 1).max().unwrap_or(0);
    }
    let mut positions: Vec<u32> = (0..drafts.len() as u32).collect();
    positions.sort_by_key(|&p| (levels[p as usize], p));

    let world_size = drafts.iter().map(|d| d.rank + 1).max().unwrap_or(0) as usize;
    let mut keys: Vec<Vec<(u32, Role)>> = vec![Vec::new(); world_size];
    for draft in drafts {
        let key = (draft.channel, Role::of(draft));
        let of_rank = &mut keys[draft.rank as usize];
        if let Err(at) = of_rank.binary_search(&key) {
            of_rank.insert(at, key);
        }
    }
    let mut lengths: Vec<Vec<u32>> = keys.iter().map(|k| vec![0; k.len()]).collect();
    for &position in &positions {
        let draft = &drafts[position as usize];
        let queue = keys[draft.rank as usize].partition_point(|key| *key < (draft.channel, Role::of(draft)));
        let length = &mut lengths[draft.rank as usize][queue];
        let step = &mut steps[position as usize];
        (step.queue, step.index) = (queue as u32, *length);
        *length += 1;
    }
    positions
}

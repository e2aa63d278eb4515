//! The chunks that a schedule writes once and does not touch otherwise: stores to them may go past the caches.

use std::collections::{HashMap, HashSet};

use nvcoll_core::schedule::{Aliasing, Buffer, Schedule, Step, View};

/// A chunk of a buffer of a rank.
type ChunkOfBuffer = (u32, Buffer, u32);

/// The chunks that a schedule writes once and does not touch otherwise.
#[derive(Debug, Default)]
pub(super) struct WrittenOnce {
    cells: HashSet<ChunkOfBuffer>,
    aliasing: Option<Aliasing>,
}

impl WrittenOnce {
    /// Finds them. Cost: linear in the chunks that steps name.
    pub(super) fn of(schedule: &Schedule) -> Self {
        let aliasing = Some(schedule.aliasing);
        let mut touches: HashMap<ChunkOfBuffer, u32> = HashMap::new();
        for view in schedule.steps.iter().flat_map(Step::views) {
            for nth in 0..view.chunks.len() as u32 {
                *touches.entry(cell(aliasing, view, nth)).or_default() += 1;
            }
        }
        // What is read only stays in the set and does no harm: it is no destination.
        let cells = touches.into_iter().filter(|(_, touches)| *touches == 1).map(|(cell, _)| cell).collect();
        Self { cells, aliasing }
    }

    /// Says whether the `nth` chunk of a destination is among them.
    pub(super) fn holds(&self, written: &View, nth: u32) -> bool {
        self.cells.contains(&cell(self.aliasing, written, nth))
    }
}

fn cell(aliasing: Option<Aliasing>, view: &View, nth: u32) -> ChunkOfBuffer {
    let buffer = aliasing.map_or(view.buffer, |aliasing| view.buffer.memory(aliasing));
    (view.rank, buffer, view.chunks.start + nth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvcoll_core::algorithm::build;
    use nvcoll_core::collective::{Roles, ALL_REDUCE};

    fn steps_written_once(name: &str, aliasing: Aliasing) -> usize {
        let schedule = build(&ALL_REDUCE, name, Roles::of(4), aliasing).unwrap();
        let written_once = WrittenOnce::of(&schedule);
        let is_once = |step: &&Step| step.dst.iter().all(|view| written_once.holds(view, 0));
        schedule.steps.iter().filter(is_once).count()
    }

    #[test]
    fn what_comes_into_question_is_what_no_step_reads_before_or_after() {
        assert_eq!(steps_written_once("nvswitch", Aliasing::Disjoint), 4, "every step");
        assert_eq!(steps_written_once("nvswitch", Aliasing::InPlace), 0, "all was read");
        assert_eq!(steps_written_once("ring", Aliasing::Disjoint), 0, "partial sums pass through every output");
    }
}

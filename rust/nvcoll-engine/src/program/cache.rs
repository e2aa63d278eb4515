//! The programs that a node keeps for its next calls: the [`KEPT`] used last.
//!
//! A call of a new shape (world size, algorithm, dtype, op, count, path, aliasing) binds a program, which costs far more than running
//! it on few bytes. A training step repeats some dozens of shapes; a service whose counts never repeat would fill the
//! memory. When there are [`KEPT`], the one that was asked for longest ago makes room. Whoever holds a program (a plan, a
//! call that runs) keeps it alive: it is forgotten here, not ended.
//!
//! Cost: finding is one look-up. Making room looks at all of them, which is little beside the binding that went before.

use std::collections::HashMap;
use std::sync::Arc;

use crate::auto::work_split::WorkSplit;
use crate::call::Call;
use crate::program::Program;

/// How many programs a node keeps. Chosen: several times the shapes of one training step.
pub(crate) const KEPT: usize = 256;

/// What a program is found by: a call, how it is shared out, and among how many ranks.
pub(crate) type ProgramKey = (Call, WorkSplit, u32);

/// Programs, and when each was asked for last.
#[derive(Debug, Default)]
pub(crate) struct ProgramCache {
    kept: HashMap<ProgramKey, (Arc<Program>, u64)>,
    requests: u64,
}

impl ProgramCache {
    /// Returns a program that is kept.
    pub(crate) fn find(&mut self, key: &ProgramKey) -> Option<Arc<Program>> {
        self.requests += 1;
        let (program, asked) = self.kept.get_mut(key)?;
        *asked = self.requests;
        Some(program.clone())
    }

    /// Keeps a program, in the place of the one that was asked for longest ago if there is no room.
    pub(crate) fn keep(&mut self, key: ProgramKey, program: Arc<Program>) {
        if self.kept.len() >= KEPT && !self.kept.contains_key(&key) {
            let oldest = self.kept.iter().min_by_key(|(_, (_, asked))| asked).map(|(key, _)| key.clone());
            oldest.map(|oldest| self.kept.remove(&oldest));
        }
        self.kept.insert(key, (program, self.requests));
    }

    /// Forgets every program.
    pub(crate) fn clear(&mut self) {
        self.kept.clear();
    }
}

#[cfg(test)]
mod tests {
    use nvcoll_core::collective::ALL_REDUCE;
    use nvcoll_core::counts::Counts;
    use nvcoll_core::schedule::Aliasing;

    use super::*;
    use crate::memory::buffers::Buffers;
    use crate::ranks::node::Node;
    use crate::run::deadline::Deadline;

    fn call(count: usize) -> Call {
        let (algorithm, counts, aliasing) = ("ring".into(), Counts::Even(count), Aliasing::InPlace);
        Call { algorithm, counts, aliasing, ..Call::without_data(&ALL_REDUCE) }
    }

    #[test]
    fn the_program_asked_for_longest_ago_makes_room_and_still_runs_for_who_holds_it() {
        let node = Node::new(2, Some(1)).unwrap();
        let program = |count| node.program(&call(count), None).unwrap();
        let (used, forgotten) = (program(1), program(2));
        for count in 3..=KEPT {
            program(count);
        }
        assert!(Arc::ptr_eq(&used, &program(1)), "all that there is room for are kept");
        program(KEPT + 1);
        assert!(Arc::ptr_eq(&used, &program(1)));
        assert_eq!(Arc::strong_count(&forgotten), 1, "only the test holds it");
        let mut data = [[1f32, 2.0], [3.0, 4.0]];
        let mut buffers = data.each_mut().map(|x| {
            let start: *mut u8 = x.as_mut_ptr().cast();
            Buffers::new(start, start, 1.0)
        });
        // SAFETY: two live arrays of two floats, in place.
        unsafe { node.run(&forgotten, &mut buffers, Deadline::after(Some(30.0)), &mut || false) }.unwrap();
        assert_eq!(data, [[4.0, 6.0]; 2]);
        assert!(!Arc::ptr_eq(&forgotten, &program(2)), "asked for again, it is bound again");
    }

    #[test]
    fn however_many_calls_there_are_no_more_are_kept_than_that() {
        let (node, mut programs) = (Node::new(1, Some(1)).unwrap(), ProgramCache::default());
        let program = node.program(&call(1), None).unwrap();
        for count in 0..2 * KEPT {
            programs.keep((call(count), WorkSplit::ByTile, 1), program.clone());
        }
        assert_eq!(programs.kept.len(), KEPT);
        programs.clear();
        assert_eq!(Arc::strong_count(&program), 2, "the test and the node hold it");
    }
}

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
pub const KEPT: usize = 256;

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

    use super::super::tests::bound;
    use super::*;

    fn call(count: usize) -> Call {
        Call { algorithm: "ring".into(), counts: Counts::Even(count), ..Call::without_data(&ALL_REDUCE) }
    }

    #[test]
    fn however_many_calls_there_are_no_more_are_kept_than_that() {
        let (program, mut programs) = (Arc::new(bound(call(1), 1, 1)), ProgramCache::default());
        for count in 0..2 * KEPT {
            programs.keep((call(count), WorkSplit::ByTile, 1), program.clone());
        }
        assert_eq!((programs.kept.len(), Arc::strong_count(&program)), (KEPT, KEPT + 1));
        programs.clear();
        assert_eq!(Arc::strong_count(&program), 1, "only the test holds it");
    }
}

//! The cache of programs of a node: the [`KEPT`] programs that were used last.
//!
//! Binding a program costs far more than running it on few bytes, and a new shape of call (world size, algorithm, dtype, op, count,
//! path, aliasing) needs a new program. A training step repeats some dozens of shapes. A service whose counts never repeat would fill
//! the memory, so the least recently used program makes room. Plans and running calls keep their program alive.
//!
//! Cost: one look-up to find a program. Making room scans the cache, which is little beside binding.

use std::collections::HashMap;
use std::sync::Arc;

use crate::auto::work_split::WorkSplit;
use crate::call::Call;
use crate::program::Program;

/// The number of programs that a node keeps. Chosen: several times the shapes of one training step.
pub const KEPT: usize = 256;

/// The key of a program: call, work split, and number of ranks.
pub(crate) type ProgramKey = (Call, WorkSplit, u32);

/// Programs, and the request at which each was used last.
#[derive(Debug, Default)]
pub(crate) struct ProgramCache {
    kept: HashMap<ProgramKey, (Arc<Program>, u64)>,
    requests: u64,
}

impl ProgramCache {
    /// Returns a kept program.
    pub(crate) fn find(&mut self, key: &ProgramKey) -> Option<Arc<Program>> {
        self.requests += 1;
        let (program, asked) = self.kept.get_mut(key)?;
        *asked = self.requests;
        Some(program.clone())
    }

    /// Keeps a program. If the cache is full, the least recently used one is dropped.
    pub(crate) fn keep(&mut self, key: ProgramKey, program: Arc<Program>) {
        if self.kept.len() >= KEPT && !self.kept.contains_key(&key) {
            let oldest = self.kept.iter().min_by_key(|(_, (_, asked))| asked).map(|(key, _)| key.clone());
            oldest.map(|oldest| self.kept.remove(&oldest));
        }
        self.kept.insert(key, (program, self.requests));
    }

    /// Drops every program.
    pub(crate) fn clear(&mut self) {
        self.kept.clear();
    }
}

//! The records of a batch: one per call that a rank launches as one, and the memory that all of them touch. A single call has its
//! record in the line instead.
//!
//! There are two sets by the parity of the call, as for single records, under the same stamp rule: nobody writes a set that other ranks
//! still need. A lock keeps a read consistent even so. It is taken once per peer and batch, and never by ranks that make single calls.
//! A batch that runs again finds its records in place, and its peers, who know its number, do not read them again. Ranks that are
//! processes will need a place of fixed size in shared memory instead.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::memory::footprint::Footprint;
use crate::sync::Record;

/// The two sets of records of one rank.
#[derive(Debug, Default)]
pub(crate) struct BatchRecords([Mutex<PassRecords>; 2]);

/// The records of a rank for one pass of a batch.
#[derive(Debug, Default)]
pub(crate) struct PassRecords {
    /// The number of the pass.
    id: u64,
    /// The record of each call of the pass.
    pub(crate) records: Vec<Record>,
    /// The memory that all calls of the batch touch, where ranks call for themselves.
    pub(crate) footprint: Footprint,
}

impl BatchRecords {
    /// Writes the records of `call`, unless they are there already. The stamp that follows publishes them.
    pub(crate) fn write(&self, call: u32, id: u64, footprint: &Footprint, records: impl Iterator<Item = Record>) {
        let mut entry = self.lock(call);
        if entry.id == id {
            return;
        }
        entry.id = id;
        entry.records.clear();
        entry.records.extend(records);
        entry.footprint.clone_from(footprint);
    }

    /// Passes the records of `call` to `look`.
    pub(crate) fn read<T>(&self, call: u32, look: impl FnOnce(&PassRecords) -> T) -> T {
        look(&self.lock(call))
    }

    fn lock(&self, call: u32) -> MutexGuard<'_, PassRecords> {
        self.0[call as usize % 2].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

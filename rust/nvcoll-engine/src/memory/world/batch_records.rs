//! The records of a batch: one for each call that a rank launches as one, where a single call has its record in the line;
//! and the memory that all of them touch.
//!
//! Two tables by the parity of the call, as records have two places, and under the same stamp rule: nobody writes a table
//! that others still need. A lock keeps what is read whole even so; it is taken once per peer and batch, and never by
//! ranks that make single calls. A batch that runs again finds its records there, and its peers, who know its number, do not
//! read them again. Ranks that are processes will need a place of fixed size in shared memory instead.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::memory::footprint::Footprint;
use crate::sync::Record;

/// The two tables of one rank.
#[derive(Debug, Default)]
pub(crate) struct BatchRecords([Mutex<PassRecords>; 2]);

/// What a rank brings to one pass of a batch.
#[derive(Debug, Default)]
pub(crate) struct PassRecords {
    /// The number of the pass.
    id: u64,
    /// Of each call of the pass.
    pub(crate) records: Vec<Record>,
    /// Of all calls of the batch, where ranks call for themselves.
    pub(crate) footprint: Footprint,
}

impl BatchRecords {
    /// Writes what `call` is, unless that is there already; the stamp that follows says that it is.
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

    /// Looks at what `call` is.
    pub(crate) fn read<T>(&self, call: u32, look: impl FnOnce(&PassRecords) -> T) -> T {
        look(&self.lock(call))
    }

    fn lock(&self, call: u32) -> MutexGuard<'_, PassRecords> {
        self.0[call as usize % 2].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The records of a batch: one for each call that a rank launches as one, where a single call has its record in the line.
//!
//! Two tables by the parity of the call, as records have two places, and under the same stamp rule: nobody writes a table
//! that others still need. A lock keeps what is read whole even so; it is taken once per peer and batch, and never by
//! ranks that make single calls. Ranks that are processes will need a place of fixed size in shared memory instead.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sync::Record;

/// The two tables of one rank.
#[derive(Debug, Default)]
pub(crate) struct Table([Mutex<Vec<Record>>; 2]);

impl Table {
    /// Writes the records of `call`; the stamp that follows says that they are there.
    pub(crate) fn write(&self, call: u32, records: impl Iterator<Item = Record>) {
        let mut table = self.lock(call);
        table.clear();
        table.extend(records);
    }

    /// Looks at the records of `call`.
    pub(crate) fn read<T>(&self, call: u32, look: impl FnOnce(&[Record]) -> T) -> T {
        look(&self.lock(call))
    }

    fn lock(&self, call: u32) -> MutexGuard<'_, Vec<Record>> {
        self.0[call as usize % 2].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The records of a batch: one per call of a pass. A single call has its record in the line instead.
//!
//! There are two sets by the parity of the call, as for single records, under the same stamp rule: nobody writes a set that other ranks
//! still need. A batch that runs again finds its records in place, and its peers, who know its number, do not read them again. A set
//! has a fixed size, so a batch with more calls takes several passes ([`MOST_CALLS`]).

use super::atomic::{AtomicU64, Ordering};
use super::record::{Record, WORDS};

/// The most calls of a pass. Chosen: more than the gradients of most models; a pass more costs one entry and one leave. A model needs two.
pub(crate) const MOST_CALLS: usize = if cfg!(loom) { 2 } else { 256 };

/// The two sets of records of one rank. One writer.
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
#[repr(C, align(128))]
pub struct BatchRecords([PassRecords; 2]);

/// The records of a rank for one pass.
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
#[repr(C, align(128))]
struct PassRecords {
    /// The number of the pass, which the writer alone reads.
    id: AtomicU64,
    records: [[AtomicU64; WORDS]; MOST_CALLS],
}

impl BatchRecords {
    /// Writes the records of `call`, unless the records of the pass `id` are there already. The stamp that follows publishes them.
    pub fn write(&self, call: u32, id: u64, records: impl Iterator<Item = Record>) {
        let set = &self.0[call as usize % 2];
        // Relaxed, both: the rank alone reads and writes it.
        if set.id.load(Ordering::Relaxed) == id {
            return;
        }
        set.id.store(id, Ordering::Relaxed);
        for (words, record) in set.records.iter().zip(records) {
            // Relaxed: ordered by the Release of `Stamp::enter`.
            words.iter().zip(record).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        }
    }

    /// Copies the first `calls` records of `call`, which was stamped; fewer if there are fewer.
    pub fn read(&self, call: u32, calls: usize) -> impl Iterator<Item = Record> + '_ {
        let records = self.0[call as usize % 2].records.iter().take(calls);
        // Relaxed: ordered by the Acquire of `Stamp::has_entered`.
        records.map(|words| std::array::from_fn(|at| words[at].load(Ordering::Relaxed)))
    }
}

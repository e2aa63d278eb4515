//! Call records: what a rank says it is calling, compared by its peers before the first byte moves.
//!
//! A rank writes the record of call c and then stamps c. It has two places, by the parity of the call, and reuses the place
//! of call c-2 under the stamp rule: when every other rank has entered c-1, none still reads the record of c-2.

use super::atomic::{AtomicU64, Ordering};

/// How many words a record has.
pub const WORDS: usize = 8;

/// The word that says how many calls are made as one: 1, or the calls of the pass and then those of the batch, whose records
/// are in a table then.
pub const CALLS: usize = WORDS - 1;

/// In the same word of a single call's record: the rank works on copies, and says elsewhere where its arrays lie.
pub(crate) const COPIES: u64 = 1 << 63;

/// In the same word: every rank can reach the buffers, and the rank offers to run the call mapped.
pub const REACHABLE: u64 = 1 << 62;

/// The bits of that word that may differ between ranks.
pub(crate) const FLAGS: u64 = COPIES | REACHABLE;

/// The same word of a record in such a table: which of the calls it is, the place from 0, then how many there are.
pub(crate) const PLACE: usize = CALLS;

/// One call of one rank, as plain words. What the others mean is the caller's business.
pub type Record = [u64; WORDS];

/// The two records of one rank, each on a line of its own. One writer.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct RecordLine([RecordHalf; 2]);

#[derive(Debug, Default)]
#[repr(C, align(128))]
struct RecordHalf([AtomicU64; WORDS]);

impl RecordLine {
    /// Writes the record of `call`; the stamp that follows makes it visible.
    pub fn write(&self, call: u32, record: &Record) {
        for (word, value) in self.0[call as usize % 2].0.iter().zip(record) {
            // Relaxed: ordered by the Release of `Stamp::enter`.
            word.store(*value, Ordering::Relaxed);
        }
    }

    /// Copies the record of `call`, which must have been stamped.
    pub fn read(&self, call: u32) -> Record {
        // Relaxed: ordered by the Acquire of `Stamp::has_entered`.
        std::array::from_fn(|i| self.0[call as usize % 2].0[i].load(Ordering::Relaxed))
    }
}

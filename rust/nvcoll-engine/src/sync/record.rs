//! Call records: what a rank says it is calling, compared by its peers before the first byte moves.
//!
//! A rank writes the record of call c and then stamps c. Peers compare the records of c, and under the stamp rule none still reads
//! that of c-2 when everybody has entered c-1. So two places would do. There are [`PLACES`], which costs nothing per call: the last calls
//! of a rank can be shown when a call hangs. Who reads one of them outside a call, looks at the stamp afterwards (`RecordLine::recent`).

use nvcoll_core::words::counted;

use super::atomic::{fence, AtomicU64, Ordering};

/// How many words a record has.
pub const WORDS: usize = 8;

/// How many records a rank keeps. Chosen: what fits a screen; the models have the least number.
pub const PLACES: usize = if cfg!(loom) { 2 } else { 16 };

/// The word with the number of calls that are made as one: 1, or the calls of the pass and then of the batch, whose records
/// are in a table then.
pub const CALLS: usize = WORDS - 1;

/// In the same word of a single call's record: the rank works on copies, and says elsewhere where its arrays lie.
pub(crate) const COPIES: u64 = 1 << 63;

/// In the same word: every rank can reach the buffers, and the rank offers to run the call mapped.
pub const REACHABLE: u64 = 1 << 62;

/// In the same word of a notice: the wait is for messages, and there is no call.
pub(crate) const MESSAGES: u64 = 1 << 61;

/// The bits of that word that may differ between ranks.
pub(crate) const FLAGS: u64 = COPIES | REACHABLE;

/// The same word of a record in such a table: which of the calls it is, the place from 0, then how many there are.
pub(crate) const PLACE: usize = CALLS;

/// One call of one rank, as plain words. What the others mean is the caller's business.
pub type Record = [u64; WORDS];

/// The last records of one rank, each on a line of its own. One writer.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct RecordLine([RecordPlace; PLACES]);

#[derive(Debug, Default)]
#[repr(C, align(128))]
struct RecordPlace([AtomicU64; WORDS]);

impl RecordLine {
    /// Writes the record of `call`; the stamp that follows makes it visible.
    pub fn write(&self, call: u32, record: &Record) {
        for (word, value) in self.0[call as usize % PLACES].0.iter().zip(record) {
            // Relaxed: ordered by the Release of `Stamp::enter`.
            word.store(*value, Ordering::Relaxed);
        }
    }

    /// Copies the record of `call`, which must have been stamped.
    pub fn read(&self, call: u32) -> Record {
        // Relaxed: ordered by the Acquire of `Stamp::has_entered`.
        std::array::from_fn(|i| self.0[call as usize % PLACES].0[i].load(Ordering::Relaxed))
    }

    /// Copies the records of the last calls before and with `last`, which was stamped, newest first. `now` returns the stamp again: what
    /// may have been overwritten meanwhile is left out.
    pub fn recent(&self, last: u32, now: impl Fn() -> u32) -> Vec<(u32, Record)> {
        let kept = (last as usize).min(PLACES) as u32;
        let found: Vec<_> = (0..kept).map(|back| (last - back, self.read(last - back))).collect();
        // Acquire: the reads above come before this look at the stamp.
        fence(Ordering::Acquire);
        // The rank may be writing the record of the call after its stamp.
        let next = now().wrapping_add(1);
        found.into_iter().filter(|(call, _)| next.wrapping_sub(*call) < PLACES as u32).collect()
    }
}

/// Returns the record of a wait for a send or a receive, and for `more` others.
pub(crate) fn record_of_message(is_send: bool, tag: Option<u32>, bytes: usize, more: usize) -> Record {
    let mut record = [0; WORDS];
    (record[0], record[1]) = (is_send.into(), tag.map_or(0, |tag| u64::from(tag) + 1));
    (record[2], record[3], record[CALLS]) = (bytes as u64, more as u64, MESSAGES);
    record
}

/// Says in words what the record of a wait for a message says. Any words are one.
pub(crate) fn words_of_message(record: &Record) -> String {
    let verb = if record[0] == 1 { "send" } else { "recv" };
    let tag = record[1].checked_sub(1).map_or_else(|| "any tag".to_owned(), |tag| format!("tag {tag}"));
    let more = if record[3] == 0 { String::new() } else { format!(" and {}", counted(record[3], "more message")) };
    format!("{verb} of {} with {tag}{more}", counted(record[2], "byte"))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_calls_are_told_newest_first_without_those_that_may_be_overwritten() {
        let line = RecordLine::default();
        (1..=40).for_each(|call: u32| line.write(call, &[call.into(); WORDS]));
        let calls = |last: u32, now: u32| line.recent(last, || now).iter().map(|(call, _)| *call).collect::<Vec<_>>();
        assert_eq!(calls(40, 40), (26..=40).rev().collect::<Vec<_>>());
        assert_eq!(calls(40, 53), [40, 39]);
        assert_eq!(calls(3, 3), [3, 2, 1]);
        assert_eq!(calls(0, 0), []);
        assert!(line.recent(40, || 40).iter().all(|(call, record)| record == &[u64::from(*call); WORDS]));
    }
}

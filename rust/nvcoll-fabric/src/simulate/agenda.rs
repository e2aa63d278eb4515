//! What happens when: a queue of events by time, made for many at the same time.
//!
//! ```text
//! heap of (time, bucket) ─▶ bucket: every event of that time        ranks in step share a bucket: one heap operation for all
//! a small table of times seen lately finds the bucket of a time that is there already
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::units::Ps;

/// Chosen: more different times than are usually pending.
const TABLE_BITS: u32 = 10;

/// Events by time.
pub(super) struct Agenda {
    heap: BinaryHeap<Reverse<(Ps, u32)>>,
    /// By hash of a time: a time, and its bucket.
    lately: Vec<(Ps, u32)>,
    buckets: Vec<Vec<u64>>,
    free: Vec<u32>,
}

impl Agenda {
    pub(super) fn new() -> Self {
        let lately = vec![(Ps::MAX, 0); 1 << TABLE_BITS];
        Self { heap: BinaryHeap::new(), lately, buckets: Vec::new(), free: Vec::new() }
    }

    #[inline]
    pub(super) fn push(&mut self, at: Ps, event: u64) {
        let row = &mut self.lately[row_of(at)];
        if row.0 != at {
            let bucket = self.free.pop().unwrap_or_else(|| {
                self.buckets.push(Vec::new());
                self.buckets.len() as u32 - 1
            });
            *row = (at, bucket);
            self.heap.push(Reverse((at, bucket)));
        }
        self.buckets[row.1 as usize].push(event);
    }

    pub(super) fn next_time(&self) -> Option<Ps> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Moves every event of a time, which must be the next, into `into`, which must be empty. A time may have several
    /// buckets.
    pub(super) fn take(&mut self, at: Ps, into: &mut Vec<u64>) {
        while let Some(&Reverse((time, bucket))) = self.heap.peek() {
            if time != at {
                break;
            }
            self.heap.pop();
            let events = &mut self.buckets[bucket as usize];
            if into.is_empty() {
                std::mem::swap(into, events);
            } else {
                into.append(events);
            }
            self.free.push(bucket);
        }
        let row = &mut self.lately[row_of(at)];
        if row.0 == at {
            row.0 = Ps::MAX;
        }
    }
}

/// Fibonacci hashing (Knuth, volume 3, 6.4).
#[inline]
fn row_of(at: Ps) -> usize {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - TABLE_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::Agenda;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn events_come_by_time_and_none_is_lost(times in prop::collection::vec(0u64..50_000, 0..3000)) {
            let mut agenda = Agenda::new();
            for (event, &at) in times.iter().enumerate() {
                agenda.push(at, event as u64);
            }
            let (mut seen, mut last) = (0, None);
            while let Some(at) = agenda.next_time() {
                prop_assert!(last < Some(at));
                last = Some(at);
                let mut batch = Vec::new();
                agenda.take(at, &mut batch);
                prop_assert!(batch.iter().all(|&event| times[event as usize] == at));
                seen += batch.len();
            }
            prop_assert_eq!(seen, times.len());
        }
    }
}

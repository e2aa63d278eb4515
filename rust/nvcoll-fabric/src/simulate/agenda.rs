//! What happens when: a queue of events by time, made for many at the same time.
//!
//! ```text
//! heap of (time, list) ─▶ list: every event of that time            ranks in step share a list: one heap operation for all
//! a small table of times seen lately finds the list of a time that is there already
//! ```
//!
//! Events that come one after the other anyhow, as what begins a fixed time from now, wait in a line instead.
//!
//! The heap has four children per node: half as deep as with two, and the least of four is found without a branch.

use std::collections::VecDeque;

use crate::units::Ps;

/// Chosen: more different times than are usually pending.
const TABLE_BITS: u32 = 10;

const NONE: u32 = u32::MAX;

/// Events by time.
pub(super) struct Agenda {
    /// By time.
    line: VecDeque<(Ps, u64)>,
    heap: Heap,
    /// By hash of a time: a time, and the last of its list.
    lately: Vec<(Ps, u32)>,
    /// Events, each with the next of its list, or of those that are free.
    events: Vec<(u64, u32)>,
    free: u32,
}

impl Agenda {
    pub(super) fn new() -> Self {
        let lately = vec![(Ps::MAX, NONE); 1 << TABLE_BITS];
        Self { line: VecDeque::new(), heap: Heap::default(), lately, events: Vec::new(), free: NONE }
    }

    #[inline]
    pub(super) fn push(&mut self, at: Ps, event: u64) {
        let number = self.store(event);
        let row = &mut self.lately[row_of(at)];
        if row.0 == at {
            self.events[row.1 as usize].1 = number;
        } else {
            row.0 = at;
            self.heap.push(at, number);
        }
        row.1 = number;
    }

    /// As `push`, for events that mostly come in order of time.
    #[inline]
    pub(super) fn push_in_order(&mut self, at: Ps, event: u64) {
        match self.line.back() {
            Some(&(last, _)) if last > at => self.push(at, event),
            _ => self.line.push_back((at, event)),
        }
    }

    /// Puts an event at the end of no list.
    #[inline]
    fn store(&mut self, event: u64) -> u32 {
        let number = self.free;
        match self.events.get_mut(number as usize) {
            Some(place) => {
                self.free = place.1;
                *place = (event, NONE);
                number
            }
            None => {
                self.events.push((event, NONE));
                self.events.len() as u32 - 1
            }
        }
    }

    #[inline]
    pub(super) fn next_time(&self) -> Option<Ps> {
        let (line, heap) = (self.line.front().map(|&(at, _)| at), self.heap.first().map(|(at, _)| at));
        line.into_iter().chain(heap).min()
    }

    /// Adds every event of a time, which must be the next, to `into`. A time may have several lists.
    #[inline]
    pub(super) fn take(&mut self, at: Ps, into: &mut Vec<u64>) {
        while let Some(&(time, event)) = self.line.front() {
            if time != at {
                break;
            }
            into.push(event);
            self.line.pop_front();
        }
        while let Some((time, list)) = self.heap.first() {
            if time != at {
                break;
            }
            self.heap.pop();
            let mut number = list;
            while let Some(place) = self.events.get_mut(number as usize) {
                into.push(place.0);
                let next = std::mem::replace(&mut place.1, self.free);
                self.free = number;
                number = next;
            }
        }
        let row = &mut self.lately[row_of(at)];
        if row.0 == at {
            row.0 = Ps::MAX;
        }
    }
}

impl Agenda {
    /// Returns all events with their times, in no particular order.
    pub(super) fn pending(&self) -> impl Iterator<Item = (Ps, u64)> + '_ {
        let lists = self.heap.0.iter().flat_map(|&packed| {
            let listed = |number: u32| self.events.get(number as usize).map(|&(event, next)| (number, event, next));
            std::iter::successors(listed(packed as u32), move |&(_, _, next)| listed(next))
                .map(move |(_, event, _)| ((packed >> 32) as Ps, event))
        });
        self.line.iter().copied().chain(lists)
    }

    /// Lets every event happen that much later.
    pub(super) fn postpone(&mut self, by: Ps) {
        self.line.iter_mut().for_each(|(at, _)| *at += by);
        self.heap.0.iter_mut().for_each(|packed| *packed += u128::from(by) << 32);
        self.lately.fill((Ps::MAX, NONE));
    }
}

/// Fibonacci hashing (Knuth, volume 3, 6.4).
#[inline]
fn row_of(at: Ps) -> usize {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - TABLE_BITS)) as usize
}

/// Times with a number each, the least first: a heap with four children per node (Johnson 1975), time and number
/// packed into one integer.
#[derive(Default)]
struct Heap(Vec<u128>);

impl Heap {
    #[inline]
    fn first(&self) -> Option<(Ps, u32)> {
        self.0.first().map(|&packed| ((packed >> 32) as Ps, packed as u32))
    }

    #[inline]
    fn push(&mut self, at: Ps, number: u32) {
        let packed = u128::from(at) << 32 | u128::from(number);
        let mut hole = self.0.len();
        self.0.push(packed);
        while hole > 0 {
            let parent = (hole - 1) / 4;
            if self.0[parent] <= packed {
                break;
            }
            self.0[hole] = self.0[parent];
            hole = parent;
        }
        self.0[hole] = packed;
    }

    /// Drops the least.
    #[inline]
    fn pop(&mut self) {
        let Some(last) = self.0.pop() else { return };
        let heap = &mut self.0[..];
        let mut hole = 0;
        while let Some((below, least)) = least_child(heap, hole) {
            if last <= least {
                break;
            }
            heap[hole] = least;
            hole = below;
        }
        if let Some(place) = heap.get_mut(hole) {
            *place = last;
        }
    }
}

#[inline]
fn least_child(heap: &[u128], parent: usize) -> Option<(usize, u128)> {
    let lesser = |a: (usize, u128), b: (usize, u128)| if b.1 < a.1 { b } else { a };
    let first = 4 * parent + 1;
    let children = heap.get(first..)?;
    if let Some(&[a, b, c, d]) = children.first_chunk::<4>() {
        return Some(lesser(lesser((first, a), (first + 1, b)), lesser((first + 2, c), (first + 3, d))));
    }
    (first..).zip(children.iter().copied()).reduce(lesser)
}

#[cfg(test)]
mod tests {
    use super::Agenda;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn events_come_by_time_and_none_is_lost(
            times in prop::collection::vec(0u64..50_000, 0..3000), later in prop::collection::vec(1u64..5_000, 0..3000),
        ) {
            let mut agenda = Agenda::new();
            for &at in &times {
                agenda.push(at, at);
            }
            let (mut seen, mut last, mut later) = (0, None, later.iter());
            let all = times.len() + later.len() * usize::from(!times.is_empty());
            while let Some(at) = agenda.next_time() {
                prop_assert!(last < Some(at));
                last = Some(at);
                let mut batch = Vec::new();
                agenda.take(at, &mut batch);
                prop_assert!(!batch.is_empty() && batch.iter().all(|&event| event == at));
                seen += batch.len();
                for after in later.by_ref().take(if agenda.next_time().is_none() { usize::MAX } else { 3 }) {
                    agenda.push_in_order(at + after, at + after);
                }
            }
            prop_assert_eq!(seen, all);
        }
    }
}

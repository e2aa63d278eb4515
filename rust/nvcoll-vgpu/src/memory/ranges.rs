//! Free ranges of address space: first fit, and neighbours join when a range comes back.
//!
//! The lowest range that is long enough is taken. That keeps addresses in use low, and gives the same addresses to the same
//! sequence of calls. Taking costs the number of free ranges; a caching allocator leaves few.
use std::collections::BTreeMap;

/// Address space that nobody uses, as ranges that do not touch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ranges {
    free: BTreeMap<usize, usize>,
}

impl Ranges {
    /// One free range.
    pub fn new(start: usize, bytes: usize) -> Ranges {
        Ranges { free: BTreeMap::from([(start, bytes)]) }
    }

    /// Takes `bytes` that start at a multiple of `alignment`, a power of two; none if no range is long enough.
    pub fn take(&mut self, bytes: usize, alignment: usize) -> Option<usize> {
        let fits = |(&start, &length): (&usize, &usize)| {
            let at = start.checked_next_multiple_of(alignment)?;
            (at.checked_add(bytes)? <= start + length).then_some((start, length, at))
        };
        let (start, length, at) = self.free.iter().find_map(fits)?;
        self.free.remove(&start);
        if at > start {
            self.free.insert(start, at - start);
        }
        let rest = start + length - (at + bytes);
        if rest > 0 {
            self.free.insert(at + bytes, rest);
        }
        Some(at)
    }

    /// Gives back a range that [`Ranges::take`] gave.
    pub fn give(&mut self, start: usize, bytes: usize) {
        let (mut start, mut bytes) = (start, bytes);
        if let Some((&before, &length)) = self.free.range(..start).next_back() {
            if before + length == start {
                self.free.remove(&before);
                (start, bytes) = (before, length + bytes);
            }
        }
        if let Some(length) = self.free.remove(&(start + bytes)) {
            bytes += length;
        }
        self.free.insert(start, bytes);
    }

    /// Bytes that are free.
    pub fn bytes(&self) -> usize {
        self.free.values().sum()
    }
}

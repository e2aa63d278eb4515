//! The parts that a buffer holds: evenly spaced parts, in order.

/// A list of `count` parts: `first`, `first + step`, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    first: u32,
    step: u32,
    count: u32,
}

impl Parts {
    /// The empty list of parts.
    pub const NONE: Parts = Parts { first: 0, step: 1, count: 0 };

    /// Returns the list of one part.
    pub const fn one(part: u32) -> Self {
        Self { first: part, step: 1, count: 1 }
    }

    /// Returns the parts 0 to `count` - 1.
    pub const fn first(count: u32) -> Self {
        Self { first: 0, step: 1, count }
    }

    /// Returns `count` parts: `first`, `first + step`, and so on.
    pub const fn spaced(first: u32, step: u32, count: u32) -> Self {
        Self { first, step, count }
    }

    /// Returns the number of parts.
    pub const fn len(self) -> u32 {
        self.count
    }

    /// Says whether there is no part.
    pub const fn is_empty(self) -> bool {
        self.count == 0
    }

    /// Returns the position of a part in memory, counted in parts, if the list contains it.
    pub fn place_of(self, part: u32) -> Option<u32> {
        let after = part.checked_sub(self.first)?;
        (after.is_multiple_of(self.step) && after / self.step < self.count).then_some(after / self.step)
    }

    /// Says whether the list contains a part.
    pub fn contains(self, part: u32) -> bool {
        self.place_of(part).is_some()
    }

    /// Returns the range of the parts, if they are contiguous.
    pub fn range(self) -> Option<std::ops::Range<u32>> {
        (self.count <= 1 || self.step == 1).then(|| self.first..self.first + self.count)
    }

    /// Yields the parts in memory order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = u32> + Clone {
        (0..self.count).map(move |nth| self.first + nth * self.step)
    }
}

#[cfg(test)]
mod tests {
    use super::Parts;

    #[test]
    fn a_part_is_held_where_the_list_has_it() {
        for parts in [Parts::NONE, Parts::one(3), Parts::first(4), Parts::spaced(1, 3, 3), Parts::spaced(2, 1, 2)] {
            let listed: Vec<u32> = parts.iter().collect();
            assert_eq!(listed.len(), parts.len() as usize);
            for part in 0..12 {
                let place = listed.iter().position(|&other| other == part).map(|place| place as u32);
                assert_eq!(parts.place_of(part), place, "{part} in {parts:?}");
            }
        }
        assert_eq!((Parts::spaced(1, 3, 3).range(), Parts::spaced(2, 1, 2).range()), (None, Some(2..4)));
    }
}

//! Strided arrays: layouts, copies to and from packed memory, and the check for shared bytes.
//!
//! Programs run on packed ranges. The binding packs a strided array (a slice, a transpose, a diagonal): it gathers before the run and
//! scatters after it.
//!
//! ```text
//! x[:, 1:3] of a (3, 4) float32 array      axes (3, 16 bytes) (2, 4 bytes)
//! . a b .
//! . c d .                                  gather: a b c d e f, the last axis fastest
//! . e f .
//! ```
//!
//! *Packed* means row-major without gaps, at any address. A column-major array is strided here: two ranks may pass the same shape in
//! different orders, and elements are matched by index, not by address. The layout of a packed array needs no heap allocation. Nothing
//! here knows Python.

mod copy;
mod overlap;

pub use copy::{gather, scatter};
pub use overlap::{first_conflict, Conflict, PlacedArray, TryBudget};

/// One axis of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    /// The number of positions.
    pub length: usize,
    /// Bytes from one position to the next; negative for a reversed axis, 0 for a broadcast one.
    pub stride: isize,
}

/// The layout of an array's elements, relative to the first one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    count: usize,
    width: usize,
    /// The axes; `None` for a packed array.
    axes: Option<Box<[Axis]>>,
}

impl Layout {
    /// Returns the layout of `count` elements of `width` bytes, one after the other.
    pub fn packed(count: usize, width: usize) -> Self {
        Self { count, width, axes: None }
    }

    /// Returns the layout of elements of `width` bytes along axes of these lengths, row-major without gaps; `None` if their
    /// bytes outgrow an address.
    pub fn dense(lengths: impl Iterator<Item = usize> + Clone, width: usize) -> Option<Self> {
        Some(Self::packed(count_of(lengths, width)?, width))
    }

    /// Returns the layout of elements of `width` bytes along `axes`, outermost first; `None` if count or distances in bytes
    /// outgrow an address.
    pub fn of(axes: impl DoubleEndedIterator<Item = Axis> + Clone, width: usize) -> Option<Self> {
        let count = count_of(axes.clone().map(|axis| axis.length), width)?;
        if count == 0 || is_row_major(axes.clone(), width) {
            return Some(Self::packed(count, width));
        }
        let axes: Box<[Axis]> = axes.collect();
        checked_reach(&axes, width)?;
        Some(Self { count, width, axes: Some(axes) })
    }

    /// Returns the offset in bytes and the layout of row `row` of axis 0, which has `rows` of them; `None` as in
    /// [`Layout::of`].
    pub fn row(&self, rows: usize, row: usize) -> Option<(isize, Self)> {
        let Some((axis, inner)) = self.axes.as_deref().and_then(<[Axis]>::split_first) else {
            let count = self.count.checked_div(rows)?;
            return Some(((row * count * self.width) as isize, Self::packed(count, self.width)));
        };
        let offset = axis.stride.checked_mul(row as isize)?;
        Some((offset, Self::of(inner.iter().copied(), self.width)?))
    }

    /// Returns the number of elements.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the bytes of all elements.
    pub fn bytes(&self) -> usize {
        self.count * self.width
    }

    /// Says whether a program needs a packed copy.
    pub fn is_strided(&self) -> bool {
        self.axes.is_some()
    }

    /// Says whether both layouts give every element the same offset.
    pub fn is_same(&self, other: &Self) -> bool {
        let (a, b) = (&self.axes, &other.axes);
        self.count == other.count
            && self.width == other.width
            && match (a, b) {
                (Some(a), Some(b)) => coalesced(a) == coalesced(b),
                (a, b) => a.is_none() && b.is_none(),
            }
    }

    /// Returns the offsets, from the first element, of the lowest byte and of the end of the highest element.
    pub fn reach(&self) -> (isize, isize) {
        let strided = self.axes.as_deref().and_then(|axes| checked_reach(axes, self.width));
        strided.unwrap_or((0, self.bytes() as isize))
    }
}

fn count_of(lengths: impl Iterator<Item = usize> + Clone, width: usize) -> Option<usize> {
    if lengths.clone().any(|length| length == 0) {
        return Some(0);
    }
    let bytes = lengths.clone().try_fold(width, usize::checked_mul)?;
    isize::try_from(bytes).ok().map(|_| lengths.product())
}

fn is_row_major(axes: impl DoubleEndedIterator<Item = Axis>, width: usize) -> bool {
    let mut dense = width as isize;
    axes.rev().filter(|axis| axis.length != 1).all(|axis| {
        let follows = axis.stride == dense;
        dense = dense.wrapping_mul(axis.length as isize);
        follows
    })
}

fn checked_reach(axes: &[Axis], width: usize) -> Option<(isize, isize)> {
    let (mut low, mut high) = (0isize, isize::try_from(width).ok()?);
    for axis in axes {
        let last = axis.stride.checked_mul(isize::try_from(axis.length.checked_sub(1)?).ok()?)?;
        let end = if last < 0 { &mut low } else { &mut high };
        *end = end.checked_add(last)?;
    }
    Some((low, high))
}

/// Returns the same elements in the same order along as few axes as possible: none of length 1, and an outer axis that
/// continues its inner one is merged with it.
fn coalesced(axes: &[Axis]) -> Vec<Axis> {
    let mut merged: Vec<Axis> = Vec::with_capacity(axes.len());
    for &axis in axes.iter().filter(|axis| axis.length != 1) {
        match merged.last_mut() {
            Some(outer) if axis.stride.checked_mul(axis.length as isize) == Some(outer.stride) => {
                *outer = Axis { length: outer.length * axis.length, stride: axis.stride };
            }
            _ => merged.push(axis),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Any few short axes, whatever their strides.
    pub(super) fn axes() -> impl Strategy<Value = Vec<Axis>> {
        let axis = (1usize..5, -24isize..25).prop_map(|(length, stride)| Axis { length, stride });
        prop::collection::vec(axis, 0..4)
    }

    /// The offset of every element, in order: the plain nested loop.
    pub(super) fn offsets(axes: &[Axis]) -> Vec<isize> {
        axes.iter().fold(vec![0], |offsets, axis| {
            let along = |start| (0..axis.length as isize).map(move |i| start + i * axis.stride);
            offsets.into_iter().flat_map(along).collect()
        })
    }

    proptest! {
        #[test]
        fn coalescing_keeps_every_element_in_its_place(axes in axes()) {
            prop_assert_eq!(offsets(&coalesced(&axes)), offsets(&axes));
        }

        #[test]
        fn a_layout_is_strided_unless_its_elements_follow_one_another(axes in axes(), width in 1usize..9) {
            let layout = Layout::of(axes.iter().copied(), width).unwrap();
            let all = offsets(&axes);
            let follows = all.windows(2).all(|pair| pair[1] - pair[0] == width as isize);
            prop_assert_eq!((layout.count(), layout.is_strided()), (all.len(), !follows));
            let expected = (*all.iter().min().unwrap(), all.iter().max().unwrap() + width as isize);
            prop_assert_eq!(layout.reach(), expected);
        }

        #[test]
        fn the_rows_of_a_layout_are_its_elements_in_order(axes in axes(), width in 1usize..9) {
            prop_assume!(!axes.is_empty());
            let rows = axes[0].length;
            let whole = Layout::of(axes.iter().copied(), width).unwrap();
            for (row, expected) in offsets(&axes).chunks(whole.count() / rows).enumerate() {
                let (offset, layout) = whole.row(rows, row).unwrap();
                prop_assert_eq!((offset, layout.count()), (expected[0], expected.len()));
                let inner = Layout::of(axes[1..].iter().copied(), width).unwrap();
                prop_assert!(layout.is_same(&inner));
            }
        }
    }

    #[test]
    fn an_array_without_elements_is_packed_whatever_its_axes() {
        let axes =
            [Axis { length: usize::MAX, stride: 7 }, Axis { length: 5, stride: -3 }, Axis { length: 0, stride: 1 }];
        assert_eq!(Layout::of(axes.iter().copied(), 4), Some(Layout::packed(0, 4)));
    }

    #[test]
    fn a_layout_that_outgrows_addresses_is_none() {
        let long = Axis { length: usize::MAX, stride: 4 };
        let far = Axis { length: 3, stride: isize::MAX / 2 };
        for axes in [vec![long, long], vec![long], vec![far, far]] {
            assert_eq!(Layout::of(axes.iter().copied(), 4), None, "{axes:?}");
        }
    }
}

//! The check for arrays of a call that share a byte: an array that is written may overlap no other.
//!
//! It has two stages, the cheap one first.
//!
//! ```text
//! 1  ranges     sort by lowest byte; compare each array with those that begin before its end. n log n where no ranges overlap,
//!               exact where both are packed: every call pays this
//! 2  elements   only if ranges overlap and one is strided: the columns of a matrix interleave and share nothing
//! ```
//!
//! The second stage compares elements. Element a of A and b of B share a byte if their addresses differ by less than the width. With
//! all strides made positive, the question is whether a sum of `t_k * stride_k`, `0 <= t_k <= last_k`, comes within the width of a
//! target. Strides are taken from the longest down. The reach of the shorter strides bounds the `t_k` worth trying, so slices and
//! transposes of one array leave one or two per axis. Arbitrary strides make this a knapsack problem, which is NP-hard. A call may
//! spend [`TRIES`] on all its pairs; after that the result is *undecided*, and the call is refused.
//!
//! Cost: n log n for n arrays. Where strided ranges interleave, a try or two per axis and pair: 1024 columns of a matrix take some
//! half a million. Source: bounding the search by the remaining reach is the idea of numpy's `shares_memory` (Pauli Virtanen, 2015);
//! this form is ours.

use super::{Axis, Layout};

/// The number of tries of one call. Chosen: eight times the need of 1024 ranks with a column each; some tens of ms.
const TRIES: u32 = 1 << 22;

/// The tries that a call has left.
#[derive(Debug)]
pub struct TryBudget(u32);

impl TryBudget {
    /// Returns the budget of one call: 2^22 tries.
    pub fn of_a_call() -> Self {
        Self(TRIES)
    }

    fn take(&mut self) -> Option<()> {
        self.0 = self.0.checked_sub(1)?;
        Some(())
    }
}

/// An array of a call, with its address.
#[derive(Debug, Clone, Copy)]
pub struct PlacedArray<'a> {
    low: usize,
    high: usize,
    address: usize,
    layout: &'a Layout,
    is_written: bool,
    number: usize,
}

impl<'a> PlacedArray<'a> {
    /// Describes array `number` of a call, whose first element is at `address`.
    pub fn new(address: usize, layout: &'a Layout, is_written: bool, number: usize) -> Self {
        let (low, high) = layout.reach();
        let (low, high) = (address.wrapping_add_signed(low), address.wrapping_add_signed(high));
        Self { low, high, address, layout, is_written, number }
    }
}

/// Two arrays of a call, by number, the lower one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflict {
    /// The arrays share a byte, and one of them is written.
    Shared(usize, usize),
    /// The ranges overlap, one array is written, and the exact answer costs too much.
    Undecided(usize, usize),
}

impl Conflict {
    fn between(a: &PlacedArray<'_>, b: &PlacedArray<'_>, shares: Option<bool>) -> Option<Self> {
        let (first, second) = (a.number.min(b.number), a.number.max(b.number));
        match shares {
            Some(false) => None,
            Some(true) => Some(Self::Shared(first, second)),
            None => Some(Self::Undecided(first, second)),
        }
    }
}

/// Finds two arrays that share a byte, one of them written; sorts `ranges`. Arrays with one number may overlap.
pub fn first_conflict(ranges: &mut [PlacedArray<'_>], tries: &mut TryBudget) -> Option<Conflict> {
    ranges.sort_unstable_by_key(|range| range.low);
    let mut terms = Vec::new();
    for (at, a) in ranges.iter().enumerate().filter(|(_, a)| a.low < a.high) {
        let reached = ranges[at + 1..].iter().take_while(|b| b.low < a.high);
        let counts = |b: &&PlacedArray<'_>| (a.is_written || b.is_written) && b.low < b.high && a.number != b.number;
        for b in reached.filter(counts) {
            let is_strided = a.layout.is_strided() || b.layout.is_strided();
            let shares = if is_strided { share_elements(a, b, &mut terms, tries) } else { Some(true) };
            let found = Conflict::between(a, b, shares);
            if found.is_some() {
                return found;
            }
        }
    }
    None
}

/// A stride in bytes that may be taken up to `last` times.
#[derive(Debug, Clone, Copy)]
struct StrideTerm {
    stride: i128,
    last: i128,
}

impl StrideTerm {
    fn of(axis: &Axis) -> Self {
        Self { stride: axis.stride as i128, last: axis.length as i128 - 1 }
    }
}

/// Says whether an element of `a` shares a byte with one of `b`; `None` if that costs too much. `terms` is working memory.
fn share_elements(
    a: &PlacedArray<'_>,
    b: &PlacedArray<'_>,
    terms: &mut Vec<StrideTerm>,
    tries: &mut TryBudget,
) -> Option<bool> {
    terms.clear();
    let mut target = b.address as i128 - a.address as i128;
    let mut add = |stride: i128, last: i128| {
        target -= (stride * last).min(0);
        terms.push(StrideTerm { stride: stride.abs(), last });
    };
    for (range, sign) in [(a, 1), (b, -1)] {
        match &range.layout.axes {
            Some(axes) => axes.iter().map(StrideTerm::of).for_each(|term| add(sign * term.stride, term.last)),
            None => add(sign * range.layout.width as i128, range.layout.count as i128 - 1),
        }
    }
    comes_near(terms, target, a.layout.width.max(b.layout.width) as i128, tries)
}

impl Layout {
    /// Says whether two different elements share a byte; `None` if that costs too much.
    pub fn overlaps_itself(&self, tries: &mut TryBudget) -> Option<bool> {
        let axes = self.axes.as_deref().unwrap_or_default().iter().filter(|axis| axis.length > 1);
        let axes: Vec<StrideTerm> = axes
            .map(|axis| StrideTerm { stride: axis.stride.unsigned_abs() as i128, ..StrideTerm::of(axis) })
            .collect();
        let mut terms = Vec::new();
        // Two elements differ first on some axis: forward by at least one there, by anything on the later ones.
        for (first, &StrideTerm { stride, last }) in axes.iter().enumerate() {
            let later = &axes[first + 1..];
            terms.clear();
            terms.extend(later.iter().map(|term| StrideTerm { last: 2 * term.last, ..*term }));
            terms.push(StrideTerm { stride, last: last - 1 });
            let target = later.iter().map(|term| term.stride * term.last).sum::<i128>() - stride;
            if comes_near(&mut terms, target, self.width as i128, tries)? {
                return Some(true);
            }
        }
        Some(false)
    }
}

/// Says whether a sum of terms comes within `width` of `target`. Strides are not negative.
fn comes_near(terms: &mut Vec<StrideTerm>, target: i128, width: i128, tries: &mut TryBudget) -> Option<bool> {
    terms.retain(|term| term.stride != 0 && term.last != 0);
    terms.sort_unstable_by_key(|term| std::cmp::Reverse(term.stride));
    terms.dedup_by(|next, kept| {
        let is_same = next.stride == kept.stride;
        kept.last += if is_same { next.last } else { 0 };
        is_same
    });
    let reach = terms.iter().map(|term| term.stride * term.last).sum();
    search(terms, reach, target, width, tries)
}

/// Tries the counts of the first term that leave a remainder within `reach` of the others.
fn search(terms: &[StrideTerm], reach: i128, target: i128, width: i128, tries: &mut TryBudget) -> Option<bool> {
    let Some((&StrideTerm { stride, last }, shorter)) = terms.split_first() else {
        return Some(target.abs() < width);
    };
    let reach = reach - stride * last;
    let lowest = ((target - reach - width).div_euclid(stride) + 1).max(0);
    let highest = (target + width - 1).div_euclid(stride).min(last);
    for times in lowest..=highest {
        tries.take()?;
        if search(shorter, reach, target - times * stride, width, tries)? {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{axes, offsets};
    use super::*;
    use proptest::prelude::*;

    fn layout(axes: &[Axis], width: usize) -> Layout {
        Layout { count: offsets(axes).len(), width, axes: Some(axes.into()) }
    }

    fn any_bytes_meet(a: &[isize], b: &[isize], width: usize) -> bool {
        a.iter().any(|x| b.iter().any(|y| x.abs_diff(*y) < width))
    }

    fn widths() -> impl Strategy<Value = usize> {
        prop::sample::select(vec![1usize, 2, 4, 8])
    }

    proptest! {
        #[test]
        fn packed_arrays_conflict_exactly_if_some_pair_does(
            drawn in prop::collection::vec((0usize..200, 0usize..12, any::<bool>()), 0..24),
        ) {
            let layouts: Vec<Layout> = drawn.iter().map(|&(_, count, _)| Layout::packed(count, 1)).collect();
            let range_of = |number: usize| PlacedArray::new(drawn[number].0, &layouts[number], drawn[number].2, number);
            let ranges: Vec<PlacedArray<'_>> = (0..drawn.len()).map(range_of).collect();
            let meet = |a: &PlacedArray<'_>, b: &PlacedArray<'_>| (a.low..a.high).any(|byte| (b.low..b.high).contains(&byte));
            let conflict = |a: &PlacedArray<'_>, b: &PlacedArray<'_>| (a.is_written || b.is_written) && meet(a, b);
            let expected = (0..ranges.len()).any(|i| (0..i).any(|j| conflict(&ranges[i], &ranges[j])));
            let mut sorted = ranges.clone();
            let found = first_conflict(&mut sorted, &mut TryBudget::of_a_call());
            prop_assert_eq!(found.is_some(), expected);
            if let Some(found) = found {
                let Conflict::Shared(a, b) = found else { panic!("{found:?}") };
                prop_assert!(a < b && conflict(&ranges[a], &ranges[b]));
            }
        }

        #[test]
        fn elements_are_shared_exactly_if_some_bytes_meet(
            a in axes(), b in axes(), shift in -60isize..60, width in widths(), is_written in any::<bool>(),
        ) {
            let shifted: Vec<isize> = offsets(&b).into_iter().map(|offset| offset + shift).collect();
            let expected = any_bytes_meet(&offsets(&a), &shifted, width);
            let (first, second) = (layout(&a, width), layout(&b, width));
            let address = 1000usize.checked_add_signed(shift).unwrap();
            let mut ranges = [PlacedArray::new(1000, &first, true, 7), PlacedArray::new(address, &second, is_written, 3)];
            let found = first_conflict(&mut ranges, &mut TryBudget::of_a_call());
            prop_assert_eq!(found, expected.then_some(Conflict::Shared(3, 7)));
        }

        #[test]
        fn an_array_overlaps_itself_exactly_if_two_of_its_elements_do(axes in axes(), width in widths()) {
            let all = offsets(&axes);
            let expected = (0..all.len()).any(|i| any_bytes_meet(&all[i..=i], &all[..i], width));
            prop_assert_eq!(layout(&axes, width).overlaps_itself(&mut TryBudget::of_a_call()), Some(expected));
        }
    }

    /// Blocks of `count` columns of a matrix of a million rows of 16 floats, from column `first`.
    fn columns(first: usize, count: usize) -> (usize, Layout) {
        let axes = [Axis { length: 1_000_000, stride: 64 }, Axis { length: count, stride: 4 }];
        (4096 + 4 * first, Layout::of(axes.into_iter(), 4).unwrap())
    }

    #[test]
    fn blocks_of_columns_of_a_large_matrix_are_told_apart_in_a_few_tries() {
        let ask = |a: (usize, Layout), b: (usize, Layout)| {
            let mut ranges = [PlacedArray::new(a.0, &a.1, true, 0), PlacedArray::new(b.0, &b.1, true, 1)];
            first_conflict(&mut ranges, &mut TryBudget(4))
        };
        assert_eq!(ask(columns(0, 8), columns(8, 8)), None);
        assert_eq!(ask(columns(0, 8), columns(7, 2)), Some(Conflict::Shared(0, 1)));
        assert_eq!(columns(0, 8).1.overlaps_itself(&mut TryBudget(4)), Some(false));
    }

    #[test]
    fn a_column_for_each_of_1024_ranks_is_within_the_tries_of_a_call() {
        let axes = [Axis { length: 5, stride: 4096 }];
        let layout = Layout::of(axes.into_iter(), 4).unwrap();
        let mut ranges: Vec<PlacedArray<'_>> =
            (0..1024).map(|rank| PlacedArray::new(4 * rank, &layout, true, rank)).collect();
        let mut tries = TryBudget::of_a_call();
        assert_eq!(first_conflict(&mut ranges, &mut tries), None);
        assert!(tries.0 > TRIES / 2, "{tries:?}");
    }

    #[test]
    fn a_question_that_costs_too_much_has_no_answer() {
        let strides = [62_233, 61_057, 59_999, 58_889, 57_773, 56_663, 55_541, 54_437];
        let axes: Vec<Axis> = strides.iter().map(|stride| Axis { length: 30, stride: 2 * stride }).collect();
        let layout = Layout::of(axes.into_iter(), 1).unwrap();
        let mut ranges = [PlacedArray::new(0, &layout, true, 0), PlacedArray::new(1_000_001, &layout, false, 1)];
        assert_eq!(first_conflict(&mut ranges, &mut TryBudget::of_a_call()), Some(Conflict::Undecided(0, 1)));
    }

    #[test]
    fn a_broadcast_axis_overlaps_itself() {
        let ask = |length| layout(&[Axis { length, stride: 0 }], 4).overlaps_itself(&mut TryBudget::of_a_call());
        assert_eq!((ask(1), ask(2)), (Some(false), Some(true)));
    }
}

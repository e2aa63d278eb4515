//! The row of an algorithm in the registry, and what several algorithms write.

use std::ops::Range;

use super::parameters::{Arguments, Parameter};
use crate::builder::Builder;
use crate::collective::Collective;
use crate::error::{Error, Result};

crate::names! {
    /// The order in which an algorithm folds contributions.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Order {
        /// The left fold over ranks 0..n-1, for every element.
        Rank = "rank",
        /// A fold of folds.
        Nested = "nested",
        /// The algorithm's own documented order.
        Own = "own",
        /// The algorithm folds nothing.
        None = "none",
    }
}

impl Order {
    /// Returns the weaker of two orders: the one that promises less.
    pub fn weaker(self, other: Order) -> Order {
        let promises = |order| match order {
            Order::None => 0,
            Order::Own => 1,
            Order::Nested => 2,
            Order::Rank => 3,
        };
        if promises(other) < promises(self) {
            other
        } else {
            self
        }
    }
}

/// A registered algorithm for one collective.
pub struct Algorithm {
    /// The name of the algorithm.
    pub name: &'static str,
    /// The contract that it fulfils.
    pub collective: &'static Collective,
    /// The order of its folds; the verifier prints the expression.
    pub order: Order,
    /// The idea in one sentence.
    pub summary: &'static str,
    /// The authors of the idea.
    pub source: &'static str,
    pub(super) build: Build,
}

/// The function that writes the steps of an algorithm.
#[derive(Clone, Copy)]
pub(super) enum Build {
    /// The algorithm has no parameters.
    Plain(fn(&mut Builder)),
    /// The algorithm has parameters, as in `two_level(per_node=4)`.
    With(&'static [Parameter], fn(&mut Builder, &Arguments)),
}

impl Algorithm {
    /// Returns the parameters that the algorithm declares.
    pub(super) fn parameters(&self) -> &'static [Parameter] {
        match self.build {
            Build::Plain(_) => &[],
            Build::With(parameters, _) => parameters,
        }
    }

    pub(super) fn position_of(&self, parameter: &str) -> Result<usize> {
        self.parameters().iter().position(|declared| declared.name == parameter).ok_or_else(|| {
            let known: Vec<&str> = self.parameters().iter().map(|declared| declared.name).collect();
            let takes = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            Error::Parameter(format!("{} has no parameter `{parameter}`: it takes {takes}", self.name))
        })
    }
}

/// Copies every rank's own part to its output, unless the call is in place. An all_gather begins with this.
pub(super) fn place_own_parts(b: &mut Builder) {
    for part in b.chunks(1) {
        if !b.is_in_place() {
            b.copy(&b.input(part, part), &[b.output(part, part)]);
        }
    }
}

/// Returns the rank that is `place` ranks after the root, cyclically. Rooted algorithms are written for root 0 and rotated.
pub(super) fn relative(b: &Builder, place: u32) -> u32 {
    (b.root() + place) % b.world_size()
}

/// Yields the `count` numbers from `first` on, cyclically below n: one range, two if they wrap around, none if `count` is 0.
pub(super) fn cyclic(first: u32, count: u32, n: u32) -> impl Iterator<Item = Range<u32>> {
    let end = first + count;
    [first..end.min(n), 0..end.saturating_sub(n)].into_iter().filter(|range| !range.is_empty())
}

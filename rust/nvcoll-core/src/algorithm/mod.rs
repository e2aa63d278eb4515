//! The algorithms. **An algorithm is one file, its `mod` line and its registry line**; tests, CLI and benches read the
//! registry.

mod binomial_tree;
mod bruck;
mod chain;
mod direct;
mod halving_doubling;
mod neighbor_exchange;
mod nvswitch;
mod one_shot;
mod pairwise;
mod parameters;
mod participants;
mod pat;
mod recursive_doubling;
mod recursive_doubling_scan;
mod recursive_halving;
mod ring;
mod scatter_all_gather;
mod tree;
mod two_level;
mod two_shot;

use std::ops::Range;

pub use parameters::{NamedAlgorithm, Parameter, ParameterValues};

use parameters::Arguments;

use crate::builder::Builder;
use crate::collective::{Collective, Roles};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::limits::MAX_RUNNING_RANKS;
use crate::lower::{lower, stage_early};
use crate::schedule::{Aliasing, Path, Schedule};

/// Every algorithm, the default of its collective first.
pub static ALGORITHMS: &[&Algorithm] = &[
    &nvswitch::ALL_REDUCE,
    &one_shot::ALL_REDUCE,
    &two_shot::ALL_REDUCE,
    &ring::ALL_REDUCE,
    &tree::ALL_REDUCE,
    &recursive_doubling::ALL_REDUCE,
    &halving_doubling::ALL_REDUCE,
    &two_level::ALL_REDUCE,
    &two_level::ALL_REDUCE_BY_HALVING,
    &nvswitch::REDUCE_SCATTER,
    &direct::REDUCE_SCATTER,
    &ring::REDUCE_SCATTER,
    &recursive_halving::REDUCE_SCATTER,
    &pat::REDUCE_SCATTER,
    &nvswitch::ALL_GATHER,
    &direct::ALL_GATHER,
    &ring::ALL_GATHER,
    &recursive_doubling::ALL_GATHER,
    &bruck::ALL_GATHER,
    &neighbor_exchange::ALL_GATHER,
    &pat::ALL_GATHER,
    &direct::BROADCAST,
    &tree::BROADCAST,
    &chain::BROADCAST,
    &scatter_all_gather::BROADCAST,
    &direct::REDUCE,
    &tree::REDUCE,
    &chain::REDUCE,
    &direct::GATHER,
    &binomial_tree::GATHER,
    &direct::SCATTER,
    &binomial_tree::SCATTER,
    &direct::ALL_TO_ALL,
    &pairwise::ALL_TO_ALL,
    &bruck::ALL_TO_ALL,
    &direct::SCAN,
    &recursive_doubling_scan::SCAN,
    &chain::SCAN,
    &direct::EXSCAN,
    &recursive_doubling_scan::EXSCAN,
    &direct::BARRIER,
];

/// The order in which an algorithm folds contributions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The left fold over ranks 0..n-1, for every element.
    Rank,
    /// A fold of folds.
    Nested,
    /// The algorithm's own documented order.
    Own,
    /// The algorithm folds nothing.
    None,
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

    /// Returns the name of the order.
    pub const fn name(self) -> &'static str {
        match self {
            Order::Rank => "rank",
            Order::Nested => "nested",
            Order::Own => "own",
            Order::None => "none",
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
    build: Build,
}

/// The function that writes the steps of an algorithm.
#[derive(Clone, Copy)]
enum Build {
    /// The algorithm has no parameters.
    Plain(fn(&mut Builder)),
    /// The algorithm has parameters, as in `two_level(per_node=4)`.
    With(&'static [Parameter], fn(&mut Builder, &Arguments)),
}

/// Yields the algorithms of a collective, the default first. `auto` is the default if no size is known.
pub fn of(collective: &'static Collective) -> impl Iterator<Item = &'static Algorithm> {
    ALGORITHMS.iter().copied().filter(move |a| a.collective.kind == collective.kind)
}

impl Algorithm {
    /// Yields every schedule for a number of ranks: each root, each aliasing, each path, and the form with early steps.
    pub fn schedules(&'static self, world_size: u32) -> impl Iterator<Item = Result<Schedule>> {
        let mapped = move |(roles, aliasing)| build(self.collective, self.name, roles, aliasing);
        let paths = |mapped: Result<Schedule>| {
            Path::ALL.iter().map(move |&path| mapped.clone().and_then(|mapped| lower(&mapped, path)))
        };
        let with_early = |schedule: Result<Schedule>| {
            let early = schedule.as_ref().ok().and_then(stage_early);
            std::iter::once(schedule).chain(early.map(Ok))
        };
        self.collective.forms(world_size).map(mapped).flat_map(paths).flat_map(with_early)
    }
}

/// Builds the mapped schedule of a registered algorithm. For a world that is too large to run, it counts the steps first.
///
/// # Errors
/// An unknown name or argument, a world or a program that is too large, or the first error of the algorithm ([`crate::Error`]).
pub fn build(collective: &'static Collective, name: &str, roles: Roles, aliasing: Aliasing) -> Result<Schedule> {
    build_interruptible(collective, name, roles, aliasing, &Interrupt::never())
}

/// Builds the mapped schedule of a registered algorithm, as [`build`] does, until it is interrupted.
///
/// # Errors
/// Those of [`build`], and [`crate::Error::Interrupted`].
pub fn build_interruptible(
    collective: &'static Collective,
    name: &str,
    roles: Roles,
    aliasing: Aliasing,
    interrupt: &Interrupt,
) -> Result<Schedule> {
    let named = NamedAlgorithm::read(collective, name)?;
    let mut builder = Builder::new(collective, roles, aliasing)?;
    builder.set_interrupt(interrupt);
    if roles.world_size > MAX_RUNNING_RANKS {
        let mut counter = builder.clone();
        counter.only_counts = true;
        named.write(&mut counter);
        counter.check_but_size()?;
        counter.check_size(&named.name())?;
    }
    named.write(&mut builder);
    builder.finish(&named.name())
}

/// Copies every rank's own part to its output, unless the call is in place. An all_gather begins with this.
fn place_own_parts(b: &mut Builder) {
    for part in b.chunks(1) {
        if !b.is_in_place() {
            b.copy(&b.input(part, part), &[b.output(part, part)]);
        }
    }
}

/// Returns the rank that is `place` ranks after the root, cyclically. Rooted algorithms are written for root 0 and rotated.
fn relative(b: &Builder, place: u32) -> u32 {
    (b.root() + place) % b.world_size()
}

/// Yields the `count` numbers from `first` on, cyclically below n: one range, two if they wrap around, none if `count` is 0.
fn cyclic(first: u32, count: u32, n: u32) -> impl Iterator<Item = Range<u32>> {
    let end = first + count;
    [first..end.min(n), 0..end.saturating_sub(n)].into_iter().filter(|range| !range.is_empty())
}

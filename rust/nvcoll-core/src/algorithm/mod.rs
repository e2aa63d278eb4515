//! The algorithms. **An algorithm is a function that writes its steps, in a file of its family, and a row of the registry**; tests, CLI
//! and benches read the registry.

mod binomial_tree;
mod bruck;
mod chain;
mod direct;
mod halving_doubling;
mod host_chain;
mod named;
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
mod registry;
mod ring;
mod row;
mod scatter_all_gather;
mod tree;
mod two_level;
mod two_shot;

pub use named::NamedAlgorithm;
pub use parameters::{Parameter, ParameterValues};
pub use registry::{of, ALGORITHMS};
pub use row::{Algorithm, Order};

use crate::builder::Builder;
use crate::collective::{Collective, Roles};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::limits::MAX_RUNNING_RANKS;
use crate::lower::{lower, stage_early};
use crate::schedule::{Aliasing, Path, Schedule};

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
/// As [`build`], and [`crate::Error::Interrupted`].
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

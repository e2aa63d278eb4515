//! What pairs of GPUs reach, alone and everybody at once, and what crosses a cut.
//!
//! The first is what a bandwidth test of two GPUs prints; the second, every ordered pair sending at the same time, is what an
//! all_to_all meets. On an NVSwitch they differ by the number of GPUs; on a hybrid cube mesh some pairs keep their own link.

use crate::error::Result;
use crate::flows::Flows;
use crate::hardware::{Fabric, Link};
use crate::route::{Route, Router};
use crate::sharing::share;
use crate::units::Rate;

/// For each rank, what it reaches to each other, `None` to itself.
pub type RateMatrix = Vec<Vec<Option<Rate>>>;

impl Fabric {
    /// Returns the routes between all pairs: row `from`, column `to`.
    ///
    /// # Errors
    /// [`crate::Error::NoPath`].
    pub fn routes(&self) -> Result<Vec<Vec<Route>>> {
        let (ranks, mut router) = (0..self.world_size(), Router::of(self));
        let row = |from| -> Result<Vec<Route>> { ranks.clone().map(|to| router.route(self, from, to)).collect() };
        ranks.clone().map(row).collect()
    }

    /// Returns what each pair reaches when nothing else moves.
    ///
    /// # Errors
    /// [`crate::Error::NoPath`].
    pub fn alone(&self) -> Result<RateMatrix> {
        let capacities = self.capacities();
        let rate = |route: &Route| Some(share(&[&route.links], &capacities)[0]).filter(|_| !route.links.is_empty());
        Ok(self.routes()?.iter().map(|row| row.iter().map(rate).collect()).collect())
    }

    /// Returns what each pair reaches when every pair sends, both ways.
    ///
    /// # Errors
    /// [`crate::Error::NoPath`].
    pub fn at_once(&self) -> Result<RateMatrix> {
        let routes = self.routes()?;
        let all: Vec<&[usize]> = routes.iter().flatten().map(|route| route.links.as_slice()).collect();
        let rates = share(&all, &self.capacities());
        let some = |(route, rate): (&&[usize], &Rate)| Some(*rate).filter(|_| !route.is_empty());
        let flat: Vec<_> = all.iter().zip(&rates).map(some).collect();
        Ok(flat.chunks(routes.len()).map(<[_]>::to_vec).collect())
    }

    /// Returns what can leave the ranks `inside` for the others, one way: the least that any cut between them lets through.
    ///
    /// GPUs forward nothing; what is staged passes memory.
    ///
    /// # Panics
    /// If there are not so many ranks.
    pub fn cut(&self, inside: &[u32]) -> Rate {
        let gpus = self.gpus();
        let sources: Vec<usize> = inside.iter().map(|&rank| gpus[rank as usize]).collect();
        let sinks: Vec<usize> = gpus.iter().copied().filter(|gpu| !sources.contains(gpu)).collect();
        Rate(Flows::of(self, Link::rate).between(&sources, &sinks))
    }

    pub(crate) fn capacities(&self) -> Vec<Rate> {
        self.links.iter().map(|link| link.rate()).collect()
    }
}

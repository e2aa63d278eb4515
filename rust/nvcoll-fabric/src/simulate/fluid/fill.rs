//! Rates of all transfers of an island.
//!
//! ```text
//! progressive filling (Bertsekas and Gallager, Data Networks, 1987, 6.5.2)
//! while a path has no rate
//!     level = the least, over links, of what is left of the link / the weights of its transfers without rate
//!     every path without rate on a link with that share gets the level; what it takes is taken from its links
//! ```
//!
//! All paths of one level are served together and what they take from a link is added up as whole weights first, so
//! that no order of links or transfers shows in the result. Among links of one level the first by number is what held
//! a transfer back. Work: rounds x links, plus twice each path on each link, plus the transfers whose rate changed.

use super::{Fluid, NONE};
use crate::simulate::agenda::Agenda;
use crate::simulate::run::{event, Limit, ENDS};
use crate::units::Ps;

/// What a filling counts with, of one link. Weights are whole numbers.
#[derive(Clone, Default)]
pub(super) struct Level {
    capacity: f64,
    /// The weights of all transfers on it.
    pub(super) weight: f64,
    /// Where it is in its island.
    pub(super) place: u32,
    left: f64,
    /// The weights of those without rate, and of those that get theirs now.
    waiting: f64,
    taken: f64,
}

impl Level {
    /// A link on which nothing is.
    pub(super) fn idle(&capacity: &u64) -> Self {
        Self { capacity: capacity as f64, ..Self::default() }
    }

    /// What it offers to each who waits for a rate.
    fn share(&self) -> f64 {
        if self.waiting > 0.0 {
            self.left / self.waiting
        } else {
            f64::INFINITY
        }
    }
}

impl Fluid<'_> {
    /// Gives every path of an island its rate, and puts the earliest end on the agenda; when it comes, all are looked
    /// at again.
    pub(super) fn fill(&mut self, island: u32, now: Ps, agenda: &mut Agenda) {
        self.start_filling(island);
        let mut missing = self.islands[island as usize].paths.len();
        while missing > 0 {
            let level = least(&self.shares);
            let slowest = self.slowest_held();
            missing -= if slowest <= level { self.serve_held(slowest, now) } else { self.serve(island, level, now) };
        }
        self.note_first(island, agenda);
    }

    fn start_filling(&mut self, island: u32) {
        self.filling += 1;
        let island = &self.islands[island as usize];
        self.shares.clear();
        for &link in &island.links {
            let level = &mut self.levels[link as usize];
            (level.left, level.waiting) = (level.capacity, level.weight);
            self.shares.push(level.share());
        }
        self.found.resize(island.paths.len().max(self.found.len()), 0);
        self.held.clear();
        if island.held > 0 {
            self.held.extend(island.paths.iter().filter(|&&path| self.bundles[path as usize].is_held));
        }
    }

    /// Returns the least rate at which a path without rate is held by its own rank or protocol.
    fn slowest_held(&mut self) -> f64 {
        if self.held.is_empty() {
            return f64::INFINITY;
        }
        let (bundles, filling) = (&self.bundles, self.filling);
        self.held.retain(|&path| bundles[path as usize].filled != filling);
        self.held.iter().map(|&path| self.moves.paths[path as usize].most).fold(f64::INFINITY, f64::min)
    }

    /// Gives its rate to all who are held at it; returns how many.
    fn serve_held(&mut self, rate: f64, now: Ps) -> usize {
        let (mut touched, mut served) = (0, 0);
        for at in 0..self.held.len() {
            let path = &self.moves.paths[self.held[at] as usize];
            if path.most == rate {
                touched = self.give(self.held[at], rate, Limit { link: path.narrowest, users: 1 }, now, touched);
                served += 1;
            }
        }
        self.take(rate, touched);
        served
    }

    /// Gives the level to all who wait on a link that offers no more; returns how many.
    fn serve(&mut self, island: u32, level: f64, now: Ps) -> usize {
        let (mut touched, mut served) = (0, 0);
        for place in 0..self.shares.len() {
            if self.shares[place] != level {
                continue;
            }
            let link = self.islands[island as usize].links[place];
            let limit = Limit { link, users: self.links[link as usize].transfers };
            let found = self.find_waiting(link);
            for at in 0..found {
                touched = self.give(self.found[at], level, limit, now, touched);
            }
            served += found;
        }
        self.take(level, touched);
        served
    }

    /// Finds the paths without rate on a link, into `found`; returns how many. No branch depends on which they are.
    fn find_waiting(&mut self, link: u32) -> usize {
        let mut found = 0;
        for &(path, _) in &self.links[link as usize].paths {
            self.found[found] = path;
            found += usize::from(self.bundles[path as usize].filled != self.filling);
        }
        found
    }

    /// Gives a path its rate, which takes from its links; `touched` of them are noted before and the result after it.
    fn give(&mut self, path: u32, rate: f64, limit: Limit, now: Ps, mut touched: usize) -> usize {
        let bundle = &mut self.bundles[path as usize];
        bundle.filled = self.filling;
        let members = f64::from(bundle.members);
        for crossing in self.moves.shared(path) {
            let level = &mut self.levels[crossing.link as usize];
            self.touched[touched] = crossing.link;
            touched += usize::from(level.taken == 0.0);
            level.taken += f64::from(crossing.weight) * members;
        }
        if bundle.rate != rate || bundle.has_new || self.records && bundle.limit != limit {
            self.go(path, rate, limit, now);
        }
        touched
    }

    /// Takes what was given from the links.
    fn take(&mut self, rate: f64, touched: usize) {
        for &link in &self.touched[..touched] {
            let level = &mut self.levels[link as usize];
            level.left = (level.left - rate * level.taken).max(0.0);
            level.waiting -= level.taken;
            level.taken = 0.0;
            self.shares[level.place as usize] = level.share();
        }
    }

    fn note_first(&mut self, island: u32, agenda: &mut Agenda) {
        let island = &mut self.islands[island as usize];
        let mut first = (Ps::MAX, NONE);
        for &path in &island.paths {
            let bundle = &self.bundles[path as usize];
            if bundle.first_end < first.0 {
                first = (bundle.first_end, bundle.first);
            }
        }
        island.next_end = first.0;
        if let Some(flow) = self.flows.get_mut(first.1 as usize) {
            if flow.noted != flow.ends {
                flow.noted = flow.ends;
                agenda.push(flow.ends, event(first.1, ENDS));
            }
        }
    }
}

/// The least of some numbers, none of which is NaN; four at a time, as each comparison waits for the one before.
fn least(numbers: &[f64]) -> f64 {
    let lesser = |a: f64, b: f64| if a < b { a } else { b };
    let mut least = [f64::INFINITY; 4];
    let (fours, rest) = numbers.as_chunks::<4>();
    for four in fours {
        for (least, &number) in least.iter_mut().zip(four) {
            *least = lesser(*least, number);
        }
    }
    let least = lesser(lesser(least[0], least[1]), lesser(least[2], least[3]));
    rest.iter().fold(least, |least, &number| lesser(least, number))
}

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
//! a transfer back.
//!
//! Rounds that a change does not reach are not done again. What links had before each round is kept (`rounds.rs`); of
//! those that changed it is worked out up to which round they would have offered more than its level, as before, and
//! the rounds from there on are done again. Work: rounds x links, plus each path on each link, of the rounds that are
//! done again, plus the transfers whose rate changed. To follow a change only through the links that it reaches, as
//! bottleneck structures do (Ros-Giralt and others, 2019), was tried: 4.4 rounds of 9 are done again instead of 6.1, but
//! with a branch at every step, and in 1.55 times the time of undoing them all (measured, 64 transfers on 16 links).

use super::rounds::Rounds;
use super::{Fluid, NONE};
use crate::simulate::agenda::Agenda;
use crate::simulate::sharing::{event, Limit, ENDS};
use crate::units::Ps;

/// In an island of more links no rounds are kept: a row of 256 links is 8 KiB, and there may be as many rows. Chosen.
const MOST_LINKS: usize = 256;

/// A path that goes on at another rate.
#[derive(Clone, Copy, Default)]
pub(super) struct RateChange {
    path: u32,
    rate: f64,
    limit: Limit,
}

impl Fluid<'_> {
    /// Gives every path of an island its rate, and puts the earliest end on the agenda; when it comes, all are looked
    /// at again.
    pub(super) fn fill(&mut self, island: u32, now: Ps, agenda: &mut Agenda) {
        let mut rounds = std::mem::take(&mut self.islands[island as usize].rounds);
        let keeps = self.start_filling(island, &mut rounds);
        let mut given = 0;
        loop {
            let level = rounds.least();
            let held = self.slowest_held();
            if level == f64::INFINITY {
                break;
            }
            self.serial += 1;
            given = if held <= level {
                self.serve_held(held, &mut rounds, given)
            } else {
                self.settle_level(island, level, &mut rounds, given)
            };
            rounds.end(held.min(level), self.serial, keeps);
        }
        self.islands[island as usize].rounds = rounds;
        for at in 0..given {
            let RateChange { path, rate, limit } = self.given[at];
            self.set_rate(path, rate, limit, now);
        }
        self.note_first(island, agenda);
    }

    /// Undoes the rounds that changed links reach; says whether new ones are to be kept.
    fn start_filling(&mut self, number: u32, rounds: &mut Rounds) -> bool {
        let island = &mut self.islands[number as usize];
        let paths = island.paths.len();
        if self.given.len() <= paths {
            self.given.resize(paths + 1, RateChange::default());
            self.found.resize(paths + 1, 0);
        }
        let keeps = island.held == 0 && paths >= self.least_kept && island.links.len() <= MOST_LINKS;
        let kept = std::mem::replace(&mut island.keeps, keeps) && keeps;
        let mut last = 0;
        if kept {
            let mut most = rounds.len();
            for &link in &island.altered {
                let shared = &mut self.links[link as usize];
                shared.is_altered = false;
                most = rounds.not_reached(&self.levels[link as usize], shared.weight, most);
            }
            last = rounds.undo(most);
        } else {
            let (links, levels) = (&mut self.links, &self.levels);
            for &link in &island.altered {
                links[link as usize].is_altered = false;
            }
            let link = |&link: &u32| (levels[link as usize].capacity, links[link as usize].weight);
            rounds.start(island.links.iter().map(link));
        }
        island.altered.clear();
        self.unserved = (last + 1, self.serial + 1);
        self.held.clear();
        if island.held > 0 {
            self.held.extend(island.paths.iter().filter(|&&path| self.bundles[path as usize].is_held));
        }
        keeps
    }

    /// Says whether a path has no rate yet: its round is one that was undone, or it is new.
    #[inline]
    fn waits(&self, path: u32) -> bool {
        let (first, end) = self.unserved;
        self.bundles[path as usize].served.wrapping_sub(first) < end - first
    }

    /// Returns the least rate at which a path without rate is held by its own rank or protocol.
    fn slowest_held(&mut self) -> f64 {
        if self.held.is_empty() {
            return f64::INFINITY;
        }
        let mut held = std::mem::take(&mut self.held);
        held.retain(|&path| self.waits(path));
        self.held = held;
        self.held.iter().map(|&path| self.paths.all[path as usize].most).fold(f64::INFINITY, f64::min)
    }

    /// Gives its rate to all who are held at it; `given` go on at another rate before and the result after it.
    fn serve_held(&mut self, rate: f64, rounds: &mut Rounds, mut given: usize) -> usize {
        for at in 0..self.held.len() {
            let path = &self.paths.all[self.held[at] as usize];
            if path.most == rate {
                given = self.assign(self.held[at], rate, Limit { link: path.narrowest, users: 1 }, rounds, given);
            }
        }
        given
    }

    /// Gives the level to all who wait on a link that offers no more; `given` as above.
    fn settle_level(&mut self, island: u32, level: f64, rounds: &mut Rounds, mut given: usize) -> usize {
        for word in 0..rounds.words() {
            let mut offers = rounds.find(level, word);
            while offers != 0 {
                let place = word * u64::BITS as usize + offers.trailing_zeros() as usize;
                offers &= offers - 1;
                let link = self.islands[island as usize].links[place];
                self.levels[link as usize].served = self.serial;
                let limit = Limit { link, users: self.links[link as usize].transfers };
                for at in 0..self.find_waiting(link) {
                    given = self.assign(self.found[at], level, limit, rounds, given);
                }
            }
        }
        given
    }

    /// Finds the paths without rate on a link, into `found`; returns how many. No branch depends on which they are.
    fn find_waiting(&mut self, link: u32) -> usize {
        let mut found = 0;
        for &(path, _) in &self.links[link as usize].paths {
            self.found[found] = path;
            found += usize::from(self.waits(path));
        }
        found
    }

    /// Gives a path its rate, which takes from its links. No branch depends on whether it is another.
    #[inline(always)]
    fn assign(&mut self, path: u32, rate: f64, limit: Limit, rounds: &mut Rounds, given: usize) -> usize {
        let bundle = &mut self.bundles[path as usize];
        bundle.served = self.serial;
        let members = f64::from(bundle.members);
        for crossing in self.paths.shared(path) {
            let place = self.levels[crossing.link as usize].place;
            rounds.count(place, f64::from(crossing.weight) * members);
        }
        self.given[given] = RateChange { path, rate, limit };
        given + usize::from((bundle.rate != rate) | bundle.has_new | (self.records && bundle.limit != limit))
    }

    fn note_first(&mut self, island: u32, agenda: &mut Agenda) {
        let island = &mut self.islands[island as usize];
        let mut first = (Ps::MAX, NONE);
        for &path in &island.paths {
            let end = self.bundles[path as usize].first_end;
            first = if end < first.0 { (end, path) } else { first };
        }
        island.next_end = first.0;
        let first = self.bundles.get(first.1 as usize).map_or(NONE, |bundle| bundle.first);
        if let Some(flow) = self.flows.get_mut(first as usize) {
            if flow.noted != flow.ends {
                flow.noted = flow.ends;
                agenda.push(flow.ends, event(first, ENDS));
            }
        }
    }
}

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
//! Rounds that a change does not reach are not done again. What each round took is kept; of the links that changed it
//! is worked out up to which round they would have offered more than its level, as before, and the rounds from there
//! on are undone. Work: rounds x links, plus twice each path on each link, of the rounds that are done again, plus
//! the transfers whose rate changed.

use super::{Fluid, NONE};
use crate::simulate::agenda::Agenda;
use crate::simulate::run::{event, Limit, ENDS};
use crate::units::Ps;

/// What a filling counts with, of one link. Weights are whole numbers.
#[derive(Clone, Default)]
pub(super) struct Level {
    capacity: f64,
    /// The weights of all transfers on it at the last filling.
    counted: f64,
    /// Where it is in its island.
    place: u32,
    left: f64,
    /// The weights of those without rate, and of those that get theirs now.
    waiting: f64,
    taken: f64,
    /// The last round in which it offered no more than the level.
    served: u64,
}

/// A round of a filling.
struct Round {
    level: f64,
    /// Rounds are numbered on, over all islands.
    serial: u64,
    /// Where what it took begins.
    first: usize,
    /// How many paths had a rate after it.
    served: usize,
}

/// What a round took from a link, and what was left before.
struct Taken {
    link: u32,
    weight: f64,
    left: f64,
}

/// The rounds of the last filling of an island.
#[derive(Default)]
pub(super) struct Rounds {
    rounds: Vec<Round>,
    taken: Vec<Taken>,
}

impl Rounds {
    pub(super) fn clear(&mut self) {
        self.rounds.clear();
        self.taken.clear();
    }
}

/// Returns up to which of the first `most` rounds a link that changed offers more than their level, and did before.
fn not_reached(rounds: &[Round], all: &[Taken], link: u32, level: &Level, weight: f64, most: usize) -> usize {
    let mut now = Level { left: level.capacity, waiting: weight, ..Level::default() };
    for (nth, round) in rounds[..most].iter().enumerate() {
        if now.share() <= round.level || level.served == round.serial {
            return nth;
        }
        let end = rounds.get(nth + 1).map_or(all.len(), |next| next.first);
        for taken in all[round.first..end].iter().filter(|taken| taken.link == link) {
            now.take(round.level, taken.weight);
        }
    }
    most
}

impl Level {
    /// A link on which nothing is.
    pub(super) fn idle(&capacity: &u64) -> Self {
        Self { capacity: capacity as f64, left: capacity as f64, ..Self::default() }
    }

    /// Forgets fillings.
    pub(super) fn reset(&mut self, place: u32, weight: f64) {
        self.place = place;
        (self.left, self.waiting, self.counted) = (self.capacity, weight, weight);
    }

    /// What it offers to each who waits for a rate.
    #[inline]
    fn share(&self) -> f64 {
        let share = self.left / self.waiting;
        if self.waiting > 0.0 {
            share
        } else {
            f64::INFINITY
        }
    }

    /// Some who waited get a rate.
    #[inline]
    fn take(&mut self, rate: f64, weight: f64) {
        self.left = (self.left - rate * weight).max(0.0);
        self.waiting -= weight;
    }
}

impl Fluid<'_> {
    /// Gives every path of an island its rate, and puts the earliest end on the agenda; when it comes, all are looked
    /// at again.
    pub(super) fn fill(&mut self, island: u32, now: Ps, agenda: &mut Agenda) {
        let mut served = self.start_filling(island);
        let all = self.islands[island as usize].paths.len();
        while served < all {
            let level = least(&self.shares);
            let slowest = self.slowest_held();
            self.serial += 1;
            let (rate, (more, touched)) = if slowest <= level {
                (slowest, self.serve_held(slowest, now))
            } else {
                (level, self.serve(island, level, now))
            };
            served += more;
            self.take(island, rate, served, touched);
        }
        self.note_first(island, agenda);
    }

    /// Undoes the rounds that changed links reach; returns how many paths keep their rate.
    fn start_filling(&mut self, island: u32) -> usize {
        let island = &mut self.islands[island as usize];
        let Rounds { rounds, taken } = &mut island.rounds;
        let was_held = std::mem::replace(&mut island.was_held, island.held > 0);
        let mut kept = if was_held || island.held > 0 { 0 } else { rounds.len() };
        for &link in &island.links {
            let shared = &mut self.links[link as usize];
            if std::mem::take(&mut shared.has_other_weight) {
                kept = not_reached(rounds, taken, link, &self.levels[link as usize], shared.weight, kept);
            }
        }
        let first_undone = rounds.get(kept).map_or(taken.len(), |round| round.first);
        for taken in taken.drain(first_undone..).rev() {
            let level = &mut self.levels[taken.link as usize];
            level.left = taken.left;
            level.waiting += taken.weight;
        }
        rounds.truncate(kept);
        let (last, served) = rounds.last().map_or((0, 0), |last| (last.serial, last.served));
        self.unserved = (last + 1, self.serial + 1);
        self.shares.clear();
        for &link in &island.links {
            let level = &mut self.levels[link as usize];
            let weight = self.links[link as usize].weight;
            level.waiting += weight - level.counted;
            level.counted = weight;
            self.shares.push(level.share());
        }
        self.found.resize(island.paths.len().max(self.found.len()), 0);
        self.held.clear();
        if island.held > 0 {
            self.held.extend(island.paths.iter().filter(|&&path| self.bundles[path as usize].is_held));
        }
        served
    }

    /// Says whether a path has no rate yet: its round is one that was undone, or it is new.
    #[inline]
    fn waits(&self, path: u32) -> bool {
        let (first, end) = self.unserved;
        (first..end).contains(&self.bundles[path as usize].served)
    }

    /// Returns the least rate at which a path without rate is held by its own rank or protocol.
    fn slowest_held(&mut self) -> f64 {
        if self.held.is_empty() {
            return f64::INFINITY;
        }
        let mut held = std::mem::take(&mut self.held);
        held.retain(|&path| self.waits(path));
        self.held = held;
        self.held.iter().map(|&path| self.moves.paths[path as usize].most).fold(f64::INFINITY, f64::min)
    }

    /// Gives its rate to all who are held at it; returns how many, and how many links they touch.
    fn serve_held(&mut self, rate: f64, now: Ps) -> (usize, usize) {
        let (mut touched, mut served) = (0, 0);
        for at in 0..self.held.len() {
            let path = &self.moves.paths[self.held[at] as usize];
            if path.most == rate {
                touched = self.give(self.held[at], rate, Limit { link: path.narrowest, users: 1 }, now, touched);
                served += 1;
            }
        }
        (served, touched)
    }

    /// Gives the level to all who wait on a link that offers no more; returns how many, and how many links they touch.
    fn serve(&mut self, island: u32, level: f64, now: Ps) -> (usize, usize) {
        let (mut touched, mut served) = (0, 0);
        for place in 0..self.shares.len() {
            if self.shares[place] != level {
                continue;
            }
            let link = self.islands[island as usize].links[place];
            self.levels[link as usize].served = self.serial;
            let limit = Limit { link, users: self.links[link as usize].transfers };
            let found = self.find_waiting(link);
            for at in 0..found {
                touched = self.give(self.found[at], level, limit, now, touched);
            }
            served += found;
        }
        (served, touched)
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

    /// Gives a path its rate, which takes from its links; `touched` of them are noted before and the result after it.
    #[inline]
    fn give(&mut self, path: u32, rate: f64, limit: Limit, now: Ps, mut touched: usize) -> usize {
        let bundle = &mut self.bundles[path as usize];
        bundle.served = self.serial;
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

    /// Takes what a round gave from the links, and notes it.
    fn take(&mut self, island: u32, level: f64, served: usize, touched: usize) {
        let Rounds { rounds, taken } = &mut self.islands[island as usize].rounds;
        rounds.push(Round { level, serial: self.serial, first: taken.len(), served });
        for &link in &self.touched[..touched] {
            let from = &mut self.levels[link as usize];
            let weight = std::mem::take(&mut from.taken);
            taken.push(Taken { link, weight, left: from.left });
            from.take(level, weight);
            self.shares[from.place as usize] = from.share();
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

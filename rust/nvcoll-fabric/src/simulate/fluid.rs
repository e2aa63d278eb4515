//! Links shared max-min fair: every transfer gets as much as it can without taking from one that has less.
//!
//! ```text
//! progressive filling (Bertsekas and Gallager, Data Networks, 1987, 6.5.2)
//! while a transfer has no rate
//!     level = the least, over links, of what is left of the link / the weights of its transfers without rate
//!     every transfer without rate on a link with that share gets the level; what it takes is taken from its links
//! ```
//!
//! All transfers of one level are served together and what they take from a link is added up as whole weights first, so that
//! no order of links or transfers shows in the result. Rates change only where links changed: the transfers that are joined to
//! them by links that they share. Work per change: their number times their links, times the number of levels.
//!
//! Rates and what remains are doubles (sums, products and quotients only, hence the same on every machine); a transfer whose
//! rate never differed from its rate alone ends at the exact picosecond, the others within a thousandth of one, rounded up.

use super::agenda::Agenda;
use super::moves::{Crossing, Moves};
use super::run::{event, Discipline, Limit, ENDS};
use crate::units::Ps;

/// The picoseconds by which a quotient may exceed a whole number without being rounded up: more than doubles err over a
/// second, less than anything that is simulated. Chosen.
const SLACK_PS: f64 = 1.0 / 1024.0;

/// A transfer; each queue has at most one.
#[derive(Clone, Default)]
struct Flow {
    left: f64,
    rate: f64,
    since: Ps,
    ends: Ps,
    /// The last time for which its end was put on the agenda.
    noted: Ps,
    nbytes: u64,
    path: u32,
    mark: u32,
    has_rate: bool,
    is_active: bool,
    limit: Limit,
}

/// A link as it is shared now.
#[derive(Clone, Default)]
struct Shared {
    capacity: f64,
    left: f64,
    /// The weights of all transfers on it, of those without rate, and of those that get theirs now.
    weight: u64,
    waiting: u64,
    taken: u64,
    share: f64,
    mark: u32,
    is_changed: bool,
    busy_since: Ps,
    busy: Ps,
    /// The transfers on it: queue, and the how many-eth of its links this is.
    users: Vec<(u32, u32)>,
}

/// Max-min fair sharing.
pub(super) struct Fluid<'a> {
    moves: &'a Moves,
    flows: Vec<Flow>,
    links: Vec<Shared>,
    /// For each queue and each link of its transfer, where in `users` it is.
    places: Vec<u32>,
    most_links: usize,
    changed: Vec<u32>,
    epoch: u32,
    joined_links: Vec<u32>,
    joined_flows: Vec<u32>,
}

impl<'a> Fluid<'a> {
    pub(super) fn new(moves: &'a Moves, queues: usize) -> Self {
        let most_links = (0..moves.paths.len() as u32).map(|path| moves.shared(path).len()).max().unwrap_or(0);
        let link = |&capacity: &u64| Shared { capacity: capacity as f64, ..Shared::default() };
        Self {
            moves,
            flows: vec![Flow::default(); queues],
            links: moves.capacities.iter().map(link).collect(),
            places: vec![0; queues * most_links],
            most_links,
            changed: Vec::new(),
            epoch: 0,
            joined_links: Vec::new(),
            joined_flows: Vec::new(),
        }
    }

    fn crossings(&self, queue: u32) -> &'a [Crossing] {
        self.moves.shared(self.flows[queue as usize].path)
    }

    fn change(&mut self, link: u32) {
        let shared = &mut self.links[link as usize];
        if !shared.is_changed {
            shared.is_changed = true;
            self.changed.push(link);
        }
    }

    /// Finds the links and transfers that are joined to a link.
    fn join(&mut self, link: u32) {
        self.joined_links.clear();
        self.joined_flows.clear();
        self.joined_links.push(link);
        self.links[link as usize].mark = self.epoch;
        let mut turn = 0;
        while let Some(&link) = self.joined_links.get(turn) {
            turn += 1;
            for at in 0..self.links[link as usize].users.len() {
                let (queue, _) = self.links[link as usize].users[at];
                let flow = &mut self.flows[queue as usize];
                if flow.mark == self.epoch {
                    continue;
                }
                flow.mark = self.epoch;
                flow.has_rate = false;
                self.joined_flows.push(queue);
                for crossing in self.moves.shared(flow.path) {
                    let shared = &mut self.links[crossing.link as usize];
                    if shared.mark != self.epoch {
                        shared.mark = self.epoch;
                        self.joined_links.push(crossing.link);
                    }
                }
            }
        }
    }

    /// Gives every joined transfer its rate.
    fn fill(&mut self, now: Ps) {
        for &link in &self.joined_links {
            let shared = &mut self.links[link as usize];
            (shared.left, shared.waiting, shared.taken) = (shared.capacity, shared.weight, 0);
        }
        let is_held = |&queue: &u32| self.moves.paths[self.flows[queue as usize].path as usize].most.is_finite();
        let mut held: Vec<u32> = self.joined_flows.iter().copied().filter(is_held).collect();
        while !self.joined_links.is_empty() {
            let level = self.level();
            held.retain(|&queue| !self.flows[queue as usize].has_rate);
            let most = |queue: u32| self.moves.paths[self.flows[queue as usize].path as usize].most;
            let slowest = held.iter().map(|&queue| most(queue)).fold(f64::INFINITY, f64::min);
            if slowest <= level {
                let those: Vec<u32> = held.iter().copied().filter(|&queue| most(queue) == slowest).collect();
                for queue in those {
                    let limit =
                        Limit { link: self.moves.paths[self.flows[queue as usize].path as usize].narrowest, users: 1 };
                    self.give(queue, slowest, limit, now);
                }
            } else {
                for at in 0..self.joined_links.len() {
                    self.serve(self.joined_links[at], level, now);
                }
            }
            self.settle_links(if slowest <= level { slowest } else { level });
        }
    }

    /// Returns the least share that a link offers to those who wait for a rate.
    fn level(&mut self) -> f64 {
        let mut level = f64::INFINITY;
        for &link in &self.joined_links {
            let shared = &mut self.links[link as usize];
            shared.share = shared.left / shared.waiting as f64;
            level = level.min(shared.share);
        }
        level
    }

    /// Gives the level to all who wait on a link that offers no more.
    fn serve(&mut self, link: u32, level: f64, now: Ps) {
        if self.links[link as usize].share != level {
            return;
        }
        let users = self.links[link as usize].users.len();
        for at in 0..users {
            let (queue, _) = self.links[link as usize].users[at];
            if !self.flows[queue as usize].has_rate {
                self.give(queue, level, Limit { link, users: users as u32 }, now);
            }
        }
    }

    fn give(&mut self, queue: u32, rate: f64, limit: Limit, now: Ps) {
        let crossings = self.crossings(queue);
        for crossing in crossings {
            self.links[crossing.link as usize].taken += u64::from(crossing.weight);
        }
        let flow = &mut self.flows[queue as usize];
        flow.has_rate = true;
        if limit.users >= flow.limit.users {
            flow.limit = limit;
        }
        flow.go(rate, now, self.moves);
    }

    /// Takes what was given from the links; those on which nobody waits any more are left out.
    fn settle_links(&mut self, level: f64) {
        let links = &mut self.links;
        self.joined_links.retain(|&link| {
            let shared = &mut links[link as usize];
            if shared.taken > 0 {
                shared.left = (shared.left - level * shared.taken as f64).max(0.0);
                shared.waiting -= shared.taken;
                shared.taken = 0;
            }
            shared.waiting > 0
        });
    }

    /// Puts the earliest end of the joined transfers on the agenda; when it comes, the others are looked at again.
    fn note(&mut self, agenda: &mut Agenda) {
        let first = self.joined_flows.iter().min_by_key(|&&queue| (self.flows[queue as usize].ends, queue));
        let Some(&queue) = first else { return };
        let flow = &mut self.flows[queue as usize];
        if flow.noted != flow.ends {
            flow.noted = flow.ends;
            agenda.push(flow.ends, event(queue, ENDS));
        }
    }
}

impl Flow {
    /// Goes on at a rate from now on.
    fn go(&mut self, rate: f64, now: Ps, moves: &Moves) {
        if rate == self.rate {
            return;
        }
        self.left = (self.left - self.rate * (now - self.since) as f64 / 1e12).max(0.0);
        let is_new = self.rate == 0.0 || self.since == now && self.left == self.nbytes as f64;
        (self.rate, self.since) = (rate, now);
        let path = &moves.paths[self.path as usize];
        self.ends = if is_new && rate == path.rate {
            now + path.alone.time(self.nbytes)
        } else {
            now + (self.left * 1e12 / rate - SLACK_PS).max(0.0).ceil() as Ps
        };
    }
}

impl Discipline for Fluid<'_> {
    const WAITS_FOR_LATENCY: bool = true;

    fn begin(&mut self, queue: u32, path: u32, nbytes: u64, now: Ps, agenda: &mut Agenda) {
        let crossings = self.moves.shared(path);
        let mut is_alone = true;
        for (nth, crossing) in crossings.iter().enumerate() {
            let shared = &mut self.links[crossing.link as usize];
            if shared.users.is_empty() {
                shared.busy_since = now;
            } else {
                is_alone = false;
            }
            self.places[queue as usize * self.most_links + nth] = shared.users.len() as u32;
            shared.users.push((queue, nth as u32));
            shared.weight += u64::from(crossing.weight);
        }
        let known = &self.moves.paths[path as usize];
        let flow = &mut self.flows[queue as usize];
        let limit = Limit { link: known.narrowest, users: 1 };
        *flow = Flow {
            left: nbytes as f64,
            since: now,
            ends: Ps::MAX,
            nbytes,
            path,
            mark: flow.mark,
            is_active: true,
            limit,
            ..Flow::default()
        };
        if is_alone {
            flow.go(known.rate, now, self.moves);
            flow.noted = flow.ends;
            agenda.push(flow.ends, event(queue, ENDS));
        } else if let Some(crossing) = crossings.first() {
            self.change(crossing.link);
        }
    }

    fn happens(&mut self, happening: u64, now: Ps, _: &mut Agenda) -> bool {
        let flow = &self.flows[(happening >> 32) as usize];
        flow.is_active && flow.ends == now
    }

    fn end(&mut self, queue: u32, now: Ps) -> Limit {
        self.flows[queue as usize].is_active = false;
        for (nth, crossing) in self.crossings(queue).iter().enumerate() {
            let place = self.places[queue as usize * self.most_links + nth] as usize;
            let shared = &mut self.links[crossing.link as usize];
            shared.weight -= u64::from(crossing.weight);
            shared.users.swap_remove(place);
            if let Some(&(moved, nth)) = shared.users.get(place) {
                self.places[moved as usize * self.most_links + nth as usize] = place as u32;
            }
            if shared.users.is_empty() {
                shared.busy += now - shared.busy_since;
            } else {
                self.change(crossing.link);
            }
        }
        self.flows[queue as usize].limit
    }

    fn settle(&mut self, now: Ps, ended: &mut Vec<u32>, agenda: &mut Agenda) {
        if self.changed.is_empty() {
            return;
        }
        self.epoch += 1;
        let mut changed = std::mem::take(&mut self.changed);
        for &link in &changed {
            self.links[link as usize].is_changed = false;
        }
        for link in changed.drain(..) {
            let shared = &self.links[link as usize];
            if shared.mark == self.epoch || shared.users.is_empty() {
                continue;
            }
            self.join(link);
            let before = ended.len();
            let is_over = |&&queue: &&u32| self.flows[queue as usize].ends <= now;
            ended.extend(self.joined_flows.iter().filter(is_over));
            if ended.len() > before {
                self.change(link);
                continue;
            }
            self.fill(now);
            self.note(agenda);
        }
        if self.changed.is_empty() {
            self.changed = changed;
        }
    }

    fn busy(&self) -> Vec<Ps> {
        self.links.iter().map(|link| link.busy).collect()
    }
}

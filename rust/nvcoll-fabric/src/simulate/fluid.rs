//! Links shared max-min fair: every transfer gets as much as it can without taking from one that has less.
//!
//! ```text
//! progressive filling (Bertsekas and Gallager, Data Networks, 1987, 6.5.2)
//! while a transfer has no rate
//!     level = the least, over links, of what is left of the link / the weights of its transfers without rate
//!     every transfer without rate on a link with that share gets the level; what it takes is taken from its links
//! ```
//!
//! All transfers of one level are served together and what they take from a link is added up as whole weights first,
//! so that no order of links or transfers shows in the result. Rates change only where links changed: the transfers
//! that are joined to them by links that they share. Work per change: their number times their links, times the
//! number of levels.
//!
//! Rates and what remains are doubles (sums, products and quotients only, hence the same on every machine); a
//! transfer whose rate never differed from its rate alone ends at the exact picosecond, the others within a
//! thousandth of one, rounded up.

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
    /// Whether something else than links may hold it.
    is_held: bool,
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
    /// Where it is among the joined links.
    place: u32,
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
    /// Of the joined transfers, those that something else than links may hold.
    held: Vec<u32>,
    /// For each joined link, what it offers.
    shares: Vec<f64>,
    /// Links from which something is about to be taken.
    touched: Vec<u32>,
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
            held: Vec::new(),
            shares: Vec::new(),
            touched: Vec::new(),
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
        self.held.clear();
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
                if flow.is_held {
                    self.held.push(queue);
                }
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

    /// Gives every joined transfer its rate, and puts the earliest end on the agenda; when it comes, all are looked
    /// at again.
    fn fill(&mut self, now: Ps, agenda: &mut Agenda) {
        self.shares.clear();
        for (place, &link) in self.joined_links.iter().enumerate() {
            let shared = &mut self.links[link as usize];
            (shared.left, shared.waiting, shared.taken, shared.place) =
                (shared.capacity, shared.weight, 0, place as u32);
            self.shares.push(shared.share());
        }
        let mut filling = Filling { now, missing: self.joined_flows.len(), first: (Ps::MAX, 0) };
        while filling.missing > 0 {
            let level = self.shares.iter().copied().fold(f64::INFINITY, f64::min);
            let slowest = self.slowest_held();
            if slowest <= level {
                self.serve_held(slowest, &mut filling);
                self.take(slowest);
            } else {
                for place in 0..self.shares.len() {
                    if self.shares[place] == level {
                        self.serve(self.joined_links[place], level, &mut filling);
                    }
                }
                self.take(level);
            }
        }
        let (ends, queue) = filling.first;
        let flow = &mut self.flows[queue as usize];
        if flow.noted != ends {
            flow.noted = ends;
            agenda.push(ends, event(queue, ENDS));
        }
    }

    /// Returns the least rate at which a transfer without rate is held by its own rank or protocol.
    fn slowest_held(&mut self) -> f64 {
        if self.held.is_empty() {
            return f64::INFINITY;
        }
        let (flows, moves) = (&self.flows, self.moves);
        self.held.retain(|&queue| !flows[queue as usize].has_rate);
        let most = |&queue: &u32| moves.paths[flows[queue as usize].path as usize].most;
        self.held.iter().map(most).fold(f64::INFINITY, f64::min)
    }

    fn serve_held(&mut self, rate: f64, filling: &mut Filling) {
        for at in 0..self.held.len() {
            let queue = self.held[at];
            let path = &self.moves.paths[self.flows[queue as usize].path as usize];
            if path.most == rate {
                self.give(queue, rate, 1e12 / rate, Limit { link: path.narrowest, users: 1 }, filling);
            }
        }
    }

    /// Gives the level to all who wait on a link.
    fn serve(&mut self, link: u32, level: f64, filling: &mut Filling) {
        let users = self.links[link as usize].users.len();
        let (limit, pace) = (Limit { link, users: users as u32 }, 1e12 / level);
        for at in 0..users {
            let (queue, _) = self.links[link as usize].users[at];
            if !self.flows[queue as usize].has_rate {
                self.give(queue, level, pace, limit, filling);
            }
        }
    }

    fn give(&mut self, queue: u32, rate: f64, pace: f64, limit: Limit, filling: &mut Filling) {
        let flow = &mut self.flows[queue as usize];
        for crossing in self.moves.shared(flow.path) {
            let shared = &mut self.links[crossing.link as usize];
            if shared.taken == 0 {
                self.touched.push(crossing.link);
            }
            shared.taken += u64::from(crossing.weight);
        }
        flow.has_rate = true;
        if limit.users >= flow.limit.users {
            flow.limit = limit;
        }
        flow.go(rate, pace, filling.now, self.moves);
        filling.first = (flow.ends, queue).min(filling.first);
        filling.missing -= 1;
    }

    /// Takes what was given from the links.
    fn take(&mut self, level: f64) {
        for link in self.touched.drain(..) {
            let shared = &mut self.links[link as usize];
            shared.left = (shared.left - level * shared.taken as f64).max(0.0);
            shared.waiting -= shared.taken;
            shared.taken = 0;
            self.shares[shared.place as usize] = shared.share();
        }
    }
}

/// What a filling has come to.
struct Filling {
    now: Ps,
    /// How many transfers have no rate.
    missing: usize,
    /// The earliest end, and whose.
    first: (Ps, u32),
}

impl Shared {
    /// What it offers to each who waits for a rate.
    fn share(&self) -> f64 {
        if self.waiting > 0 {
            self.left / self.waiting as f64
        } else {
            f64::INFINITY
        }
    }
}

impl Flow {
    /// Goes on at a rate from now on; `pace` is the same as picoseconds per byte.
    fn go(&mut self, rate: f64, pace: f64, now: Ps, moves: &Moves) {
        if rate == self.rate {
            return;
        }
        self.left = (self.left - self.rate * (now - self.since) as f64 * 1e-12).max(0.0);
        let is_new = self.rate == 0.0 || self.since == now && self.left == self.nbytes as f64;
        (self.rate, self.since) = (rate, now);
        let path = &moves.paths[self.path as usize];
        self.ends = if is_new && rate == path.rate {
            now + path.alone.time(self.nbytes)
        } else {
            now + rounded_up((self.left * pace - SLACK_PS).max(0.0))
        };
    }
}

/// Rounds a time up that is not negative; `f64::ceil` is a call on the oldest x86-64.
fn rounded_up(ps: f64) -> Ps {
    let below = ps as i64;
    below as Ps + Ps::from((below as f64) < ps)
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
            is_held: known.most.is_finite(),
            limit,
            ..Flow::default()
        };
        if is_alone {
            flow.go(known.rate, 0.0, now, self.moves);
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
            self.fill(now, agenda);
        }
        if self.changed.is_empty() {
            self.changed = changed;
        }
    }

    fn busy(&self) -> Vec<Ps> {
        self.links.iter().map(|link| link.busy).collect()
    }
}

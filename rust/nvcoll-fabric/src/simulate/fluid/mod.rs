//! Links shared max-min fair: every transfer gets as much as it can without taking from one that has less.
//!
//! ```text
//! begin, end ─▶ links changed ─▶ island of each (`island.rs`) ─▶ filled (`fill.rs`, `rounds.rs`) ─▶ rates, the earliest end
//! ```
//!
//! Transfers of one path are a **bundle**: they have the same links, hence the same rate. Rates change only where
//! links changed: the bundles that are joined to them by links that they share, an **island**. Work per change: that
//! of a filling of the island, plus the transfers whose rate changed. A transfer that has its links to itself is in
//! no island and costs a table look-up per link. On machines of few paths, rates are looked up by what is on its way
//! (`rate_memo.rs`), and nothing is filled that was filled before.
//!
//! Rates and what remains are doubles (sums, products and quotients only, hence the same on every machine); a
//! transfer whose rate never differed from its rate alone ends at the exact picosecond, the others within a
//! thousandth of one, rounded up.

mod fill;
mod island;
mod postpone;
mod rate_memo;
mod rounds;
#[cfg(test)]
mod tests;

use super::agenda::Agenda;
use super::paths::{TransferPath, TransferPaths};
use super::sharing::{event, Limit, SharingModel, ENDS};
use crate::units::Ps;
use fill::RateChange;
use island::{Island, LEAST_KEPT};
use rate_memo::RateMemo;

/// The picoseconds by which a quotient may exceed a whole number without being rounded up: more than doubles err over a
/// second, less than anything that is simulated. Chosen.
const SLACK_PS: f64 = 1.0 / 1024.0;

/// No transfer, path or island.
const NONE: u32 = u32::MAX;

/// A transfer; each queue has at most one.
#[derive(Clone, Default)]
struct Transfer {
    left: f64,
    rate: f64,
    since: Ps,
    ends: Ps,
    /// The last time for which its end was put on the agenda.
    noted: Ps,
    nbytes: u64,
    path: u32,
    /// Its neighbours among the transfers of its path.
    before: u32,
    after: u32,
    is_active: bool,
    limit: Limit,
}

/// The transfers of one path.
#[derive(Clone)]
struct Bundle {
    rate: f64,
    limit: Limit,
    /// The earliest end among its transfers, and whose.
    first_end: Ps,
    first: u32,
    /// The last transfer that began, and how many there are.
    member: u32,
    members: u32,
    /// The round that gave it its rate; while it has none, a number that no round has.
    served: u64,
    /// Where it is in its island.
    place: u32,
    /// Whether a transfer has begun since it was given a rate.
    has_new: bool,
    /// Whether something else than links may hold it.
    is_held: bool,
}

/// A link as it is shared now.
#[derive(Clone, Default)]
struct SharedLink {
    transfers: u32,
    island: u32,
    is_changed: bool,
    /// Whether transfers have begun or ended on it since its island was filled.
    is_altered: bool,
    /// The weights of all transfers on it.
    weight: f64,
    busy_since: Ps,
    busy: Ps,
    /// The paths with transfers on it: path, and the how many-eth of its links this is.
    paths: Vec<(u32, u32)>,
}

/// A link in fillings; apart, so that a transfer that is alone touches less.
struct FillLevel {
    capacity: f64,
    /// The last round in which it offered no more than the level.
    served: u64,
    /// Where it is in its island.
    place: u32,
}

/// Max-min fair sharing.
pub(super) struct Fluid<'a> {
    paths: &'a TransferPaths,
    /// Whether somebody asks what held a transfer back.
    records: bool,
    flows: Vec<Transfer>,
    bundles: Vec<Bundle>,
    links: Vec<SharedLink>,
    /// For each path, how long its links had one of its transfers that went ahead of the clock.
    alone: Vec<Ps>,
    levels: Vec<FillLevel>,
    islands: Vec<Island>,
    /// Those of fewer paths are not kept.
    least_kept: usize,
    free: Vec<u32>,
    /// For each path and each of its links, where in the link's `paths` it is.
    places: Vec<u32>,
    most_links: usize,
    changed: Vec<u32>,
    /// Islands that a settling has looked at.
    looked_at: Vec<u32>,
    settling: u32,
    /// The number of the last round, and which numbers say that a path has no rate yet.
    serial: u64,
    unserved: (u64, u64),
    /// Of its paths without rate, those that something else than links may hold.
    held: Vec<u32>,
    /// Paths that are about to get a rate, and those that have got another; longer than needed.
    found: Vec<u32>,
    given: Vec<RateChange>,
    /// Rates by what is on its way, where that comes again.
    memo: Option<RateMemo>,
}

impl SharedLink {
    /// Has its island looked at when links are settled.
    #[inline]
    fn change(&mut self, link: u32, changed: &mut Vec<u32>) {
        if !self.is_changed {
            self.is_changed = true;
            changed.push(link);
        }
    }

    /// Notes for its island that a transfer begins or ends on it.
    #[inline]
    fn alter(&mut self, link: u32, islands: &mut [Island]) {
        if self.island != NONE && !self.is_altered {
            self.is_altered = true;
            islands[self.island as usize].altered.push(link);
        }
    }
}

impl<'a> Fluid<'a> {
    /// Starts with idle links. Without `records` nobody may ask for limits.
    pub(super) fn new(paths: &'a TransferPaths, queues: usize, records: bool) -> Self {
        let most_links = (0..paths.all.len() as u32).map(|path| paths.shared(path).len()).max().unwrap_or(0);
        let bundle = |path: &TransferPath| Bundle {
            rate: 0.0,
            limit: Limit::default(),
            first_end: Ps::MAX,
            first: NONE,
            member: NONE,
            members: 0,
            served: 0,
            place: NONE,
            has_new: false,
            is_held: path.most.is_finite(),
        };
        let link = SharedLink { island: NONE, ..SharedLink::default() };
        let memo = RateMemo::new(paths);
        let level = |&capacity: &u64| FillLevel { capacity: capacity as f64, served: 0, place: NONE };
        Self {
            paths,
            records,
            flows: vec![Transfer::default(); queues],
            bundles: paths.all.iter().map(bundle).collect(),
            links: vec![link; paths.capacities.len()],
            levels: paths.capacities.iter().map(level).collect(),
            alone: vec![0; paths.all.len()],
            islands: Vec::new(),
            least_kept: if memo.is_some() { usize::MAX } else { LEAST_KEPT },
            free: Vec::new(),
            places: vec![0; paths.all.len() * most_links],
            most_links,
            changed: Vec::new(),
            looked_at: Vec::new(),
            settling: 0,
            serial: 0,
            unserved: (0, 0),
            held: Vec::new(),
            found: Vec::new(),
            given: Vec::new(),
            memo,
        }
    }

    fn change(&mut self, link: u32) {
        self.links[link as usize].change(link, &mut self.changed);
    }

    /// Transfers have begun or ended on a link that others are on.
    fn touch(&mut self, link: u32) {
        match &mut self.memo {
            Some(memo) => memo.meet(),
            None => self.change(link),
        }
    }

    /// Adds a transfer to its bundle.
    fn join(&mut self, queue: u32) {
        let path = self.flows[queue as usize].path;
        let bundle = &mut self.bundles[path as usize];
        let after = std::mem::replace(&mut bundle.member, queue);
        bundle.members += 1;
        bundle.has_new = true;
        if let Some(memo) = &mut self.memo {
            memo.join(path, bundle);
        }
        (self.flows[queue as usize].before, self.flows[queue as usize].after) = (NONE, after);
        if after != NONE {
            self.flows[after as usize].before = queue;
        } else {
            self.activate(path);
        }
    }

    /// Takes a transfer out of its bundle.
    fn part(&mut self, queue: u32) {
        let Transfer { path, before, after, .. } = self.flows[queue as usize];
        if before != NONE {
            self.flows[before as usize].after = after;
        } else {
            self.bundles[path as usize].member = after;
        }
        if after != NONE {
            self.flows[after as usize].before = before;
        }
        self.bundles[path as usize].members -= 1;
        if let Some(memo) = &mut self.memo {
            memo.part(path, &self.bundles[path as usize]);
        }
        if self.bundles[path as usize].members == 0 {
            self.deactivate(path);
        } else {
            self.find_first(path);
        }
    }

    fn find_first(&mut self, path: u32) {
        let (mut first, mut queue) = ((Ps::MAX, NONE), self.bundles[path as usize].member);
        while queue != NONE {
            let flow = &self.flows[queue as usize];
            first = flow.first(queue, first);
            queue = flow.after;
        }
        let bundle = &mut self.bundles[path as usize];
        (bundle.first_end, bundle.first) = first;
    }

    /// Lets the transfers of a path go on at a rate, which `limit` allows no higher.
    fn set_rate(&mut self, path: u32, rate: f64, limit: Limit, now: Ps) {
        let alone = &self.paths.all[path as usize];
        let pace = 1e12 / rate;
        let (mut first, mut queue) = ((Ps::MAX, NONE), self.bundles[path as usize].member);
        while queue != NONE {
            let flow = &mut self.flows[queue as usize];
            if self.records {
                flow.limit.link = if limit.users >= flow.limit.users { limit.link } else { flow.limit.link };
                flow.limit.users = flow.limit.users.max(limit.users);
            }
            flow.set_rate(rate, pace, now, alone);
            first = flow.first(queue, first);
            queue = flow.after;
        }
        let bundle = &mut self.bundles[path as usize];
        (bundle.rate, bundle.limit, bundle.has_new) = (rate, limit, false);
        (bundle.first_end, bundle.first) = first;
    }
}

impl Fluid<'_> {
    /// Looks at the islands of links that changed: adds the transfers that end now; if there are none, fills them.
    fn settle_links(&mut self, now: Ps, ended: &mut Vec<u32>, agenda: &mut Agenda) {
        self.settling += 1;
        let mut turn = 0;
        while let Some(&link) = self.changed.get(turn) {
            turn += 1;
            self.links[link as usize].is_changed = false;
            if self.links[link as usize].transfers > 0 {
                let (island, is_new) = self.island_to_settle(link);
                if is_new {
                    self.add_ended(island, now, ended);
                    self.looked_at.push(island);
                }
            }
        }
        if ended.is_empty() {
            self.changed.clear();
        } else {
            self.changed.iter().for_each(|&link| self.links[link as usize].is_changed = true);
        }
        let mut looked_at = std::mem::take(&mut self.looked_at);
        for island in looked_at.drain(..) {
            if ended.is_empty() {
                self.fill(island, now, agenda);
            }
            self.release_small(island);
        }
        self.looked_at = looked_at;
    }

    /// Adds the transfers of a path that end now.
    fn add_ended_on(&self, path: u32, now: Ps, ended: &mut Vec<u32>) {
        let bundle = &self.bundles[path as usize];
        let mut queue = if bundle.first_end <= now { bundle.member } else { NONE };
        while queue != NONE {
            let flow = &self.flows[queue as usize];
            if flow.ends <= now {
                ended.push(queue);
            }
            queue = flow.after;
        }
    }
}

impl Transfer {
    /// Returns the earlier of its end and another.
    #[inline]
    fn first(&self, queue: u32, other: (Ps, u32)) -> (Ps, u32) {
        if self.ends < other.0 {
            (self.ends, queue)
        } else {
            other
        }
    }

    /// Goes on at a rate from now on; `pace` is the same as picoseconds per byte.
    fn set_rate(&mut self, rate: f64, pace: f64, now: Ps, path: &TransferPath) {
        if rate == self.rate {
            return;
        }
        self.left = (self.left - self.rate * (now - self.since) as i64 as f64 * 1e-12).max(0.0);
        let is_new = self.rate == 0.0 || self.since == now && self.left == self.nbytes as f64;
        (self.rate, self.since) = (rate, now);
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

impl SharingModel for Fluid<'_> {
    const WAITS_FOR_LATENCY: bool = true;
    const KNOWS_ENDS: bool = true;

    #[inline]
    fn alone(&mut self, path: u32, nbytes: u64) -> Ps {
        self.paths.all[path as usize].alone.time(nbytes)
    }

    #[inline]
    fn pass(&mut self, path: u32, takes: Ps) -> Limit {
        self.alone[path as usize] += takes;
        Limit { link: self.paths.all[path as usize].narrowest, users: 1 }
    }

    fn begin(&mut self, queue: u32, path: u32, nbytes: u64, now: Ps, agenda: &mut Agenda) -> Option<Ps> {
        let crossings = self.paths.shared(path);
        let mut is_alone = true;
        for crossing in crossings {
            let shared = &mut self.links[crossing.link as usize];
            if shared.transfers == 0 {
                shared.busy_since = now;
            }
            is_alone &= shared.transfers == 0;
            shared.transfers += 1;
            shared.weight += f64::from(crossing.weight);
            shared.alter(crossing.link, &mut self.islands);
        }
        let alone = &self.paths.all[path as usize];
        let limit = Limit { link: alone.narrowest, users: 1 };
        self.flows[queue as usize] = Transfer {
            left: nbytes as f64,
            since: now,
            ends: Ps::MAX,
            nbytes,
            path,
            is_active: true,
            limit,
            ..Transfer::default()
        };
        self.join(queue);
        if is_alone {
            self.set_rate(path, alone.rate, limit, now);
            let flow = &mut self.flows[queue as usize];
            flow.noted = flow.ends;
            agenda.push(flow.ends, event(queue, ENDS));
        } else {
            self.touch(crossings[0].link);
        }
        None
    }

    fn happens(&mut self, happening: u64, now: Ps, _: &mut Agenda) -> Option<Ps> {
        let flow = &self.flows[(happening >> 32) as usize];
        (flow.is_active && flow.ends == now).then_some(now)
    }

    fn end(&mut self, queue: u32, now: Ps) -> Limit {
        let path = self.flows[queue as usize].path;
        self.flows[queue as usize].is_active = false;
        let island = self.island_of(path);
        self.part(queue);
        let mut is_gone = true;
        for crossing in self.paths.shared(path) {
            let shared = &mut self.links[crossing.link as usize];
            shared.weight -= f64::from(crossing.weight);
            shared.alter(crossing.link, &mut self.islands);
            shared.transfers -= 1;
            if shared.transfers == 0 {
                shared.busy += now - shared.busy_since;
            } else {
                is_gone = false;
                self.touch(crossing.link);
            }
        }
        if is_gone {
            self.look_at(island);
        }
        self.flows[queue as usize].limit
    }

    fn settle(&mut self, now: Ps, ended: &mut Vec<u32>, agenda: &mut Agenda) {
        match self.memo.take_if(|memo| memo.is_stale) {
            Some(memo) => self.settle_by_table(memo, now, ended, agenda),
            None if self.memo.is_some() || self.changed.is_empty() => {}
            None => self.settle_links(now, ended, agenda),
        }
    }

    fn busy(&mut self) -> Vec<Ps> {
        let mut busy: Vec<Ps> = self.links.iter().map(|link| link.busy).collect();
        for (path, &alone) in (0..).zip(&self.alone).filter(|(_, &alone)| alone > 0) {
            for crossing in self.paths.shared(path) {
                busy[crossing.link as usize] += alone;
            }
        }
        busy
    }

    fn used(&self, now: Ps) -> Vec<Ps> {
        self.used_until(now)
    }

    fn state(&self, now: Ps, visit: &mut impl FnMut(u64) -> bool) -> bool {
        self.flows.iter().all(|flow| flow.state(now, self.records, visit))
    }

    fn postpone(&mut self, by: Ps, more: &[Ps]) {
        self.postpone_all(by, more);
    }
}

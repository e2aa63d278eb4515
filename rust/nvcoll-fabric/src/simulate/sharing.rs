//! Links shared max-min fair: every transfer gets the highest rate that takes nothing from a slower transfer.
//!
//! ```text
//! begin, end ─▶ changed links ─▶ connected component of each ─▶ filled (`crate::max_min`) ─▶ rates, the earliest end
//! ```
//!
//! Rates change only where links changed: among the transfers that are joined to them by links that they share, the
//! **component**, which is found anew for every change (selective update, as in SimGrid: Casanova, Giersch, Legrand, Quinson,
//! Suter 2014). Its earliest end is put on the agenda; when it comes, the component has changed again. A transfer that has its
//! links to itself is filled with nobody. Cost per change: a filling of the component.
//!
//! Rates and what remains are doubles (sums, products and quotients only, hence the same on every machine); a
//! transfer whose rate never differed from its rate alone ends at the exact picosecond, the others within a
//! thousandth of one, rounded up.

use std::ops::Range;

use super::agenda::Agenda;
use super::paths::{TransferPath, TransferPaths};
use crate::max_min::Filling;
use crate::units::Ps;

/// The picoseconds by which a quotient may exceed a whole number without being rounded up: more than doubles err over a
/// second, less than anything that is simulated. Chosen.
const SLACK_PS: f64 = 1.0 / 1024.0;

/// The link that limited a transfer while it had the most competitors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limit {
    /// The link; `u32::MAX` if that is not known.
    pub(super) link: u32,
    /// The number of transfers on the link at that time.
    pub(super) users: u32,
}

impl Default for Limit {
    fn default() -> Self {
        Self { link: u32::MAX, users: 0 }
    }
}

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
    is_active: bool,
    limit: Limit,
    /// The last search for components that found it.
    found: u32,
}

/// A link as it is shared now.
#[derive(Clone, Default)]
struct SharedLink {
    /// The queues whose transfers are on it.
    users: Vec<u32>,
    is_changed: bool,
    busy_since: Ps,
    busy: Ps,
    /// The last search for components that found it.
    found: u32,
}

/// The links of a run, and the transfers on them.
pub(super) struct SharedLinks<'a> {
    paths: &'a TransferPaths,
    transfers: Vec<Transfer>,
    links: Vec<SharedLink>,
    /// Links on which transfers have begun or ended since rates were given.
    changed: Vec<u32>,
    /// The number of the last search for components.
    search: u32,
    /// The transfers and links of the components that were found.
    members: Vec<u32>,
    joined: Vec<u32>,
    components: Vec<Range<usize>>,
    filling: Filling,
    waiting: Vec<(u32, u32)>,
}

impl<'a> SharedLinks<'a> {
    /// Starts with idle links.
    pub(super) fn new(paths: &'a TransferPaths, queues: usize) -> Self {
        Self {
            paths,
            transfers: vec![Transfer::default(); queues],
            links: vec![SharedLink::default(); paths.capacities.len()],
            changed: Vec::new(),
            search: 0,
            members: Vec::new(),
            joined: Vec::new(),
            components: Vec::new(),
            filling: Filling::new(paths.capacities.len()),
            waiting: Vec::new(),
        }
    }

    /// Begins to move a transfer. If it has its links to itself, its end is put on the agenda.
    pub(super) fn begin(&mut self, queue: u32, path: u32, nbytes: u64, now: Ps, agenda: &mut Agenda) {
        let mut is_alone = true;
        for crossing in self.paths.shared(path) {
            let shared = &mut self.links[crossing.link as usize];
            if shared.users.is_empty() {
                shared.busy_since = now;
            }
            is_alone &= shared.users.is_empty();
            shared.users.push(queue);
        }
        let alone = &self.paths.all[path as usize];
        let limit = Limit { link: alone.narrowest, users: 1 };
        let transfer = Transfer {
            left: nbytes as f64,
            since: now,
            ends: Ps::MAX,
            nbytes,
            path,
            is_active: true,
            limit,
            ..Transfer::default()
        };
        self.transfers[queue as usize] = transfer;
        if is_alone {
            let transfer = &mut self.transfers[queue as usize];
            transfer.set_rate(alone.rate, now, alone);
            transfer.noted = transfer.ends;
            agenda.end(transfer.ends, queue);
        } else {
            self.change(self.paths.shared(path)[0].link);
        }
    }

    /// Says whether the transfer of a queue ends now.
    pub(super) fn ends(&self, queue: u32, now: Ps) -> bool {
        let transfer = &self.transfers[queue as usize];
        transfer.is_active && transfer.ends == now
    }

    /// Ends the transfer of a queue.
    pub(super) fn end(&mut self, queue: u32, now: Ps) -> Limit {
        let transfer = &mut self.transfers[queue as usize];
        transfer.is_active = false;
        let Transfer { path, limit, .. } = *transfer;
        for crossing in self.paths.shared(path) {
            let shared = &mut self.links[crossing.link as usize];
            let place = shared.users.iter().position(|&user| user == queue).expect("it began on this link");
            shared.users.swap_remove(place);
            if shared.users.is_empty() {
                shared.busy += now - shared.busy_since;
            } else {
                self.change(crossing.link);
            }
        }
        limit
    }

    fn change(&mut self, link: u32) {
        let shared = &mut self.links[link as usize];
        if !shared.is_changed {
            shared.is_changed = true;
            self.changed.push(link);
        }
    }

    /// Settles rates after all events of `now`; or adds the transfers that end now to `ended`, if there are any.
    pub(super) fn settle(&mut self, now: Ps, ended: &mut Vec<u32>, agenda: &mut Agenda) {
        if self.changed.is_empty() {
            return;
        }
        self.find_components();
        ended.extend(self.members.iter().copied().filter(|&queue| self.transfers[queue as usize].ends <= now));
        if !ended.is_empty() {
            return;
        }
        for link in self.changed.drain(..) {
            self.links[link as usize].is_changed = false;
        }
        for component in std::mem::take(&mut self.components) {
            self.fill(component, now, agenda);
        }
    }

    /// Finds the connected components of the links that changed.
    fn find_components(&mut self) {
        self.search += 1;
        self.members.clear();
        self.components.clear();
        for at in 0..self.changed.len() {
            let first = self.members.len();
            self.join(self.changed[at]);
            while let Some(link) = self.joined.pop() {
                for nth in 0..self.links[link as usize].users.len() {
                    let queue = self.links[link as usize].users[nth];
                    let transfer = &mut self.transfers[queue as usize];
                    if transfer.found == self.search {
                        continue;
                    }
                    transfer.found = self.search;
                    self.members.push(queue);
                    for crossing in self.paths.shared(transfer.path) {
                        self.join(crossing.link);
                    }
                }
            }
            if self.members.len() > first {
                self.components.push(first..self.members.len());
            }
        }
    }

    fn join(&mut self, link: u32) {
        let shared = &mut self.links[link as usize];
        if shared.found != self.search {
            shared.found = self.search;
            self.joined.push(link);
        }
    }

    /// Gives every transfer of a component its rate, and puts the earliest end on the agenda.
    fn fill(&mut self, component: Range<usize>, now: Ps, agenda: &mut Agenda) {
        let Self { paths, transfers, links, members, filling, waiting, .. } = self;
        let members = &members[component];
        waiting.extend(members.iter().map(|&queue| (queue, transfers[queue as usize].path)));
        let path = |(_, path): (u32, u32)| &paths.all[path as usize];
        filling.fill(
            waiting,
            path,
            |link| paths.capacities[link as usize] as f64,
            |(queue, path), rate, link| {
                let path = &paths.all[path as usize];
                let limit = match link {
                    Some(link) => Limit { link, users: links[link as usize].users.len() as u32 },
                    None => Limit { link: path.narrowest, users: 1 },
                };
                let transfer = &mut transfers[queue as usize];
                transfer.limit_by(limit);
                transfer.set_rate(rate, now, path);
            },
        );
        let first = members.iter().copied().min_by_key(|&queue| transfers[queue as usize].ends);
        if let Some(first) = first {
            let transfer = &mut transfers[first as usize];
            if transfer.noted != transfer.ends {
                transfer.noted = transfer.ends;
                agenda.end(transfer.ends, first);
            }
        }
    }

    /// Returns the time that each link was in use, once no transfer is left.
    pub(super) fn busy(&self) -> Vec<Ps> {
        self.links.iter().map(|link| link.busy).collect()
    }
}

impl Transfer {
    /// Notes what limits it if no limit before had more competitors.
    fn limit_by(&mut self, limit: Limit) {
        if limit.users >= self.limit.users {
            self.limit = limit;
        }
    }

    /// Goes on at a rate from now on.
    fn set_rate(&mut self, rate: f64, now: Ps, path: &TransferPath) {
        if rate == self.rate {
            return;
        }
        self.left = (self.left - self.rate * (now - self.since) as i64 as f64 * 1e-12).max(0.0);
        let is_new = self.rate == 0.0 || self.since == now && self.left == self.nbytes as f64;
        (self.rate, self.since) = (rate, now);
        self.ends = if is_new && rate == path.rate {
            now + path.alone.time(self.nbytes)
        } else {
            let pace = 1e12 / rate;
            now + rounded_up((self.left * pace - SLACK_PS).max(0.0))
        };
    }
}

/// Rounds a time up that is not negative; `f64::ceil` is a call on the oldest x86-64.
fn rounded_up(ps: f64) -> Ps {
    let below = ps as i64;
    below as Ps + Ps::from((below as f64) < ps)
}

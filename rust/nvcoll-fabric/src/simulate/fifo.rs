//! Links that serve one transfer at a time, first come first served: a tile is on one link after the other, whole.
//!
//! ```text
//! leg a ─▶ b      arrives at a ─waits─▶ served by a ─latency of a─▶ arrives at b ─waits─▶ served by b ─latency of b─▶ there
//! ```
//!
//! The legs of a stage begin together and the next stage begins when all are there. Who comes to a link at the same
//! time is served by rank, queue and leg. An event is one arrival at a link: when a leg is there is known as soon as its
//! last link is reached. The cheapest way to run, and one that no rounding touches.

use super::agenda::Agenda;
use super::paths::TransferPaths;
use super::sharing::{event, Limit, SharingModel};
use crate::units::Ps;

/// A step on its way.
#[derive(Clone, Default)]
struct FifoTransfer {
    nbytes: u64,
    path: u32,
    /// The first leg of the next stage, and how many legs of this one have not reached their last link yet.
    next: u16,
    missing: u16,
    /// When the last of those that have is there.
    there: Ps,
    /// Its earliest end, because its rank or its protocol is slow.
    not_before: Ps,
}

#[derive(Clone)]
struct LinkQueue {
    /// The time at which it has served all transfers that came.
    free_at: Ps,
    busy: Ps,
    latency: Ps,
}

/// The transfers of a path that had its links to themselves: their number, and the bytes of each.
#[derive(Clone, Default)]
struct SoleUse {
    nbytes: u64,
    takes: Ps,
    times: u64,
}

/// First come, first served.
pub(super) struct FifoLinks<'a> {
    paths: &'a TransferPaths,
    ways: Vec<FifoTransfer>,
    links: Vec<LinkQueue>,
    /// By path, of the last number of bytes.
    alone: Vec<SoleUse>,
    /// For each link of each leg, the time for which it serves a transfer.
    services: Vec<Ps>,
}

impl<'a> FifoLinks<'a> {
    pub(super) fn new(paths: &'a TransferPaths, latencies: &[Ps], queues: usize) -> Self {
        let links = latencies.iter().map(|&latency| LinkQueue { free_at: 0, busy: 0, latency }).collect();
        let (ways, alone) = (vec![FifoTransfer::default(); queues], vec![SoleUse::default(); paths.all.len()]);
        Self { paths, ways, links, alone, services: vec![0; paths.leg_places()] }
    }

    /// Returns the earliest end of a transfer that begins at a time.
    fn not_before(&self, path: u32, nbytes: u64, begins: Ps) -> Ps {
        let known = &self.paths.all[path as usize];
        if known.most.is_finite() {
            begins + known.alone.time(nbytes)
        } else {
            0
        }
    }

    /// Returns the time of a transfer with its links to itself; `services` then has the time at each link.
    fn takes(&mut self, path: u32, nbytes: u64) -> Ps {
        let (mut stage, mut begins, mut there) = (0, 0, 0);
        for &leg in self.paths.legs(path) {
            if leg.stage != stage {
                (stage, begins) = (leg.stage, there);
            }
            let mut at = begins;
            for ((crossing, pace), service) in self.paths.leg_links(leg).iter().zip(&mut self.services[leg.places()]) {
                *service = pace.time(nbytes);
                at += *service + self.links[crossing.link as usize].latency;
            }
            there = there.max(at);
        }
        there.max(self.not_before(path, nbytes, 0))
    }

    /// Records the use of links by the transfers of a path that had them to themselves.
    fn put_down(&mut self, path: u32) {
        let times = std::mem::take(&mut self.alone[path as usize]).times;
        if times > 0 {
            for &leg in self.paths.legs(path) {
                for ((crossing, _), service) in self.paths.leg_links(leg).iter().zip(&self.services[leg.places()]) {
                    self.links[crossing.link as usize].busy += times * service;
                }
            }
        }
    }

    /// A transfer comes to the `hop`-th link of a leg.
    fn arrive(&mut self, queue: u32, leg: u16, hop: u16, now: Ps, agenda: &mut Agenda) {
        let way = &mut self.ways[queue as usize];
        let links = self.paths.leg_links(self.paths.legs(way.path)[leg as usize]);
        let (crossing, pace) = links[hop as usize];
        let (link, service) = (&mut self.links[crossing.link as usize], pace.time(way.nbytes));
        link.free_at = now.max(link.free_at) + service;
        link.busy += service;
        let next = link.free_at + link.latency;
        if usize::from(hop + 1) < links.len() {
            agenda.push(next, event(queue, u32::from(leg) << 16 | u32::from(hop + 1)));
        } else {
            way.missing -= 1;
            way.there = way.there.max(next);
        }
    }

    /// Begins all legs of the stage that begins with a leg.
    fn begin_stage(&mut self, queue: u32, first: u16, now: Ps, agenda: &mut Agenda) {
        let way = &mut self.ways[queue as usize];
        let legs = &self.paths.legs(way.path)[first as usize..];
        way.missing = legs.iter().take_while(|leg| leg.stage == legs[0].stage).count() as u16;
        way.next = first + way.missing;
        for leg in first..way.next {
            self.arrive(queue, leg, 0, now, agenda);
        }
    }

    /// Returns when a transfer ends if all its legs have reached their last link.
    fn ends(&mut self, queue: u32, agenda: &mut Agenda) -> Option<Ps> {
        let way = &self.ways[queue as usize];
        if way.missing > 0 {
            return None;
        }
        if usize::from(way.next) == self.paths.legs(way.path).len() {
            return Some(way.there.max(way.not_before));
        }
        agenda.push(way.there, event(queue, u32::from(way.next) << 16));
        None
    }
}

impl SharingModel for FifoLinks<'_> {
    const WAITS_FOR_LATENCY: bool = false;
    const KNOWS_ENDS: bool = false;

    #[inline]
    fn alone(&mut self, path: u32, nbytes: u64) -> Ps {
        if self.alone[path as usize].nbytes != nbytes {
            self.put_down(path);
            self.alone[path as usize] = SoleUse { nbytes, takes: self.takes(path, nbytes), times: 0 };
        }
        self.alone[path as usize].takes
    }

    #[inline]
    fn pass(&mut self, path: u32, _: Ps) -> Limit {
        self.alone[path as usize].times += 1;
        Limit::default()
    }

    fn begin(&mut self, queue: u32, path: u32, nbytes: u64, now: Ps, agenda: &mut Agenda) -> Option<Ps> {
        let not_before = self.not_before(path, nbytes, now);
        self.ways[queue as usize] = FifoTransfer { nbytes, path, not_before, ..FifoTransfer::default() };
        self.begin_stage(queue, 0, now, agenda);
        self.ends(queue, agenda)
    }

    fn happens(&mut self, happening: u64, now: Ps, agenda: &mut Agenda) -> Option<Ps> {
        let (queue, leg, hop) = ((happening >> 32) as u32, (happening >> 16) as u16, happening as u16);
        if hop == 0 {
            self.begin_stage(queue, leg, now, agenda);
        } else {
            self.arrive(queue, leg, hop, now, agenda);
        }
        self.ends(queue, agenda)
    }

    fn end(&mut self, _: u32, _: Ps) -> Limit {
        Limit::default()
    }

    fn settle(&mut self, _: Ps, _: &mut Vec<u32>, _: &mut Agenda) {}

    fn busy(&mut self) -> Vec<Ps> {
        for path in 0..self.alone.len() as u32 {
            self.put_down(path);
        }
        self.links.iter().map(|link| link.busy).collect()
    }

    /// Of what a link is about to serve all counts as soon as it has come.
    fn used(&self, _: Ps) -> Vec<Ps> {
        self.links.iter().map(|link| link.busy).collect()
    }

    fn state(&self, now: Ps, visit: &mut impl FnMut(u64) -> bool) -> bool {
        let mut way = |way: &FifoTransfer| {
            let place = u64::from(way.path) << 32 | u64::from(way.next) << 16 | u64::from(way.missing);
            let times = [way.there, way.not_before].map(|at| at.saturating_sub(now));
            visit(place) && visit(way.nbytes) && times.into_iter().all(&mut *visit)
        };
        self.ways.iter().all(&mut way) && self.links.iter().all(|link| visit(link.free_at.saturating_sub(now)))
    }

    fn postpone(&mut self, by: Ps, more: &[Ps]) {
        for way in &mut self.ways {
            (way.there, way.not_before) = (way.there + by, way.not_before + by);
        }
        for (link, more) in self.links.iter_mut().zip(more) {
            (link.free_at, link.busy) = (link.free_at + by, link.busy + more);
        }
    }
}

//! Links that serve one transfer at a time, first come first served: a tile is on one link after the other, whole.
//!
//! ```text
//! leg a ─▶ b      arrives at a ─waits─▶ served by a ─latency of a─▶ arrives at b ─waits─▶ served by b ─latency of b─▶ there
//! ```
//!
//! The legs of a stage begin together and the next stage begins when all are there. Who comes to a link at the same
//! time is served by rank, queue and leg. An event is one arrival: the cheapest way to run, and one that no rounding
//! touches.

use super::agenda::Agenda;
use super::moves::Moves;
use super::run::{event, Discipline, Limit, ENDS};
use crate::units::Ps;

/// A step on its way.
#[derive(Clone, Default)]
struct Way {
    nbytes: u64,
    path: u32,
    /// The first leg of its stage, and how many legs of the stage are not there yet.
    leg: u16,
    missing: u16,
    /// Before which it cannot end: its rank is slow, or its protocol is.
    not_before: Ps,
}

/// First come, first served.
pub(super) struct Fifo<'a> {
    moves: &'a Moves,
    latencies: &'a [Ps],
    ways: Vec<Way>,
    /// For each link, when it has served all who came.
    free_at: Vec<Ps>,
    busy: Vec<Ps>,
}

impl<'a> Fifo<'a> {
    pub(super) fn new(moves: &'a Moves, latencies: &'a [Ps], queues: usize) -> Self {
        let links = moves.capacities.len();
        Self { moves, latencies, ways: vec![Way::default(); queues], free_at: vec![0; links], busy: vec![0; links] }
    }

    /// A transfer comes to the `hop`-th link of a leg.
    fn arrive(&mut self, queue: u32, leg: u16, hop: u16, now: Ps, agenda: &mut Agenda) {
        let way = &self.ways[queue as usize];
        let (crossing, pace) = self.moves.leg_links(self.moves.legs(way.path)[leg as usize])[hop as usize];
        let (link, service) = (crossing.link as usize, pace.time(way.nbytes));
        let served = now.max(self.free_at[link]) + service;
        self.free_at[link] = served;
        self.busy[link] += service;
        agenda.push(served + self.latencies[link], event(queue, u32::from(leg) << 16 | u32::from(hop + 1)));
    }

    /// Begins all legs of the stage that begins with a leg.
    fn begin_stage(&mut self, queue: u32, first: u16, now: Ps, agenda: &mut Agenda) {
        let legs = self.moves.legs(self.ways[queue as usize].path);
        let stage = legs[first as usize].stage;
        let count = legs[first as usize..].iter().take_while(|leg| leg.stage == stage).count() as u16;
        (self.ways[queue as usize].leg, self.ways[queue as usize].missing) = (first, count);
        for leg in first..first + count {
            self.arrive(queue, leg, 0, now, agenda);
        }
    }
}

impl Discipline for Fifo<'_> {
    const WAITS_FOR_LATENCY: bool = false;
    const KNOWS_ENDS: bool = false;

    fn begin(&mut self, queue: u32, path: u32, nbytes: u64, now: Ps, agenda: &mut Agenda) {
        let known = &self.moves.paths[path as usize];
        let not_before = if known.most.is_finite() { now + known.alone.time(nbytes) } else { 0 };
        self.ways[queue as usize] = Way { nbytes, path, not_before, ..Way::default() };
        self.begin_stage(queue, 0, now, agenda);
    }

    fn happens(&mut self, happening: u64, now: Ps, agenda: &mut Agenda) -> bool {
        let (queue, what) = ((happening >> 32) as u32, happening as u32);
        if what == ENDS {
            return true;
        }
        let (leg, hop) = ((what >> 16) as u16, what as u16);
        let way = &mut self.ways[queue as usize];
        let legs = self.moves.legs(way.path);
        if usize::from(hop) < self.moves.leg_links(legs[leg as usize]).len() {
            self.arrive(queue, leg, hop, now, agenda);
            return false;
        }
        way.missing -= 1;
        if way.missing > 0 {
            return false;
        }
        let stage = legs[way.leg as usize].stage;
        let next = legs.iter().position(|leg| leg.stage > stage);
        if let Some(next) = next {
            self.begin_stage(queue, next as u16, now, agenda);
            return false;
        }
        if way.not_before > now {
            agenda.push(way.not_before, event(queue, ENDS));
            return false;
        }
        true
    }

    fn end(&mut self, _: u32, _: Ps) -> Limit {
        Limit::default()
    }

    fn settle(&mut self, _: Ps, _: &mut Vec<u32>, _: &mut Agenda) {}

    fn busy(&self) -> Vec<Ps> {
        self.busy.clone()
    }

    /// Of what a link is about to serve all counts as soon as it has come.
    fn used(&self, _: Ps) -> Vec<Ps> {
        self.busy.clone()
    }

    fn state(&self, now: Ps, visit: &mut impl FnMut(u64) -> bool) -> bool {
        let mut way = |way: &Way| {
            let place = u64::from(way.path) << 32 | u64::from(way.leg) << 16 | u64::from(way.missing);
            visit(place) && visit(way.nbytes) && visit(way.not_before.saturating_sub(now))
        };
        self.ways.iter().all(&mut way) && self.free_at.iter().all(|&at| visit(at.saturating_sub(now)))
    }

    fn postpone(&mut self, by: Ps, more: &[Ps]) {
        self.ways.iter_mut().for_each(|way| way.not_before += by);
        self.free_at.iter_mut().for_each(|at| *at += by);
        self.busy.iter_mut().zip(more).for_each(|(busy, more)| *busy += more);
    }
}

//! What a step moves, and over which links. Steps of one rank between the same ranks move over the same: a **path**.
//!
//! ```text
//! stages of an ordinary step      1  every source that is not here, each by its route; every view that is here, from memory
//!                                 2  every destination that is not here, each by its route
//! sources folded at the switch    1  every source's GPU ─▶ switch              2  switch ─▶ executor
//! destinations at the switch      3  executor ─▶ switch                        4  switch ─▶ every destination's GPU
//! ```
//!
//! Sharing sees a path as links with weights: the bytes on that link for each byte of the chunk, times the protocol's wire
//! ratio, whose denominator is multiplied into all rates so that weights are whole.

use std::collections::{BTreeMap, HashMap};

use nvcoll_core::algorithm;
use nvcoll_core::schedule::{Aliasing, Schedule, Step, View};

use super::link_table::LinkTable;
use super::ratio::Ratio;
use super::settings::{AtSwitch, Settings};
use crate::error::{Error, Result};
use crate::max_min::{Crossing, Flow};
use crate::units::Ps;

/// The path of a step that moves nothing: a copy onto itself.
pub(super) const NOTHING: u32 = 0;

/// Picoseconds per byte, as a fraction in its lowest terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    num: u128,
    den: u128,
}

impl Pace {
    const NONE: Pace = Pace { num: 0, den: 1 };

    /// Returns the pace of `weight` wire bytes per byte on a link of `rate` bytes per second.
    pub(super) fn over(weight: u64, rate: u64) -> Self {
        Self { num: u128::from(weight) * 1_000_000_000_000, den: u128::from(rate) }.reduced()
    }

    fn slowed(self, by: Ratio) -> Self {
        Self { num: self.num * u128::from(by.num), den: self.den * u128::from(by.den) }.reduced()
    }

    fn reduced(self) -> Self {
        let (mut a, mut b) = (self.num, self.den);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        Self { num: self.num / a, den: self.den / a }
    }

    fn is_slower_than(self, other: Pace) -> bool {
        self.num.saturating_mul(other.den) > other.num.saturating_mul(self.den)
    }

    /// Returns the time of a number of bytes, rounded up.
    #[inline]
    pub(super) fn time(self, nbytes: u64) -> Ps {
        let short =
            u64::try_from(self.num).ok().and_then(|num| num.checked_mul(nbytes)).zip(u64::try_from(self.den).ok());
        if let Some((whole, den)) = short {
            return whole.div_ceil(den);
        }
        let ps = u128::from(nbytes).saturating_mul(self.num).div_ceil(self.den);
        u64::try_from(ps).unwrap_or(u64::MAX)
    }

    /// Returns bytes per second.
    fn rate(self) -> f64 {
        self.den as f64 * 1e12 / self.num as f64
    }
}

/// What is known of a path before it runs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TransferPath {
    /// What its steps take before anything moves.
    pub(super) fixed: Ps,
    /// How long the first byte takes through all stages.
    pub(super) latency: Ps,
    /// How fast it is with all links to itself.
    pub(super) alone: Pace,
    /// The same, in bytes per second.
    pub(super) rate: f64,
    /// What it never exceeds, in bytes per second, where that is less than links allow; else infinite.
    pub(super) most: f64,
    /// The link that is the narrowest for it.
    pub(super) narrowest: u32,
    /// The links of the path by number, each once; a memory is the last.
    crossings: Vec<Crossing>,
    /// The number of its first crossings that can be anybody's bottleneck.
    shared: usize,
}

impl Flow for TransferPath {
    fn crossings(&self) -> &[Crossing] {
        &self.crossings[..self.shared]
    }

    fn cap(&self) -> f64 {
        self.most
    }
}

/// All paths of a run.
pub(super) struct TransferPaths {
    pub(super) all: Vec<TransferPath>,
    /// For each link, its bytes per second times the denominator of the wire ratio.
    pub(super) capacities: Vec<u64>,
    /// For each path; costs change, these stay.
    stages: Vec<Stages>,
    known: HashMap<Vec<u32>, u32>,
    /// The key of the step that is looked at.
    key: Vec<u32>,
}

/// The stages of a path: for each leg its stage, its links, and the bytes of memory per byte if the leg is in memory.
#[derive(Default)]
struct Stages {
    /// The rank that executes.
    rank: u32,
    /// Whether its sources, and its destinations, are a switch's.
    at_switch: (bool, bool),
    legs: Vec<(u16, Vec<u32>, u32)>,
    reads: u64,
    writes: u64,
}

impl TransferPaths {
    /// Starts with the path of what moves nothing.
    pub(super) fn new() -> Self {
        Self {
            all: Vec::new(),
            capacities: Vec::new(),
            stages: vec![Stages::default()],
            known: HashMap::new(),
            key: Vec::new(),
        }
    }

    /// Gives every path that was found its costs under settings.
    pub(super) fn price(&mut self, link_table: &LinkTable, settings: &Settings) {
        let wire = settings.protocol.wire;
        self.capacities = link_table.rates.iter().map(|rate| rate * u64::from(wire.den)).collect();
        self.all.clear();
        self.all.push(TransferPath {
            fixed: 0,
            latency: 0,
            alone: Pace::NONE,
            rate: f64::INFINITY,
            most: f64::INFINITY,
            narrowest: u32::MAX,
            crossings: Vec::new(),
            shared: 0,
        });
        let stages = std::mem::take(&mut self.stages);
        for of_path in &stages[1..] {
            self.add(of_path, link_table, settings);
        }
        self.settle(link_table, &stages);
        self.stages = stages;
    }

    /// Returns all links of a path, each once.
    pub(super) fn crossings(&self, path: u32) -> &[Crossing] {
        &self.all[path as usize].crossings
    }

    /// Returns the links of a path that can be anybody's bottleneck.
    #[inline]
    pub(super) fn shared(&self, path: u32) -> &[Crossing] {
        Flow::crossings(&self.all[path as usize])
    }

    /// Finds the path of a step, or makes it.
    ///
    /// # Errors
    /// [`Error::NoPath`]; [`Error::Unable`] for a step at a switch that the fabric has not.
    pub(super) fn path_of(
        &mut self,
        step: &Step,
        schedule: &Schedule,
        link_table: &mut LinkTable,
        at_switch: AtSwitch,
    ) -> Result<u32> {
        let (folds, spreads) = halves_at_switch(step, schedule, link_table, at_switch)?;
        let kept = step.dst.iter().filter(|dst| spreads || !stays(step, dst, schedule));
        self.key.clear();
        self.key.extend([step.rank, u32::from(folds) | u32::from(spreads) << 1, step.src.len() as u32]);
        self.key.extend(step.src.iter().map(|source| source.view.rank).chain(kept.map(|view| view.rank)));
        let (sources, destinations) = self.key[3..].split_at(step.src.len());
        if destinations.is_empty() {
            return Ok(NOTHING);
        }
        if let Some(&path) = self.known.get(&self.key) {
            return Ok(path);
        }
        let mut stages = Stages { rank: step.rank, at_switch: (folds, spreads), ..Stages::default() };
        stages.add_half(step.rank, sources, folds, true, link_table)?;
        stages.add_half(step.rank, destinations, spreads, false, link_table)?;
        let here = |at_switch: bool, ranks: &[u32]| ranks.iter().filter(|&&r| !at_switch && r == step.rank).count();
        let here = here(folds, sources) + here(spreads, destinations);
        if here > 0 {
            stages.legs.push((0, vec![link_table.memory_of(step.rank)], here as u32));
        }
        let path = self.stages.len() as u32;
        self.stages.push(stages);
        self.known.insert(self.key.clone(), path);
        Ok(path)
    }

    /// Adds a path.
    fn add(&mut self, stages: &Stages, link_table: &LinkTable, settings: &Settings) {
        let Stages { rank, at_switch, .. } = *stages;
        let wire = settings.protocol.wire;
        let fitted = settings.fitted.as_ref().map(|fitted| fitted.switch_wire);
        let mut weights: BTreeMap<u32, u64> = BTreeMap::new();
        let mut latencies = [0; 4];
        for (stage, links, here) in &stages.legs {
            let by_switch = fitted.filter(|_| if *stage < 2 { at_switch.0 } else { at_switch.1 });
            let weight = if *here > 0 { here * wire.den } else { by_switch.unwrap_or(wire.num) };
            for &link in links {
                *weights.entry(link).or_default() += u64::from(weight);
            }
            if by_switch.is_none() {
                let latency = &mut latencies[*stage as usize];
                *latency = link_table.latency_over(links).max(*latency);
            }
        }
        let crossings: Vec<_> = weights.into_iter().map(|(link, weight)| Crossing { link, weight }).collect();
        let (alone, narrowest) = self.narrowest(&crossings);
        let slowdown = settings.slowdowns.get(rank as usize).copied().unwrap_or(Ratio::ONE);
        let cap = settings.protocol.cap.map_or(Pace::NONE, |cap| Pace::over(stages.reads.max(stages.writes), cap.0));
        let at_best = if cap.is_slower_than(alone) { cap } else { alone };
        let held = at_best.slowed(slowdown);
        let is_held = held.is_slower_than(alone);
        self.all.push(TransferPath {
            fixed: slowdown.of(settings.protocol.fixed_ps),
            latency: latencies.iter().sum(),
            alone: if is_held { held } else { alone },
            rate: if is_held { held.rate() } else { self.rate_of(&crossings, narrowest) },
            most: if is_held { held.rate() } else { f64::INFINITY },
            narrowest,
            shared: crossings.len(),
            crossings,
        });
    }

    /// Finds the slowest crossing.
    fn narrowest(&self, crossings: &[Crossing]) -> (Pace, u32) {
        let mut slowest = (Pace::NONE, u32::MAX);
        for crossing in crossings {
            let pace = Pace::over(crossing.weight, self.capacities[crossing.link as usize]);
            if pace.is_slower_than(slowest.0) {
                slowest = (pace, crossing.link);
            }
        }
        slowest
    }

    /// The division that sharing makes too, so that a transfer alone gets the same number there.
    fn rate_of(&self, crossings: &[Crossing], link: u32) -> f64 {
        let crossing = crossings.iter().find(|crossing| crossing.link == link);
        crossing.map_or(f64::INFINITY, |c| self.capacities[link as usize] as f64 / c.weight as f64)
    }

    /// Leaves out of sharing each memory that cannot be anybody's bottleneck: all that its GPU's links bring and take
    /// away at full rate is no more than it holds out.
    fn settle(&mut self, link_table: &LinkTable, stages: &[Stages]) {
        let links = link_table.fabric_links() as u32;
        // For each memory, the links through which paths reach it, with the largest ratio of weights.
        let mut through: Vec<BTreeMap<u32, (u64, u64)>> = vec![BTreeMap::new(); link_table.devices.len()];
        let mut is_free: Vec<bool> = vec![true; link_table.devices.len()];
        for path in 1..self.all.len() as u32 {
            let rank = stages[path as usize].rank as usize;
            let crossings = self.crossings(path);
            let Some(memory) = crossings.iter().find(|crossing| crossing.link >= links) else { continue };
            match crossings.iter().filter(|crossing| crossing.link < links).min_by_key(|c| (c.weight, c.link)) {
                None => is_free[rank] = false,
                Some(port) => {
                    let most = through[rank].entry(port.link).or_insert((0, 1));
                    if memory.weight * most.1 > most.0 * port.weight {
                        *most = (memory.weight, port.weight);
                    }
                }
            }
        }
        for (rank, through) in through.iter().enumerate() {
            let load = |(&link, &(num, den)): (&u32, &(u64, u64))| {
                (u128::from(self.capacities[link as usize]) * u128::from(num)).div_ceil(u128::from(den))
            };
            let most: u128 = through.iter().map(load).sum();
            is_free[rank] &= most <= u128::from(self.capacities[link_table.memory_of(rank as u32) as usize]);
        }
        for (path, stages) in self.all.iter_mut().zip(stages).skip(1) {
            let memories = path.crossings.iter().filter(|crossing| crossing.link >= links).count();
            path.shared -= if is_free[stages.rank as usize] { memories } else { 0 };
        }
    }
}

impl Stages {
    /// Adds the sources, or the destinations, that are not on the executor, or all of them at its switch.
    fn add_half(
        &mut self,
        rank: u32,
        others: &[u32],
        at_switch: bool,
        is_source: bool,
        link_table: &mut LinkTable,
    ) -> Result<()> {
        if at_switch {
            let all: Vec<u32> = [rank].iter().chain(others).copied().collect();
            let ports = link_table.star(&all).expect("it was there when the step was looked at");
            let (own, others) = (ports[0], &ports[1..]);
            if is_source {
                self.legs.extend(others.iter().map(|port| (0, vec![port.up], 0)));
                self.legs.push((1, vec![own.down], 0));
                self.reads += 1;
            } else {
                self.legs.push((2, vec![own.up], 0));
                self.legs.extend(others.iter().map(|port| (3, vec![port.down], 0)));
                self.writes += 1;
            }
            return Ok(());
        }
        for &other in others.iter().filter(|&&other| other != rank) {
            let (from, to) = if is_source { (other, rank) } else { (rank, other) };
            let links = link_table.route(from, to)?.to_vec();
            self.legs.push((if is_source { 0 } else { 2 }, links, 0));
            *(if is_source { &mut self.reads } else { &mut self.writes }) += 1;
        }
        Ok(())
    }
}

/// Says which halves of a step the switch does: folding its sources, spreading to its destinations.
fn halves_at_switch(
    step: &Step,
    schedule: &Schedule,
    link_table: &LinkTable,
    at_switch: AtSwitch,
) -> Result<(bool, bool)> {
    let (folds, spreads) = (step.src.len() > 1, step.dst.len() > 1);
    if !step.at_switch || !(folds || spreads) {
        return Ok((false, false));
    }
    let able = link_table.fabric.abilities;
    let ranks: Vec<u32> = [step.rank].into_iter().chain(step.views().map(|view| view.rank)).collect();
    let is_able =
        (!folds || able.switch_reduction) && (!spreads || able.multicast) && link_table.star(&ranks).is_some();
    match (is_able, at_switch) {
        (true, _) => Ok((folds, spreads)),
        (false, AtSwitch::Ignore) => Ok((false, false)),
        (false, AtSwitch::Refuse) => Err(unable(step, schedule, link_table)),
    }
}

/// Says whether a copy leaves its destination as it is: the same memory under the schedule's aliasing.
fn stays(step: &Step, dst: &View, schedule: &Schedule) -> bool {
    let [source] = step.src.as_slice() else { return false };
    let src = &source.view;
    let is_like = src.rank == dst.rank && src.chunks == dst.chunks;
    let is_in_both = |chunk| schedule.input_holds(dst.rank, chunk) && schedule.output_holds(dst.rank, chunk);
    let is_shared = || schedule.aliasing == Aliasing::InPlace && dst.chunks.clone().all(is_in_both);
    is_like && (src.buffer == dst.buffer || src.buffer.is_user() && dst.buffer.is_user() && is_shared())
}

/// The refusal of a step at a switch, with the algorithm that does the same without.
fn unable(step: &Step, schedule: &Schedule, link_table: &LinkTable) -> Error {
    let has = |name: &&str| algorithm::of(schedule.collective).any(|known| known.name == *name);
    let nearest = ["two_shot", "direct", "ring"].into_iter().find(has).unwrap_or("another algorithm");
    let Step { rank, queue, index, .. } = step;
    Error::Unable {
        fabric: link_table.fabric.name.clone(),
        message: format!(
            "step r{rank}.q{queue}.{index} of {} runs in a switch with NVLS, and none joins its ranks: take {nearest}, or \
             pass at_switch='ignore' to run it point to point",
            schedule.title()
        ),
    }
}

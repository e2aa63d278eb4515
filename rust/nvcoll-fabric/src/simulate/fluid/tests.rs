//! Rates held equal, bit for bit, to a progressive filling of all links from nothing after every change; and runs that
//! keep what they know of islands to runs that keep nothing.

use nvcoll_core::collective::{Roles, ALL_REDUCE};
use nvcoll_core::dtype::DType;
use nvcoll_core::partition::Partition;
use nvcoll_core::schedule::{Aliasing, Buffer, Schedule, Source, Step, View};
use proptest::prelude::*;

use super::{Fluid, NONE};
use crate::preset::preset;
use crate::simulate::agenda::Agenda;
use crate::simulate::run::{Execution, RunOutcome};
use crate::simulate::sharing::{Limit, SharingModel};
use crate::simulate::{protocol, Detail, Ratio, Settings, Simulation};
use crate::units::Ps;

/// Max-min fair sharing that is looked at whenever it has settled.
struct Checked<'a>(Fluid<'a>);

/// A plain progressive filling: what every path with transfers gets, and what held it back.
fn filled(fluid: &Fluid) -> Vec<(u32, f64, Limit)> {
    let paths = &fluid.paths.all;
    let mut waiting: Vec<u32> = (1..paths.len() as u32).filter(|&p| fluid.bundles[p as usize].members > 0).collect();
    let mut left: Vec<f64> = fluid.paths.capacities.iter().map(|&capacity| capacity as f64).collect();
    let mut filled = Vec::new();
    while !waiting.is_empty() {
        let mut weights = vec![0.0; left.len()];
        add_weights(fluid, &waiting, &mut weights);
        let offers = |&link: &usize| (weights[link] > 0.0).then(|| left[link] / weights[link]);
        let level = (0..left.len()).filter_map(|link| offers(&link)).fold(f64::INFINITY, f64::min);
        let held = waiting.iter().map(|&path| paths[path as usize].most).fold(f64::INFINITY, f64::min);
        let limit = |path: u32| {
            let mut links = fluid.paths.shared(path).iter().map(|crossing| crossing.link);
            let link = links.find(|&link| offers(&(link as usize)) == Some(level))?;
            Some(Limit { link, users: fluid.links[link as usize].transfers })
        };
        let served: Vec<(u32, f64, Limit)> = if held <= level {
            let least = waiting.iter().filter(|&&path| paths[path as usize].most == held);
            least.map(|&path| (path, held, Limit { link: paths[path as usize].narrowest, users: 1 })).collect()
        } else {
            waiting.iter().filter_map(|&path| Some((path, level, limit(path)?))).collect()
        };
        let now: Vec<u32> = served.iter().map(|one| one.0).collect();
        waiting.retain(|path| !now.contains(path));
        let mut taken = vec![0.0; left.len()];
        add_weights(fluid, &now, &mut taken);
        for (left, taken) in left.iter_mut().zip(taken) {
            *left = (*left - held.min(level) * taken).max(0.0);
        }
        filled.extend(served);
    }
    filled
}

/// Adds what transfers of some paths weigh on each link.
fn add_weights(fluid: &Fluid, paths: &[u32], weights: &mut [f64]) {
    for &path in paths {
        for crossing in fluid.paths.shared(path) {
            let members = fluid.bundles[path as usize].members;
            weights[crossing.link as usize] += f64::from(crossing.weight) * f64::from(members);
        }
    }
}

impl SharingModel for Checked<'_> {
    const WAITS_FOR_LATENCY: bool = true;
    const KNOWS_ENDS: bool = true;

    fn alone(&mut self, path: u32, nbytes: u64) -> Ps {
        self.0.alone(path, nbytes)
    }

    fn pass(&mut self, path: u32, takes: Ps) -> Limit {
        self.0.pass(path, takes)
    }

    fn begin(&mut self, queue: u32, path: u32, nbytes: u64, now: Ps, agenda: &mut Agenda) -> Option<Ps> {
        self.0.begin(queue, path, nbytes, now, agenda)
    }

    fn happens(&mut self, happening: u64, now: Ps, agenda: &mut Agenda) -> Option<Ps> {
        self.0.happens(happening, now, agenda)
    }

    fn end(&mut self, queue: u32, now: Ps) -> Limit {
        self.0.end(queue, now)
    }

    fn settle(&mut self, now: Ps, ended: &mut Vec<u32>, agenda: &mut Agenda) {
        self.0.settle(now, ended, agenda);
        if !ended.is_empty() {
            return;
        }
        for (path, rate, limit) in filled(&self.0) {
            let bundle = &self.0.bundles[path as usize];
            assert_eq!(bundle.rate.to_bits(), rate.to_bits(), "path {path}: {} instead of {rate}", bundle.rate);
            // Of two links that offer the same to a transfer alone, the narrowest is named before any filling.
            assert!(bundle.limit == limit || limit.users == 1, "path {path}: {:?} instead of {limit:?}", bundle.limit);
            let mut queue = bundle.member;
            while queue != NONE {
                let flow = &self.0.flows[queue as usize];
                assert_eq!(flow.rate.to_bits(), rate.to_bits(), "queue {queue}: {} instead of {rate}", flow.rate);
                queue = flow.after;
            }
        }
    }

    fn busy(&mut self) -> Vec<Ps> {
        self.0.busy()
    }

    fn used(&self, now: Ps) -> Vec<Ps> {
        self.0.used(now)
    }

    fn state(&self, now: Ps, visit: &mut impl FnMut(u64) -> bool) -> bool {
        self.0.state(now, visit)
    }

    fn postpone(&mut self, by: Ps, more: &[Ps]) {
        self.0.postpone(by, more);
    }
}

/// Copies by (rank, queue, distance to the other rank, chunk) among 8 ranks with 4 queues, of one chunk each.
fn copies(drawn: &[(u32, u32, u32, u32)], chunks: u32) -> Schedule {
    let mut schedule = nvcoll_core::algorithm::build(&ALL_REDUCE, "ring", Roles::of(8), Aliasing::Disjoint).unwrap();
    schedule.leave = vec![Vec::new(); 8];
    (schedule.chunks_per_part, schedule.steps) = (chunks, Vec::new());
    for (rank, queue) in (0..8).flat_map(|rank| (0..4).map(move |queue| (rank, queue))) {
        let own = drawn.iter().filter(|one| (one.0, one.1) == (rank, queue)).map(|one| (one.2, one.3));
        for (index, (distance, chunk)) in (0..).zip(std::iter::once((1, queue)).chain(own)) {
            let view = |rank, buffer| View { rank, buffer, chunks: chunk..chunk + 1 };
            schedule.steps.push(Step {
                rank,
                queue,
                index,
                src: vec![Source { view: view((rank + distance) % 8, Buffer::Input), contribution: None }],
                dst: vec![view(rank, Buffer::Output)],
                is_final: false,
                at_switch: false,
                after: Vec::new(),
            });
        }
    }
    schedule
}

/// Copies on a preset, of rank 3 so many times slower; if it `folds`, some take a second source from their neighbour.
fn simulation(drawn: &Drawn, folds: bool, protocol: &str, slow: u32) -> Simulation {
    let names = ["hgx-a100", "dgx1-v100", "dgx2[0-7]", "rtx4090-8-staged", "hgx-h100", "mi300x-8"];
    let fabric = preset(names[drawn.preset]).unwrap();
    let mut schedule = copies(&drawn.copies, 20);
    for step in schedule.steps.iter_mut().filter(|step| folds && step.index % 3 == 1) {
        let mut second = step.src[0].clone();
        second.view.rank = (step.rank + 1) % 8;
        step.src.push(second);
    }
    let mut settings = Settings::new(protocol::named(protocol).unwrap(), 40_000);
    settings.detail = Detail::Path;
    settings.slowdowns = (0..8).map(|rank| Ratio::new(if rank == 3 { slow } else { 1 }, 1)).collect();
    let partition = Partition::new(drawn.lengths.clone(), 1);
    let simulation = Simulation::new(&schedule, &partition, DType::U8, &fabric, &settings).unwrap();
    Simulation { repeats: false, ..simulation }
}

fn run(simulation: &Simulation, least_kept: usize) -> RunOutcome {
    let mut fluid = Fluid::new(&simulation.paths, simulation.flat.queues(), true);
    (fluid.memo, fluid.least_kept) = (None, least_kept);
    Execution::run(simulation, fluid, &mut || false).ok().unwrap()
}

#[derive(Debug)]
struct Drawn {
    copies: Vec<(u32, u32, u32, u32)>,
    lengths: Vec<usize>,
    preset: usize,
}

prop_compose! {
    fn drawn()(
        copies in prop::collection::vec((0u32..8, 0u32..4, 0u32..8, 0u32..20), 1..300),
        lengths in prop::collection::vec(1usize..100_000, 20), preset in 0usize..6, alike in any::<bool>(),
    ) -> Drawn {
        Drawn { copies, lengths: if alike { vec![50_000; 20] } else { lengths }, preset }
    }
}

proptest! {
    #[test]
    fn rates_are_those_of_a_filling_from_nothing(
        drawn in drawn(), folds in any::<bool>(), ideal in any::<bool>(), slow in 1u32..3, least_kept in 0usize..10,
    ) {
        let simulation = simulation(&drawn, folds, if ideal { "ideal" } else { "simple" }, slow);
        let mut fluid = Fluid::new(&simulation.paths, simulation.flat.queues(), true);
        (fluid.memo, fluid.least_kept) = (None, least_kept);
        prop_assert!(Execution::run(&simulation, Checked(fluid), &mut || false).is_ok());
    }

    #[test]
    fn what_is_kept_changes_no_bit(drawn in drawn(), folds in any::<bool>(), slow in 1u32..3) {
        let simulation = simulation(&drawn, folds, "simple", slow);
        let plain = run(&simulation, usize::MAX);
        for least_kept in [0, 2, 8] {
            let kept = run(&simulation, least_kept);
            prop_assert_eq!((&kept.ends, &kept.busy, &kept.moved), (&plain.ends, &plain.busy, &plain.moved));
            let (kept, plain) = (kept.record.unwrap(), plain.record.as_ref().unwrap());
            prop_assert_eq!((&kept.ready, &kept.done, &kept.limit), (&plain.ready, &plain.done, &plain.limit));
        }
    }
}

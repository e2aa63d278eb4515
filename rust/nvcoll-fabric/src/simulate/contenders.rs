//! Who may meet whom on a link: what lets a queue go ahead of the clock.
//!
//! ```text
//! queue ─paths─▶ links ─▶ queues that use them too        none:     it goes ahead as far as it can
//!                                                         up to 7:  until one of them may begin to move (`run/ahead.rs`)
//!                                                         more:     the clock says when it is its turn
//! ```
//!
//! This is the lookahead of conservative simulation (Chandy and Misra, "Distributed simulation", 1979): what cannot be
//! disturbed need not wait. Where it holds there is no event at all, and a queue goes through its steps in the order in
//! which they lie in memory: a ring of 1,024 takes 0.04 s where one event to begin and one to end take 0.27 s, most of
//! that in waiting for memory (measured). Limitation: with eight others or more on its links a queue never goes ahead.

use super::flat::Flat;
use super::paths::{Crossing, TransferPaths};
use crate::units::Ps;

/// No queue.
pub(super) const NOBODY: u32 = u32::MAX;

/// Of more others nobody is looked at. Chosen: eight queues of a GPU that use its links are few enough.
const MOST: usize = 7;

/// What is known of queues before a run.
#[derive(Default)]
pub(super) struct Contenders {
    /// For each queue, where its contenders are; none if they are too many.
    places: Vec<Option<(u32, u32)>>,
    contenders: Vec<u32>,
    /// For each queue, how long its steps take at least.
    pub(super) least: Vec<Ps>,
}

/// The queues that use a link: so many, of which the first are known.
#[derive(Clone, Default)]
struct Users {
    known: [u32; MOST + 1],
    len: usize,
}

impl Users {
    fn add(&mut self, queue: u32) {
        if !self.known().contains(&queue) {
            if let Some(place) = self.known.get_mut(self.len) {
                *place = queue;
            }
            self.len += 1;
        }
    }

    fn known(&self) -> &[u32] {
        &self.known[..self.len.min(MOST + 1)]
    }
}

impl Contenders {
    /// Looks at the paths of all queues; `meets` says where transfers of a path can meet others, and whether they may
    /// meet themselves.
    pub(super) fn new<'a>(
        flat: &Flat,
        paths: &'a TransferPaths,
        meets: impl Fn(u32) -> (&'a [Crossing], bool),
    ) -> Self {
        let mut users = vec![Users::default(); paths.capacities.len()];
        for queue in 0..flat.queues() as u32 {
            for path in flat.paths(queue) {
                for crossing in meets(path).0 {
                    users[crossing.link as usize].add(queue);
                }
            }
        }
        let least = |queue| flat.paths(queue).map(|path| paths.all[path as usize].fixed).min().unwrap_or(0);
        let least = (0..flat.queues() as u32).map(least).collect();
        let mut all = Self { places: Vec::with_capacity(flat.queues()), contenders: Vec::new(), least };
        for queue in 0..flat.queues() as u32 {
            let first = all.contenders.len();
            let are_few = flat.paths(queue).all(|path| {
                let (crossings, meets_itself) = meets(path);
                !meets_itself && crossings.iter().all(|crossing| all.add(first, queue, &users[crossing.link as usize]))
            });
            if !are_few {
                all.contenders.truncate(first);
            }
            all.places.push(are_few.then_some((first as u32, all.contenders.len() as u32)));
        }
        all
    }

    /// Adds the users of a link to a queue's contenders, which begin at `first`; says whether they are still few.
    fn add(&mut self, first: usize, queue: u32, users: &Users) -> bool {
        for &user in users.known() {
            if user != queue && !self.contenders[first..].contains(&user) {
                self.contenders.push(user);
            }
        }
        users.len <= MOST + 1 && self.contenders.len() - first <= MOST
    }

    /// Returns who else uses a queue's links; none if they are too many.
    #[inline]
    pub(super) fn of(&self, queue: u32) -> Option<&[u32]> {
        let (first, end) = self.places[queue as usize]?;
        Some(&self.contenders[first as usize..end as usize])
    }
}

#[cfg(test)]
mod tests {
    use nvcoll_core::algorithm::{build, ALGORITHMS};
    use nvcoll_core::collective::{Roles, ALL_REDUCE};
    use nvcoll_core::counts::Counts;
    use nvcoll_core::dtype::DType;
    use nvcoll_core::lower::lower;
    use nvcoll_core::partition::Partition;
    use nvcoll_core::schedule::{Aliasing, Buffer, Dependency, Event, Path, Schedule, Source, Step, View};
    use proptest::prelude::*;

    use crate::preset::preset;
    use crate::simulate::{protocol, AtSwitch, Detail, LinkSharing, Settings, Simulation};

    proptest! {
        #[test]
        fn to_go_ahead_of_the_clock_changes_no_bit(
            algorithm in any::<prop::sample::Index>(), n in 1u32..9, path in prop::sample::select(Path::ALL),
            name in prop::sample::select(vec!["hgx-h100", "dgx1-v100", "rtx4090-8-staged"]), fifo in any::<bool>(),
            costs in prop::sample::select(vec!["ideal", "ll", "simple"]), count in 0usize..100_000, tiles in 1u64..20,
            starts_ps in prop::collection::vec(0u64..20_000_000, 8),
        ) {
            let algorithm = ALGORITHMS[algorithm.index(ALGORITHMS.len())];
            let Some((roles, aliasing)) = algorithm.collective.forms(n).last() else { return Ok(()) };
            let mapped = build(algorithm.collective, algorithm.name, roles, aliasing).unwrap();
            let schedule = lower(&mapped, path).unwrap();
            let sharing = if fifo { LinkSharing::Fifo } else { LinkSharing::MaxMin };
            let starts_ps = starts_ps[..n as usize].to_vec();
            let slice = count as u64 / tiles + 1;
            let settings = Settings { sharing, starts_ps, detail: Detail::Spans, at_switch: AtSwitch::Ignore,
                ..Settings::new(protocol::named(costs).unwrap(), slice) };
            let counts = Counts::Even(count).of_parts(schedule.collective, schedule.roles());
            let partition = Partition::new(counts, schedule.chunks_per_part);
            let fabric = preset(name).unwrap();
            let mut simulation = Simulation::new(&schedule, &partition, DType::F32, &fabric, &settings).unwrap();
            let ahead = simulation.run().unwrap();
            simulation.contenders.places.fill(None);
            prop_assert_eq!(ahead, simulation.run().unwrap());
        }
    }

    /// Copies by four queues each of four ranks: rank, queue, distance to the other rank, chunk, and which steps before it
    /// waits for, that many back. Each queue has one to begin with.
    fn copies(drawn: &[(u32, u32, u32, u32, Vec<usize>)]) -> Schedule {
        let mut schedule = build(&ALL_REDUCE, "ring", Roles::of(4), Aliasing::Disjoint).unwrap();
        (schedule.leave, schedule.chunks_per_part, schedule.steps) = (vec![Vec::new(); 4], 8, Vec::new());
        let first = (0..16).map(|nth| (nth / 4, nth % 4, 1, nth % 8, Vec::new()));
        let mut lengths = [[0; 4]; 4];
        for (rank, queue, distance, chunk, back) in first.chain(drawn.iter().cloned()) {
            let view = |rank, buffer| View { rank, buffer, chunks: chunk..chunk + 1 };
            let earlier = back.iter().filter_map(|&back| schedule.steps.iter().rev().nth(back));
            let event = |step: &Step| Event::Step { queue: step.queue, index: step.index };
            let after = earlier.map(|step| Dependency { rank: step.rank, event: event(step), lag: 0 }).collect();
            let index = &mut lengths[rank as usize][queue as usize];
            schedule.steps.push(Step {
                rank,
                queue,
                index: *index,
                src: vec![Source { view: view((rank + distance) % 4, Buffer::Input), contribution: None }],
                dst: vec![view(rank, Buffer::Output)],
                is_final: false,
                at_switch: false,
                after,
            });
            *index += 1;
        }
        schedule
    }

    proptest! {
        #[test]
        fn queues_that_wait_for_each_other_are_as_by_the_clock(
            drawn in prop::collection::vec(
                (0u32..4, 0u32..4, 1u32..4, 0u32..8, prop::collection::vec(0usize..6, 0..3)), 1..200),
            near in any::<bool>(), lengths in prop::collection::vec(0usize..100_000, 8), fifo in any::<bool>(),
            name in prop::sample::select(vec!["hgx-h100", "dgx1-v100"]), slice in 20_000u64..100_000,
        ) {
            let drawn: Vec<_> = drawn
                .into_iter()
                .map(|(rank, queue, distance, chunk, back)| match near {
                    // Pairs that nobody else meets, one step after the other.
                    true => (rank / 2 * 2, queue, 1, chunk, vec![0, 1]),
                    false => (rank, queue, distance, chunk, back),
                })
                .collect();
            let sharing = if fifo { LinkSharing::Fifo } else { LinkSharing::MaxMin };
            let settings =
                Settings { sharing, detail: Detail::Spans, ..Settings::new(protocol::named("simple").unwrap(), slice) };
            let partition = Partition::new(lengths, 1);
            let fabric = preset(name).unwrap();
            let mut simulation = Simulation::new(&copies(&drawn), &partition, DType::U8, &fabric, &settings).unwrap();
            simulation.repeats = false;
            let ahead = simulation.run().unwrap();
            simulation.contenders.places.fill(None);
            prop_assert_eq!(ahead, simulation.run().unwrap());
        }
    }

    #[test]
    fn a_ring_has_one_other_on_its_links_and_a_copy_to_fifteen_more_than_are_looked_at() {
        let of = |name: &str, n: u32, machine: &str| {
            let all_reduce = ALGORITHMS.iter().find(|a| a.collective.name == "all_reduce" && a.name == name).unwrap();
            let (roles, aliasing) = all_reduce.collective.forms(n).next().unwrap();
            let schedule = build(all_reduce.collective, name, roles, aliasing).unwrap();
            let partition = Partition::new(vec![n as usize], schedule.chunks_per_part);
            let settings = Settings::new(protocol::named("simple").unwrap(), 1 << 20);
            let fabric = preset(machine).unwrap();
            Simulation::new(&schedule, &partition, DType::F32, &fabric, &settings).unwrap().contenders
        };
        // Two queues per rank, one for each time round; the leaves move nothing.
        let ring = of("ring", 8, "hgx-h100");
        assert!([(0, 1), (1, 0), (2, 3), (3, 2)]
            .iter()
            .all(|&(queue, contender)| ring.of(queue) == Some(&[contender])));
        assert!((16..24).all(|leave| ring.of(leave) == Some(&[])));
        let (eight, sixteen) = (of("one_shot", 8, "hgx-h100"), of("one_shot", 16, "dgx2"));
        assert!((0..8).all(|queue| eight.of(queue).is_some_and(|contenders| contenders.len() == 7)));
        assert!((0..16).all(|queue| sixteen.of(queue).is_none()));
    }
}

//! Who may meet whom on a link: what lets a queue go ahead of the clock.
//!
//! ```text
//! queue ─paths─▶ links ─▶ queues that use them too        none: it goes ahead as far as it can
//!                                                         one:  until that one may begin to move
//!                                                         more: the clock says when it is its turn
//! ```
//!
//! This is the lookahead of conservative simulation (Chandy and Misra, "Distributed simulation", 1979): what cannot be
//! disturbed need not wait. Where it holds there is no event at all, and a queue goes through its steps in the order in
//! which they lie in memory: a ring of 1,024 takes 0.04 s where one event to begin and one to end take 0.27 s, most of
//! that in waiting for memory (measured). How far off another is: a queue waits for a step, so many steps of that
//! queue are missing, and each takes its fixed time. Limitation: with two others or more on its links a queue never
//! goes ahead.

use super::flat::Flat;
use super::moves::{Crossing, Moves};
use crate::units::Ps;

/// Nobody, or more than one; else the number of a queue.
pub(super) const NOBODY: u32 = u32::MAX;
pub(super) const MANY: u32 = u32::MAX - 1;

/// What is known of queues before a run.
pub(super) struct Rivals {
    /// For each queue, who else uses its links.
    pub(super) rivals: Vec<u32>,
    /// For each queue, how long its steps take at least.
    pub(super) least: Vec<Ps>,
}

impl Rivals {
    /// Looks at the paths of all queues; `meets` says where transfers of a path can meet others, and whether they may
    /// meet themselves.
    pub(super) fn of<'a>(flat: &Flat, moves: &'a Moves, meets: impl Fn(u32) -> (&'a [Crossing], bool)) -> Self {
        let mut users = vec![[NOBODY; 2]; moves.capacities.len()];
        for queue in 0..flat.queues() as u32 {
            for path in flat.paths(queue) {
                for crossing in meets(path).0 {
                    let users = &mut users[crossing.link as usize];
                    match users.iter().position(|&user| user == queue || user == NOBODY) {
                        Some(place) => users[place] = queue,
                        None => users[1] = MANY,
                    }
                }
            }
        }
        let rival = |queue: u32| {
            let mut rival = NOBODY;
            for path in flat.paths(queue) {
                let (crossings, meets_itself) = meets(path);
                let others = crossings.iter().flat_map(|crossing| users[crossing.link as usize]);
                for other in others.filter(|&user| user != queue && user != NOBODY) {
                    rival = if rival == NOBODY || rival == other { other } else { MANY };
                }
                rival = if meets_itself { MANY } else { rival };
            }
            rival
        };
        let least = |queue| flat.paths(queue).map(|path| moves.paths[path as usize].fixed).min().unwrap_or(0);
        let queues = 0..flat.queues() as u32;
        Self { rivals: queues.clone().map(rival).collect(), least: queues.map(least).collect() }
    }
}

#[cfg(test)]
mod tests {
    use nvcoll_core::algorithm::{build, ALGORITHMS};
    use nvcoll_core::counts::Counts;
    use nvcoll_core::dtype::DType;
    use nvcoll_core::lower::lower;
    use nvcoll_core::partition::Partition;
    use nvcoll_core::schedule::Path;
    use proptest::prelude::*;

    use super::{MANY, NOBODY};
    use crate::preset::preset;
    use crate::simulate::{protocol, AtSwitch, Detail, Settings, Sharing, Simulation};

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
            let sharing = if fifo { Sharing::Fifo } else { Sharing::MaxMin };
            let starts_ps = starts_ps[..n as usize].to_vec();
            let slice = count as u64 / tiles + 1;
            let settings = Settings { sharing, starts_ps, detail: Detail::Spans, at_switch: AtSwitch::Ignore,
                ..Settings::new(protocol::named(costs).unwrap(), slice) };
            let counts = Counts::Even(count).of_parts(schedule.collective, schedule.roles());
            let partition = Partition::new(counts, schedule.chunks_per_part);
            let fabric = preset(name).unwrap();
            let mut simulation = Simulation::new(&schedule, &partition, DType::F32, &fabric, &settings).unwrap();
            let ahead = simulation.run().unwrap();
            simulation.rivals.rivals.fill(MANY);
            prop_assert_eq!(ahead, simulation.run().unwrap());
        }
    }

    #[test]
    fn a_ring_has_one_other_on_its_links_and_a_copy_to_everybody_more() {
        let of = |name: &str| {
            let all_reduce = ALGORITHMS.iter().find(|a| a.collective.name == "all_reduce" && a.name == name).unwrap();
            let (roles, aliasing) = all_reduce.collective.forms(8).next().unwrap();
            let schedule = build(all_reduce.collective, name, roles, aliasing).unwrap();
            let partition = Partition::new(vec![8], schedule.chunks_per_part);
            let settings = Settings::new(protocol::named("simple").unwrap(), 1 << 20);
            let fabric = preset("hgx-h100").unwrap();
            Simulation::new(&schedule, &partition, DType::F32, &fabric, &settings).unwrap().rivals.rivals
        };
        // Two queues per rank, one for each time round; the leaves move nothing.
        assert_eq!(of("ring")[..4], [1, 0, 3, 2]);
        assert_eq!(of("ring")[16..], [NOBODY; 8]);
        assert!(of("one_shot")[..8].iter().all(|&rival| rival == MANY));
    }
}

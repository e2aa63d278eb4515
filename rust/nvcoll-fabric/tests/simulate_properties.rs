//! What holds of virtual time for every schedule on every machine.

mod common;

use std::collections::BTreeMap;

use common::{partition, star};
use nvcoll_core::algorithm::ALGORITHMS;
use nvcoll_core::cost;
use nvcoll_core::dtype::DType;
use nvcoll_core::lower::lower;
use nvcoll_core::partition::Partition;
use nvcoll_core::schedule::{Buffer, Event, Path, Schedule, Source, Step, View};
use nvcoll_fabric::machines::preset;
use nvcoll_fabric::simulate::{protocol, simulate, AtSwitch, Settings, Timeline};
use nvcoll_fabric::units::PS_PER_US;
use nvcoll_fabric::Fabric;
use proptest::prelude::*;

/// Machines of eight GPUs or more, of every kind: switch, mesh, staged, with and without abilities.
const MACHINES: &[&str] = &["hgx-h100", "hgx-a100", "dgx1-v100", "rtx4090-8-staged", "mi300x-8"];

fn settings(name: &str, slice_bytes: u64) -> Settings {
    let at_switch = AtSwitch::Ignore;
    Settings { at_switch, spans: true, ..Settings::new(protocol::named(name).unwrap(), slice_bytes) }
}

fn run(schedule: &Schedule, count: usize, fabric: &Fabric, settings: &Settings) -> Timeline {
    simulate(schedule, &partition(schedule, count), DType::F32, fabric, settings).unwrap()
}

prop_compose! {
    /// A schedule of the registry, of up to eight ranks.
    fn any_schedule()(
        algorithm in any::<prop::sample::Index>(), n in 1u32..9, path in prop::sample::select(&Path::ALL[..]), form in any::<prop::sample::Index>()
    ) -> Schedule {
        let algorithm = ALGORITHMS[algorithm.index(ALGORITHMS.len())];
        let forms: Vec<_> = algorithm.collective.forms(n).collect();
        let (roles, aliasing) = forms[form.index(forms.len())];
        let mapped = nvcoll_core::algorithm::build(algorithm.collective, algorithm.name, roles, aliasing).unwrap();
        lower(&mapped, path).unwrap()
    }
}

fn any_machine() -> impl Strategy<Value = Fabric> {
    prop::sample::select(MACHINES).prop_map(|name| preset(name).unwrap())
}

/// By rank, queue and step: when it was ready and done in each tile.
type ByStep = BTreeMap<(u32, u32, u32), Vec<(u64, u64)>>;

fn by_step(timeline: &Timeline) -> ByStep {
    let mut steps = ByStep::new();
    for span in &timeline.spans {
        let of_step = steps.entry((span.rank, span.queue, span.step)).or_default();
        assert_eq!(of_step.len(), span.tile as usize);
        of_step.push((span.start_ps, span.end_ps));
    }
    steps
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn steps_happen_in_an_order_that_queues_and_waits_allow(
        schedule in any_schedule(), fabric in any_machine(), count in 0usize..100_000, slice in 256u64..100_000,
        starts in prop::collection::vec(0u64..20 * PS_PER_US, 8),
    ) {
        let starts_ps = starts[..schedule.world_size as usize].to_vec();
        let settings = Settings { starts_ps: starts_ps.clone(), ..settings("simple", slice.max(count as u64 / 8)) };
        let timeline = run(&schedule, count, &fabric, &settings);
        let steps = by_step(&timeline);
        prop_assert_eq!(timeline.spans.len(), schedule.steps.len() * timeline.tiles as usize);
        for step in &schedule.steps {
            let mine = &steps[&(step.rank, step.queue, step.index)];
            for (tile, &(ready, done)) in mine.iter().enumerate() {
                prop_assert!(starts_ps[step.rank as usize] <= ready && ready <= done);
                prop_assert!(done <= timeline.ends_ps[step.rank as usize]);
                if let Some(before) = step.index.checked_sub(1) {
                    prop_assert!(steps[&(step.rank, step.queue, before)][tile].1 <= ready);
                } else if tile > 0 {
                    let last = steps.range((step.rank, step.queue, 0)..(step.rank, step.queue + 1, 0)).last().unwrap();
                    prop_assert!(last.1[tile - 1].1 <= ready);
                }
                for wait in &step.after {
                    let signal = if wait.rank == step.rank { 0 } else { fabric.route(wait.rank, step.rank).unwrap().latency(&fabric) };
                    let happened = match wait.event {
                        Event::Enter => starts_ps[wait.rank as usize],
                        Event::Step { queue, index } => match tile.checked_sub(wait.lag as usize) {
                            Some(back) => steps[&(wait.rank, queue, index)][back].1,
                            None => continue,
                        },
                    };
                    prop_assert!(happened + signal <= ready, "{}", schedule.title());
                }
            }
        }
    }

    #[test]
    fn links_and_memories_move_what_the_schedule_moves(
        schedule in any_schedule(), fabric in any_machine(), count in 0usize..100_000, slice in 256u64..100_000,
    ) {
        let timeline = run(&schedule, count, &fabric, &settings("ideal", slice.max(count as u64 / 8)));
        let partition = partition(&schedule, count);
        // What the steps of a rank read and write here and elsewhere is what `core::cost` counts.
        let counted: u64 = cost::moved_bytes(&schedule, &partition, DType::F32).iter().sum();
        let mut expected = vec![0u64; fabric.links.len()];
        let mut elsewhere = 0;
        let able = fabric.abilities;
        for step in &schedule.steps {
            let nbytes: u64 = step.dst[0].chunks.clone().map(|c| partition.chunk_count(c) as u64 * 4).sum();
            if step.at_switch && able.switch_reduction && able.multicast {
                return Ok(());
            }
            let into = step.src.iter().map(|source| (source.view.rank, step.rank));
            for (from, to) in into.chain(step.dst.iter().map(|dst| (step.rank, dst.rank))).filter(|(from, to)| from != to) {
                elsewhere += nbytes;
                for link in fabric.route(from, to).unwrap().links {
                    expected[link] += nbytes;
                }
            }
        }
        let found: Vec<_> = timeline.links.iter().map(|link| link.nbytes).collect();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(timeline.memory_bytes.iter().sum::<u64>() + elsewhere, counted);
        for (link, used) in fabric.links.iter().zip(&timeline.links) {
            prop_assert!(used.busy_ps <= timeline.total_ps() && link.rate().time(used.nbytes) <= used.busy_ps + 1000);
        }
    }

    #[test]
    fn the_critical_path_has_no_gap_from_zero_to_the_end(
        schedule in any_schedule(), fabric in any_machine(), count in 0usize..100_000, slice in 256u64..100_000,
    ) {
        let timeline = run(&schedule, count, &fabric, &settings("simple", slice.max(count as u64 / 8)));
        let mut now = 0;
        for piece in &timeline.critical.pieces {
            prop_assert_eq!(piece.start_ps, now);
            now = piece.end_ps;
        }
        prop_assert_eq!(now, timeline.total_ps());
        prop_assert!(!timeline.critical.words(&fabric).is_empty());
    }

    #[test]
    fn the_same_run_twice_and_with_other_names_is_the_same(
        schedule in any_schedule(), fabric in any_machine(), count in 0usize..100_000, seed in any::<u64>(),
    ) {
        let settings = settings("simple", 1 << 16);
        let timeline = run(&schedule, count, &fabric, &settings);
        prop_assert_eq!(&timeline, &run(&schedule, count, &fabric, &settings));
        // Links described the other way round among those that lead elsewhere: only their positions change.
        let mut other = fabric.clone();
        let mut order: Vec<usize> = (0..fabric.links.len()).collect();
        order.sort_by_key(|&link| ((link as u64 + 1).wrapping_mul(seed | 1), link));
        let is_parallel = fabric.links.iter().enumerate().any(|(at, link)| {
            fabric.links[..at].iter().any(|known| (known.from, known.to) == (link.from, link.to))
        });
        prop_assume!(!is_parallel && fabric.nodes() == 1);
        for device in &mut other.devices {
            device.name = format!("{seed}.{}", device.name);
        }
        let renamed = run(&schedule, count, &other, &settings);
        prop_assert_eq!(&renamed.ends_ps, &timeline.ends_ps);
        prop_assert_eq!(&renamed.spans, &timeline.spans);
        if fabric.of_kind(nvcoll_fabric::hardware::DeviceKind::Nvswitch).count() == 1 {
            other.links = order.iter().map(|&link| fabric.links[link]).collect();
            let shuffled = run(&schedule, count, &other, &settings);
            prop_assert_eq!(&shuffled.ends_ps, &timeline.ends_ps);
            prop_assert_eq!(&shuffled.spans, &timeline.spans);
            for (at, &link) in order.iter().enumerate() {
                prop_assert_eq!(shuffled.links[at], timeline.links[link]);
            }
        }
    }

    #[test]
    fn more_bytes_never_take_less_time(
        schedule in any_schedule(), fabric in any_machine(), count in 0usize..100_000, more in 1usize..100_000,
    ) {
        let settings = settings("simple", 1 << 40);
        let [few, many] = [count, count + more].map(|count| run(&schedule, count, &fabric, &settings).total_ps());
        // One part in a thousand: who meets whom on a shared link changes with lengths that are uneven.
        prop_assert!(few <= many + many / 1000, "{few} {many} {}", schedule.title());
    }

    #[test]
    fn rates_are_those_of_a_naive_progressive_filling(
        transfers in prop::collection::vec((0u32..8, 0u32..8, 1usize..1_000_000), 1..40), fabric in any_machine(), start in 0u64..PS_PER_US,
    ) {
        let transfers: Vec<_> = transfers.into_iter().filter(|(from, to, _)| from != to).collect();
        prop_assume!(!transfers.is_empty());
        let (schedule, partition) = at_once(&transfers);
        let mut settings = settings("ideal", u64::MAX);
        settings.starts_ps = (0..8).map(|rank| rank * start).collect();
        let timeline = simulate(&schedule, &partition, DType::U8, &fabric, &settings).unwrap();
        let expected = naive(&transfers, &fabric, &settings.starts_ps);
        let steps = by_step(&timeline);
        for ((step, &(from, to, _)), expected) in schedule.steps.iter().zip(&transfers).zip(expected) {
            let (_, done) = steps[&(step.rank, step.queue, 0)][0];
            prop_assert!((done as f64 - expected).abs() <= 50.0, "{from} -> {to}: {done} instead of {expected}");
        }
    }
}

/// Copies that begin when their rank does, each in a queue of its own.
fn at_once(transfers: &[(u32, u32, usize)]) -> (Schedule, Partition) {
    let mut schedule = common::schedule(&nvcoll_core::collective::ALL_REDUCE, "ring", 8, Path::Mapped);
    let mut queues = [0; 8];
    let step = |(chunk, &(from, to, _)): (usize, &(u32, u32, usize))| {
        let chunks = chunk as u32..chunk as u32 + 1;
        let queue = queues[to as usize];
        queues[to as usize] += 1;
        let view = |rank, buffer| View { rank, buffer, chunks: chunks.clone() };
        Step {
            rank: to,
            queue,
            index: 0,
            src: vec![Source { view: view(from, Buffer::Input), contribution: None }],
            dst: vec![view(to, Buffer::Output)],
            is_final: false,
            at_switch: false,
            after: Vec::new(),
        }
    };
    schedule.steps = transfers.iter().enumerate().map(step).collect();
    schedule.leave = vec![Vec::new(); 8];
    schedule.chunks_per_part = transfers.len() as u32;
    (schedule, Partition::new(transfers.iter().map(|transfer| transfer.2).collect(), 1))
}

/// When each transfer ends, by recomputing all rates from nothing whenever one begins or ends. Links by number; the
/// memory of the receiver comes after them.
fn naive(transfers: &[(u32, u32, usize)], fabric: &Fabric, starts: &[u64]) -> Vec<f64> {
    let routes: Vec<Vec<usize>> = transfers
        .iter()
        .map(|&(from, to, _)| {
            let mut links = fabric.route(from, to).unwrap().links;
            links.push(fabric.links.len() + to as usize);
            links
        })
        .collect();
    let mut capacities: Vec<f64> = fabric.links.iter().map(|link| link.rate().0 as f64).collect();
    capacities.extend([fabric.gpu.memory_gbps * 1e9; 8]);
    let begins: Vec<f64> = transfers
        .iter()
        .map(|&(from, to, _)| (starts[to as usize] + fabric.route(from, to).unwrap().latency(fabric)) as f64)
        .collect();
    let mut left: Vec<f64> = transfers.iter().map(|transfer| transfer.2 as f64).collect();
    let mut ends = vec![f64::INFINITY; transfers.len()];
    let mut now = 0.0;
    while ends.contains(&f64::INFINITY) {
        let active: Vec<usize> =
            (0..transfers.len()).filter(|&t| begins[t] <= now && ends[t] == f64::INFINITY).collect();
        let rates = filled(&active, &routes, &capacities);
        let next_end = active.iter().map(|&t| now + left[t] * 1e12 / rates[&t]).fold(f64::INFINITY, f64::min);
        let next = begins.iter().copied().filter(|&begin| begin > now).fold(next_end, f64::min);
        for &t in &active {
            left[t] -= rates[&t] * (next - now) / 1e12;
            if left[t] < 1e-3 {
                ends[t] = next;
            }
        }
        now = next;
    }
    ends
}

/// One link at a time: the one with the least share gives it to all of its transfers and is done.
fn filled(active: &[usize], routes: &[Vec<usize>], capacities: &[f64]) -> BTreeMap<usize, f64> {
    let mut rates = BTreeMap::new();
    while rates.len() < active.len() {
        let waiting = |link: usize| {
            active.iter().filter(|t| !rates.contains_key(*t) && routes[**t].contains(&link)).count() as f64
        };
        let taken = |link: usize| -> f64 {
            active.iter().filter(|t| routes[**t].contains(&link)).filter_map(|t| rates.get(t)).sum()
        };
        let share = |link: usize| (capacities[link] - taken(link)) / waiting(link);
        let (level, link) = (0..capacities.len())
            .filter(|&link| waiting(link) > 0.0)
            .map(|link| (share(link), link))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .unwrap();
        let those: Vec<usize> =
            active.iter().copied().filter(|t| !rates.contains_key(t) && routes[*t].contains(&link)).collect();
        rates.extend(those.into_iter().map(|t| (t, level)));
    }
    rates
}

#[test]
fn all_links_twice_as_fast_never_take_longer() {
    for algorithm in ALGORITHMS {
        for schedule in algorithm.schedules(8).map(Result::unwrap) {
            let [slow, fast] = [10.0, 20.0]
                .map(|gbps| run(&schedule, 100_000, &star(&[gbps; 8]), &settings("simple", 1 << 14)).total_ps());
            assert!(fast <= slow, "{}: {slow} {fast}", schedule.title());
        }
    }
}

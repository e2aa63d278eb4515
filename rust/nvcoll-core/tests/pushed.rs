//! Pushing, the way NCCL runs: every schedule is proved at any depth, only stores cross, and what lacks a credit is refuted.

use std::collections::BTreeMap;

use nvcoll_core::algorithm::{self, ALGORITHMS};
use nvcoll_core::collective::{Roles, ALL_REDUCE, BROADCAST};
use nvcoll_core::lower::{lower, push, Fifo};
use nvcoll_core::partition::Partition;
use nvcoll_core::schedule::{Aliasing, Event, Path, Schedule, Step, View, MAX_SLOTS};
use nvcoll_core::text;
use nvcoll_core::verify::{refute, verify, Violation};

fn mapped(world_size: u32) -> impl Iterator<Item = Schedule> {
    let schedules = ALGORITHMS.iter().flat_map(move |algorithm| algorithm.schedules(world_size)).map(Result::unwrap);
    schedules.filter(|schedule| schedule.path == Path::Mapped)
}

fn pushed(schedule: &Schedule, channels: u32, slots: u32) -> Schedule {
    push(schedule, Fifo { channels, slots }).unwrap_or_else(|error| panic!("{}: {error}", schedule.title()))
}

fn ring(world_size: u32) -> Schedule {
    algorithm::build(&ALL_REDUCE, "ring", Roles::of(world_size), Aliasing::InPlace).unwrap()
}

fn violation(schedule: Schedule) -> Violation {
    *verify(schedule).unwrap_err().violation
}

#[test]
fn every_algorithm_is_proved_at_every_depth() {
    for schedule in (1..=9).flat_map(mapped) {
        for depth in [1, 2, 8] {
            verify(pushed(&schedule, 1, depth)).unwrap_or_else(|refutation| panic!("depth {depth}: {refutation}"));
        }
    }
}

#[test]
fn every_algorithm_is_proved_on_several_channels() {
    for schedule in [2, 3, 8].into_iter().flat_map(mapped) {
        verify(pushed(&schedule, 4, 8)).unwrap_or_else(|refutation| panic!("{refutation}"));
    }
}

#[test]
fn no_step_reads_the_memory_of_another_rank_or_writes_more_than_its_staging() {
    for schedule in (1..=9).flat_map(mapped) {
        for step in &pushed(&schedule, 2, 3).steps {
            assert!(step.src.iter().all(|source| source.view.rank == step.rank), "{}: {step}", schedule.title());
            let is_sent = |view: &View| view.rank != step.rank;
            assert!(step.dst.iter().all(|view| !is_sent(view) || view.buffer.is_staging()), "{step}");
        }
    }
}

/// How many chunks go from rank to rank.
type Crossings = BTreeMap<(u32, u32), usize>;

/// A fold fetches and stores; a copy moves from the rank that has the value to every rank that gets it.
fn crossings(schedule: &Schedule) -> Crossings {
    let mut crossings = Crossings::new();
    for step in &schedule.steps {
        let executor = if step.is_fold() { step.rank } else { step.src[0].view.rank };
        let mut receivers: Vec<u32> = step.dst.iter().map(|view| view.rank).collect();
        receivers.sort_unstable();
        receivers.dedup();
        let fetched = step.src.iter().map(|source| (source.view.rank, executor));
        for (from, to) in fetched.chain(receivers.into_iter().map(|to| (executor, to))).filter(|(from, to)| from != to)
        {
            *crossings.entry((from, to)).or_default() += step.dst[0].chunks.len();
        }
    }
    crossings
}

#[test]
fn what_crosses_between_two_ranks_is_what_the_algorithm_moves_between_them() {
    for schedule in (1..=9).flat_map(mapped) {
        assert_eq!(crossings(&pushed(&schedule, 1, 2)), crossings(&schedule), "{}", schedule.title());
    }
}

#[test]
fn a_ring_sends_once_and_then_receives_reduces_copies_and_sends_in_one_step() {
    let n = 5;
    let schedule = pushed(&ring(n), 1, 8);
    assert_eq!(schedule.steps.len() as u32, n + 2 * n * (n - 1), "a send, n - 1 folds and n - 1 copies for each chunk");
    let sends = |step: &&Step| step.dst.iter().any(|view| view.rank != step.rank);
    let keeps = |step: &&Step| step.dst.iter().any(|view| view.rank == step.rank);
    let folds = || schedule.steps.iter().filter(|step| step.is_fold());
    assert!(folds().all(|fold| sends(&fold)), "a partial sum goes on to the next rank");
    assert!(folds().all(|fold| keeps(&fold) == fold.is_final), "only the sum is kept as well");
    let copies = schedule.steps.iter().filter(|step| !step.is_fold() && step.src[0].view.buffer.is_staging());
    assert_eq!(copies.filter(sends).count() as u32, n * (n - 2), "all but the last rank pass the sum on");
}

#[test]
fn a_writer_waits_for_the_reader_as_many_tiles_back_as_the_fifo_is_deep() {
    for depth in [1, 2, 8] {
        let schedule = pushed(&ring(4), 1, depth);
        for step in schedule.steps.iter().filter(|step| step.dst.iter().any(|view| view.rank != step.rank)) {
            let reader = step.dst.iter().map(|view| view.rank).find(|&rank| rank != step.rank);
            let credit = step.after.iter().find(|wait| wait.lag > 0).expect("a credit");
            assert_eq!((Some(credit.rank), credit.lag), (reader, depth), "{step}");
        }
    }
}

#[test]
fn channels_have_queues_of_their_own_and_change_no_bits() {
    let (one, four) = (pushed(&ring(8), 1, 8), pushed(&ring(8), 4, 8));
    assert_eq!((four.chunks(), four.steps.len()), (4 * one.chunks(), 4 * one.steps.len()));
    let queues = |schedule: &Schedule| schedule.queues().iter().map(Vec::len).max();
    assert_eq!(queues(&four), queues(&one).map(|queues| 4 * queues));
    let (narrow, wide) = (verify(one.clone()).unwrap(), verify(four.clone()).unwrap());
    for count in [0, 1, 100, 1009, 100_003] {
        let of = |schedule: &Schedule| Partition::new(vec![count], schedule.chunks_per_part);
        for chunk in 0..one.chunks() {
            let whole = of(&one).range_in_part(chunk);
            let slices = (4 * chunk..4 * chunk + 4).map(|slice| of(&four).range_in_part(slice));
            let slices: Vec<_> = slices.collect();
            assert_eq!((slices[0].start, slices[3].end), (whole.start, whole.end), "{count} elements, chunk {chunk}");
        }
    }
    assert!((0..four.chunks()).all(|chunk| wide.expression(chunk) == narrow.expression(chunk / 4)));
}

/// A chain from rank 0: nothing but credits holds back whoever sends.
fn chain(world_size: u32) -> Schedule {
    algorithm::build(&BROADCAST, "chain", Roles::of(world_size), Aliasing::Disjoint).unwrap()
}

#[test]
fn a_fifo_that_is_shallower_than_its_credits_say_is_refuted() {
    for world_size in [2, 3, 5] {
        for schedule in [ring(world_size), chain(world_size)] {
            let schedule = pushed(&schedule, 1, 8);
            for slots in [1, 4, 7] {
                let found = refute(&schedule, slots).map(|refutation| *refutation.violation);
                let is_overrun = matches!(found, Some(Violation::Race { lag, .. }) if lag == slots);
                assert!(is_overrun, "{} in {slots} slots: {found:?}", schedule.title());
            }
            assert!(refute(&schedule, 16).is_none(), "{}", schedule.title());
        }
    }
}

#[test]
fn a_credit_that_is_missing_is_refuted() {
    for depth in [1, 2, 8] {
        let right = pushed(&chain(4), 1, depth);
        let credits = right.steps.iter().enumerate().filter(|(_, step)| step.after.iter().any(|wait| wait.lag > 0));
        assert_eq!(credits.clone().count(), 3, "one for every hop");
        for (at, _) in credits {
            let mut broken = right.clone();
            broken.steps[at].after.retain(|wait| wait.lag == 0);
            let found = violation(broken);
            assert!(matches!(found, Violation::Race { lag, .. } if lag == depth), "{found}");
        }
    }
}

#[test]
fn a_reader_that_does_not_wait_for_what_is_pushed_is_refuted() {
    let right = pushed(&ring(3), 1, 8);
    for (at, step) in right.steps.iter().enumerate() {
        let is_arrival = |wait: &&nvcoll_core::schedule::Dependency| {
            wait.lag == 0 && wait.rank != step.rank && wait.event != Event::Enter
        };
        let mut broken = right.clone();
        broken.steps[at].after.retain(|wait| !is_arrival(&wait));
        if broken != right {
            let found = violation(broken);
            assert!(matches!(found, Violation::Race { lag: 0, .. } | Violation::Unwritten { .. }), "{found}");
        }
    }
}

#[test]
fn a_step_that_fetches_is_not_of_the_pushed_path() {
    let mut fetching = lower(&ring(3), Path::Staged).unwrap();
    fetching.path = Path::Pushed;
    let message = violation(fetching).to_string();
    assert!(message.contains("which the pushed path does not reach"), "{message}");
}

#[test]
fn slots_are_where_staging_is_and_not_too_many() {
    for (path, slots) in [(Path::Mapped, 2), (Path::Staged, 0), (Path::Pushed, 0), (Path::Pushed, MAX_SLOTS + 1)] {
        let broken = Schedule { slots, ..lower(&ring(2), path).unwrap() };
        assert_eq!(violation(broken), Violation::Slots { path, found: slots });
    }
    verify(pushed(&ring(2), 1, MAX_SLOTS)).unwrap_or_else(|refutation| panic!("{refutation}"));
}

#[test]
fn the_text_says_how_many_slots_there_are_where_they_are_not_two() {
    let (two, eight) = (lower(&ring(3), Path::Pushed).unwrap(), pushed(&ring(3), 1, 8));
    assert_eq!(two, pushed(&ring(3), 1, 2));
    assert_eq!(eight.title(), "all_reduce ring of 3, pushed (8 slots), in place");
    assert!(text::print(&eight).contains("  path pushed  slots 8  aliasing in_place\n"));
    assert!(text::print(&two).contains("  path pushed  aliasing in_place\n"));
    for schedule in [two, eight] {
        assert_eq!(text::parse(&text::print(&schedule)).unwrap(), schedule);
    }
}

#[test]
fn a_root_sends_its_value_in_one_step_to_all_who_read_it() {
    let direct = algorithm::build(&BROADCAST, "direct", Roles { world_size: 4, root: 1 }, Aliasing::Disjoint).unwrap();
    let schedule = pushed(&direct, 1, 8);
    let sends: Vec<&Step> = schedule.steps.iter().filter(|step| step.dst[0].buffer.is_staging()).collect();
    assert_eq!((sends.len(), sends[0].rank, sends[0].dst.len()), (1, 1, 3));
}

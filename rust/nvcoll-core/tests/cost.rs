//! The cost of a schedule is counted from its steps, and agrees with the formulas of the field.

use nvcoll_core::algorithm::{build, ALGORITHMS};
use nvcoll_core::collective::{Collective, Roles, ALL_GATHER, ALL_REDUCE, BARRIER, REDUCE_SCATTER};
use nvcoll_core::cost::{moved_bytes, why, Cost, RankCost};
use nvcoll_core::dtype::DType;
use nvcoll_core::lower::lower;
use nvcoll_core::partition::Partition;
use nvcoll_core::schedule::{Aliasing, Path, Schedule};
use nvcoll_core::text;

const SIZES: [u32; 5] = [2, 3, 4, 8, 17];

fn schedule(collective: &'static Collective, name: &str, n: u32, aliasing: Aliasing, path: Path) -> Schedule {
    lower(&build(collective, name, Roles::of(n), aliasing).unwrap(), path).unwrap()
}

fn all_reduce(name: &str, n: u32, path: Path) -> Cost {
    Cost::of(&schedule(&ALL_REDUCE, name, n, Aliasing::InPlace, path))
}

fn assert_is(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-12, "found {found}, expected {expected}");
}

#[test]
fn nvswitch_mapped_moves_the_least_possible_and_waits_twice() {
    for n in SIZES {
        let cost = all_reduce("nvswitch", n, Path::Mapped);
        assert_eq!(
            cost.ranks[0],
            RankCost { read_chunks: n.into(), written_chunks: n.into(), steps: 1, staging_chunks: 0 }
        );
        assert_eq!((cost.moved(), cost.moved_by_busiest(), cost.least), (2.0, 2.0, 2.0));
        assert_eq!((cost.waits, cost.steps()), (2, n.into()));
    }
}

#[test]
fn ring_mapped_moves_5_n_minus_1_of_n_and_waits_for_every_hop() {
    for n in SIZES {
        let cost = all_reduce("ring", n, Path::Mapped);
        assert_is(cost.moved(), 5.0 * f64::from(n - 1) / f64::from(n));
        assert_eq!(cost.moved_by_busiest(), cost.moved());
        assert_eq!(cost.waits, 2 * (n - 1) + 1);
        assert_eq!(cost.ranks[0].steps, 2 * u64::from(n - 1));
    }
}

#[test]
fn nvswitch_staged_moves_between_4_and_5_n() {
    for n in SIZES {
        let cost = all_reduce("nvswitch", n, Path::Staged);
        assert_is(cost.moved(), f64::from(5 * n - 2) / f64::from(n));
        assert_eq!(cost.waits, 3, "enter to publish, publish to fold, fold to fetch");
    }
}

#[test]
fn halves_of_an_all_reduce_cost_what_their_contracts_force() {
    for n in SIZES {
        for (collective, aliasing) in [(&REDUCE_SCATTER, Aliasing::Disjoint), (&ALL_GATHER, Aliasing::Disjoint)] {
            let cost = Cost::of(&schedule(collective, "nvswitch", n, aliasing, Path::Mapped));
            assert_is(cost.moved(), 1.0 + 1.0 / f64::from(n));
            assert_eq!(cost.moved(), cost.least);
        }
        let in_place = Cost::of(&schedule(&ALL_GATHER, "nvswitch", n, Aliasing::InPlace, Path::Mapped));
        assert_is(in_place.moved(), 1.0);
        assert_eq!(in_place.moved(), in_place.least, "the own part is there already");
    }
}

#[test]
fn a_copy_onto_itself_moves_nothing() {
    let alone = |aliasing| Cost::of(&schedule(&ALL_REDUCE, "nvswitch", 1, aliasing, Path::Mapped));
    assert_eq!((alone(Aliasing::Disjoint).moved(), alone(Aliasing::Disjoint).least), (2.0, 2.0));
    assert_eq!((alone(Aliasing::InPlace).moved(), alone(Aliasing::InPlace).least), (0.0, 0.0));
    assert_eq!(alone(Aliasing::InPlace).waits, 0);
}

#[test]
fn a_fold_onto_one_of_its_sources_is_read_and_written() {
    let cost = by_hand(
        "r0.q0.0 output[r0].0 = output[r0].0 + input[r1].0\nr1.q0.0 output[r1].1, scratch0[r1].1 = input[r1].1",
    );
    assert_eq!((cost.ranks[0].read_chunks, cost.ranks[0].written_chunks), (2, 1));
    assert_eq!((cost.ranks[1].read_chunks, cost.ranks[1].written_chunks), (1, 1), "the output has the value already");
}

#[test]
fn no_algorithm_moves_less_than_the_least() {
    for algorithm in ALGORITHMS {
        for schedule in [1, 2, 4, 8].into_iter().flat_map(|n| algorithm.schedules(n)).map(Result::unwrap) {
            let cost = Cost::of(&schedule);
            assert!(cost.moved() >= cost.least - 1e-12, "{}: {cost:?}", schedule.title());
        }
    }
}

#[test]
fn a_barrier_moves_nothing_and_waits_once() {
    let cost = Cost::of(&schedule(&BARRIER, "direct", 8, Aliasing::Disjoint, Path::Mapped));
    assert_eq!((cost.moved(), cost.steps(), cost.waits), (0.0, 0, 1));
    assert_eq!(cost.to_string(), "direct 0.0 N");
}

#[test]
fn bytes_follow_the_elements_of_uneven_chunks() {
    let ring = schedule(&ALL_REDUCE, "ring", 3, Aliasing::InPlace, Path::Mapped);
    let partition = Partition::new(vec![100], 3);
    let elements: u64 = moved_bytes(&ring, &partition, DType::BF16).iter().sum::<u64>() / 2;
    assert_eq!(elements, 100 * 5 * 2, "each element is folded twice and copied twice, over all ranks");
    assert_eq!(moved_bytes(&ring, &Partition::new(vec![0], 3), DType::F64), [0, 0, 0]);

    let even = Partition::new(vec![3 * 32], 3);
    let cost = Cost::of(&ring);
    let expected: Vec<u64> = cost.ranks.iter().map(|rank| rank.moved_chunks() * 32 * 4).collect();
    assert_eq!(moved_bytes(&ring, &even, DType::F32), expected);
}

#[test]
fn staging_is_what_the_steps_touch_in_every_slot() {
    for n in SIZES {
        let cost = all_reduce("nvswitch", n, Path::Staged);
        assert_eq!(cost.ranks[0].staging_chunks, u64::from(n), "every chunk but its own, and the result of its own");
        assert_eq!(cost.staging_bytes(0, 1024, DType::F32), n as usize * 2 * 1024 * 4);
        assert_eq!(all_reduce("nvswitch", n, Path::Mapped).staging_bytes(0, 1024, DType::F32), 0);
    }
}

#[test]
fn waits_are_the_longest_chain_of_handoffs_whatever_the_order_of_the_lines() {
    let chain = "
        r1.q0.1 output[r1].1 = output[r0].1  after r0.q0.0
        r0.q0.0 output[r0].0 = output[r1].0  after r1.q0.0
        r1.q0.0 output[r1].0 = input[r1].0
        leave r0 after r1.q0.1";
    assert_eq!(by_hand(chain).waits, 3);
    assert_eq!(by_hand(&chain.replace("after r1.q0.0", "after r1.q0.0@1")).waits, 2, "a lag is about another tile");
    assert_eq!(by_hand(&chain.replace("input[r1].0", "input[r1].0 after r0.enter")).waits, 4, "an enter is a handoff");
}

#[test]
fn a_cycle_of_waits_is_counted_without_end() {
    let cost =
        by_hand("r0.q0.0 output[r0].0 = input[r0].0 after r1.q0.0\nr1.q0.0 output[r1].0 = input[r1].0 after r0.q0.0");
    assert_eq!((cost.waits, cost.steps()), (0, 2));
}

#[test]
fn one_line_says_why() {
    let costs = ["ring", "nvswitch"].map(|name| all_reduce(name, 8, Path::Mapped));
    assert_eq!(why(&costs), "a rank moves  ring 4.4 N, nvswitch 2.0 N (the least possible);  waits 15, 2");
    let uneven =
        by_hand("r0.q0.0 output[r0].0..2 = input[r1].0..2 + input[r0].0..2\nr1.q0.0 output[r1].0..2 = output[r0].0..2");
    assert_eq!(uneven.to_string(), "by_hand 2.5 N (busiest rank 3.0 N)");
    let unfinished = by_hand("r0.q0.0 output[r1].0 = input[r0].0");
    assert_eq!(unfinished.to_string(), "by_hand 0.5 N (busiest rank 1.0 N)", "less than the least is no praise");
}

fn by_hand(lines: &str) -> Cost {
    let header = "schedule all_reduce by_hand world_size 2 chunks_per_part 2 path mapped aliasing in_place\n";
    Cost::of(&text::parse(&format!("{header}{lines}")).unwrap())
}

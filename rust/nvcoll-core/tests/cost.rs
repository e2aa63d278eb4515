//! The cost of a schedule is counted from its steps, and agrees with the formulas of the field.

use nvcoll_core::algorithm::{build, Algorithm, ALGORITHMS};
use nvcoll_core::collective::{
    Collective, Roles, ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BARRIER, BROADCAST, EXSCAN, GATHER, REDUCE, REDUCE_SCATTER,
    SCAN, SCATTER,
};
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
            RankCost {
                read_chunks: n.into(),
                written_chunks: n.into(),
                steps: 1,
                folds: 1,
                first_chunks: 2 * u64::from(n),
                spread_chunks: 0,
                fetched_chunks: 0,
                staging_chunks: 0
            }
        );
        assert_eq!((cost.moved(), cost.moved_by_busiest(), cost.least), (2.0, 2.0, 2.0));
        assert_eq!((cost.waits, cost.steps()), (2, n.into()));
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

/// What a rank moves, in units of N, given the number of ranks and the aliasing.
type Formula = fn(f64, Aliasing) -> f64;

/// Of n ranks as numbers: p, the largest power of two that is not above it; log2 p; and e = n - p.
fn members(n: f64) -> (f64, f64, f64) {
    let p = n.log2().floor().exp2();
    (p, p.log2(), n - p)
}

/// One for an operand that only out of place is moved.
fn out_of_place(aliasing: Aliasing) -> f64 {
    f64::from(u8::from(aliasing == Aliasing::Disjoint))
}

/// Everything goes once to every rank that has not got it.
const ONCE: Formula = |n, aliasing| 2.0 * (n - 1.0 + out_of_place(aliasing)) / n;

/// All the ones in the numbers below n.
fn ones(n: f64) -> f64 {
    (0..n as u32).map(|number| f64::from(number.count_ones())).sum()
}

/// How often a doubling scan of n values folds: all but the first 1, 2, 4, .. of them in a round.
fn doublings(n: f64) -> f64 {
    (0..32).map(|round| f64::from(round).exp2()).filter(|&distance| distance < n).map(|distance| n - distance).sum()
}

/// The bytes of mapped algorithms, as their files say.
const FORMULAS: &[(&Collective, &str, Formula)] = &[
    (&ALL_REDUCE, "nvswitch", |_, _| 2.0),
    (&ALL_REDUCE, "one_shot", |n, aliasing| n + 3.0 - 2.0 * out_of_place(aliasing)),
    (&ALL_REDUCE, "two_shot", |n, _| (3.0 * n - 1.0) / n),
    (&ALL_REDUCE, "ring", |n, _| 5.0 * (n - 1.0) / n),
    (&ALL_REDUCE, "recursive_doubling", |n, aliasing| {
        let (p, rounds, e) = members(n);
        let again = if p == 2.0 { 2.0 * p * (1.0 - out_of_place(aliasing)) } else { 0.0 };
        (3.0 * p * rounds + 5.0 * e + again) / n
    }),
    (&ALL_REDUCE, "halving_doubling", |n, _| 5.0 * (n - 1.0) / n),
    (&ALL_REDUCE, "host_chain", |n, _| 2.0 + 3.0 * ((n / 2.0).ceil() - 1.0) / n),
    (&REDUCE_SCATTER, "nvswitch", |n, _| 1.0 + 1.0 / n),
    (&REDUCE_SCATTER, "direct", |n, _| 1.0 + 1.0 / n),
    (&REDUCE_SCATTER, "ring", |n, _| 3.0 * (n - 1.0) / n),
    (&REDUCE_SCATTER, "recursive_halving", |n, _| 3.0 * (n - 1.0) / n + 4.0 * members(n).2 / (n * n)),
    (&REDUCE_SCATTER, "pat", |n, _| (n - 1.0 + 2.0 * (n / 2.0).floor()) / n),
    (&ALL_GATHER, "nvswitch", |n, aliasing| (n + out_of_place(aliasing)) / n),
    (&ALL_GATHER, "direct", ONCE),
    (&ALL_GATHER, "ring", ONCE),
    (&ALL_GATHER, "recursive_doubling", ONCE),
    (&ALL_GATHER, "bruck", ONCE),
    (&ALL_GATHER, "neighbor_exchange", ONCE),
    (&ALL_GATHER, "pat", |n, aliasing| (n - 1.0 + out_of_place(aliasing) + (n / 2.0).floor()) / n),
    (&BROADCAST, "direct", ONCE),
    (&BROADCAST, "tree", |n, aliasing| (n + ((n - 1.0) / 2.0).floor() + out_of_place(aliasing)) / n),
    (&BROADCAST, "chain", |n, aliasing| (2.0 * (n - 1.0) + out_of_place(aliasing)) / n),
    (&BROADCAST, "scatter_all_gather", ONCE),
    (&REDUCE, "direct", |n, _| (n + 1.0) / n),
    (&REDUCE, "tree", |n, _| (n + 1.0 + 2.0 * ((n - 1.0) / 2.0).floor()) / n),
    (&REDUCE, "chain", |n, _| 3.0 * (n - 1.0) / n),
    (&GATHER, "direct", |n, aliasing| ONCE(n, aliasing) / n),
    (&GATHER, "tree", |n, aliasing| 2.0 * (ones(n) + out_of_place(aliasing)) / (n * n)),
    (&SCATTER, "direct", |n, aliasing| ONCE(n, aliasing) / n),
    (&SCATTER, "tree", |n, aliasing| 2.0 * (ones(n) + out_of_place(aliasing)) / (n * n)),
    (&ALL_TO_ALL, "direct", |_, _| 2.0),
    (&ALL_TO_ALL, "pairwise", |_, _| 2.0),
    (&ALL_TO_ALL, "bruck", |n, _| 2.0 * (1.0 + ones(n)) / n),
    (&SCAN, "direct", |n, aliasing| (n + 3.0) / 2.0 - 2.0 * (1.0 - out_of_place(aliasing)) / n),
    (&SCAN, "recursive_doubling", |n, aliasing| (3.0 * doublings(n) + 2.0 * out_of_place(aliasing)) / n),
    (&SCAN, "chain", |n, aliasing| (3.0 * (n - 1.0) + 2.0 * out_of_place(aliasing)) / n),
    (&EXSCAN, "recursive_doubling", |n, _| (3.0 * doublings(n - 1.0) + 2.0) / n),
    (&EXSCAN, "direct", |n, _| (n - 1.0) * (n + 2.0) / 2.0 / n),
];

#[test]
fn algorithms_move_what_their_files_say() {
    for &(collective, name, formula) in FORMULAS {
        for (n, &aliasing) in (2..=17).flat_map(|n| collective.aliasings().iter().map(move |a| (n, a))) {
            let cost = Cost::of(&build(collective, name, Roles::of(n), aliasing).unwrap());
            let (found, expected) = (cost.moved(), formula(n.into(), aliasing));
            let what = format!("{} {name} of {n}, {}", collective.name, aliasing.name());
            assert!((found - expected).abs() < 1e-12, "{what}: found {found}, expected {expected}");
        }
    }
}

/// Those without one: a tree's all_reduce depends on its shape, two_level's on the divisors; barrier moves nothing.
#[test]
fn every_other_algorithm_has_a_formula() {
    let is_listed = |a: &Algorithm| FORMULAS.iter().any(|f| f.0 == a.collective && f.1 == a.name);
    let others: Vec<&str> = ALGORITHMS.iter().filter(|a| !is_listed(a)).map(|a| a.name).collect();
    assert_eq!(
        others,
        ["tree", "two_level", "two_level(outer=halving_doubling)", "direct"],
        "give a new algorithm a row in FORMULAS"
    );
}

/// Nodes of m, k of them, by both algorithms across nodes.
#[test]
fn two_level_moves_and_steps_what_its_file_says() {
    for (m, k) in [(1, 4), (2, 2), (3, 4), (4, 3), (8, 1), (8, 16), (5, 6), (16, 8)] {
        for (outer, &aliasing) in
            ["ring", "halving_doubling"].into_iter().flat_map(|o| Aliasing::ALL.iter().map(move |a| (o, a)))
        {
            let name = format!("two_level(per_node={m},outer={outer})");
            let cost = Cost::of(&build(&ALL_REDUCE, &name, Roles::of(m * k), aliasing).unwrap());
            let [nodes, ranks] = [k, m].map(f64::from);
            // A node of one rank that has what it folds already moves nothing in place.
            let inside = if m == 1 { 2.0 * out_of_place(aliasing) } else { 2.0 + 1.0 / ranks };
            assert_is(cost.moved(), inside + 5.0 / ranks * (nodes - 1.0) / nodes);
            let across = if outer == "ring" { 2 * (k - 1) } else { 2 * k.ilog2() };
            if k.is_power_of_two() && m > 1 {
                assert!(cost.ranks.iter().all(|rank| rank.steps == u64::from(across + 2)), "{name}: {:?}", cost.ranks);
            }
        }
    }
}

#[test]
fn the_busiest_rank_of_halving_doubling_adds_for_two() {
    let busiest = |n| Cost::of(&build(&ALL_REDUCE, "halving_doubling", Roles::of(n), Aliasing::Disjoint).unwrap());
    assert_is(busiest(8).moved_by_busiest(), 5.0 * 7.0 / 8.0);
    assert_is(busiest(9).moved_by_busiest(), 5.0 * 7.0 / 8.0 + 3.0);
}

#[test]
fn no_rank_of_a_tree_below_a_root_moves_more_than_the_root() {
    for (n, root) in [(8, 0), (9, 4), (64, 63)] {
        let of = |collective| {
            Cost::of(&build(collective, "tree", Roles { world_size: n, root }, Aliasing::InPlace).unwrap())
        };
        assert_is(of(&BROADCAST).moved_by_busiest(), 2.0);
        assert_is(of(&REDUCE).moved_by_busiest(), 3.0);
    }
}

#[test]
fn a_step_of_neighbouring_chunks_is_one_message() {
    let steps = |collective, name, n| {
        Cost::of(&build(collective, name, Roles::of(n), Aliasing::InPlace).unwrap()).ranks[0].steps
    };
    assert_eq!(steps(&ALL_REDUCE, "halving_doubling", 1024), 20);
    assert_eq!(steps(&REDUCE_SCATTER, "recursive_halving", 1024), 10);
    assert_eq!(steps(&ALL_GATHER, "recursive_doubling", 1024), 10);
    assert_eq!(steps(&ALL_GATHER, "bruck", 1000), 10, "rank 0 never passes the last part");
    assert_eq!(steps(&ALL_GATHER, "neighbor_exchange", 1000), 500);
    assert_eq!(steps(&ALL_GATHER, "neighbor_exchange", 1001), 1000);
}

#[test]
fn a_rank_waits_once_for_every_round_and_once_to_leave() {
    for n in [16u32, 64, 256] {
        let log = n.ilog2();
        for (collective, name, rounds) in [
            (&ALL_REDUCE, "ring", 2 * (n - 1)),
            (&ALL_REDUCE, "two_shot", 2),
            (&ALL_REDUCE, "recursive_doubling", log),
            (&ALL_REDUCE, "halving_doubling", 2 * log),
            (&REDUCE_SCATTER, "direct", 1),
            (&REDUCE_SCATTER, "ring", n - 1),
            (&REDUCE_SCATTER, "recursive_halving", log),
            (&REDUCE_SCATTER, "pat", log),
            (&ALL_GATHER, "direct", 1),
            (&ALL_GATHER, "ring", n - 1),
            (&ALL_GATHER, "recursive_doubling", log),
            (&ALL_GATHER, "bruck", log),
            (&ALL_GATHER, "neighbor_exchange", n / 2),
            (&ALL_GATHER, "pat", log),
            (&BROADCAST, "tree", log),
            (&BROADCAST, "chain", n - 1),
            (&BROADCAST, "scatter_all_gather", n - 1),
            (&REDUCE, "tree", log),
            (&REDUCE, "chain", n - 1),
            (&GATHER, "tree", log),
            (&SCATTER, "tree", log),
            (&ALL_TO_ALL, "pairwise", 1),
            (&ALL_TO_ALL, "bruck", log),
            // In place, who overwrites its input in the first round waits until the rank after it has read it.
            (&SCAN, "recursive_doubling", log + 1),
            (&SCAN, "chain", n - 1),
            (&EXSCAN, "recursive_doubling", log),
        ] {
            let aliasing = *collective.aliasings().last().unwrap();
            let cost = Cost::of(&build(collective, name, Roles::of(n), aliasing).unwrap());
            assert_eq!(cost.waits, rounds + 1, "{} {name} of {n}", collective.name);
        }
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

//! Every row of the registry is proved, on every path, under both aliasings.

use nvcoll_core::algorithm::{self, Algorithm, Order, ALGORITHMS};
use nvcoll_core::collective::{Roles, ALL_REDUCE, ALL_TO_ALL};
use nvcoll_core::lower::{lower, stage_early};
use nvcoll_core::schedule::{Aliasing, Path};
use nvcoll_core::verify::verify;

#[test]
fn every_algorithm_is_proved_on_every_path_and_aliasing() {
    for algorithm in ALGORITHMS {
        // A large world with each of its roots would be a thousand schedules.
        let sizes = (1..=17).chain(if algorithm.collective.has_root { &[][..] } else { &[32, 64] }.iter().copied());
        for world_size in sizes {
            for schedule in algorithm.schedules(world_size).map(Result::unwrap) {
                let verified = verify(schedule).unwrap_or_else(|refutation| panic!("{refutation}"));
                assert!(verified.is_symmetric() || !algorithm.collective.synchronises);
                assert!(algorithm.order != Order::Rank || verified.is_rank_order());
            }
        }
    }
}

/// The engine may know that all peers have entered, and which value comes out, whichever form of a schedule it runs.
#[test]
fn the_form_with_early_steps_is_as_symmetric_as_its_schedule_and_gives_the_same_values() {
    let mut forms = 0;
    for schedule in ALGORITHMS.iter().flat_map(|a| (1..=6).flat_map(|n| a.schedules(n))).map(Result::unwrap) {
        let Some(early) = stage_early(&schedule) else { continue };
        let (title, chunks) = (schedule.title(), schedule.chunks());
        let [whole, early] = [schedule, early].map(|schedule| verify(schedule).unwrap());
        assert_eq!((early.is_symmetric(), early.order()), (whole.is_symmetric(), whole.order()), "{title}");
        assert!((0..chunks).all(|chunk| early.expression(chunk) == whole.expression(chunk)), "{title}");
        assert!(stage_early(early.schedule()).is_none(), "{title}");
        forms += 1;
    }
    assert!(forms > 200, "{forms}");
}

/// Proves every algorithm that `is_asked`, for a root in the middle.
fn prove_all(world_size: u32, path: Path, is_asked: impl Fn(&Algorithm, Aliasing) -> bool) {
    for algorithm in ALGORITHMS {
        let root = if algorithm.collective.has_root { world_size / 3 } else { 0 };
        for &aliasing in algorithm.collective.aliasings().iter().filter(|&&aliasing| is_asked(algorithm, aliasing)) {
            let roles = Roles { world_size, root };
            let mapped = algorithm::build(algorithm.collective, algorithm.name, roles, aliasing).unwrap();
            verify(lower(&mapped, path).unwrap()).unwrap_or_else(|refutation| panic!("{refutation}"));
        }
    }
}

/// In place, where that can be.
fn is_usual(algorithm: &Algorithm, aliasing: Aliasing) -> bool {
    algorithm.collective.aliasings().last() == Some(&aliasing)
}

/// Those in which every rank copies from every other: n^2 handoffs between n clocks, and 1024 ranks take a minute each.
fn meets_everybody_singly(algorithm: &Algorithm) -> bool {
    let names = [(&ALL_REDUCE, "two_shot"), (&ALL_TO_ALL, "direct"), (&ALL_TO_ALL, "pairwise")];
    names.contains(&(algorithm.collective, algorithm.name))
}

#[test]
#[ignore = "millions of steps take a debug build minutes: the night runs it"]
fn the_largest_world_is_proved_where_memory_is_mapped() {
    prove_all(1024, Path::Mapped, |a, aliasing| is_usual(a, aliasing) && !meets_everybody_singly(a));
    prove_all(256, Path::Mapped, |a, _| meets_everybody_singly(a));
}

/// Below, between and above powers of two, primes and products.
#[test]
#[ignore = "a million steps take a debug build minutes: the night runs it"]
fn worlds_of_up_to_a_hundred_ranks_are_proved_where_memory_is_mapped() {
    [24, 31, 33, 47, 63, 65, 96, 97, 100].into_iter().for_each(|n| prove_all(n, Path::Mapped, |_, _| true));
}

/// Not at 1024 ranks: the proof of a staged nvswitch takes more than a minute there.
#[test]
#[ignore = "a million steps in three tiles take a debug build minutes: the night runs it"]
fn a_large_world_is_proved_through_staging() {
    prove_all(128, Path::Staged, is_usual);
}

/// Primes above a node's ranks, and their products, have no divisor that is a node.
#[test]
fn two_level_keeps_its_order_in_a_world_of_any_size() {
    for n in (1..=17).chain([19, 22, 23, 31, 37, 61, 97, 121, 143]) {
        let names = ["two_level", "two_level(outer=halving_doubling)"];
        for (name, &aliasing) in names.into_iter().flat_map(|name| Aliasing::ALL.iter().map(move |a| (name, a))) {
            let mapped = algorithm::build(&ALL_REDUCE, name, Roles::of(n), aliasing).unwrap();
            let proved = verify(mapped).unwrap().order();
            assert_eq!(proved.weaker(Order::Nested), Order::Nested, "{name} of {n}: {proved:?} is proved");
        }
    }
}

#[test]
fn two_level_is_proved_with_nodes_of_any_size() {
    for (per_node, nodes) in (1..=6).flat_map(|m| (1..=6).map(move |k| (m, k))) {
        for outer in ["ring", "halving_doubling"] {
            let name = format!("two_level(per_node={per_node},outer={outer})");
            let mapped = algorithm::build(&ALL_REDUCE, &name, Roles::of(per_node * nodes), Aliasing::InPlace).unwrap();
            for path in Path::ALL {
                verify(lower(&mapped, path).unwrap()).unwrap_or_else(|refutation| panic!("{refutation}"));
            }
        }
    }
    let refused = algorithm::build(&ALL_REDUCE, "two_level(per_node=3)", Roles::of(4), Aliasing::InPlace);
    assert_eq!(refused.unwrap_err().to_string(), "groups of 3 do not divide 4 ranks: choose a divisor");
}

#[test]
fn host_chain_is_the_left_fold_over_ranks_with_hosts_of_any_size() {
    for (per_host, n) in (1..=6).flat_map(|m| (1..=13).map(move |n| (m, n))) {
        let name = format!("host_chain(per_host={per_host})");
        for (&aliasing, &path) in Aliasing::ALL.iter().flat_map(|a| Path::ALL.iter().map(move |p| (a, p))) {
            let mapped = algorithm::build(&ALL_REDUCE, &name, Roles::of(n), aliasing).unwrap();
            let verified = verify(lower(&mapped, path).unwrap()).unwrap_or_else(|refutation| panic!("{refutation}"));
            let ranks: Vec<String> = (0..n).map(|r| format!("r{r}")).collect();
            for chunk in 0..verified.schedule().chunks_per_part {
                let expression = verified.expression(chunk);
                let folds = expression.trim_start_matches('(');
                assert_eq!(folds.replace(')', ""), ranks.join(" + "), "{name}: {expression}");
            }
        }
    }
}

#[test]
fn every_proved_order_is_at_least_the_declared_one() {
    for algorithm in ALGORITHMS {
        for schedule in (1..=9).flat_map(|n| algorithm.schedules(n)).map(Result::unwrap) {
            let what = schedule.title();
            let proved = verify(schedule).unwrap().order();
            assert_eq!(proved == Order::None, algorithm.order == Order::None, "{what}");
            assert_eq!(proved.weaker(algorithm.order), algorithm.order, "{what}: {proved:?} is proved");
        }
    }
}

/// Which size tells differs: a power of two folds own orders in pairs, which is nested too.
#[test]
fn no_algorithm_declares_less_than_it_always_keeps() {
    for algorithm in ALGORITHMS {
        for path in Path::ALL {
            let proved = [15, 16].map(|n| {
                let mapped = algorithm::build(algorithm.collective, algorithm.name, Roles::of(n), Aliasing::Disjoint);
                verify(lower(&mapped.unwrap(), path).unwrap()).unwrap().order()
            });
            let weaker = proved[0].weaker(proved[1]);
            assert_eq!(weaker, algorithm.order, "{} {}", algorithm.collective.name, algorithm.name);
        }
    }
}

#[test]
fn a_proof_prints_the_order_of_every_fold() {
    let of = |name: &str, world_size| {
        let mapped = algorithm::build(&ALL_REDUCE, name, Roles::of(world_size), Aliasing::InPlace).unwrap();
        verify(mapped).unwrap_or_else(|refutation| panic!("{refutation}"))
    };
    assert_eq!(of("nvswitch", 3).expression(2), "(r0 + r1 + r2)");
    assert_eq!(of("ring", 3).expression(0), "((r0 + r1) + r2)");
    assert_eq!(of("ring", 3).expression(1), "((r1 + r2) + r0)");
    assert_eq!(of("two_level", 9).expression(0), "(((r0 + r1 + r2) + (r3 + r4 + r5)) + (r6 + r7 + r8))");
    let pairs = "(((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7)))";
    assert_eq!(of("two_level(per_node=2,outer=halving_doubling)", 8).expression(7), pairs);
    assert_eq!(of("host_chain", 5).expression(1), "(((r0 + r1) + r2 + r3) + r4)");
}

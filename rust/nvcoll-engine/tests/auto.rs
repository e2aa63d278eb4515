//! `auto` chooses algorithms that fold in the order of ranks, the same for every rank, and as a pinned table says.

use std::sync::Arc;

use nvcoll_core::collective::{Collective, Roles, ALL_REDUCE, BARRIER, COLLECTIVES};
use nvcoll_core::counts::Counts;
use nvcoll_core::schedule::{Aliasing, Path};
use nvcoll_engine::auto::tuning::{Tuning, SHIPPED};
use nvcoll_engine::auto::work_split::WorkSplit;
use nvcoll_engine::call::Call;
use nvcoll_engine::ranks::node::Node;
use nvcoll_engine::sync::single_flight::HoldsNoLock;

const WAYS: [(WorkSplit, Path); 3] =
    [(WorkSplit::ByTile, Path::Mapped), (WorkSplit::ByRank, Path::Staged), (WorkSplit::ByRank, Path::Mapped)];

fn call(collective: &'static Collective, path: Path, aliasing: Aliasing, count: usize) -> Call {
    Call { algorithm: "auto".into(), counts: Counts::Even(count), path, aliasing, ..Call::without_data(collective) }
}

fn node(world_size: u32) -> Node {
    Node::new(world_size, Some(2)).unwrap()
}

/// Returns the shipped table with other costs of a wait and of a byte, and nothing else.
fn table(wait: &str, byte: &str) -> Tuning {
    let lines = SHIPPED.lines().map(|line| match line.split_once(" = ") {
        Some(("wait_ns", _)) => format!("wait_ns = {wait}"),
        Some((name, _)) if name.ends_with("_ns") => format!("{name} = 0"),
        Some((name, _)) if name.ends_with("_per_byte") => format!("{name} = {byte}"),
        _ => line.to_string(),
    });
    Tuning::parse(&lines.collect::<Vec<_>>().join("\n")).unwrap()
}

/// Returns what `auto` is.
fn chosen(node: &Node, call: &Call, split: WorkSplit) -> &'static str {
    node.programs().choose(call, split, node.world_size(), &HoldsNoLock).unwrap().algorithm
}

#[test]
fn auto_folds_in_the_order_of_ranks_and_chooses_alike_every_time() {
    for world_size in 1..=17 {
        let nodes = [node(world_size), node(world_size)];
        for &collective in COLLECTIVES {
            for (split, path) in WAYS {
                for &aliasing in collective.aliasings() {
                    for count in [0, 1, 1000, 1 << 22] {
                        let call = call(collective, path, aliasing, count);
                        let [name, again] = nodes.each_ref().map(|node| chosen(node, &call, split));
                        assert_eq!(name, again, "{call}");
                        if count != 1000 {
                            continue;
                        }
                        let program =
                            nodes[0].programs().find_or_make(&call, split, world_size, None, &HoldsNoLock).unwrap();
                        assert_eq!(program.algorithm(), name, "{call}");
                        assert!(!collective.folds() || program.verified().is_rank_order(), "{call} by {name}");
                    }
                }
            }
        }
    }
}

#[test]
fn the_least_estimate_is_chosen_and_both_change_with_the_table() {
    let (split, path) = (WorkSplit::ByRank, Path::Staged);
    let mut node = node(8);
    let mut of = |wait, byte| {
        node.programs_mut().set_tuning(Arc::new(table(wait, byte)));
        let call = call(&ALL_REDUCE, path, Aliasing::InPlace, 1000);
        let all = node.programs().estimates(&call, split, 8, &HoldsNoLock).unwrap();
        let least = all.iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds)).unwrap();
        assert_eq!(chosen(&node, &call, split), least.algorithm);
        assert_eq!(node.program(&call, None).unwrap().algorithm(), least.algorithm, "a new table is used at once");
        least.algorithm
    };
    assert_eq!(of("1000000", "1"), "one_shot", "only waits count: it has one less");
    assert_eq!(of("0", "1000"), "nvswitch", "only bytes count: it moves least");
}

#[test]
fn a_call_without_data_and_a_table_that_does_not_fit_are_no_matter_of_estimates() {
    let node = node(3);
    let barrier = Call::without_data(&BARRIER);
    assert_eq!(chosen(&node, &barrier, WorkSplit::ByRank), "direct");
    let parts = ALL_REDUCE.parts(Roles::of(3)) as usize;
    let call = Call {
        counts: Counts::Table(vec![1; parts + 1].into()),
        ..call(&ALL_REDUCE, Path::Mapped, Aliasing::InPlace, 0)
    };
    let refused = node.programs().choose(&call, WorkSplit::ByTile, 3, &HoldsNoLock).unwrap_err().to_string();
    assert!(refused.contains("`counts` has"), "{refused}");
}

//! The waits of a schedule: enough, which proofs show, and none too many.

use nvcoll_core::algorithm::{self, ALGORITHMS};
use nvcoll_core::collective::{Roles, ALL_REDUCE};
use nvcoll_core::schedule::{Aliasing, Dependency, Event, Schedule};
use nvcoll_core::verify::verify;

fn is_wait_for_step(wait: &Dependency) -> bool {
    wait.lag == 0 && wait.event != Event::Enter
}

/// For each rank of a mapped schedule, its waits for steps and its waits for enters; its leave included.
fn waits_per_rank(schedule: &Schedule) -> Vec<(usize, usize)> {
    let mut counts = vec![(0, 0); schedule.world_size as usize];
    let of_steps = schedule.steps.iter().map(|step| (step.rank as usize, &step.after));
    for (rank, after) in of_steps.chain(schedule.leave.iter().enumerate()) {
        let steps = after.iter().filter(|wait| is_wait_for_step(wait)).count();
        counts[rank].0 += steps;
        counts[rank].1 += after.len() - steps;
    }
    counts
}

/// A rank waits once for every hop but the first, and once to leave; and for its left neighbour's enter, once in the queue
/// that folds and once in the queue that copies, and for its right neighbour's before it leaves.
fn assert_ring_waits_by_the_formula(world_size: u32) {
    for &aliasing in Aliasing::ALL {
        let ring = algorithm::build(&ALL_REDUCE, "ring", Roles::of(world_size), aliasing).unwrap();
        let expected = (2 * (world_size as usize - 1), 3);
        assert_eq!(waits_per_rank(&ring), vec![expected; world_size as usize], "{} ranks, {aliasing:?}", world_size);
    }
}

#[test]
fn a_ring_waits_once_for_every_hop_at_any_size() {
    (3..=64).chain([128, 256]).for_each(assert_ring_waits_by_the_formula);
}

#[test]
#[ignore = "two million steps take a debug build a minute: the gate runs it"]
fn a_ring_of_the_largest_world_waits_once_for_every_hop() {
    assert_ring_waits_by_the_formula(1024);
}

/// Every schedule with one wait for a step of the same tile less, with what it lacks.
fn without_one_wait(original: &Schedule) -> impl Iterator<Item = (String, Schedule)> + '_ {
    let of_steps = original.steps.iter().enumerate().flat_map(move |(at, step)| {
        let places = (0..step.after.len()).filter(|&nth| is_wait_for_step(&step.after[nth]));
        places.map(move |nth| {
            let mut schedule = original.clone();
            schedule.steps[at].after.remove(nth);
            (format!("{step} without {}", step.after[nth]), schedule)
        })
    });
    let of_leaves = original.leave.iter().enumerate().flat_map(move |(rank, leave)| {
        let places = (0..leave.len()).filter(|&nth| is_wait_for_step(&leave[nth]));
        places.map(move |nth| {
            let mut schedule = original.clone();
            schedule.leave[rank].remove(nth);
            (format!("leave r{rank} without {}", leave[nth]), schedule)
        })
    });
    of_steps.chain(of_leaves)
}

/// Enters, one for each queue, and waits for earlier tiles are not asked for: others may imply them.
#[test]
fn no_wait_for_a_step_of_the_same_tile_can_be_left_out() {
    for algorithm in ALGORITHMS {
        for whole in (1..=6).flat_map(|world_size| algorithm.schedules(world_size)).map(Result::unwrap) {
            for (what, schedule) in without_one_wait(&whole) {
                assert!(verify(schedule).is_err(), "{} is proved: {what}", whole.title());
            }
        }
    }
}

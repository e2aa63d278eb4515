//! The waits of a schedule: enough, which proofs show, and none too many.

use nvcoll_core::algorithm::ALGORITHMS;
use nvcoll_core::schedule::{Dependency, Event, Schedule};
use nvcoll_core::verify::verify;

fn is_wait_for_step(wait: &Dependency) -> bool {
    wait.lag == 0 && wait.event != Event::Enter
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

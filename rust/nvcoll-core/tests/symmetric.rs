//! Symmetric schedules, on which the stamp rule relies: the clocks of the proof and a plain walk over all steps must agree on them.

use std::collections::BTreeSet;

use nvcoll_core::algorithm::ALGORITHMS;
use nvcoll_core::schedule::{Dependency, Event, Schedule};
use nvcoll_core::verify::verify;

/// Says whether every leave comes after every enter, in one tile, which has the fewest waits.
fn is_symmetric(schedule: &Schedule) -> bool {
    let queues = schedule.queues();
    let place = |rank: u32, queue: u32, index: u32| queues[rank as usize][queue as usize][index as usize];
    let mut known: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); schedule.steps.len()];
    let of_waits = |rank: u32, after: &[Dependency], known: &[BTreeSet<u32>]| {
        let mut all = BTreeSet::from([rank]);
        for wait in after.iter().filter(|wait| wait.lag == 0) {
            match wait.event {
                Event::Enter => _ = all.insert(wait.rank),
                Event::Step { queue, index } => all.extend(&known[place(wait.rank, queue, index)]),
            }
        }
        all
    };
    // Program order is a topological order of one tile.
    for (position, step) in schedule.steps.iter().enumerate() {
        let mut all = of_waits(step.rank, &step.after, &known);
        if let Some(before) = step.index.checked_sub(1) {
            all.extend(&known[place(step.rank, step.queue, before)]);
        }
        known[position] = all;
    }
    (0..).zip(&schedule.leave).all(|(rank, after)| {
        let mut all = of_waits(rank, after, &known);
        queues[rank as usize].iter().flatten().for_each(|&step| all.extend(&known[step]));
        all.len() == schedule.world_size as usize
    })
}

#[test]
fn the_proof_and_a_walk_over_all_steps_agree_on_symmetric_schedules() {
    let mut found = BTreeSet::new();
    let worlds = ALGORITHMS.iter().flat_map(|algorithm| (1..=6).map(move |n| (algorithm, n)));
    for schedule in worlds.flat_map(|(algorithm, n)| algorithm.schedules(n)).map(Result::unwrap) {
        let (expected, title) = (is_symmetric(&schedule), schedule.title());
        assert_eq!(verify(schedule).unwrap().is_symmetric(), expected, "{title}");
        found.insert(expected);
    }
    assert_eq!(found.len(), 2, "some are symmetric, and some are not");
}

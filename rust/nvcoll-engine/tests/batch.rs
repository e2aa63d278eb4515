//! Calls that are launched as one give what they give one by one, driven and with a thread per rank.

mod common;

use std::sync::Arc;

use common::{call, in_place, watchdog};
use nvcoll_core::schedule::Path;
use nvcoll_engine::program::batch::Batch;
use nvcoll_engine::ranks::node::Node;
use nvcoll_engine::ranks::team::Team;
use nvcoll_engine::run::wait::now;
use nvcoll_engine::WaitLimit;

const RANKS: u32 = 3;

/// Counts of the calls of a batch: empty, small, of several tiles.
const COUNTS: [usize; 6] = [100, 0, 30_011, 1, 257, 300_007];

/// What rank `rank` brings to the `nth` call.
fn input(nth: usize, rank: u32, count: usize) -> Vec<i32> {
    (0..count as i32).map(|i| i * 7 + rank as i32 * 1000 + nth as i32 * 31).collect()
}

fn sum(nth: usize, count: usize) -> Vec<i32> {
    let inputs: Vec<Vec<i32>> = (0..RANKS).map(|rank| input(nth, rank, count)).collect();
    (0..count).map(|i| inputs.iter().map(|x| x[i]).sum()).collect()
}

/// The algorithm and the path of the `nth` call: three schedules, in turn.
fn form(nth: usize, path: Path) -> (&'static str, Path) {
    (["nvswitch", "one_shot", "ring"][nth % 3], path)
}

#[test]
fn a_driven_batch_gives_every_sum_again_and_again() {
    for (workers, path) in [(1, Path::Mapped), (2, Path::Mapped), (2, Path::Staged)] {
        let node = Node::new(RANKS, Some(workers)).unwrap();
        let mut data: Vec<Vec<Vec<i32>>> = Vec::new();
        for (nth, count) in COUNTS.into_iter().enumerate() {
            data.push((0..RANKS).map(|rank| input(nth, rank, count)).collect());
        }
        let calls = data.iter_mut().enumerate().map(|(nth, of_call)| {
            let (algorithm, path) = form(nth, path);
            let program = node.program(&call(algorithm, COUNTS[nth], path), None).unwrap();
            (program, of_call.iter_mut().map(|x| in_place(x)).collect())
        });
        let mut batch = Batch::new(calls.collect());
        assert_eq!((batch.len(), batch.passes()), (COUNTS.len(), 3));
        for round in 0..3 {
            for (nth, of_call) in data.iter_mut().enumerate() {
                for (rank, x) in (0..).zip(of_call) {
                    x.copy_from_slice(&input(nth, rank, COUNTS[nth]));
                }
            }
            // SAFETY: live vectors, each of one call and rank, in place.
            unsafe { node.run_batch(&mut batch, watchdog(), &mut || false) }.unwrap();
            for (nth, of_call) in data.iter().enumerate() {
                let expected = sum(nth, COUNTS[nth]);
                assert!(of_call.iter().all(|x| *x == expected), "{path:?} call {nth}, round {round}");
            }
        }
    }
}

#[test]
fn ranks_that_are_threads_give_every_sum_between_single_calls() {
    for path in [Path::Mapped, Path::Staged] {
        let node = Arc::new(Node::new(RANKS, None).unwrap());
        let team = Team::new(RANKS);
        std::thread::scope(|scope| {
            for rank in 0..RANKS {
                let (node, team) = (node.clone(), team.clone());
                scope.spawn(move || {
                    let member = team.member(rank).unwrap();
                    for round in 0..20 {
                        let mut data: Vec<Vec<i32>> =
                            COUNTS.iter().enumerate().map(|(nth, &count)| input(nth, rank, count)).collect();
                        let calls = data.iter_mut().enumerate().map(|(nth, x)| {
                            let (algorithm, path) = form(nth, path);
                            let program = node.program_of_rank(&call(algorithm, COUNTS[nth], path), None).unwrap();
                            (program, vec![in_place(x)])
                        });
                        let mut batch = Batch::new(calls.collect());
                        // SAFETY: live vectors of this rank, each of one call, in place.
                        now(unsafe { member.run_batch(&mut batch, &mut WaitLimit::new(watchdog(), &mut || false)) })
                            .unwrap();
                        for (nth, x) in data.iter().enumerate() {
                            assert_eq!(*x, sum(nth, COUNTS[nth]), "{path:?} call {nth}, rank {rank}, round {round}");
                        }
                        let program = node.program_of_rank(&call("ring", 64, path), None).unwrap();
                        let mut single = input(9, rank, 64);
                        // SAFETY: a live vector of this rank.
                        unsafe { member.run(&program, in_place(&mut single), watchdog()) }.unwrap();
                        assert_eq!(single, sum(9, 64));
                    }
                });
            }
        });
    }
}

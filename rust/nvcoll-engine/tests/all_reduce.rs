//! Every all_reduce algorithm, driven by one caller and by a thread per rank, on every path, against a plain sum.

mod common;

use std::sync::Arc;

use common::{call, in_place, watchdog};

use nvcoll_core::algorithm;
use nvcoll_core::collective::ALL_REDUCE;
use nvcoll_core::schedule::{Aliasing, Path};
use nvcoll_engine::call::Call;
use nvcoll_engine::ranks::node::Node;
use nvcoll_engine::ranks::team::Team;
use nvcoll_engine::{Buffers, Error};

fn inputs(world_size: u32, count: usize) -> Vec<Vec<i32>> {
    (0..world_size as i32).map(|r| (0..count as i32).map(|i| i * 7 + r * 1000).collect()).collect()
}

fn sums(inputs: &[Vec<i32>]) -> Vec<i32> {
    (0..inputs[0].len()).map(|i| inputs.iter().map(|x| x[i]).sum()).collect()
}

fn out_of_place(call: Call) -> Call {
    Call { aliasing: Aliasing::Disjoint, ..call }
}

fn apart(input: &mut [i32], output: &mut [i32]) -> Buffers {
    Buffers::new(input.as_mut_ptr().cast(), output.as_mut_ptr().cast(), 1.0)
}

const COUNTS: [usize; 6] = [0, 1, 31, 64, 1009, 100_003];

#[test]
fn a_driven_node_gives_the_sum_for_every_algorithm_path_aliasing_and_count() {
    for world_size in [1, 2, 3, 5, 8] {
        let node = Node::new(world_size, Some(2)).unwrap();
        for algorithm in algorithm::of(&ALL_REDUCE) {
            for path in Path::ALL {
                for count in COUNTS {
                    let program = node.program(&call(algorithm.name, count, path), None).unwrap();
                    let mut data = inputs(world_size, count);
                    let expected = sums(&data);
                    let mut all: Vec<Buffers> = data.iter_mut().map(|x| in_place(x)).collect();
                    // SAFETY: every buffer is `count` elements of a live vector, aliased in place.
                    unsafe { node.run(&program, &mut all, watchdog(), &mut || false) }.unwrap();
                    assert!(data.iter().all(|x| *x == expected), "{} {path:?} {world_size} {count}", algorithm.name);

                    let program = node.program(&out_of_place(call(algorithm.name, count, path)), None).unwrap();
                    let (mut data, mut out) = (inputs(world_size, count), vec![vec![0; count]; world_size as usize]);
                    let mut all: Vec<Buffers> = data.iter_mut().zip(&mut out).map(|(x, y)| apart(x, y)).collect();
                    // SAFETY: as above, outputs disjoint.
                    unsafe { node.run(&program, &mut all, watchdog(), &mut || false) }.unwrap();
                    assert!(out.iter().all(|x| *x == expected), "{} {path:?} {world_size} {count}", algorithm.name);
                    assert_eq!(data, inputs(world_size, count), "inputs stay as they were");
                }
            }
        }
    }
}

#[test]
fn a_large_call_out_of_place_gives_the_sum_however_it_stores() {
    let (world_size, count) = (3, 3_000_001);
    let node = Node::new(world_size, Some(2)).unwrap();
    for algorithm in algorithm::of(&ALL_REDUCE) {
        let program = node.program(&out_of_place(call(algorithm.name, count, Path::Mapped)), None).unwrap();
        let mut data = inputs(world_size, count);
        let (kept, expected) = (data.clone(), sums(&data));
        // The first calls try both kinds of stores in turn.
        for round in 0..4 {
            let mut out = vec![vec![0; count]; world_size as usize];
            let mut all: Vec<Buffers> = data.iter_mut().zip(&mut out).map(|(x, y)| apart(x, y)).collect();
            // SAFETY: every buffer is `count` elements of a live vector, all disjoint.
            unsafe { node.run(&program, &mut all, watchdog(), &mut || false) }.unwrap();
            assert!(out.iter().all(|x| *x == expected), "{} in round {round}", algorithm.name);
        }
        assert!(data == kept, "{}", algorithm.name);
    }
}

#[test]
fn a_staged_call_gives_the_sum_however_it_stores() {
    let (world_size, count) = (3, 30_011);
    let node = Arc::new(Node::new(world_size, Some(2)).unwrap());
    for (algorithm, path) in algorithm::of(&ALL_REDUCE).flat_map(|a| [(a, Path::Staged), (a, Path::Pushed)]) {
        let team = Team::new(world_size);
        std::thread::scope(|scope| {
            for rank in 0..world_size {
                let (node, team) = (node.clone(), team.clone());
                scope.spawn(move || {
                    let member = team.member(rank).unwrap();
                    let program = node.program_of_rank(&call(algorithm.name, count, path), None).unwrap();
                    // The first calls try the kinds of stores in turn.
                    for round in 0..8 {
                        let mut data = inputs(world_size, count);
                        let expected = sums(&data);
                        let mine = &mut data[rank as usize];
                        // SAFETY: `mine` is `count` elements, used by this call only.
                        unsafe { member.run(&program, in_place(mine), watchdog()) }.unwrap();
                        assert!(*mine == expected, "{} {path:?} in round {round}", algorithm.name);
                    }
                });
            }
        });
    }
}

#[test]
fn ranks_that_are_threads_give_the_sum_round_after_round() {
    for world_size in [2, 3, 8] {
        let node = Arc::new(Node::new(world_size, None).unwrap());
        let team = Team::new(world_size);
        std::thread::scope(|scope| {
            for rank in 0..world_size {
                let (node, team) = (node.clone(), team.clone());
                scope.spawn(move || {
                    let member = team.member(rank).unwrap();
                    for round in 0..60 {
                        let algorithms: Vec<_> = algorithm::of(&ALL_REDUCE).collect();
                        let algorithm = algorithms[round % algorithms.len()];
                        let (path, count) = (Path::ALL[round / 7 % Path::ALL.len()], COUNTS[round % COUNTS.len()]);
                        let mut data = inputs(world_size, count);
                        let expected = sums(&data);
                        let mine = &mut data[rank as usize];
                        let program = node.program_of_rank(&call(algorithm.name, count, path), None).unwrap();
                        // SAFETY: `mine` is `count` elements, used by this call only.
                        unsafe { member.run(&program, in_place(mine), watchdog()) }.unwrap();
                        assert_eq!(*mine, expected, "{} {path:?} {count} rank {rank}", algorithm.name);
                    }
                });
            }
        });
    }
}

#[test]
fn a_driven_call_ends_when_its_caller_is_interrupted_and_the_node_goes_on() {
    for (path, workers) in
        [(Path::Mapped, 1), (Path::Mapped, 2), (Path::Staged, 1), (Path::Staged, 2), (Path::Staged, 4)]
    {
        let (world_size, count) = (5, 1 << 20);
        let node = Node::new(world_size, Some(workers)).unwrap();
        let program = node.program(&call("ring", count, path), None).unwrap();
        for looks in [1, 2, 5] {
            let (mut data, mut looked) = (inputs(world_size, count), 0);
            let mut all: Vec<Buffers> = data.iter_mut().map(|x| in_place(x)).collect();
            let mut is_interrupted = || {
                looked += 1;
                looked >= looks
            };
            // SAFETY: every buffer is `count` elements of a live vector, aliased in place.
            let outcome = unsafe { node.run(&program, &mut all, watchdog(), &mut is_interrupted) };
            assert_eq!(outcome, Err(Error::Interrupted), "{path:?} {workers} workers, {looks} looks");
        }
        let mut data = inputs(world_size, count);
        let expected = sums(&data);
        let mut all: Vec<Buffers> = data.iter_mut().map(|x| in_place(x)).collect();
        // SAFETY: as above.
        unsafe { node.run(&program, &mut all, watchdog(), &mut || false) }.unwrap();
        assert!(data.iter().all(|x| *x == expected), "{path:?} {workers} workers");
    }
}

#[test]
fn more_workers_than_blocks_of_ranks_of_equal_size_are_no_trouble() {
    for (world_size, workers) in [(5, 4), (7, 5), (9, 8)] {
        let node = Node::new(world_size, Some(workers)).unwrap();
        let program = node.program(&call("tree", 1009, Path::Staged), None).unwrap();
        for _ in 0..20 {
            let mut data = inputs(world_size, 1009);
            let expected = sums(&data);
            let mut all: Vec<Buffers> = data.iter_mut().map(|x| in_place(x)).collect();
            // SAFETY: every buffer is `count` elements of a live vector, aliased in place.
            unsafe { node.run(&program, &mut all, watchdog(), &mut || false) }.unwrap();
            assert!(data.iter().all(|x| *x == expected));
        }
    }
}

//! What the engine refuses, and in which words: programs of other ranks, arrays of two ranks that overlap, a split beside a
//! barrier; and how a call ends in which a worker panics.

use nvcoll_core::algorithm;
use nvcoll_core::collective::{ALL_REDUCE, BARRIER, BROADCAST};
use nvcoll_core::counts::Counts;
use nvcoll_core::schedule::{Aliasing, Path};
use nvcoll_engine::call::Call;
use nvcoll_engine::memory::strided::{Axis, Layout};
use nvcoll_engine::program::batch::Batch;
use nvcoll_engine::ranks::node::Node;
use nvcoll_engine::ranks::team::Team;
use nvcoll_engine::run::wait::now;
use nvcoll_engine::sync::single_flight::HoldsNoLock;
use nvcoll_engine::{Buffers, Deadline, Error, OriginalArray, WaitLimit};

/// 30 seconds: a watchdog, not a bar.
fn watchdog() -> Deadline {
    Deadline::after(Some(30.0))
}

fn call() -> Call {
    Call { counts: Counts::Even(4), aliasing: Aliasing::InPlace, ..Call::without_data(&ALL_REDUCE) }
}

fn in_place(data: &mut [f32; 4]) -> Buffers {
    let start: *mut u8 = data.as_mut_ptr().cast();
    Buffers::new(start, start, 1.0)
}

fn is_refused(outcome: Result<(), Error>, words: &str) {
    match outcome {
        Err(Error::Invalid(message)) => assert!(message.contains(words), "{message}"),
        other => panic!("found {other:?}, expected InvalidArgument with `{words}`"),
    }
}

#[test]
fn a_program_of_another_number_of_ranks_is_refused() {
    let (of_two, of_four) = (Node::new(2, Some(1)).unwrap(), Node::new(4, Some(1)).unwrap());
    let program = of_four.program(&call(), None).unwrap();
    let mut data = [[1f32; 4]; 2];
    let mut buffers: Vec<Buffers> = data.iter_mut().map(in_place).collect();
    // SAFETY: two live arrays of four floats, in place; a program that expects more of them is refused.
    let found = unsafe { of_two.run(&program, &mut buffers, watchdog(), &mut || false) };
    is_refused(found, "the program is of 4 ranks, it is run by 2 ranks");
    let mut batch = Batch::new(vec![(program.clone(), buffers.clone()), (program, buffers.clone())]);
    // SAFETY: as above.
    let found = unsafe { of_two.run_batch(&mut batch, watchdog(), &mut || false) };
    is_refused(found, "the program is of 4 ranks, it is run by 2 ranks");

    let member = Team::new(2).member(0).unwrap();
    let program = of_four.program_of_rank(&call(), None).unwrap();
    // SAFETY: as above.
    is_refused(unsafe { member.run(&program, buffers[0], watchdog()) }, "the program is of 4 ranks");
    let mut batch = Batch::new(vec![(program.clone(), buffers[..1].to_vec()), (program, buffers[..1].to_vec())]);
    // SAFETY: as above.
    is_refused(
        now(unsafe { member.run_batch(&mut batch, &mut WaitLimit::new(watchdog(), &mut || false)) }),
        "the program is of 4 ranks",
    );
    assert_eq!(data, [[1f32; 4]; 2], "nothing moved");
}

/// Makes one call on every rank of a team of two, each on a packed copy of its array; returns what each rank was told.
fn on_copies(arrays: [Vec<OriginalArray>; 2], call: &Call) -> [Result<(), Error>; 2] {
    let (team, node) = (Team::new(2), Node::new(2, Some(1)).unwrap());
    let program = node.program_of_rank(call, None).unwrap();
    let run = |rank: u32, originals: &[OriginalArray]| {
        let (mut copy, mut never, member) = ([1f32; 4], || false, team.member(rank).unwrap());
        let mut limit = WaitLimit::new(watchdog(), &mut never);
        // SAFETY: a live array of four floats of the rank's own, in place.
        now(unsafe { member.run_on_copies(&program, None, in_place(&mut copy), originals, &mut limit) })
    };
    let [of_zero, of_one] = arrays;
    std::thread::scope(|scope| {
        let one = scope.spawn(|| run(1, &of_one));
        [run(0, &of_zero), one.join().unwrap()]
    })
}

/// Column `column` of a (4, 2) float32 matrix at a made-up address, which nobody follows.
fn column(column: usize) -> Vec<OriginalArray> {
    let layout = Layout::of([Axis { length: 4, stride: 8 }].into_iter(), 4).unwrap();
    vec![OriginalArray { address: 0x1000 + 4 * column, layout, is_written: true }]
}

fn is_overlap(outcome: &Result<(), Error>) -> bool {
    matches!(outcome, Err(Error::Overlap { rank_a: 0, rank_b: 1, .. }))
}

#[test]
fn strided_arrays_of_two_ranks_are_refused_if_they_share_a_byte() {
    let packed = vec![OriginalArray { address: 0x1004, layout: Layout::packed(4, 4), is_written: true }];
    for (arrays, shares) in [
        ([column(0), column(0)], true),
        ([column(0), column(1)], false),
        ([column(0), packed.clone()], true),
        ([packed, column(0)], true),
    ] {
        let found = on_copies(arrays.clone(), &call());
        assert!(found.iter().all(|outcome| is_overlap(outcome) == shares), "{arrays:?}: {found:?}");
        assert!(shares || found.iter().all(Result::is_ok), "columns of one matrix interleave: {found:?}");
    }
}

#[test]
fn a_rank_that_is_through_is_compared_until_its_results_are_back_from_its_copies() {
    // A rank that needs the root alone may be through before others enter; it writes its copy back after that.
    let node = Node::new(3, Some(1)).unwrap();
    let mut have_been_through = 0;
    let paths = [Path::Mapped, Path::Staged];
    for (algorithm, path) in algorithm::of(&BROADCAST).flat_map(|one| paths.map(|path| (one.name, path))) {
        let broadcast = Call { path, collective: &BROADCAST, algorithm: algorithm.into(), ..call() };
        let program = node.program_of_rank(&broadcast, None).unwrap();
        for are_back in [false, true] {
            let team = Team::new(3);
            let run = |rank: u32, originals: &[OriginalArray], seconds: f64| {
                let (mut copy, mut never, member) = ([1f32; 4], || false, team.member(rank).unwrap());
                let mut limit = WaitLimit::new(Deadline::after(Some(seconds)), &mut never);
                // SAFETY: a live array of four floats of the rank's own, in place.
                let found =
                    now(unsafe { member.run_on_copies(&program, None, in_place(&mut copy), originals, &mut limit) });
                if are_back {
                    member.results_are_back();
                }
                found
            };
            std::thread::scope(|scope| {
                scope.spawn(|| _ = run(0, &[], 30.0));
                // A rank that waits for another one than the root gives up, and the root with it.
                if run(1, &column(0), 1.0).is_ok() {
                    have_been_through += 1;
                    let found = run(2, &column(0), 30.0);
                    let is_refused = matches!(found, Err(Error::Overlap { rank_a: 1, rank_b: 2, .. }));
                    assert!(if are_back { found.is_ok() } else { is_refused }, "{found:?}");
                }
            });
        }
    }
    assert!(have_been_through > 0, "by some algorithm rank 1 needs the root alone");
}

#[test]
fn strided_arrays_in_batches_of_two_ranks_are_refused_if_they_share_a_byte() {
    for (of_one, shares) in [(column(0), true), (column(1), false)] {
        let (team, node) = (Team::new(2), Node::new(2, Some(1)).unwrap());
        let program = node.program_of_rank(&call(), None).unwrap();
        let run = |rank: u32, originals: Vec<OriginalArray>| {
            let (member, mut copies) = (team.member(rank).unwrap(), [[1f32; 4]; 2]);
            let calls = copies.iter_mut().map(|copy| (program.clone(), vec![in_place(copy)])).collect();
            let mut batch = Batch::new(calls);
            batch.set_originals(1, originals);
            // SAFETY: live arrays of four floats of the rank's own, one for each call, in place.
            now(unsafe { member.run_batch(&mut batch, &mut WaitLimit::new(watchdog(), &mut || false)) })
        };
        let found = std::thread::scope(|scope| {
            let one = scope.spawn(|| run(1, of_one.clone()));
            [run(0, column(0)), one.join().unwrap()]
        });
        assert!(found.iter().all(|outcome| is_overlap(outcome) == shares), "{found:?}");
    }
}

#[test]
fn a_split_is_no_barrier() {
    let (team, node) = (Team::new(2), Node::new(2, Some(1)).unwrap());
    let program = node.program_of_rank(&Call::without_data(&BARRIER), None).unwrap();
    let nothing = Buffers::new(std::ptr::null_mut(), std::ptr::null_mut(), 1.0);
    let [split, barrier] = std::thread::scope(|scope| {
        let split = scope
            .spawn(|| team.member(0).unwrap().split(Some(1), 2, watchdog(), &HoldsNoLock, &mut || false).map(drop));
        // SAFETY: a barrier touches no buffer.
        let barrier = unsafe { team.member(1).unwrap().run(&program, nothing, watchdog()) };
        [split.join().unwrap(), barrier].map(|outcome| outcome.unwrap_err().to_string())
    });
    assert_eq!(split, "rank 0 called split, but rank 1 called barrier: every rank must make the same call");
    assert_eq!(barrier, split);
}

#[test]
fn a_panic_while_the_caller_is_asked_for_interrupts_ends_the_call_and_the_node_goes_on() {
    let (sent, received) = std::sync::mpsc::channel();
    // A thread of its own, so that a call that never ends is a failure and not a hang.
    std::thread::spawn(move || {
        let node = Node::new(4, Some(2)).unwrap();
        let staged = Call { algorithm: "ring".into(), path: Path::Staged, counts: Counts::Even(1 << 18), ..call() };
        let program = node.program(&staged, None).unwrap();
        let mut data = vec![vec![1f32; 1 << 18]; 4];
        let mut buffers: Vec<Buffers> = Vec::new();
        for own in &mut data {
            let start: *mut u8 = own.as_mut_ptr().cast();
            buffers.push(Buffers::new(start, start, 1.0));
        }
        let panicking = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // SAFETY: live arrays of as many floats as the call has, in place.
            unsafe { node.run(&program, &mut buffers, watchdog(), &mut || panic!("asked")) }
        }));
        let has_panicked = panicking.is_err();
        // SAFETY: as above.
        let outcome = unsafe { node.run(&program, &mut buffers, watchdog(), &mut || false) };
        drop(data);
        sent.send((has_panicked, outcome)).unwrap();
    });
    let found = received.recv_timeout(std::time::Duration::from_secs(60)).expect("the call hangs");
    assert_eq!(found, (true, Ok(())));
}

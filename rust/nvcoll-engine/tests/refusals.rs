//! What the engine refuses, and in which words: programs of other ranks, arrays of two ranks that overlap, a split beside a
//! barrier; and how a call ends in which a worker panics.

mod common;

use common::{in_place, watchdog};
use nvcoll_core::algorithm;
use nvcoll_core::collective::{ALL_REDUCE, BROADCAST};
use nvcoll_core::counts::Counts;
use nvcoll_core::schedule::{Aliasing, Path};
use nvcoll_engine::call::Call;
use nvcoll_engine::memory::strided::{Axis, Layout};
use nvcoll_engine::program::batch::Batch;
use nvcoll_engine::ranks::node::Node;
use nvcoll_engine::ranks::team::Team;
use nvcoll_engine::run::wait::now;
use nvcoll_engine::{Buffers, Deadline, Error, OriginalArray, WaitLimit};

fn call() -> Call {
    Call { counts: Counts::Even(4), aliasing: Aliasing::InPlace, ..Call::without_data(&ALL_REDUCE) }
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
    let mut buffers: Vec<Buffers> = data.iter_mut().map(|own| in_place(own)).collect();
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

/// Column `column` of a (4, 2) float32 matrix at a made-up address, which nobody follows.
fn column(column: usize) -> Vec<OriginalArray> {
    let layout = Layout::of([Axis { length: 4, stride: 8 }].into_iter(), 4).unwrap();
    vec![OriginalArray { address: 0x1000 + 4 * column, layout, is_written: true }]
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
                let found = now(unsafe { member.run_call(&program, None, in_place(&mut copy), originals, &mut limit) });
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
fn a_panic_while_the_caller_is_asked_for_interrupts_ends_the_call_and_the_node_goes_on() {
    let (sent, received) = std::sync::mpsc::channel();
    // A thread of its own, so that a call that never ends is a failure and not a hang.
    std::thread::spawn(move || {
        let node = Node::new(4, Some(2)).unwrap();
        let staged = Call { algorithm: "ring".into(), path: Path::Staged, counts: Counts::Even(1 << 18), ..call() };
        let program = node.program(&staged, None).unwrap();
        let mut data = vec![vec![1f32; 1 << 18]; 4];
        let mut buffers: Vec<Buffers> = data.iter_mut().map(|own| in_place(own)).collect();
        let panicking = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // SAFETY: live arrays with the floats of the call, in place.
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

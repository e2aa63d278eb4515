//! What the engine refuses before a byte moves: programs of other ranks, ranks that do not exist, a rank that is asked for
//! twice.

use nvcoll_core::collective::{ALL_REDUCE, BARRIER};
use nvcoll_core::counts::Counts;
use nvcoll_core::schedule::Aliasing;
use nvcoll_engine::call::Call;
use nvcoll_engine::program::batch::Batch;
use nvcoll_engine::ranks::node::Node;
use nvcoll_engine::ranks::team::Team;
use nvcoll_engine::{Buffers, Deadline, Error};

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
    is_refused(unsafe { member.run_batch(&mut batch, watchdog()) }, "the program is of 4 ranks");
    assert_eq!(data, [[1f32; 4]; 2], "nothing moved");
}

#[test]
fn a_rank_has_one_member_and_only_ranks_of_the_team_have_one() {
    let team = Team::new(2);
    is_refused(team.member(2).map(drop), "found rank 2, expected one from 0 to 1");
    let first = team.member(0).unwrap();
    is_refused(team.member(0).map(drop), "rank 0 has its communicator already");
    let node = Node::new(2, Some(1)).unwrap();
    let program = node.program_of_rank(&Call::without_data(&BARRIER), None).unwrap();
    let nothing = Buffers::new(std::ptr::null_mut(), std::ptr::null_mut(), 1.0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: a barrier touches no buffer.
            unsafe { team.member(1).unwrap().run(&program, nothing, watchdog()) }.unwrap();
        });
        // SAFETY: as above.
        unsafe { first.run(&program, nothing, watchdog()) }.unwrap();
    });
}

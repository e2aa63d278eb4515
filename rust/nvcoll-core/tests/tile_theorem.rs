//! The tile theorem, tested: with p slots, p + 1 tiles show the same faults as any number of tiles.
//!
//! The verifier looks at p + 1 tiles with its own algorithms; here 2p + 4 tiles are unrolled by brute force, for right
//! schedules and for mutants of every kind, and both must say the same of races and deadlocks.

mod mutants;
mod random;
mod unrolled;

use mutants::{mutants, Kind};
use nvcoll_core::algorithm::ALGORITHMS;
use nvcoll_core::lower::{push, Fifo};
use nvcoll_core::schedule::{Path, Schedule};
use nvcoll_core::verify::{verify, Violation};
use unrolled::{unroll, Finding};

/// How many mutants of each kind are unrolled for each schedule. Chosen.
const PER_KIND: usize = 4;

/// Every algorithm with the slots that its path usually has, and pushed with fewer and with more.
fn originals() -> impl Iterator<Item = Schedule> {
    let registered = |n| ALGORITHMS.iter().flat_map(move |algorithm| algorithm.schedules(n)).map(Result::unwrap);
    let usual = (1..=5).flat_map(registered);
    let mapped = [2, 3].into_iter().flat_map(registered).filter(|schedule| schedule.path == Path::Mapped);
    let fifos = [Fifo { channels: 1, slots: 1 }, Fifo { channels: 2, slots: 3 }];
    let pushed = mapped.flat_map(move |mapped| fifos.map(|fifo| push(&mapped, fifo).unwrap()));
    let has_tiles = |schedule: &Schedule| !schedule.has_early_steps();
    usual.filter(has_tiles).chain(pushed).filter(|schedule| [0, schedule.world_size - 1].contains(&schedule.root))
}

/// Right schedules and mutants of them.
fn subjects() -> Vec<Schedule> {
    let of = |original: Schedule| {
        let mutants = |&kind| mutants(&original, kind, 1).take(PER_KIND).collect::<Vec<_>>();
        let mut subjects: Vec<Schedule> = Kind::ALL.iter().flat_map(mutants).collect();
        subjects.push(original);
        subjects
    };
    originals().flat_map(of).collect()
}

#[test]
fn slots_and_one_tiles_show_what_twice_as_many_and_four_show() {
    let (mut fine, mut races, mut deadlocks) = (0, 0, 0);
    for subject in subjects() {
        let slots = subject.slots as usize;
        let unrolled = unroll(&subject, 2 * slots + 4);
        assert_eq!(unroll(&subject, slots + 1), unrolled, "brute force over fewer tiles: {subject:?}");
        match verify(subject.clone()).map_err(|refutation| *refutation.violation) {
            Ok(_) => assert_eq!(unrolled, Finding::Fine, "accepted: {subject:?}"),
            Err(Violation::Race { .. }) => assert_eq!(unrolled, Finding::Race, "refuted for a race: {subject:?}"),
            Err(Violation::Deadlock { .. }) => {
                assert_eq!(unrolled, Finding::Deadlock, "refuted for a deadlock: {subject:?}")
            }
            // Refuted for something that one tile shows; an unordered pair of accesses, if there is one too, comes later.
            Err(_) => {}
        }
        match unrolled {
            Finding::Fine => fine += 1,
            Finding::Race => races += 1,
            Finding::Deadlock => deadlocks += 1,
        }
    }
    println!("{fine} without a race, {races} with one, {deadlocks} deadlocks");
    assert!(
        fine > 0 && races > 0 && deadlocks > 0,
        "{fine} fine, {races} races, {deadlocks} deadlocks: a kind is missing"
    );
}

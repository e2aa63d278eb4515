//! Every stage of work asks its caller often enough whether to stop, and stops at whichever question says so.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use nvcoll_core::algorithm::build_interruptible;
use nvcoll_core::builder::Builder;
use nvcoll_core::collective::{Roles, ALL_REDUCE};
use nvcoll_core::cost::Cost;
use nvcoll_core::interrupt::{Interrupt, UNITS_PER_QUESTION};
use nvcoll_core::lower::{lower, lower_interruptible};
use nvcoll_core::schedule::{Aliasing, Path, Schedule};
use nvcoll_core::verify::{verify_interruptible, Unproved};
use nvcoll_core::Error;

/// The ranks of the ring that is built and proved: 8,064 steps.
const WORLD_SIZE: u32 = 64;

fn ring(interrupt: &Interrupt) -> nvcoll_core::Result<Schedule> {
    build_interruptible(&ALL_REDUCE, "ring", Roles::of(WORLD_SIZE), Aliasing::InPlace, interrupt)
}

/// Does the work with an interrupt that comes at the `last` question; returns how it ended, and how many were asked.
fn asked<T>(last: u64, work: impl Fn(&Interrupt) -> T) -> (T, u64) {
    let count = Arc::new(AtomicU64::new(0));
    let counter = count.clone();
    let interrupt = Interrupt::when(move || counter.fetch_add(1, Ordering::Relaxed) + 1 == last);
    let outcome = work(&interrupt);
    (outcome, count.load(Ordering::Relaxed))
}

/// Checks that work of some steps asks at least once for `UNITS_PER_QUESTION` steps, and that questions from the first to the last end it.
fn check<T>(stage: &str, steps: usize, work: impl Fn(&Interrupt) -> Result<T, Error>) {
    let (outcome, all) = asked(u64::MAX, &work);
    assert!(outcome.is_ok(), "{stage} fails without an interrupt");
    let least = steps as u64 / u64::from(UNITS_PER_QUESTION);
    assert!(all >= least && least > 0, "{stage} of {steps} steps asks {all} times, at least {least} are due");
    for last in (1..all).step_by(1 + all as usize / 8).chain([all]) {
        let (outcome, asked) = asked(last, &work);
        let ends = matches!(outcome, Err(Error::Interrupted));
        assert!(ends && asked == last, "{stage} is stopped by question {last} of {all}, and asks {asked}");
    }
}

#[test]
fn each_stage_asks_often_and_ends_at_any_question() {
    let mapped = ring(&Interrupt::never()).unwrap();
    check("building", mapped.steps.len(), ring);
    check("costing", mapped.steps.len(), |interrupt| Ok(Cost::of_interruptible(&mapped, interrupt)?));
    for path in Path::ALL {
        let lowered = lower(&mapped, path).unwrap();
        if path != Path::Mapped {
            let steps = lowered.steps.len();
            check(path.name(), steps, |interrupt| lower_interruptible(&mapped, path, interrupt));
        }
        // Tiles are proved one after the other: the first, and the tiles that reuse slots.
        let steps = lowered.steps.len() * (1 + lowered.slots as usize);
        let verify = |interrupt: &Interrupt| match verify_interruptible(lowered.clone(), interrupt) {
            Ok(_) => Ok(()),
            Err(Unproved::Interrupted(interrupted)) => Err(interrupted.into()),
            Err(Unproved::Refuted(refutation)) => panic!("{refutation}"),
        };
        check("proving", steps, verify);
    }
}

#[test]
fn a_program_too_large_to_keep_is_stopped_while_it_is_counted() {
    let count = |interrupt: &Interrupt| {
        build_interruptible(&ALL_REDUCE, "ring", Roles::of(2048), Aliasing::InPlace, interrupt).map(drop)
    };
    let (outcome, asked) = asked(3, count);
    assert_eq!((outcome, asked), (Err(Error::Interrupted), 3));
}

#[test]
fn a_group_that_is_interrupted_interrupts_the_whole_program() {
    let compose = |interrupt: &Interrupt| {
        let mut b = Builder::new(&ALL_REDUCE, Roles::of(128), Aliasing::InPlace)?;
        b.set_interrupt(interrupt);
        let groups = b.groups(64);
        let inputs = b.inputs();
        b.all_reduce(&inputs, &groups, "ring");
        b.finish("mine")
    };
    let (outcome, asked) = asked(1, compose);
    assert_eq!((outcome.map(drop), asked), (Err(Error::Interrupted), 1));
}

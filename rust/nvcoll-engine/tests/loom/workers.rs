//! What a caller and its helpers share: a value that one at a time may use, and the door of the pool.

use std::sync::Arc;

use loom::sync::atomic::{fence, AtomicBool, AtomicU32, Ordering};
use loom::thread;

use nvcoll_engine::run::pool::door::Door;
use nvcoll_engine::sync::try_lock::TryLock;
use nvcoll_engine::sync::Doorbell;

use crate::{must_fail, Data};

#[test]
fn a_value_is_used_by_one_thread_at_a_time_and_what_it_did_is_seen() {
    loom::model(|| {
        let value = Arc::new(TryLock::new(Data::new()));
        let count = |value: &TryLock<Data>| match value.take() {
            Some(data) => {
                data.write(data.read() + 1);
                1
            }
            None => 0,
        };
        let other = value.clone();
        let thread = thread::spawn(move || count(&other));
        let counted = count(&value) + thread.join().unwrap();
        // loom lets the store of a swap come after one that the swap did not see: to it the value may be in use.
        assert!(value.take().is_none_or(|data| data.read() == counted));
    });
}

/// The flag of a value in use, as a bare word.
fn bare_flag(take: Ordering, free: Ordering) {
    let shared = Arc::new((AtomicBool::new(false), Data::new()));
    let use_it = move |shared: &(AtomicBool, Data)| {
        if !shared.0.swap(true, take) {
            shared.1.write(1);
            shared.0.store(false, free);
        }
    };
    let other = shared.clone();
    let thread = thread::spawn(move || use_it(&other));
    use_it(&shared);
    thread.join().unwrap();
}

#[test]
fn the_flag_needs_its_acquire_and_its_release() {
    loom::model(|| bare_flag(Ordering::Acquire, Ordering::Release));
    must_fail(|| bare_flag(Ordering::Relaxed, Ordering::Release));
    must_fail(|| bare_flag(Ordering::Acquire, Ordering::Relaxed));
}

#[test]
fn a_closed_value_is_refused_until_it_is_opened() {
    loom::model(|| {
        let value = Arc::new(TryLock::new(Data::new()));
        assert!(value.close() && !value.close());
        let other = value.clone();
        let write = |value: &TryLock<Data>, number: u32| {
            if let Some(data) = value.take() {
                data.write(number);
            }
        };
        let thread = thread::spawn(move || write(&other, 1));
        // SAFETY: closed above.
        unsafe { value.open() };
        write(&value, 2);
        thread.join().unwrap();
    });
}

/// Which step of a job is left out.
#[derive(Clone, Copy, PartialEq)]
enum Missing {
    Nothing,
    /// The helper reads the job that it saw on offer without entering.
    Enter,
    /// The caller takes the job away without waiting for those inside.
    Wait,
    /// The caller takes the job away without closing the door.
    Close,
}

/// A caller offers a job and takes it away; two helpers may do it meanwhile.
fn job(missing: Missing, helpers: usize) {
    let shared = Arc::new((Door::default(), Data::new()));
    let helpers: Vec<_> = (0..helpers)
        .map(|_| {
            let shared = shared.clone();
            thread::spawn(move || {
                let seen = shared.0.look();
                if !seen.is_open() {
                    return;
                }
                if missing == Missing::Enter {
                    shared.1.read();
                } else if shared.0.enter(seen.job()) {
                    shared.1.read();
                    shared.0.leave();
                }
            })
        })
        .collect();
    shared.1.write(1);
    shared.0.open();
    if missing != Missing::Close {
        shared.0.close();
    }
    while missing != Missing::Wait && !shared.0.is_empty() {
        thread::yield_now();
    }
    shared.1.write(0);
    helpers.into_iter().for_each(|helper| helper.join().unwrap());
}

#[test]
fn a_job_is_seen_by_those_inside_only_and_outlives_them() {
    loom::model(|| job(Missing::Nothing, 2));
    for missing in [Missing::Enter, Missing::Wait, Missing::Close] {
        must_fail(move || job(missing, 1));
    }
}

/// Two jobs, one after the other, and a helper that saw the first on offer.
fn late_helper(asks_for_what_it_saw: bool) {
    let shared = Arc::new((Door::default(), Data::new()));
    shared.1.write(1);
    shared.0.open();
    let first = shared.0.look().job();
    let late = shared.clone();
    let thread = thread::spawn(move || {
        let wanted = if asks_for_what_it_saw { first } else { late.0.look().job() };
        if late.0.enter(wanted) {
            assert_eq!(late.1.read(), 1, "a helper is in the wrong job");
            late.0.leave();
        }
    });
    for job in 2..=3 {
        shared.0.close();
        while !shared.0.is_empty() {
            thread::yield_now();
        }
        shared.1.write(job);
        if job == 2 {
            shared.0.open();
        }
    }
    thread.join().unwrap();
}

#[test]
fn a_late_helper_does_not_enter_for_the_next_job() {
    loom::model(|| late_helper(true));
    must_fail(|| late_helper(false));
}

#[test]
fn a_helper_that_falls_asleep_sees_the_job_or_is_woken() {
    loom::model(|| {
        let shared = Arc::new((Door::default(), AtomicBool::new(false)));
        let helper = shared.clone();
        let thread = thread::spawn(move || loop {
            let seen = helper.0.look();
            if seen.is_open() {
                return;
            }
            helper.0.doze(seen, &helper.1, thread::park);
        });
        shared.0.open();
        if shared.1.load(Ordering::Relaxed) {
            thread.thread().unpark();
        }
        thread.join().unwrap();
    });
}

/// Falling asleep as bare words: with the fences one of the two always sees the other.
fn falling_asleep(sleeper_fences: bool, caller_fences: bool) {
    let words = Arc::new((AtomicU32::new(0), AtomicU32::new(0)));
    let caller = words.clone();
    let thread = thread::spawn(move || {
        caller.0.store(1, Ordering::Release);
        if caller_fences {
            fence(Ordering::SeqCst);
        }
        caller.1.load(Ordering::Relaxed)
    });
    words.1.store(1, Ordering::Relaxed);
    if sleeper_fences {
        fence(Ordering::SeqCst);
    }
    let has_seen_the_job = words.0.load(Ordering::Relaxed);
    let has_seen_the_sleeper = thread.join().unwrap();
    assert!(has_seen_the_job == 1 || has_seen_the_sleeper == 1, "both missed each other");
}

#[test]
fn falling_asleep_needs_both_fences() {
    loom::model(|| falling_asleep(true, true));
    must_fail(|| falling_asleep(false, true));
    must_fail(|| falling_asleep(true, false));
}

/// How a helper tells a caller that sleeps that it has left.
#[derive(Clone, Copy, PartialEq)]
enum Goodbye {
    LeavesAndRings,
    RingsAndLeaves,
    Leaves,
}

/// A caller closes the door and sleeps on its doorbell until nobody is inside; helpers that leave ring.
fn waiting_until_helpers_leave(goodbye: Goodbye, helpers: usize) {
    let shared = Arc::new((Door::default(), Doorbell::default(), [Data::new(), Data::new()]));
    shared.0.open();
    let job = shared.0.look().job();
    let helpers: Vec<_> = (0..helpers)
        .map(|helper| {
            assert!(shared.0.enter(job), "the door is open");
            let shared = shared.clone();
            thread::spawn(move || {
                shared.2[helper].write(1);
                if goodbye == Goodbye::RingsAndLeaves {
                    Doorbell::ring_all([&shared.1]);
                }
                shared.0.leave();
                if goodbye == Goodbye::LeavesAndRings {
                    Doorbell::ring_all([&shared.1]);
                }
            })
        })
        .collect();
    shared.0.close();
    while !shared.0.is_empty() {
        shared.1.sleep(|| shared.0.is_empty(), None);
    }
    shared.2[..helpers.len()].iter().for_each(|done| assert_eq!(done.read(), 1));
    helpers.into_iter().for_each(|helper| helper.join().unwrap());
}

#[test]
fn a_caller_that_sleeps_until_helpers_have_left_wakes_up() {
    loom::model(|| waiting_until_helpers_leave(Goodbye::LeavesAndRings, 2));
    for goodbye in [Goodbye::RingsAndLeaves, Goodbye::Leaves] {
        must_fail(move || waiting_until_helpers_leave(goodbye, 1));
    }
}

/// A caller sleeps until both workers have begun, which they count and then ring.
fn waiting_until_workers_begin(is_rung: bool) {
    let shared = Arc::new((AtomicU32::new(0), Doorbell::default()));
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.0.fetch_add(1, Ordering::Relaxed);
                if is_rung {
                    Doorbell::ring_all([&shared.1]);
                }
            })
        })
        .collect();
    let have_all_begun = || shared.0.load(Ordering::Relaxed) == 2;
    while !have_all_begun() {
        shared.1.sleep(have_all_begun, None);
    }
    workers.into_iter().for_each(|worker| worker.join().unwrap());
}

#[test]
fn a_caller_that_sleeps_until_workers_have_begun_wakes_up() {
    loom::model(|| waiting_until_workers_begin(true));
    must_fail(|| waiting_until_workers_begin(false));
}

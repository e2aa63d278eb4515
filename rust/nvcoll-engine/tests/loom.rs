//! The protocols under the model checker loom, each with the broken variant that loom must catch:
//! `RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 cargo test --release -p nvcoll-engine --test loom`.
#![cfg(loom)]

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use nvcoll_engine::sync::{Abort, Activity, Cause, Doorbell, Progress, Stamp};

/// Data that a protocol protects; loom reports unordered accesses.
struct Data(UnsafeCell<u32>);

// SAFETY: loom checks every access.
unsafe impl Sync for Data {}
// SAFETY: as above.
unsafe impl Send for Data {}

impl Data {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn write(&self, value: u32) {
        // SAFETY: loom checks that no other access is concurrent.
        self.0.with_mut(|data| unsafe { *data = value });
    }

    fn read(&self) -> u32 {
        // SAFETY: loom checks that no write is concurrent.
        self.0.with(|data| unsafe { *data })
    }
}

fn must_fail(model: impl Fn() + Sync + Send + 'static) {
    assert!(
        catch_unwind(AssertUnwindSafe(|| loom::model(model))).is_err(),
        "loom finds nothing wrong with a broken variant"
    );
}

#[test]
fn progress_carries_the_data_that_was_written_before_it() {
    loom::model(|| {
        let shared = Arc::new((Progress::default(), Data::new()));
        let writer = shared.clone();
        let thread = thread::spawn(move || {
            writer.1.write(7);
            writer.0.publish(1, 1);
        });
        if shared.0.has_reached(1, 1) {
            assert_eq!(shared.1.read(), 7);
        }
        thread.join().unwrap();
    });
}

#[test]
fn data_without_progress_is_a_race_that_loom_sees() {
    must_fail(|| {
        let data = Arc::new(Data::new());
        let writer = data.clone();
        let thread = thread::spawn(move || writer.write(7));
        data.read();
        thread.join().unwrap();
    });
}

/// A reader in call c-2 reads a bank; the writer reuses it in call c once the reader has stamped `rule`.
fn reuse(rule: u32) {
    let shared = Arc::new((Stamp::default(), Data::new()));
    let reader = shared.clone();
    let thread = thread::spawn(move || {
        reader.0.enter(1);
        reader.1.read();
        reader.0.enter(2);
    });
    if shared.0.has_entered(rule) {
        shared.1.write(3);
    }
    thread.join().unwrap();
}

#[test]
fn a_bank_is_reused_two_calls_later_when_its_reader_has_stamped_the_call_between() {
    loom::model(|| reuse(2));
}

#[test]
fn a_bank_is_reused_too_early_without_the_stamp_rule_and_loom_sees_it() {
    must_fail(|| reuse(1));
}

/// A sleeper with two queues, a publisher for each, and perhaps an abort: it must wake up whoever comes.
fn two_publishers(is_aborted: bool) {
    let shared = Arc::new((Doorbell::default(), [Progress::default(), Progress::default()], Abort::default()));
    let publishers: Vec<_> = (0..2)
        .map(|queue| {
            let shared = shared.clone();
            thread::spawn(move || {
                if is_aborted && queue == 1 {
                    shared.2.raise(Cause::Failed(1));
                } else {
                    shared.1[queue].publish(1, 1);
                }
                Doorbell::ring_all([&shared.0]);
            })
        })
        .collect();
    let is_over = |queue: usize| shared.1[queue].has_reached(1, 1) || shared.2.cause().is_some();
    for queue in 0..2 {
        while !is_over(queue) {
            shared.0.sleep(|| is_over(queue), None);
        }
    }
    publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
}

#[test]
fn no_wake_up_is_lost_with_two_queues_and_two_publishers() {
    loom::model(|| two_publishers(false));
}

#[test]
fn no_wake_up_is_lost_with_a_publisher_and_an_abort() {
    loom::model(|| two_publishers(true));
}

#[test]
fn a_sleep_with_a_deadline_returns_though_nobody_rings() {
    loom::model(|| {
        let doorbell = Doorbell::default();
        doorbell.sleep(|| false, Some(std::time::Instant::now()));
    });
}

/// The handshake of the doorbell as bare words: with the fences one of the two always sees the other.
fn handshake(has_fences: bool) {
    let words = Arc::new((AtomicU32::new(0), AtomicU32::new(0)));
    let publisher = words.clone();
    let fence = move || {
        if has_fences {
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
    };
    let thread = thread::spawn(move || {
        publisher.0.store(1, Ordering::Release);
        fence();
        publisher.1.load(Ordering::Relaxed)
    });
    words.1.store(1, Ordering::Relaxed);
    fence();
    let has_seen_progress = words.0.load(Ordering::Acquire);
    let has_seen_sleeper = thread.join().unwrap();
    assert!(has_seen_progress == 1 || has_seen_sleeper == 1, "both missed each other");
}

#[test]
fn the_fences_of_the_doorbell_are_enough() {
    loom::model(|| handshake(true));
}

#[test]
fn the_fences_of_the_doorbell_are_needed() {
    must_fail(|| handshake(false));
}

#[test]
fn after_an_abort_no_peer_touches_the_buffer_of_a_rank_that_has_returned() {
    loom::model(|| {
        let shared = Arc::new((Abort::default(), Activity::default(), Data::new()));
        let peer = shared.clone();
        let thread = thread::spawn(move || {
            peer.1.begin();
            if peer.0.cause().is_none() {
                peer.2.write(1);
            }
            peer.1.acknowledge();
        });
        shared.0.raise(Cause::Failed(0));
        while !shared.1.is_quiet() {
            thread::yield_now();
        }
        shared.2.write(2);
        thread.join().unwrap();
    });
}

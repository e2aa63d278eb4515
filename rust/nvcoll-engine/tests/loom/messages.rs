//! The stream of messages from one rank to another: frames whose places are used again, one acceptance at a time, chunks that both ends
//! copy, and the sleeper.
//!
//! A rank that has to wait gives up instead, as in `processes.rs`.

use std::sync::Arc;

use loom::sync::atomic::{fence, AtomicU32, Ordering};
use loom::thread;

use nvcoll_engine::sync::frames::{Frames, FRAMES};
use nvcoll_engine::sync::offers::{Acceptance, ChunkClaims, Side};
use nvcoll_engine::sync::{Doorbell, Progress};

use crate::{must_fail, Data};

/// Runs two sides of a stream at once.
fn on_both_ends<T: Send + Sync + 'static>(
    shared: T,
    sender: impl FnOnce(&T) + Send + 'static,
    receiver: impl FnOnce(&T),
) {
    let shared = Arc::new(shared);
    let other = shared.clone();
    let thread = thread::spawn(move || sender(&other));
    receiver(&shared);
    thread.join().unwrap();
}

/// One more frame than there are places, each with data of its own.
fn frames_are_used_again(writer_looks_for_room: bool, reader_takes_after_reading: bool) {
    let shared = (Frames::default(), [Data::new(), Data::new()]);
    on_both_ends(
        shared,
        move |(frames, data)| {
            for number in 0..=FRAMES as u64 {
                if writer_looks_for_room && number - frames.taken() >= FRAMES as u64 {
                    return;
                }
                data[number as usize % FRAMES].write(number as u32 + 1);
                frames.publish(number, [number, number]);
            }
        },
        move |(frames, data)| {
            for number in 0..FRAMES as u64 {
                if !frames.is_there(number) {
                    return;
                }
                if !reader_takes_after_reading {
                    frames.take(number + 1);
                }
                assert_eq!([0, 1].map(|at| frames.word(number, at)), [number; 2], "the words of another frame");
                assert_eq!(data[number as usize % FRAMES].read(), number as u32 + 1, "the data of another frame");
                frames.take(number + 1);
            }
        },
    );
}

#[test]
fn a_place_of_a_frame_is_used_again_when_the_reader_has_taken_it() {
    loom::model(|| frames_are_used_again(true, true));
    must_fail(|| frames_are_used_again(false, true));
    must_fail(|| frames_are_used_again(true, false));
}

fn one_acceptance_at_a_time(receiver_waits: bool) {
    on_both_ends(
        Acceptance::default(),
        |acceptance| {
            for count in 1..=2 {
                let Some(words) = acceptance.read(count) else { return };
                assert_eq!(words, [count * 10, count * 10 + 1], "words of two acceptances");
                acceptance.acknowledge(count);
            }
        },
        |acceptance| {
            for count in 1..=2 {
                if receiver_waits && !acceptance.is_free(count - 1) {
                    return;
                }
                acceptance.publish(count, [count * 10, count * 10 + 1]);
            }
        },
    );
}

#[test]
fn an_offer_is_accepted_when_the_sender_is_through_with_the_one_before() {
    loom::model(|| one_acceptance_at_a_time(true));
    must_fail(|| one_acceptance_at_a_time(false));
}

const CHUNKS: u32 = 2;

/// Copies chunks until none can be claimed, or `most` are copied; writes into the array of the receiver.
fn copy_chunks((claims, array): &(ChunkClaims, [Data; 2]), side: Side, most: u32, copies_first: bool) {
    for done in 1..=most {
        let Some(chunk) = claims.claim(1, CHUNKS) else { return };
        if !copies_first {
            claims.finish(side, 1, done);
        }
        array[chunk as usize].write(1);
        claims.finish(side, 1, done);
    }
}

fn opened() -> (ChunkClaims, [Data; 2]) {
    let claims = ChunkClaims::default();
    assert!(claims.open(1));
    (claims, [Data::new(), Data::new()])
}

fn both_ends_copy(copies_first: bool) {
    on_both_ends(
        opened(),
        move |shared| copy_chunks(shared, Side::Sender, CHUNKS, copies_first),
        |shared| {
            copy_chunks(shared, Side::Receiver, 1, true);
            if shared.0.are_done(1, CHUNKS) {
                assert!(shared.1.iter().all(|chunk| chunk.read() == 1), "a chunk was not copied");
            }
        },
    );
}

#[test]
fn a_message_that_both_ends_copy_is_whole_when_it_is_done() {
    loom::model(|| both_ends_copy(true));
    must_fail(|| both_ends_copy(false));
}

/// The receiver gives up, and its user writes the array.
fn one_end_closes(waits_for_claimed: bool) {
    on_both_ends(
        opened(),
        |shared| copy_chunks(shared, Side::Sender, CHUNKS, true),
        move |(claims, array)| {
            let (_, claimed) = claims.close();
            if waits_for_claimed && !claims.are_done(1, claimed) {
                return;
            }
            array.iter().for_each(|chunk| chunk.write(9));
        },
    );
}

#[test]
fn nobody_touches_an_array_after_its_stream_was_closed_and_the_claimed_chunks_are_done() {
    loom::model(|| one_end_closes(true));
    must_fail(|| one_end_closes(false));
}

fn sleeper_for_a_frame(publishes_first: bool) {
    on_both_ends(
        (Frames::default(), Doorbell::default()),
        move |(frames, bell)| {
            if publishes_first {
                frames.publish(0, [5]);
            }
            Doorbell::ring_all([bell]);
            if !publishes_first {
                frames.publish(0, [5]);
            }
        },
        |(frames, bell)| {
            while !frames.is_there(0) {
                bell.sleep(|| frames.is_there(0), None);
            }
            assert_eq!(frames.word(0, 0), 5);
        },
    );
}

#[test]
fn a_rank_that_sleeps_for_a_message_is_woken() {
    loom::model(|| sleeper_for_a_frame(true));
    must_fail(|| sleeper_for_a_frame(false));
}

/// Two threads of a rank sleep at one bell, on bare words: one gives up at once, the other sleeps until it is rung. In the broken variant
/// the first says that nobody sleeps any more.
fn two_sleepers_at_one_bell(counts: bool) {
    let begin = move |sleeping: &AtomicU32| match counts {
        true => _ = sleeping.fetch_add(1, Ordering::Relaxed),
        false => sleeping.store(1, Ordering::Relaxed),
    };
    let end = move |sleeping: &AtomicU32| match counts {
        true => _ = sleeping.fetch_sub(1, Ordering::Relaxed),
        false => sleeping.store(0, Ordering::Relaxed),
    };
    let shared = Arc::new((AtomicU32::new(0), AtomicU32::new(0), Progress::default()));
    let [one, other] = [shared.clone(), shared.clone()];
    let gives_up = thread::spawn(move || {
        let (sleeping, _, _) = &*one;
        begin(sleeping);
        end(sleeping);
    });
    let sleeps = thread::spawn(move || {
        let (sleeping, bell, progress) = &*other;
        let heard = bell.load(Ordering::Relaxed);
        begin(sleeping);
        fence(Ordering::SeqCst);
        if !progress.has_reached(1, 1) {
            while bell.load(Ordering::Relaxed) == heard {
                thread::yield_now();
            }
        }
        end(sleeping);
    });
    let (sleeping, bell, progress) = &*shared;
    progress.publish(1, 1);
    fence(Ordering::SeqCst);
    let is_rung = sleeping.load(Ordering::Relaxed) != 0;
    if is_rung {
        bell.fetch_add(1, Ordering::Relaxed);
    }
    gives_up.join().unwrap();
    sleeps.join().unwrap();
}

#[test]
fn a_thread_that_sleeps_at_a_bell_is_woken_though_another_has_left_it() {
    loom::model(|| two_sleepers_at_one_bell(true));
    must_fail(|| two_sleepers_at_one_bell(false));
}

//! What ranks share: progress, stamps and records, doorbells, the abort word, departures.

use std::sync::Arc;

use loom::sync::atomic::{fence, AtomicBool, AtomicU32, Ordering};
use loom::thread;

use nvcoll_engine::sync::{
    Abort, Activity, Cause, Departure, Doorbell, Posted, Progress, RecordLine, Stamp, TakenPlaces,
};

use crate::{must_fail, Data};

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

/// Progress as a bare word.
fn bare_progress(publish: Ordering, look: Ordering) {
    let shared = Arc::new((AtomicU32::new(0), Data::new()));
    let writer = shared.clone();
    let thread = thread::spawn(move || {
        writer.1.write(7);
        writer.0.store(1, publish);
    });
    if shared.0.load(look) == 1 {
        shared.1.read();
    }
    thread.join().unwrap();
}

#[test]
fn progress_needs_its_release_and_its_acquire() {
    loom::model(|| bare_progress(Ordering::Release, Ordering::Acquire));
    must_fail(|| bare_progress(Ordering::Relaxed, Ordering::Acquire));
    must_fail(|| bare_progress(Ordering::Release, Ordering::Relaxed));
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
        reader.0.enter(1, 0);
        reader.1.read();
        reader.0.enter(2, 0);
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
    let fenced = move || {
        if has_fences {
            fence(Ordering::SeqCst);
        }
    };
    let thread = thread::spawn(move || {
        publisher.0.store(1, Ordering::Release);
        fenced();
        publisher.1.load(Ordering::Relaxed)
    });
    words.1.store(1, Ordering::Relaxed);
    fenced();
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

/// Rank 0 publishes two tiles into two slots and one more into the first, which rank 1 has read if its word says so.
fn slots(waits_for_the_reader: bool) {
    let shared = Arc::new((Progress::default(), Progress::default(), [Data::new(), Data::new()]));
    let reader = shared.clone();
    let thread = thread::spawn(move || {
        for tile in 1..=2 {
            if !reader.0.has_reached(1, tile) {
                return;
            }
            reader.2[tile as usize % 2].read();
            reader.1.publish(1, tile);
        }
    });
    for tile in 1..=3 {
        if tile > 2 && waits_for_the_reader && !shared.1.has_reached(1, tile - 2) {
            break;
        }
        shared.2[tile as usize % 2].write(tile);
        shared.0.publish(1, tile);
    }
    thread.join().unwrap();
}

#[test]
fn a_slot_is_reused_two_tiles_later_when_its_reader_has_come_as_far() {
    loom::model(|| slots(true));
    must_fail(|| slots(false));
}

/// A record of call 1, read by a peer that saw the stamp; the record of call 3, in its place, under the stamp rule.
fn records(has_stamp_rule: bool) {
    let shared = Arc::new(([Stamp::default(), Stamp::default()], RecordLine::default()));
    let peer = shared.clone();
    let thread = thread::spawn(move || {
        if peer.0[0].has_entered(1) {
            let found = peer.1.read(1);
            assert!(found == [1; 8], "a torn record, or one of another call");
            assert!(peer.0[0].digest(1) == 1, "the digest of another call");
        }
        peer.0[1].enter(2, 0);
    });
    shared.1.write(1, &[1; 8]);
    shared.0[0].enter(1, 1);
    if !has_stamp_rule || shared.0[1].has_entered(2) {
        shared.1.write(3, &[3; 8]);
        shared.0[0].enter(3, 3);
    }
    thread.join().unwrap();
}

#[test]
fn a_record_is_whole_when_its_stamp_is_seen_and_its_place_is_reused_under_the_stamp_rule() {
    loom::model(|| records(true));
    must_fail(|| records(false));
}

/// Two postings, read meanwhile by somebody who waits for nothing. `has_one_writer`: each of two threads takes a place.
fn posting(has_one_writer: bool) {
    let shared = Arc::new(([(); 2].map(|()| Posted::<2>::default()), TakenPlaces::<2>::default()));
    let post = move |shared: &([Posted<2>; 2], TakenPlaces<2>), word: u64| {
        let at = shared.1.take().expect("two places, two threads");
        shared.0[if has_one_writer { at } else { 0 }].post(&[word; 2]);
    };
    let peer = shared.clone();
    let thread = thread::spawn(move || post(&peer, 1));
    post(&shared, 2);
    for posted in &shared.0 {
        if let Some([first, second]) = posted.read() {
            assert_eq!(first, second, "parts of two postings");
        }
    }
    thread.join().unwrap();
}

#[test]
fn a_posting_is_read_whole_or_not_at_all_while_its_place_has_one_writer() {
    loom::model(|| posting(true));
    must_fail(|| posting(false));
}

/// Two ranks write their records, stamp, ring, and look for each other: at least one must meet the other.
fn meeting(is_rung: bool) {
    let lines = Arc::new([(); 2].map(|()| (Stamp::default(), RecordLine::default(), Doorbell::default())));
    let enter_and_look = move |lines: &[(Stamp, RecordLine, Doorbell); 2], own: usize| {
        lines[own].1.write(1, &[own as u64; 8]);
        lines[own].0.enter(1, 0);
        if is_rung {
            Doorbell::ring_all(lines.iter().map(|line| &line.2));
        }
        let peer = 1 - own;
        let has_met = lines[peer].0.has_entered(1);
        assert!(!has_met || lines[peer].1.read(1) == [peer as u64; 8]);
        has_met
    };
    let other = lines.clone();
    let thread = thread::spawn(move || enter_and_look(&other, 1));
    let has_met = enter_and_look(&lines, 0);
    assert!(thread.join().unwrap() || has_met, "two ranks entered and neither saw the other");
}

#[test]
fn of_two_ranks_that_enter_one_meets_the_other() {
    loom::model(|| meeting(true));
    must_fail(|| meeting(false));
}

/// A sleeper whose publisher forgets to ring never wakes up.
#[test]
fn a_publisher_that_does_not_ring_leaves_the_sleeper_asleep_and_loom_sees_it() {
    must_fail(|| sleeper_and_departure(false));
}

/// A rank waits for a peer that returns from its program instead of entering.
fn sleeper_and_departure(rings: bool) {
    let shared = Arc::new((Doorbell::default(), Departure::default(), Stamp::default(), Data::new()));
    let peer = shared.clone();
    let thread = thread::spawn(move || {
        peer.3.write(1);
        peer.1.publish(0);
        if rings {
            Doorbell::ring_all([&peer.0]);
        }
    });
    let is_over = || shared.2.has_entered(1) || shared.1.is_before(1);
    while !is_over() {
        shared.0.sleep(is_over, None);
    }
    assert_eq!((shared.1.last(), shared.3.read()), (Some(0), 1));
    thread.join().unwrap();
}

#[test]
fn a_rank_that_waits_for_one_that_returned_wakes_up() {
    loom::model(|| sleeper_and_departure(true));
}

/// Which step of the end of a call is left out.
#[derive(Clone, Copy, PartialEq)]
enum Missing {
    Nothing,
    /// The rank does not look at the abort word before it begins.
    Look,
    /// The raiser does not wait until its peer is quiet.
    Wait,
    /// The peer acknowledges before its last access.
    Last,
}

/// A rank raises an abort and takes its buffer back; a peer that begins must not touch it any more.
fn abort_and_peer(missing: Missing) {
    let shared = Arc::new((Abort::default(), Activity::default(), Data::new()));
    let peer = shared.clone();
    let thread = thread::spawn(move || {
        peer.1.begin(1);
        let is_aborted = missing != Missing::Look && peer.0.cause().is_some();
        if missing == Missing::Last {
            peer.1.acknowledge();
        }
        if !is_aborted {
            peer.2.write(1);
            peer.1.finish();
        } else {
            peer.1.acknowledge();
        }
    });
    shared.0.raise(Cause::Failed(0));
    while missing != Missing::Wait && !shared.1.is_quiet() {
        thread::yield_now();
    }
    shared.2.write(2);
    thread.join().unwrap();
}

#[test]
fn after_an_abort_no_peer_touches_the_buffer_of_a_rank_that_has_returned() {
    loom::model(|| abort_and_peer(Missing::Nothing));
    for missing in [Missing::Look, Missing::Wait, Missing::Last] {
        must_fail(move || abort_and_peer(missing));
    }
}

/// One rank raises the abort, a second only sees it and takes its buffer back, a third may be beginning.
fn abort_seen_by_a_third(is_rung: bool) {
    let shared = Arc::new((Abort::default(), Activity::default(), Data::new(), Doorbell::default()));
    let (raiser, peer) = (shared.clone(), shared.clone());
    let raiser = thread::spawn(move || {
        raiser.0.raise(Cause::Failed(0));
    });
    let peer = thread::spawn(move || {
        peer.1.begin(1);
        if peer.0.cause().is_none() {
            peer.2.write(1);
        }
        peer.1.acknowledge();
    });
    if shared.0.cause().is_some() {
        if is_rung {
            Doorbell::ring_all([&shared.3]);
        }
        if shared.1.is_quiet() {
            shared.2.write(2);
        }
    }
    raiser.join().unwrap();
    peer.join().unwrap();
}

#[test]
fn a_rank_that_only_saw_the_abort_fences_before_it_looks_who_is_active() {
    loom::model(|| abort_seen_by_a_third(true));
    must_fail(|| abort_seen_by_a_third(false));
}

/// Whoever sees a cause, or raises second, sees what the first raiser wrote before: its record.
#[test]
fn a_cause_carries_what_its_raiser_wrote() {
    loom::model(|| {
        let shared = Arc::new((Abort::default(), Data::new()));
        let (first, second) = (shared.clone(), shared.clone());
        let first = thread::spawn(move || {
            first.1.write(1);
            first.0.raise(Cause::Failed(0));
        });
        let second = thread::spawn(move || {
            if second.0.raise(Cause::TimedOut(1)) == Cause::Failed(0) {
                second.1.read();
            }
        });
        if shared.0.cause() == Some(Cause::Failed(0)) {
            shared.1.read();
        }
        first.join().unwrap();
        second.join().unwrap();
    });
}

#[test]
fn of_two_causes_every_rank_sees_the_same_one() {
    loom::model(|| {
        let shared = Arc::new(Abort::default());
        let other = shared.clone();
        let thread = thread::spawn(move || other.raise(Cause::TimedOut(1)));
        let (mine, theirs) = (shared.raise(Cause::Failed(0)), thread.join().unwrap());
        assert!(mine == theirs && shared.cause() == Some(mine));
    });
}

/// A sleeper with a deadline and a publisher: it ends, whether it hears the bell or not.
#[test]
fn a_deadline_and_a_publisher_race_and_the_sleeper_goes_on_either_way() {
    loom::model(|| {
        let shared = Arc::new((Doorbell::default(), Progress::default(), Data::new()));
        let publisher = shared.clone();
        let thread = thread::spawn(move || {
            publisher.2.write(1);
            publisher.1.publish(1, 1);
            Doorbell::ring_all([&publisher.0]);
        });
        shared.0.sleep(|| shared.1.has_reached(1, 1), Some(std::time::Instant::now()));
        if shared.1.has_reached(1, 1) {
            shared.2.read();
        }
        thread.join().unwrap();
    });
}

/// A rank is through a call that nobody leaves before everybody has entered it; the other gives up in it, though both may
/// have entered. Who gave up must find out that its peer is through: it waits until all are quiet, and then looks.
fn giving_up_beside_one_that_is_through(waits_until_quiet: bool) {
    let shared = Arc::new((Abort::default(), Activity::default(), [Stamp::default(), Stamp::default()]));
    let peer = shared.clone();
    let thread = thread::spawn(move || {
        peer.1.begin(1);
        if peer.0.cause().is_some() {
            peer.1.acknowledge();
            return false;
        }
        peer.2[1].enter(1, 0);
        let is_through = peer.2[0].has_entered(1);
        if is_through {
            peer.1.finish();
        } else {
            peer.1.acknowledge();
        }
        is_through
    });
    shared.2[0].enter(1, 0);
    shared.0.raise(Cause::TimedOut(0));
    while waits_until_quiet && !shared.1.is_quiet() {
        thread::yield_now();
    }
    let have_all_entered = shared.2[1].has_entered(1);
    assert!(!thread.join().unwrap() || have_all_entered, "a peer is through, and this rank does not know it");
}

#[test]
fn a_rank_that_gives_up_in_a_split_knows_whether_another_is_through() {
    loom::model(|| giving_up_beside_one_that_is_through(true));
    must_fail(|| giving_up_beside_one_that_is_through(false));
}

/// A rank completes call 1 on a copy and writes the result to its array; a user who sees that may pass the array to a rank that
/// enters the call later.
fn late_comer(looks_for_copies: bool, back: Ordering) {
    let shared = Arc::new((Stamp::default(), Activity::default(), AtomicBool::new(false), Data::new()));
    let early = shared.clone();
    let thread = thread::spawn(move || {
        early.1.begin(1);
        early.2.store(true, Ordering::Relaxed);
        early.0.enter(1, 0);
        early.1.finish();
        early.3.write(1);
        early.2.store(false, back);
    });
    let is_done = shared.0.has_entered(1) && shared.1.is_quiet();
    if is_done && !(looks_for_copies && shared.2.load(Ordering::Acquire)) {
        shared.3.write(2);
    }
    thread.join().unwrap();
}

#[test]
fn a_rank_with_results_in_copies_is_not_through() {
    loom::model(|| late_comer(true, Ordering::Release));
    must_fail(|| late_comer(false, Ordering::Release));
    must_fail(|| late_comer(true, Ordering::Relaxed));
}

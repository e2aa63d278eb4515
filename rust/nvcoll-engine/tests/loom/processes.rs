//! What differs when the writer of a word is another process: it may end at any step, and agreements stand in records.
//!
//! A rank that has to wait gives up instead: a wait that ends is an execution in which the first look succeeds.

use std::sync::Arc;
use std::time::Instant;

use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;

use nvcoll_engine::sync::life::LifeState;
use nvcoll_engine::sync::record::{CALLS, REACHABLE, WORDS};
use nvcoll_engine::sync::rendezvous::{self, RendezvousPhase};
use nvcoll_engine::sync::wanted::{GuardBell, Wanted};
use nvcoll_engine::sync::{
    Abort, Activity, BatchRecords, Cause, Deaths, Departure, Doorbell, Life, Pair, Progress, RecordLine, Rendezvous,
    Stamp,
};

use crate::{must_fail, Data};

/// The words of one rank that say its calls.
#[derive(Default)]
struct Said {
    stamp: Stamp,
    record: RecordLine,
    batch: BatchRecords,
}

impl Said {
    fn say(&self, call: u32, record: [u64; WORDS]) {
        self.record.write(call, &record);
        self.stamp.enter(call, 0);
    }

    fn hear(&self, call: u32) -> Option<[u64; WORDS]> {
        self.stamp.has_entered(call).then(|| self.record.read(call))
    }
}

/// Runs a program on all ranks at once. Each rank gets its number and the words of all.
fn on_ranks<const N: usize>(program: impl Fn(usize, &[Said; N]) + Copy + Send + Sync + 'static) {
    let ranks = Arc::new(std::array::from_fn(|_| Said::default()));
    let spawn = |rank: usize| {
        let ranks = ranks.clone();
        thread::spawn(move || program(rank, &ranks))
    };
    let threads: Vec<_> = (1..N).map(spawn).collect();
    program(0, &ranks);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Ranks agree in call 1 whether to run mapped. Who offers nothing does not look. In calls 2 and 3 each says the
/// opposite; call 3 has the same place for the record.
fn agreement<const N: usize>(offers: [bool; N], has_stamp_rule: bool) {
    on_ranks(move |own, ranks: &[Said; N]| {
        let record = |offer: bool| std::array::from_fn(|at| if at == CALLS && offer { 1 | REACHABLE } else { 1 });
        ranks[own].say(1, record(offers[own]));
        if offers[own] {
            let mut is_mapped = true;
            for (rank, offer) in ranks.iter().zip(offers) {
                let Some(heard) = rank.hear(1) else { return };
                assert!(heard == record(offer), "a torn record, or one of another call");
                is_mapped &= heard[CALLS] & REACHABLE != 0;
            }
            assert_eq!(is_mapped, offers == [true; N], "ranks choose different paths");
        }
        for call in 2..=3 {
            if has_stamp_rule && !ranks.iter().all(|rank| rank.stamp.has_entered(call - 1)) {
                return;
            }
            ranks[own].say(call, record(!offers[own]));
        }
    });
}

#[test]
fn ranks_that_agree_on_a_path_choose_alike_though_one_leaves_and_says_the_opposite() {
    for offers in [[true, true], [true, false]] {
        loom::model(move || agreement(offers, true));
        must_fail(move || agreement(offers, false));
    }
    loom::model(|| agreement([true, true, false], true));
    must_fail(|| agreement([true, true, false], false));
}

/// Each rank tells two words in call 1, in which nobody leaves before everybody has entered, and others in calls 2
/// and 3.
fn words_of_all(reads_before_the_next_call: bool) {
    on_ranks(move |own, ranks: &[Said; 2]| {
        let (mine, peers) = (&ranks[own], &ranks[1 - own]);
        let words = |rank: usize, call: u64| [0, 0, 0, rank as u64, call, 0, 0, 1];
        let read = || assert!(peers.hear(1) == Some(words(1 - own, 1)), "the words of another call");
        mine.say(1, words(own, 1));
        if !peers.stamp.has_entered(1) {
            return;
        }
        if reads_before_the_next_call {
            read();
        }
        mine.say(2, words(own, 2));
        if !reads_before_the_next_call {
            read();
        }
        if peers.stamp.has_entered(2) {
            mine.say(3, words(own, 3));
        }
    });
}

#[test]
fn the_words_of_a_split_are_read_before_the_next_call() {
    loom::model(|| words_of_all(true));
    must_fail(|| words_of_all(false));
}

/// Rank 0 runs a pass in call 1, another in call 2, and in call 3 the first again or one more; rank 1 reads a table.
fn batch_table(reader_looks_in: u32, second: u64, has_stamp_rule: bool) {
    on_ranks(move |own, ranks: &[Said; 2]| {
        let (mine, peers) = (&ranks[own], &ranks[1 - own]);
        let records = |pass: u64| [[pass; WORDS], [pass + 10; WORDS]].into_iter();
        if own == 1 {
            let pass = if reader_looks_in == 1 { 1 } else { second };
            (1..=reader_looks_in.min(2)).for_each(|call| mine.stamp.enter(call, 0));
            if peers.stamp.has_entered(reader_looks_in) {
                assert!(peers.batch.read(reader_looks_in, 2).eq(records(pass)), "records of another pass");
            }
            mine.stamp.enter(2, 0);
            return;
        }
        for (call, pass) in [(1, 1), (2, 3), (3, second)] {
            if call > 1 && has_stamp_rule && !peers.stamp.has_entered(call - 1) {
                return;
            }
            mine.batch.write(call, pass, records(pass));
            mine.stamp.enter(call, 0);
        }
    });
}

#[test]
fn a_batch_table_is_reused_under_the_stamp_rule_and_found_in_place_by_the_same_batch() {
    loom::model(|| batch_table(1, 2, true));
    loom::model(|| batch_table(3, 2, true));
    loom::model(|| batch_table(3, 1, true));
    must_fail(|| batch_table(1, 2, false));
}

/// The peer of a rank that waits for it, and the system, which says that the peer's process has ended.
#[derive(Default)]
struct Peer {
    progress: Progress,
    departure: Departure,
    activity: Activity,
    abort: Abort,
    doorbell: Doorbell,
    has_ended: AtomicBool,
}

impl Peer {
    /// Ends the process: its words change no more.
    fn end(&self) {
        // Release: the system has closed the connection after all that the process did.
        self.has_ended.store(true, Ordering::Release);
    }

    fn is_gone(&self) -> bool {
        // Acquire: the system says so.
        self.has_ended.load(Ordering::Acquire)
    }

    /// Says why the peer will not enter `call`.
    fn who_left(&self, call: u32) -> Option<Cause> {
        if self.departure.is_before(call) {
            return Some(Cause::Returned(Pair { ranks: [1, 0], call }));
        }
        (self.is_gone() && self.departure.last().is_none()).then_some(Cause::Gone(1, None))
    }
}

/// A peer does its part of call 1, departs and ends; a rank that waits in that call must not take it for lost.
fn orderly_end(looks_again: bool) {
    let peer = Arc::new(Peer::default());
    let other = peer.clone();
    let thread = thread::spawn(move || {
        other.progress.publish(1, 1);
        other.departure.publish(1);
        other.end();
    });
    if !peer.progress.has_reached(1, 1) {
        let is_lost = match looks_again {
            true => peer.who_left(1).is_some(),
            false => peer.departure.last().is_none() && peer.is_gone(),
        };
        assert!(!is_lost, "a rank that departed is taken for lost");
    }
    thread.join().unwrap();
}

#[test]
fn a_process_that_departs_and_ends_is_not_lost() {
    loom::model(|| orderly_end(true));
    must_fail(|| orderly_end(false));
}

/// What a rank that waits leaves out.
#[derive(Clone, Copy, PartialEq)]
enum Omission {
    Nothing,
    /// It looks for departures before it says that it sleeps, and not again.
    SecondLook,
    /// It sleeps without a limit.
    Limit,
}

/// A rank waits for one that departs, or ends without a word, which rings nobody; and a third may raise an abort.
fn wait_for_one_that_leaves(departs: bool, third_aborts: bool, omission: Omission) {
    let peer = Arc::new(Peer::default());
    let (leaver, aborter) = (peer.clone(), peer.clone());
    let leaver = thread::spawn(move || {
        if departs {
            leaver.departure.publish(0);
            Doorbell::ring_all([&leaver.doorbell]);
        } else {
            leaver.end();
        }
    });
    let aborter = third_aborts.then(|| {
        thread::spawn(move || {
            aborter.abort.raise(Cause::TimedOut(2));
            Doorbell::ring_all([&aborter.doorbell]);
        })
    });
    let cause = loop {
        if let Some(cause) = peer.abort.cause() {
            break cause;
        }
        if let Some(cause) = peer.who_left(1) {
            break peer.abort.raise(cause);
        }
        let has_news = || {
            let is_seen = omission != Omission::SecondLook && peer.who_left(1).is_some();
            is_seen || peer.abort.cause().is_some()
        };
        let limit = (!departs && omission != Omission::Limit).then(Instant::now);
        peer.doorbell.sleep(has_news, limit);
        thread::yield_now();
    };
    leaver.join().unwrap();
    aborter.map(|thread| thread.join().unwrap());
    assert_eq!(peer.abort.cause(), Some(cause), "ranks report different causes");
}

#[test]
fn a_rank_that_waits_sees_a_departure_or_an_abort_and_all_report_one_cause() {
    loom::model(|| wait_for_one_that_leaves(true, false, Omission::Nothing));
    loom::model(|| wait_for_one_that_leaves(true, true, Omission::Nothing));
    must_fail(|| wait_for_one_that_leaves(true, false, Omission::SecondLook));
}

#[test]
fn a_process_that_ends_rings_nobody_and_is_missed_because_sleeps_have_a_limit() {
    loom::model(|| wait_for_one_that_leaves(false, false, Omission::Nothing));
    loom::model(|| wait_for_one_that_leaves(false, true, Omission::Nothing));
    must_fail(|| wait_for_one_that_leaves(false, false, Omission::Limit));
}

/// What a survivor leaves out before it takes its buffer back.
#[derive(Clone, Copy, PartialEq)]
enum Trust {
    Nothing,
    /// It takes everybody for quiet as soon as it knows the cause.
    Cause,
    /// It waits for the dead rank to say that it is quiet.
    LastWords,
}

/// A rank ends inside a call, and stays active for ever. One survivor finds out, the other may be beginning or have found out
/// too. The first takes its buffer back when each of them is quiet or gone.
fn death_in_a_call(trust: Trust) {
    let shared = Arc::new((Peer::default(), Activity::default(), Data::new(), Data::new()));
    let (dead, other) = (shared.clone(), shared.clone());
    let dead = thread::spawn(move || {
        dead.0.activity.begin(1);
        if dead.0.abort.cause().is_none() {
            dead.2.write(1);
        }
        dead.0.end();
    });
    let other = thread::spawn(move || {
        other.1.begin(1);
        if other.0.abort.cause().is_none() {
            other.3.write(1);
            if let Some(cause) = other.0.who_left(1) {
                other.0.abort.raise(cause);
            }
        }
        other.1.acknowledge();
    });
    let (peer, activity, ..) = &*shared;
    let cause = peer.abort.cause().or_else(|| peer.who_left(1).map(|cause| peer.abort.raise(cause)));
    if let Some(cause) = cause {
        assert_eq!(cause, Cause::Gone(1, None));
        Doorbell::ring_all([&peer.doorbell]);
        let is_gone = || trust != Trust::LastWords && peer.is_gone();
        while trust != Trust::Cause && !((peer.activity.is_quiet() || is_gone()) && activity.is_quiet()) {
            thread::yield_now();
        }
        shared.2.write(2);
        shared.3.write(2);
    }
    dead.join().unwrap();
    other.join().unwrap();
}

#[test]
fn survivors_of_a_death_take_their_buffers_back_when_everybody_is_quiet_or_gone() {
    loom::model(|| death_in_a_call(Trust::Nothing));
    for trust in [Trust::Cause, Trust::LastWords] {
        must_fail(move || death_in_a_call(trust));
    }
}

/// A process departs and ends. The guard of a peer that sees the mark of the kernel must not take it for lost.
fn departure_before_the_mark(looks_at_mark_first: bool) {
    let shared = Arc::new((Life::default(), Departure::default()));
    let other = shared.clone();
    let thread = thread::spawn(move || {
        other.1.publish(1);
        other.0.end();
    });
    let (life, departure) = &*shared;
    let early = departure.last().is_some();
    if life.state().0 == LifeState::Ended {
        let has_departed = if looks_at_mark_first { departure.last().is_some() } else { early };
        assert!(has_departed, "a rank that departed is taken for lost");
    }
    thread.join().unwrap();
}

/// What the guard of a survivor, or the survivor, leaves out.
#[derive(Clone, Copy, PartialEq)]
enum Unguarded {
    Nothing,
    /// The guard rings before it notes the end.
    NoteFirst,
    /// The survivor takes its buffer back as soon as the end is noted.
    Over,
}

/// A process has ended, and one of its threads still writes to the buffer of a survivor. The guard of the survivor notes the end and
/// rings, and notes that the thread has stopped if the kernel says so. The survivor sleeps without a limit until it sees the end.
fn death_seen_by_a_guard(left_out: Unguarded) {
    let shared = Arc::new((Doorbell::default(), Deaths::of_ranks(2), Data::new(), AtomicBool::new(false)));
    let (dying, guard) = (shared.clone(), shared.clone());
    let dying = thread::spawn(move || {
        dying.2.write(1);
        // Release: the kernel says that the thread has stopped after all that it did.
        dying.3.store(true, Ordering::Release);
    });
    let guard = thread::spawn(move || {
        let (doorbell, deaths, _, has_stopped) = &*guard;
        if left_out == Unguarded::NoteFirst {
            Doorbell::ring_all([doorbell]);
        }
        deaths.note(1, None, false);
        if left_out != Unguarded::NoteFirst {
            Doorbell::ring_all([doorbell]);
        }
        // Acquire: the guard asks the kernel.
        if has_stopped.load(Ordering::Acquire) {
            deaths.note_over(1);
        }
    });
    let (doorbell, deaths, buffer, _) = &*shared;
    if !deaths.is_any() {
        doorbell.sleep(|| deaths.is_any(), None);
    }
    if deaths.is_over(1) || (left_out == Unguarded::Over && deaths.end_of(1).is_some()) {
        buffer.write(2);
    }
    [dying, guard].into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_guard_that_notes_an_end_and_then_rings_wakes_a_sleeper_whose_buffer_nobody_touches_any_more() {
    loom::model(|| death_seen_by_a_guard(Unguarded::Nothing));
    must_fail(|| death_seen_by_a_guard(Unguarded::NoteFirst));
    must_fail(|| death_seen_by_a_guard(Unguarded::Over));
    loom::model(|| departure_before_the_mark(true));
    must_fail(|| departure_before_the_mark(false));
}

/// A rank publishes two states one after the other, of two words each; a peer reads one of them, or neither.
fn published_in_two_words(is_taken_back_first: bool) {
    let state =
        |tag: u64| rendezvous::RendezvousState { tag, phase: RendezvousPhase::Ready, attempt: tag as u32, done: 0 };
    let place = Arc::new((Rendezvous::default(), [AtomicU64::new(0), AtomicU64::new(0)]));
    let peer = place.clone();
    let thread = thread::spawn(move || {
        for tag in [1, 2] {
            match is_taken_back_first {
                true => peer.0.publish(state(tag)),
                false => {
                    peer.1[0].store(tag, Ordering::Relaxed);
                    peer.1[1].store(tag, Ordering::Release);
                }
            }
        }
    });
    let (tag, attempt) = match is_taken_back_first {
        true => match place.0.read() {
            rendezvous::RendezvousState { phase: RendezvousPhase::Idle, .. } => (0, 0),
            rendezvous::RendezvousState { tag, attempt, .. } => (tag, u64::from(attempt)),
        },
        false => {
            let word = place.1[1].load(Ordering::Acquire);
            let tag = place.1[0].load(Ordering::Relaxed);
            let is_whole = place.1[1].load(Ordering::Relaxed) == word;
            if is_whole && word != 0 {
                (tag, word)
            } else {
                (0, 0)
            }
        }
    };
    assert_eq!(tag, attempt, "the list of one rendezvous with the number of another");
    thread.join().unwrap();
}

/// The steps of a rendezvous are tested with whole words in `sync/rendezvous.rs`: with all their loads they are too many for a model.
#[test]
fn a_rank_hears_the_list_of_ranks_with_the_number_that_belongs_to_it() {
    loom::model(|| published_in_two_words(true));
    must_fail(|| published_in_two_words(false));
}

/// A rank asks for a region while the guard of its owner is about to sleep. A guard that would not look again sleeps forever, which loom reports.
#[test]
fn a_guard_that_sleeps_hears_the_bell() {
    loom::model(|| {
        let shared = Arc::new((Wanted::default(), GuardBell::default()));
        let asking = shared.clone();
        let rank = thread::spawn(move || {
            asking.0.ask(1, 7);
            asking.1.ring();
        });
        let (wanted, bell) = &*shared;
        let question = loop {
            let heard = bell.heard();
            if let Some(question) = wanted.read() {
                break question;
            }
            while bell.heard() == heard {
                thread::yield_now();
            }
        };
        assert_eq!((question.owner(), question.region()), (1, 7));
        rank.join().unwrap();
    });
}

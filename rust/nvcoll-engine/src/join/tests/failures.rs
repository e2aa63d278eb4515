//! Joins that fail, and what each rank says about it.

use std::slice::from_ref;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::join::failure::JoinFailure;
use crate::join::patience::JoinWait;
use crate::join::socket::{own_user, PacketSocket, PeerProcess, Receipt};
use crate::join::wire::{head, open, Hello, PacketKind, RefusalBody};

/// Returns the words of the failure of each rank.
fn words(all: &[JobSettings]) -> Vec<String> {
    join_all(all).into_iter().map(|outcome| outcome.unwrap_err().to_string()).collect()
}

/// Calls rank 0 of a job as its ranks do, and says hello.
fn hello_of(settings: &JobSettings, hello: &Hello) -> PacketSocket {
    let name = settings.rendezvous(own_user());
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        match PacketSocket::connect(&name) {
            Ok(socket) => {
                socket.send(&hello.packet(PacketKind::Hello), &[]).unwrap();
                return socket;
            }
            Err(error) => assert!(Instant::now() < end, "rank 0 does not listen: {error}"),
        }
        thread::yield_now();
    }
}

/// Runs the join of ranks beside a test that acts as another one; returns the words of their failures.
fn words_beside(all: &[JobSettings], act: impl FnOnce()) -> Vec<String> {
    thread::scope(|scope| {
        let ranks = scope.spawn(|| words(all));
        act();
        ranks.join().unwrap()
    })
}

#[test]
fn ranks_that_do_not_come_are_named_on_all_others() {
    let of = |rank| settings("absent", rank, 5);
    for late in [0, 1, 3] {
        let all = [0, 1, 3].map(|rank| if rank == late { within(1.0, of(rank)) } else { of(rank) });
        for (rank, words) in [0, 1, 3].into_iter().zip(words(&all)) {
            let job = &all[0].job;
            assert_eq!(
                words,
                format!(
                    "joining job {job:?} as rank {rank} of 5 timed out after 1 s: ranks 2 and 4 have not come: see whether each was \
                     started on this machine"
                )
            );
        }
    }
}

#[test]
fn a_rank_that_waits_for_rank_0_says_where_it_may_be() {
    let words = words(&[within(0.05, settings("no zero", 1, 2))]);
    assert!(
        words[0].contains("rank 0 has not come, or is on another host or in another network namespace"),
        "{words:?}"
    );
}

#[test]
fn two_processes_with_one_rank_end_the_join_of_all() {
    let all = [0, 2, 2].map(|rank| settings("twice", rank, 4));
    for words in words(&all) {
        let expected = format!("processes {0} and {0} both are rank 2 of job", id());
        assert!(words.starts_with(&expected) && words.ends_with("every job a name of its own"), "{words}");
    }
}

/// Returns the reason that rank 0 tells a rank whose part the test plays.
fn refusal(socket: &PacketSocket) -> JoinFailure {
    let (mut room, end) = ([0; 1024], Instant::now() + Duration::from_secs(30));
    while Instant::now() < end {
        if let Receipt::Packet(bytes) = socket.receive(&mut room).unwrap() {
            let Ok((PacketKind::Refusal, fields)) = open(&room[..bytes]) else { panic!("expected a refusal") };
            return RefusalBody::read(fields).and_then(JoinFailure::read).unwrap();
        }
        thread::yield_now();
    }
    panic!("rank 0 sent nothing");
}

#[test]
fn world_sizes_that_differ_end_the_join_of_all() {
    let words = words_beside(&[settings("sizes", 0, 3)], || {
        let rank = settings("sizes", 1, 3);
        let socket = hello_of(&rank, &rank.hello([0, 0], Vec::new()));
        let words = join(&settings("sizes", 2, 4)).unwrap_err().to_string();
        assert!(words.contains("rank 2 of job") && words.contains("has world size 4, rank 0 has 3: pass"), "{words}");
        assert_eq!(refusal(&socket), JoinFailure::WorldSize { rank: 2, found: 4, expected: 3 });
    });
    assert!(words[0].contains("has world size 4, rank 0 has 3: pass"), "{words:?}");
}

#[test]
fn ranks_without_the_token_are_turned_away_and_the_job_joins_without_them() {
    let with = |rank, token| JobSettings { token, ..settings("token", rank, 2) };
    let (rank_zero, right) = (with(0, Some([1; 32])), with(1, Some([1; 32])));
    thread::scope(|scope| {
        let rank_zero = scope.spawn(|| join(&rank_zero));
        let words = |token| join(&with(1, token)).unwrap_err().to_string();
        assert!(words(Some([2; 32])).contains("another token than rank 0: pass the same to every rank"));
        assert!(words(None).contains("has a token, rank 1 has none"));
        check_that_all_can_talk(&[join(&right).unwrap(), rank_zero.join().unwrap().unwrap()]);
    });
    let words = words_beside(&[within(1.0, with(0, None))], || {
        let words = join(&with(1, Some([2; 32]))).unwrap_err().to_string();
        assert!(words.contains("has a token, rank 0 has none"), "{words}");
    });
    assert!(
        words[0].contains("rank 1 has not come (rank 0 turned away 1 connection with another token): see"),
        "{words:?}"
    );
}

#[test]
fn a_second_rank_0_names_the_first() {
    let (first, rank) = (settings("second", 0, 2), settings("second", 1, 2));
    thread::scope(|scope| {
        let first_mesh = scope.spawn(|| join(&first));
        let end = Instant::now() + Duration::from_secs(30);
        while PacketSocket::connect(&first.rendezvous(own_user())).is_err() {
            assert!(Instant::now() < end, "rank 0 does not listen");
        }
        let error = join(&first).unwrap_err().to_string();
        assert!(error.starts_with(&format!("process {} of user {} is rank 0 of a job", id(), own_user())), "{error}");
        check_that_all_can_talk(&[join(&rank).unwrap(), first_mesh.join().unwrap().unwrap()]);
    });
}

#[test]
fn a_rank_of_another_version_is_told_the_version_of_rank_0() {
    let rank = settings("version", 1, 2);
    let listener = PacketSocket::listen(Some(&rank.rendezvous(own_user()))).unwrap();
    let words = words_beside(&[rank], || {
        let mut packet = head(PacketKind::Refusal);
        packet[16..24].copy_from_slice(b"99.0.0\0\0");
        accept(&listener).send(&packet, &[]).unwrap();
    });
    assert!(words[0].contains("has nvcoll 99.0.0, rank 1 has 0."), "{words:?}");
}

/// Accepts a connection and reads its hello.
fn accept(listener: &PacketSocket) -> PacketSocket {
    let end = Instant::now() + Duration::from_secs(30);
    let mut socket = None;
    while Instant::now() < end {
        socket = socket.or_else(|| listener.accept().unwrap());
        let receipt = socket.as_ref().map(|socket| socket.receive(&mut [0; 1024]).unwrap());
        if let Some(Receipt::Packet(_)) = receipt {
            return socket.unwrap();
        }
        thread::yield_now();
    }
    panic!("nobody came");
}

#[test]
fn a_rank_that_leaves_ends_the_join_of_all() {
    let words = words_beside(&[settings("leaves", 0, 4)], || {
        let ranks = [1, 3].map(|rank| settings("leaves", rank, 4));
        let [staying, leaving] = ranks.map(|rank| hello_of(&rank, &rank.hello([0, 0], Vec::new())));
        drop(leaving);
        assert_eq!(refusal(&staying), JoinFailure::Left { rank: 3 });
    });
    assert!(words[0].starts_with("rank 3 left while job"), "{words:?}");
}

#[test]
fn a_rank_that_comes_and_then_is_silent_is_named_at_the_deadline() {
    let of = |rank| settings("silent", rank, 4);
    for late in [1, 2] {
        let all = [of(0), of(1), of(2)].map(|one| if one.rank == late { within(1.0, one) } else { one });
        let words = words_beside(&all, || {
            let socket = hello_of(&of(3), &of(3).hello([0, 0], Vec::new()));
            let end = Instant::now() + Duration::from_secs(30);
            while !socket.has_ended() && Instant::now() < end {
                thread::sleep(Duration::from_millis(1));
            }
        });
        let expected = format!("timed out after 1 s: all ranks came, but rank {late} got no answer from rank 3: see");
        words.iter().for_each(|words| assert!(words.contains(&expected), "{words}"));
    }
}

#[test]
fn an_interrupted_rank_ends_the_join_of_all() {
    for interrupted in [0, 1] {
        let (of, have_all_come) = (|rank| settings("interrupted", rank, 4), AtomicBool::new(false));
        let join = |settings: JobSettings| {
            // Relaxed: the flag says nothing about other memory.
            let mut wish = || settings.rank == interrupted && have_all_come.load(Ordering::Relaxed);
            Mesh::join(&settings, &mut wish).unwrap_err()
        };
        thread::scope(|scope| {
            let ranks = [0, 1, 2].map(|rank| scope.spawn(move || join(of(rank))));
            let last = hello_of(&of(3), &of(3).hello([0, 0], Vec::new()));
            let end = Instant::now() + Duration::from_secs(30);
            while last.receive(&mut [0; 1024]).unwrap() == Receipt::Nothing && Instant::now() < end {
                thread::yield_now();
            }
            // Relaxed: as above.
            have_all_come.store(true, Ordering::Relaxed);
            for (rank, thread) in (0..).zip(ranks) {
                match thread.join().unwrap() {
                    Error::Interrupted => assert_eq!(rank, interrupted),
                    error => assert!(error.to_string().contains("it was interrupted"), "rank {rank}: {error}"),
                }
            }
        });
    }
}

#[test]
fn a_rank_0_that_ends_is_noticed_and_one_that_did_not_read_the_hello_is_called_again() {
    let (rank_zero, rank) = (settings("ends", 0, 2), settings("ends", 1, 2));
    let name = rank_zero.rendezvous(own_user());
    let listener = PacketSocket::listen(Some(&name)).unwrap();
    let words = words_beside(from_ref(&rank), || drop(accept(&listener)));
    assert!(words[0].starts_with("rank 0 left while job"), "{words:?}");
    thread::scope(|scope| {
        let rank = scope.spawn(|| join(&rank));
        let end = Instant::now() + Duration::from_secs(30);
        while listener.accept().unwrap().is_none() {
            assert!(Instant::now() < end, "nobody came");
        }
        drop(listener);
        check_that_all_can_talk(&[join(&rank_zero).unwrap(), rank.join().unwrap().unwrap()]);
    });
}

#[test]
fn a_rank_does_not_say_hello_to_a_process_of_another_user() {
    // The kernel says the truth about this process, which the rank expects to be of the next user.
    let (rank, other) = (settings("user", 1, 2), own_user() + 1);
    let listener = PacketSocket::listen(Some(&rank.rendezvous(other))).unwrap();
    let mut never = || false;
    let failure = with_others::join(&rank, other, &mut JoinWait::new(rank.deadline, &mut never)).err();
    let found = PeerProcess { process: id(), user: own_user() };
    assert_eq!(failure, Some(JoinFailure::OtherUser(found)));
    let socket = listener.accept().unwrap().unwrap();
    assert_eq!(socket.receive(&mut [0; 1024]).unwrap(), Receipt::Ended, "no hello");
    let words = failure.unwrap().error(&rank).to_string();
    assert!(words.starts_with(&format!("process {} of user {} waits for the ranks", id(), own_user())), "{words}");
}

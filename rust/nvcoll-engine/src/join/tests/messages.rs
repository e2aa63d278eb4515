//! Messages between ranks that have joined.

use std::fs::Metadata;
use std::io::{pipe, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use super::*;

#[test]
fn messages_are_received_by_key_in_the_order_of_each_key() {
    let meshes = job("keys", 2);
    for word in 0..30 {
        send(&meshes[0], 1, word % 3, &[word]).unwrap();
    }
    for key in [2, 0, 1] {
        let received: Vec<u64> = (0..10).flat_map(|_| receive(&meshes[1], 0, key).unwrap()).collect();
        assert_eq!(received, (0..10).map(|nth| nth * 3 + key).collect::<Vec<_>>());
    }
}

#[test]
fn a_key_is_all_of_its_words() {
    let meshes = job("words of keys", 2);
    let keys = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [u64::MAX, 0, 1]];
    for (key, word) in keys.into_iter().zip([0, 1, 2, 3]) {
        meshes[0].send(1, key, &[word], &[], watchdog(), &mut || false).unwrap();
    }
    for (key, word) in keys.into_iter().zip([0, 1, 2, 3]).rev() {
        assert_eq!(meshes[1].receive(0, key, watchdog(), &mut || false).unwrap().words, [word]);
    }
}

#[test]
fn threads_that_ask_at_once_each_get_what_they_ask_for() {
    let meshes = job("threads", 2);
    thread::scope(|scope| {
        for key in 0..8 {
            let meshes = &meshes;
            scope.spawn(move || {
                for word in 0..200 {
                    assert_eq!(receive(&meshes[1], 0, key).unwrap(), [word, key]);
                }
            });
            scope.spawn(move || (0..200).for_each(|word| send(&meshes[0], 1, key, &[word, key]).unwrap()));
        }
    });
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

#[test]
fn eight_descriptors_arrive_in_order_beside_sixty_four_words() {
    let meshes = job("descriptors", 2);
    let (files, mut pipes): (Vec<_>, Vec<_>) = (0..8).map(|_| pipe().unwrap()).unzip();
    let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    let words: Vec<u64> = (0..64).collect();
    for count in 0..=8 {
        meshes[1].send(0, [9, 9, 9], &words, &borrowed[..count], watchdog(), &mut || false).unwrap();
        let message = meshes[0].receive(1, [9, 9, 9], watchdog(), &mut || false).unwrap();
        assert_eq!((&message.words, message.descriptors.len()), (&words, count));
        for (nth, received) in message.descriptors.into_iter().enumerate() {
            let mut received = File::from(received);
            pipes[nth].write_all(&[nth as u8]).unwrap();
            assert_eq!(
                identity(&received.metadata().unwrap()),
                identity(&File::from(OwnedFd::from(files[nth].try_clone().unwrap())).metadata().unwrap())
            );
            let mut byte = [99];
            received.read_exact(&mut byte).unwrap();
            assert_eq!(byte, [nth as u8]);
        }
    }
}

#[test]
fn a_message_that_is_too_long_or_for_nobody_is_refused() {
    let meshes = job("refused", 2);
    let words = |outcome: Result<()>| outcome.unwrap_err().to_string();
    assert_eq!(words(send(&meshes[0], 1, 0, &[0; 65])), "found a message of 65 words, expected at most 64");
    let file = descriptor();
    let nine = meshes[0].send(1, [0, 0, 0], &[], &[file.as_fd(); 9], watchdog(), &mut || false);
    assert_eq!(words(nine), "found a message with 9 descriptors, expected at most 8");
    for peer in [0, 2] {
        let expected = format!("found peer {peer}, expected another rank than 0 from 0 to 1");
        assert_eq!(words(send(&meshes[0], peer, 0, &[])), expected);
        assert_eq!(words(receive(&meshes[0], peer, 0).map(drop)), expected);
    }
}

#[test]
fn two_ranks_that_both_send_more_than_the_sockets_hold_go_on() {
    let meshes = job("both send", 2);
    let sent = 3000;
    thread::scope(|scope| {
        for (mesh, peer) in [(&meshes[0], 1), (&meshes[1], 0)] {
            scope.spawn(move || {
                (0..sent).for_each(|word| send(mesh, peer, 1, &[word; 64]).unwrap());
                (0..sent).for_each(|word| assert_eq!(receive(mesh, peer, 1).unwrap(), [word; 64]));
            });
        }
    });
}

#[test]
fn waits_end_at_the_deadline_and_at_the_wish_of_the_caller() {
    let meshes = job("waits", 2);
    let soon = || Deadline::after(Some(0.1));
    let error = meshes[0].receive(1, [1, 1, 1], soon(), &mut || false).unwrap_err().to_string();
    assert!(error.starts_with("receiving a message of rank 1 timed out after 0.1 s: it has not sent"), "{error}");
    let mut asked = 0;
    let mut wish = || {
        asked += 1;
        asked == 3
    };
    assert_eq!(meshes[0].receive(1, [1, 1, 1], Deadline::default(), &mut wish).unwrap_err(), Error::Interrupted);
    let error = loop {
        if let Err(error) = meshes[0].send(1, [1, 1, 1], &[0; 64], &[], soon(), &mut || false) {
            break error.to_string();
        }
    };
    assert!(error.starts_with("sending a message to rank 1 timed out after 0.1 s: it does not read"), "{error}");
    let mut asked = 0;
    let mut wish = || {
        asked += 1;
        asked == 3
    };
    let outcome = meshes[0].send(1, [1, 1, 1], &[0; 64], &[], Deadline::default(), &mut wish);
    assert_eq!(outcome, Err(Error::Interrupted));
}

#[test]
fn a_message_that_has_come_is_received_after_the_deadline() {
    let meshes = job("past", 2);
    send(&meshes[0], 1, 5, &[6]).unwrap();
    let message = meshes[1].receive(0, [5, 0, 0], Deadline::after(Some(0.0)), &mut || true).unwrap();
    assert_eq!(message.words, [6]);
}

#[test]
fn a_peer_that_left_is_noticed_and_its_messages_can_still_be_received() {
    let mut meshes = job("left", 3);
    send(&meshes[2], 0, 1, &[11]).unwrap();
    send(&meshes[2], 0, 2, &[22]).unwrap();
    send(&meshes[0], 2, 1, &[33]).unwrap();
    assert!(!meshes[0].has_left(2));
    meshes.pop();
    assert!(meshes[0].has_left(2) && meshes[1].has_left(2) && !meshes[0].has_left(1));
    assert_eq!((receive(&meshes[0], 2, 2), receive(&meshes[0], 2, 1)), (Ok(vec![22]), Ok(vec![11])));
    let words = "rank 2 left before it sent a message that was asked for";
    assert_eq!(receive(&meshes[0], 2, 1).unwrap_err().to_string(), words);
    assert!(matches!(send(&meshes[1], 2, 1, &[]), Err(Error::Left { rank: 2, .. })));
    check_that_all_can_talk(&meshes);
}

#[test]
fn threads_that_wait_for_a_peer_learn_that_it_left() {
    let mut meshes = job("all learn", 2);
    let leaving = meshes.pop();
    thread::scope(|scope| {
        for key in 0..4 {
            let mesh = &meshes[0];
            scope.spawn(move || assert!(matches!(receive(mesh, 1, key), Err(Error::Left { rank: 1, .. }))));
        }
        thread::sleep(Duration::from_millis(20));
        drop(leaving);
    });
}

#[test]
fn a_message_whose_descriptors_found_no_room_says_so() {
    alone(module_path!(), "a_message_whose_descriptors_found_no_room_says_so", || {
        let (meshes, file) = (job("no room", 2), descriptor());
        let send = |key| meshes[0].send(1, key, &[7], &[file.as_fd(); 8], watchdog(), &mut || false).unwrap();
        send([1, 0, 0]);
        send([2, 0, 0]);
        let before = open_descriptors();
        limit_descriptors(before as u64 + 3);
        for key in [1, 2] {
            let error = meshes[1].receive(0, [key, 0, 0], watchdog(), &mut || false).unwrap_err();
            assert!(matches!(error, Error::System { number: libc::EMFILE, .. }), "{error}");
        }
        limit_descriptors(1 << 14);
        assert_eq!(open_descriptors(), before);
        send([3, 0, 0]);
        let message = meshes[1].receive(0, [3, 0, 0], watchdog(), &mut || false).unwrap();
        assert_eq!((message.words, message.descriptors.len()), (vec![7], 8));
    });
}

#[test]
fn a_message_that_was_taken_back_leaves_no_descriptor_and_says_so_to_who_asks() {
    alone(module_path!(), "a_message_that_was_taken_back_leaves_no_descriptor_and_says_so_to_who_asks", || {
        let (meshes, file) = (job("taken back", 2), descriptor());
        let before = open_descriptors();
        let send =
            |key, words: &[u64]| meshes[0].send(1, key, words, &[file.as_fd()], watchdog(), &mut || false).unwrap();
        send([1, 7, 0], &[1]);
        send([1, 8, 0], &[2]);
        meshes[0].take_back(1, [1, 7]);
        meshes[0].send(1, [5, 0, 0], &[], &[], watchdog(), &mut || false).unwrap();
        let receive = |key| meshes[1].receive(0, key, watchdog(), &mut || false);
        receive([5, 0, 0]).unwrap();
        assert_eq!(open_descriptors(), before + 1, "that of the other message");
        let words = "rank 0 gave up before its message was asked for: the call was aborted";
        assert_eq!(receive([1, 7, 0]).unwrap_err().to_string(), words);
        assert_eq!(receive([1, 8, 0]).unwrap().words, [2]);
    });
}

#[test]
fn a_child_that_was_forked_off_neither_uses_nor_ends_the_connections() {
    alone(module_path!(), "a_child_that_was_forked_off_neither_uses_nor_ends_the_connections", || {
        let meshes = job("fork", 2);
        // SAFETY: the child calls functions that take no lock which another thread could hold, and ends without running anything else.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_refused = matches!(send(&meshes[0], 1, 1, &[]), Err(Error::Closed(_)));
            drop(meshes);
            // SAFETY: ends the child.
            unsafe { libc::_exit(if is_refused { 7 } else { 8 }) };
        }
        let mut status = 0;
        // SAFETY: the status lives through the call.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "status {status}");
        check_that_all_can_talk(&meshes);
    });
}

//! The connection of two ranks that have joined: it sends messages and keeps those that nobody has asked for.
//!
//! ```text
//! receive   kept under the key?            take it
//!           another thread reads?          sleep until it has read something
//!           else                           read, keep, wake all, look again
//! send      no room in the socket?         read what the peer sends meanwhile, so that two ranks that both send go on
//! ```
//!
//! One thread at a time reads a socket, so that no message is lost between two readers. A message that came before the peer left can
//! still be received. Packets that are no messages are dropped: one may be left from the join. Messages are kept until somebody asks
//! for them, however many they are: the peer has shown the token of the job.
//!
//! Cost: a send and a receipt of a message without descriptors are a system call each, and a receipt that waits is three.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use crate::deadline::WaitLimit;
use crate::error::{Error, LateRanks, Result};
use crate::join::patience::{give_up, until_next_look, GiveUp};
use crate::join::socket::{wait, Awaited, PacketSocket, Receipt, Sending, MOST_DESCRIPTORS};
use crate::join::wire::{open, MessageBody, PacketKind, LONGEST_MESSAGE, MOST_WORDS};

/// The wait until a message is sent again when no event says that it can be. Chosen.
const RETRY: Duration = Duration::from_millis(1);

/// The first number of the keys of messages that take others back.
const TAKEN_BACK: u64 = u64::from_le_bytes(*b"takeback");

/// Packets that are read before the reader looks at its own deadline. Chosen.
const READ_AT_ONCE: usize = 64;

/// A message that was received.
#[derive(Debug)]
pub struct Message {
    /// The words, at most 64.
    pub words: Vec<u64>,
    /// The descriptors, at most 8, each closed on exec.
    pub descriptors: Vec<OwnedFd>,
}

/// The connection with a peer.
#[derive(Debug)]
pub(super) struct PeerConnection {
    peer: u32,
    process: u32,
    socket: PacketSocket,
    inbox: Mutex<Inbox>,
    /// The inbox has changed.
    news: Condvar,
}

#[derive(Debug, Default)]
struct Inbox {
    kept: HashMap<[u64; 3], VecDeque<Result<Message>>>,
    /// What the keys of messages begin with that nobody will ask for.
    forgotten: HashSet<[u64; 2]>,
    is_being_read: bool,
    has_ended: bool,
}

impl Inbox {
    fn take(&mut self, key: [u64; 3]) -> Option<Result<Message>> {
        let messages = self.kept.get_mut(&key)?;
        let first = messages.pop_front();
        if messages.is_empty() {
            self.kept.remove(&key);
        }
        first
    }
}

impl PeerConnection {
    /// Begins the connection with a peer whose process the kernel has named.
    pub(super) fn new(peer: u32, socket: PacketSocket, process: u32) -> Self {
        Self { peer, process, socket, inbox: Mutex::default(), news: Condvar::new() }
    }

    /// Returns the process of the peer.
    pub(super) fn process(&self) -> u32 {
        self.process
    }

    /// Says whether the peer has closed its end.
    pub(super) fn has_left(&self) -> bool {
        self.socket.has_ended()
    }

    /// Closes this end, also in processes that were forked off.
    pub(super) fn leave(&self) {
        self.socket.shut_down();
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn left(&self, circumstance: &str) -> Error {
        Error::Left { rank: self.peer, circumstance: circumstance.into() }
    }

    fn given_up(&self, reason: GiveUp, seconds: f64, what: &str, missing: &str) -> Error {
        match reason {
            GiveUp::Interrupted => Error::Interrupted,
            GiveUp::Late => {
                let missing = LateRanks { late: vec![self.peer], ..missing.into() };
                Error::Overdue { what: format!("{what} rank {}", self.peer), seconds, missing: missing.into() }
            }
        }
    }

    fn of_system(&self, what: &str, error: &std::io::Error) -> Error {
        let number = error.raw_os_error().unwrap_or(libc::EIO);
        Error::System { what: format!("{what} rank {}", self.peer), number }
    }

    /// Drops the messages with keys that begin so, those that come later too.
    pub(super) fn forget(&self, key: [u64; 2]) {
        let mut inbox = self.inbox();
        inbox.kept.retain(|kept, _| kept[..2] != key);
        inbox.forgotten.insert(key);
    }

    /// Sends a message.
    pub(super) fn send(
        &self,
        key: [u64; 3],
        words: &[u64],
        descriptors: &[BorrowedFd<'_>],
        limit: &mut WaitLimit<'_>,
    ) -> Result<()> {
        loop {
            let sent = self.try_to_send(key, words, descriptors)?;
            match sent {
                Sending::Done => return Ok(()),
                Sending::Ended => return Err(self.left("before a message was sent to it")),
                Sending::NoRoom => self.make_way(until_next_look(limit.deadline))?,
                Sending::NotNow => sleep(RETRY),
            }
            if let Some(reason) = give_up(limit) {
                if sent == Sending::NotNow && reason == GiveUp::Late {
                    return Err(too_many_in_flight(&format!("no descriptor could be passed to rank {}", self.peer)));
                }
                let missing = "it does not read its messages: see whether it was stopped";
                return Err(self.given_up(reason, limit.deadline.seconds(), "sending a message to", missing));
            }
        }
    }

    /// Takes back what was sent with keys that begin so: the peer closes the descriptors, and gets the reason if it asks.
    pub(super) fn take_back(&self, key: [u64; 2]) {
        _ = self.try_to_send([TAKEN_BACK, key[0], key[1]], &[], &[]);
    }

    /// Sends a message if that is possible now.
    pub(super) fn try_to_send(&self, key: [u64; 3], words: &[u64], descriptors: &[BorrowedFd<'_>]) -> Result<Sending> {
        check_lengths(words.len(), descriptors.len())?;
        let packet = MessageBody::packet(key, words, descriptors.len());
        let sent = self.socket.send(&packet, descriptors);
        sent.map_err(|error| self.of_system("a message cannot be sent to", &error))
    }

    /// Waits for room in the socket, and reads what comes meanwhile.
    fn make_way(&self, at_most: Duration) -> Result<()> {
        if !self.begin_reading() {
            sleep(at_most.min(RETRY));
            return Ok(());
        }
        self.read_and_end_reading(Awaited::IncomingOrRoom, at_most)
    }

    /// Receives the next message with a key.
    pub(super) fn receive(&self, key: [u64; 3], limit: &mut WaitLimit<'_>) -> Result<Message> {
        loop {
            let mut inbox = self.inbox();
            if let Some(message) = inbox.take(key) {
                return message;
            }
            if inbox.has_ended {
                return Err(self.left("before it sent a message that was asked for"));
            }
            let next_look = until_next_look(limit.deadline);
            if inbox.is_being_read {
                drop(self.news.wait_timeout(inbox, next_look).unwrap_or_else(PoisonError::into_inner));
            } else {
                inbox.is_being_read = true;
                drop(inbox);
                self.read_and_end_reading(Awaited::Incoming, next_look)?;
            }
            let Some(reason) = give_up(limit) else { continue };
            // What came in the last moment counts.
            return self.inbox().take(key).unwrap_or_else(|| {
                let missing = "it has not sent the message: see whether it makes the same calls";
                Err(self.given_up(reason, limit.deadline.seconds(), "receiving a message of", missing))
            });
        }
    }

    /// Becomes the reader of the socket; says whether nobody else was.
    fn begin_reading(&self) -> bool {
        !std::mem::replace(&mut self.inbox().is_being_read, true)
    }

    fn read_and_end_reading(&self, awaited: Awaited, at_most: Duration) -> Result<()> {
        let outcome = self.read(awaited, at_most);
        self.inbox().is_being_read = false;
        self.news.notify_all();
        outcome
    }

    /// Reads the packets that are there; waits for one if there is none.
    fn read(&self, awaited: Awaited, at_most: Duration) -> Result<()> {
        let failed = |error: std::io::Error| self.of_system("no message can be received of", &error);
        for round in 0..READ_AT_ONCE {
            let (mut room, mut descriptors) = ([0; LONGEST_MESSAGE], Vec::new());
            let receipt = self.socket.receive_with(&mut room, &mut descriptors).map_err(failed)?;
            match receipt {
                Receipt::Packet(bytes) | Receipt::Cut(bytes) => self.keep(&room[..bytes], descriptors),
                Receipt::Ended | Receipt::Reset => {
                    self.inbox().has_ended = true;
                    return Ok(());
                }
                Receipt::Nothing if round > 0 => return Ok(()),
                Receipt::Nothing => _ = wait(&[(self.socket.as_fd(), awaited)], at_most).map_err(failed)?,
            }
        }
        Ok(())
    }

    fn keep(&self, packet: &[u8], descriptors: Vec<OwnedFd>) {
        let Ok((PacketKind::Message, fields)) = open(packet) else { return };
        let Some(body) = MessageBody::read(fields) else { return };
        let message = if body.descriptors == descriptors.len() {
            Ok(Message { words: body.words, descriptors })
        } else {
            Err(Error::System {
                what: format!(
                    "{} of {} descriptors of rank {} were received: raise the limit of open files (`ulimit -n`)",
                    descriptors.len(),
                    body.descriptors,
                    self.peer
                ),
                number: libc::EMFILE,
            })
        };
        let mut inbox = self.inbox();
        if body.key[0] == TAKEN_BACK {
            let of_key = inbox.kept.iter_mut().filter(|(key, _)| key[..2] == body.key[1..]);
            let has_descriptors = |message: &Result<Message>| message.as_ref().is_ok_and(|m| !m.descriptors.is_empty());
            for message in of_key.flat_map(|(_, messages)| messages).filter(|message| has_descriptors(message)) {
                let cause = "gave up before its message was asked for".into();
                *message = Err(Error::Aborted { rank: self.peer, cause });
            }
            return;
        }
        if !inbox.forgotten.contains(&body.key[..2]) {
            inbox.kept.entry(body.key).or_default().push_back(message);
        }
    }
}

/// Returns the error of a descriptor that the system does not pass.
pub(crate) fn too_many_in_flight(what: &str) -> Error {
    let what = format!(
        "{what}: this user has too many descriptors in flight between processes; end programs that do not read theirs, or raise the \
         limit of open files (`ulimit -n`)"
    );
    Error::System { what, number: libc::ETOOMANYREFS }
}

fn check_lengths(words: usize, descriptors: usize) -> Result<()> {
    if words > MOST_WORDS {
        return Err(Error::Invalid(format!("found a message of {words} words, expected at most {MOST_WORDS}")));
    }
    if descriptors > MOST_DESCRIPTORS {
        let words = format!("found a message with {descriptors} descriptors, expected at most {MOST_DESCRIPTORS}");
        return Err(Error::Invalid(words));
    }
    Ok(())
}

//! Accepted connections whose peer has not introduced itself.
//!
//! ```text
//! accept     another user                              closed
//! hello      not a hello of nvcoll, or of another job  closed
//!            another version, another token            gets the reason, closed
//!            else                                      a caller: only callers can make a join fail
//! silence    kept; the oldest is closed when there are many
//! ```
//!
//! Whoever is turned away counts for nothing. If a rank is turned away because strangers crowd out its connection, its hello was not read, so
//! that it sees a reset and connects again.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nvcoll_core::words::counted;

use crate::join::failure::JoinFailure;
use crate::join::settings::JobSettings;
use crate::join::socket::{PacketSocket, Receipt};
use crate::join::wire::{open, Hello, PacketKind, Unreadable, LONGEST_HELLO};

/// Connections accepted in one round. Chosen: a flood does not keep a rank from looking at its deadline.
const ACCEPTED_PER_ROUND: usize = 64;

/// Silent connections that are kept besides one for each rank. Chosen.
const SPARE_CONNECTIONS: usize = 64;

/// A process that has introduced itself with the token of the job.
pub(super) struct Caller {
    pub(super) socket: PacketSocket,
    pub(super) process: u32,
    pub(super) hello: Hello,
}

/// The number of connections that were turned away, by reason.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TurnedAway {
    pub(super) other_users: u32,
    pub(super) other_tokens: u32,
    pub(super) other_versions: u32,
}

/// A listening socket and its silent connections.
pub(super) struct Handshakes<'a> {
    settings: &'a JobSettings,
    /// The user of the ranks.
    user: u32,
    listener: PacketSocket,
    silent: VecDeque<(PacketSocket, u32)>,
    turned_away: TurnedAway,
}

impl<'a> Handshakes<'a> {
    /// Begins the handshakes of those who connect to a listening socket as processes of a user.
    pub(super) fn new(settings: &'a JobSettings, user: u32, listener: PacketSocket) -> Self {
        Self { settings, user, listener, silent: VecDeque::new(), turned_away: TurnedAway::default() }
    }

    /// Returns the sockets that become readable when somebody comes or speaks.
    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.listener.as_fd()).chain(self.silent.iter().map(|(socket, _)| socket.as_fd()))
    }

    /// Accepts connections and reads hellos, after one of the sockets became readable; returns the callers.
    ///
    /// # Errors
    /// The system has no descriptor or memory left for a connection.
    pub(super) fn admit(&mut self) -> io::Result<Vec<Caller>> {
        let accepted = self.accept();
        let mut callers = Vec::new();
        let connections = std::mem::take(&mut self.silent);
        let before = connections.len();
        for (socket, process) in connections {
            let mut room = [0; LONGEST_HELLO];
            match socket.receive(&mut room) {
                Ok(Receipt::Nothing) => self.silent.push_back((socket, process)),
                Ok(Receipt::Packet(bytes)) => {
                    callers.extend(self.judge(&socket, &room[..bytes]).map(|hello| Caller { socket, process, hello }));
                }
                Ok(Receipt::Cut(_) | Receipt::Ended | Receipt::Reset) | Err(_) => (),
            }
        }
        if self.silent.len() == before {
            // Nobody spoke, so that somebody waits to be accepted: the oldest silent connection gives its descriptor.
            accepted.or_else(|error| self.silent.pop_front().map(drop).ok_or(error))?;
        }
        let most = self.settings.world_size as usize + SPARE_CONNECTIONS;
        self.silent.drain(..self.silent.len().saturating_sub(most));
        Ok(callers)
    }

    /// Accepts the connections that wait. The system refuses without a descriptor even if none waits.
    fn accept(&mut self) -> io::Result<()> {
        for _ in 0..ACCEPTED_PER_ROUND {
            match self.listener.accept() {
                Ok(None) => break,
                Ok(Some(socket)) => match socket.peer() {
                    Ok(peer) if peer.user == self.user => self.silent.push_back((socket, peer.process)),
                    Ok(_) => self.turned_away.other_users += 1,
                    Err(_) => (),
                },
                Err(error) if error.raw_os_error() == Some(libc::ECONNABORTED) => (),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the hello in a packet of a stranger, or says why it is turned away.
    fn judge(&mut self, socket: &PacketSocket, packet: &[u8]) -> Option<Hello> {
        let own = self.settings;
        let has_rank_zero_one = own.token.is_some();
        match open(packet) {
            Ok((PacketKind::Hello, fields)) => {
                let hello = Hello::read(fields).filter(|hello| hello.job == own.job.as_bytes())?;
                if own.has_token_of(&hello) {
                    return Some(hello);
                }
                self.turned_away.other_tokens += 1;
            }
            Err(Unreadable::OtherVersion(_)) => self.turned_away.other_versions += 1,
            _ => return None,
        }
        // To another version the head of any refusal says enough.
        _ = socket.send(&JoinFailure::Token { has_rank_zero_one }.packet(own.rank), &[]);
        None
    }

    /// Says in words who was turned away; nothing if nobody was.
    pub(super) fn note(&self) -> String {
        let TurnedAway { other_users, other_tokens, other_versions } = self.turned_away;
        let parts = [
            (other_users, "of another user"),
            (other_tokens, "with another token"),
            (other_versions, "with another version of nvcoll"),
        ];
        let parts = parts.iter().filter(|(number, _)| *number > 0);
        let parts: Vec<String> =
            parts.map(|(number, kind)| format!("{} {kind}", counted(*number, "connection"))).collect();
        if parts.is_empty() {
            return String::new();
        }
        format!(" (rank {} turned away {})", self.settings.rank, parts.join(", "))
    }
}

impl Drop for Handshakes<'_> {
    /// Stops listening at once, also where another thread is about to start a program and its child still has a copy of the socket.
    fn drop(&mut self) {
        self.listener.shut_down();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::deadline::Deadline;
    use crate::join::socket::own_user;

    fn settings(token: Option<[u8; 32]>) -> JobSettings {
        JobSettings { rank: 0, world_size: 4, job: "handshake".into(), token, deadline: Deadline::default() }
    }

    fn handshakes(settings: &JobSettings, user: u32) -> (Handshakes<'_>, Vec<u8>) {
        let listener = PacketSocket::listen(None).unwrap();
        let name = listener.name().unwrap();
        (Handshakes::new(settings, user, listener), name)
    }

    fn hello(settings: &JobSettings) -> Vec<u8> {
        settings.hello([0, 0], Vec::new()).packet(PacketKind::Hello)
    }

    /// Returns the answer to a packet of a new connection, if it is no caller.
    fn answer(handshakes: &mut Handshakes<'_>, name: &[u8], packet: &[u8]) -> Result<Receipt, Caller> {
        let socket = PacketSocket::connect(name).unwrap();
        socket.send(packet, &[]).unwrap();
        match handshakes.admit().unwrap().pop() {
            Some(caller) => Err(caller),
            None => Ok(socket.receive(&mut [0; 1024]).unwrap()),
        }
    }

    #[test]
    fn a_rank_of_the_job_is_a_caller() {
        let settings = settings(Some([1; 32]));
        let (mut handshakes, name) = handshakes(&settings, own_user());
        let caller = answer(&mut handshakes, &name, &hello(&settings)).unwrap_err();
        assert!(caller.hello == settings.hello([0, 0], Vec::new()));
        assert_eq!((caller.process, handshakes.note().as_str()), (std::process::id(), ""));
    }

    #[test]
    fn a_process_of_another_user_is_not_heard() {
        let settings = settings(None);
        let (mut handshakes, name) = handshakes(&settings, own_user() + 1);
        assert_eq!(answer(&mut handshakes, &name, &hello(&settings)).ok(), Some(Receipt::Reset));
        assert_eq!(handshakes.note(), " (rank 0 turned away 1 connection of another user)");
    }

    #[test]
    fn another_token_and_another_version_are_told_so() {
        let (own, other) = (settings(Some([1; 32])), settings(Some([2; 32])));
        let (mut handshakes, name) = handshakes(&own, own_user());
        let mut next = hello(&own);
        next[16] ^= 1;
        for packet in [hello(&other), hello(&settings(None)), next] {
            assert!(matches!(answer(&mut handshakes, &name, &packet), Ok(Receipt::Packet(_))));
        }
        let note =
            " (rank 0 turned away 2 connections with another token, 1 connection with another version of nvcoll)";
        assert_eq!(handshakes.note(), note);
    }

    #[test]
    fn another_job_and_noise_are_turned_away_without_a_word() {
        let (own, other) = (settings(None), JobSettings { job: "other".into(), ..settings(None) });
        let (mut handshakes, name) = handshakes(&own, own_user());
        for packet in [&hello(&other)[..], b"GET / HTTP/1.1", &[0; 4096], &hello(&own)[1..]] {
            assert!(matches!(answer(&mut handshakes, &name, packet), Ok(Receipt::Ended | Receipt::Reset)));
        }
        assert_eq!(handshakes.note(), "");
    }

    #[test]
    fn the_oldest_of_many_silent_connections_are_closed() {
        let settings = settings(None);
        let (mut handshakes, name) = handshakes(&settings, own_user());
        let mut sockets = Vec::new();
        for _ in 0..10 {
            sockets.extend((0..32).map(|_| PacketSocket::connect(&name).unwrap()));
            assert!(handshakes.admit().unwrap().is_empty());
        }
        let ended = sockets.iter().map(PacketSocket::has_ended);
        assert_eq!(ended.collect::<Vec<_>>(), [[true; 252].as_slice(), &[false; 68]].concat());
    }
}

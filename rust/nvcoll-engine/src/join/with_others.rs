//! The part of every other rank in a join: when rank 0 has sent the names of all ranks, it connects with each.
//!
//! Of two ranks the lower one listens. A connection counts when both ends have shown the token and the number of the join. If one is
//! refused or closed, the rank tries again: rank 0 knows whether the other rank lives, and reports its death.

use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::Duration;

use crate::join::failure::JoinFailure;
use crate::join::handshake::{Caller, Handshakes};
use crate::join::patience::{until_next_look, GiveUp, JoinWait};
use crate::join::settings::JobSettings;
use crate::join::socket::{PacketSocket, Receipt, Sending};
use crate::join::wire::{head, open, Hello, PacketKind, SocketName, LONGEST_HELLO};
use crate::join::with_rank_zero::{
    call, meet_rank_zero, wait_for, RankZeroConnection, RankZeroSays, FIRST_RETRY, LONGEST_RETRY,
};

/// The connection with another rank.
enum PairState {
    /// The rank is this one or rank 0, or the other rank will call.
    Expected,
    /// This rank has to call the other one.
    ToCall(SocketName),
    /// It has called, and has no answer.
    Called(SocketName, PacketSocket, u32),
    /// Both have shown that they belong to this join.
    Connected(PacketSocket, u32),
}

struct Joining<'a> {
    settings: &'a JobSettings,
    user: u32,
    /// The hello of this rank, with the number of the join.
    hello: Hello,
    rank_zero: RankZeroConnection<'a>,
    /// `None` if no rank calls this one, and when all are connected.
    handshakes: Option<Handshakes<'a>>,
    /// One place per rank.
    pairs: Vec<PairState>,
    is_ready: bool,
}

/// Joins rank 0 and all others; returns for each other rank its socket and its process.
pub(super) fn join(
    settings: &JobSettings,
    user: u32,
    patience: &mut JoinWait<'_>,
) -> Result<Vec<Option<(PacketSocket, u32)>>, JoinFailure> {
    let (handshakes, listens_at) = listen(settings, user)?;
    let mut hello = settings.hello([0, 0], listens_at);
    let (rank_zero, names) = meet_rank_zero(settings, user, &mut hello, patience)?;
    let pair = |(rank, name): (u32, SocketName)| match (1..settings.rank).contains(&rank) {
        true => PairState::ToCall(name),
        false => PairState::Expected,
    };
    let pairs = (0..).zip(names).map(pair).collect();
    let mut joining = Joining { settings, user, hello, rank_zero, handshakes, pairs, is_ready: false };
    if let Err(failure) = joining.run(patience) {
        joining.rank_zero.tell(&failure);
        return Err(failure);
    }
    let socket = |pair| match pair {
        PairState::Connected(socket, process) => Some((socket, process)),
        _ => None,
    };
    let mut sockets: Vec<_> = joining.pairs.into_iter().map(socket).collect();
    sockets[0] = Some((joining.rank_zero.socket, joining.rank_zero.process));
    Ok(sockets)
}

/// Listens for higher ranks, if there are any.
fn listen(settings: &JobSettings, user: u32) -> Result<(Option<Handshakes<'_>>, SocketName), JoinFailure> {
    if settings.rank + 1 == settings.world_size {
        return Ok((None, Vec::new()));
    }
    let listener = PacketSocket::listen(None).and_then(|listener| Ok((listener.name()?, listener)));
    let (name, listener) = listener.map_err(|error| {
        JoinFailure::of_system(settings, "no unix socket to listen for other ranks could be made", &error)
    })?;
    Ok((Some(Handshakes::new(settings, user, listener)), name))
}

impl Joining<'_> {
    /// Returns the ranks without connection.
    fn unconnected(&self) -> Vec<u32> {
        let is_missing =
            |rank: &u32| *rank != self.settings.rank && !matches!(self.pairs[*rank as usize], PairState::Connected(..));
        (1..self.settings.world_size).filter(is_missing).collect()
    }

    /// Returns the failure of a rank that waits too long for the others.
    fn late(&self) -> JoinFailure {
        let unconnected = self.unconnected();
        let ranks = if unconnected.is_empty() { vec![0] } else { unconnected };
        JoinFailure::NotConnected { rank: self.settings.rank, ranks, seconds: 0.0 }
    }

    fn run(&mut self, patience: &mut JoinWait<'_>) -> Result<(), JoinFailure> {
        loop {
            let is_calling = self.call_all()?;
            self.say_ready_if_connected()?;
            match patience.give_up(self.settings, || self.late().missing()) {
                Some(GiveUp::Interrupted) => return Err(JoinFailure::Interrupted { rank: self.settings.rank }),
                Some(GiveUp::Late) => {
                    return self.rank_zero.last_word(self.unconnected(), patience.deadline().seconds())
                }
                None => (),
            }
            let next_look = until_next_look(patience.deadline());
            if self.hear_all(if is_calling { next_look.min(LONGEST_RETRY) } else { next_look })? {
                return Ok(());
            }
        }
    }

    /// Calls the ranks that have to be called. Says whether one could not be reached.
    fn call_all(&mut self) -> Result<bool, JoinFailure> {
        let mut is_calling = false;
        for pair in &mut self.pairs {
            let PairState::ToCall(name) = pair else { continue };
            match call(self.settings, self.user, name, &self.hello) {
                Ok(Some((socket, process))) => *pair = PairState::Called(std::mem::take(name), socket, process),
                // The kernel gives the name of a rank that left to the next who asks.
                Ok(None) | Err(JoinFailure::OtherUser(_)) => is_calling = true,
                Err(failure) => return Err(failure),
            }
        }
        Ok(is_calling)
    }

    fn say_ready_if_connected(&mut self) -> Result<(), JoinFailure> {
        if self.is_ready || !self.unconnected().is_empty() {
            return Ok(());
        }
        (self.is_ready, self.handshakes) = (true, None);
        match self.rank_zero.socket.send(&head(PacketKind::Ready), &[]) {
            Ok(Sending::Done) => Ok(()),
            // The last message of rank 0 before it closed can still be read.
            Ok(Sending::Ended) => self.rank_zero.hear().and(Err(JoinFailure::Left { rank: 0 })),
            Ok(_) => Err(JoinFailure::Left { rank: 0 }),
            Err(error) => {
                Err(JoinFailure::of_system(self.settings, "rank 0 cannot learn that a rank is ready", &error))
            }
        }
    }

    /// Waits until somebody speaks, comes or leaves, and hears those who do. Says whether rank 0 lets all go.
    fn hear_all(&mut self, limit: Duration) -> Result<bool, JoinFailure> {
        let called = (0..).zip(&self.pairs).filter_map(|(rank, pair)| match pair {
            PairState::Called(_, socket, _) => Some((rank, socket.as_fd())),
            _ => None,
        });
        let (ranks, called): (Vec<u32>, Vec<_>) = called.unzip();
        let strangers = self.handshakes.iter().flat_map(Handshakes::sockets);
        let rank_zero = std::iter::once(self.rank_zero.socket.as_fd());
        let sockets: Vec<_> = rank_zero.chain(called).chain(strangers).collect();
        let ready = wait_for(self.settings, &sockets, limit)?;
        if ready[0] {
            match self.rank_zero.hear()? {
                RankZeroSays::Go if self.is_ready => return Ok(true),
                RankZeroSays::Nothing => (),
                _ => return Err(JoinFailure::Left { rank: 0 }),
            }
        }
        for (&rank, _) in ranks.iter().zip(&ready[1..]).filter(|(_, is_ready)| **is_ready) {
            self.hear(rank);
        }
        if ready[1 + ranks.len()..].contains(&true) {
            self.receive_callers()?;
        }
        Ok(false)
    }

    /// Reads the answer of a rank that was called. Anything else is a reason to call again.
    fn hear(&mut self, rank: u32) {
        let pair = &mut self.pairs[rank as usize];
        let PairState::Called(name, socket, process) = std::mem::replace(pair, PairState::Expected) else { return };
        let mut room = [0; LONGEST_HELLO];
        let answer = match socket.receive(&mut room) {
            Ok(Receipt::Nothing) => {
                *pair = PairState::Called(name, socket, process);
                return;
            }
            Ok(Receipt::Packet(bytes)) => match open(&room[..bytes]) {
                Ok((PacketKind::Answer, fields)) => Hello::read(fields),
                _ => None,
            },
            _ => None,
        };
        let is_peer = answer.is_some_and(|answer| answer.rank == rank && belongs(self.settings, &self.hello, &answer));
        if is_peer {
            *pair = PairState::Connected(socket, process);
        } else {
            *pair = PairState::ToCall(name);
            sleep(FIRST_RETRY);
        }
    }

    fn receive_callers(&mut self) -> Result<(), JoinFailure> {
        let Some(handshakes) = &mut self.handshakes else { return Ok(()) };
        let callers = handshakes.admit().map_err(|error| {
            let what = format!(
                "no connection of another rank could be accepted: rank {} needs {} descriptors besides those that it has open; \
                 raise the limit of open files (`ulimit -n`)",
                self.settings.rank, self.settings.world_size
            );
            JoinFailure::of_system(self.settings, &what, &error)
        })?;
        for Caller { socket, process, hello } in callers {
            let is_expected = hello.rank > self.settings.rank && hello.rank < self.settings.world_size;
            if !is_expected || !belongs(self.settings, &self.hello, &hello) {
                continue;
            }
            let pair = &mut self.pairs[hello.rank as usize];
            let answer = self.hello.packet(PacketKind::Answer);
            if matches!(pair, PairState::Expected) && matches!(socket.send(&answer, &[]), Ok(Sending::Done)) {
                *pair = PairState::Connected(socket, process);
            }
        }
        Ok(())
    }
}

/// Says whether a rank belongs to the join of this one.
fn belongs(settings: &JobSettings, own: &Hello, other: &Hello) -> bool {
    let is_of_join = own.join == other.join && own.world_size == other.world_size && own.job == other.job;
    is_of_join && settings.has_token_of(other)
}

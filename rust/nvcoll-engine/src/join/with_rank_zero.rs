//! The connection of a rank with rank 0 during a join: the rank calls until rank 0 listens, then hears what it says.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::join::failure::JoinFailure;
use crate::join::patience::{until_next_look, GiveUp, JoinWait};
use crate::join::settings::JobSettings;
use crate::join::socket::{wait, Awaited, PacketSocket, Receipt, Sending};
use crate::join::wire::{
    open, Hello, PacketKind, RefusalBody, SocketName, Unreadable, HEAD_BYTES, LONGEST_JOIN_PACKET,
};

/// The first and the longest wait before a rank calls again. Chosen: ranks start within milliseconds of each other, and a call costs
/// microseconds.
pub(super) const FIRST_RETRY: Duration = Duration::from_micros(500);
pub(super) const LONGEST_RETRY: Duration = Duration::from_millis(5);

/// The time that a rank whose deadline has passed gives rank 0 to say who is missing. Chosen: rank 0 answers at once, unless it is
/// stopped or has no processor.
const LAST_WORD: Duration = Duration::from_millis(200);

const AT_RANK_ZERO: &str = "rank 0 has come, and says for whom it waits unless it was stopped";

/// The connection with rank 0.
pub(super) struct RankZeroConnection<'a> {
    pub(super) settings: &'a JobSettings,
    pub(super) socket: PacketSocket,
    pub(super) process: u32,
}

/// What rank 0 says, if the join has not failed.
pub(super) enum RankZeroSays {
    /// All ranks have come: the words of rank 0 about itself, and the names of all ranks.
    Welcome(Hello, Vec<SocketName>),
    /// The join is complete.
    Go,
    /// Nothing yet.
    Nothing,
    /// It closed the connection without reading the hello.
    Reset,
}

/// Connects to a name and says hello; returns the socket and the process at its other end. `None`: nobody listens there now.
pub(super) fn call(
    settings: &JobSettings,
    user: u32,
    name: &[u8],
    hello: &Hello,
) -> Result<Option<(PacketSocket, u32)>, JoinFailure> {
    let failed = |error: io::Error| {
        let what = format!(
            "no connection with another rank could be made: rank {} needs {} descriptors besides those that it has open; raise \
             the limit of open files (`ulimit -n`) if it is reached",
            settings.rank, settings.world_size
        );
        JoinFailure::of_system(settings, &what, &error)
    };
    let is_absent = |kind| matches!(kind, io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock);
    let socket = match PacketSocket::connect(name) {
        Err(error) if is_absent(error.kind()) => return Ok(None),
        socket => socket.map_err(failed)?,
    };
    let peer = socket.peer().map_err(failed)?;
    if peer.user != user {
        return Err(JoinFailure::OtherUser(peer));
    }
    let sent = socket.send(&hello.packet(PacketKind::Hello), &[]).map_err(failed)?;
    Ok((sent == Sending::Done).then_some((socket, peer.process)))
}

/// Waits until a socket has a packet.
pub(super) fn wait_for(
    settings: &JobSettings,
    sockets: &[BorrowedFd<'_>],
    limit: Duration,
) -> Result<Vec<bool>, JoinFailure> {
    let sockets: Vec<_> = sockets.iter().map(|&socket| (socket, Awaited::Incoming)).collect();
    wait(&sockets, limit)
        .map_err(|error| JoinFailure::of_system(settings, "no wait for other ranks is possible", &error))
}

/// Connects to rank 0 and waits until all ranks have come. Fills the number of the join in; returns the names of the ranks.
pub(super) fn meet_rank_zero<'a>(
    settings: &'a JobSettings,
    user: u32,
    hello: &mut Hello,
    patience: &mut JoinWait<'_>,
) -> Result<(RankZeroConnection<'a>, Vec<SocketName>), JoinFailure> {
    let mut pause = FIRST_RETRY;
    loop {
        if let Some((socket, process)) = call(settings, user, &settings.rendezvous(user), hello)? {
            let rank_zero = RankZeroConnection { settings, socket, process };
            let welcome = rank_zero.await_welcome(patience).inspect_err(|failure| rank_zero.tell(failure))?;
            if let Some((about_rank_zero, names)) = welcome {
                hello.join = about_rank_zero.join;
                return Ok((rank_zero, names));
            }
        }
        match patience.give_up(settings, || JoinFailure::NoRankZero { seconds: 0.0 }.missing()) {
            Some(GiveUp::Interrupted) => return Err(JoinFailure::Interrupted { rank: settings.rank }),
            Some(GiveUp::Late) => return Err(JoinFailure::NoRankZero { seconds: patience.deadline().seconds() }),
            None => (),
        }
        sleep(pause.min(until_next_look(patience.deadline())));
        pause = (pause * 2).min(LONGEST_RETRY);
    }
}

impl RankZeroConnection<'_> {
    /// Tells rank 0 why this rank gives up.
    pub(super) fn tell(&self, failure: &JoinFailure) {
        _ = self.socket.send(&failure.packet(self.settings.rank), &[]);
    }

    /// Reads a packet of rank 0.
    pub(super) fn hear(&self) -> Result<RankZeroSays, JoinFailure> {
        let left = JoinFailure::Left { rank: 0 };
        let mut room = vec![0; LONGEST_JOIN_PACKET];
        let bytes = match self.socket.receive(&mut room) {
            Ok(Receipt::Packet(bytes)) => bytes,
            Ok(Receipt::Nothing) => return Ok(RankZeroSays::Nothing),
            Ok(Receipt::Reset) => return Ok(RankZeroSays::Reset),
            _ => return Err(left),
        };
        match open(&room[..bytes]) {
            Ok((PacketKind::Welcome, fields)) => {
                let welcome = Hello::read_welcome(fields).filter(|(hello, _)| self.is_of_rank_zero(hello));
                welcome.map(|(hello, names)| RankZeroSays::Welcome(hello, names)).ok_or(left)
            }
            Ok((PacketKind::Go, _)) if bytes == HEAD_BYTES => Ok(RankZeroSays::Go),
            Ok((PacketKind::Refusal, fields)) => {
                Err(RefusalBody::read(fields).and_then(JoinFailure::read).unwrap_or(left))
            }
            Err(Unreadable::OtherVersion(version)) => Err(JoinFailure::OtherVersion(version)),
            _ => Err(left),
        }
    }

    fn is_of_rank_zero(&self, hello: &Hello) -> bool {
        let is_of_job = hello.job == self.settings.job.as_bytes() && hello.world_size == self.settings.world_size;
        is_of_job && hello.rank == 0 && self.settings.has_token_of(hello)
    }

    /// Waits for the names of all ranks. `None`: rank 0 closed the connection before it read the hello.
    fn await_welcome(&self, patience: &mut JoinWait<'_>) -> Result<Option<(Hello, Vec<SocketName>)>, JoinFailure> {
        loop {
            match self.hear()? {
                RankZeroSays::Welcome(hello, names) => return Ok(Some((hello, names))),
                RankZeroSays::Reset => return Ok(None),
                RankZeroSays::Go => return Err(JoinFailure::Left { rank: 0 }),
                RankZeroSays::Nothing => (),
            }
            match patience.give_up(self.settings, || AT_RANK_ZERO.into()) {
                Some(GiveUp::Interrupted) => return Err(JoinFailure::Interrupted { rank: self.settings.rank }),
                Some(GiveUp::Late) => {
                    return self
                        .last_word(Vec::new(), patience.deadline().seconds())
                        .and(Err(JoinFailure::Left { rank: 0 }))
                }
                None => (),
            }
            wait_for(self.settings, &[self.socket.as_fd()], until_next_look(patience.deadline()))?;
        }
    }

    /// Tells rank 0 that the deadline has passed, and waits a little for the reason that it knows. If rank 0 has let all ranks go
    /// meanwhile, the join is complete.
    pub(super) fn last_word(&self, unconnected: Vec<u32>, seconds: f64) -> Result<(), JoinFailure> {
        self.tell(&JoinFailure::NotConnected { rank: self.settings.rank, ranks: unconnected, seconds });
        let end = Instant::now() + LAST_WORD;
        loop {
            match self.hear()? {
                RankZeroSays::Go => return Ok(()),
                RankZeroSays::Reset => return Err(JoinFailure::NoRankZero { seconds }),
                RankZeroSays::Welcome(..) | RankZeroSays::Nothing => (),
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(JoinFailure::Silent { seconds });
            }
            wait_for(self.settings, &[self.socket.as_fd()], left)?;
        }
    }
}
